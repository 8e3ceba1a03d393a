"""Names into feature indices without a dictionary: MurmurHash3 (Austin Appleby, x86, 32 bits), compiled.

The index and the sign of a name are those of scikit-learn's ``FeatureHasher`` and ``HashingVectorizer`` (Weinberger et
al. 2009: the sign makes the expected error of a collision zero), to the bit: with h the signed hash under seed 0,

    index = |h| mod n_features,    sign = +1 if h >= 0 else -1.
"""

from __future__ import annotations

import numpy as np

from bigclf.compiled.jit import inlined, kernel

C1, C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
MIX1, MIX2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
LEAST_H = np.uint32(0x80000000)  # -2^31, whose absolute value an int32 does not hold


@inlined
def _rotl(x, r):  # type: ignore[no-untyped-def]
    return np.uint32((x << np.uint32(r)) | (x >> np.uint32(32 - r)))


@inlined
def _scrambled(k):  # type: ignore[no-untyped-def]
    return np.uint32(_rotl(np.uint32(k * C1), 15) * C2)


@kernel
def murmur3(text, start, stop, seed):  # type: ignore[no-untyped-def]
    """MurmurHash3_x86_32 of text[start:stop] (uint8) under ``seed``: uint32."""
    h = np.uint32(seed)
    p = start
    while p + 4 <= stop:
        k = (
            np.uint32(text[p])
            | (np.uint32(text[p + 1]) << np.uint32(8))
            | (np.uint32(text[p + 2]) << np.uint32(16))
            | (np.uint32(text[p + 3]) << np.uint32(24))
        )
        h = np.uint32(_rotl(np.uint32(h ^ _scrambled(np.uint32(k))), 13) * np.uint32(5) + np.uint32(0xE6546B64))
        p += 4
    if p < stop:
        k = np.uint32(0)
        for q in range(stop - 1, p - 1, -1):
            k = np.uint32((k << np.uint32(8)) | np.uint32(text[q]))
        h = np.uint32(h ^ _scrambled(k))
    h = np.uint32(h ^ np.uint32(stop - start))
    h = np.uint32((h ^ (h >> np.uint32(16))) * MIX1)
    h = np.uint32((h ^ (h >> np.uint32(13))) * MIX2)
    return np.uint32(h ^ (h >> np.uint32(16)))


@inlined
def index_of(h, n_features):  # type: ignore[no-untyped-def]
    """The feature, below ``n_features`` (at most 2^31 - 1), of a name whose hash is ``h`` (uint32)."""
    n = np.uint32(n_features)
    if h == LEAST_H:  # what scikit-learn does with the one hash that has no absolute value
        return np.uint32(np.uint32(np.uint32(2147483647) - np.uint32(n - np.uint32(1))) % n)
    if h > LEAST_H:
        return np.uint32(np.uint32(~h + np.uint32(1)) % n)
    return np.uint32(h % n)


@inlined
def sign_of(h):  # type: ignore[no-untyped-def]
    """+1 or -1, by the sign of the hash as an int32."""
    return np.float32(1) if h < LEAST_H else np.float32(-1)


@kernel
def fold(hashes, n_features, indices, signs):  # type: ignore[no-untyped-def]
    """indices (uint32) and signs (float32) of ``hashes``, as ``FeatureHasher(n_features)`` has them."""
    for i in range(hashes.size):
        indices[i] = index_of(hashes[i], n_features)
        signs[i] = sign_of(hashes[i])


@kernel
def murmur3_after(prefix, text, start, stop, seed):  # type: ignore[no-untyped-def]
    """``murmur3`` of ``prefix`` (uint8) with text[start:stop] behind it."""
    n, size = prefix.size, prefix.size + stop - start
    h, k = np.uint32(seed), np.uint32(0)
    for q in range(size):
        byte = np.uint32(prefix[q]) if q < n else np.uint32(text[start + q - n])
        k = np.uint32(k | (byte << np.uint32(8 * (q & 3))))
        if q & 3 == 3:
            h = np.uint32(_rotl(np.uint32(h ^ _scrambled(k)), 13) * np.uint32(5) + np.uint32(0xE6546B64))
            k = np.uint32(0)
    if size & 3:
        h = np.uint32(h ^ _scrambled(k))
    h = np.uint32(h ^ np.uint32(size))
    h = np.uint32((h ^ (h >> np.uint32(16))) * MIX1)
    h = np.uint32((h ^ (h >> np.uint32(13))) * MIX2)
    return np.uint32(h ^ (h >> np.uint32(16)))


@kernel
def hash_names(prefix, text, bounds, hashes):  # type: ignore[no-untyped-def]
    """hashes[i] of ``prefix`` + text[bounds[i] : bounds[i + 1]] (uint8), under seed 0."""
    for i in range(hashes.size):
        hashes[i] = murmur3_after(prefix, text, bounds[i], bounds[i + 1], np.uint32(0))
