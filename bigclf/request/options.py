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
from typing import Any, NamedTuple, TypeVar, cast

from bigclf.units import parse_bytes, with_point

TRAINING = ("fit", "sweep", "path")
ALL = (*TRAINING, "plan")
MEASURING = ("evaluate", "predict", "calibrate", "report")
ROLES = ("feature", "free", "none")


# What a value may be


class Anything(NamedTuple):
    """Checked where it is used."""

    metavar: str | None = None

    def check(self, name: str, value: object) -> object:
        return value


class Words(NamedTuple):
    """A table, on the command line ``NAME=VALUE,...``, or with ``many`` a flag for each entry. ``words`` : may stand in
    place of it. ``texts`` : values are text, whatever they look like."""

    metavar: str
    words: tuple[str, ...] = ()
    texts: bool = False
    many: bool = False

    def check(self, name: str, value: object) -> object:
        return value


class Number(NamedTuple):
    """A number of at least ``least``, or above it (``above``), and less than ``below``."""

    least: float | None = None
    above: bool = False
    below: float | None = None
    metavar: str | None = None

    def check(self, name: str, given: object) -> float:
        value = require_number(name, given)
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

    def check(self, name: str, given: object) -> int:
        value = require_number(name, given)
        if value != value or abs(value) == float("inf") or int(value) != value or value < self.least:
            raise ValueError(f"{name} must be a whole number of at least {self.least}, not {value!r}")
        return int(value)


class Choice(NamedTuple):
    """One of several words."""

    words: tuple[str, ...]
    instead: str = ""  # of a word that is for other verbs

    def check(self, name: str, value: object) -> str:
        if value not in self.words:
            *others, last = (f'"{word}"' for word in self.words)
            raise ValueError(f"{name} must be {', '.join(others)} or {last}, not {value!r}{self.instead}")
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

    def check(self, name: str, value: object) -> object:
        if not isinstance(value, list | tuple) or not all(map(callable, value)):
            raise TypeError(f"{name} must be a list of functions that take a record")
        return value


Value = Anything | Words | Number | Whole | Choice | Yes | Size | Speed | Calls


def require_number(name: str, value: object) -> float:
    """The value; ValueError for what is no number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, not {value!r}{with_point(value)}")
    return cast("float", value)


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

    def check(self, value: object) -> object:
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
    """or a matrix [rows, features] (numpy, scipy sparse, pandas, pyarrow) with labels ``y`` [rows] (for a regression
    numbers); or a Dask DataFrame, which its workers write to files beside ``run_dir``, else among scratch files; or an
    iterator of blocks (X, y[, weights]) or (indptr, indices, values or None, labels[, weights]), which is kept as
    shards under the ``local_dir`` of ``workers`` during the run.""",
    flag=False,
)
Y = Option(
    "y",
    Anything(),
    "Labels [rows] of a matrix or a table, or the name of the label column; shards have their own. Of several labels a"
    ' row: an indicator matrix, lists, or ``{"column": NAME or [NAMES], "separator": TEXT}``.',
    """If it names a column and ``features`` is not given, a table of numbers is used as it is; for other tables and
    raw files, features are proposed as by ``bigclf.suggest``.""",
    verbs=ALL,
    flag=False,
)

OPTIONS = (
    Option(
        "grid",
        Words("[ALGO:]NAME=A,B,...", many=True),
        """Values of a parameter to try (repeatable). Prefix them with `ALGO:` to limit them to one method; algo=A,B
        compares methods.""",
        """In Python a table {name: values} of the method's own parameters, ``loss`` and ``algo``; every combination
        is a point. Where methods have different parameters, pass a list of tables: [{"algo": ["pa1"],
        "C": [0.1, 1]}, {"algo": ["arow"], "r": [0.1, 1]}]. Methods are trained one after another, each in a run
        of its own.""",
        verbs=("sweep",), section="", required=True,
    ),
    Option(
        "folds",
        Whole(0),
        "Number of cross-validation folds; 0: choose on ``validate`` instead.",
        """At least 2: each point is trained once per fold, on the rows outside it, and measured on the rows in it;
        the best point is then retrained on all rows. A row's fold is a hash of (seed, row number). 0: each point
        is trained once, on all rows.""",
        default=5, verbs=("sweep",), shown=True, section="",
    ),
    Option(
        "validate",
        Anything("DATA"),
        "With ``folds`` 0: the rows on which the best point is chosen.",
        "As ``data``, or (X, y); of a table the label's column is called as in ``data``.",
        verbs=("sweep",), section="",
    ),
    Option(
        "grid",
        Words("NAME=A,B,...", many=True),
        "Plan a sweep over these values (repeatable) instead of one training.",
        "In Python a table {name: values}, as ``sweep`` takes it, of one method.",
        verbs=("plan",), section="",
    ),
    Option(
        "model",
        Anything("MODEL"),
        "Plan evaluating and predicting with this model instead of training.",
        verbs=("plan",), section="",
    ),
    Option(
        "folds",
        Whole(0),
        "Number of cross-validation folds of that sweep.",
        default=5, verbs=("plan",), section="",
    ),
    Option(
        "halving",
        Choice(("validation", "progressive")),
        """Drop the worst two thirds of the points. validation: after epochs 1, 3, 9 and so on, by validation error;
        progressive: once, after the first epoch, by progressive error.""",
        """"progressive" uses the error on each row before training on it (methods without a certificate). None:
        all points are trained to the end. With several methods, each halves its own points.""",
        verbs=("sweep",), section="",
    ),
    Option(
        "refit",
        Yes(),
        "Retrain the best point on all rows.",
        default=True, verbs=("sweep",), section="",
    ),
    Option(
        "C",
        Anything("A,B,..."),
        "Values of the cost parameter C, in any order; with L1, a larger one keeps more features.",
        "With ``within``, pass two bounds.",
        verbs=("path",), section="", required=True,
    ),
    Option(
        "within",
        Number(0, above=True, below=1),
        """Train a few models that cover every C between two bounds: for each C, one of them is certified within
        this fraction of the optimum.""",
        "For methods with dual variables. ``path(...).model_at(C)`` returns the model for a C.",
        verbs=("path",), section="",
    ),
    Option(
        "sample_weight",
        Anything(),
        "Weights [rows], at least 0, or the name of their column; shards have theirs in the column ``weight``.",
        verbs=TRAINING, flag=False,
    ),
    Option(
        "features",
        Anything(),
        "Which features to make from raw columns: a spec (a table, a ``Spec``, YAML or a path to it).",
        """``data`` is then raw files, which are converted once to shards in a cache, or a table (pandas, Polars,
        Arrow) with ``y``, or with a label column in the spec. The model then takes raw rows too.""",
        verbs=ALL, flag=False,
    ),
    Option(
        "algo",
        Anything(),
        "Training method; ``bigclf algorithms`` lists them.",
        """"auto" chooses by loss, penalty, shape, size, memory and groups; ``result_.chosen`` gives the reason. It
        minimises the logistic loss, which gives probabilities, unless you name another.""",
        default="auto", verbs=("fit", "sweep", "plan"), shown=True,
    ),
    Option(
        "algo",
        Anything(),
        "``newglmnet`` (L1, elastic net), ``newton`` (L2), or ``auto``: whichever of the two supports the penalty.",
        "The default penalty is L1. With ``within``, the method is ``dcd`` and the default loss is logistic.",
        default="auto", verbs=("path",), shown=True,
    ),
    Option(
        "loss",
        Anything(),
        "Loss function, for methods that have several.",
        'None: the method\'s first one; with algo="auto" the logistic loss.',
    ),
    Option(
        "penalty",
        Anything(),
        "Penalty, for methods that have several: l2, l1 or elastic_net, whose share of L1 is the parameter l1_ratio.",
        "None: the method's first one.",
        verbs=("fit", "sweep", "plan"),
    ),
    Option(
        "penalty",
        Anything(),
        "Penalty: l1 or elastic_net, whose share of L1 is the parameter l1_ratio, for exact zeros; or l2.",
        'None: that of the method, l1 with algo="auto", with ``within`` l2.',
        verbs=("path",), unsaid="l1; with --within l2; of a named method its first",
    ),
    Option(
        "C",
        Number(),
        "Cost parameter: a larger C regularises less (LIBLINEAR's C).",
        "None: the method's default.",
        verbs=("fit", "sweep", "plan"),
    ),
    Option(
        "bias",
        Choice(ROLES),
        "Constant term: regularised like a feature, free (not regularised), or none.",
        """"feature" adds a constant 1, regularised (LIBLINEAR's -B 1); "free" is not regularised (gradient methods,
        PUMMA, MEMMA, newGLMNET); None or "none" leaves it out.""",
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
        "How to train on more than two classes: auto, one-vs-rest or native.",
        """"one-vs-rest" solves K problems with one read of each block; "native" trains all classes at once, for
        methods that can; "auto" is one-vs-rest unless the method is native only. Where the weights of every
        feature and class do not fit in ``memory``, perceptron_mc, pa_mc, pa1_mc and pa2_mc (steps against one
        class) keep only those that were updated: the same numbers, and ``coef_`` is sparse.""",
        default="auto", verbs=("fit", "sweep", "plan"),
    ),
    Option(
        "dtype",
        Choice(("float64", "float32")),
        "Type of the weights during training.",
        "Certificates are always float64.",
        default="float64",
    ),
    Option(
        "memory",
        Size(),
        "Memory budget for data, state and caches.",
        'Bytes, as a number or like "256MB"; the interpreter and the libraries come on top.',
        default="2GB", section="limits", bits=False,
    ),
    Option(
        "memory",
        Size(),
        "Memory budget; for raw files, it includes the memory needed to read them.",
        default="1GB", verbs=MEASURING, bits=False,
    ),
    Option(
        "seed",
        Whole(0),
        "Seed for every random choice.",
        "The same seed gives a bit-for-bit identical model.",
        default=0, section="run",
    ),
    Option(
        "groups",
        Whole(metavar="N"),
        """Number of virtual workers, whose weights are mixed after each epoch. Unlike ``workers``, it changes the
        result.""",
        "None: 1 in this process; else the number of workers at the start, or 1 where a dual method is faster so.",
        section="run",
    ),
    Option(
        "mixing",
        Anything("RULE"),
        "How groups are combined: one of those listed by ``bigclf algorithms NAME``; the first is the default.",
        """For online methods "rows" (mostly the default), "uniform" or "mistakes" (with a margin: updates) weigh the
        groups. With "momentum" or "momentum=0.8" the weights go on the way that they came: the default of averaged
        methods, but for averaged_pa2, which has "pull". dcd has "line_search" (the default) or "safe"; some methods
        have others.""",
        verbs=("fit", "sweep", "plan"), section="run",
    ),
    Option(
        "tol",
        Number(0, below=1),
        "Stop at this relative duality gap (methods with a certificate).",
        """None: the method's default (dcd: 1e-3). Each of several problems must reach it. In a sweep over several
        methods it applies to those with a certificate.""",
        section="limits",
    ),
    Option(
        "epochs",
        Whole(),
        "Stop after this many epochs.",
        """None: 10,000 for a certified method; for an online one about a million visits to rows, but at least 5
        epochs and at most 100. epochs=1 without ``tol`` makes a certified method an online one: it trains on
        every row once, in one pass over the data, without a certificate.""",
        section="limits",
    ),
    Option(
        "max_seconds",
        Number(0, above=True),
        "Stop after this many seconds.",
        verbs=("fit",), section="limits",
    ),
    Option(
        "validate",
        Anything("DATA"),
        "Held-out rows on which to measure the model after each epoch.",
        """As ``data``, or (X, y); of a table the label's column is called as in ``data``. The history records the
        accuracy, or for a regression the mean squared and absolute errors.""",
        verbs=("fit",),
    ),
    Option(
        "early_stopping",
        Whole(metavar="EPOCHS"),
        "Stop after this many epochs in a row without improvement on ``validate``.",
        """For methods without a certificate. epochs=None then means at most 100. The model is the best epoch's, and
        ``init`` continues from it.""",
        verbs=("fit",),
    ),
    Option(
        "prune",
        Number(0.0, above=True, below=1.0, metavar="GAP"),
        "Drop weights while the certificate of those that are left stays within this relative gap.",
        """The smallest go first; two to four more passes over the rows find how many. Where memory has room for the
        rows in the features that are left, they are trained on again, and more go. For methods with a certificate of
        the L2 penalty, each class against the rest. Ask for several times ``tol``.""",
        verbs=("fit",),
    ),
    Option(
        "init",
        Anything("MODEL"),
        "Model to start from.",
        """For methods without dual variables. Weights of features and classes that it does not know start at 0. If
        it was trained by the same method with the same settings, features and classes, the run continues exactly
        where it ended: on the same rows, ``fit`` for 3 epochs and for 2 more with ``init`` gives the bits of 5.
        Other groups or another mixing take over its weights and averages too. With another ``dtype`` its numbers
        are converted, with another ``seed`` the rows come in other orders; a warning tells you.""",
        verbs=("fit",),
    ),
    Option(
        "workers",
        Anything("N|ADDRESS"),
        """Number of local processes to start, or the address of a Dask scheduler. The result does not depend on
        it.""",
        """A Dask client or cluster object works as well; None or 1 is this process. ``Workers(where, ...)`` sets
        more options.""",
        verbs=TRAINING, section="cluster", bits=False,
    ),
    Option(
        "workers",
        Anything("N[,N...]"),
        "Number of processes in a cluster. With several numbers, as in 1,2,8, you get a table of speed-ups.",
        "None or 1 is this process; a list of numbers works as well.",
        verbs=("plan",), unsaid="this process",
    ),
    Option(
        "bandwidth",
        Speed(),
        """Network bandwidth between the driver and workers on other machines, like 1GB/s; without it, the workers are
        processes on this machine.""",
        verbs=("plan",),
    ),
    Option(
        "fresh",
        Yes(),
        "Measure this machine's speed again instead of using the cached figures.",
        default=False, verbs=("plan",),
    ),
    Option(
        "patience",
        Words("NAME=SECONDS", many=True),
        """How long to wait on a cluster (repeatable). stale: seconds without a heartbeat; least: minimum
        seconds before a unit of work is given up; idle: seconds with no workers before the run ends. Defaults: 10,
        30 and 300.""",
        """In Python a table such as {"stale": 10, "least": 30, "idle": 300}; ``cluster/book.py`` has the others.""",
        verbs=TRAINING, section="cluster", within="workers", bits=False,
    ),
    Option(
        "threads",
        Whole(),
        "Threads per worker: 1, or 2 to read ahead while training. The result is the same.",
        "1 (the default on a cluster) reads and trains in turn; 2 (the default here) reads ahead.",
        section="run", within="workers", bits=False,
    ),
    Option(
        "local_dir",
        Anything("DIR"),
        "Directory for caches of decoded rows, kept for later runs.",
        "None: a nameless file on local disk, for this run only.",
        section="run", within="workers", bits=False,
    ),
    Option(
        "run_dir",
        Anything("DIR"),
        "Directory for checkpoints and history, from which the run can be resumed.",
        "A path, or ``RunDir(path, ...)``, which also sets how often.",
        verbs=TRAINING, section="", bits=False,
        unsaid="MODEL.run, removed at the end unless the run can be resumed",
    ),
    Option(
        "run_dir",
        Yes(),
        "Whether the workers share a directory, so that row state need not be sent.",
        default=False, verbs=("plan",), flag=False,
    ),
    Option(
        "checkpoint_every",
        Number(0, metavar="SECONDS"),
        "Minimum number of seconds between checkpoints.",
        default=60.0, verbs=TRAINING, section="run", within="run_dir", bits=False,
    ),
    Option(
        "resume",
        Yes(),
        """Continue the run in the run directory, if there is one. To continue a run that stopped at its limits, also
        give larger limits or a larger ``tol``.""",
        default=False, verbs=TRAINING, section="", bits=False,
    ),
    Option(
        "callbacks",
        Calls(),
        "Functions to call with each record of the history.",
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
        """Column names, by role, for Parquet files not written by bigclf: label, weight, features, or indices and
        values.""",
        section="",
    ),
    Option(
        "format",
        Anything(),
        "Format of raw files, as for ``convert``.",
        'With "svmlight", "vw" or a reader of your own, ``data`` is text whose rows are already sparse.',
        verbs=ALL, flag=False,
    ),
    Option(
        "hash_bits",
        Whole(),
        'Hash the feature names of "vw" to this many bits.',
        verbs=ALL, flag=False,
    ),
    Option(
        "on_bad_rows",
        Choice(("error", "skip"), '; "quarantine" needs files, whose bad rows bigclf.convert keeps'),
        "What to do with raw rows that cannot be used.",
        '"skip" leaves them out, of files and of tables in memory; ``convert`` can also keep those of files in a file.',
        default="error", verbs=ALL, flag=False,
    ),
    Option(
        "max_bad_fraction",
        Number(0.0),
        "Fail if more than this share of the raw rows is left out.",
        default=0.01, verbs=ALL, flag=False,
    ),
)  # fmt: skip

GONE = {
    "on_change": "a file that changes while it is read ends the run, as it always did; leave it out",
    "opportunistic": "no training happens while waiting for a block, so every run can be repeated to the bit; leave"
    " it out",
    "segments": "the number of parts of an epoch follows from the size of the data; leave it out",
}


# Taking what was said


def declared(verb: str) -> dict[str, Option]:
    """The options of a verb by name, in the order in which they are to be read."""
    return {option.name: option for option in OPTIONS if verb in option.verbs}


def in_section(section: str) -> tuple[str, ...]:
    """Options of ``fit`` that a job has in this section."""
    return tuple(name for name, option in declared("fit").items() if option.flag and option.section == section)


def taken(verb: str, given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
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
    def first(self) -> object:
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
