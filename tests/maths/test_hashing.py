"""Hashed names: the indices and signs of scikit-learn's FeatureHasher, to the bit."""

import numpy as np
import pytest
from sklearn.feature_extraction import FeatureHasher
from sklearn.utils import murmurhash3_32

from bigclf.maths import hashing
from bigclf.maths.hashing import murmur3

NAMES = ["", "a", "ab", "abc", "abcd", "abcde", "native-country=Trinadad&Tobago", "é", "日本語", "x" * 1000]


def packed(names):
    texts = [name.encode() for name in names]
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])


def test_published_hashes():
    """Verification values of MurmurHash3_x86_32 as the tests of Guava and of Cassandra's port give them."""
    for text, seed, expected in [(b"", 0, 0), (b"", 1, 0x514E28B7), (b"Hello, world!", 0x9747B28C, 0x24884CBA),
                                 (b"aaaa", 0x9747B28C, 0x5A97808A), (b"abc", 0, 0xB3DD93FA)]:  # fmt: skip
        assert murmur3(np.frombuffer(text, np.uint8), 0, len(text), np.uint32(seed)) == expected


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_hashes_are_those_of_scikit_learn(seed):
    random = np.random.default_rng(0)
    names = NAMES + [random.bytes(n).decode("latin-1") for n in random.integers(0, 40, 300)]
    text, bounds = packed(names)
    hashes = [murmur3(text, *bounds[i : i + 2], np.uint32(seed)) for i in range(len(names))]
    assert hashes == [murmurhash3_32(name, seed, positive=True) for name in names]


@pytest.mark.parametrize("n_features", [1, 7, 2**10, 2**22, 2**31 - 1])
def test_indices_and_signs_are_those_of_feature_hasher(n_features):
    names = [f"column={i}" for i in range(200)] + NAMES
    text, bounds = packed(names)
    hashes = np.array([murmur3(text, *bounds[i : i + 2], np.uint32(0)) for i in range(len(names))], np.uint32)
    signs = np.empty(len(names), np.float32)
    indices = np.empty(len(names), np.uint32)
    hashing.fold(hashes, n_features, indices, signs)
    theirs = FeatureHasher(n_features, input_type="string").transform([[name] for name in names])
    assert indices.tolist() == theirs.indices.tolist()
    assert signs.tolist() == theirs.data.tolist()


def test_the_hash_without_an_absolute_value():
    """h = -2^31: scikit-learn's _hashing_fast.pyx takes (2^31 - 1 - (n - 1)) mod n, and the negative sign."""
    indices, signs = np.empty(1, np.uint32), np.empty(1, np.float32)
    hashing.fold(np.array([2**31], np.uint32), 1000, indices, signs)
    assert (indices[0], signs[0]) == ((2147483647 - 999) % 1000, -1)
