"""svmlight text into rows, byte by byte in compiled code; whatever is not plain is left to ``svmlight.parse_line``.

``parse_rows`` knows blanks, comments, ``qid:``, indices of up to 18 digits and decimal numbers. It stops at the first
line that has anything else, or that breaks a rule, so there is one place only that explains a bad line.
"""

from __future__ import annotations

import numpy as np

from bigclf.compiled.jit import inlined, kernel

NEWLINE, HASH, PLUS, MINUS, POINT, ZERO, COLON, BAR = 10, 35, 43, 45, 46, 48, 58, 124
FULL = 900_000_000_000_000_000  # below this there is room for a digit more, and its float64 is an int64 again
EXACT = 2**53  # whole numbers up to here are float64
POWERS = 10.0 ** np.arange(23)  # exactly: 5^22 < 2^53
SPLIT = 2.0**27 + 1
MOST = float(np.finfo(np.float32).max)
PLAIN, HARD, NONE = 0, 1, 2  # a number is given; is to be read by Python's float; is not there, or of another form


@inlined
def blank(c):  # type: ignore[no-untyped-def]
    """Space, tab, vertical tab, form feed, carriage return; not the end of a line."""
    return c == 32 or (9 <= c <= 13 and c != 10)


@inlined
def ends(c):  # type: ignore[no-untyped-def]
    """Whether a field ends before this byte."""
    return c == 32 or c == 35 or 9 <= c <= 13


@kernel
def decimal(w, q):  # type: ignore[no-untyped-def]
    """w 10^q correctly rounded, for 0 <= w < 2^63, and whether that is sure.

    Where w and 10^|q| are float64 one operation rounds once (Clinger 1990, How to read floating point numbers
    accurately). Else w = high + low, the quotient or product is worked out to twice the precision (Dekker 1971), and
    the sum of its two parts is the nearest number unless they end within 2^-40 of the last place from the middle of
    two.
    """
    if q < -22 or q > 22:
        return 0.0, w == 0
    high = np.float64(w)
    power = POWERS[abs(q)]
    if w <= EXACT:
        return (high * power if q >= 0 else high / power), True
    low = np.float64(w - np.int64(high))
    a = high * power if q >= 0 else high / power
    factor = high if q >= 0 else a
    product = factor * power  # of which ``rest`` is what rounding took
    f1 = SPLIT * factor - (SPLIT * factor - factor)
    p1 = SPLIT * power - (SPLIT * power - power)
    f2, p2 = factor - f1, power - p1
    rest = ((f1 * p1 - product) + f1 * p2 + f2 * p1) + f2 * p2
    b = rest + low * power if q >= 0 else ((high - product) - rest + low) / power
    total = a + b
    error = (a - total) + b
    slack = total * 2.0**-93
    return total, total + (error + slack) == total and total + (error - slack) == total


@kernel
def number(text, p):  # type: ignore[no-untyped-def]
    """The decimal number that begins at text[p]: (PLAIN, HARD or NONE, its value, where it ends)."""
    c = np.int64(text[p])
    negative = c == MINUS
    if negative or c == PLUS:
        p += 1
    first, w, q = p, np.int64(0), np.int64(0)
    cut = False
    c = np.int64(text[p]) - ZERO
    while 0 <= c <= 9:
        if w < FULL:
            w = w * 10 + c
        else:
            q += 1
            cut = True
        p += 1
        c = np.int64(text[p]) - ZERO
    digits = p - first
    if c == POINT - ZERO:
        p += 1
        first = p
        c = np.int64(text[p]) - ZERO
        while 0 <= c <= 9:
            if w < FULL:
                w = w * 10 + c
                q -= 1
            else:
                cut = True
            p += 1
            c = np.int64(text[p]) - ZERO
        digits += p - first
    if digits == 0:
        return NONE, 0.0, p
    if c == 53 or c == 21:  # e, E
        p += 1
        c = np.int64(text[p])
        down = c == MINUS
        if down or c == PLUS:
            p += 1
        first, e = p, np.int64(0)
        c = np.int64(text[p]) - ZERO
        while 0 <= c <= 9 and p - first < 5:
            e = e * 10 + c
            p += 1
            c = np.int64(text[p]) - ZERO
        if p == first or 0 <= c <= 9:
            return NONE, 0.0, p
        q += -e if down else e
    value, sure = decimal(w, q)
    if cut or not sure:
        return (HARD if q <= 18 else NONE), 0.0, p  # w < 10^19, so a hard one is below 10^38
    return PLAIN, (-value if negative else value), p


@kernel
def parse_rows(text, start, m, n, h, base, limit, indptr, indices, values, labels, hard):  # type: ignore[no-untyped-def]
    """Rows of text[start:], which ends with a line's end, up to the first line that is not plain.

    Parameters
    ----------
    text : uint8; start : where a line begins; m, n, h : rows, entries and hard values so far.
    base : the first feature's number; limit : 0-based indices are below it.
    indptr int64, indices int64, values float64, labels float64 : where the rows go.
    hard : int64 [., 3], entry, first byte and end of each value that is to be read by Python's float.

    Returns
    -------
    Where the line begins that is not plain (the end of the text if all are), and m, n, h.
    """
    p = start
    while p < text.size:
        line, first, hard_before = p, n, h
        good = True
        while blank(text[p]):
            p += 1
        if text[p] != NEWLINE and text[p] != HASH:
            kind, label, p = number(text, p)
            good = kind == PLAIN and ends(text[p])
            while blank(text[p]):
                p += 1
            if text[p] == 113 and text[p + 1] == 105 and text[p + 2] == 100:  # qid
                colons = 0
                while not ends(text[p]):
                    good = good and text[p] != 0
                    colons += text[p] == COLON
                    p += 1
                good = good and colons > 0
            previous = np.int64(-1)
            while good:
                while blank(text[p]):
                    p += 1
                if text[p] == NEWLINE or text[p] == HASH:
                    break
                digits, j = p, np.int64(0)
                c = np.int64(text[p]) - ZERO
                while 0 <= c <= 9 and p - digits < 18:
                    j = j * 10 + c
                    p += 1
                    c = np.int64(text[p]) - ZERO
                j -= base
                if p == digits or c != COLON - ZERO or j <= previous or j >= limit:
                    good = False
                    break
                digits = p + 1
                kind, value, p = number(text, digits)
                if kind == NONE or not ends(text[p]) or abs(value) > MOST:
                    good = False
                    break
                if kind == HARD:
                    hard[h, 0], hard[h, 1], hard[h, 2] = n, digits, p
                    h += 1
                indices[n], values[n] = j, value
                previous = j
                n += 1
            if not good:
                return line, m, first, hard_before
            labels[m] = label
            m += 1
            indptr[m] = n
        while text[p] != NEWLINE:
            p += 1
        p += 1
    return p, m, n, h


@kernel
def store(indptr, indices, values, kept_indptr, kept_indices, kept_values):  # type: ignore[no-untyped-def]
    """Rows as they are stored, values float32 and without zeros: the largest relative difference that makes to a
    value, and whether every value kept is 1."""
    n, rounding, ones = 0, 0.0, True
    for i in range(indptr.size - 1):
        for p in range(indptr[i], indptr[i + 1]):
            exact, stored = values[p], np.float32(values[p])
            difference = abs(np.float64(stored) - exact)
            if difference > rounding * abs(exact):
                rounding = difference / abs(exact)
            if stored != 0:
                ones = ones and stored == 1
                kept_indices[n], kept_values[n] = indices[p], stored
                n += 1
        kept_indptr[i + 1] = n
    return rounding, ones


@kernel
def ascend(start, end, indices, values, spare_indices, spare_values):  # type: ignore[no-untyped-def]
    """Put the entries start <= p < end, a row, into ascending order and add up values of the same index, as they came.

    In place; the spare arrays are as long as the row. A stable merge sort, where it is needed. Returns where the row
    ends now, and whether all its values are finite and within float32.
    """
    size, rising, fit = end - start, True, True
    for p in range(start + 1, end):
        rising = rising and indices[p] > indices[p - 1]
    width = size if rising else 1
    while width < size:
        for low in range(0, size, 2 * width):
            a, middle, last = low, min(low + width, size), min(low + 2 * width, size)
            b = middle
            for k in range(low, last):
                if b >= last or (a < middle and indices[start + a] <= indices[start + b]):
                    spare_indices[k], spare_values[k] = indices[start + a], values[start + a]
                    a += 1
                else:
                    spare_indices[k], spare_values[k] = indices[start + b], values[start + b]
                    b += 1
        for k in range(size):
            indices[start + k], values[start + k] = spare_indices[k], spare_values[k]
        width *= 2
    kept = start
    for p in range(start, end):
        if kept > start and indices[kept - 1] == indices[p]:
            values[kept - 1] += values[p]
        else:
            indices[kept], values[kept] = indices[p], values[p]
            kept += 1
    for p in range(start, kept):
        fit = fit and abs(values[p]) <= MOST
    return kept, fit
