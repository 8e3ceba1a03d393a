"""The table of methods: a line each, families together."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from bigclf import large_pages, losses
from bigclf.methods import active_columns as columns
from bigclf.methods import (
    adagrad,
    diagonal_newton,
    lbfgs,
    mira,
    multiclass,
    multiclass_mira,
    multinomial,
    newglmnet,
    newton,
    p_norm_vector,
    pegasos,
    perceptron,
    primal_coordinate_descent,
    proximal_newton,
    romma,
    trust_region,
    winnow,
)
from bigclf.methods import approximate_maximal_margin as alma
from bigclf.methods import confidence_weighted as cw
from bigclf.methods import conjugate_gradients as cg
from bigclf.methods import dual_coordinate_descent as dcd
from bigclf.methods import dynamic_margin_perceptron as pdm
from bigclf.methods import follow_the_regularized_leader as ftrl
from bigclf.methods import maximum_entropy_blocks as memma_blocks
from bigclf.methods import maximum_entropy_margin as memma
from bigclf.methods import multiclass_confidence_weighted as mccw
from bigclf.methods import multiclass_conjugate_gradients as mcg
from bigclf.methods import multiclass_dual_coordinate_descent as mdcd
from bigclf.methods import multiclass_passive_aggressive as mpa
from bigclf.methods import multiclass_perceptron as mp
from bigclf.methods import narrow_adaptive_regularisation as narow
from bigclf.methods import p_norm_margin as pumma
from bigclf.methods import p_norm_perceptron as pnorm
from bigclf.methods import passive_aggressive as pa
from bigclf.methods import second_order_perceptron as sop
from bigclf.methods import stochastic_gradient as sgd
from bigclf.methods import support_class_confidence_weighted as sccw
from bigclf.methods import touched as touched_places
from bigclf.methods import voted_perceptron as voted
from bigclf.methods.method import SCHEDULES, Method, Param, TouchedForm, by_shares, choice, zeros
from bigclf.mixing import AVERAGED, FEATURES, MEAN, MEASURED, PRECISION, PULL, SHARED_PRECISION, SUM, totals, weighed


def averaged_zeros(n_features: int, dtype: Any, settings: dict[str, Any]) -> perceptron.Averaged:
    n = n_features + 1
    return perceptron.Averaged(large_pages.zeros(n, dtype), large_pages.zeros(n), np.zeros(1, np.int64))


def pulled_zeros(n_features: int, dtype: Any, settings: dict[str, Any]) -> pa.Pulled:
    ways = np.zeros((n_features + 1 if settings.get("mixing") == "pull" else 0, 2))
    return pa.Pulled(*averaged_zeros(n_features, dtype, settings), ways)


def passive_aggressive_params(settings: dict[str, Any]) -> pa.Params:
    copies = float(settings["groups"]) if settings.get("mixing") == "pull" else 1.0
    return pa.Params(settings.get("C", 1.0), settings["bias"], settings.get("epsilon", 0.0), copies)


C = Param("C", 1.0, 0.0, 1e30, "price of a unit of loss; larger fits the rows closer", open_low=True)


PRICE = Param("C", 1.0, 1e-100, 1e30, "price of a unit of loss; larger fits the rows closer")
L1_RATIO = Param(
    "l1_ratio", 0.5, 0.0, 1.0, "share of ||w||_1 in the penalty, the rest ||w||^2 / 2", penalties=("elastic_net",),
    open_low=True,
)  # fmt: skip
EPSILON = Param(
    "epsilon", 0.1, 0.0, 1e30, "half the width of the tube in which a prediction costs nothing", losses=losses.TUBES
)


SHARE_OF_SET = Param(
    "working_set", None, 0.0, 1.0, "share of the rows in the working set (none: what fits, for the hinge)"
)


@functools.cache
def _passive_aggressive(slack: int, averaged: bool, loss: int) -> Callable[..., Any]:
    return pa.passive_aggressive(slack, averaged, loss)


AVERAGES: dict[str, Any] = dict(
    shared=averaged_zeros,
    weights=perceptron.average,
    place=perceptron.begin_average,
    mixings=by_shares(AVERAGED),
    mixing="mean by rows, uniform or by mistakes; averages over all steps",
    judges_by_answer=False,
)


# By pull first: with a small C the steps of a copy are short, and a mean of K copies is K times slower than one
# learner (four groups, five epochs, C = 0.03, 2,000,000 rows: 86.8 % right, as in one group; by rows 85.7).
PULLS = AVERAGES | dict(
    shared=pulled_zeros,
    mixings={"pull": PULL, **by_shares(AVERAGED)},
    mixing="as one learner would have gone over the rows of all groups (pull); mean by rows, uniform or by "
    "mistakes; averages over all steps",
)


def _pa(
    name: str, title: str, formula: str, slack: int, params: tuple[Param, ...], row_weights: str, averaged: bool = False
) -> Method:
    own: dict[str, Any] = dict(shared=functools.partial(zeros, pa.Shared))
    if averaged:
        own = PULLS if slack == pa.SQUARED else AVERAGES
    return Method(
        name=name,
        title=title,
        paper="Crammer, Dekel, Keshet, Shalev-Shwartz, Singer, JMLR 2006",
        formula=formula,
        params=(*params, EPSILON),
        losses=("hinge", "epsilon_insensitive"),
        bind=passive_aggressive_params,
        update=functools.partial(_passive_aggressive, slack, averaged),
        row_weights=row_weights,
        weight_meaning="multiplies C" if params else "0 or 1 only",
        **own,
    )


PHI = Param(
    "phi", 1.0, 0.0, 1e6, "confidence that a row asks for: Phi^-1(eta), the normal quantile of eta", open_low=True
)
ETA = Param("eta", 0.9, 0.5, 1.0, "probability with which a row is to be right", open_low=True, open_high=True)
A = Param("a", 1.0, 1e-30, 1e30, "first variance of every weight")
R = Param("r", 1.0, 1e-100, 1e30, "price of divergence against loss; larger moves less")
B = Param("b", 1.0, 0.0, 1e30, "how far a row may narrow its direction: to the variance 1/b", open_low=True)
FUSED = {**by_shares(MEAN), "precision": PRECISION}
MEANS = "mean by rows, uniform or by mistakes; by precision, each mean weighed by how sure it is"


def _gaussian(name: str, title: str, paper: str, formula: str, kernel: Any, **more: Any) -> Method:
    """A method whose state is means and variances side by side."""
    standard: dict[str, Any] = dict(
        shared=cw.diagonal_state,
        bind=cw.bind,
        weights=cw.means,
        place=cw.begin_means,
        floored=cw.at_floor,
        mixings=FUSED,
        mixing=MEANS,
        row_weights="binary",
        weight_meaning="0 or 1 only",
    )
    kernel = functools.cache(kernel)
    return Method(name, title, paper, formula, update=lambda loss: kernel(), **(standard | more))


VARIANCE_PAPER = "Dredze, Crammer, Pereira, ICML 2008"
DEVIATION_PAPER = "Crammer, Dredze, Pereira, NIPS 2008"
AROW_PAPER = "Crammer, Kulesza, Dredze, NIPS 2009"
SCW_PAPER = "Wang, Zhao, Hoi, ICML 2012"
NAROW_PAPER = "Orabona and Crammer, NIPS 2010"
FULL: dict[str, Any] = dict(
    shared=cw.full_state,
    weights=lambda shared, params: shared.weights,
    place=lambda shared, weights, params: np.copyto(shared.weights, weights, casting="same_kind"),
    mixings={},
    mixing="none: it runs with one group",
)
PRICED: dict[str, Any] = dict(row_weights="any", weight_meaning="multiplies C")
DIVIDED: dict[str, Any] = dict(row_weights="any", weight_meaning="divides r")

RIVALS = choice(
    "constraints",
    mccw.CONSTRAINTS,
    "wrong classes that a row is learned against: the best-scoring; all in turn; all at once, the mean of the steps",
)
HOW_MANY = Param("k", None, 1, 2**31, 'of "all" and "parallel", how many of the best-scoring (none: all)', integer=True)
NATIVE: dict[str, Any] = dict(multiclass=("native",))
GAUSSIANS: dict[str, Any] = dict(shared=mccw.diagonal_state, bind=mccw.bind, **NATIVE)
SUPPORT: dict[str, Any] = dict(
    shared=sccw.diagonal_state,
    bind=sccw.bind,
    weights=lambda shared, params: shared.weights,
    place=lambda shared, weights, params: np.copyto(shared.weights, weights, casting="same_kind"),
    mixings={**by_shares(MEAN), "precision": SHARED_PRECISION},
    mixing=MEANS,
    **NATIVE,
)
MCCW_PAPER = "Crammer, Dredze, Kulesza, EMNLP 2009"
SCCW_PAPER = "Oiwa, Matsushima, Nakagawa: support-class confidence-weighted learning"
SCCW_FORMULA = "m_k < Q sqrt(2 v):  mu_y <- mu_y + A S x,  mu_k <- mu_k - a_k S x of the support classes;  "

AGAINST = choice(
    "against", ("max", "uniform"), "the best-scoring wrong class (max), or all that score no less than the row's, alike"
)
CONSTRAINTS = choice(
    "constraints", ("one", "all"), "the best-scoring wrong class alone, or every one at once, by support classes"
)
AVERAGES_OF_CLASSES = AVERAGES | {"shared": multiclass.averaged_zeros}
MEAN_OF_STEPS = ";  the answer is the mean of w over all steps"
TO_THE_CLASS = "w_y <- w_y + (sum of t_k) x, w_k <- w_k - t_k x"


@functools.cache
def _perceptron_kernel(averaged: bool) -> Callable[..., Any]:
    return perceptron.perceptron(averaged)


@functools.cache
def _perceptron_mc_kernel(averaged: bool) -> Callable[..., Any]:
    return mp.perceptron(averaged)


@functools.cache
def _pa_mc_kernel(averaged: bool) -> Callable[..., Any]:
    return mpa.passive_aggressive(averaged)


@functools.cache
def _touched_kernel(margin: bool) -> Callable[..., Any]:
    return touched_places.learner(margin)


def _touched(slack: int, margin: bool, needs: dict[str, Any]) -> TouchedForm:
    return TouchedForm(
        shared=touched_places.zeros,
        bind=functools.partial(touched_places.bind, slack),
        update=lambda loss: _touched_kernel(margin),
        mixings=by_shares(touched_places.MEAN),
        place=touched_places.place,
        needs=needs,
    )


def _perceptron_mc(averaged: bool) -> Method:
    own: dict[str, Any] = AVERAGES_OF_CLASSES if averaged else dict(shared=multiclass.zeros)
    return Method(
        name="averaged_perceptron_mc" if averaged else "perceptron_mc",
        title=("averaged " if averaged else "") + "perceptron of all classes",
        paper="Crammer and Singer, JMLR 2003" + ("; Collins, EMNLP 2002" if averaged else ""),
        formula="E = {k: w_k.x >= w_y.x} not empty:  w_y <- w_y + x, w_k <- w_k - t_k x on E, sum of t_k = 1"
        + (MEAN_OF_STEPS if averaged else ""),
        params=(AGAINST,),
        bind=mp.bind,
        update=lambda loss: _perceptron_mc_kernel(averaged),
        weight_meaning="multiplies the step",
        touched=None if averaged else _touched(0, False, {"against": "max"}),
        **NATIVE,
        **own,
    )


def _pa_mc(name: str, title: str, formula: str, slack: int, averaged: bool = False) -> Method:
    own: dict[str, Any] = AVERAGES_OF_CLASSES if averaged else dict(shared=multiclass.zeros)
    hard = slack == pa.HARD
    return Method(
        name=f"averaged_{name}" if averaged else name,
        title=("averaged " if averaged else "") + title,
        paper="Crammer et al., JMLR 2006; all constraints: Matsushima et al., SDM 2010",
        formula=f"{TO_THE_CLASS} of {name}{MEAN_OF_STEPS}" if averaged else f"{TO_THE_CLASS}:  {formula}",
        params=(CONSTRAINTS,) if hard else (C, CONSTRAINTS),
        losses=("hinge",),
        bind=functools.partial(mpa.bind, slack),
        update=lambda loss: _pa_mc_kernel(averaged),
        row_weights="binary" if hard else "any",
        weight_meaning="0 or 1 only" if hard else "multiplies C",
        touched=None if averaged else _touched(slack, True, {"constraints": "one"}),
        **NATIVE,
        **own,
    )


_PA_MC = (
    ("pa_mc", "passive-aggressive of all classes, hard", "the least with (w_y - w_k).x >= 1", pa.HARD),
    ("pa1_mc", "passive-aggressive I of all classes", "the least, plus C s, with (w_y - w_k).x >= 1 - s", pa.LINEAR),
    ("pa2_mc", "passive-aggressive II of all classes", "the least, plus C s^2, with (w_y - w_k).x >= 1 - s",
     pa.SQUARED),
)  # fmt: skip

_A = Param("a", 1.0, 0.0, 1e30, "what the matrix begins with; larger is nearer the perceptron", open_low=True)


@functools.cache
def _romma_kernel(aggressive: bool) -> Callable[..., Any]:
    return romma.romma(aggressive)


def _romma(name: str, title: str, when: str, aggressive: bool) -> Method:
    return Method(
        name=name,
        title=title,
        paper="Li and Long, MLJ 2002",
        formula=f"{when}:  w <- c w + d x, the shortest with w.w_t >= ||w_t||^2 and y w.x >= 1",
        shared=romma.begin,
        bind=lambda settings: romma.Params(settings["bias"]),
        update=lambda loss: _romma_kernel(aggressive),
        weights=romma.weights,
        place=romma.begin_with,
        finish=romma.finish,
        mixings=by_shares(MEASURED),
        row_weights="binary",
        weight_meaning="0 or 1 only",
    )


LAM = Param("lam", 1e-5, 0.0, 1e30, "price of the penalty beside the mean loss of a row; 1 / (C rows) for C")
ETA0 = Param(
    "eta0", None, 0.0, 1e30, "the first rate (none: lam^(-1/4), for rows of norm 1; others: over their squared norm)",
    open_low=True,
)  # fmt: skip


ADAPTIVE = (
    LAM,
    Param("eta", 0.1, 0.0, 1e30, "the rate", open_low=True),
    Param("delta", 1e-6, 0.0, 1e30, "what H is before the first gradient", open_low=True),
    EPSILON,
)


def _gradient(name: str, title: str, paper: str, formula: str, **options: Any) -> Method:
    """A gradient method, whose rows' weights multiply their losses."""
    return Method(
        name=name,
        title=title,
        paper=paper,
        formula=formula,
        weight_meaning="multiplies the loss",
        **{
            "losses": losses.GRADIENT,
            "penalties": ("l2",),
            "bias": ("feature", "none", "free"),
            "clocked": True,
            **options,
        },
    )


_GRADIENT = (
    _gradient(
        "sgd",
        "stochastic gradient descent",
        "Bottou, COMPSTAT 2010; l1: Langford, Li, Zhang, JMLR 2009",
        "w <- (1 - eta_t lam) w - r loss'(y w.x) y x,  eta_t = eta0 / (1 + lam eta0 t),  r = eta_t, at most the rate "
        "that takes the row's own loss to its least (squared losses, tubes);  "
        "l1: w <- truncate(w - r loss' y x, eta_t lam)",
        params=(LAM, ETA0, EPSILON),
        penalties=("l2", "l1"),
        shared=sgd.shared,
        bind=sgd.bind,
        update=functools.cache(sgd.sgd),
        weights=sgd.weights,
        finish=sgd.finish,
        mixings=by_shares(MEAN) | {"features": FEATURES},
        mixing="mean by rows, uniform, by mistakes or, feature by feature, by the rows that have it",
    ),
    _gradient(
        "asgd",
        "averaged stochastic gradient descent",
        "Xu, arXiv:1107.2490, 2011; Polyak and Juditsky, 1992",
        "w <- the step of sgd;  the answer is the mean of w over the steps after the first ones",
        params=(
            LAM,
            ETA0,
            Param("start", 0, 0, 1e15, "rows learned from before the average begins", integer=True),
            EPSILON,
        ),
        shared=sgd.averaged,
        bind=sgd.bind,
        update=functools.cache(sgd.asgd),
        weights=sgd.average,
        finish=sgd.finish_average,
        mixings=by_shares(AVERAGED),
        mixing="mean by rows, uniform or by mistakes; averages over all steps",
    ),
    _gradient(
        "pegasos",
        "Pegasos",
        "Shalev-Shwartz, Singer, Srebro, ICML 2007; with Cotter, Math. Program. 2011",
        "w <- (1 - 1/t) w - (1 / (lam t k)) sum over k rows of loss'(y w.x) y x;  w <- min(1, 1/(sqrt(lam) ||w||)) w",
        params=(
            Param(
                "lam",
                1e-5,
                0.0,
                1e30,
                "price of the penalty beside the mean loss of a row; the rate is 1/(lam t): with few rows times epochs "
                "take a larger one, about 50 over their number",
                open_low=True,
            ),
            Param("batch", 1, 1, 1e9, "rows in a mini-batch; one ends with its block", integer=True),
            choice("projection", ("on", "off"), "onto the ball of radius 1/sqrt(lam), where the optimum lies"),
            EPSILON,
        ),
        losses=("hinge", "logistic", "epsilon_insensitive"),
        bias=("feature", "none"),
        shared=pegasos.shared,
        bind=pegasos.bind,
        update=functools.cache(pegasos.pegasos),
        weights=pegasos.weights,
        finish=pegasos.finish,
        mixings=by_shares(MEASURED),
        in_pieces=False,
        place=None,
    ),
    _gradient(
        "adagrad",
        "AdaGrad, forward-backward splitting",
        "Duchi, Hazan, Singer, JMLR 2011; Duchi and Singer, JMLR 2009",
        "G <- G + g^2;  H = delta + sqrt(G);  w <- (w - eta g / H) / (1 + eta lam / H),  g = loss'(y w.x) y x",
        params=ADAPTIVE,
        penalties=("l2", "l1"),
        shared=adagrad.shared,
        bind=adagrad.bind,
        update=functools.cache(adagrad.adagrad),
        weights=adagrad.weights,
        finish=adagrad.finish,
        mixings=by_shares(MEAN) | {"features": FEATURES, "adagrad": weighed("squares")},
        mixing="mean by rows, uniform, by mistakes or, feature by feature, by the rows that have it or by the squared "
        "gradients",
    ),
    _gradient(
        "adagrad_rda",
        "AdaGrad, dual averaging",
        "Duchi, Hazan, Singer, JMLR 2011; Xiao, JMLR 2010",
        "S <- S + g;  G <- G + g^2;  H = delta + sqrt(G);  w = -eta S / (H + eta lam t),  g = loss'(y w.x) y x",
        params=ADAPTIVE,
        penalties=("l2", "l1"),
        shared=adagrad.sums,
        bind=adagrad.bind,
        update=functools.cache(adagrad.adagrad_rda),
        weights=adagrad.made,
        place=None,
    ),
    _gradient(
        "sgd_newton",
        "diagonal Newton steps (second-order stochastic gradient descent)",
        "Becker and LeCun, 1989; Bordes, Bottou, Gallinari, JMLR 2009",
        "D <- D + lam;  w <- (1 - lam / D) w;  w <- w - (loss'(m) / (1 + loss''(m) x'D^-1 x)) D^-1 y x;  "
        "D_j <- D_j + loss''(m) x_j^2",
        params=(LAM, Param("eta0", 1.0, 0.0, 1e30, "1 over the second derivative to begin with", open_low=True)),
        losses=("logistic", "squared_hinge", "squared"),
        shared=diagonal_newton.shared,
        bind=diagonal_newton.bind,
        update=functools.cache(diagonal_newton.newton),
        weights=diagonal_newton.weights,
        place=diagonal_newton.place,
    ),
    _gradient(
        "ftrl",
        "FTRL-proximal",
        "McMahan et al., KDD 2013",
        "n <- n + g^2;  z <- z + g - sigma w;  w = -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + l2), 0 at |z| <= l1",
        params=(
            Param("alpha", 0.1, 0.0, 1e30, "the rate", open_low=True),
            Param("beta", 1.0, 0.0, 1e30, "what is added to sqrt(n)", open_low=True),
            Param("l1", 0.0, 0.0, 1e30, "price of ||w||_1 beside the sum of all losses"),
            Param("l2", 1.0, 0.0, 1e30, "price of ||w||^2 / 2 beside the sum of all losses"),
            EPSILON,
        ),
        losses=("logistic", "hinge", "squared_hinge", "squared", "epsilon_insensitive"),
        clocked=False,
        shared=ftrl.shared,
        bind=ftrl.bind,
        update=functools.cache(ftrl.ftrl),
        weights=ftrl.weights,
        place=ftrl.place,
    ),
)

SIGNS = choice("signs", ("both", "nonnegative"), "weights of either sign (each feature and its mirror image), or >= 0")
DELTA = Param("delta", 0.1, 0.0, 1.0, "part of the largest margin that may lack", open_low=True, open_high=True)
MEMMA: dict[str, Any] = dict(
    paper="Ohta, Hatano, Takeda: online learning by the principle of maximum entropy",
    params=(
        Param("eps", 0.1, 1e-30, 1e30, "of the margin that may lack, in units of the largest value (at least 1)"),
        Param("c", 4.0, 2.0, 1e6, "of eta = eps / (c ln(features)); the proof needs more than 3", open_low=True),
        SIGNS,
    ),
    bind=memma.bind,
    told=memma.told,
    settles=True,
    place=None,
    mixings={},
    mixing="one group only",
    row_weights="binary",
    weight_meaning="0 or 1 only",
    bias=("feature", "free", "none"),
    separates=False,  # by a margin of less than eps it may not
)
BUFFER = Param("buffer", 2000, 2, 10_000_000, "rows kept of each side of a read, and between reads", integer=True)
_INFINITY_NORM = (
    Method(
        name="winnow",
        title="Winnow, normalised or balanced",
        paper="Littlestone, MLJ 1988; Grove, Littlestone, Schuurmans, MLJ 2001",
        formula="y w.x <= 0:  theta <- theta + eta y x / max |x|;  w = exp(theta) / sum (sinh(theta) / sum cosh)",
        params=(Param("eta", 0.1, 0.0, 1e30, "the rate; margin / max |x| is best", open_low=True), SIGNS),
        shared=winnow.begin,
        bind=winnow.bind,
        update=lambda loss: winnow.winnow,
        weights=winnow.weights,
        told=winnow.told,
        place=None,
        mixings=by_shares(winnow.EXPONENTS),
        mixing="mean of theta by rows, uniform or by mistakes",
        weight_meaning="multiplies the step",
    ),
    Method(
        name="winnow2",
        title="Winnow2: weights >= 0 against a threshold",
        paper="Littlestone, MLJ 1988",
        formula="w.x on the wrong side of the threshold:  w_j <- w_j alpha^(y x_j / max |x|)",
        params=(
            Param("alpha", 2.0, 1.0, 1e30, "the factor", open_low=True),
            Param("threshold", None, 1e-300, 1e300, "what w.x has to exceed (none: the number of features)"),
        ),
        shared=winnow.begin,
        bind=winnow.bind_threshold,
        update=lambda loss: winnow.winnow2,
        weights=winnow.threshold_weights,
        told=winnow.told,
        place=None,
        mixings=by_shares(winnow.EXPONENTS),
        mixing="mean of ln w by rows, uniform or by mistakes",
        weight_meaning="multiplies the step",
        threshold=True,
        separates=False,  # by weights of one sign
    ),
    Method(
        name="alma",
        title="ALMA, approximate maximal margin in the p-norm",
        paper="Gentile, JMLR 2001",
        formula="y w.x^ <= (1-alpha) B sqrt((p-1)/k):  theta <- theta + rate y x^ / sqrt((p-1) k), ||theta||_p <= 1",
        params=(
            Param("p", None, 2.0, 1e6, "the norm (none: 2 ln(features))"),
            Param("alpha", 0.5, 0.0, 1.0, "part of the margin that may lack", open_low=True),
            Param("B", None, 1e-30, 1e30, "of the margin asked for (none: sqrt(8) / alpha)"),
            Param("rate", 2**0.5, 1e-30, 1e30, "C of the paper"),
        ),
        shared=alma.begin,
        bind=alma.bind,
        update=lambda loss: alma.alma,
        weights=alma.weights,
        finish=alma.finish,
        place=None,
        settles=True,
        mixings=by_shares(p_norm_vector.MEAN_OF_VECTORS),
        mixing="mean of theta by rows, uniform or by mistakes",
        row_weights="binary",
        weight_meaning="0 or 1 only",
    ),
    Method(
        name="pumma",
        title="PUMMA, maximum margin in the p-norm, or nearly in the infinity-norm",
        paper="Ishibashi, Hatano, Takeda, COLT 2008",
        formula="y (w.x + b) < 1 - delta:  u <- least p-norm between u and z = (x+ - x-) / 2;  w = g(u) / ||u||_p^2",
        params=(
            Param("p", None, 2.0, 1e6, "the norm (none: c ln(features), with which delta is of the infinity-norm)"),
            DELTA,
        ),
        shared=pumma.begin,
        bind=pumma.bind,
        update=lambda loss: pumma.pumma,
        weights=pumma.weights,
        told=pumma.told,
        settles=True,
        place=None,
        mixings={},
        mixing="one group only",
        row_weights="binary",
        weight_meaning="0 or 1 only",
        bias=("feature", "free", "none"),
    ),
    Method(
        name="memma",
        title="MEMMA, maximum margin in the infinity-norm",
        formula="y (p.x + b) < F - eps:  v <- (1-s) v + s (x+ - x-) / 2 of least F;  F = eta ln sum exp(v / eta), "
        "p = softmax(v / eta)",
        shared=memma.begin,
        update=lambda loss: memma.memma,
        weights=memma.weights,
        **MEMMA,
    ),
    Method(
        name="memma_blocks",
        title="MEMMA from the worst rows of each read: the infinity-norm margin out of core, certified",
        formula="v <- argmin F over the rows of least y p.x in reads;  p = softmax(v / eta);  margin <= F",
        shared=memma_blocks.begin,
        update=lambda loss: memma_blocks.update,
        weights=memma_blocks.weights,
        absorb=lambda loss: memma_blocks.absorb,
        forget=memma_blocks.forget,
        **MEMMA
        | dict(
            told=memma_blocks.told,
            params=(*MEMMA["params"], BUFFER),
            mixings={"top": memma_blocks.TOP},
            mixing="the worst rows of all groups",
            epochs=1000,
            tol=0.0,
        ),
    ),
    Method(
        name="memma_p",
        title="MEMMA by the recursion of its paper: every step goes through all features",
        formula="y (p.x + b) < gamma - eps + eta H:  p <- p^beta exp((1-beta) (x+ - x-) / (2 eta)) / Z",
        shared=memma.begin_logarithms,
        update=lambda loss: memma.memma_p,
        weights=memma.logarithm_weights,
        **MEMMA,
    ),
)

START = Param("start", 5, 0, 1000, "passes of dual coordinate descent at first", integer=True)
SAMPLE = Param(
    "sample",
    None,
    0.0,
    1.0,
    "share of the rows that products with the Hessian are of (none: all of them, out of core a fifth or what fits)",
    open_low=True,
)
SCHEDULE = choice(
    "schedule",
    SCHEDULES,
    "out of core: auto (a working set, solved after each read), fixed blocks (Yu et al. 2010), selective (and a cache "
    "of informative rows: Chang and Roth 2011), cached (dual cached loops: Matsushima et al. 2012)",
)
INNER_ROUNDS = Param(
    "inner_rounds",
    None,
    0,
    10_000,
    "most rounds over the rows that matter after a read (none: 60, of several groups 3); fixed, selective: rounds over "
    "each block (none: 10); cached: visits to cached rows for each row read (none: 3)",
    integer=True,
)
# What methods share that take their steps from sums over all rows.
BY_SUMS: dict[str, Any] = dict(
    losses=("logistic", "squared_hinge", "squared_epsilon_insensitive"),
    penalties=("l2",),
    bias=("feature", "free", "none"),
    rows=newton.Rows,
    bind=newton.bind,
    update=functools.cache(newton.sums),
    scaled=functools.cache(dcd.scaled),
    finish=newton.finish,
    sums=newton.SUMS,
    forget=newton.forget,
    reading=newton.reading,
    place=newton.place,
    mixings={"sum": totals(*newton.SUMS)},
    mixing="sums over all rows: the answer does not depend on the groups",
    weight_meaning="multiplies C",
    epochs=10_000,
    tol=1e-3,
)
# ... and that solve the problem on columns that they collect.
BY_COLUMNS: dict[str, Any] = dict(
    params=(C, L1_RATIO),
    losses=("logistic", "squared_hinge"),
    penalties=("l1", "elastic_net"),
    bias=("feature", "free", "none"),
    shared=newglmnet.begin,
    bind=newglmnet.bind,
    update=lambda loss, penalty: newglmnet.sums(loss),
    collect=newglmnet.collect,
    gather=newglmnet.gather,
    entry_bytes=columns.COLUMN_ENTRY,
    row_bytes=columns.COLUMN_ROW,
    column_bytes=columns.COLUMN,
    piece_bytes=columns.PIECE_ENTRY,
    follow=newglmnet.follow,
    place=newglmnet.place,
    mixings={"sum": totals(*newglmnet.SUMS)},
    mixing="sums over all rows, and columns of all: the answer does not depend on the groups",
    weight_meaning="multiplies C",
    epochs=10_000,
    tol=1e-3,
)

_METHODS = (
    Method(
        name="dcd",
        title="dual coordinate descent (SVM, logistic, support vector regression), certified, in memory or out of core",
        paper="Hsieh et al., ICML 2008; Yu et al., KDD 2010; Chang and Roth, KDD 2011; Matsushima et al., KDD 2012; "
        "Yu, Huang, Lin, MLJ 2011; Ho and Lin, JMLR 2012",
        formula="a_i <- clip(a_i - (y_i w.x_i - 1 + D a_i) / (||x_i||^2 + D), 0, U);  w <- w + (change) y_i x_i",
        params=(
            C,
            EPSILON,
            SHARE_OF_SET,
            SCHEDULE,
            INNER_ROUNDS,
        ),
        losses=("hinge", "squared_hinge", "logistic", *losses.TUBES),
        penalties=("l2",),
        shared=functools.partial(zeros, dcd.Shared),
        rows=dcd.Rows,
        bind=lambda settings: dcd.Params(settings["C"], settings["bias"], settings.get("epsilon", 0.0), 1.0),
        update=functools.cache(dcd.descend),
        certify=functools.cache(dcd.measure),
        scaled=functools.cache(dcd.scaled),
        along=functools.cache(dcd.along),
        within=functools.cache(dcd.within),
        value=functools.cache(dcd.value),
        climb=cg.climb,
        mixings={"line_search": SUM, "safe": SUM},
        mixing="summed steps with an exact line search on the dual, or the safe scaling of CoCoA+",
        weight_meaning="multiplies C",
        epochs=10_000,
        tol=1e-3,
        working_set=True,
    ),
    Method(
        name="dcd_mc",
        title="dual coordinate descent of all classes (Crammer-Singer SVM), certified, in memory or out of core",
        paper="Crammer and Singer, JMLR 2001; Keerthi et al., KDD 2008; Yu et al., KDD 2010; Chang and Roth, KDD 2011",
        formula="a_i <- argmin ||x_i||^2 |a_i|^2 / 2 + B.a_i, a_im <= C [m = y_i], sum_m a_im = 0;  w_m = sum a_im x_i",
        params=(
            C,
            SHARE_OF_SET,
            SCHEDULE,
            INNER_ROUNDS,
        ),
        losses=("hinge",),
        penalties=("l2",),
        shared=multiclass.zeros,
        rows=mdcd.Rows,
        bind=mdcd.bind,
        update=lambda loss: mdcd.descend,
        certify=lambda loss: mdcd.measure,
        scaled=lambda loss: mdcd.scaled,
        along=lambda loss: mdcd.along,
        within=lambda loss: mdcd.within,
        value=lambda loss: mdcd.value,
        climb=lambda loss: mcg.climb,
        mixings={"line_search": SUM, "safe": SUM},
        mixing="summed steps with an exact line search on the dual, or the safe scaling of CoCoA+",
        weight_meaning="multiplies C",
        epochs=10_000,
        tol=1e-3,
        working_set=True,
        **NATIVE,
    ),
    Method(
        name="newton",
        title="Newton's method with preconditioned conjugate gradients and line search, certified",
        paper="Lin, Weng, Keerthi, JMLR 2008; Hsia, Zhu, Lin, ACML 2017; Galli and Lin 2021",
        formula="(I + C X' D X) d = -g by conjugate gradients;  w <- w + t d",
        params=(C, EPSILON, START, SAMPLE),
        shared=newton.begin,
        absorb=functools.cache(newton.absorb),
        **BY_SUMS,
    ),
    Method(
        name="tron",
        title="trust region Newton with preconditioned conjugate gradients, certified",
        paper="Lin and More 1999; Nocedal and Yuan 1998; Lin, Weng, Keerthi, JMLR 2008; Hsia, Chiang, Lin, ACML 2018",
        formula="min_s g.s + s.H s / 2, ||s|| <= Delta;  w <- w + t s, t < 1 where a whole step goes too far",
        params=(C, EPSILON, START, SAMPLE),
        shared=trust_region.begin,
        absorb=functools.cache(trust_region.absorb),
        **BY_SUMS,
    ),
    Method(
        name="lbfgs",
        title="L-BFGS from a pass of online learning, certified",
        paper="Liu and Nocedal 1989; Agarwal, Chapelle, Dudik, Langford, JMLR 2014",
        formula="w <- w - t H g,  H from the last ten pairs of steps and gradients",
        params=(C, EPSILON, dataclasses.replace(START, default=1)),
        shared=lbfgs.begin,
        absorb=functools.cache(lbfgs.absorb),
        **BY_SUMS | dict(update=functools.cache(newton.sums), reading=lbfgs.reading),
    ),
    Method(
        name="newton_mc",
        title="multinomial logistic regression by Newton's method, certified",
        paper="Lin, Weng, Keerthi, JMLR 2008; Hsia, Zhu, Lin, ACML 2017; Boehning 1992",
        formula="H D = -G by conjugate gradients;  W <- W + t D",
        params=(C, SAMPLE),
        shared=multinomial.begin,
        absorb=functools.cache(newton.absorb),
        **BY_SUMS
        | dict(
            losses=("logistic",),
            bias=("feature", "none"),
            rows=None,
            scaled=None,
            bind=multinomial.bind,
            update=functools.cache(multinomial.sums),
            finish=None,
            multiclass=("native",),
        ),
    ),
    Method(
        name="newglmnet",
        title="newGLMNET: Newton's method with coordinate descent on active columns, exact zeros, certified",
        paper="Yuan, Ho, Lin, JMLR 2012; strong rules: Tibshirani et al., JRSS B 2012",
        formula="min_d g.d + d'H d / 2 + ||w + d||_1, one coordinate after another;  w <- w + t d",
        absorb=newglmnet.absorb(proximal_newton.newton_round),
        **BY_COLUMNS,
    ),
    Method(
        name="cdn",
        title="coordinate descent in the primal on active columns, exact zeros, certified",
        paper="Chang, Hsieh, Lin, JMLR 2008; Yuan, Chang, Hsieh, Lin, JMLR 2010",
        formula="w_j <- w_j + t argmin_d l1 |w_j + d| + g_j d + H_jj d^2 / 2, one coordinate after another",
        absorb=newglmnet.absorb(primal_coordinate_descent.cdn_round),
        **BY_COLUMNS,
    ),
    Method(
        name="perceptron",
        title="perceptron",
        paper="Rosenblatt 1958; bound: Block, Novikoff 1962",
        formula="y w.x <= 0:  w <- w + y x",
        shared=functools.partial(zeros, perceptron.Shared),
        bind=lambda settings: perceptron.Params(settings["bias"]),
        update=lambda loss: _perceptron_kernel(False),
        weight_meaning="multiplies the step",
    ),
    Method(
        name="averaged_perceptron",
        title="averaged perceptron",
        paper="Collins, EMNLP 2002; Freund and Schapire 1999",
        formula="y w.x <= 0:  w <- w + y x;  the answer is the mean of w over all steps",
        bind=lambda settings: perceptron.Params(settings["bias"]),
        update=lambda loss: _perceptron_kernel(True),
        weight_meaning="multiplies the step",
        **AVERAGES,
    ),
    Method(
        name="voted_perceptron",
        title="voted perceptron: not one vector but the majority of all",
        paper="Freund and Schapire, MLJ 1999",
        formula="y w.x <= 0:  w <- w + y x;  the answer is sign(sum_k c_k sign(w_k.x)), c_k = rows w_k was kept for",
        params=(
            Param("max_vectors", 10_000, 1, 2**31, "mistakes that are kept, and learned from", integer=True),
            Param("max_entries", 1_000_000, 1, 2**31, "entries of their rows", integer=True),
        ),
        shared=voted.begin,
        bind=lambda settings: voted.Params(settings["bias"]),
        update=lambda loss: voted.voted_perceptron,
        place=None,
        mixings={},
        mixing="one group only",
        weight_meaning="multiplies the step",
        judges_by_answer=False,
        linear=False,
    ),
    Method(
        name="sop",
        title="second-order perceptron, diagonal",
        paper="Cesa-Bianchi, Conconi, Gentile, SIAM J. Comput. 2005",
        formula="y v.(A + diag(x_j^2))^-1 x <= 0:  v <- v + y x, A <- A + diag(x_j^2);  w = A^-1 v",
        params=(_A,),
        shared=sop.begin_diagonal,
        bind=lambda settings: sop.Params(settings["a"], settings["bias"]),
        update=lambda loss: sop.diagonal,
        weights=sop.diagonal_weights,
        place=sop.begin_with,
        mixings={"precision": MEAN, **by_shares(MEAN)},  # v and A are precision times mean, and precision
        mixing="mean of v and of A: of all copies alike (precision, uniform), by rows or by mistakes",
        weight_meaning="multiplies the step",
        judges_by_answer=False,
    ),
    Method(
        name="sop_full",
        title="second-order perceptron, full matrix: few features",
        paper="Cesa-Bianchi, Conconi, Gentile, SIAM J. Comput. 2005",
        formula="y w.x <= 0:  w <- w + (y - w.x) / (1+q) K x, K <- K - K x x'K / (1+q);  q = x'K x, K = A^-1",
        params=(Param("a", 1.0, 1e-9, 1e30, "what the matrix begins with; larger is nearer the perceptron"),),
        shared=sop.begin_full,
        bind=lambda settings: sop.Params(settings["a"], settings["bias"]),
        update=lambda loss: sop.full,
        mixings={},
        mixing="one group only",
        weight_meaning="multiplies the step",
    ),
    Method(
        name="pnorm_perceptron",
        title="p-norm perceptron",
        paper="Grove, Littlestone, Schuurmans, MLJ 2001; Gentile, MLJ 2003",
        formula="y w.x <= 0:  theta <- theta + y x;  w_j = sign(theta_j) |theta_j|^(p-1) / ||theta||_p^(p-2)",
        params=(Param("p", 4.0, 2.0, 1e6, "the norm: 2 is the perceptron, 2 ln(features) is near Winnow"),),
        shared=functools.partial(zeros, pnorm.Shared),
        bind=lambda settings: pnorm.Params(settings["p"], settings["bias"]),
        update=lambda loss: pnorm.p_norm_perceptron,
        weights=pnorm.weights,
        place=pnorm.begin_with,
        mixing="mean of theta by rows, uniform or by mistakes",
        weight_meaning="multiplies the step",
    ),
    Method(
        name="mira",
        title="MIRA (as published: no margin, steps of one row at most)",
        paper="Crammer and Singer, JMLR 2003",
        formula="y w.x <= 0:  w <- w + min(1, -y w.x / ||x||^2) y x",
        shared=lambda n_features, dtype, settings: mira.Shared(np.zeros(n_features + 1, dtype), np.zeros(1)),
        bind=lambda settings: mira.Params(settings["bias"]),
        update=lambda loss: mira.mira,
        place=mira.begin_with,
        row_weights="binary",
        weight_meaning="0 or 1 only",
        separates=False,
    ),
    _romma("romma", "ROMMA, relaxed online maximum margin", "y w.x <= 0", False),
    _romma("aggressive_romma", "aggressive ROMMA", "y w.x < 1", True),
    Method(
        name="pdm",
        title="perceptron with dynamic margin, in the place of the Margitron",
        paper="Panagiotakopoulos and Tsampouka, arXiv 1105.6041, 2011",
        formula="y w.x <= (1-eps) ||w||^2 / t:  w <- w + y x;  t counts the updates",
        params=(Param("eps", 0.1, 0.0, 1.0, "part of the largest margin that the answer may lack", open_low=True),),
        shared=lambda n_features, dtype, settings: pdm.Shared(
            np.zeros(n_features + 1, dtype), np.zeros(1), np.zeros(1)
        ),
        bind=lambda settings: pdm.Params(settings["eps"], settings["bias"]),
        update=lambda loss: pdm.dynamic_margin_perceptron,
        place=pdm.begin_with,
        finish=pdm.finish,
        settles=True,
        mixings=by_shares(MEASURED),
        weight_meaning="multiplies the step",
    ),
    _pa("pa", "passive-aggressive, hard", "w <- w + (l / ||x||^2) y x", pa.HARD, (), "binary"),
    _pa("pa1", "passive-aggressive I", "w <- w + min(C, l / ||x||^2) y x", pa.LINEAR, (C,), "any"),
    _pa("pa2", "passive-aggressive II", "w <- w + (l / (||x||^2 + 1/(2C))) y x", pa.SQUARED, (C,), "any"),
    _pa(
        "averaged_pa",
        "averaged passive-aggressive, hard",
        "w <- w + (l / ||x||^2) y x;  the answer is the mean of w over all steps",
        pa.HARD,
        (),
        "binary",
        averaged=True,
    ),
    _pa(
        "averaged_pa1",
        "averaged passive-aggressive I",
        "w <- w + min(C, l / ||x||^2) y x;  the answer is the mean of w over all steps",
        pa.LINEAR,
        (C,),
        "any",
        averaged=True,
    ),
    _pa(
        "averaged_pa2",
        "averaged passive-aggressive II",
        "w <- w + (l / (||x||^2 + 1/(2C))) y x;  the answer is the mean of w over all steps",
        pa.SQUARED,
        (C,),
        "any",
        averaged=True,
    ),
    _gaussian(
        "cw_var",
        "confidence-weighted, variance form, diagonal by dropping",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  1/s <- 1/s + 2 g phi x^2",
        lambda: cw.diagonal(cw.VARIANCE),
        params=(PHI, A),
    ),
    _gaussian(
        "cw_var_exact",
        "confidence-weighted, variance form, exact diagonal",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  1/s <- 1/s + 2 g phi x^2;  g the root of m + g v = phi v'",
        lambda: cw.diagonal(cw.VARIANCE, exact=True),
        params=(PHI, A),
    ),
    _gaussian(
        "cw_var_full",
        "confidence-weighted, variance form, full covariance",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  S <- S - (2 g phi / (1 + 2 g phi v)) S x x' S",
        lambda: cw.full(cw.VARIANCE),
        params=(PHI, A),
        **FULL,
    ),
    _gaussian(
        "cw",
        "confidence-weighted, standard-deviation form, diagonal by dropping",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + (a phi / sqrt(u)) x^2",
        lambda: cw.diagonal(cw.DEVIATION),
        params=(ETA, A),
    ),
    _gaussian(
        "cw_exact",
        "confidence-weighted, standard-deviation form, exact diagonal",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + c x^2;  a = c sqrt(v') / phi,  m + a v = phi sqrt(v')",
        lambda: cw.diagonal(cw.DEVIATION, exact=True),
        params=(ETA, A),
    ),
    _gaussian(
        "cw_full",
        "confidence-weighted, standard-deviation form, full covariance",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  S <- S - b S x x' S,  b = a phi / (sqrt(u) + v a phi)",
        lambda: cw.full(cw.DEVIATION),
        params=(ETA, A),
        **FULL,
    ),
    _gaussian(
        "scw1",
        "soft confidence-weighted I, diagonal by dropping",
        SCW_PAPER,
        "m < phi sqrt(v):  mu <- mu + min(C, a) y S x;  1/s <- 1/s + (min(C, a) phi / sqrt(u)) x^2,  a of cw",
        lambda: cw.diagonal(cw.SOFT),
        params=(PRICE, ETA),
        **PRICED,
    ),
    _gaussian(
        "scw2",
        "soft confidence-weighted II, diagonal by dropping",
        SCW_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + (a phi / sqrt(u)) x^2,  m + a (v + 1/(2C)) = phi sqrt(u)",
        lambda: cw.diagonal(cw.SQUARED_SOFT),
        params=(PRICE, ETA),
        **PRICED,
    ),
    _gaussian(
        "arow",
        "adaptive regularisation of weights, diagonal by dropping in the precision",
        AROW_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  1/s <- 1/s + x^2 / r",
        lambda: cw.diagonal(cw.ADAPTIVE),
        params=(R,),
        **DIVIDED,
    ),
    _gaussian(
        "arow_var",
        "adaptive regularisation of weights, diagonal by dropping in the covariance",
        AROW_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  s <- s - s^2 x^2 / (v + r)",
        lambda: cw.diagonal(cw.ADAPTIVE, cw.OFF_COVARIANCE),
        params=(R,),
        **DIVIDED,
    ),
    _gaussian(
        "arow_full",
        "adaptive regularisation of weights, full covariance",
        AROW_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  S <- S - S x x' S / (v + r)",
        lambda: cw.full(cw.ADAPTIVE),
        bind=functools.partial(cw.bind, least=cw.LEAST_FULL),
        params=(R,),
        **DIVIDED | FULL,
    ),
    _gaussian(
        "narow",
        "narrow adaptive regularisation of weights, diagonal",
        NAROW_PAPER,
        "y f < 1:  t <- t + y x;  k <- k - k^2 x^2 / (r + v);  w <- k t;  1/r = max(0, b - 1/v),  f = w.x r / (v + r)",
        lambda: narow.diagonal,
        bind=narow.bind,
        params=(B,),
        **DIVIDED,
    ),
    _gaussian(
        "narow_full",
        "narrow adaptive regularisation of weights, full covariance",
        NAROW_PAPER,
        "y f < 1:  t <- t + y x;  K <- K - K x x' K / (r + v);  w <- K t;  1/r = max(0, b - 1/v),  f = w.x r / (v + r)",
        lambda: narow.full,
        bind=functools.partial(narow.bind, least=cw.LEAST_FULL),
        params=(B,),
        **DIVIDED | FULL,
    ),
    _gaussian(
        "nherd",
        "normal herd, diagonal by dropping",
        "Crammer and Lee, NIPS 2010",
        "m < 1:  mu <- mu + ((1 - m) / (v + 1/C)) y S x;  1/s <- 1/s + (2 C + C^2 v) x^2",
        lambda: cw.diagonal(cw.HERDING),
        params=(C,),
        **PRICED,
    ),
    _perceptron_mc(False),
    _perceptron_mc(True),
    *(_pa_mc(*told, averaged) for averaged in (False, True) for told in _PA_MC),
    Method(
        name="mira_mc",
        title="MIRA of all classes (as published: no margin, steps of one row at most)",
        paper="Crammer and Singer, JMLR 2003",
        formula="w_k.x >= w_y.x for a k:  w_k <- w_k + t_k x of least sum ||w_k||^2, t_y <= 1, t_k <= 0, sum t_k = 0",
        shared=multiclass_mira.begin,
        bind=multiclass_mira.bind,
        update=lambda loss: multiclass_mira.mira,
        place=mira.begin_with,
        row_weights="binary",
        weight_meaning="0 or 1 only",
        separates=False,
        **NATIVE,
    ),
    _gaussian(
        "cw_mc",
        "multi-class confidence-weighted, standard-deviation form, diagonal by dropping",
        MCCW_PAPER,
        "m_k < phi sqrt(v_k):  mu_y <- mu_y + a S_y x;  mu_k <- mu_k - a S_k x;  1/s <- 1/s + (a phi / sqrt(u)) x^2",
        lambda: mccw.diagonal(cw.DEVIATION),
        params=(ETA, A, RIVALS, HOW_MANY),
        **GAUSSIANS,
    ),
    _gaussian(
        "cw_var_mc",
        "multi-class confidence-weighted, variance form, diagonal by dropping",
        MCCW_PAPER,
        "m_k < phi v_k:  mu_y <- mu_y + g S_y x,  mu_k <- mu_k - g S_k x;  1/s <- 1/s + 2 g phi x^2",
        lambda: mccw.diagonal(cw.VARIANCE),
        params=(PHI, A, RIVALS, HOW_MANY),
        **GAUSSIANS,
    ),
    _gaussian(
        "arow_mc",
        "multi-class adaptive regularisation of weights, diagonal by dropping in the precision",
        "Crammer, Kulesza, Dredze, Machine Learning 2013",
        "m_k < 1:  mu_y <- mu_y + b S_y x;  mu_k <- mu_k - b S_k x;  1/s <- 1/s + x^2 / r;  b = (1 - m_k) / (v_k + r)",
        lambda: mccw.diagonal(cw.ADAPTIVE),
        params=(R,),
        **DIVIDED | GAUSSIANS,
    ),
    _gaussian(
        "sccw",
        "support-class confidence-weighted, diagonal by dropping",
        SCCW_PAPER,
        SCCW_FORMULA + "1/s <- 1/s + c x^2",
        sccw.diagonal,
        params=(ETA, A),
        **SUPPORT,
    ),
    _gaussian(
        "sccw_exact",
        "support-class confidence-weighted, exact diagonal",
        SCCW_PAPER,
        SCCW_FORMULA + "1/s <- 1/s + c x^2,  c the root of the sum of a_k = A",
        lambda: sccw.diagonal(exact=True),
        params=(ETA, A),
        **SUPPORT,
    ),
    _gaussian(
        "sccw_full",
        "support-class confidence-weighted, full covariance",
        SCCW_PAPER,
        SCCW_FORMULA + "S <- S - (c / (1 + c v)) S x x' S",
        lambda: sccw.full,
        params=(ETA, A),
        **SUPPORT | FULL | dict(shared=sccw.full_state),
    ),
    *_GRADIENT,
    *_INFINITY_NORM,
)

_NAMED = {method.name: method for method in _METHODS}


def _with_native(method: Method) -> Method:
    """Told of the method that learns all classes at once in its place."""
    twin = f"{method.name}_mc"
    if twin not in _NAMED:
        return method
    return dataclasses.replace(method, native=twin, multiclass=(*method.multiclass, "native"))


METHODS: dict[str, Method] = {name: _with_native(method) for name, method in _NAMED.items()}


def named(name: str) -> Method:
    """The method of the table."""
    return METHODS[name]


copyreg.pickle(Method, lambda method: (named, (method.name,)))  # travels by its name: kernels cannot be sent
