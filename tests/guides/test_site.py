"""The site: every guide has a place in it, and what is made for it is whole."""

import inspect
import re

import links
import pages
import pytest

import bigclf
from bigclf.cli import COMMANDS
from bigclf.cli.help import TOPICS, guide


def test_every_page_stands_once_in_the_contents():
    listed = re.findall(
        r"^ +- .*: ([\w/-]+\.md)$", (pages.TOP / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted([*(f"{topic}.md" for topic in TOPICS), *pages.made()])


def test_the_reference_of_commands_has_all_of_them_with_their_options():
    made = pages.commands()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", made, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(COMMANDS)
    assert "`--memory SIZE`" in sections["fit"] and "--resume" in sections["fit"]
    assert r"`--bias [feature\|free\|none]`" in sections["fit"], "a bar would end the cell of the table"


def test_tables_of_methods_become_a_section_for_each():
    laid = "\n".join(pages.shown(guide(topic)) for topic in TOPICS)
    assert sorted(re.findall(r"^## `(\w+)` \{", laid, re.MULTILINE)) == sorted(m["name"] for m in bigclf.algorithms())
    assert "| `working_set` |" in laid and "methods: made by" not in laid


def test_a_bar_in_the_code_of_a_table_has_no_backslash_on_the_site():
    text = "| `a\\|b` | c\\|d |\n\n`a\\|b`\n"
    assert pages.shown(text) == "| `a|b` | c\\|d |\n\n`a\\|b`\n"


def test_the_reference_of_python_has_every_public_name():
    made = "\n".join(pages.made().values())
    for name in set(bigclf.__all__) - {"__version__", "errors"}:
        assert f"::: bigclf.{name}\n" in made, name
    assert "::: bigclf.errors.DataError\n" in made and "bigclf.errors.mask" not in made
    for name, members in pages.CLASSES.items():
        assert set(members or ()) <= set(dir(getattr(bigclf, name)))


def test_links_of_the_repositorys_documents_lead_to_pages():
    start = pages.document("README.md")
    assert "](project/contributing.md)" in start
    assert not re.search(r"\]\((bigclf|jobs|cluster)/", start)
    assert "](security.md)" in pages.document("cluster/README.md")
    assert "start.py" not in pages.document("cluster/README.md").splitlines()[9], "no page shows that program"


def test_docstrings_are_laid_out_for_the_site():
    griffe = pytest.importorskip("griffe", reason="the extra docs is not installed")
    from live_docstrings import readable

    laid = readable(inspect.getdoc(bigclf.fit))
    assert "{options}" not in laid and "**Returns:**" in laid
    parsed = griffe.Docstring(laid).parse("numpy", warn_unknown_params=False, warn_missing_types=False)
    (parameters,) = [section for section in parsed if section.kind.value == "parameters"]
    described = {parameter.name: parameter.description for parameter in parameters.value}
    assert {"data", "algo", "memory"} <= described.keys() and all(described.values())


def test_dead_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="x">A</h1><a href="b.html#y">b</a><a href="#x">x</a><a href="https://h/">')
    (tmp_path / "b.html").write_text('<a href="a.html#z">z</a><img src="none.png"><script src="https://h/s.js">')
    found = [*links.dead(tmp_path)]
    assert sorted(found) == ["a.html: b.html#y", "b.html: a.html#z", "b.html: none.png"]
    assert len([*links.outside(tmp_path)]) == 1
