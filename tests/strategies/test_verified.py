"""The domain's check of an answer, the same for a vote and for a tree."""

import pytest
from support import wait

import tot_lab as tl

RIGHT, WRONG = "(10 - 4) * (13 - 9)", "10 + 9 + 4 + 13"
HAND = tl.game24("4 9 10 13")


def saying(*answers):
    """A model whose reply to attempt k states the k-th answer."""

    async def model(call):
        return f"Answer: {answers[call.attempt[0] if call.attempt else 0]}"

    return model


def answer_of(strategy, *answers, task=HAND):
    return wait(tl.Lab(saying(*answers), runs=None).run(strategy, task))


def test_a_vote_among_verified_answers_ignores_the_most_frequent_wrong_one():
    answers = [WRONG, WRONG, RIGHT]
    plain = answer_of(tl.SelfConsistency(attempts=3), *answers)
    checked = answer_of(tl.SelfConsistency(strategy=tl.methods.Verified(), attempts=3), *answers)
    assert (plain.answer, plain.correct) == (WRONG, False)
    assert (checked.answer, checked.correct) == (RIGHT, True)


def test_a_rejected_answer_is_no_answer_and_is_on_record():
    made = answer_of(tl.methods.Verified(), WRONG)
    assert made.answer == ""
    assert [e.data["answer"] for e in made.events if getattr(e, "name", "") == "answer.rejected"] == [WRONG]


def test_an_answer_passes_if_the_domain_cannot_tell():
    task = tl.general("2 + 2?", answer=4)
    assert answer_of(tl.methods.Verified(), "5", task=task).answer == "5"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [(RIGHT, True), (f"{RIGHT} = 24", True), (WRONG, False), ("24", False), ("6 * 4", False)],
)
def test_game24_checks_the_numbers_and_the_value(answer, kept):
    assert HAND.domain.verify(HAND.hidden(), answer) is kept


def test_it_costs_what_the_strategy_costs():
    inner = tl.SelfConsistency(attempts=4)
    assert tl.methods.Verified(strategy=inner).max_calls(HAND) == 4
    matched = tl.match({"vote": tl.methods.Verified(strategy=inner)}, calls=9)
    assert matched["vote"].strategy.attempts == 9


@pytest.mark.parametrize(
    ("settings", "task", "named"),
    [
        (
            {"vote": tl.SelfConsistency(attempts=1), "tree": tl.TreeOfThoughts()},
            HAND,
            "has checked the answers of tree, and not",
        ),
        ({"vote": tl.SelfConsistency(strategy=tl.methods.Verified()), "tree": tl.TreeOfThoughts()}, HAND, ""),
        ({"vote": tl.SelfConsistency(), "tree": tl.TreeOfThoughts(answer="best")}, HAND, ""),
        ({"vote": tl.SelfConsistency(), "tree": tl.TreeOfThoughts()}, tl.general("2 + 2?", answer=4), ""),
    ],
)
def test_a_sweep_says_which_settings_had_a_verifier_unless_all_or_none_had(settings, task, named):
    sweep = wait(tl.Lab("sim/game24", runs=None).sweep(settings, [task]))
    assert (named in repr(sweep)) if named else ("has checked" not in repr(sweep))


def test_a_sweep_names_each_setting_on_the_smaller_side():
    tree, plain = tl.TreeOfThoughts(), tl.SelfConsistency(attempts=1)
    checked = tl.SelfConsistency(strategy=tl.methods.Verified(), attempts=1)
    lab = tl.Lab("sim/game24", runs=None)
    few = wait(
        lab.sweep({"tree": tree, "vote": checked, "a": plain, "b": plain.with_({"attempts": 2})}, [HAND])
    )
    assert "has checked the answers of tree, vote, and not of the other settings" in repr(few)
    many = wait(lab.sweep({"tree": tree, "vote": checked, "a": plain}, [HAND]))
    assert "has checked all answers but those of a;" in repr(many)


FRAMES = {
    "best_of": lambda inner: tl.BestOf(strategy=inner, attempts=2),
    "weighted_best_of": lambda inner: tl.methods.WeightedBestOf(strategy=inner, attempts=2),
    "self_consistency": lambda inner: tl.SelfConsistency(strategy=inner, attempts=2),
    "early_stopping": lambda inner: tl.methods.EarlyStopping(strategy=inner, attempts=2),
    "forest_of_thoughts": lambda inner: tl.methods.ForestOfThoughts(strategy=inner, trees=2),
    "reflexion": lambda inner: tl.methods.Reflexion(strategy=inner),
    "with_thinking": lambda inner: tl.methods.WithThinking(strategy=inner),
    "with_synthesis": lambda inner: tl.methods.WithSynthesis(strategy=inner),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_strategy_around_a_verified_one_gives_no_wrong_answer_and_says_that_it_checks(name):
    async def model(call):
        return f"Answer: {WRONG}" if call.purpose == "answer" else "SATISFIED: 10"

    frame = FRAMES[name]
    run = wait(tl.Lab(model, runs=None).run(frame(tl.methods.Verified()), HAND))
    assert run.answer == ""
    assert frame(tl.methods.Verified()).checks_answers(HAND)
    unchecked = wait(tl.Lab(model, runs=None).run(frame(tl.ChainOfThought()), HAND))
    assert unchecked.answer == WRONG
    assert not frame(tl.ChainOfThought()).checks_answers(HAND)


@pytest.mark.slow
def test_a_tree_with_verified_paths_and_a_checked_vote_never_answer_wrongly_and_an_unchecked_vote_does():
    settings = {
        "tree": tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(depth=3)),
        "checked": tl.SelfConsistency(strategy=tl.methods.Verified(strategy=tl.ChainOfThought()), attempts=8),
        "plain": tl.SelfConsistency(strategy=tl.ChainOfThought(), attempts=8),
    }
    lab = tl.Lab(tl.sim.SimGame24(skill=0.3, noise=0.2), runs=None)
    frame = wait(lab.sweep(settings, tl.game24_tasks(10))).df()
    wrong = frame[frame["answer"].notna() & ~frame["correct"].fillna(False)]
    assert set(wrong["setting"]) == {"plain"}
