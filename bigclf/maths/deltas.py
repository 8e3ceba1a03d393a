"""What changed in a state, as the features it changed at: usually far less than the state.

A state is a NamedTuple of arrays. Values are compared by their bits, so that a state rebuilt from a delta has the very
bytes of the one it was taken from: 0.0 and -0.0 differ, a NaN equals itself and no NaN with other bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np

from bigclf.compiled.jit import kernel


class State(Protocol):
    """What a learner keeps: a NamedTuple of arrays."""

    def __init__(self, *arrays: np.ndarray) -> None: ...

    def __iter__(self) -> Iterator[np.ndarray]: ...

    def __getitem__(self, part: slice, /) -> tuple[np.ndarray, ...]: ...


class Named(State, Protocol):
    """A state whose arrays go by names."""

    def _replace(self, **arrays: np.ndarray) -> Self: ...


S = TypeVar("S", bound=State)
N = TypeVar("N", bound=Named)

PIECE = 1 << 16  # places looked at together, at least
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Delta(NamedTuple):
    """How a state differs from another one.

    Attributes
    ----------
    places : uint32 or (above 2^32 features) uint64 [n], ascending: where any array with the feature axis changed.
    arrays : for each array of the state its new values at the places [n, ...], or the whole array.
    whole : for each array whether it is whole.
    """

    places: np.ndarray
    arrays: tuple[np.ndarray, ...]
    whole: tuple[bool, ...]


class Cut(NamedTuple):
    """The part ``number`` of ``of`` about equal parts of the feature axis; (0, 1) : all of it."""

    number: int = 0
    of: int = 1

    def ends(self, length: int) -> tuple[int, int]:
        """First feature and the one after the last."""
        return self.number * length // self.of, (self.number + 1) * length // self.of

    def state(self, state: S, length: int) -> S:
        """The part of a state whose arrays [length, ...] have the feature axis; of these views, the others whole."""
        if self.of == 1:
            return state
        first, last = self.ends(length)
        return type(state)(*(array[first:last] if array.shape[:1] == (length,) else array for array in state))

    def delta(self, delta: Delta, length: int) -> Delta:
        """The same of a delta; its places count from the first feature of the part."""
        if self.of == 1:
            return delta
        first, last = self.ends(length)
        a, b = (int(place) for place in np.searchsorted(delta.places, [first, last]))
        arrays = (array if full else array[a:b] for array, full in zip(delta.arrays, delta.whole, strict=True))
        return Delta(delta.places[a:b] - delta.places.dtype.type(first), tuple(arrays), delta.whole)


def difference(start: S, state: S, length: int) -> Delta | None:
    """What makes ``state`` out of ``start``; None when a third or more of the places changed, so that it does not pay.

    Parameters
    ----------
    start, state : NamedTuples of arrays, alike in shapes and dtypes (items of 1, 2, 4 or 8 bytes); neither is changed.
    length : arrays [length, ...] have the feature axis; all others travel whole.

    The delta shares no memory with the states. It takes a byte a place while it is made.

    Raises
    ------
    ValueError : the states are not alike.
    """
    _check_alike(start, state)
    whole = tuple(array.shape[:1] != (length,) for array in state)
    mask = np.zeros(-(-length // 8) * 8, np.uint8)  # whole words of 8
    pairs = [(_words(old), _words(new)) for old, new, full in zip(start, state, whole, strict=True) if not full]
    count, piece = 0, max(PIECE, length // 64)
    for first in range(0, length, piece):  # where most has changed, a third of one is enough to see it
        part = mask[first : min(first + piece, length)]
        for old, new in pairs:
            _mark(old[first : first + piece], new[first : first + piece], part)
        count += int(np.count_nonzero(part.view(np.bool_)))
        if count and 3 * count >= length:
            return None
    places = _places(mask, count, length)
    arrays = tuple(new.copy() if full else new[places] for new, full in zip(state, whole, strict=True))
    return Delta(places, arrays, whole)


def applied(start: S, delta: Delta) -> S:
    """``start`` with the delta's values, in new arrays.

    Raises
    ------
    ValueError : the delta belongs to other shapes or dtypes.
    """
    state = type(start)(*(array.copy() for array in start))
    apply(state, delta)
    return state


def apply(state: Iterable[np.ndarray], delta: Delta) -> None:
    """Give the arrays of ``state`` the delta's values, in place.

    Raises
    ------
    ValueError : the delta belongs to other shapes or dtypes; nothing was changed.
    """
    _check_fits(state, delta)
    for array, values, full in zip(state, delta.arrays, delta.whole, strict=True):
        if full:
            array[...] = values
        else:
            array[delta.places] = values


class Sparse(NamedTuple):
    """An array that is 0 but at ``places``, counted through all its axes."""

    places: np.ndarray
    values: np.ndarray


class Picked(NamedTuple):
    """Some arrays of a state by name, each whole or ``Sparse``."""

    arrays: dict[str, np.ndarray | Sparse]


def picked(state: object, names: Iterable[str], own: bool = False) -> Picked:
    """These arrays of a state; ``own`` : those that are whole are copied. A -0.0 may become 0.0."""
    return Picked({name: _thin(getattr(state, name), own) for name in names})


def filled(state: N, given: Picked) -> N:
    """``state`` with these arrays in place of its own, those that are whole as they came where they may be changed; the
    others are shared."""
    return state._replace(**{name: _own(getattr(state, name), array) for name, array in given.arrays.items()})


def _own(like: np.ndarray, given: np.ndarray | Sparse) -> np.ndarray:
    same = isinstance(given, np.ndarray) and (given.shape, given.dtype) == (like.shape, like.dtype)
    if same and given.flags.writeable and given.flags.c_contiguous:  # type: ignore[union-attr]
        return given  # type: ignore[return-value]
    return _put(np.empty_like(like), given)


def fill(state: object, given: Picked) -> None:
    """Give arrays of ``state`` these values, in place."""
    for name, array in given.arrays.items():
        _put(getattr(state, name), array)


def _thin(array: np.ndarray, own: bool) -> np.ndarray | Sparse:
    if 2 * np.count_nonzero(array) >= array.size:
        return array.copy() if own else array
    places = np.flatnonzero(array).astype(place_dtype(array.size))
    return Sparse(places, array.reshape(-1)[places])


def _put(array: np.ndarray, given: np.ndarray | Sparse) -> np.ndarray:
    if isinstance(given, Sparse):
        array[...] = 0
        array.reshape(-1)[given.places] = given.values
    else:
        array[...] = given
    return array


def n_bytes(thing: object) -> int:
    """Bytes of all arrays in nested tuples, lists and dicts; of anything else its own ``n_bytes``, or nothing."""
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, dict):
        return sum(n_bytes(value) for value in thing.values())
    if isinstance(thing, tuple | list):
        return sum(n_bytes(value) for value in thing)
    return int(getattr(thing, "n_bytes", 0))


def place_dtype(length: int) -> np.dtype[np.unsignedinteger]:
    """What holds every place of ``length``."""
    return np.dtype(np.uint32 if length <= 2**32 else np.uint64)


def _check_alike(start: State, state: State) -> None:
    for old, new in zip(start, state, strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            raise ValueError(f"states differ in form: {old.dtype} {old.shape} and {new.dtype} {new.shape}")


def _check_fits(state: Iterable[np.ndarray], delta: Delta) -> None:
    for array, values, full in zip(state, delta.arrays, delta.whole, strict=True):
        shape = array.shape if full else (delta.places.size, *array.shape[1:])
        if values.shape != shape or values.dtype != array.dtype:
            raise ValueError(f"a delta {values.dtype} {values.shape} does not fit {array.dtype} {array.shape}")
        if not full and delta.places.size and int(delta.places[-1]) >= len(array):
            raise ValueError(f"the delta changes place {delta.places[-1]} of {len(array)}")


def _mark(old: np.ndarray, new: np.ndarray, mask: np.ndarray) -> None:
    if old.ndim == 1:
        mark(old, new, mask)
    elif old.size:
        mark_rows(old, new, mask)


def _words(array: np.ndarray) -> np.ndarray:
    """The bits of an array, as unsigned numbers [length] or [length, rest]."""
    if array.dtype.itemsize not in WORDS or array.dtype.hasobject:
        raise ValueError(f"deltas of {array.dtype} are not known")
    flat = np.ascontiguousarray(array).view(WORDS[array.dtype.itemsize])
    return flat if array.ndim == 1 else flat.reshape(len(array), math.prod(array.shape[1:]))


def _places(mask: np.ndarray, count: int, length: int) -> np.ndarray:
    """Where ``mask`` is set, ascending."""
    places = np.empty(count + 1, place_dtype(length))
    collect(mask, mask.view(np.uint64), places)
    return places[:count]


@kernel
def mark(old, new, mask):  # type: ignore[no-untyped-def]
    """Set mask[i] where old[i] and new[i] differ."""
    for i in range(old.size):
        mask[i] |= old[i] != new[i]


@kernel
def mark_rows(old, new, mask):  # type: ignore[no-untyped-def]
    """Set mask[i] where any of old[i, :] and new[i, :] differ."""
    for i in range(old.shape[0]):
        differs = old[i, 0] ^ new[i, 0]
        for j in range(1, old.shape[1]):
            differs |= old[i, j] ^ new[i, j]
        mask[i] |= differs != 0


@kernel
def collect(mask, words, places):  # type: ignore[no-untyped-def]
    """Write the places where ``mask`` is set; one entry of ``places`` is to spare, so that no write needs a branch."""
    k = 0
    for word in range(words.size):
        if words[word] != 0:
            for i in range(8 * word, 8 * word + 8):
                places[k] = i
                k += mask[i]
