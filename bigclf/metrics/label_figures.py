"""How good a model is on rows with several labels each, as scikit-learn's metrics of the same names define it."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigclf.compiled.jit import kernel
from bigclf.data.label_sets import LabelSets
from bigclf.features.truths import places
from bigclf.maths.block import Block
from bigclf.metrics.kinds import Figures, LabelFigures, f1_of
from bigclf.model.model import Model, unseen_text
from bigclf.texts import card, grid

AT = (1, 3, 5)  # of precision at k


@dataclass(repr=False)
class LabelsEvaluation(Figures):
    """Figures of a model of several labels a row, on rows with such; also read like a dict.

    Attributes
    ----------
    n : rows.   mean_labels : labels that a row has in the mean; mean_predicted : labels that the model gives it.
    subset_accuracy : the share of rows whose labels are all right and no other.
    hamming_loss : the share of wrong answers among all pairs of a row and a label.
    micro_precision, micro_recall, micro_f1 : of all pairs together; macro_f1 : the plain mean of the labels' F1.
    precision_at : for k of 1, 3 and 5, as far as the model has so many labels, the mean share of the k labels with the
        greatest decision values that the row has.
    ranking_average_precision : the mean, over the labels of each row, of the share of its labels among all that rank as
        high (scikit-learn's label_ranking_average_precision_score; 1 for a row without labels).
    coverage_error : how many labels one has to go down to in the mean to have all that the row has.
    classes : labels of the model, in order.   f1 : for each ``label, rows, precision, recall, f1``.
    unknown : labels that the model does not know, and how many rows have them; they are left out of all figures.
    unseen, bad_rows, trained_on, seconds, notes, missing, weighted : as of ``Evaluation``; ``weighted`` is None.
    """

    n: int
    mean_labels: float
    mean_predicted: float
    subset_accuracy: float
    hamming_loss: float
    micro_precision: float
    micro_recall: float
    micro_f1: float
    macro_f1: float
    precision_at: dict[int, float]
    ranking_average_precision: float
    coverage_error: float
    classes: list[Any]
    f1: list[LabelFigures]
    missing: dict[str, str] = field(default_factory=dict)
    unknown: dict[Any, int] = field(default_factory=dict)
    unseen: int = 0
    trained_on: float = 0.0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    weighted: dict[str, float | None] | None = None
    bad_rows: int = 0

    def _main_figures(self) -> list[str]:
        return [f"micro F1 {self.micro_f1:.4f}", f"macro F1 {self.macro_f1:.4f}",
                f"precision at 1 {100 * self.precision_at[1]:.2f} %"]  # fmt: skip

    def _repr_html_(self) -> str:
        """For notebooks: the figures, and the labels that do worst."""
        facts = {"rows": f"{self.n:,}", **dict(self.lines()), "notes": "; ".join(self.notes)}
        worst = grid(
            ("label", "rows", "precision", "recall", "F1"),
            ([row["label"], row["rows"], *(f"{row[name]:.4f}" for name in ("precision", "recall", "f1"))]  # type: ignore[literal-required]
             for row in self.worst()),
        )  # fmt: skip
        return card("Evaluation", facts, worst)

    def lines(self) -> list[tuple[str, str]]:
        """Names and figures, as they are shown."""
        return [
            ("micro F1", f"{self.micro_f1:.4f} (precision {self.micro_precision:.4f}, recall {self.micro_recall:.4f})"),
            ("macro F1", f"{self.macro_f1:.4f}"),
            *((f"precision at {k}", f"{100 * share:.2f} %") for k, share in self.precision_at.items()),
            ("ranking average precision", f"{self.ranking_average_precision:.4f}"),
            ("coverage error", f"{self.coverage_error:.2f} of {len(self.classes):,} labels"),
            ("all labels right", f"{100 * self.subset_accuracy:.2f} % of the rows"),
            ("labels a row", f"{self.mean_labels:.2f}, predicted {self.mean_predicted:.2f}"),
        ]

    def worst(self, most: int = 10) -> list[LabelFigures]:
        """The labels of least F1 among those that have rows."""
        return sorted((row for row in self.f1 if row["rows"]), key=lambda row: row["f1"])[:most]


class PartialLabels:
    """Counts over the rows of consecutive chunks, from which all figures follow; parts can be merged and pickled.

    Attributes
    ----------
    first, last : the chunks counted so far are first:last.
    n : rows; unseen : entries whose feature the model does not know.
    right, truly, predicted : int64 [label]; rows that have it and got it, that have it, that got it.
    hits : int64 [3]; labels that rows have among the 1, 3 and 5 ranked highest.   exact : rows with all labels right.
    ranking, coverage : for each piece of rows the sums of their average precision and of their coverage.
    """

    def __init__(self, model: Model, first: int = 0) -> None:
        k = model.classes_.size
        self.first = self.last = first
        self.n = self.unseen = self.exact = 0
        self.right, self.truly, self.predicted = (np.zeros(k, np.int64) for _ in range(3))
        self.hits = np.zeros(len(AT), np.int64)
        self.ranking, self.coverage = array("d"), array("d")

    def add(self, model: Model, block: Block, sets: LabelSets) -> None:
        """Count the rows of the next chunk; ``sets`` : of its codes, as positions in the model's labels."""
        codes = block.labels.astype(np.int64)
        for first, scores, unseen in model.pieces(block):
            self.add_scores(scores, *sets.chosen(codes[first : first + len(scores)]))
            self.unseen += unseen
        self.last += 1

    def add_scores(self, scores: np.ndarray, indptr: np.ndarray, members: np.ndarray) -> None:
        """Count rows of decision values [m, K], whose labels are ``members`` of positions, -1 for unknown ones."""
        sums = np.zeros(2)
        counts = (self.right, self.truly, self.predicted, self.hits)
        self.exact += int(measure_sets(scores, indptr, members, *counts, np.array(AT), np.empty(max(AT)), sums))
        self.ranking.append(sums[0])
        self.coverage.append(sums[1])
        self.n += len(scores)

    def merge(self, other: PartialLabels) -> None:
        """Add the part that comes next; ValueError if it is not the next one. ``other`` stays as it is."""
        if other.first != self.last:
            raise ValueError(f"after chunks {self.first}:{self.last} come others than {other.first}:{other.last}")
        self.last = other.last
        for name in ("n", "unseen", "exact"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("right", "truly", "predicted", "hits"):
            getattr(self, name)[:] += getattr(other, name)
        self.ranking.extend(other.ranking)
        self.coverage.extend(other.coverage)

    @property
    def n_bytes(self) -> int:
        """Bytes of it as it travels."""
        return 3 * self.right.nbytes + 16 * len(self.ranking)

    def figures(self, model: Model, sets: LabelSets) -> LabelsEvaluation:
        """All figures; ``sets`` : those of the rows, in their own labels."""
        right, truly, predicted = (int(counts.sum()) for counts in (self.right, self.truly, self.predicted))
        f1 = f1_of(model.classes_.tolist(), self.truly, self.predicted, self.right)
        unknown = _unknown(model, sets)
        return LabelsEvaluation(
            n=self.n,
            mean_labels=truly / self.n,
            mean_predicted=predicted / self.n,
            subset_accuracy=self.exact / self.n,
            hamming_loss=(truly + predicted - 2 * right) / (self.n * self.right.size),
            micro_precision=right / predicted if predicted else 0.0,
            micro_recall=right / truly if truly else 0.0,
            micro_f1=2 * right / (truly + predicted) if truly + predicted else 0.0,
            macro_f1=float(np.mean([row["f1"] for row in f1])),
            precision_at={
                k: int(hits) / (k * self.n) for k, hits in zip(AT, self.hits, strict=True) if k <= self.right.size
            },
            ranking_average_precision=math.fsum(self.ranking) / self.n,
            coverage_error=math.fsum(self.coverage) / self.n,
            classes=model.classes_.tolist(),
            f1=f1,
            unknown=unknown,
            unseen=self.unseen,
            missing={f"precision at {k}": f"the model has {self.right.size} labels" for k in AT if k > self.right.size},
            notes=[
                *([] if predicted else [SILENT]),
                *_notes(unknown),
                *([unseen_text(self.unseen, model.n_features)] if self.unseen else []),
            ],
        )


SILENT = "the model gives no label to any of these rows: no decision value is 0 or more"


def _unknown(model: Model, sets: LabelSets) -> dict[object, int]:
    labels = sets.labels.tolist()
    each = zip(labels, sets.rows_of_labels().tolist(), places(model.classes_.tolist(), labels), strict=True)
    return {label: count for label, count, place in each if count and place < 0}


def _notes(unknown: dict[object, int]) -> list[str]:
    if not unknown:
        return []
    names = ", ".join(map(repr, list(unknown)[:5])) + ", ..." * (len(unknown) > 5)
    return [f"the model does not know {len(unknown):,} of the labels ({names}); they are left out of the figures"]


@kernel
def measure_sets(scores, indptr, members, right, truly, predicted, hits, at, top, sums):  # type: ignore[no-untyped-def]
    """Count the rows of ``scores`` [m, K]; ``top`` : room for the greatest decision values' labels. How many rows have
    all their labels right.

    Average precision of a row with labels R: mean over r in R of |{q in R: s_q >= s_r}| / |{k: s_k >= s_r}|; coverage:
    |{k: s_k >= min over R of s_r}|.
    """
    n, exact = scores.shape[1], 0
    for i in range(scores.shape[0]):
        size = correct = said = known = 0
        for k in range(n):
            if scores[i, k] >= 0:
                predicted[k] += 1
                said += 1
            place = size  # the greatest first, of equal ones the first label
            while place > 0 and scores[i, k] > scores[i, np.int64(top[place - 1])]:
                place -= 1
            if place < top.size:
                size = min(size + 1, top.size)
                for p in range(size - 1, place, -1):
                    top[p] = top[p - 1]
                top[place] = k
        precision = 0.0
        furthest = 0
        for p in range(indptr[i], indptr[i + 1]):
            r = members[p]
            if r < 0:
                continue
            known += 1
            truly[r] += 1
            if scores[i, r] >= 0:
                right[r] += 1
                correct += 1
            all_above = own_above = 0
            for k in range(n):
                all_above += scores[i, k] >= scores[i, r]
            for q in range(indptr[i], indptr[i + 1]):
                own_above += members[q] >= 0 and scores[i, members[q]] >= scores[i, r]
            precision += own_above / all_above
            furthest = max(furthest, all_above)
            for place in range(size):
                if top[place] == r:
                    for a in range(at.size):
                        hits[a] += place < at[a]
        sums[0] += precision / known if known else 1.0
        sums[1] += furthest
        exact += correct == known and correct == said
    return exact
