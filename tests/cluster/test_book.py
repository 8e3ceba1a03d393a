"""The book of a round: each rule in plain steps, then simulated clusters where everything goes wrong, then its cost."""

import importlib.util
import sys
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import PACKAGE

from bigclf.cluster import book as module
from bigclf.cluster.book import Book, Cancel, GiveUp, Patience, Submit, Trial

PATIENCE = Patience()  # 10 s without a sign of life, 30 s for a short visit, 2 in flight


def book_of(n, workers="ab", *, sizes=None, ahead=None, preferred=(), speeds=(1.0,) * 9, **patience):
    """A book of n units of size 1, each expected to take a second, with workers that joined at 0."""
    book = Book(sizes or [1.0] * n, Patience(**patience), ahead=ahead, preferred=preferred, speeds=speeds)
    for worker in workers:
        book.joined(worker, 0.0)
    return book


def given_out(actions):
    return [tuple(a) for a in actions if isinstance(a, Submit | Trial)]


def expect(actions, *expected):
    """Named tuples of two kinds can be equal."""
    assert [(type(a).__name__, *a) for a in actions] == [(type(a).__name__, *a) for a in expected]


def cancelled(actions):
    return [tuple(a) for a in actions if isinstance(a, Cancel)]


def alive(book, workers, now):
    for worker in workers:
        book.seen(worker, now, now)


def wait(book, start, stop, workers="", step=0.5):
    """Poll from start to stop, with ``workers`` alive; everything the book wanted done meanwhile."""
    actions, now = [], start
    while now <= stop:
        alive(book, workers, now)
        actions += book.actions(now)
        now += step
    return actions


# Who gets what


def test_units_are_given_in_order_the_emptiest_worker_first_and_never_more_than_the_window():
    book = book_of(6)
    assert given_out(book.actions(0)) == [(0, 0, "a"), (1, 0, "b"), (2, 0, "a"), (3, 0, "b")]
    assert book.actions(1) == [] and book.in_flight("a") == book.in_flight("b") == 2
    assert book.finished(0, 0, "a", 1.0)
    assert given_out(book.actions(1)) == [(4, 0, "a")]
    assert book.in_flight("stranger") == 0


def test_units_are_committed_in_order_and_told_of_once():
    book = book_of(3, "a", window=3)
    book.actions(0)
    assert book.finished(1, 0, "a", 1) and book.finished(2, 0, "a", 1) and book.ready() == []
    assert book.finished(0, 0, "a", 2) and not book.done and book.uncommitted == 3
    assert book.ready() == [0, 1, 2] and book.ready() == [] and book.done and book.uncommitted == 0


def test_a_round_of_nothing_is_done():
    book = Book([])
    assert book.done and book.ready() == [] and book.actions(0) == [] == book.actions(1e6)


def test_units_far_ahead_of_the_first_uncommitted_one_are_not_begun():
    book = book_of(9, "abc", ahead=2)
    assert [u for u, _, _ in given_out(book.actions(0))] == [0, 1, 2]
    book.finished(1, 0, "b", 1)
    book.finished(2, 0, "c", 1)
    assert book.ready() == [] and book.actions(1) == []
    book.finished(0, 0, "a", 2)
    assert book.actions(2) == []  # not before the caller has taken them
    assert book.ready() == [0, 1, 2]
    assert [u for u, _, _ in given_out(book.actions(2))] == [3, 4, 5]
    assert given_out(book_of(3, ahead=0).actions(0)) == [(0, 0, "a")]


def test_a_unit_waits_for_the_worker_it_prefers_while_others_have_something_to_do():
    book = book_of(5, preferred=["b", "a", "a", "a", "b"])
    assert given_out(book.actions(0)) == [(0, 0, "b"), (4, 0, "b"), (1, 0, "a"), (2, 0, "a")]
    book.finished(0, 0, "b", 1)
    assert book.actions(1) == []  # 3 waits for a, b has something
    book.finished(4, 0, "b", 1)
    assert given_out(book.actions(1)) == [(3, 0, "b")]  # b is idle


def test_a_worker_has_its_own_units_in_its_window():
    book = book_of(8, preferred=["a", "b"] * 4)
    assert sorted(given_out(book.actions(0))) == [(0, 0, "a"), (1, 0, "b"), (2, 0, "a"), (3, 0, "b")]
    book.finished(1, 0, "b", 1)
    expect(book.actions(1), Submit(5, 0, "b"))
    book.finished(0, 0, "a", 2)
    expect(book.actions(2), Submit(4, 0, "a"))


def test_a_unit_that_prefers_a_worker_that_is_not_there_goes_anywhere():
    book = book_of(4, "a", preferred=["x", "b", "x", "a"], window=1)
    book.joined("b", 0)
    assert sorted(given_out(book.actions(0))) == [(1, 0, "b"), (3, 0, "a")]
    assert book.finished(1, 0, "b", 1) and given_out(book.actions(1)) == [(0, 0, "b")]

    book = book_of(4, preferred=["a"] * 4)
    assert given_out(book.actions(0)) == [(0, 0, "a"), (1, 0, "a"), (2, 0, "b")]
    book.left("a", 1)
    assert given_out(book.actions(1)) == [(0, 1, "b")]  # what is to be done again comes first
    book.finished(2, 0, "b", 2)
    assert given_out(book.actions(2)) == [(1, 1, "b")]
    book.finished(0, 1, "b", 2)
    assert given_out(book.actions(2)) == [(3, 0, "b")]


# Whose result counts


def test_a_result_counts_once_however_often_it_comes():
    book = book_of(2, "a")
    book.actions(0)
    assert book.finished(0, 0, "a", 1)
    assert not book.finished(0, 0, "a", 1) and not book.finished(0, 0, "b", 2)
    book.failed(0, 0, "a", 3, "too late", fatal=True)
    book.lost(0, 0, "a", 3, running=True)
    book.missing(0, 0, "a", 3)
    assert book.actions(3) == [] and book.ready() == [0] and book.attempts_made == 2


def test_results_of_attempts_that_were_never_made_do_not_count():
    book = book_of(9, "a")
    book.actions(0)
    assert not book.finished(0, 1, "a", 1) and not book.finished(0, -1, "a", 1) and not book.finished(8, 0, "a", 1)
    assert book.ready() == []


def test_the_first_result_wins_and_the_other_attempts_are_cancelled():
    book = book_of(1)
    book.actions(0)
    assert given_out(wait(book, 1, 10, "b")) == [(0, 1, "b")]
    assert book.finished(0, 0, "a", 10.5)  # the one that was given up on
    expect(book.actions(10.5), Cancel(0, 1))
    assert not book.finished(0, 1, "b", 11) and book.ready() == [0] and book.done


def test_a_finished_unit_whose_result_is_lost_is_given_out_again_and_told_of_once():
    book = book_of(2, window=1)
    assert given_out(book.actions(0)) == [(0, 0, "a"), (1, 0, "b")]
    book.undone(0, 0.5)  # it is under way
    assert book.actions(0.5) == []
    assert book.finished(0, 0, "a", 1) and book.finished(1, 0, "b", 1) and book.ready() == [0, 1] and book.done
    book.undone(0, 2)
    book.undone(0, 2)
    assert not book.done and given_out(book.actions(2)) == [(0, 1, "a")]
    assert [(r["unit"], r["worker"], r["why"]) for r in book.take_events()] == [(0, "a", "lost")]
    assert book.finished(0, 1, "a", 3) and book.ready() == [] and book.done


def test_a_result_counts_even_after_its_worker_left():
    book = book_of(1)
    book.actions(0)
    book.left("a", 1)
    expect(book.actions(1), Cancel(0, 0), Submit(0, 1, "b"))
    assert book.finished(0, 0, "a", 2)
    expect(book.actions(2), Cancel(0, 1))


def test_an_attempt_that_is_over_cannot_fail():
    book = book_of(1, retries=0)
    book.actions(0)
    book.left("a", 1)
    book.failed(0, 0, "a", 1, "connection closed", fatal=True)
    assert given_out(book.actions(1)) == [(0, 1, "b")]


# Frozen workers


def test_what_a_frozen_worker_holds_is_given_out_again_once_and_it_gets_nothing():
    book = book_of(4)
    assert len(given_out(book.actions(0))) == 4
    book.finished(1, 0, "b", 1)
    book.finished(3, 0, "b", 1)
    assert wait(book, 1, 9.5, "b") == []
    assert given_out(wait(book, 10, 10, "b")) == [(0, 1, "b"), (2, 1, "b")]
    assert wait(book, 10.5, 30, "b") == []
    assert [(e["unit"], e["attempt"], e["worker"], e["why"]) for e in book.take_events()] == [
        (0, 0, "a", "stale"),
        (2, 0, "a", "stale"),
    ]
    assert book.take_events() == [] and book.given_again == 2 and book.attempts_made == 6


def test_a_worker_that_comes_back_is_used_again():
    book = book_of(6, window=1)
    book.actions(0)
    wait(book, 1, 10, "b")
    assert book.finished(1, 0, "b", 11) and given_out(book.actions(11)) == [(0, 1, "b")]
    book.seen("a", 12, 12)
    assert book.actions(12) == []  # it still has unit 0 in its window
    assert book.finished(0, 1, "b", 13)
    expect(book.actions(13), Cancel(0, 0), Submit(2, 0, "b"), Submit(3, 0, "a"))


def test_what_nobody_took_over_is_its_own_again_when_it_comes_back():
    book = book_of(2, "a")
    book.actions(0)
    assert wait(book, 1, 20) == [] and book.idle_since(20) is not None
    book.seen("a", 21, 21)
    assert wait(book, 21, 25, "a") == [] and book.idle_since(25) is None
    assert book.finished(0, 0, "a", 25) and book.finished(1, 0, "a", 26) and book.attempts_made == 2


def test_signs_of_life_may_come_in_any_order_and_be_of_any_age():
    book = book_of(1)
    book.actions(0)
    book.seen("a", 5, 5)
    book.seen("a", 2, 6)
    assert wait(book, 6, 14.5, "b") == []
    expect(wait(book, 15, 15, "b"), Submit(0, 1, "b"))

    book = book_of(4, window=1)
    book.actions(0)
    wait(book, 0, 15, "b")
    book.seen("a", 5.1, 15.5)  # too long ago
    book.finished(1, 0, "b", 16)
    expect(book.actions(16), Submit(0, 1, "b"))
    book.finished(0, 1, "b", 17)
    expect(book.actions(17), Cancel(0, 0), Submit(2, 0, "b"))


def test_a_clock_that_is_ahead_keeps_nobody_alive():
    book = book_of(1)
    book.actions(0)
    book.seen("a", 1e9, 1)
    assert wait(book, 1, 10.5, "b") == [] and given_out(wait(book, 11, 11, "b")) == [(0, 1, "b")]


def test_who_has_been_silent_before_the_round_is_known_to_be():
    book = book_of(3, "")
    book.joined("a", 100, at=80)
    book.joined("b", 100, at=95)
    assert {w for _, _, w in given_out(book.actions(100))} == {"b"}
    book.joined("a", 101, at=99)
    assert {w for _, _, w in given_out(book.actions(101))} == {"a"}


def test_after_a_silence_of_its_own_the_book_listens_before_it_judges():
    for frozen in (False, True):
        book = book_of(1)
        book.actions(0)
        assert book.actions(20) == []
        alive(book, "b" if frozen else "ab", 20)
        assert given_out(book.actions(20.2)) == [(0, 1, "b")] * frozen
    book = book_of(1)
    book.actions(0)
    assert book.actions(20) == [] and given_out(book.actions(40)) == []  # nobody was seen: now both are silent
    assert book.idle_since(40) == 0


def test_a_visit_gets_its_time_anew_when_its_worker_comes_back():
    book = book_of(1, "a")
    book.actions(0)
    assert wait(book, 0, 24.5) == [] == wait(book, 25, 54.5, "a")
    expect(wait(book, 55, 55, "a"), Submit(0, 1, "a"))
    assert wait(book, 55.5, 144.5, "a") == []
    expect(wait(book, 145, 145, "a"), Cancel(0, 0))
    book.finished(0, 1, "a", 150)
    assert book.speeds == [1.0] * 9  # of neither it is known how long it took


def test_how_long_a_visit_took_that_was_frozen_is_not_known():
    book = book_of(1, "a")
    wait(book, 0, 0)
    wait(book, 1, 20)
    wait(book, 20.5, 25, "a")
    assert book.finished(0, 0, "a", 25.5) and book.speeds == [1.0] * 9


def test_what_is_in_flight_at_a_worker_that_came_back_is_counted_on():
    book = book_of(2, "abc", window=1)
    book.actions(0)
    expect(wait(book, 0, 10, "bc"), Submit(0, 1, "c"))
    wait(book, 11, 12, "abc")
    book.left("c", 13)
    expect(book.actions(13), Cancel(0, 1))


def test_a_frozen_workers_visit_is_given_out_again_for_each_time_it_freezes():
    book = book_of(1, "abc")
    book.actions(0)
    assert len(given_out(wait(book, 0, 12, "bc"))) == 1  # at b
    wait(book, 12, 13, "abc")
    assert wait(book, 13, 22, "bc") == []
    assert wait(book, 22, 30, "bc") == []  # frozen again, but b has it
    assert given_out(wait(book, 30, 40, "c")) == [(0, 2, "c")]  # now b is frozen too


def test_nobody_frozen_is_asked_when_all_are():
    book = book_of(3)
    wait(book, 0, 10)
    assert wait(book, 10, 100) == [] and book.idle_since(100) == 90


# Late visits


def test_a_visit_has_its_time_from_when_it_can_start():
    book = book_of(4, sizes=[20, 1, 1, 1])  # 80 s, 30 s
    assert given_out(book.actions(0)) == [(0, 0, "a"), (1, 0, "b"), (2, 0, "a"), (3, 0, "b")]
    book.finished(1, 0, "b", 1)
    book.finished(3, 0, "b", 2)
    assert wait(book, 2, 79, "ab") == []  # 2 waits behind the long one, and is not late
    book.finished(0, 0, "a", 79)
    assert wait(book, 79, 108.5, "ab") == []
    assert given_out(wait(book, 109, 109, "ab")) == [(2, 1, "b")]


def test_a_late_visit_goes_to_another_worker_with_all_that_waits_behind_it():
    book = book_of(5)
    book.actions(0)
    book.finished(1, 0, "b", 1)
    assert given_out(book.actions(1)) == [(4, 0, "b")]
    book.finished(3, 0, "b", 2)
    book.finished(4, 0, "b", 3)
    assert wait(book, 3, 29.5, "ab") == []
    expect(wait(book, 30, 30, "ab"), Cancel(2, 0), Submit(0, 1, "b"), Submit(2, 1, "b"))
    assert {e["why"] for e in book.take_events()} == {"late"}
    assert book.finished(0, 0, "a", 31)  # it was slow only: and is good for more
    expect(book.actions(31), Cancel(0, 1))
    assert wait(book, 31, 40, "ab") == []


def test_a_late_worker_gets_nothing_while_there_is_another():
    book = book_of(9)
    book.actions(0)
    for unit, now in ((1, 1), (3, 2), (4, 3)):
        book.finished(unit, 0, "b", now)
        book.actions(now)
    wait(book, 4, 30, "ab")
    book.finished(5, 0, "b", 31)
    assert {w for _, _, w in given_out(book.actions(31))} == {"b"}
    assert book.finished(0, 0, "a", 32) and "a" in {w for _, _, w in given_out(book.actions(32))}


def test_without_a_known_speed_nothing_is_late_and_the_first_result_makes_it_known():
    book = book_of(3, "abc", speeds=None, window=1)
    book.actions(0)
    assert wait(book, 0, 500, "abc") == []
    book.finished(0, 0, "a", 500)
    assert wait(book, 500, 1999.5, "abc") == []  # 500 s for a size unit: late after 2000 s
    assert given_out(wait(book, 2000, 2030, "abc")) == [(1, 1, "a"), (2, 1, "a")][:1]
    assert book.speeds == [500.0]


def test_the_speed_is_the_median_and_goes_on_to_the_next_round():
    book = book_of(3, "a", sizes=[2, 4, 10], speeds=[3.0])
    book.actions(0)
    book.finished(0, 0, "a", 2)  # 1 s a size unit
    book.actions(2)
    book.finished(1, 0, "a", 18)  # 4 s
    assert book.speeds == [3.0, 1.0, 4.0]
    book.actions(18)
    assert wait(book, 18, 137.5, "a") == []  # 4 x 10 x 3
    assert given_out(wait(book, 138, 138, "a")) == [(2, 1, "a")]
    assert Book([1.0], speeds=[float("nan"), float("inf"), -1.0, 2.0]).speeds == [2.0]
    assert len(Book([1.0], speeds=[1.0] * 1000).speeds) == module.REMEMBERED


def test_of_results_that_come_together_only_the_first_tells_how_long_it_took():
    book = book_of(3, "a", window=3, speeds=None)
    book.actions(0)
    book.finished(0, 0, "a", 8)
    book.finished(1, 0, "a", 8)  # of whenever: nobody listened
    book.actions(8)
    book.finished(2, 0, "a", 9)
    assert book.speeds == [8.0, 1.0]


def test_one_that_was_late_before_has_twice_the_time():
    book = book_of(1, "abcd", window=1)
    book.actions(0)
    assert given_out(wait(book, 0, 30, "abcd")) == [(0, 1, "b")]
    assert wait(book, 30, 89.5, "abcd") == []
    assert given_out(wait(book, 90, 90, "abcd")) == [(0, 2, "c")]
    assert wait(book, 90, 209.5, "abcd") == []
    assert given_out(wait(book, 210, 210, "abcd")) == [(0, 3, "d")]
    assert book.finished(0, 0, "a", 211)
    assert cancelled(book.actions(211)) == [(0, 1), (0, 2), (0, 3)]


def test_a_lone_workers_lost_result_is_made_again_there():
    book = book_of(2, "a")
    book.actions(0)
    book.finished(1, 0, "a", 2)  # of 0 nothing was heard
    assert given_out(wait(book, 2, 30, "a")) == [(0, 1, "a")]
    assert book.finished(0, 1, "a", 31) and book.ready() == [0, 1]


@pytest.mark.parametrize("window", [1, 2])
def test_a_lone_worker_of_which_all_results_were_lost_is_asked_again(window):
    book = book_of(2, "a", window=window)
    book.actions(0)
    actions = wait(book, 0, 200, "a")
    assert (0, 1, "a") in given_out(actions) and (0, 0) in cancelled(actions)


def test_a_late_worker_that_reports_something_later_is_not_late():
    book = book_of(2, "a")
    book.actions(0)
    assert wait(book, 0, 34.5, "a") == []  # 0 is late, but there is no room for another attempt
    assert book.finished(1, 0, "a", 35)
    expect(book.actions(35), Cancel(0, 0), Submit(0, 1, "a"))
    assert book.speeds == [1.0] * 9


def test_a_result_that_others_overtook_is_late_but_its_worker_is_not():
    book = book_of(5)
    book.actions(0)
    book.finished(2, 0, "a", 1)  # 0 was before it
    book.finished(1, 0, "b", 1)
    book.finished(3, 0, "b", 2)
    expect(book.actions(2), Submit(4, 0, "b"))
    book.finished(4, 0, "b", 3)
    assert wait(book, 3, 29.5, "ab") == []
    expect(wait(book, 30, 30, "ab"), Cancel(0, 0), Submit(0, 1, "b"))
    assert wait(book, 30, 89.5, "ab") == []  # it may be a long one
    expect(wait(book, 90, 90, "ab"), Submit(0, 2, "a"))


@pytest.mark.parametrize("reported, left, overtaken", [(4, 2, True), (2, 4, False)])
def test_only_what_was_before_a_report_is_overtaken_by_it(reported, left, overtaken):
    book = book_of(6, window=3)
    book.actions(0)  # a: 0, 2, 4
    book.finished(reported, 0, "a", 1)
    for unit in (1, 3, 5):
        book.finished(unit, 0, "b", 2)
    assert wait(book, 2, 29.5, "ab") == []
    expect(wait(book, 30, 30, "ab"), Cancel(0, 0), Submit(0, 1, "b"))
    book.finished(0, 1, "b", 31)
    assert wait(book, 31, 59.5, "ab") == []
    actions = wait(book, 60, 60, "ab")
    assert cancelled(actions) == [(left, 0)] * overtaken and [u for u, _, _ in given_out(actions)] == [left]


def test_each_time_nothing_is_heard_of_a_late_worker_it_is_left_alone_for_longer():
    book = book_of(2, "a", window=1)
    book.actions(0)
    assert wait(book, 0, 119.5, "a") == []
    expect(wait(book, 120, 120, "a"), Cancel(0, 0), Submit(0, 1, "a"))  # late after 30, 3 x 30 more
    assert wait(book, 120, 539.5, "a") == []
    expect(wait(book, 540, 540, "a"), Cancel(0, 1), Submit(0, 2, "a"))  # late after 60, 2 x 3 x 60 more
    assert book.finished(0, 2, "a", 541)
    expect(book.actions(541), Submit(1, 0, "a"))
    assert wait(book, 541, 660.5, "a") == []
    expect(wait(book, 661, 661, "a"), Cancel(1, 0), Submit(1, 1, "a"))


def test_a_late_visit_waits_for_another_worker_rather_than_behind_itself():
    book = book_of(4)
    book.actions(0)
    wait(book, 0, 29.5, "ab")
    expect(wait(book, 30, 30, "ab"), Cancel(2, 0), Submit(1, 1, "a"))


def after_a_freeze(n, **options):
    """a was frozen while it had unit 0, b did 1 and 0, at 12 a is back: what it still runs is cancelled at 13."""
    book = book_of(n, **options)
    book.actions(0)
    wait(book, 0, 10, "b")
    book.finished(1, 0, "b", 11)
    expect(book.actions(11), Submit(0, 1, "b"))
    wait(book, 12, 12.5, "ab")
    assert book.finished(0, 1, "b", 13)
    return book


def test_what_waits_behind_a_cancelled_visit_is_not_late():
    book = after_a_freeze(4, window=1)
    expect(book.actions(13), Cancel(0, 0), Submit(2, 0, "b"), Submit(3, 0, "a"))
    book.finished(2, 0, "b", 14)
    assert book.in_flight("a") == 1
    assert wait(book, 14, 71.5, "ab") == []  # the cancelled one may run until 42
    expect(wait(book, 72, 72, "ab"), Submit(3, 1, "b"))


def test_a_report_shows_that_a_cancelled_visit_is_over():
    for own in (False, True):
        book = after_a_freeze(6, window=1)
        book.actions(13)
        book.finished(2, 0, "b", 14)
        expect(book.actions(14), Submit(4, 0, "b"))
        book.finished(4, 0, "b", 15)
        expect(book.actions(15), Submit(5, 0, "b"))
        book.finished(5, 0, "b", 16)
        known = book.speeds
        if own:
            assert not book.finished(0, 0, "a", 20)
            assert wait(book, 20, 49.5, "ab") == []
            expect(wait(book, 50, 50, "ab"), Submit(3, 1, "b"))
        else:
            book.missing(3, 0, "a", 20)
            expect(book.actions(20), Submit(3, 1, "b"))
            book.left("b", 21)
            expect(book.actions(21), Cancel(3, 1), Submit(3, 2, "a"))
            assert book.speeds == known
            wait(book, 21, 50.5, "a")
            expect(wait(book, 51, 51, "a"))  # no room
            assert book.finished(3, 2, "a", 52) and len(book.speeds) == len(known) + 1


def test_seconds_with_a_usable_worker_are_counted_without_those_in_vain():
    book = book_of(2, "")
    assert book.served == 0 and wait(book, 100, 200) == [] and book.served == 0
    book.joined("a", 210)
    book.actions(214)
    assert book.served == 4
    book.left("a", 217)
    book.actions(300)
    assert book.served == 7
    book.joined("b", 310)
    book.actions(311)
    assert book.served == 8


def test_who_may_still_run_what_was_cancelled_is_not_idle():
    book = book_of(7, preferred=["a"] + ["b"] * 6)
    assert given_out(book.actions(0)) == [(0, 0, "a"), (1, 0, "b"), (2, 0, "b")]
    wait(book, 0, 10, "b")
    book.finished(1, 0, "b", 10.5)
    expect(book.actions(10.5), Submit(0, 1, "b"))
    book.seen("a", 11, 11)
    book.finished(2, 0, "b", 11.5)
    expect(book.actions(11.5), Submit(3, 0, "b"))
    book.finished(0, 1, "b", 12)
    expect(book.actions(12), Cancel(0, 0), Submit(4, 0, "b"))
    assert wait(book, 12.5, 40.5, "ab") == []
    expect(wait(book, 41, 41, "ab"), Submit(5, 0, "a"))


# Workers that come and go


def test_all_workers_may_go_and_others_come():
    book = book_of(3)
    book.actions(0)
    book.left("a", 1)
    book.left("b", 1)
    assert cancelled(book.actions(1)) == [(0, 0), (2, 0), (1, 0)] and book.idle_since(5) == 4
    assert wait(book, 5, 60) == []
    book.joined("c", 60)
    assert given_out(book.actions(60)) == [(0, 1, "c"), (1, 1, "c")] and book.idle_since(61) is None


def test_a_worker_may_come_back_under_its_name_as_somebody_else():
    book = book_of(2, "a")
    book.actions(0)
    book.left("a", 1)
    book.joined("a", 1)
    assert given_out(book.actions(1)) == [(0, 1, "a"), (1, 1, "a")]
    book.lost(0, 0, "a", 2, running=True)  # told of late
    assert book.actions(2) == [] and book.in_flight("a") == 2
    assert book.finished(1, 0, "a", 3)  # and so is this
    assert cancelled(book.actions(3)) == [(1, 1)]


def test_to_join_twice_is_a_sign_of_life_and_strangers_are_nobody():
    book = book_of(1, "a")
    book.actions(0)
    book.joined("a", 9)
    assert wait(book, 9, 18.5) == [] and book.in_flight("a") == 1 and book.idle_since(18.5) is None
    book.seen("x", 18, 18)
    book.left("x", 18)
    book.lost(0, 3, "x", 18, running=True)
    assert wait(book, 19, 19) == [] and book.idle_since(20) == 1


def test_a_worker_whose_death_was_told_of_gets_nothing_until_it_is_seen_or_replaced():
    book = book_of(4, "a")
    book.actions(0)
    book.lost(0, 0, "a", 5, running=True)
    book.seen("a", 5, 5.1)
    assert book.actions(5.2) == [] and book.idle_since(6) == 1
    book.seen("a", 5.5, 6)
    assert given_out(book.actions(6)) == [(0, 1, "a")]
    book.lost(1, 0, "a", 7, running=True)
    book.joined("a", 8)  # another process: what the last one still had is lost
    actions = book.actions(8)
    assert cancelled(actions) == [(0, 1)] and given_out(actions) == [(0, 2, "a"), (1, 1, "a")]


def test_nothing_is_left_with_a_worker_that_died_while_it_seemed_frozen():
    book = book_of(2, "a")
    wait(book, 0, 9.5)
    book.lost(0, 0, "a", 9.8, running=True)
    wait(book, 10, 11.5)
    book.seen("a", 9, 12)
    book.joined("b", 12)
    expect(book.actions(12), Submit(0, 1, "b"), Submit(1, 1, "b"))


def test_what_preferred_a_worker_that_died_goes_to_others():
    book = book_of(6, preferred=["a"] * 5 + ["b"])
    assert given_out(book.actions(0)) == [(0, 0, "a"), (1, 0, "a"), (5, 0, "b")]
    book.lost(0, 0, "a", 1, running=True)
    expect(book.actions(1), Submit(0, 1, "b"))
    book.finished(5, 0, "b", 2)
    expect(book.actions(2), Submit(2, 0, "b"))


def test_what_prefers_a_frozen_worker_goes_to_others():
    book = book_of(3, ahead=1, preferred=["b", "b", "a"])
    book.actions(0)
    wait(book, 0, 10.5, "b")
    book.finished(0, 0, "b", 11)
    assert book.ready() == [0]
    expect(book.actions(11), Submit(2, 0, "b"))


def test_without_workers_for_too_long_the_round_is_given_up():
    book = book_of(1, "")
    assert wait(book, 100, 399.5) == []
    assert book.idle_since(399.5) == 299.5
    (last,) = wait(book, 400, 500)
    assert last == GiveUp("no usable worker for 300 s", None)
    book.joined("a", 501)
    assert book.actions(501) == []

    book = book_of(1, "a")
    wait(book, 0, 300)
    assert [type(a) for a in wait(book, 300, 310)] == [GiveUp]  # frozen at 10


def test_nobody_is_needed_for_what_is_finished():
    book = book_of(1, "a")
    book.actions(0)
    book.finished(0, 0, "a", 1)
    book.left("a", 1)
    assert wait(book, 1, 1000) == [] and book.ready() == [0]


# Units that fail


def test_a_unit_that_fails_too_often_is_given_up_with_each_reason_once():
    book = book_of(2, "a")
    book.actions(0)
    for attempt, reason in enumerate(["no disk", "no disk", "no net"]):
        book.failed(0, attempt, "a", attempt, reason)
        assert given_out(book.actions(attempt)) == [(0, attempt + 1, "a")]
    book.failed(0, 2, "a", 3, "told twice")
    book.failed(0, 3, "a", 3, "no disk")
    expect(book.actions(3), GiveUp("failed 4 times: no disk; no net", 0))
    assert book.actions(4) == [] and [e["why"] for e in book.take_events()] == [
        "failed: no disk",
        "failed: no disk",
        "failed: no net",
    ]


def test_a_fatal_failure_ends_the_round_at_once():
    book = book_of(2, "a")
    book.actions(0)
    book.failed(1, 0, "a", 1, "row 7 is no row", fatal=True)
    expect(book.actions(1), GiveUp("row 7 is no row", 1))


def test_a_failed_unit_is_tried_elsewhere_and_waits_for_that_before_its_last_try():
    book = book_of(9, retries=2)
    book.actions(0)  # a: 0, 2; b: 1, 3
    book.failed(0, 0, "a", 1, "x")
    assert given_out(book.actions(1))[0] == (0, 1, "a")  # b has no room, and a try is cheap
    book.failed(0, 1, "a", 2, "x")
    assert given_out(book.actions(2)) == [(4, 0, "a")]  # but not the last
    book.finished(1, 0, "b", 3)
    assert given_out(book.actions(3)) == [(0, 2, "b")]

    book = book_of(2)
    book.actions(0)
    book.failed(0, 0, "a", 1, "x")
    assert given_out(book.actions(1)) == [(0, 1, "b")]  # though a is idle

    book = book_of(3, "abc", window=1)
    book.actions(0)
    expect(wait(book, 0, 9.5, "bc"))
    book.finished(1, 0, "b", 10)
    wait(book, 10, 10, "bc")  # 0 is in flight at a, which is frozen, and at b
    book.failed(0, 1, "b", 11, "x")
    expect(book.actions(11), Submit(0, 2, "b"))

    book = book_of(1, retries=1)
    book.actions(0)
    book.failed(0, 0, "a", 1, "x")
    book.left("b", 1)
    assert given_out(book.actions(1)) == [(0, 1, "a")]  # there is no elsewhere


def test_missing_costs_nothing_but_not_for_ever():
    book = book_of(1, "a", retries=0)
    book.actions(0)
    for attempt in range(module.MOST_ATTEMPTS - 1):
        book.missing(0, attempt, "a", attempt)
        book.seen("a", attempt, attempt)
        assert given_out(book.actions(attempt)) == [(0, attempt + 1, "a")]
    book.missing(0, module.MOST_ATTEMPTS - 1, "a", 1e4)
    (last,) = book.actions(1e4)
    assert last == GiveUp("given out 1000 times in vain, last: missing", 0)


# Units that kill


def kill(book, unit, attempt, worker, now):
    """The worker dies at the unit, and another process comes under its name."""
    book.lost(unit, attempt, worker, now, running=True)
    book.left(worker, now)
    book.joined(worker, now)
    return book.actions(now)


def test_a_unit_at_which_workers_died_is_tried_in_a_child_process():
    book = book_of(1, "a")
    expect(book.actions(0), Submit(0, 0, "a"))
    expect(kill(book, 0, 0, "a", 1), Submit(0, 1, "a"))
    expect(kill(book, 0, 1, "a", 2), Trial(0, 2, "a"))
    expect(kill(book, 0, 2, "a", 3), Trial(0, 3, "a"))
    book.missing(0, 3, "a", 4)
    expect(book.actions(4), Trial(0, 4, "a"))
    book.failed(0, 4, "a", 5, "the child was killed", fatal=True)
    expect(book.actions(5), GiveUp("the child was killed", 0))


def test_a_trial_that_finishes_is_a_result_like_any():
    book = book_of(1, "a", deaths=1)
    book.actions(0)
    expect(kill(book, 0, 0, "a", 1), Trial(0, 1, "a"))
    assert book.finished(0, 1, "a", 50) and book.ready() == [0] and book.speeds == [1.0] * 9


def test_an_acquitted_unit_goes_on_normally():
    book = book_of(1, "a")
    book.actions(0)
    kill(book, 0, 0, "a", 1)
    expect(kill(book, 0, 1, "a", 2), Trial(0, 2, "a"))
    book.acquitted(0)
    expect(book.actions(3), Cancel(0, 2), Submit(0, 3, "a"))
    expect(kill(book, 0, 3, "a", 4), Submit(0, 4, "a"))  # counted anew

    book = book_of(1, "a", deaths=1)
    book.actions(0)
    kill(book, 0, 0, "a", 1)
    book.acquitted(0)
    assert book.finished(0, 1, "a", 2)  # with the trial's result
    expect(book.actions(2), Cancel(0, 1))
    assert book.ready() == [0] and book.attempts_made == 2
    book.acquitted(0)
    assert book.actions(3) == []


def test_of_what_a_worker_leaves_behind_only_the_first_is_suspected():
    for order in (["left"], ["left", "lost"], ["lost", "left"]):
        book = book_of(2, "a", deaths=1)
        book.actions(0)
        for event in order:
            if event == "left":
                book.left("a", 1)
            else:
                book.lost(0, 0, "a", 1, running=True)
        book.lost(1, 0, "a", 1, running=False)
        book.joined("a", 2)
        expect([a for a in book.actions(2) if not isinstance(a, Cancel)], Trial(0, 1, "a"), Submit(1, 1, "a"))


def test_nothing_behind_a_cancelled_visit_is_suspected():
    book = after_a_freeze(4, window=1, deaths=1)
    book.actions(13)
    book.left("a", 14)
    book.finished(2, 0, "b", 14)
    expect(book.actions(14), Cancel(3, 0), Submit(3, 1, "b"))


def test_a_unit_that_passes_its_trials_but_kills_on_is_given_up():
    book, now, actions = book_of(1, "a"), 0, []
    actions = book.actions(0)
    while not isinstance(actions[-1], GiveUp):
        if isinstance(actions[-1], Trial):
            book.acquitted(0)
            actions = book.actions(now)
        now += 1
        actions = kill(book, 0, actions[-1].attempt, "a", now)
    expect(actions, GiveUp("20 workers died at it", 0, killed=True))
    assert now == 20


def test_what_was_lost_by_the_way_is_not_held_against_a_unit():
    book = book_of(1, "a", deaths=1)
    book.actions(0)
    for attempt in range(50):
        book.lost(0, attempt, "a", 1, running=False)
        expect(book.actions(1), Submit(0, attempt + 1, "a"))


# Odds and ends


def test_time_does_not_run_backwards():
    book = book_of(1)
    book.actions(20)
    alive(book, "ab", 21)
    book.actions(5)
    assert book.in_flight("a") == 1 and book.idle_since(3) is None


@pytest.mark.parametrize(
    "wrong",
    [
        dict(sizes=[1.0, -1.0]),
        dict(sizes=[float("nan")]),
        dict(sizes=[1.0], patience=Patience(window=0)),
        dict(sizes=[1.0], patience=Patience(deaths=0)),
        dict(sizes=[1.0], patience=Patience(retries=-1)),
        dict(sizes=[1.0], ahead=-1),
        dict(sizes=[1.0], preferred=["a", "b"]),
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError):
        Book(**wrong)


# A cluster where everything goes wrong


QUICK = Patience(stale=2.0, least=3.0, idle=1e6, retries=3)
STEP = 0.5  # seconds between two looks of the driver
FOR_EVER = 1e9


@dataclass(eq=False)
class Task:
    unit: int
    attempt: int
    left: float  # seconds of work
    began: float | None = None  # when it became the first
    cancelled: bool = False
    haunted: bool = False  # waited behind something cancelled that ran on, the book cannot know how long


@dataclass(eq=False)
class Machine:
    """A worker process: one task after the other; it may freeze, or go on living with its task stuck."""

    name: str
    slowness: float
    tasks: list = field(default_factory=list)
    frozen_until: float = 0.0
    stuck_until: float = 0.0
    sign: float = 0.0  # of life, as told
    lose: int = 0  # results that get lost
    twice: int = 0
    delay: float = 0.0
    spoil: list = field(default_factory=list)  # "raise" or "missing", for the next tasks
    odd: bool = False  # something happened the book cannot know of, and nothing was reported since
    mute: bool = False  # its last result was lost
    dead: bool = False  # though the driver does not know yet that it left
    suspect: bool = False  # the driver was told that it died at something


@dataclass
class Fault:
    time: float
    kind: str
    worker: int
    seconds: float
    count: int


@dataclass
class Scenario:
    sizes: list
    window: int
    ahead: int | None
    preferred: list
    slowness: list
    faults: list


KINDS = ["kill", "killed: lost, left", "killed: left, lost", "killed: lost, later left", "freeze", "freeze for ever",
         "stuck", "stuck for ever", "lose", "twice", "delay", "raise", "missing", "join", "rejoin"]  # fmt: skip


@st.composite
def scenarios(draw, most_faults=8):
    sizes = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0]), min_size=1, max_size=20))
    slowness = draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=1, max_size=4))
    names = st.sampled_from([None, *(f"w{k}" for k in range(len(slowness) + 1))])
    fault = st.builds(
        Fault,
        st.integers(0, 40).map(lambda k: k / 2),
        st.sampled_from(KINDS),
        st.integers(0, 5),
        st.sampled_from([0.5, 1.0, 3.0, 10.0, 30.0]),
        st.integers(1, 3),
    )
    faults = draw(st.lists(fault, max_size=most_faults))
    raises = [f for f in faults if f.kind == "raise"]
    for f in raises[QUICK.retries :]:  # what fails more often is given up, and that is another test
        f.kind = "missing"
    for f in raises:
        f.count = 1
    return Scenario(
        sizes,
        draw(st.integers(1, 3)),
        draw(st.one_of(st.none(), st.integers(0, 6))),
        draw(st.one_of(st.just([]), st.lists(names, min_size=len(sizes), max_size=len(sizes)))),
        slowness,
        sorted(faults, key=lambda f: f.time),
    )


class Cluster:
    """Plays a scenario and holds the book to its promises. After the last fault a worker comes that never fails."""

    def __init__(self, scenario, rescue=True):
        self.s, self.rescue = scenario, rescue
        self.patience = QUICK._replace(window=scenario.window)
        self.book = Book(scenario.sizes, self.patience, ahead=scenario.ahead, preferred=scenario.preferred,
                         speeds=[1.0])  # fmt: skip
        self.now, self.made, self.log = 0.0, 0, []
        self.machines, self.gone = {}, []
        self.in_flight = {}  # (unit, attempt) -> name, as the driver knows it
        self.mail = []  # (time, event)
        self.accepted, self.committed = [], []
        self.attempts = [0] * len(scenario.sizes)
        self.failed_at = [[] for _ in scenario.sizes]
        for slowness in scenario.slowness:
            self.join(slowness)

    def join(self, slowness=1.0, name=None):
        name = name or f"w{self.made}"
        self.made += name == f"w{self.made}"
        self.machines[name] = Machine(name, slowness, sign=self.now)
        self.book.joined(name, self.now)

    # What goes wrong

    def strike(self, fault):
        if fault.kind == "join":
            return self.join()
        if fault.kind == "rejoin" and self.gone:
            name = self.gone[fault.worker % len(self.gone)]
            if name not in self.machines:
                self.gone.remove(name)
                return self.join(name=name)
        names = [n for n, m in self.machines.items() if n != "rescue" and not m.dead]
        if not names:
            return None
        machine = self.machines[names[fault.worker % len(names)]]
        if fault.kind.startswith("kill") or fault.kind == "rejoin":
            return self.kill(machine, fault)
        if fault.kind.startswith("freeze"):
            machine.frozen_until = FOR_EVER if "ever" in fault.kind else self.now + fault.seconds
        elif fault.kind.startswith("stuck"):
            machine.stuck_until = FOR_EVER if "ever" in fault.kind else self.now + fault.seconds
            machine.odd = True
        elif fault.kind in ("lose", "twice"):
            setattr(machine, fault.kind, fault.count)
        elif fault.kind == "delay":
            machine.delay = fault.seconds
        else:
            machine.spoil += [fault.kind] * fault.count
        return None

    def kill(self, machine, fault):
        machine.dead, machine.odd = True, True
        running = next((t for t in machine.tasks if t.began is not None), None)
        mine = [k for k, name in self.in_flight.items() if name == machine.name]

        def tell_lost():
            for unit, attempt in mine:
                first = running is not None and (running.unit, running.attempt) == (unit, attempt)
                self.book.lost(unit, attempt, machine.name, self.now, running=first)
                machine.suspect |= first
                self.in_flight.pop((unit, attempt), None)

        if fault.kind == "killed: lost, later left":
            tell_lost()
            self.mail.append((self.now + fault.seconds, ("left", machine.name)))
            return
        if fault.kind == "killed: lost, left":
            tell_lost()
        self.tell_left(machine)
        if fault.kind == "killed: left, lost":
            tell_lost()
        if fault.kind == "rejoin":
            self.gone.remove(machine.name)
            self.join(name=machine.name)

    def tell_left(self, machine):
        del self.machines[machine.name]
        self.gone.append(machine.name)
        self.book.left(machine.name, self.now)
        for k in [k for k, name in self.in_flight.items() if name == machine.name]:
            del self.in_flight[k]

    # What goes on

    def work(self, machine):
        if machine.dead or machine.frozen_until > self.now or machine.stuck_until > self.now:
            return
        time = STEP
        while machine.tasks and time > 0:
            task = machine.tasks[0]
            done = min(time, task.left)
            task.left -= done
            time -= done
            if task.left > 0:
                return
            machine.tasks.pop(0)
            for following in machine.tasks[:1]:
                following.began = self.now
            if not task.cancelled:
                self.report(machine, task)

    def report(self, machine, task):
        kind = machine.spoil.pop(0) if machine.spoil else "finished"
        event = (kind, task.unit, task.attempt, machine.name)
        if machine.lose:
            machine.lose -= 1
            machine.odd = machine.mute = True
            return
        self.mail.append((self.now + machine.delay, event))
        machine.odd, machine.mute = machine.delay > 0, False
        if machine.twice:
            machine.twice -= 1
            self.mail.append((self.now + machine.delay + 1, event))

    def deliver(self):
        due = [m for m in self.mail if m[0] <= self.now]
        self.mail = [m for m in self.mail if m[0] > self.now]
        for _, (kind, *about) in due:
            if kind == "left":
                self.tell_left(self.machines[about[0]])
                continue
            unit, attempt, name = about
            if kind == "finished":
                first = self.book.finished(unit, attempt, name, self.now)
                assert first == (unit not in self.accepted), "each unit has one result, the first"
                self.accepted += [unit] if first else []
            elif kind == "raise":
                self.book.failed(unit, attempt, name, self.now, "spoilt")
                self.failed_at[unit].append(name)
            else:
                self.book.missing(unit, attempt, name, self.now)
            self.in_flight.pop((unit, attempt), None)

    def tell_signs(self):
        for machine in self.machines.values():
            if machine.frozen_until <= self.now and not machine.dead:
                machine.sign = self.now
            self.book.seen(machine.name, machine.sign, self.now)

    def fresh(self, name):
        return name in self.machines and self.machines[name].sign + self.patience.stale > self.now

    # What is asked of the book

    def obey(self, action):
        self.log.append((self.now, action))
        assert not isinstance(action, GiveUp), action
        if isinstance(action, Cancel):
            name = self.in_flight.pop(tuple(action), None)
            if name in self.machines:
                self.cancel(self.machines[name], *action)
            return
        unit, attempt, name = action
        assert attempt == self.attempts[unit] and unit not in self.accepted
        assert self.fresh(name) and not self.machines[name].suspect, f"{name} is frozen, dead or gone"
        first = next((u for u in range(len(self.s.sizes)) if u not in self.committed), None)
        assert self.s.ahead is None or unit <= first + self.s.ahead
        self.check_not_hasty(unit, name)
        self.attempts[unit] += 1
        self.in_flight[unit, attempt] = name
        assert sum(n == name for n in self.in_flight.values()) <= self.patience.window == self.s.window
        machine = self.machines[name]
        seconds = self.s.sizes[unit] * machine.slowness
        haunted = any(t.cancelled or t.haunted for t in machine.tasks)
        machine.tasks.append(Task(unit, attempt, seconds, None if machine.tasks else self.now, haunted=haunted))

    def cancel(self, machine, unit, attempt):
        for task in machine.tasks:
            if (task.unit, task.attempt) == (unit, attempt):
                task.cancelled = True
                machine.odd |= task.began is not None
        machine.tasks = [t for t in machine.tasks if not t.cancelled or t.began is not None]
        for task in machine.tasks[1:]:
            task.haunted |= machine.tasks[0].cancelled

    def check_not_hasty(self, unit, name):
        """Another attempt is made when the workers of those in flight are frozen, or their first visit had its time."""
        for (u, attempt), holder in self.in_flight.items():
            if u != unit or not self.fresh(holder):
                continue
            tasks = self.machines[holder].tasks
            if not any((t.unit, t.attempt) == (u, attempt) for t in tasks) or self.machines[holder].mute:
                continue  # its result was lost or is on its way; or another's, and so the worker seems to be late
            if tasks[0].cancelled or tasks[0].haunted:
                continue
            speed = min([1.0, *self.book.speeds])
            allowed = max(self.patience.least, self.patience.factor * self.s.sizes[tasks[0].unit] * speed)
            assert self.now - tasks[0].began >= allowed, "not late yet"
            others = [n for n in self.machines if n != holder and self.fresh(n)]
            assert holder != name or not any(not self.machines[n].odd for n in others), "there is an elsewhere"

    def check_nobody_waits(self):
        """While a worker is idle, everything within reach is under way somewhere it can be expected from.

        But for a unit's last try, which is not to be where it failed.
        """
        idle = [m.name for m in self.machines.values() if self.fresh(m.name) and not m.odd and not m.tasks]
        idle = {name for name in idle if name not in self.in_flight.values()}
        if not idle:
            return
        first = next((u for u in range(len(self.s.sizes)) if u not in self.committed), 0)
        reach = len(self.s.sizes) if self.s.ahead is None else min(len(self.s.sizes), first + self.s.ahead + 1)
        under_way = {u for (u, _), name in self.in_flight.items() if self.fresh(name)}
        last_tries = {u for u, names in enumerate(self.failed_at) if len(names) >= 3 and idle <= set(names)}
        waiting = {u for u in range(reach) if u not in self.accepted} - under_way - last_tries
        assert not waiting, f"{waiting} wait while {idle} are idle at {self.now}"

    def play(self):
        faults = list(self.s.faults)
        while not self.book.done:
            while faults and faults[0].time <= self.now:
                self.strike(faults.pop(0))
            if self.rescue and not faults and "rescue" not in self.machines:
                self.join(name="rescue")
            for machine in list(self.machines.values()):
                self.work(machine)
            self.deliver()
            self.tell_signs()
            for action in self.book.actions(self.now):
                self.obey(action)
            self.check_nobody_waits()
            for unit in self.book.ready():
                assert unit == len(self.committed) and unit in self.accepted, "in order, each once, with a result"
                self.committed.append(unit)
            for name in self.machines:
                assert self.book.in_flight(name) == sum(n == name for n in self.in_flight.values())
            self.now += STEP
            assert self.now < 3000, "for ever"
        assert self.committed == list(range(len(self.s.sizes))) == sorted(self.accepted)
        assert self.book.attempts_made == sum(self.attempts)
        assert self.book.given_again == len(self.book.take_events()) == self.book.attempts_made - len(self.attempts)
        return self


@settings(max_examples=250, deadline=None)
@given(scenarios())
def test_whatever_happens_every_unit_is_committed_once_and_in_order(scenario):
    played = Cluster(scenario).play()
    struck = sum(f.count if f.kind in ("lose", "raise", "missing") else 1 for f in scenario.faults)
    assert played.book.given_again <= 4 * scenario.window * struck


@settings(max_examples=60, deadline=None)
@given(scenarios(most_faults=0))
def test_when_nothing_happens_nothing_is_done_twice(scenario):
    played = Cluster(scenario).play()
    assert played.book.given_again == 0 and not any(isinstance(a, Cancel) for _, a in played.log)


@settings(max_examples=20, deadline=None)
@given(scenarios())
def test_the_same_events_give_the_same_actions(scenario):
    assert Cluster(scenario).play().log == Cluster(scenario).play().log


def test_a_lone_worker_that_is_far_slower_than_expected_gets_done_in_the_end():
    """What takes 100 s may take 4: cancelled and begun again several times, with twice the time at each."""
    played = Cluster(Scenario([1.0] * 3, 2, None, [], [100.0], []), rescue=False).play()
    assert played.book.given_again <= 8


# Events without rhyme or reason


EVENTS = st.one_of(
    st.tuples(st.sampled_from(["joined", "left"]), st.sampled_from("abc")),
    st.tuples(st.just("seen"), st.sampled_from("abc"), st.integers(0, 40)),
    st.tuples(
        st.sampled_from(["finished", "finished", "failed", "died", "lost", "missing", "acquitted"]),
        st.integers(0, 5),
        st.integers(0, 4),
    ),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 4.0, 11.0, 40.0])),
)


class Nonsense:
    """A driver that tells the book anything at all, and keeps account of what it was asked to do."""

    def __init__(self, window):
        self.book = book_of(6, "ab", window=window, retries=10**6, deaths=10**6, idle=1e9)
        self.now, self.in_flight, self.accepted, self.committed = 0.0, {}, [], []
        self.made, self.window = [0] * 6, window

    def tell(self, kind, *about):
        if kind == "wait":
            self.now += about[0]
        elif kind == "seen":
            self.book.seen(about[0], self.now - about[1], self.now)
        elif kind in ("joined", "left"):
            getattr(self.book, kind)(about[0], self.now)
        elif kind == "acquitted":
            self.book.acquitted(about[0])
        else:
            self.tell_of_attempt(kind, *about)

    def tell_of_attempt(self, kind, unit, attempt):
        self.in_flight.pop((unit, attempt), None)
        if kind == "finished":
            first = self.book.finished(unit, attempt, "?", self.now)
            assert first == (unit not in self.accepted and attempt < self.made[unit])
            self.accepted += [unit] * first
        elif kind == "failed":
            self.book.failed(unit, attempt, "?", self.now, "no reason")
        elif kind == "missing":
            self.book.missing(unit, attempt, "?", self.now)
        else:
            self.book.lost(unit, attempt, "?", self.now, running=kind == "died")

    def look(self, most=10**6):
        """Do what the book wants done, but of the submissions the first few only."""
        asked = []
        for action in self.book.actions(self.now):
            if isinstance(action, Cancel):
                self.in_flight.pop(tuple(action), None)
                continue
            assert action.attempt == self.made[action.unit] and action.unit not in self.accepted
            self.made[action.unit] += 1
            self.in_flight[action.unit, action.attempt] = action.worker
            asked.append(action)
        for worker in "abcz":
            mine = sum(w == worker for w in self.in_flight.values())
            assert mine == self.book.in_flight(worker) <= self.window
        self.committed += self.book.ready()
        assert self.committed == list(range(len(self.committed))) and set(self.committed) <= set(self.accepted)
        return asked


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3), st.lists(EVENTS, max_size=40))
def test_no_order_of_events_confuses_the_book(window, events):
    driver = Nonsense(window)
    driver.look()
    for event in events:
        driver.tell(*event)
        driver.look()
    for worker in "abc":
        driver.tell("left", worker)
    driver.tell("joined", "z")
    while not driver.book.done:  # one good worker is enough
        asked = driver.look()
        assert asked or driver.book.done
        for action in asked:
            driver.tell("finished", action.unit, action.attempt)
        driver.look() if not asked else None


# What it costs


class Steps:
    """Counts the lines of the book that are run."""

    def __init__(self):
        self.lines = 0

    def _line(self, frame, event, _):
        self.lines += event == "line"
        return self._line

    def _call(self, frame, event, _):
        return self._line if frame.f_code.co_filename == module.__file__ else None

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)


def steps_of_a_round(n, workers, *, looks=1, repeat_each=0, **options):
    """Lines run for a unit of a round without faults, asking ``looks`` times after every event."""
    names = [f"w{k}" for k in range(workers)]
    with Steps() as steps:
        book, now, running = book_of(n, names, **options), 0.0, []
        while not book.done:
            for _ in range(looks):
                running += given_out(book.actions(now))
            now += 0.01
            unit, attempt, worker = running.pop(0)
            book.seen(worker, now, now)
            if attempt < repeat_each:
                book.failed(unit, attempt, worker, now, "again")
            else:
                book.finished(unit, attempt, worker, now)
            book.ready()
    return steps.lines / n


def test_the_cost_of_a_unit_depends_neither_on_the_number_of_units_nor_of_workers():
    few = steps_of_a_round(100, 1)
    assert few < 150
    assert steps_of_a_round(10_000, 1) < 1.2 * few
    assert steps_of_a_round(1_000, 64) < 1.5 * few
    assert steps_of_a_round(1_000, 64, ahead=128) < 1.5 * few


def test_units_that_wait_for_their_last_try_cost_the_others_nothing():
    """One worker fails at everything at once, the other is busy."""

    def steps(n):
        with Steps() as counted:
            book = book_of(n, window=1, retries=1)
            running = given_out(book.actions(0))
            while running := [r for r in running if r[2] == "a"]:
                book.failed(*running[0], 0, "no disk")
                running = given_out(book.actions(0))
        assert book.attempts_made == n
        return counted.lines / n

    assert steps(2_000) < 1.2 * steps(100)


def test_the_cost_of_a_result_stays_when_workers_come_and_go_by_the_hundred():
    """The simulated cluster of ``jobs/driver_capacity.py``: deaths, freezes, stragglers, lost and failed visits."""
    path = PACKAGE.parent / "jobs" / "driver_capacity.py"
    spec = importlib.util.spec_from_file_location("driver_capacity", path)
    capacity = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(capacity)
    capacity.LIFE = capacity.AWAKE = 500.0
    capacity.LOST = capacity.FAILED = 0.02

    def steps(groups, workers):
        with Steps() as counted:
            _, cluster = capacity.round_of(groups, workers)
            assert cluster.run() is None
        assert min(cluster.counts.values()) > 0 and cluster.counts["results"] >= groups
        return counted.lines / cluster.counts["results"]

    few = steps(600, 30)
    assert steps(3_000, 150) < 1.2 * few
