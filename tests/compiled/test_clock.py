"""A clock that stands while kernels are compiled."""

import time

import numba

from bigclf.compiled.jit import clock


def test_the_clock_stands_while_kernels_are_compiled():
    begun = time.perf_counter()
    with clock() as elapsed:
        assert numba.njit(lambda x: x + 1)(1) == 2
        counted, wall = elapsed(), time.perf_counter() - begun
    assert 0 <= counted < wall / 2, "compiling is most of it"
