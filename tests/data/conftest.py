"""The tests of this folder read few rows."""

import pytest

from bigclf.data import dataset


@pytest.fixture(autouse=True)
def decode_as_larger_data(monkeypatch):
    """Few rows are decoded by Arrow, but those of these tests as a large dataset's, by bigclf's own kernels."""
    monkeypatch.setattr(dataset, "SMALL", 0)
