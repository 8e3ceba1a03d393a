"""What figures of all kinds of models share."""

from __future__ import annotations

import abc
from dataclasses import asdict, fields
from typing import Any, TypedDict

import numpy as np

from bigclf.model.model import Model
from bigclf.units import plural

MOST_CLASSES_KEPT = 20  # of which a model keeps the tables of its held-out rows: some kB


class LabelFigures(TypedDict):
    label: object
    rows: int
    precision: float
    recall: float
    f1: float


class Figures(abc.ABC):
    """What dataclasses of figures share: they are also read like a dict."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def keys(self) -> list[str]:
        return [f.name for f in fields(self)]  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """The main figures; the rest is a long page (``to_dict``)."""
        n, seen, bad = self["n"], self["trained_on"], self["bad_rows"]
        told = [plural(n, "row"), *self._main_figures()]
        told += [f"{plural(bad, 'bad row')} left out"] * bool(bad) + [rows_trained_on(seen)] * bool(seen)
        return f"<{type(self).__name__}: {', '.join(told)}>"

    @abc.abstractmethod
    def _main_figures(self) -> list[str]:
        """What ``repr`` tells of them, one text a figure."""

    def leave_out(self, bad_rows: int, why: str) -> None:
        """Tell of bad rows that are not in the figures."""
        self.bad_rows = bad_rows
        if bad_rows:
            self.notes.insert(0, why)  # type: ignore[attr-defined]

    def keep_in(self, model: Model, share: float) -> None:
        """Note in the facts of ``model`` that these figures are of the ``share`` of the rows held out of its training.

        ``held_out`` has rows and one figure. ``held_out_figures`` has all that the function of this name makes an
        evaluation of: without the classes, which the model knows, and of many of them without the tables.
        """
        figures = self.to_dict()
        if model.multilabel:
            model.facts["held_out"] = {"share": share, "n": figures["n"], "micro_f1": figures["micro_f1"]}
            return
        name = "mean_squared_error" if model.regression else "accuracy"
        model.facts["held_out"] = {"share": share, "n": figures["n"], name: figures[name]}
        for left in ("classes", "unknown", "trained_on", "seconds"):
            figures.pop(left, None)
        for row in figures.get("f1", ()):
            del row["label"]
        if len(figures.get("f1", ())) > MOST_CLASSES_KEPT:
            figures |= {"f1": [], "confusion": None}
            why = f"a model keeps it for {MOST_CLASSES_KEPT} classes at most"
            figures["missing"] = {**figures["missing"], "confusion": why}
        model.facts["held_out_figures"] = figures


def rows_trained_on(share: float) -> str:
    """``the model was trained on these rows``, or on about which share of them."""
    return "the model was trained on " + ("these rows" if share == 1 else f"about {100 * share:.0f} % of these rows")


def f1_of(labels: list[object], truly: np.ndarray, predicted: np.ndarray, right: np.ndarray) -> list[LabelFigures]:
    """F1 = 2 right / (said + true), 0 where a class was neither said nor true (as scikit-learn has it); int64 [K]."""
    return [
        {
            "label": label,
            "rows": int(true),
            "precision": float(hits / said) if said else 0.0,
            "recall": float(hits / true) if true else 0.0,
            "f1": float(2 * hits / (said + true)) if said + true else 0.0,
        }
        for label, true, said, hits in zip(labels, truly, predicted, right, strict=True)
    ]
