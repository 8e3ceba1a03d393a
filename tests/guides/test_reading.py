"""README and guides read easily: short pages, short sentences, common words."""

import pages
import prose
import pytest

from bigclf.cli.help import TOPICS, guide

README = (pages.TOP / "README.md").read_text(encoding="utf-8")
DOCUMENTS = {"README": README, **{topic: guide(topic) for topic in TOPICS}}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_sentences_are_short(name):
    long, number = prose.long_sentences(DOCUMENTS[name])
    assert len(long) <= number / 10, long


@pytest.mark.parametrize("name", DOCUMENTS)
def test_pages_are_short(name):
    assert len(DOCUMENTS[name].split()) <= 1200


@pytest.mark.parametrize("name", DOCUMENTS)
def test_pages_read_easily(name):
    pytest.importorskip("textstat", reason="the extra docs is not installed")
    assert prose.ease(DOCUMENTS[name]) >= 55


def test_code_and_tables_are_no_prose():
    text = "# Title\n\nTake `a.b` now. *Then* [go](x.md).\n\n| a | b |\n\n```sh\nbigclf x. Y.\n```\n"
    text += "- One\n  item\n- `Two` items"
    assert [*prose.sentences(text)] == ["Take Code now.", "Then go.", "One item", "Code items"]
