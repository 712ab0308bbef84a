"""No test reads or writes the answers that the person at this machine has paid for."""

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TOT_LAB_CACHE", str(tmp_path_factory.mktemp("calls") / "own"))
