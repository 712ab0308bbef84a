"""Notebooks run without progress bars: whether one is shown depends on the machine's speed."""

import os
from unittest.mock import patch

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup():
    with patch.dict(os.environ, TQDM_DISABLE="1"):  # the setup of a notebook's first cell starts its kernel
        return (yield)
