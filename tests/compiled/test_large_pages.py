"""Arrays on large pages are those of numpy but for where they lie."""

import mmap
import re

import numpy as np
import pytest

from bigclf.compiled import large_pages
from bigclf.compiled.large_pages import LEAST, PAGE

linux = pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="large pages are asked for on Linux alone")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [0, 7, (3, 2), (LEAST // 16, 2), (LEAST // 8 + 1,), (LEAST // 24 + 1, 3, 2)])
def test_as_of_numpy(shape, dtype):
    array, numpys = large_pages.zeros(shape, dtype), np.zeros(shape, dtype)
    assert (array.shape, array.dtype, array.strides) == (numpys.shape, numpys.dtype, numpys.strides)
    assert array.flags.writeable and array.flags.c_contiguous and array.flags.aligned
    assert not array.any()
    array += np.arange(array.size, dtype=dtype).reshape(array.shape)
    copy = large_pages.copied(array)
    array[...] = 0
    np.testing.assert_array_equal(copy, np.arange(array.size, dtype=dtype).reshape(array.shape))


def large_part(array):
    """(first, end) of the memory around the array's middle that large pages were asked for; None: for none."""
    middle = array.ctypes.data + array.nbytes // 2
    with open("/proc/self/smaps") as lines:
        for part in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", lines.read()):
            place = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", part)
            if place and int(place[1], 16) <= middle < int(place[2], 16):
                flags = re.search(r"VmFlags:(.*)", part)
                return (int(place[1], 16), int(place[2], 16)) if flags and " hg" in flags[1] else None
    raise AssertionError("the array lies nowhere")


@linux
def test_whole_pages_are_asked_for():
    array = large_pages.zeros(LEAST // 8 + PAGE // 16)
    assert array.ctypes.data % PAGE == 0
    part = large_part(array)
    if part is None:
        pytest.skip("a kernel without large pages, or one that does not say")
    assert part[0] <= array.ctypes.data and part[1] >= array.ctypes.data + LEAST


@linux
@pytest.mark.parametrize("call", ["mmap", "madvise"])
def test_refused(monkeypatch, call):
    class Refusing(mmap.mmap):
        def __new__(cls, *arguments, **options):
            if call == "mmap":
                raise OSError("not so much memory")
            return super().__new__(cls, *arguments, **options)

        def madvise(self, *arguments):
            raise OSError("no such advice")

    monkeypatch.setattr(large_pages.mmap, "mmap", Refusing)
    array = large_pages.zeros((LEAST, 2), np.float32)
    assert array.shape == (LEAST, 2) and not array.any()
