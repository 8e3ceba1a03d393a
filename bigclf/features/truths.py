"""Truths among categories: what one format writes ``true``, another writes ``True``, ``TRUE`` or 1.

A category is told by its text. Where what was learned holds one spelling of a truth and rows come with another, the
rows mean the one that is known; a spelling that is known itself stays what it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

WORDS = (("true", "True", "TRUE"), ("false", "False", "FALSE"))
DIGITS = ("1", "0")  # which may be codes: they stand for a word that is known, and no word for them
MEANT = {text: words for words, digit in zip(WORDS, DIGITS, strict=True) for text in (*words, digit)}
WRITTEN = {word: (*words, digit) for words, digit in zip(WORDS, DIGITS, strict=True) for word in words}
IN_CROSSES = MEANT | {digit: (*MEANT[digit], digit) for digit in DIGITS}  # beside a word a 1 may be a code all the same


def meant(text: str) -> Iterator[str]:
    """The categories that ``text`` (of a cross the texts with "&" between) may stand for, in the order of trial."""
    return _variants(text, IN_CROSSES)


def others(known: Iterable[str]) -> dict[str, str]:
    """The category that is meant by each text that is none of those ``known``, but another spelling of one."""
    names = set(known)
    written = {text for name in names for text in _variants(name, WRITTEN)} - names
    return {text: next(name for name in meant(text) if name in names) for text in sorted(written)}


def places(known: Sequence[object], labels: Iterable[object]) -> list[int]:
    """Where each of ``labels`` stands among those ``known``, -1: nowhere. A truth that is none of them is the same one
    in another spelling, as text or not; a word is a number where these are 1 and 0."""
    at = {label: k for k, label in enumerate(known)}
    words = coded(at)
    return [_place(label, at, words) for label in labels]


def coded(known: Iterable[object]) -> bool:
    """Whether the labels ``known`` are 1 and 0 at most, so that words may stand for them."""
    return set(known) <= {0, 1}


def as_one(names: Sequence[str], known: Iterable[object] = ()) -> list[str]:
    """Each of the labels ``names`` as its class is written. Where all of them are truths, each truth is one class, by
    the first spelling in the order of ``WORDS`` that is there; those that are ``known`` stay what they are."""
    fixed, there = set(known), set(names)
    if not there | fixed <= MEANT.keys():
        return list(names)
    found = {name: name for name in names}
    for words, digit in zip(WORDS, DIGITS, strict=True):
        written = [word for word in words if word in fixed] or [word for word in words if word in there]
        found |= {text: written[0] for text in (*words, digit) if written and text not in fixed}
    return [found[name] for name in names]


def apart(names: Iterable[str]) -> list[list[str]]:
    """Spellings of the same truth among labels that are different classes."""
    there = set(names)
    each = ([text for text in (*words, digit) if text in there] for words, digit in zip(WORDS, DIGITS, strict=True))
    return [texts for texts in each if len(texts) > 1]


def _place(label: object, at: Mapping[object, int], for_codes: bool) -> int:
    if label in at:
        return at[label]
    text = label
    if not isinstance(label, str):
        text = DIGITS[1 - int(label)] if label in (0, 1) else None  # type: ignore[call-overload]
    words = MEANT.get(str(text), ())
    if for_codes and text in words:
        return at.get(words == WORDS[0], -1)
    return next((at[word] for word in words if word in at), -1)


def _variants(text: str, spellings: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """The texts with each part of ``text`` in all its spellings, but for ``text`` itself."""
    parts = text.split("&")
    if any(part in spellings for part in parts):
        made = ("&".join(some) for some in itertools.product(*(spellings.get(part, (part,)) for part in parts)))
        yield from (one for one in made if one != text)
