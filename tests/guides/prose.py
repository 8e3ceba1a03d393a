"""The prose of a document, for measures of how easily it reads: no code, tables, headings or figures of math.

As a program:  python tests/guides/prose.py DOCUMENT...    ease, long sentences and words of each
"""

import re
import sys
from pathlib import Path

LONGEST = 25  # words of a sentence


def paragraphs(markdown):
    """Paragraphs and list items in plain words; a name in backquotes counts as one short word."""
    text = re.sub(r"^```.*?^```$", "\n", markdown, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(\||#|    ).*$", "\n", text, flags=re.MULTILINE)  # tables, headings, formulas
    text = re.sub(r"^ *(-|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`", "Code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = text.replace("*", "").replace("e.g.", "for example").replace("...", ",")
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def sentences(markdown):
    """The sentences: they end at a full stop, a question mark or the end of a paragraph."""
    for paragraph in paragraphs(markdown):
        yield from filter(None, re.split(r"(?<=[.!?])[\"')]* +(?=bigclf |[A-Z\"'(])", paragraph))


def long_sentences(markdown):
    """(those above ``LONGEST`` words, how many there are in all)."""
    every = [*sentences(markdown)]
    return [s for s in every if len(s.split()) > LONGEST], len(every)


def ease(markdown):
    """Flesch's reading ease, by textstat."""
    import textstat

    return textstat.flesch_reading_ease("\n".join(s if s[-1] in ".!?" else s + "." for s in sentences(markdown)))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        document = Path(name).read_text(encoding="utf-8")
        long, number = long_sentences(document)
        counts = f"{len(long)} of {number} sentences are long, {len(document.split())} words"
        print(f"{name}: ease {ease(document):.0f}, {counts}")
