"""Whether several workers are faster than one process, said from counts before anything is read.

What methods that go row by row and methods by sums do in a pass is divided among the groups. Dual methods are another
matter. Where there are several problems (classes one against the rest, points of a sweep, folds), workers share those:
each learns some of them from all rows, nothing is merged, and the bits are those of one process. Groups that gather
their working sets need no more passes than one, but what is done to the set is done in one place, and it is most of the
work. Groups that stay apart need many more passes. So the rows of a dual method are cut into groups only where somebody
says so, or where that is predicted to be faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from bigclf.maths.losses import BOXED
from bigclf.methods.method import Dual, Method
from bigclf.request.auto import BY_SUMS, Asked, predicted, stays_apart
from bigclf.units import plural, speed_text

PAYS = 1.7  # a smaller speed-up is not worth a cluster, and what is predicted for two workers was not reached
DEALT_PAYS = 1.2  # ... where workers share problems: they merge nothing and wait for each other seldom
# Of a run in one process, the part that groups do to their gathered set in one place: 0.65 to 0.86 in 2 and 4 groups
# of 200,000 rows with 76 of 47,000 features each.
SET_SHARE = 0.8
# Passes of one group and of several to a gap of 0.001, whatever their number (see the guide of clusters).
ONE_PASSES, GATHERED_PASSES = 7, 5
# Of all entries, as bytes that move once as rows enter such a set: 0.79 and 0.86 were counted in 2 and 4 groups of
# those rows, beside what moves in each pass.
SHIPPED_SHARE = 0.82
JOIN_SECONDS = 0.02  # of a pass, to begin and to end it on workers
BANDWIDTH = 1e9  # bytes a second between machines, where nobody says


DEALT = "problems dealt out"


def design(method: Method, loss: str | None, groups: int, gathered: bool, dealt: bool = False) -> str:
    """How groups come together, in a word or two; ``dealt`` : workers share problems."""
    if groups == 1:
        return DEALT if dealt else "one group"
    if isinstance(method.how, Dual):
        return "gathered set" if gathered else "groups apart"
    return "sums" if method.certificate else "mixing"


def may_gather(method: Method, loss: str | None, mixing: str | None, settings: dict[str, object]) -> bool:
    """Whether groups of such a method gather their working sets, where memory has room for them."""
    apart = mixing == "safe" or settings.get("working_set") == 0 or settings.get("schedule", "auto") != "auto"
    return method.name == "dcd" and loss in BOXED and not apart


def require_joining(method: Method, loss: str | None, groups: int) -> None:
    """ValueError where rows are to be cut into groups that would come nowhere near the answer."""
    if groups > 1 and stays_apart(method, loss):
        raise ValueError(
            f"algo='dcd' with loss={loss!r} takes one group, not {groups}: every row keeps moving, and what groups do "
            f"apart adds up to no answer. Write algo='newton', whose answer does not depend on groups, or groups=1"
        )


def speed_up(asked: Asked, loss: str, workers: int, gathered: bool) -> float:
    """Seconds of ``dcd`` in one group, by those in a group for each of so many workers; 0: groups stay apart, and how
    many passes they would need nobody knows."""
    if workers == 1:
        return 1.0
    if not gathered:
        return 0.0
    whole = asked._replace(groups=1)
    one, at_set = (predicted(each, loss)["dcd"] for each in (whole, whole._replace(memory=asked.size)))
    alone = SET_SHARE * at_set  # without what is read from disk
    moved = 2 * 8 * (asked.n_features + 1) * workers / BANDWIDTH
    return one / (alone + (one - alone) / workers + GATHERED_PASSES * (JOIN_SECONDS + moved))


def advice(name: str, workers: int, faster: float, apart: str | None = None, lacks: str = "") -> str:
    """Why there is one group though there are several workers, and what these are for; empty where groups pay.

    apart : the loss, where the method takes no groups with it. lacks : bytes that its gathered set would need of one
        machine and that are not there, where another method has no such set; else empty.
    """
    if apart:
        return (
            f"{name} takes one group with loss={apart!r}. So one of the {workers} workers trains on all rows; all of "
            "them measure and predict (algo='newton' has the same answer and splits the rows)"
        )
    if faster >= PAYS:
        return ""
    why = (
        f"{workers} groups are predicted to be {speed_text(faster)}"
        if faster
        else "groups that stay apart need many more passes"
    )
    instead = f"; the set that groups gather needs {lacks}, which no worker has: algo={BY_SUMS!r} needs none"
    return (
        f"one process is faster for {name}: {why}. So one of the {workers} workers trains on all rows, in one group; "
        f"all of them measure and predict (groups={workers} splits the rows anyway{instead if lacks else ''})"
    )


def of_one_group(method: Method, workers: int) -> str:
    """What the workers are for, where no groups of rows can be combined."""
    return (
        f"{method.asked} runs with one group: one of the {workers} workers trains on all rows; all of them measure and "
        "predict"
    )


def idle_text(workers: int, groups: int, why: str = "") -> str:
    """That workers are there which have no rows to train on; empty where all have some. ``why`` : no more groups."""
    if groups >= workers:
        return ""
    idle = plural(workers - groups, "worker")
    said = f"{plural(groups, 'group')} of rows for {workers:,} workers: {idle} will be idle in training"
    return f"{said}{why and f' ({why})'}"


def deals_out(methods: Sequence[Method], sweeps: bool, problems: int, workers: int) -> bool:
    """Whether workers share so many problems, and not rows: of a dual method, and in a sweep where nobody is idle."""
    dual = any(isinstance(method.how, Dual) for method in methods)
    return problems > 1 and workers > 1 and (dual or (sweeps and problems >= workers))


def how_dealt(problems: int, workers: int) -> str:
    """What the workers are for."""
    return (
        f"{problems:,} problems are dealt out to {workers:,} workers: each learns its share from all rows, and the "
        f"result is that of one process (groups={workers} splits the rows instead)"
    )
