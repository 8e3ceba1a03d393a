"""Sizes, counts and times as people write and read them."""

import pytest

from bigclf.units import format_bytes, format_count, format_seconds, near, nearest, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MB", 256_000_000), ("1GiB", 2**30), ("1.5 kB", 1500), (" 2g ", 2 * 10**9), ("10", 10), (77, 77)],
)
def test_parse_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 XB", "0", 0, True, float("nan"), "1e9GB?"])
def test_parse_bytes_refuses(text):
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1_220_000_000, "1.22 GB"), (999_999, "1.00 MB")]
)
def test_format_bytes(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(("n", "text"), [(32561, "32,561"), (119_100_000, "119 M"), (1_272_569, "1.27 M")])
def test_format_count(n, text):
    assert format_count(n) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.012, "12 ms"), (3.41, "3.41 s"), (125, "2 min 05 s"), (3780, "1 h 03 min"), (5e-6, "5 us")],
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


def test_what_was_planned_and_passed_by_little_is_said_to_be_within_the_promise():
    from bigclf.units import within_plan

    assert "a tenth, or 20 MB" in within_plan(20.7e6, 38.1e6) and "20 MB" in within_plan(1e9, 1.05e9)
    assert within_plan(20e6, 19e6) == ""
    assert all("above the plan" in within_plan(*sizes) for sizes in [(20e6, 41e6), (1e9, 1.2e9)])


@pytest.mark.parametrize(("given", "meant"), [
    ("algoritm", "algo"), ("epoch", "epochs"), ("lable", "label"), ("outptu", "output"), ("top", ""), ("keep", ""),
    ("xalgo", "algo"), ("tolx", "tol"), ("tl", "tol"), ("reprot", "report"), ("da", ""), ("label-", ""), ("e", ""),
])  # fmt: skip
def test_what_is_far_or_as_near_as_another_is_not_meant(given, meant):
    known = ["algo", "epochs", "report", "spec", "date", "label", "output", "groups", "help", "seed", "tol", "dtype",
             "labels", "data", "dates"]  # fmt: skip
    assert nearest(given, known) == meant


@pytest.mark.parametrize(("given", "known", "meant"), [("Y", ["a", "b", "y"], "y"), ("label", ["x", "LABEL"], "LABEL"),
                                                     ("fitt", ["fit", "path"], "fit"), ("Q", ["a"], None)])  # fmt: skip
def test_what_was_meant_may_differ_in_capitals(given, known, meant):
    assert near(given, known) == (f"; did you mean {meant}?" if meant else "")
