"""200,000 replies with known meaning are read as they were meant."""

import pytest
from support.reply_grammar import cases
from support.reply_readings import assert_read_as_meant


@pytest.mark.parametrize("seed", range(1, 11))
def test_every_reply_is_read_as_it_was_meant_or_not_at_all(seed):
    assert_read_as_meant(cases(seed, 20_000))
