"""Numbers for people: sizes, counts and times, read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
SHORT = 3  # letters of a name in which each counts
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)(i?)b?\s*", re.IGNORECASE)


def parse_bytes(size: float | str) -> int:
    """Bytes in ``size``: a number, or text such as ``256MB`` (powers of 1000) or ``1GiB`` (of 1024).

    Raises
    ------
    ValueError : if ``size`` is not a positive size.
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(f"{size!r} is not a size; write it as 256MB, 2GB or 1GiB")
        number, power, binary = match.groups()
        return parse_bytes(float(number) * (1024 if binary else 1000) ** _POWERS[power.lower()])
    if isinstance(size, bool) or not 1 <= size < 2**63:
        raise ValueError(f"a size must be at least one byte and less than 2^63, not {size!r}")
    return int(size)


def format_bytes(size: float) -> str:
    """``size`` bytes with three figures and a unit of 1000: ``1.22 GB``."""
    return f"{_scaled(size, ('', 'k', 'M', 'G', 'T', 'P'))}B" if abs(size) >= 1000 else f"{size:.0f} B"


def format_count(count: float) -> str:
    """``count`` in full with thousands apart below a million, above it with three figures: ``119 M``."""
    return _scaled(count, ("", "k", "M", "G", "T", "P")) if abs(count) >= 1e6 else f"{count:,.0f}"


def speed_text(faster: float) -> str:
    """How fast something is beside another: ``1.2 times as fast``, ``31 times as slow``."""
    return f"{faster:.2g} times as fast" if faster >= 1 else f"{1 / faster:.2g} times as slow"


def with_point(value: object) -> str:
    """``; did you mean 0.001?`` where ``value`` is the text ``0,001``, else nothing."""
    text = str(value).strip()
    return f"; did you mean {text.replace(',', '.')}?" if re.fullmatch(r"[-+]?\d*,\d+(e[-+]?\d+)?", text) else ""


def near(name: object, known: Iterable[str]) -> str:
    """``; did you mean fit?`` where ``name`` is nearly one of the names that are known, else nothing."""
    found = nearest(name, known)
    return f"; did you mean {found}?" if found else ""


def nearest(name: object, known: Iterable[str]) -> str:
    """The one of the names that are known which differs from ``name`` in at most a third of its letters, or else goes
    on as it does or begins it; "" where none does, or several are as near. Capitals make no difference.

    In names of up to three letters no letter may be another: ``tol`` is not meant by ``top``, but ``fit`` by ``fti``.
    """
    text, folded = str(name).casefold(), {str(one).casefold(): one for one in known}
    far = {one: _edits(text, one) for one in folded}
    least = min(far.values(), default=0)
    found = [one for one in folded if far[one] == least <= max(len(text), len(one)) // 3]
    if not found:
        found = [one for one in folded if min(len(one), len(text)) >= SHORT and (one.startswith(text)
                 or text.startswith(one))]  # fmt: skip
    if len(found) != 1 or (least and sorted(text) != sorted(found[0]) and len(text) == len(found[0]) <= SHORT):
        return ""
    return folded[found[0]]


def _edits(a: str, b: str) -> int:
    """The least number of letters to put in, take out, change, or swap with the next one, that make ``a`` to ``b``
    (optimal string alignment: Boytsov, "Indexing methods for approximate dictionary searching", 2011)."""
    before, row = list[int](), list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, last, row = row, before, [i]
        for j, other in enumerate(b, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 < j and letter == b[j - 2] and a[i - 2] == other:
                best = min(best, last[j - 2] + 1)
            row.append(best)
    return row[-1]


def other_case(name: object, known: Iterable[str]) -> str:
    """The one of the names that are known that differs from ``name`` in capitals only: "C" for "c"; "" where none."""
    folded = str(name).casefold()
    return next((one for one in known if one != name and str(one).casefold() == folded), "")


BEYOND = "above the plan by more than a tenth and 20 MB"
SMALL = 1_000_000  # bytes at the peak that are lost among those of interpreter and libraries


def format_peak(n: float) -> str:
    """Bytes that training took at its peak, as text; of few no more can be told than that they are few."""
    return format_bytes(n) if n >= SMALL else f"less than {format_bytes(SMALL)}"


def in_worker(memory: Mapping[str, int]) -> str:
    """What is said beside the memory of the process that drives a run on a cluster; nothing where it ran alone."""
    return f" in the driver, {format_peak(memory['worker'])} in the largest worker" if "worker" in memory else ""


def within_plan(planned: float, peak: float) -> str:
    """A remark in brackets where ``peak`` bytes are more than planned: whether by no more than a promise of memory
    allows."""
    if peak <= planned:
        return ""
    kept = peak <= max(1.1 * planned, planned + 20e6)
    return " (a plan is kept to within a tenth, or 20 MB)" if kept else f" ({BEYOND})"


def plural(count: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``, ``119 M rows``."""
    return f"{format_count(count)} {noun}{'s' * (count != 1)}"


def format_seconds(seconds: float) -> str:
    """``seconds`` in the units a person would use: ``12 ms``, ``3.4 s``, ``2 min 05 s``, ``1 h 03 min``."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms" if seconds >= 0.001 else f"{1e6 * seconds:.0f} us"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def _scaled(number: float, prefixes: tuple[str, ...]) -> str:
    """Three figures of ``number`` and the prefix of its power of 1000, a space between."""
    power = 0
    while abs(number) >= 999.5 and power < len(prefixes) - 1:
        number, power = number / 1000, power + 1
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f} {prefixes[power]}"
