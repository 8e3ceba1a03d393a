"""``algo="auto"``: which method learns, decided from counts and said in a line, with what each would cost.

====================================  ============================================================================
what is asked                         method
====================================  ============================================================================
one epoch                             ``arow``, with a loss or l2 by name ``adagrad``: each row is looked at once
l1, elastic_net                       ``newglmnet``; with the hinge and tubes ``adagrad`` (l1)
up to 4,000 features                  the one of ``newton_dense``, ``newton`` and ``dcd`` predicted to be cheapest
more, in one group                    likewise of ``newton`` and ``dcd``; else
hinge, epsilon_insensitive            ``dcd``: where rows stream by, few of them keep moving, and it holds on to those
a free bias                           ``newton``
several groups                        ``newton``: the answer does not depend on the groups
====================================  ============================================================================

A method that lacks a parameter given by name is passed over. The predictions (``predicted``) are in seconds of one core
of 2024 and need only be right beside each other. What makes dual variables slow is long rows: they hinder each other by
C x_i.x_j. Rows of length 1 (text) take some passes at C = 1, one-hot rows and numbers a hundred times as many. Where
rows do not fit in memory reads count, too. Reads to 0.001, bias, of ``newton`` and of ``dcd``, whose blocks are mixed:

=====================================  ==============  ===================
rows that stream by                    logistic        squared hinge
=====================================  ==============  ===================
2 M like text, C = 1                   17 and 4        116 and 7
200,000 like text, C = 10              85 and 8        230 and 56
the same, C = 100                      174 and 46      neither in 250
2 M click logs, C = 1                  no memory, 7    no memory, over 35
=====================================  ==============  ===================

Constants are of fits on one core, most without a bias, to a gap of 1e-3 (hinge), 1e-4 (squared hinge), 1e-6 (logistic):
a9a, adult, mushrooms, USPS, news20, w8a, flights, covtype raw and standardised, kdd99 standardised, RCV1, text, noisy
tables, pictures and logs of connections. Newton's products with the squared hinge grow with the root of C ||x||^2;
where margins are long the logistic loss is flat. A prediction of ``dcd`` for full rows may be a hundred times too high,
where classes can be told apart, so it is tried where a pass costs little beside the other method (``most_tried``).

With a bias dual variables of rows of length 1 take as many visits to 1e-3 of the hinge, C = 1 (per row 6.7 and 6.5 of
text, 7.8 and 7.8 of news20, 9.7 and 8.6 of 20 Newsgroups); longer rows take more (one-hot: 38 and 30 of a9a, 72 and 55
of 20 ones a row; 41 and 14 of w8a), which no constant knows.

Of the hinge rows of ones are easier: ``ONE_NS`` + ``RARE_NS`` C ||x||^2 (twice the share of the rarer class)
nanoseconds an entry was within a factor of two of what thirteen problems of a9a, w8a and generated rows took, since
rows that are visited again err or nearly do, and of these there are about as many of both classes. Where the classes
can be told apart dual variables settle sooner than that, and some passes show it. Those cost a third of
``newton_dense``, so ``dcd`` begins if it is predicted to take up to ``TRIED`` times as long, and gives up if it stalls
(``api/stall.py``), or after a pass where more than ``MOVING_ONES`` of the rows moved and the other costs little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from bigclf.maths.losses import BOXED
from bigclf.maths.penalties import PENALTIES
from bigclf.methods import METHODS, Method, listed, loss_meant, of_mixing, require_known
from bigclf.request.options import declared
from bigclf.units import format_bytes, format_seconds, near, other_case

ENTRY_BYTES, ROW_BYTES = 8, 100  # of a row in memory, about
OTHER_PENALTIES = {"ridge": "l2", "lasso": "l1"}
TOL = 1e-3  # at which the counts below were made
MOST_FEATURES, SHARE = 4000, 8  # of a Hessian, which may take so small a part of the memory
# Nanoseconds: of a row and of an entry in a read of Newton's methods, of a product for the Hessian row by row and entry
# by entry, of one of its factorisation, and of an entry that is read from disk.
ROW_NS, ENTRY_NS, TILED_NS, PAIR_NS, FACTOR_NS, DISK_NS = 25.0, 1.5, 0.045, 1.0, 0.15, 6.0
FULL_ROW_NS, FULL_ENTRY_NS = 15.0, 0.6  # of rows that are mostly full
FAR, FARTHER = 100_000, 4  # features whose weights lie far from the processor, and what an entry costs there
FULL = 0.3  # of a row's features: from there on all products are made
EASY = 2.0  # C ||x||^2 up to which dual variables do not hinder each other
# Of dual coordinate descent nanoseconds an entry: easy rows, and such that are mostly full; the most of a box, of
# squares and of the logistic loss.
EASY_NS, FULL_EASY_NS, BOXED_NS, SQUARED_NS, LOGISTIC_NS = 16.0, 8.0, 700.0, 500.0, 250.0
ONE_NS, RARE_NS = 26.0, 14.0  # of the hinge an entry, where all values are 1; more for each unit of C ||x||^2
# Its reads of rows that stream by, for easy ones, and the power of how hard they are: of squares, of the logistic loss.
SQUARED_READS, LOGISTIC_READS = (7.0, 1.2), (4.0, 0.6)
APART_NS = 120.0  # the most of an entry where there are no more rows than features: they can be told apart
TRIED = 3.4  # times the cost of another method at which dual variables are still worth some passes
# Of dual coordinate descent a visit to a row, an entry: of rows that are mostly full, and of others. Where it may be
# tried: passes and seconds that the other method is to cost at least (a trial in vain takes a pass and some 15 ms), the
# most that rows may hinder each other, and the share of them that may move after a pass.
FULL_VISIT_NS, VISIT_NS = 0.9, 3.0
FILLED = 0.9  # of their numbers: of kdd99 (a third, most rows alike) few rows move after a pass, and it stalls later
WORTH_A_PASS, WORTH_A_TRIAL, MOST_HARD, MOVING = 20.0, 0.03, 1000.0, 0.15
# Likewise of the hinge on rows of ones, where the other method is predicted to take at most so many times as long: of
# a9a and 60,000 rows of 20 ones 40 % move after a pass, and dcd takes 1.2 and 1.3 times as long as newton_dense; of
# w8a, mushrooms and a rare class 7 to 10 %, and it takes a half to a tenth.
MOVING_ONES, AT_MOST = 0.3, 2.0
# Reads of ``newton`` on full rows with the logistic loss to 1e-3: 17 of pictures, 21 of 784 noisy columns, 81 of 28; to
# 1e-6 25 and 28 of the first two.
FULL_PRODUCTS = 70
# Reads of the solver for tables to three digits, where losses have corners: rows full of numbers, and others.
FULL_READS, READS = 20, 27
# Groups gather at most 40 % of all rows, twice. The hinge by sums takes some 100 reads to 0.001 (counted: 88 and 91 of
# a9a in 8 and 64 groups, 112 of 200,000 rows in 8), each of a group alone; one process takes 7 passes over all rows,
# groups that stay apart 65 and more from 8 on.
SET_COPIES = 0.8
BY_SUMS, SUMS_READS, ONE_READS, FASTER, MANY_GROUPS = "augmented_lagrangian", 100, 7, 1.7, 8


class Asked(NamedTuple):
    """What the choice depends on: loss and penalty by name or None, bias, C, names of the parameters given, most epochs
    or None, rows, features, entries, memory in bytes, groups, the tolerance or None, problems (classes, or 1), whether
    all classes are to be learned at once, the mean of ||x||^2 (0: unknown), whether weights are given to begin with,
    how groups are to be combined, or None, whether all values are 1, the share of the rarer of two classes (or of a
    class, where there are more), whether the run may go on by another method, and workers, as far as they are known
    before they are there."""

    loss: str | None
    penalty: str | None
    bias: str | None
    C: float
    given: tuple[str, ...]
    epochs: int | None
    n_rows: int
    n_features: int
    nnz: int
    memory: int
    groups: int
    tol: float | None = None
    problems: int = 1
    native: bool = False
    square: float = 0.0
    begins: bool = False
    mixing: str | None = None
    ones: bool = False
    share: float = 0.5
    changes: bool = False
    workers: int = 1

    @property
    def size(self) -> int:
        """Bytes of the rows in memory, about."""
        return ENTRY_BYTES * self.nnz + ROW_BYTES * self.n_rows

    @property
    def streams(self) -> bool:
        return self.size > self.memory

    @property
    def has_hessian(self) -> bool:
        """Whether there is room for a number for each pair of features."""
        d = self.n_features + 1
        return 0 < self.n_features <= MOST_FEATURES and SHARE * 8 * d * d * self.problems <= self.memory


def has_room(asked: Asked) -> bool:
    """Whether memory surely holds the rows of a gathered set twice, in the groups and where they are solved; else they
    may stay apart."""
    return SET_COPIES * asked.size <= asked.memory


def wants_sums(asked: Asked, loss: str) -> bool:
    """Whether the hinge is to be learned by sums: the rows near the margin fit no machine, and there are so many
    groups, or workers, that this is faster than rows that stream through one process, or than groups that stay
    apart."""
    if loss not in METHODS[BY_SUMS].losses or asked.problems > 1 or not asked.nnz or has_room(asked):
        return False
    least = MANY_GROUPS if asked.groups > 2 else FASTER * SUMS_READS / ONE_READS
    return max(asked.groups, asked.workers) >= least


def choose(asked: Asked) -> tuple[str, str]:
    """Name of a method, and why, in a line.

    Raises
    ------
    ValueError : there is no method for that.   TypeError : a parameter that no method has.
    """
    require_known(asked.given, declared("fit"))
    loss = loss_for(asked)
    every = dict.fromkeys(name for method in METHODS.values() for name in method.losses)
    if loss not in every:
        raise ValueError(f"unknown loss {loss!r}; choose from {listed(every)}{loss_meant(loss, every)}")
    require_penalty(asked.penalty)
    for name, reason in _wishes(asked, loss):
        if _can(name, asked, loss):
            return name, f"algo=auto: {name}, because {_of_beginning(name, asked, loss) or reason}"
    _ask_for_capitals(asked.given)
    said = {"loss": asked.loss, "penalty": asked.penalty, "bias": asked.bias, **dict.fromkeys(asked.given, "...")}
    what = ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)
    owners = ((name, listed(m.name for m in METHODS.values() if _has(m, name))) for name in asked.given if name != "C")
    where = "".join(f"; {name} is a parameter of {having}" for name, having in owners)
    raise ValueError(f"algo='auto' finds no method for {what or 'this'}{where}; name one (see `bigclf algorithms`)")


def _of_beginning(name: str, asked: Asked, loss: str) -> str | None:
    """The reason where the weights to begin with are it."""
    if not asked.begins:
        return None
    anew = asked._replace(begins=False)
    first = next(other for other, _ in _wishes(anew, loss) if _can(other, anew, loss))
    if first == name:
        return None
    return f"it begins with the weights that are given (init); without them it is {first}, which cannot"


def require_penalty(name: object) -> None:
    """ValueError for a penalty that no method has."""
    if name in (None, *PENALTIES):
        return
    other = OTHER_PENALTIES.get(str(name).lower())
    meant = f"; did you mean {other}?" if other else near(name, PENALTIES)
    raise ValueError(f"unknown penalty {name!r}; choose from {', '.join(PENALTIES)}{meant}")


def _ask_for_capitals(given: Iterable[str]) -> None:
    """ValueError for a parameter of some methods where that of most others, which differs in capitals, may be meant."""
    params = {param.name for method in METHODS.values() for param in method.params}
    for name in given:
        if name != "C" and (meant := other_case(name, params)):
            having = listed(m.name for m in METHODS.values() if _has(m, name))
            raise ValueError(f"algo='auto' takes no {name}; did you mean {meant}? ({name} is a parameter of {having})")


def loss_for(asked: Asked) -> str:
    """The loss that is meant where none is named: of those that are certified the one that gives probabilities."""
    return asked.loss or "logistic"


def method_for(asked: Asked) -> tuple[str, float]:
    """What may take the place of ``dcd`` with the same loss, and the seconds that it is predicted to take; ("", inf)
    where there is nothing."""
    loss = loss_for(asked)
    costs = predicted(asked, loss) if asked.n_rows and asked.nnz and not asked.streams else {}
    can = {
        name: cost
        for name, cost in costs.items()
        if name != "dcd"
        and _can(name, asked, loss)
        and (name != "newton_dense" or asked.has_hessian)
        and (name != "newton" or asked.n_rows > asked.n_features)  # else it crawls at large C
    }
    return min(can.items(), key=lambda item: item[1], default=("", math.inf))


def _has(method: Method, name: str) -> bool:
    return any(param.name == name for param in method.params)


def _wishes(asked: Asked, loss: str) -> Iterable[tuple[str, str]]:
    """Methods with reasons, the best one first."""
    one = asked.epochs == 1 and asked.tol is None
    if one and asked.penalty is None and asked.loss is None:
        yield "arow", "each row is looked at once, and it makes the most of that"
    if one:
        yield "adagrad", "each row is looked at once, and its rates fit each feature's frequency"
    if asked.penalty in ("l1", "elastic_net"):
        yield "newglmnet", f"{asked.penalty} is solved on the columns that matter, with exact zeros and a certificate"
        yield "adagrad", f"{asked.penalty} with this loss or these parameters has no certified method"
    if wants_sums(asked, loss):
        size = format_bytes(int(SET_COPIES * asked.size))
        yield (
            BY_SUMS,
            (
                f"the rows near the margin would take {size}, which no machine here has, and sums over the rows of "
                f"{max(asked.groups, asked.workers)} groups need none of them in one place"
            ),
        )
    yield from _by_cost(asked, loss)
    if asked.bias == "free":
        yield "newton", "a bias that is not regularised couples all dual variables"
    streams = asked.streams
    held = "do not fit" if streams else "fit"
    fit = f"the rows (about {format_bytes(asked.size)}) {held} in {format_bytes(asked.memory)}"
    if loss in BOXED:
        others = "the few other rows stay in memory" if streams else "their rows are skipped"
        yield "dcd", f"with the {loss} loss many dual variables settle at their bounds, and {others}; {fit}"
    elif asked.groups > 1:
        yield "newton", f"its answer does not depend on the {asked.groups} groups"
    elif streams:
        yield "newton", f"{fit}, and with the {loss} loss every row keeps moving: sums need no order"
    yield "dcd", f"{fit}, and a row at a time it is near the answer after a few rounds"
    yield "newton", "it has this loss and these parameters"
    yield "adagrad", "no certified method has this loss and these parameters"
    yield "sgd", "no certified method has this loss and these parameters"


def _by_cost(asked: Asked, loss: str) -> Iterable[tuple[str, str]]:
    """What is predicted to be cheapest, where the prediction holds."""
    if not asked.n_rows or not asked.nnz or not asked.n_features:
        return
    costs = {name: cost for name, cost in predicted(asked, loss).items() if _can(name, asked, loss)}
    if not asked.has_hessian:
        costs.pop("newton_dense", None)
        if asked.groups > 1 or len(costs) < 2:
            return
    tried = TRIED if is_easier(asked, loss) and not asked.streams else 1.0
    order = sorted(costs, key=lambda name: costs[name] / (tried if name == "dcd" else 1.0))
    if not order:
        return
    if order[0] != "dcd" and not is_easier(asked, loss) and math.isfinite(most_tried(asked, loss)):
        order.sort(key=lambda name: name != "dcd")
    first, *others = order
    shape = f"{asked.n_rows:,} rows with {asked.n_features:,} features"
    if costs[first] == min(costs.values()):
        least = f"it is predicted to be the cheapest for {shape}"
    else:
        least = f"it may be the cheapest for {shape}, which a few passes show; predicted"
    beside = ", ".join(f"{name} {format_seconds(costs[name])}" for name in others)
    yield first, f"{least}: {format_seconds(costs[first])} of CPU time" + (f" ({beside})" if beside else "")


def predicted(asked: Asked, loss: str) -> dict[str, float]:
    """Seconds of a core that each certified method may take to the tolerance, by counts of reads on twenty sets."""
    boxed, n, d, nnz = loss in BOXED, asked.n_rows, asked.n_features + 1, asked.nnz
    each = nnz / n
    decades = decades_of(asked)
    disk = 1e-9 * DISK_NS * nnz if asked.streams else 0.0
    full = each >= FULL * d
    of_row, of_entry = (FULL_ROW_NS, FULL_ENTRY_NS) if full else (ROW_NS, ENTRY_NS)
    read = 1e-9 * (of_row * n + of_entry * (FARTHER if d > FAR else 1) * nnz) + disk
    row = TILED_NS * d * d / 2 if full else PAIR_NS * each * each / 2
    corners = (FULL_READS if full else READS) * decades
    smooth = 2.5 if loss.startswith("squared") else 4.0
    reads, hessians, steps = (corners, 5.0, 15 * decades) if boxed else (6 + 2 * decades, smooth, 5.0)
    dense = reads * read + hessians * 1e-9 * row * n + steps * 1e-9 * FACTOR_NS * d**3 / 6
    hard = _hardness(asked)
    most = BOXED_NS if boxed else SQUARED_NS if loss.startswith("squared") else LOGISTIC_NS
    easy = FULL_EASY_NS if full else EASY_NS
    visits = min(easy * hard ** (2.0 if boxed else 1.5), most * max(1.0, hard / 10) ** 0.5)
    if not boxed and n < d:  # whatever C is: 70 to 640 were measured from C = 100 to 1e6
        visits = min(visits, APART_NS)
    if is_easier(asked, loss):
        visits = min(visits, ONE_NS + RARE_NS * 2 * asked.share * EASY * hard)
    fewest, power = SQUARED_READS if loss.startswith("squared") else LOGISTIC_READS
    of_dual = 6 if boxed else fewest * hard**power
    dual = (1e-9 * visits * nnz + of_dual * disk) * decades * max(1, asked.groups) ** 0.5
    found = {"newton_dense": dense, "newton": products(asked) * max(1.0, asked.C) ** 0.25 * read, "dcd": dual}
    return {name: asked.problems * cost for name, cost in found.items()}


def most_tried(asked: Asked, loss: str) -> float:
    """The share of the rows that may move after a pass where ``dcd`` is tried before a method that is predicted to be
    cheaper; infinite where it is not. How soon dual variables settle depends on whether the classes can be told apart,
    which counts do not tell and a pass shows: of 20,000 pictures they took 0.1 s, not the 24 s that are predicted."""
    name, cost = method_for(asked)
    if is_easier(asked, loss):
        worth = name == "newton_dense" and asked.changes and asked.groups == 1
        return MOVING_ONES if worth and cost <= AT_MOST * predicted(asked, loss)["dcd"] else math.inf
    bounded = loss in BOXED or loss.startswith("squared")  # of others every row keeps moving
    filled = asked.nnz >= FILLED * asked.n_rows * asked.n_features
    if not (name and asked.changes and bounded and filled) or asked.groups > 1:
        return math.inf
    if not _can("dcd", asked, loss) or predicted(asked, loss)["dcd"] <= cost or _hardness(asked) > MOST_HARD:
        return math.inf
    least = max(WORTH_A_TRIAL, WORTH_A_PASS * 1e-9 * visit_ns(asked) * asked.nnz)
    return MOVING if cost >= least else math.inf


def visit_ns(asked: Asked) -> float:
    """Nanoseconds an entry of a visit of ``dcd`` to a row."""
    return FULL_VISIT_NS if asked.nnz >= FULL * asked.n_rows * (asked.n_features + 1) else VISIT_NS


def decades_of(asked: Asked) -> float:
    """How much farther the tolerance is than a thousandth."""
    return max(1.0, -math.log10(asked.tol or TOL)) / 3.0


def is_easier(asked: Asked, loss: str) -> bool:
    """Whether dual variables settle sooner than those of rows of numbers."""
    return loss == "hinge" and asked.ones


def _hardness(asked: Asked) -> float:
    """How much dual variables hinder each other, 1 for rows that hardly do."""
    each = asked.nnz / asked.n_rows
    square = asked.square if 0 < asked.square < math.inf else each  # bad numbers are told of where they are read
    return max(1.0, asked.C * square / EASY * min(1.0, asked.n_rows / (asked.n_features + 1)) ** 0.5)


def products(asked: Asked) -> float:
    """Reads that ``newton`` takes at C = 1, whatever the groups."""
    full = asked.nnz / asked.n_rows >= FULL * (asked.n_features + 1)
    hard = _hardness(asked)
    squares = loss_for(asked).startswith("squared")  # the logistic loss is flat where margins are long
    if full and hard > EASY:
        decades = decades_of(asked)
        return 300 * decades if squares or hard > MOST_HARD else FULL_PRODUCTS * (1 + decades) / 2
    if hard <= EASY:
        return 20 * decades_of(asked)
    return 60 * (max(1.0, hard / 10) ** 0.5 if squares else 1.0) * decades_of(asked)


def stays_apart(method: Method, loss: str | None) -> bool:
    """Whether groups of such rows come nowhere near the answer: ``dcd`` of a loss without a box, where every row keeps
    moving. 64 groups of 200,000 rows had a gap of 0.76 after 30 passes of the squared hinge."""
    return method.name == "dcd" and loss not in BOXED


def _can(name: str, asked: Asked, loss: str) -> bool:
    """Whether the method has all that is asked."""
    method = METHODS[name]
    own = {param.name for param in method.params}
    has_loss = loss in method.losses or (asked.loss is None and not method.losses)
    has_penalty = (asked.penalty or "l2") in (method.penalties or ("l2",))
    if asked.native and not (method.native or method.all_classes):
        return False
    if (asked.begins and method.by_duals) or (asked.mixing and of_mixing(asked.mixing)[0] not in method.form.mixings):
        return False
    if asked.groups > 1 and stays_apart(method, loss):
        return False
    return has_loss and has_penalty and (asked.bias or "none") in method.bias and set(asked.given) <= own
