"""The grammar of replies with known meaning, and 200 of its replies through the readers.
`nightly/test_reply_grammar.py` reads 200,000."""

import re

import pytest
from support import reply_grammar
from support.reply_grammar import PRODUCTIONS, TEXTS, TEXTS_WITH_TRAPS, cases
from support.reply_readings import assert_read_as_meant


@pytest.mark.parametrize("seed", range(5))
def test_replies_are_read_as_they_were_meant_or_not_at_all(seed):
    assert_read_as_meant(cases(seed, 40))


def test_equal_seeds_give_equal_replies():
    assert list(cases(7, 50)) == list(cases(7, 80))[:50]
    assert list(cases(7, 50)) != list(cases(8, 50))


@pytest.mark.slow
def test_5000_replies_use_every_production_and_no_other():
    used = {name for case in cases(0, 5_000) for name in case.productions}
    assert used == PRODUCTIONS


def known(case):
    """Whether the meaning of a reply is one that its setting allows."""
    expected, setting = case.expected, case.setting
    if case.kind == "choice":
        return expected in setting
    if case.kind == "vote":
        return 1 <= expected <= setting
    if case.kind == "joint":
        return list(expected) == setting and any(expected.values())
    return 0 < expected < 1


@pytest.mark.slow
def test_the_meaning_of_a_reply_is_one_that_its_setting_allows():
    assert not [case for case in cases(1, 3_000) if case.expected is not None and not known(case)]


def test_texts_of_options_occur_in_no_template_and_in_no_other_text():
    tables = [value for value in vars(reply_grammar).values() if isinstance(value, dict)]
    texts_of = [TEXTS, TEXTS_WITH_TRAPS, reply_grammar.NAMES]
    templates = [
        template.casefold()
        for table in tables
        if not any(table is texts for texts in texts_of)
        for group in table.values()
        if isinstance(group, list)
        for template in group
        if isinstance(template, str)
    ]
    templates += [text.casefold() for text in reply_grammar.PREDICATES + reply_grammar.NEUTRAL]
    assert len(templates) > 300
    for table in texts_of:
        for texts in table.values():
            for text in texts:
                word = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)", re.IGNORECASE)
                assert not [template for template in templates if word.search(template)]
                assert [other for other in texts if word.search(other)] == [text]
