"""What one read of the raw rows finds out: means, quantiles, categories, document frequencies, how many are distinct.

Tallies of parts of the data add up to that of the whole. Everything but the means is the same in whatever order they
are added; the means are added in the order of the pieces of the source, which no worker has a say in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf import files
from bigclf.compiled.jit import kernel
from bigclf.errors import DataError
from bigclf.features.spec import Categorical, Numeric, Spec, Text
from bigclf.features.values import Names

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


SAMPLE = 2**16  # numbers kept of a column for its quantiles: of the rows with the smallest keys
REGISTERS = 2**12  # of a HyperLogLog sketch: a standard error of 1.04 / 64
MOST_FREQUENCIES = 2**22  # document frequencies kept apart; more fold together, as the features will
MOST_LABELS = 2**20


class Moments:
    """Of each term rows, mean and sum of squared differences from it (Chan, Golub, LeVeque 1983): int64 and float64
    [T], 0 of terms that are no numbers."""

    def __init__(self, n_terms: int) -> None:
        self.n, self.mean, self.squares = np.zeros(n_terms, np.int64), np.zeros(n_terms), np.zeros(n_terms)

    @classmethod
    def of(cls, x: np.ndarray) -> Moments:
        """Those of the rows of float64 [T, m], NaN where missing."""
        made, there = cls(len(x)), ~np.isnan(x)
        made.n = np.count_nonzero(there, axis=1)
        for n in np.unique(made.n[made.n > 0]).tolist():  # rows of one length, each added up as if it stood alone
            some = np.flatnonzero(made.n == n)
            rows = x[some][there[some]].reshape(-1, n)
            made.mean[some] = rows.mean(axis=1)
            made.squares[some] = ((rows - made.mean[some, None]) ** 2).sum(axis=1)
        return made

    def add(self, other: Moments, terms: np.ndarray | None = None) -> None:
        """Add those of other rows, which are of these ``terms``; None: of all."""
        places, seen = np.arange(self.n.size) if terms is None else terms, other.n > 0
        mine, n, mean, squares = places[seen], other.n[seen], other.mean[seen], other.squares[seen]
        before, step = self.n[mine], mean - self.mean[mine]
        self.n[mine] = total = before + n
        self.squares[mine] += squares + step * step * (before * n / total)
        self.mean[mine] += step * (n / total)

    def deviations(self) -> np.ndarray:
        """1 for a constant, which then becomes 0 throughout."""
        found: np.ndarray = np.sqrt(self.squares / np.maximum(self.n, 1))
        return np.where(found == 0, 1.0, found)


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
        self.rows = self.unlabelled = self.words = 0
        self.moments = Moments(len(spec.terms))
        self.samples: dict[int, Sample] = {}
        self.seen: dict[int, Seen] = {}
        self.frequencies: dict[int, Frequencies] = {}
        self.labels: dict[float, str] = {}
        most = max(MOST_FREQUENCIES, 2 ** (spec.hash_bits or 0))
        for t, term in enumerate(spec.terms):
            if isinstance(term, Numeric) and term.scale == "bins":
                self.samples[t] = Sample()
            elif isinstance(term, (Categorical, Text)):
                exact = isinstance(term, Categorical) and term.encode != "hashed"
                self.seen[t] = Seen(spec.names, _most(term) if isinstance(term, Categorical) and exact else 0)
                if isinstance(term, Text) and term.tfidf:
                    self.frequencies[t] = Frequencies(most)
        self._sketch(np.zeros((len(self.seen), REGISTERS), np.uint8))

    def _sketch(self, registers: np.ndarray) -> None:
        """Take the registers of all terms of hashes, one sketch a term."""
        self.registers, self.sketches = registers, dict(zip(self.seen, registers, strict=True))

    def see_words(self, n: int) -> None:
        """Labels that are true and false in words, for the numbers 1 and 0."""
        self.words += n

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
        self.words += other.words
        self.moments.add(other.moments)
        for t, sample in other.samples.items():
            self.samples[t].see(sample.keys, sample.values)
        for t, seen in other.seen.items():
            self.seen[t].add(seen)
        for t, often in other.frequencies.items():
            self.frequencies[t].add(often)
        np.maximum(self.registers, other.registers, out=self.registers)
        for code, name in other.labels.items():
            self._label(code, name)

    # As arrays

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name, as ``of_arrays`` takes it; so few that 20,000 columns take no longer to name."""
        moments, samples, seen = self.moments, self.samples.values(), self.seen.values()
        counts = [self.rows, self.unlabelled, self.words]
        found = {"counts": np.array(counts, np.int64), "labels": np.array(list(self.labels))}
        found["label_names"], found["label_names_at"] = packed([name.encode() for name in self.labels.values()])
        found |= {"n": moments.n, "mean": moments.mean, "squares": moments.squares, "registers": self.registers}
        found["keys"], found["samples_at"] = chained([sample.keys for sample in samples], np.uint64)
        found["values"], _ = chained([sample.values for sample in samples], np.float64)
        found["many"] = np.array([each.many for each in seen], bool)
        found["hashes"], found["seen_at"] = chained([np.array(list(each.table), np.int64) for each in seen], np.int64)
        found["times"] = np.array([n for each in seen for n, _ in each.table.values()], np.int64)
        found["names"], found["names_at"] = packed([name for each in seen for _, name in each.table.values()])
        for often in self.frequencies.values():
            often.settle()
        found["bits"] = np.array([often.bits for often in self.frequencies.values()], np.int64)
        found["places"], found["places_at"] = chained([each.keys for each in self.frequencies.values()], np.uint32)
        found["often"], _ = chained([each.counts for each in self.frequencies.values()], np.int64)
        return found

    @classmethod
    def of_arrays(cls, spec: Spec, arrays: Mapping[str, np.ndarray]) -> Tally:
        """The tally whose ``arrays`` these are."""
        made = cls(spec)
        made.rows, made.unlabelled, made.words = arrays["counts"].tolist()
        names = unpacked(arrays["label_names"], arrays["label_names_at"])
        made.labels = {code: name.decode() for code, name in zip(arrays["labels"].tolist(), names, strict=True)}
        made._sketch(arrays["registers"])
        made.moments.n, made.moments.mean, made.moments.squares = (arrays[name] for name in ("n", "mean", "squares"))
        for k, sample in enumerate(made.samples.values()):
            part = slice(*arrays["samples_at"][k : k + 2].tolist())
            sample.keys, sample.values = arrays["keys"][part], arrays["values"][part]
        hashes, times = arrays["hashes"].tolist(), arrays["times"].tolist()
        table = list(zip(hashes, zip(times, unpacked(arrays["names"], arrays["names_at"]), strict=True), strict=True))
        for k, seen in enumerate(made.seen.values()):
            first, last = arrays["seen_at"][k : k + 2].tolist()
            seen.many, seen.table = bool(arrays["many"][k]), dict(table[first:last])
        for k, often in enumerate(made.frequencies.values()):
            part = slice(*arrays["places_at"][k : k + 2].tolist())
            often.bits = int(arrays["bits"][k])
            often.keys, often.counts = arrays["places"][part], arrays["often"][part]
        return made


def _most(term: Categorical) -> int:
    return 2**20 if term.encode == "exact" else term.max_exact


def chained(arrays: list[np.ndarray], dtype: DTypeLike) -> tuple[np.ndarray, np.ndarray]:
    """Arrays one after another, and where each begins, int64 [n+1]."""
    at = np.append(0, np.cumsum([array.size for array in arrays], dtype=np.int64))
    return np.concatenate([np.empty(0, dtype), *(array.astype(dtype) for array in arrays if array.size)]), at


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
