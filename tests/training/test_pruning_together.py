"""The search for the size below which weights of a problem are dropped."""

import numpy as np
import pytest

from bigclf.training.pruning_together import ENOUGH, TRIALS, Search

SIZES = np.append(np.linspace(0.0, 1.0, 33)[:-1], np.nextafter(1.0, 2.0))


def searched(objective, estimates, bound, primal=1.0):
    """The search at its end, and the sizes that were tried."""
    search, tried = Search(primal, bound, SIZES, estimates), []
    for _ in range(TRIALS):
        if search.done:
            break
        tried.append(search.next())
        search.take(objective(tried[-1]))
    return search, tried


@pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("off", [0.2, 1.0, 5.0])
def test_it_comes_near_the_bound_though_the_estimates_are_off(power, off):
    def objective(size):
        return 1 + 0.8 * size**power

    search, tried = searched(objective, 1 + off * 0.8 * SIZES**power, 1.1)
    size, found = search.best
    assert found == objective(size) and 1.1 - ENOUGH * 0.1 <= found <= 1.1
    assert len(tried) <= (1 if off == 1.0 else TRIALS)


def test_nothing_is_dropped_where_no_trial_is_within_the_bound():
    search, tried = searched(lambda size: 2.0, 1 + SIZES, 1.1)
    assert search.best == (0.0, 1.0) and len(tried) == TRIALS and (np.diff(tried) < 0).all()


def test_all_go_where_even_those_are_within_the_bound():
    search, tried = searched(lambda size: 1.0 + 0.01 * size, 1 + 0.01 * SIZES, 1.1)
    assert search.done and tried == [SIZES[-1]] and search.best[0] == SIZES[-1]


def test_many_weights_of_one_size_are_told_from_those_below():
    """The objective jumps where a crowd of equal weights goes: what is tried then is below them."""
    search, _ = searched(lambda size: 1 + 0.02 * size + 0.5 * (size > 0.4), 1 + 0.25 * SIZES, 1.1)
    assert 0 < search.best[0] <= 0.4


def test_no_room_leaves_all_weights():
    search, tried = searched(lambda size: 1 + size, 1 + SIZES, 1.0)
    assert search.done and not tried and search.best == (0.0, 1.0)
