"""Rows that the workers of a cluster hold: they write them down, learn from them, and none comes to the driver."""

import contextlib
import tracemalloc

import numpy as np
import pytest

import bigclf
from bigclf.cluster import engine
from bigclf.cluster.link import connect

pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")]


@pytest.fixture(scope="module")
def workers():
    """Processes of their own: what the driver holds is told apart from what they hold."""
    with dask.config.set({"distributed.worker.profile.enabled": True}):
        link = connect(2)
    with contextlib.closing(link), link.client.as_current():
        yield link.client


def test_processes_started_here_look_at_themselves_once_a_second(workers):
    """And not 50 and 100 times, as Dask's own settings are."""

    def looks():  # milliseconds between two looks at clock and tasks; it travels, as this module cannot
        import distributed

        servers = [server for kind in (distributed.Scheduler, distributed.Worker) for server in kind._instances]
        timers = [server.periodic_callbacks for server in servers]
        return [each[name].callback_time for each in timers for name in ("tick", "profile") if name in each]

    assert workers.run_on_scheduler(looks) == [1000] and [*workers.run(looks).values()] == [[1000, 1000]] * 2


def frame_of(n, parts=80):
    def part(number):
        import pandas as pd

        x = np.random.default_rng(number).standard_normal(n // parts)
        return pd.DataFrame({"x": x, "label": np.where(x > np.roll(x, 1) / 4, "yes", "no")})

    return dd.from_map(part, range(parts), meta=part(0).head(2))


@pytest.mark.parametrize("algo", ["dcd", "newton", "pa1"])
def test_no_array_of_rows_comes_to_the_driver(workers, algo, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "FILE_BYTES", 1000)
    n, options = 400_000, dict(algo=algo, epochs=3, workers=bigclf.Workers(workers, local_dir=tmp_path), progress=False)
    bigclf.fit(frame_of(400, 2), "label", **options)  # what is imported is no row
    tracemalloc.start()
    try:
        model = bigclf.fit(frame_of(n), "label", **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.result_.epochs == 3
    assert peak < 8 * n
    assert not [*tmp_path.glob("*rows*")]
