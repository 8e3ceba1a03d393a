"""The classes that a multi-class passive-aggressive step moves away from, and how far.

With l_k = (w_y - w_k).x, N = ||x||^2, r the best-scoring wrong class and l = max(0, 1 - l_r), a row moves w_y by
(sum of tau_k) x and w_k by -tau_k x, the least that satisfies  l_k >= 1 - xi  for every wrong class (Crammer and
Singer, JMLR 2003; closed form by support classes: Matsushima, Shimizu, Yoshida, Ninomiya, Nakagawa, SDM 2010).

The classes with tau_k > 0, the support, are the best-scoring wrong ones, s of them, whose constraints hold with
equality. With d_k = l_k - l_r, how far a class is behind the first, tau_k is (q - d_k) / N where q > d_k, else 0, and
the sum over the support gives

    q = (l + D) / (s + 1)                           PA        D = sum of d_k over the support
        min((l + D) / (s + 1), (C N + D) / s)       PA-I
        (h l + D) / (s + h),  h = N / (N + 1/(2C))  PA-II

A class with d_k < q lowers q by joining, and every class with d_k less than the q that is found so has joined. With
the support held to r alone only r is a constraint. Nothing in it cancels: the terms are at least 0.
"""

from __future__ import annotations

from bigclf.compiled.jit import inlined, kernel
from bigclf.methods.many_classes.multiclass import next_other, sift_down
from bigclf.methods.online.passive_aggressive import HARD, LINEAR


@inlined
def reach(lack, behind, s, norm, slack, price):  # type: ignore[no-untyped-def]
    """q of a support of s classes that are ``behind`` in all: how far behind the first a class in it may be."""
    if slack == HARD:
        return (lack + behind) / (s + 1)
    if slack == LINEAR:
        return min((lack + behind) / (s + 1), (price * norm + behind) / s)
    share = norm / (norm + 0.5 / price)
    return (share * lack + behind) / (s + share)


@kernel
def support(outputs, y, other, lack, norm, slack, price, every, classes, steps):  # type: ignore[no-untyped-def]
    """Fill ``classes`` and ``steps`` with the support, and y after it; say how many they are, 0 if there is no step.

    The classes in reach of the first alone are put into a heap and taken from it until one is out of reach: O(K) and
    a logarithm for each class of the support.
    """
    q = reach(lack, 0.0, 1, norm, slack, price)
    if not q > 0:
        return 0
    classes[0] = other
    s, held = 1, 1
    if every:
        for c in range(outputs.size):
            if c != y and c != other and outputs[other] - outputs[c] < q:
                classes[held] = c
                held += 1
        s, q = draw_support(outputs, other, lack, norm, slack, price, classes[1:held], q)
        for n in range(1, s):  # the others stand behind what is left of the heap
            classes[n] = classes[held - s + n]
    total = 0.0
    for n in range(s):
        step = max(0.0, q - (outputs[other] - outputs[classes[n]])) / norm
        steps[n] = -step
        total += step
    classes[s], steps[s] = y, total
    return s + 1


@kernel
def draw_support(outputs, other, lack, norm, slack, price, heap, q):  # type: ignore[no-untyped-def]
    """(s, q) of the support that ``other`` begins, with reach q, and classes of ``heap`` join, best-scoring first: the
    s - 1 at its end then."""
    size, behind = heap.size, 0.0
    for n in range(size // 2 - 1, -1, -1):
        sift_down(outputs, heap, n, size)
    while size > 0 and outputs[other] - outputs[heap[0]] < q:
        behind += outputs[other] - outputs[next_other(outputs, heap, size)]
        size -= 1
        q = reach(lack, behind, heap.size - size + 1, norm, slack, price)
    return heap.size - size + 1, q
