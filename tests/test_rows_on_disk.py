"""Dual variables on disk: the same bits as in memory, whatever is at hand when they change."""

import dataclasses

import numpy as np
import pytest
from making import random_rows, shards_of

import bigclf
from bigclf.methods import METHODS
from bigclf.training import fit, fitting

D, N = 60, 4000
LOSSES = METHODS["dcd"].losses
pytestmark = pytest.mark.filterwarnings("ignore:not converged")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    x, y = random_rows(N, D, 0.25, noise=1.0)
    return shards_of(tmp_path_factory.mktemp("rows") / "shards", x, y, chunk_nnz=3000, shard_nnz=40_000)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    x, y = random_rows(N, D, 0.25, noise=1.0, real=True)
    return shards_of(tmp_path_factory.mktemp("numbers") / "shards", x, y, real=True, chunk_nnz=3000)


def on_disk(*given, **named):
    """The plan that is made, but for where the dual variables are."""
    plan = PLAN(*given, **named)
    assert not plan.resident and not plan.rows_bytes
    return dataclasses.replace(plan, rows_bytes=2 * 8 * given[0].n_rows * len(given[1]))


PLAN = fitting.make_plan


def both(monkeypatch, *given, **options):
    options = dict(memory="14.8MB", progress=False, C=0.1) | options
    found = [fit(*given, **options)]
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "make_plan", on_disk)
        found.append(fit(*given, **options))
    assert found[1].result_.plan["rows_bytes"] > 0
    return found


@pytest.mark.parametrize("given", [{}, {"working_set": 0.05}, {"working_set": 0}, {"schedule": "fixed", "memory": "13.2MB"},
                                   {"schedule": "selective", "working_set": 0.1}, {"schedule": "cached", "working_set": 0.1}], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_bits(shards, numbers, loss, given, monkeypatch):
    data = numbers if "epsilon" in loss else shards
    a, b = both(monkeypatch, data, loss=loss, tol=0, epochs=5, **given)
    assert a.digest() == b.digest() and a.certificate == b.certificate
    for x, y in zip(a.result_.history, b.result_.history, strict=True):
        for name in ("loss", "updates", "working_set_rows", "objective", "dual"):
            assert x.get(name) == y.get(name)
