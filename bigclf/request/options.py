"""Every option of ``fit``, ``sweep``, ``path`` and ``plan``, declared once: name, value, default, verbs and help.

What a person reads of an option (docstrings, the command line, the schema of jobs) and what is refused of its value by
itself are made from its declaration here. What an option means together with others is checked in ``request.py``.

To add one: declare it here, in the order in which it is to be read, and use ``request.options[name]``.
"""

from __future__ import annotations

import abc
import numbers
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from bigclf.units import parse_bytes

TRAINING = ("fit", "sweep", "path")
ALL = (*TRAINING, "plan")
MEASURING = ("evaluate", "predict", "calibrate", "report")
ROLES = ("feature", "free", "none")


# What a value may be


class Anything(NamedTuple):
    """Checked where it is used."""

    metavar: str | None = None

    def check(self, name: str, value: object) -> Any:
        return value


class Words(NamedTuple):
    """A table, on the command line ``NAME=VALUE,...``, or with ``many`` a flag for each entry. ``words`` : may stand in
    place of it. ``texts`` : values are text, whatever they look like."""

    metavar: str
    words: tuple[str, ...] = ()
    texts: bool = False
    many: bool = False

    def check(self, name: str, value: object) -> Any:
        return value


class Number(NamedTuple):
    """A number of at least ``least``, or above it (``above``), and less than ``below``."""

    least: float | None = None
    above: bool = False
    below: float | None = None
    metavar: str | None = None

    def check(self, name: str, value: Any) -> float:
        require_number(name, value)
        low = self.least is None or (value > self.least if self.above else value >= self.least)
        if not low or not (self.below is None or value < self.below):
            raise ValueError(f"{name} must be {self.range()}, not {value!r}")
        return float(value)

    def range(self) -> str:
        low = f"{'more than' if self.above else 'at least'} {self.least:g}"
        return low if self.below is None else f"{low} and less than {self.below:g}"


class Whole(NamedTuple):
    """A whole number of at least ``least``."""

    least: int = 1
    metavar: str | None = None

    def check(self, name: str, value: Any) -> int:
        require_number(name, value)
        if value != value or abs(value) == float("inf") or int(value) != value or value < self.least:
            raise ValueError(f"{name} must be a whole number of at least {self.least}, not {value!r}")
        return int(value)


class Choice(NamedTuple):
    """One of several words."""

    words: tuple[str, ...]

    def check(self, name: str, value: object) -> str:
        if value not in self.words:
            *others, last = (f'"{word}"' for word in self.words)
            raise ValueError(f"{name} must be {', '.join(others)} or {last}, not {value!r}")
        return str(value)


class Yes(NamedTuple):
    """True or False; on the command line a flag."""

    def check(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")
        return value


class Size(NamedTuple):
    """Bytes, as a number or like "256MB"."""

    def check(self, name: str, value: Any) -> int:
        return parse_bytes(value)


class Speed(NamedTuple):
    """Bytes a second, as a number or like "1GB/s"."""

    def check(self, name: str, value: Any) -> int:
        return parse_bytes(value.removesuffix("/s") if isinstance(value, str) else value)


class Calls(NamedTuple):
    """Functions that take a record."""

    def check(self, name: str, value: object) -> Any:
        if not isinstance(value, list | tuple) or not all(map(callable, value)):
            raise TypeError(f"{name} must be a list of functions that take a record")
        return value


Value = Anything | Words | Number | Whole | Choice | Yes | Size | Speed | Calls


def require_number(name: str, value: object) -> None:
    """ValueError for what is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, not {value!r}")


# An option


class Option(NamedTuple):
    """An option of some verbs.

    name : in Python and in jobs; on the command line ``--name``, with hyphens. value : what it may be. help : a
    sentence for whoever reads the command line, the schema or a docstring; more : what Python's callers are told
    besides.
    default : where nothing is said; none : None may be said all the same. verbs : that have it.
    flag : whether the command line has it. shown : whether the command line gives its default too, and records that.
    unsaid : its default in words, for the command line. required : must be said.
    section : of a job, in which it stands. within : the argument that it is a part of, such as ``workers``.
    bits : whether results depend on it.
    """

    name: str
    value: Value
    help: str
    more: str = ""
    default: Any = None
    verbs: tuple[str, ...] = ALL
    none: bool = False
    flag: bool = True
    shown: bool = False
    unsaid: str = ""
    required: bool = False
    section: str = "method"
    within: str = ""
    bits: bool = True

    def check(self, value: object) -> Any:
        """The value as it is used.

        Raises
        ------
        ValueError, TypeError : it is none that the option may have.
        """
        if value is None and (self.default is None or self.none):
            return None
        return self.value.check(self.name, value)


DATA = Option(
    "data",
    Anything(),
    "A path, directory or glob of Parquet, or a ``Dataset``;",
    """or a matrix [rows, features] (numpy, scipy sparse, pandas, pyarrow), then ``y`` [rows] holds its labels (for a
    regression numbers); or a Dask DataFrame, which its workers write down beside ``run_dir``, else among scratch files;
    or an iterator of blocks (X, y[, weights]) or (indptr, indices, values or None, labels[, weights]), which is written
    down as shards under the ``local_dir`` of ``workers`` while the run lasts.""",
    flag=False,
)
Y = Option(
    "y",
    Anything(),
    "Labels [rows] of a matrix or a table, or the name of their column; shards bring theirs.",
    """Where it names a column and ``features`` is not given, columns of numbers are the features as they are; for other
    tables and raw files features are proposed as ``bigclf.suggest`` does.""",
    verbs=TRAINING,
    flag=False,
)

OPTIONS = (
    Option(
        "grid",
        Words("[ALGO:]NAME=A,B,...", many=True),
        "Values of a parameter (repeatable); with ALGO: of that method alone; algo=A,B: methods.",
        """In Python {name: values} of the method's own parameters, ``loss`` and ``algo``; every combination is a
        point. A list of such: the points of each, as where methods have other parameters: [{"algo": ["pa1"],
        "C": [0.1, 1]}, {"algo": ["arow"], "r": [0.1, 1]}]. Methods are learned one after another, each in a run
        of its own.""",
        verbs=("sweep",), section="", required=True,
    ),
    Option(
        "folds",
        Whole(0),
        "Parts of the rows, each measured on by a model that has not seen it; 0: choose by ``validate``.",
        """At least 2: each point is learned so many times without a fold of the rows and measured on it, and the
        best one once more on all rows. A row's fold is a hash of (seed, its number). 0: each point is learned
        once from all rows.""",
        default=5, verbs=("sweep",), shown=True, section="",
    ),
    Option(
        "validate",
        Anything("DATA"),
        "Where ``folds`` is 0, the rows to choose by.",
        "Shards, or (X, y).",
        verbs=("sweep",), section="",
    ),
    Option(
        "halving",
        Choice(("validation", "progressive")),
        """Give up two thirds of what is left after epochs 1, 3, 9 ..., by errors on rows not learned from; or
        once, by those of the first epoch.""",
        """"progressive" goes by the errors on each row before it was learned from (methods without a certificate).
        None: all points are learned to the end. Of several methods each halves its own points.""",
        verbs=("sweep",), section="",
    ),
    Option(
        "refit",
        Yes(),
        "Learn the best point from all rows.",
        default=True, verbs=("sweep",), section="",
    ),
    Option(
        "C",
        Anything("A,B,..."),
        "Values of the cost of the loss, in any order; of L1 a larger one keeps more features.",
        "With ``within`` they are two bounds.",
        verbs=("path",), section="", required=True,
    ),
    Option(
        "within",
        Number(0, above=True, below=1),
        "Between the two values of C, train few models, one of which is certified within this share of each optimum.",
        "Of methods by dual variables. ``path(...).model_at(C)`` is the model that serves a C.",
        verbs=("path",), section="",
    ),
    Option(
        "sample_weight",
        Anything(),
        "Weights [rows] of a matrix, at least 0; shards bring theirs in the column ``weight``.",
        verbs=TRAINING, flag=False,
    ),
    Option(
        "features",
        Anything(),
        "Of raw columns, what becomes of them: a spec (a table, a ``Spec``, YAML or its file).",
        """``data`` is then raw files, which become shards in a cache once, or a table (pandas, Polars, Arrow) with
        ``y`` or the label's column in the spec. The model takes raw rows too.""",
        verbs=TRAINING, flag=False,
    ),
    Option(
        "algo",
        Anything(),
        "The method: see ``bigclf algorithms``.",
        """"auto" chooses by loss, penalty, shape, size, memory and groups; ``result_.chosen`` gives the reason. Unless
        another loss is named it minimises the logistic loss, which gives probabilities.""",
        default="auto", verbs=("fit", "sweep", "plan"), shown=True,
    ),
    Option(
        "algo",
        Anything(),
        "``newglmnet`` (L1, elastic net), ``newton`` (L2), or ``auto``: which of the two has the penalty.",
        "Without a penalty it is L1. With ``within`` it is ``dcd``, and the loss the logistic one unless named.",
        default="auto", verbs=("path",), shown=True,
    ),
    Option(
        "loss",
        Anything(),
        "The loss by name, for methods that have several.",
        'None is the method\'s first, and with algo="auto" the logistic loss.',
    ),
    Option(
        "penalty",
        Anything(),
        "The penalty by name, for methods that have several.",
        "None is the method's first.",
    ),
    Option(
        "C",
        Number(),
        "The cost of the loss (inverse regularisation, LIBLINEAR's C).",
        "None is the method's default.",
        verbs=("fit", "sweep", "plan"),
    ),
    Option(
        "bias",
        Choice(ROLES),
        "The constant term.",
        """"feature" is a constant 1, regularised (LIBLINEAR's -B 1), "free" is not regularised (gradient methods,
        PUMMA, MEMMA, newGLMNET), None or "none" is none.""",
        default="feature", none=True,
    ),
    Option(
        "class_weight",
        Words("balanced|CLASS=W,...", words=("balanced",)),
        "Weights of the classes.",
        'None, "balanced" or {label: weight}.',
    ),
    Option(
        "multiclass",
        Anything(),
        "How more than two classes are learned.",
        """"one-vs-rest" (K problems over one read of each block), "native" (all classes at once, by those methods
        that have it), or "auto": the first, unless the method has the second only. Where weights of every
        feature and class do not fit in ``memory``, perceptron_mc, pa_mc, pa1_mc and pa2_mc (steps against one
        class) hold those that are touched alone: the same numbers, and ``coef_`` is sparse.""",
        default="auto", verbs=("fit", "sweep", "plan"),
    ),
    Option(
        "dtype",
        Choice(("float64", "float32")),
        "Type of the weights while training.",
        "Certificates are float64 always.",
        default="float64",
    ),
    Option(
        "memory",
        Size(),
        "What may be allocated for data, state and caches.",
        'Bytes, as a number or like "256MB"; interpreter and libraries come on top.',
        default="2GB", section="limits", bits=False,
    ),
    Option(
        "memory",
        Size(),
        "Bound of what is allocated, of raw files what reading them takes.",
        default="1GB", verbs=MEASURING, bits=False,
    ),
    Option(
        "seed",
        Whole(0),
        "Seed of every random choice.",
        "The same one gives the same bits.",
        default=0, section="run",
    ),
    Option(
        "groups",
        Whole(metavar="N"),
        "Virtual workers, whose weights are mixed after each epoch; the result depends on them.",
        "None is 1 in this process, else the workers at the start, or 1 where a dual method is faster so.",
        section="run",
    ),
    Option(
        "mixing",
        Anything("RULE"),
        "How groups are combined: what ``bigclf algorithms NAME`` has, its default first.",
        """"rows" (the default), "uniform" or "mistakes" (with a margin, by updates) for the shares of online
        methods, "pull" (the default) or one of these for averaged_pa2, "line_search" (the default) or "safe"
        for dcd; some have others.""",
        verbs=("fit", "sweep", "plan"), section="run",
    ),
    Option(
        "tol",
        Number(0, below=1),
        "Stop at this relative duality gap (methods with a certificate).",
        """None is the method's own (dcd: 1e-3); of several problems each has it. Of several methods it is for
        those with a certificate.""",
        section="limits",
    ),
    Option(
        "epochs",
        Whole(),
        "Stop after so many epochs.",
        """None is 10,000 for a certified method; for an online one about a million visits to rows, but at least 5
        epochs and at most 100. epochs=1 of a certified method without ``tol`` is an online one: every row is
        learned from once, in one pass over the data, and there is no certificate.""",
        section="limits",
    ),
    Option(
        "max_seconds",
        Number(0, above=True),
        "Stop after this time.",
        verbs=("fit",), section="limits",
    ),
    Option(
        "validate",
        Anything("DATA"),
        "Rows to measure the model on after each epoch.",
        """Shards, or (X, y). Accuracy, or of a regression mean squared and absolute error, goes into the history.""",
        verbs=("fit",),
    ),
    Option(
        "early_stopping",
        Whole(metavar="EPOCHS"),
        "End after so many epochs in a row without a better figure on the rows of ``validate``.",
        """For methods without a certificate; epochs=None is then at most 100; the answer is the best epoch's, and
        ``init`` goes on from there.""",
        verbs=("fit",),
    ),
    Option(
        "init",
        Anything("MODEL"),
        "A model to start from.",
        """For methods without dual variables; of features and classes that it does not know the weights begin at
        0. Where it was trained by the same method with the same settings on data of the same features and
        classes, the run goes on exactly where it ended: with the same rows, ``fit`` for 3 epochs and 2 more
        with ``init`` give the bits of 5. So it does in other groups or mixed in another way, which take over
        its weights and averages. With another ``dtype`` its numbers are converted, with another ``seed`` the
        rows come in other orders; a warning says so.""",
        verbs=("fit",),
    ),
    Option(
        "workers",
        Anything("N|ADDRESS"),
        """Who does the work, which never changes the result: a number of processes that are started, or the
        address of a Dask scheduler.""",
        """A Dask client or a cluster object will do as well; None or 1 is this process. ``Workers(where, ...)``
        says more of them.""",
        verbs=TRAINING, section="cluster", bits=False,
    ),
    Option(
        "workers",
        Anything("N[,N...]"),
        "Processes of a cluster; of several numbers, as in 1,2,8, a table with the speed-up of each.",
        "None or 1 is this process; a list of numbers will do as well.",
        verbs=("plan",), unsaid="this process",
    ),
    Option(
        "bandwidth",
        Speed(),
        """Between the driver and workers on other machines, like 1GB/s; without it the workers are processes of this
        one.""",
        verbs=("plan",),
    ),
    Option(
        "fresh",
        Yes(),
        "Measure this machine's rates again, instead of those that are kept.",
        default=False, verbs=("plan",),
    ),
    Option(
        "patience",
        Words("NAME=SECONDS", many=True),
        "When workers are given up on: stale, least, idle ... (repeatable).",
        """Of a cluster, in seconds: {"stale": without a sign of life a worker is given up on (10), "least": every
        visit may take (30), "idle": without any worker until the run gives up (300)}; others in
        ``cluster/book.py``.""",
        verbs=TRAINING, section="cluster", within="workers", bits=False,
    ),
    Option(
        "threads",
        Whole(),
        "Cores of a visit (2 at most are used), which never change the result.",
        "1 (the default on a cluster) reads and learns in turn, 2 (the default here) reads ahead.",
        section="run", within="workers", bits=False,
    ),
    Option(
        "local_dir",
        Anything("DIR"),
        "Where caches may lie.",
        "The decoded rows are kept there for later runs; None is a nameless file on local disk for this run.",
        section="run", within="workers", bits=False,
    ),
    Option(
        "run_dir",
        Anything("DIR"),
        "Where checkpoints and history are kept, and where the run can be resumed from.",
        "A path, or ``RunDir(path, ...)``, which says how often.",
        verbs=TRAINING, section="", bits=False,
        unsaid="MODEL.run, removed at the end unless it can be gone on with",
    ),
    Option(
        "run_dir",
        Yes(),
        "Whether a directory is shared, so that row state need not travel.",
        default=False, verbs=("plan",), flag=False,
    ),
    Option(
        "checkpoint_every",
        Number(0, metavar="SECONDS"),
        "Least time between checkpoints, in seconds.",
        default=60.0, verbs=TRAINING, section="run", within="run_dir", bits=False,
    ),
    Option(
        "resume",
        Yes(),
        """Go on with the run in the run directory, if there is one; also with one that stopped at its limits, under
        larger ones or a larger ``tol``.""",
        default=False, verbs=TRAINING, section="", bits=False,
    ),
    Option(
        "callbacks",
        Calls(),
        "Functions that are called with each record of the history.",
        default=(), verbs=TRAINING, flag=False,
    ),
    Option(
        "progress",
        Anything(),
        "True, False or None (a bar on a terminal only), or an object that shows it.",
        verbs=TRAINING, flag=False,
    ),
    Option(
        "columns",
        Words("ROLE=NAME,...", texts=True),
        """Names of columns in Parquet that bigclf did not write: of label, weight, features (or indices, values).""",
        section="",
    ),
    Option(
        "format",
        Anything(),
        "What raw files are, as ``convert`` takes it.",
        'With "svmlight", "vw" or a reader of your own ``data`` is text of rows that are sparse already.',
        verbs=TRAINING, flag=False,
    ),
    Option(
        "hash_bits",
        Whole(),
        'Of "vw", names of features are hashed to so many bits.',
        verbs=TRAINING, flag=False,
    ),
    Option(
        "on_bad_rows",
        Choice(("error", "skip")),
        "Of raw rows that cannot be used.",
        '"skip" leaves them out; ``convert`` can keep them in a file.',
        default="error", verbs=TRAINING, flag=False,
    ),
)  # fmt: skip

GONE = {
    "on_change": "files that change while they are read end the run, as they always did; leave it out",
    "opportunistic": "nothing is learned while a block is waited for, so every run can be repeated to the bit; leave"
    " it out",
    "segments": "how many parts an epoch has follows from the size of the data; leave it out",
}


# Taking what was said


def declared(verb: str) -> dict[str, Option]:
    """The options of a verb by name, in the order in which they are to be read."""
    return {option.name: option for option in OPTIONS if verb in option.verbs}


def in_section(section: str) -> tuple[str, ...]:
    """Options of ``fit`` that a job has in this section."""
    return tuple(name for name, option in declared("fit").items() if option.flag and option.section == section)


def taken(verb: str, given: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every option of the verb by name, each checked by itself, defaults for those that were not said; and what was
    said besides, which is the methods' own.

    Raises
    ------
    TypeError, ValueError : an option that is gone, has moved, or has another value than it may.
    """
    own = declared(verb)
    refuse_gone(verb, given)
    said = {**given}
    for option in own.values():
        if option.within in said and isinstance(whole := said[option.within], Parts):
            said[option.name] = getattr(whole, option.name)
    said |= {name: value.first() for name, value in said.items() if isinstance(value, Parts)}
    options = {name: option.check(said.pop(name, option.default)) for name, option in own.items()}
    return options, said


class Parts(abc.ABC):
    """What says more of an argument than its name alone: ``Workers`` and ``RunDir``."""

    @abc.abstractmethod
    def first(self) -> Any:
        """What may stand alone."""


def refuse_gone(verb: str, names: Iterable[str]) -> None:
    """TypeError for an option that the verb has no more under that name, with what to do instead."""
    parts = {option.name: option.within for option in OPTIONS if option.within}
    for name in names:
        if name in GONE:
            raise TypeError(f"there is no option {name} any more: {GONE[name]}")
        if name in parts:
            whole = PARTS[parts[name]]
            raise TypeError(f"{verb} takes {name} with {parts[name]}: {parts[name]}=bigclf.{whole}, {name}=...)")


PARTS = {"workers": "Workers(where", "run_dir": "RunDir(path"}


def refuse_others(names: Iterable[str], own: Iterable[str], where: str) -> None:
    """TypeError for options of ``fit`` that have no place among parameters, unless they are in ``own``."""
    for name in names:
        if name not in own and name in ("data", "y", *declared("fit")):
            raise TypeError(f"{name} has no place in {where}: it is a parameter of bigclf.fit")


# Describing


Thing = TypeVar("Thing")  # a function or class with a docstring


def documented(verb: str, *left_out: str) -> Callable[[Thing], Thing]:
    """Put the entries of a verb's options in place of ``{options}`` in a docstring; ``left_out`` : but for these."""

    def describe(thing: Thing) -> Thing:
        entries = [_entry(option) for option in (DATA, Y, *declared(verb).values())
                   if verb in option.verbs and not option.within and option.name not in left_out]  # fmt: skip
        thing.__doc__ = _with_entries(thing.__doc__ or "", entries)
        return thing

    return describe


def documented_parts(whole: str) -> Callable[[Thing], Thing]:
    """... of what is given within another argument."""

    def describe(thing: Thing) -> Thing:
        entries = [_entry(option) for option in OPTIONS if option.within == whole]
        thing.__doc__ = _with_entries(thing.__doc__ or "", entries)
        return thing

    return describe


def _with_entries(text: str, entries: list[str]) -> str:
    """A docstring with the entries where ``{options}`` stands, as far in: Python 3.13 takes the indentation out."""
    return re.sub(r"^( *)\{options\}\n", lambda found: textwrap.indent("".join(entries), found[1]), text, flags=re.M)


def _entry(option: Option) -> str:
    text = " ".join(f"{option.name} : {option.help} {option.more}".split())
    return textwrap.fill(text, 114, subsequent_indent="    ") + "\n"
