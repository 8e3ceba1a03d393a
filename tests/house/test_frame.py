"""The frame: commands, links and the tables of methods in README and guides are true, and the version is one.

As a program:  python tests/house/test_frame.py                   writes the guides' tables of methods anew
               python tests/house/test_frame.py --command NAME    prints the README's set-up command that ends in NAME
"""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bigclf

TOP = Path(__file__).parents[2]
README = TOP / "README.md"
GUIDES = TOP / "bigclf" / "guides"
FAMILIES = {  # guide with a table of methods: its first one; the order is that of ``bigclf.algorithms()``
    "exact-solvers": "dcd",
    "perceptrons": "perceptron",
    "confidence-weighted": "cw_var",
    "all-classes": "perceptron_mc",
    "gradient-methods": "sgd",
    "other-norms": "winnow",
}
BEGIN, END = "<!-- methods: made by tests/house/test_frame.py -->\n", "<!-- end of methods -->\n"


def families():
    """(guide, its methods as ``bigclf.algorithms()`` describes them): each from its first to that of the next guide."""
    methods = bigclf.algorithms()
    names = [method["name"] for method in methods]
    starts = [names.index(first) for first in FAMILIES.values()]
    for guide, start, stop in zip(FAMILIES, starts, [*starts[1:], len(methods)], strict=True):
        yield GUIDES / f"{guide}.md", methods[start:stop]


def methods_table(methods):
    """A table of methods as Markdown."""
    lines = ["| `--algo` | what it is | update | parameters | losses | quality is shown by |", "| --- " * 6 + "|"]
    for method in methods:
        parameters = ", ".join(f"`{p['name']}`" for p in method["parameters"]) or "none"
        losses = ", ".join(f"`{loss}`" for loss in method["losses"]) or "its own"
        quality = "certificate" if method["certificate"] else "progressive error"
        update = method["update"].replace("|", r"\|")
        what = f"{method['title']} ({method['paper']})"
        lines.append(f"| `{method['name']}` | {what} | `{update}` | {parameters} | {losses} | {quality} |")
    return "\n".join(lines) + "\n"


def commands(kind="sh", document=README):
    """The lines of a document's code blocks of a kind, comments left out."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def setup_command(name):
    """The one command that makes the environment and ends in ``name``."""
    (found,) = [line for line in commands() if line.startswith("python3 -m venv") and line.endswith(name)]
    return found


def test_two_commands_do_all_the_set_up():
    for name in ("demo", "pytest"):
        assert setup_command(name).startswith("python3 -m venv .venv && .venv/bin/")


def test_ci_runs_the_readmes_test_command():
    assert "tests/house/test_frame.py --command pytest" in (TOP / ".ci" / "run").read_text()


def test_every_command_stands_in_readme_or_guides_and_parses():
    import click

    from bigclf.cli import main

    seen = set()
    for line in [line for document in (README, *GUIDES.glob("*.md")) for kind in ("sh", "text")
                 for line in commands(kind, document)]:  # fmt: skip
        words = line.partition(" > ")[0].split()
        if words[:1] != ["bigclf"] or words[1].isupper():
            continue
        seen.add(words[1])
        command = main.get_command(click.Context(main), words[1])
        assert command is not None, line
        command.make_context(words[1], words[2:])
    assert seen == set(main.list_commands(click.Context(main)))


def test_the_readme_stays_short():
    text = README.read_text()
    assert len(text.splitlines()) <= 120 and len(text.encode()) <= 8000
    assert all(f"{name}\n" in "\n".join(text.splitlines()[:40]) for name in ("bigclf demo", "-m pytest"))


def test_python_in_the_readme_compiles():
    for block in re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL):
        compile(block, "README.md", "exec")


def test_links_and_named_files_exist():
    for document in (README, TOP / "CONTRIBUTING.md", TOP / "jobs" / "README.md", *GUIDES.glob("*.md")):
        text = document.read_text()
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("https://") or (document.parent / target).exists(), (document.name, target)
        for name in re.findall(r"`((?:bigclf|jobs|tests)/[\w/.]+)`", text):
            assert (TOP / name).exists() or "<" in name, (document.name, name)


def test_tables_of_methods_are_current():
    for guide, methods in families():
        assert BEGIN + methods_table(methods) + END in guide.read_text(), "run python tests/house/test_frame.py"
    assert sum(len(methods) for _, methods in families()) == len(bigclf.algorithms())


def test_exit_codes_agree_with_the_command_line():
    import bigclf.cli

    told = dict(re.findall(r"^\| (\d) \| (.*?) \|$", (GUIDES / "commands.md").read_text(), re.MULTILINE))
    known = dict(re.findall(r"^(\d) {5}(.*)$", bigclf.cli.__doc__, re.MULTILINE))
    assert told.keys() == known.keys() and len(told) == 7
    assert all(told[code].split(",")[0].split(" ")[0] == known[code].split(",")[0].split(" ")[0] for code in told)


def test_version_agrees():
    from importlib.metadata import PackageNotFoundError, version

    assert re.fullmatch(r"\d+\.\d+\.\d+", bigclf.__version__)
    program = "import sys; from bigclf.cli import main; sys.argv = ['bigclf', '--version']; main()"
    said = subprocess.run([sys.executable, "-c", program], cwd=TOP, capture_output=True, text=True, check=True).stdout
    assert bigclf.__version__ in said
    with contextlib.suppress(PackageNotFoundError):  # run from a checkout that is not installed
        assert version("bigclf") == bigclf.__version__


def test_dask_takes_the_commands_in_under_our_name():
    from bigclf.cli import main

    assert main.name == "bigclf"  # Dask asks the group, not the entry point


def test_typed_and_licensed():
    assert (TOP / "bigclf" / "py.typed").exists()
    assert (TOP / "LICENSE").read_text().startswith("BSD 3-Clause License")


def rewrite():
    """Put the tables of methods of today into the guides."""
    for guide, methods in families():
        head, rest = guide.read_text().split(BEGIN)
        guide.write_text(head + BEGIN + methods_table(methods) + END + rest.split(END)[1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--command"]:
        print(setup_command(sys.argv[2]))
    else:
        rewrite()


def test_at_the_top_stands_what_belongs_there():
    """And nothing that somebody made while trying things out."""
    if not (TOP / ".git").exists():
        pytest.skip("no checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True).stdout.split("\n")
    there = {name.split("/")[0] for name in listed if name and not name.startswith(".")}
    assert there == {
        "bigclf", "cluster", "jobs", "tests", "pyproject.toml", "mkdocs.yml", "README.md", "CHANGELOG.md",
        "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "SECURITY.md",
    }  # fmt: skip
