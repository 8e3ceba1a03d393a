"""Text into hashed words or runs of characters, cut as scikit-learn's vectorizers cut it, by compiled loops over bytes.

Words are runs of two or more word characters (Python's ``\\w``); ``char`` takes all characters, white space run
together; ``char_wb`` those of each word with a space before and behind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel
from bigclf.maths.hashing import murmur3, murmur3_after

WORD, SPACE = 1, 2  # what a character is


class Grams(NamedTuple):
    """The n-grams of some texts: of which text, hash, and where each stands in ``room`` (uint8)."""

    rows: np.ndarray
    hashes: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    room: np.ndarray


def grams_of(texts: str, bounds: np.ndarray, analyzer: str, ngrams: tuple[int, int], prefix: bytes) -> Grams:
    """N-grams of texts that stand one after another in ``texts``; bounds int64 [m+1] count its characters."""
    raw, kinds, starts = _bytes_of(texts)
    ends = starts[bounds]
    low, high = ngrams
    words = analyzer == "word"
    units = raw.size // (3 if words else 1) + bounds.size  # a word has two characters and one that ends it
    if analyzer == "char_wb":
        units = 3 * raw.size + bounds.size
    room = np.empty((1 if words else 3) * raw.size + bounds.size + 2, np.uint8)
    places = np.empty((2, units + 1), np.int64)
    most = units * (high - low + 1)
    found = np.empty((2, most), np.uint32), np.empty((2, most), np.int64)
    cut = {"word": cut_words, "char": cut_characters, "char_wb": cut_inside_words}[analyzer]
    lead = np.frombuffer(prefix, np.uint8).copy()
    n = int(cut(raw, kinds, ends, low, high, lead, room, places, *found))
    (rows, hashes), (first, last) = found
    return Grams(rows[:n], hashes[:n], first[:n], last[:n], room)


def _bytes_of(texts: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes of the text, what each belongs to (WORD, SPACE or 0; one more, 4, on bytes that begin no character), and
    where each character begins [n+1]."""
    raw = np.frombuffer(texts.encode(), np.uint8)
    begins = (raw & 0xC0) != 0x80
    kinds = _ASCII[raw]
    if raw.size != len(texts):
        points = np.frombuffer(texts.encode("utf-32-le"), np.uint32)
        seen, inverse = np.unique(points, return_inverse=True)
        kinds = np.array([_kind(chr(point)) for point in seen.tolist()], np.uint8)[inverse]
        kinds = kinds[np.cumsum(begins) - 1]
        kinds[~begins] |= 4
    return raw.copy(), kinds, np.append(np.flatnonzero(begins), raw.size)


def _kind(character: str) -> int:
    return WORD if character.isalnum() or character == "_" else SPACE if character.isspace() else 0


_ASCII = np.array([_kind(chr(code)) for code in range(128)] + [0] * 128, np.uint8)


@kernel
def _hashed(prefix, room, start, stop):  # type: ignore[no-untyped-def]
    return murmur3_after(prefix, room, start, stop, 0) if prefix.size else murmur3(room, start, stop, np.uint32(0))


@kernel
def cut_words(raw, kinds, ends, low, high, prefix, room, places, found, where):  # type: ignore[no-untyped-def]
    """N-grams of words joined by single spaces; returns how many."""
    n = w = 0
    for row in range(ends.size - 1):
        count = 0
        p, stop = ends[row], ends[row + 1]
        while p < stop:
            if kinds[p] & 1 == 0:
                p += 1
                continue
            start, characters = p, 0
            while p < stop and kinds[p] & 1:
                characters += 1 - (kinds[p] >> 2)
                p += 1
            if characters < 2:
                continue
            places[0, count] = w
            for q in range(start, p):
                room[w] = raw[q]
                w += 1
            places[1, count] = w
            room[w] = 32
            w += 1
            count += 1
        for length in range(low, high + 1):
            for k in range(count - length + 1):
                first, last = places[0, k], places[1, k + length - 1]
                found[0, n], found[1, n] = row, _hashed(prefix, room, first, last)
                where[0, n], where[1, n] = first, last
                n += 1
    return n


@kernel
def cut_characters(raw, kinds, ends, low, high, prefix, room, places, found, where):  # type: ignore[no-untyped-def]
    """N-grams of characters, two or more of white space as one space; returns how many."""
    n = w = 0
    for row in range(ends.size - 1):
        count = 0
        p, stop = ends[row], ends[row + 1]
        while p < stop:
            places[0, count] = w
            count += 1
            start = p
            space = kinds[p] & 2
            p += 1
            while p < stop and kinds[p] & 4:
                p += 1
            more = 0
            while space and p < stop and kinds[p] & 2:
                p += 1
                more = 1
            if more:
                room[w] = 32
                w += 1
            else:
                for q in range(start, p):
                    room[w] = raw[q]
                    w += 1
        places[0, count] = w
        for length in range(low, high + 1):
            for k in range(count - length + 1):
                first, last = places[0, k], places[0, k + length]
                found[0, n], found[1, n] = row, _hashed(prefix, room, first, last)
                where[0, n], where[1, n] = first, last
                n += 1
    return n


@kernel
def cut_inside_words(raw, kinds, ends, low, high, prefix, room, places, found, where):  # type: ignore[no-untyped-def]
    """N-grams of the characters of each word between spaces, with one space before and behind; a word too short for a
    length is taken whole, once. Returns how many."""
    n = w = 0
    for row in range(ends.size - 1):
        p, stop = ends[row], ends[row + 1]
        while p < stop:
            if kinds[p] & 2:
                p += 1
                continue
            count = 1
            places[0, 0] = w
            room[w] = 32
            w += 1
            while p < stop and kinds[p] & 2 == 0:
                if kinds[p] & 4 == 0:
                    places[0, count] = w
                    count += 1
                room[w] = raw[p]
                w += 1
                p += 1
            places[0, count] = w
            room[w] = 32
            w += 1
            count += 1
            places[0, count] = w
            for length in range(low, high + 1):
                for k in range(max(1, count - length + 1)):
                    first, last = places[0, k], places[0, min(count, k + length)]
                    found[0, n], found[1, n] = row, _hashed(prefix, room, first, last)
                    where[0, n], where[1, n] = first, last
                    n += 1
                if count <= length:
                    break
    return n
