"""exp and log1p written out, for loops over arrays: LLVM computes as many at once as a vector of the processor holds.

A call of the C library is one number at a time, and its last bit depends on the library. Here there are additions,
multiplications and one division, none of them joined, so that the bits are those of any processor, and no branch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import llvmlite.ir as ir
from numba.core import types
from numba.core.base import BaseContext
from numba.core.typing import Context, Signature
from numba.extending import intrinsic

from bigclf.compiled.jit import inlined
from bigclf.compiled.lanes import INTERPRETED, LONG, REAL, Values

LOWEST = -708.0  # below it e^u is no normal number any more
ROUNDER = 1.5 * 2.0**52  # added to a number of moderate size: the last bits are those of the integer next to it
ONE = 1023  # exponent's bits of 1.0
LOG2E = 1 / math.log(2)
LN2 = math.log(2)
LN2_HIGH = float.fromhex("0x1.62e42feep-1")  # 33 bits: times an exponent it is exact
LN2_LOW = 1.90821492927058770002e-10  # the rest
FACTORIALS = tuple(1 / math.factorial(k) for k in range(14))  # |r| <= log(2) / 2: r^14 / 14! < 1e-17
HALFWAY = 0.41421356237309503  # sqrt(2) - 1


@intrinsic
def _bits(typing: Context, number):  # type: ignore[no-untyped-def]
    """The 64 bits of a float64, as an integer."""

    def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        return builder.bitcast(arguments[0], LONG)

    return types.int64(types.float64), build


@intrinsic
def _power(typing: Context, exponent):  # type: ignore[no-untyped-def]
    """2^k from the low bits of k + 1023."""

    def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        return builder.bitcast(builder.shl(arguments[0], LONG(52)), REAL)

    return types.float64(types.int64), build


def _bits_in_python(number: float) -> int:
    return int(struct.unpack("q", struct.pack("d", number))[0])


def _power_in_python(exponent: int) -> float:
    return float(struct.unpack("d", struct.pack("Q", (int(exponent) << 52) % 2**64))[0])


bits: Callable[..., int] = _bits_in_python if INTERPRETED else _bits
power: Callable[..., float] = _power_in_python if INTERPRETED else _power


@inlined
def exp_below(u):  # type: ignore[no-untyped-def]
    """e^u, u <= 0:  2^k e^r,  |r| <= log(2) / 2; 0 where it is no normal number."""
    v = LOWEST if u < LOWEST else u
    shifted = v * LOG2E + ROUNDER
    k = shifted - ROUNDER
    r = (v - k * LN2_HIGH) - k * LN2_LOW
    e = FACTORIALS[13]
    e = e * r + FACTORIALS[12]
    e = e * r + FACTORIALS[11]
    e = e * r + FACTORIALS[10]
    e = e * r + FACTORIALS[9]
    e = e * r + FACTORIALS[8]
    e = e * r + FACTORIALS[7]
    e = e * r + FACTORIALS[6]
    e = e * r + FACTORIALS[5]
    e = e * r + FACTORIALS[4]
    e = e * r + FACTORIALS[3]
    e = e * r + FACTORIALS[2]
    e = e * r + 1.0
    e = e * r + 1.0
    e *= power(bits(shifted) + ONE)
    return 0.0 if u < LOWEST else e


@inlined
def log1p_within(e):  # type: ignore[no-untyped-def]
    """log(1 + e), 0 <= e <= 1:  log(1 + f) = 2 artanh(f / (2 + f)),  of (1 + e) / 2 where that is nearer to 1."""
    half = e > HALFWAY
    f = 0.5 * (e - 1.0) if half else e
    s = f / (2.0 + f)
    z = s * s
    y = z * (1.0 / 21.0)
    y = z * (1.0 / 19.0 + y)
    y = z * (1.0 / 17.0 + y)
    y = z * (1.0 / 15.0 + y)
    y = z * (1.0 / 13.0 + y)
    y = z * (1.0 / 11.0 + y)
    y = z * (1.0 / 9.0 + y)
    y = z * (1.0 / 7.0 + y)
    y = z * (1.0 / 5.0 + y)
    y = z * (1.0 / 3.0 + y)
    y = 2.0 * s + 2.0 * s * y
    return LN2 + y if half else y
