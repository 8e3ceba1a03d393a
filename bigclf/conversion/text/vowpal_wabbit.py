"""Vowpal Wabbit's text: ``[label [importance]] ['tag]|namespace[:weight] feature[:value] ... |namespace ...``.

The label is a number (of two classes, of many, or to be predicted), the importance the row's weight. A namespace's
weight multiplies its values; values of one feature in a row are added up. The tag (a word that begins with ' or that
touches the first bar) is not kept. With ``hash_bits`` a feature is the hash of its name, with ``namespace^`` before it
unless the namespace has no name: index and sign are those of scikit-learn's ``FeatureHasher(2 ** hash_bits)``, not
Vowpal Wabbit's own. Without, features are whole numbers from 0, all in one namespace, and are taken as they are.

Read are lines of one label; costs of several classes, actions and multi-line examples are not.
"""

from __future__ import annotations

import math
import re

import numpy as np

from bigclf.compiled.jit import kernel
from bigclf.conversion.text import svmlight
from bigclf.conversion.text.bytes_to_rows import BAR, COLON, MOST, NEWLINE, PLAIN, ZERO, ascend, blank, number
from bigclf.conversion.text.parsed import BadRow, Options, Parsed, Reader, one_row
from bigclf.features.arrow import FLOAT32_MAX
from bigclf.maths.hashing import index_of, murmur3, sign_of
from bigclf.units import plural

QUOTE, CARET, LONGEST, HASH_BITS = 39, 94, 1000, 22
WITH_NUL = re.compile(rb"[^\n]*\0[^\n]*")
NAMESPACE = re.compile(rb"\|([^\s:|]*)")


def prepare(text: bytes, options: Options) -> Options:
    """Take down the namespace of the first row, in which all features are where they are numbers."""
    found = NAMESPACE.search(text)
    return options._replace(namespace=found.group(1)) if found and options.hash_bits is None else options


def parse(text: bytes, options: Options) -> Parsed:
    """Rows of whole lines of text; lines that are no rows are listed with the reason."""
    text = text if text.endswith(b"\n") else text + b"\n"
    spoilt = [BadRow(found.start(), "a NUL byte, which no text has") for found in WITH_NUL.finditer(text)]
    text = WITH_NUL.sub(lambda found: b" " * len(found[0]), text) if spoilt else text
    most = len(text) // 2 + 1  # an entry is two bytes at least, and so is a row
    indptr, indices, values = np.zeros(most, np.int64), np.empty(most, np.int64), np.empty(most)
    spare = np.empty(most, np.int64), np.empty(most), np.empty(2 * LONGEST + 1, np.uint8)
    labels, weights, bad = np.empty(most), np.empty(most), list[BadRow]()
    raw, namespace = np.frombuffer(text, np.uint8), np.frombuffer(options.namespace + b"|", np.uint8)
    n_hashed = 0 if options.hash_bits is None else 2**options.hash_bits
    told = options.index_base, options.limit, n_hashed, namespace
    place = m = n = 0
    while place < len(text):
        place, m, n = parse_rows(raw, place, m, n, *told, indptr, indices, values, labels, weights, *spare)
        if place == len(text):
            break
        end = text.index(b"\n", place) + 1
        try:
            row = parse_line(text[place:end], options)
            if row is not None:
                last = n + row[1].size
                labels[m], indices[n:last], values[n:last], weights[m] = row
                m, n = m + 1, last
                indptr[m] = n
        except ValueError as error:
            bad.append(BadRow(place, str(error)))
        place = end
    return Parsed(indptr[: m + 1], indices[:n], values[:n], labels[:m].copy(), sorted(bad + spoilt), weights[:m].copy())


@kernel
def hashed(name, size, n_features):  # type: ignore[no-untyped-def]
    """Index and sign of the feature name[:size] (uint8)."""
    h = murmur3(name, 0, size, np.uint32(0))
    return np.int64(index_of(h, n_features)), np.float64(sign_of(h))


@kernel
def parse_rows(  # type: ignore[no-untyped-def]
    text,
    start,
    m,
    n,
    base,
    limit,
    n_hashed,
    namespace,
    indptr,
    indices,
    values,
    labels,
    weights,
    spare_i,
    spare_v,
    name,
):
    """Rows of text[start:], which ends with a line's end, up to the first line that is not plain; as
    ``bytes_to_rows.parse_rows``, with ``spare_i, spare_v`` for ``ascend`` and ``name`` for what is hashed."""
    p = start
    while p < text.size:
        line, first = p, n
        while blank(text[p]):
            p += 1
        if text[p] == NEWLINE:
            p += 1
            continue
        kind, label, p = number(text, p)
        good, weight = kind == PLAIN and blank(text[p]), 1.0
        while blank(text[p]):
            p += 1
        if good and text[p] != BAR:  # importance or tag
            q = p
            kind, weight, p = number(text, p)
            if kind != PLAIN or not blank(text[p]) or weight < 0 or weight > MOST:
                p, weight = q, 1.0
            while blank(text[p]):
                p += 1
            if text[p] != BAR:
                quoted = text[p] == QUOTE
                while not (blank(text[p]) or text[p] == NEWLINE or text[p] == BAR):
                    p += 1
                good = text[p] == BAR or quoted
                while blank(text[p]):
                    p += 1
        good = good and text[p] == BAR
        while good and text[p] == BAR:  # a namespace
            p += 1
            q, length, scale = p, 0, 1.0
            while not (blank(text[p]) or text[p] == NEWLINE or text[p] == BAR or text[p] == COLON):
                p += 1
            if n_hashed > 0:
                good = p - q < LONGEST
                if good and p > q:
                    for k in range(q, p):
                        name[length] = text[k]
                        length += 1
                    name[length] = CARET
                    length += 1
            else:
                good = p - q == namespace.size - 1
                for k in range(q, p):
                    good = good and text[k] == namespace[k - q]
            if good and text[p] == COLON:
                kind, scale, p = number(text, p + 1)
                good = kind == PLAIN and (blank(text[p]) or text[p] == NEWLINE or text[p] == BAR)
            while good:
                while blank(text[p]):
                    p += 1
                if text[p] == NEWLINE or text[p] == BAR:
                    break
                q, j, size, value = p, np.int64(0), length, 1.0
                while not (blank(text[p]) or text[p] == NEWLINE or text[p] == BAR or text[p] == COLON):
                    c = np.int64(text[p])
                    if n_hashed > 0:
                        if size < name.size:
                            name[size] = c
                        size += 1
                    else:
                        good = good and 0 <= c - ZERO <= 9
                        j = j * 10 + (c - ZERO)
                    p += 1
                if p == q or size > name.size or (n_hashed == 0 and p - q > 18):
                    good = False
                    break
                if text[p] == COLON:
                    kind, value, p = number(text, p + 1)
                    good = good and kind == PLAIN and (blank(text[p]) or text[p] == NEWLINE or text[p] == BAR)
                value *= scale
                if n_hashed > 0:
                    j, sign = hashed(name, size, n_hashed)
                    value *= sign
                else:
                    j -= base
                if not good or j < 0 or j >= limit:
                    good = False
                    break
                indices[n], values[n] = j, value
                n += 1
        if good:
            n, good = ascend(first, n, indices, values, spare_i, spare_v)
        if not good:
            return line, m, first
        labels[m], weights[m] = label, weight
        m += 1
        indptr[m] = n
        p += 1
    return p, m, n


def parse_line(line: bytes, options: Options) -> tuple[float, np.ndarray, np.ndarray, float] | None:
    """Label, 0-based indices, values and weight of a line; None for an empty one.

    Raises
    ------
    ValueError : saying what is wrong with the line.
    """
    if not line.strip():
        return None
    head, bar, rest = line.partition(b"|")
    if not bar:
        raise ValueError("there is no bar | between label and features")
    label, weight = _label(head, options.unlabelled)
    indices, values = list[int](), list[float]()
    for part in rest.split(b"|"):
        fields = part.split()
        named = fields and not part[:1].isspace()
        space, colon, scale = (fields[0] if named else b"").partition(b":")
        factor = svmlight.number(scale, f"the weight of the namespace {svmlight.shown(space)}") if colon else 1.0
        for field in fields[1:] if named else fields:
            index, value = _feature(field, space, options)
            indices.append(index)
            values.append(factor * value)
    return label, *one_row(np.array(indices, np.int64), np.array(values, np.float64), options), weight


def _label(head: bytes, unlabelled: bool = False) -> tuple[float, float]:
    """Label, NaN where there is none and rows may be ``unlabelled``, and importance of what stands before the first
    bar."""
    words = head.split()
    if words and (not head[-1:].isspace() or words[-1].startswith(b"'")):
        words.pop()  # the tag
    if not words and unlabelled:
        return math.nan, 1.0
    if not words:
        raise ValueError("there is no label (a word that touches the bar is a tag: put a space before the bar)")
    if len(words) > 2:
        raise ValueError(f"{plural(len(words), 'number')} before the bar: a label and an importance are read")
    label = svmlight.number(words[0], "the label")
    weight = svmlight.number(words[1], "the importance") if len(words) == 2 else 1.0
    if not 0 <= weight <= FLOAT32_MAX:
        raise ValueError(f"the importance {weight:g} is negative or beyond the range of float32")
    return label, weight


def _feature(field: bytes, space: bytes, options: Options) -> tuple[int, float]:
    """Index and value of ``name`` or ``name:value``."""
    name, colon, text = field.partition(b":")
    if not name:
        raise ValueError(f"the feature {svmlight.shown(field)} has no name")
    value = svmlight.number(text, f"the value in {svmlight.shown(field)}") if colon else 1.0
    if options.hash_bits is not None:
        name = (space + b"^" if space else b"") + name
        index, sign = hashed(np.frombuffer(name, np.uint8), len(name), 2**options.hash_bits)
        return int(index), value * sign
    advice = f"names of features are hashed with hash_bits={HASH_BITS} (--hash-bits {HASH_BITS})"
    if space != options.namespace:
        names = f"{svmlight.shown(space)} is not {svmlight.shown(options.namespace)}"
        raise ValueError(f"the namespace {names}, that of the first row: numbers of two would be mixed up; {advice}")
    if not name.isdigit():
        raise ValueError(f"the feature {svmlight.shown(name)} is not a whole number; {advice}")
    if int(name) - options.index_base >= options.limit:
        raise ValueError(f"the feature {svmlight.shown(name)} is beyond the {options.limit:,} features")
    return int(name) - options.index_base, value


READER = Reader(parse, index_base=0, prepare=prepare, example=b"1 | 1:1\n")
