"""What one read of the raw rows finds out: means, quantiles, categories, document frequencies, how many are distinct.

Tallies of parts of the data add up to that of the whole. Everything but the means is the same in whatever order they
are added; the means are added in the order of the pieces of the source, which no worker has a say in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bigclf.data import files
from bigclf.data.features.spec import Categorical, Date, Numeric, Spec, Text
from bigclf.data.features.values import Names
from bigclf.errors import DataError
from bigclf.jit import kernel

SAMPLE = 2**16  # numbers kept of a column for its quantiles: of the rows with the smallest keys
REGISTERS = 2**12  # of a HyperLogLog sketch: a standard error of 1.04 / 64
MOST_FREQUENCIES = 2**22  # document frequencies kept apart; more fold together, as the features will
MOST_LABELS = 2**20


class Moments:
    """Rows, mean and sum of squared differences from it (Chan, Golub, LeVeque 1983)."""

    def __init__(self) -> None:
        self.n, self.mean, self.squares = 0, 0.0, 0.0

    def see(self, x: np.ndarray) -> None:
        if x.size:
            other = Moments()
            other.n, other.mean = x.size, float(x.mean())
            other.squares = float(((x - other.mean) ** 2).sum())
            self.add(other)

    def add(self, other: Moments) -> None:
        if other.n == 0:
            return
        n, step = self.n + other.n, other.mean - self.mean
        self.squares += other.squares + step * step * (self.n * other.n / n)
        self.mean += step * (other.n / n)
        self.n = n

    @property
    def deviation(self) -> float:
        """1 for a constant, which then becomes 0 throughout."""
        return math.sqrt(self.squares / self.n) or 1.0 if self.n else 1.0


class Sample:
    """The numbers of the ``SAMPLE`` rows with the smallest keys."""

    def __init__(self) -> None:
        self.keys, self.values = np.empty(0, np.uint64), np.empty(0)

    def see(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.keys, self.values = np.append(self.keys, keys), np.append(self.values, values)
        if self.keys.size > SAMPLE:
            first = np.argsort(self.keys, kind="stable")[:SAMPLE]
            self.keys, self.values = self.keys[first], self.values[first]

    def edges(self, bins: int) -> np.ndarray:
        """Where quantile bins begin, but for the first: at most ``bins - 1`` numbers, ascending, all different."""
        if not self.values.size:
            return np.empty(0)
        ordered = np.sort(self.values)
        cuts = ordered[[ordered.size * k // bins for k in range(1, bins)]]
        return np.unique(cuts[cuts > ordered[0]])


class Seen:
    """Hashes with how often each was seen and its name: all of them up to ``limit``, of more the most frequent."""

    def __init__(self, limit: int, exact: int) -> None:
        self.limit, self.exact, self.many = max(limit, exact), exact, False
        self.table: dict[int, tuple[int, bytes]] = {}

    def see(self, hashes: np.ndarray, counts: np.ndarray, names: list[bytes]) -> None:
        """Distinct hashes, how often each occurs, and their names."""
        table = self.table
        if self.limit == 0:
            self.many = self.many or hashes.size > 0
            return
        for h, one in zip(hashes.tolist(), zip(counts.tolist(), names, strict=True), strict=True):
            known = table.get(h)
            table[h] = one if known is None else (known[0] + one[0], one[1] if one[1] < known[1] else known[1])
        self._settle()

    def add(self, other: Seen) -> None:
        self.many = self.many or other.many
        table = self.table
        for h, one in other.table.items():
            known = table.get(h)
            table[h] = one if known is None else (known[0] + one[0], one[1] if one[1] < known[1] else known[1])
        self._settle()

    def _settle(self) -> None:
        self.many = self.many or len(self.table) > self.exact
        if len(self.table) > 2 * self.limit:
            self.cut()

    def cut(self) -> None:
        """Keep the most frequent, of equal ones the smallest hash."""
        if len(self.table) > self.limit:
            kept = sorted(self.table.items(), key=lambda item: (-item[1][0], item[0]))[: self.limit]
            self.table = dict(kept)


class Frequencies:
    """In how many texts each feature occurs: |h| mod 2^bits -> count, with bits as many as the bound allows."""

    def __init__(self, most: int = MOST_FREQUENCIES) -> None:
        self.bits, self.most = 31, most
        self.keys, self.counts = np.empty(0, np.uint32), np.empty(0, np.int64)
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._size = 0

    def see(self, keys: np.ndarray, counts: np.ndarray) -> None:
        self._waiting.append((keys, counts))
        self._size += keys.size
        if self._size > self.keys.size + 2**18:
            self.settle()

    def add(self, other: Frequencies) -> None:
        other.settle()
        self.bits = min(self.bits, other.bits)
        self.see(other.keys, other.counts)

    def settle(self) -> None:
        """Add up what waits; halve the number of places until they fit."""
        if self._waiting:
            keys = np.concatenate([self.keys, *(k for k, _ in self._waiting)])
            counts = np.concatenate([self.counts, *(c for _, c in self._waiting)])
            self._waiting, self._size = [], 0
            self.keys, self.counts = summed(keys & np.uint32(2**self.bits - 1), counts)
        while self.keys.size > self.most:
            self.bits -= 1
            self.keys, self.counts = summed(self.keys & np.uint32(2**self.bits - 1), self.counts)

    def folded(self, bits: int) -> tuple[np.ndarray, np.ndarray]:
        """(places uint32 ascending, counts) of 2^bits."""
        self.settle()
        return summed(self.keys & np.uint32(2**bits - 1), self.counts)


def summed(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys, ascending, and the sum of the counts of each."""
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if keys.size else np.empty(0, np.int64)
    return keys[first], np.add.reduceat(counts, first) if first.size else counts[:0]


@kernel
def note_hashes(hashes, registers):  # type: ignore[no-untyped-def]
    """Enter uint32 hashes into a HyperLogLog sketch (Flajolet et al. 2007), uint8 [2^12], stirred to 64 bits before."""
    for i in range(hashes.size):
        z = np.uint64(hashes[i]) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        place = np.int64(z & np.uint64(4095))
        rest, rank = z >> np.uint64(12), np.uint8(1)
        while rank < 52 and rest & np.uint64(1) == np.uint64(0):
            rest >>= np.uint64(1)
            rank += np.uint8(1)
        if rank > registers[place]:
            registers[place] = rank


def estimate(registers: np.ndarray) -> float:
    """Distinct hashes entered: the harmonic mean, by empty registers where they are few."""
    m = registers.size
    raw = 0.7213 / (1 + 1.079 / m) * m * m / float((2.0 ** -registers.astype(np.float64)).sum())
    empty = int(np.count_nonzero(registers == 0))
    return m * math.log(m / empty) if raw <= 2.5 * m and empty else raw


class Tally:
    """All that is found out, by term of the spec."""

    def __init__(self, spec: Spec) -> None:
        self.rows = self.unlabelled = 0
        self.moments: dict[int, Moments] = {}
        self.samples: dict[int, Sample] = {}
        self.seen: dict[int, Seen] = {}
        self.frequencies: dict[int, Frequencies] = {}
        self.sketches: dict[int, np.ndarray] = {}
        self.labels: dict[float, str] = {}
        most = max(MOST_FREQUENCIES, 2 ** (spec.hash_bits or 0))
        for t, term in enumerate(spec.terms):
            if isinstance(term, Numeric) and term.scale == "bins":
                self.samples[t] = Sample()
            elif isinstance(term, Numeric) or (isinstance(term, Date) and term.part in ("time", "year")):
                self.moments[t] = Moments()
            elif isinstance(term, Categorical | Text):
                self.sketches[t] = np.zeros(REGISTERS, np.uint8)
                exact = isinstance(term, Categorical) and term.encode != "hashed"
                self.seen[t] = Seen(spec.names, _most(term) if isinstance(term, Categorical) and exact else 0)
                if isinstance(term, Text) and term.tfidf:
                    self.frequencies[t] = Frequencies(most)

    def see_labels(self, codes: np.ndarray, names: Names) -> None:
        """Labels that are text, by their codes.

        Raises
        ------
        DataError : if they are so many that they can be no classes.
        """
        for i, code in enumerate(codes.tolist()):
            self._label(code, names.name(i).decode())

    def _label(self, code: float, name: str) -> None:
        if self.labels.setdefault(code, name) != name:
            raise DataError(f"the labels {name!r} and {self.labels[code]!r} have the same hash; rename one of them")
        if len(self.labels) > MOST_LABELS:
            raise DataError(f"the label has more than {MOST_LABELS:,} different texts: is it the right column?")

    def add(self, other: Tally) -> None:
        self.rows += other.rows
        self.unlabelled += other.unlabelled
        for name in ("moments", "seen", "frequencies"):
            mine, its = getattr(self, name), getattr(other, name)
            for t in its:
                mine[t].add(its[t])
        for t, sample in other.samples.items():
            self.samples[t].see(sample.keys, sample.values)
        for t, registers in other.sketches.items():
            np.maximum(self.sketches[t], registers, out=self.sketches[t])
        for code, name in other.labels.items():
            self._label(code, name)

    # As arrays

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name, as ``of_arrays`` takes it."""
        found = {"counts": np.array([self.rows, self.unlabelled], np.int64), "labels": np.array(list(self.labels))}
        found["label_names"], found["label_names_at"] = packed([name.encode() for name in self.labels.values()])
        for t, m in self.moments.items():
            found[f"moments {t}"] = np.array([m.n, m.mean, m.squares], np.float64)
        for t, sample in self.samples.items():
            found[f"keys {t}"], found[f"values {t}"] = sample.keys, sample.values
        for t, seen in self.seen.items():
            rows = [(h, count) for h, (count, _) in seen.table.items()]
            found[f"seen {t}"] = np.array([(seen.many, 0), *rows], np.int64)
            found[f"names {t}"], found[f"names_at {t}"] = packed([name for _, name in seen.table.values()])
        for t, often in self.frequencies.items():
            often.settle()
            found[f"places {t}"], found[f"often {t}"] = often.keys, np.append(often.bits, often.counts)
        return {**found, **{f"sketch {t}": registers for t, registers in self.sketches.items()}}

    @classmethod
    def of_arrays(cls, spec: Spec, arrays: Mapping[str, np.ndarray]) -> Tally:
        """The tally whose ``arrays`` these are."""
        made = cls(spec)
        made.rows, made.unlabelled = arrays["counts"].tolist()
        names = unpacked(arrays["label_names"], arrays["label_names_at"])
        made.labels = {code: name.decode() for code, name in zip(arrays["labels"].tolist(), names, strict=True)}
        for t, m in made.moments.items():
            n, m.mean, m.squares = arrays[f"moments {t}"].tolist()
            m.n = int(n)
        for t, sample in made.samples.items():
            sample.keys, sample.values = arrays[f"keys {t}"], arrays[f"values {t}"]
        for t, seen in made.seen.items():
            (many, _), *rows = arrays[f"seen {t}"].tolist()
            names = unpacked(arrays[f"names {t}"], arrays[f"names_at {t}"])
            seen.many, seen.table = bool(many), {h: (n, name) for (h, n), name in zip(rows, names, strict=True)}
        for t, often in made.frequencies.items():
            often.keys, often.bits, often.counts = arrays[f"places {t}"], *_first_and_rest(arrays[f"often {t}"])
        made.sketches = {t: arrays[f"sketch {t}"] for t in made.sketches}
        return made


def _first_and_rest(array: np.ndarray) -> tuple[int, np.ndarray]:
    return int(array[0]), array[1:]


def _most(term: Categorical) -> int:
    return 2**20 if term.encode == "exact" else term.max_exact


def packed(names: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Names one after another, uint8, and where each begins, int64 [n+1]."""
    at = np.append(0, np.cumsum([len(name) for name in names], dtype=np.int64))
    return np.frombuffer(b"".join(names), np.uint8), at


def unpacked(text: np.ndarray, at: np.ndarray) -> list[bytes]:
    """The names that ``packed`` was given."""
    whole = text.tobytes()
    return [whole[a:b] for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True)]


class Tallies(NamedTuple):
    """A file of tallies, in the order of the pieces of the source, its checksum, and its content while that is held."""

    path: str
    checksum: str
    held: list[Tally] | None = None

    def is_whole(self) -> bool:
        """Whether it is as it was written."""
        return files.checksum(self.path) == self.checksum

    def load(self, spec: Spec) -> list[Tally]:
        if self.held is not None:
            return self.held
        arrays = files.load_arrays(self.path)
        parts = [dict[str, np.ndarray]() for _ in range(int(arrays.pop("pieces")))]
        for name, array in arrays.items():
            piece, _, rest = name.partition(" ")
            parts[int(piece)][rest] = array
        return [Tally.of_arrays(spec, part) for part in parts]


def write_tallies(path: str, tallies: list[Tally]) -> Tallies:
    """Write tallies down."""
    arrays = {f"{k} {name}": array for k, tally in enumerate(tallies) for name, array in tally.arrays().items()}
    with files.open_binary(path, "xb") as file:  # not synced: who reads it later looks at the checksum
        np.savez(file, pieces=np.array(len(tallies)), allow_pickle=False, **arrays)
    return Tallies(path, files.checksum(path) or "", tallies)
