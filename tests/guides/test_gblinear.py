"""What the guide from-xgboost says is the same there: XGBoost's linear booster comes to the same coefficients."""

import json

import numpy as np
import pytest

import bigclf

pytestmark = pytest.mark.slow  # XGBoost is in no extra: pip install xgboost-cpu
N, L = 2000, 0.01


@pytest.mark.parametrize(
    ("objective", "A", "ours"),
    [
        ("binary:logistic", 0.0, dict(algo="newton", loss="logistic", C=1 / (L * N))),
        (
            "binary:logistic",
            0.01,
            dict(algo="newglmnet", loss="logistic", penalty="elastic_net", l1_ratio=0.5, C=1 / (2 * L * N)),
        ),
        ("binary:logistic", None, dict(algo="newglmnet", loss="logistic", penalty="l1", C=1 / (L * N))),
        (
            "reg:squarederror",
            0.0,
            dict(algo="newton", loss="squared_epsilon_insensitive", epsilon=0, C=1 / (2 * L * N)),
        ),
    ],
)
def test_coefficients_agree(objective, A, ours):
    """``A`` None: an L1 penalty of strength ``L`` alone."""
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    draw = np.random.default_rng(0)
    X = draw.normal(size=(N, 10)).astype(np.float32)
    y = X @ draw.normal(size=10) + draw.normal(size=N)
    y = y if objective.startswith("reg") else (y > 0).astype(int)
    penalty = {"reg_lambda": L, "reg_alpha": A} if A is not None else {"reg_lambda": 0, "reg_alpha": L}
    theirs = {"booster": "gblinear", "objective": objective, "updater": "coord_descent", "eta": 1.0, **penalty}
    booster = xgboost.train(theirs, xgboost.DMatrix(X, label=y), num_boost_round=500)
    weights = np.ravel(json.loads(booster.get_dump(dump_format="json")[0])["weight"])
    model = bigclf.fit(X, y, bias="free", tol=1e-7, progress=False, **ours)
    np.testing.assert_allclose(np.ravel(model.coef_), weights, atol=1e-3)
