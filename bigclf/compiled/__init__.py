"""Compiled code: numba's options and the helpers of every kernel (``jit``), and where machine code is kept.

Read ``jit`` first; ``kernel_cache`` and ``inlining`` are about numba, ``lanes`` and ``large_pages`` about processors.
"""
