"""tl.counterfactual: what it says is what a real run does, and what it cannot say it names."""

import asyncio
import json

import pytest
from support import ROOT, TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Ended, Note, Thought, canonical

RECORDS = ROOT.parent / "shared" / "data" / "princeton_tot"
needs_records = pytest.mark.skipif(not RECORDS.is_dir(), reason=f"the published records are not at {RECORDS}")

HAND = tl.game24("4 5 6 10")
WIDE = {
    "sample": tl.TreeOfThoughts(
        evaluate=tl.Value(samples=2), search=tl.BeamSearch(width=None), stop=tl.Stop(solved=None)
    ),
    "propose": tl.TreeOfThoughts(
        propose=tl.Propose(count=4),
        evaluate=tl.Value(samples=2),
        search=tl.BeamSearch(width=None),
        stop=tl.Stop(solved=None),
    ),
}
OTHERS = {
    "beam 1": {"search.width": 1},
    "beam 2": {"search.width": 2},
    "beam 5": {"search.width": 5},
    "best-first": {"search": "best_first"},
    "depth-first": {"search": tl.DepthFirst(width=2)},
    "threshold": {"stop.min_score": 0.7, "search.width": None},
    "mcts": {"search": "mcts"},
    "stops": {"stop.solved": 0.7},
    "one draw": {"evaluate.samples": 1},
    "shallow": {"stop.depth": 2},
}
MODELS = {"scripted": (Scripted, TASK), "game24": (lambda: tl.sim.SimGame24(skill=0.6, noise=0.3), HAND)}


def canonical_events(made):
    return canonical(made.lines)


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("other", OTHERS)
def test_from_a_record_that_has_more_it_is_the_real_run(model, wide, other):
    made, task = MODELS[model]
    strategy = WIDE[wide].model_copy(update=dict(OTHERS[other]))
    strategy = tl.TreeOfThoughts(**{k: v for k, v in strategy.settings().items() if k != "kind"})
    recorded = run(WIDE[wide], task, made())
    would, real = tl.counterfactual(recorded, strategy), run(strategy, task, made())
    assert would.whole
    assert would.run.events == real.events
    assert (would.solved, would.first_lack) == (real.correct, None)
    assert wait(would.run.replay()).identical


def after(place, other):
    """Whether the call at `place` may rest on that at `other`: they part at a step, not at a branch."""
    parts = next(k for k, pair in enumerate(zip(place, other, strict=False)) if pair[0] != pair[1])
    return parts % 2 == 0 and other[parts] < place[parts]


def asked_anew(made):
    """The calls of a run that no cache answered, by position, those that rest on no other of them."""
    cached = {
        tuple(line.e.data["call"])
        for line in made.lines
        if isinstance(line.e, Note) and line.e.name == "call.cached"
    }
    anew = {line.p: line.e for line in made.lines if isinstance(line.e, Call) and line.p not in cached}
    return {p: call for p, call in anew.items() if not any(after(p, other) for other in anew if other != p)}


def which(call):
    return call.purpose, call.prompt, call.sample_index


@pytest.mark.nightly
@pytest.mark.parametrize("other", [*OTHERS, "more draws"])
@pytest.mark.parametrize("wide", WIDE)
def test_from_a_record_that_has_less_it_lacks_what_a_real_run_would_pay(tmp_path, wide, other):
    narrow = WIDE[wide].with_({"search.width": 1, "evaluate.samples": 1})
    strategy = WIDE[wide].with_(OTHERS.get(other, {"evaluate.samples": 4}))
    lab = tl.Lab(tl.sim.SimGame24(skill=0.6, noise=0.3), runs=None, cache=tmp_path)
    would = tl.counterfactual(wait(lab.run(narrow, HAND)), strategy)
    real = wait(lab.run(strategy, HAND))
    paid = asked_anew(real)
    certain = {lack.position: lack for lack in would.lacking if lack.certain}
    assert {(lack.purpose, lack.prompt, lack.sample_index) for lack in certain.values()} == set(
        map(which, paid.values())
    )
    assert set(paid) <= set(certain)  # an equal call may have been answered by the first of them
    assert would.whole == (not paid)
    if not would.whole:
        first = would.first_lack
        assert first.position == min(paid)
        assert first.certain
        before = [line for line in would.run.lines if line.p < first.position]
        assert canonical(before) == canonical([line for line in real.lines if line.p < first.position])
        assert would.certain == tl.Tree.of(canonical(before))
        assert would.solved is None


def test_runs_of_one_task_answer_together():
    both = tl.SelfConsistency(attempts=2)
    runs = [run(tl.SelfConsistency(attempts=1)), run(Second())]
    assert [tl.counterfactual(alone, both).whole for alone in runs] == [False, False]
    (together,) = tl.counterfactual(runs, both)
    assert together.whole
    assert together.run.events == run(both).events
    assert together.run.header.counterfactual == tuple(made.id for made in runs)


def test_a_result_for_each_task_repeat_and_model():
    other = tl.general("How many legs has a cat?", answer=4, grade="number")
    runs = [
        run(tl.OneAnswer()),
        run(tl.OneAnswer(), other),
        run(tl.OneAnswer(), repeat=1),
        run(tl.OneAnswer()),
    ]
    made = tl.counterfactual(iter(runs), tl.OneAnswer())
    assert [would.run.question for would in made] == [TASK.question, other.question, TASK.question]
    assert [would.run.header.repeat for would in made] == [0, 0, 1]
    assert [would.run.events for would in made] == [made.events for made in runs[:3]]


def test_it_says_that_it_is_one_and_what_it_would_have_cost():
    model = Scripted(lambda call: Reply("Answer: 26", input_tokens=10, output_tokens=2, cost=0.5))
    would = tl.counterfactual(run(tl.OneAnswer(), model=model), tl.OneAnswer())
    assert len(model.calls) == 1
    assert would.run.name == "one_answer (counterfactual)"
    assert would.run.usage == (1, 0, 10, 2, 0.5, 0.0)
    assert would.run.seconds != would.run.seconds  # nobody waited
    assert list(would.run.calls_df().source) == ["cache"]
    assert repr(would) == f"<one_answer (counterfactual) on {TASK.question[:40]!r}: solved, nothing lacks>"


@pytest.mark.slow
def test_it_is_shown_and_kept_like_any_run(tmp_path):
    would = tl.counterfactual(
        run(tl.TreeOfThoughts(search=tl.BeamSearch(width=1))),
        tl.TreeOfThoughts(search=tl.BeamSearch(width=3)),
    )
    back = tl.load(would.run.save(tmp_path / "would.jsonl"))
    assert back.events == would.run.events
    assert back.name == "tree_of_thoughts (counterfactual)"
    assert "counterfactual" in repr(back)
    assert json.loads(tl.figures.plot_tree(back).to_json())["data"]
    assert f"{len(would.lacking)} calls lack, the first a " in repr(would)


def test_a_failed_call_answers_nothing():
    best = tl.SelfConsistency(attempts=3, strategy=tl.OneAnswer(temperature=1.0))
    failing = Scripted(lambda call: Reply(error="503") if call.attempt == (1,) else "Answer: 26")
    would = tl.counterfactual(run(best, model=failing), best)
    assert [(lack.node, lack.purpose, lack.certain) for lack in would.lacking] == [("0.1", "answer", True)]
    assert would.run.diagnostics["failed_calls"] == 1


def test_more_attempts_lack_those_and_no_other():
    would = tl.counterfactual(run(tl.SelfConsistency(attempts=3)), tl.SelfConsistency(attempts=5))
    assert [lack.node for lack in would.lacking] == ["0.3", "0.4"]
    assert all(lack.certain for lack in would.lacking)
    assert would.solved is None


def test_settings_are_a_part_of_what_was_asked():
    recorded = run(tl.OneAnswer(temperature=0.5))
    assert tl.counterfactual(recorded, tl.OneAnswer(temperature=0.5)).whole
    assert [lack.purpose for lack in tl.counterfactual(recorded, tl.OneAnswer()).lacking] == ["answer"]


@pytest.mark.slow
def test_roles_are_those_of_the_runs():
    lab = tl.Lab(tl.sim.SimGame24(), runs=None, roles={"evaluate": {"temperature": 0.0}})
    recorded = wait(lab.run(tl.TreeOfThoughts(search=tl.BeamSearch(width=None)), HAND))
    real = wait(lab.run(tl.TreeOfThoughts(search=tl.BeamSearch(width=1)), HAND))
    assert (
        tl.counterfactual(recorded, tl.TreeOfThoughts(search=tl.BeamSearch(width=1))).run.events
        == real.events
    )


def test_one_prompt_with_two_answers_is_answered_where_it_was_asked():
    """With no cache between, a model may answer one question twice in two ways."""
    said = iter(range(100))
    recorded = run(TwiceTheSame(), model=Scripted(lambda call: f"answer {next(said)}"))
    would = tl.counterfactual(recorded, TwiceTheSame())
    assert would.run.events == recorded.events
    assert would.run.answer == "answer 0, answer 1"


class Second(tl.Strategy):
    """Makes the second of several attempts alone."""

    def think(self, task, at="0"):
        return (yield from tl.resample(1, tl.ChainOfThought().think(task, at)))


class TwiceTheSame(tl.Prompting):
    """Asks one question at two thoughts."""

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        texts = []
        for k in range(2):
            yield Thought(f"{at}.{k}", at, "again")
            reply = yield from tl.ask(self.call(f"{at}.{k}", "answer", "the same"))
            texts.append(reply.text)
        return tl.Answer(", ".join(texts), "answered")


def test_reached_is_known_before_the_end_is():
    """The right answer stands in the tree before the first call lacks."""
    right = {"24 legs", "26 legs"}  # states no answer, so the path goes on
    model = Scripted(
        lambda call: (
            f"{26 if call.sample_index == 0 else 24} legs" if call.purpose == "sample" else "score: 0.5"
        )
    )
    recorded = run(tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=1)), model=model)
    would = tl.counterfactual(recorded, tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2)))
    assert {node.text for node in would.certain if node.parent} == right
    assert (would.solved, would.reached) == (None, True)
    wrong = run(
        tl.TreeOfThoughts(stop=tl.Stop(depth=1)),
        model=Scripted(lambda call: "1 leg" if call.purpose == "sample" else "score: 0.5"),
    )
    assert tl.counterfactual(wrong, tl.TreeOfThoughts(stop=tl.Stop(depth=1))).reached is False
    assert tl.counterfactual(wrong, tl.TreeOfThoughts(stop=tl.Stop(depth=2))).reached is None


def test_it_works_where_an_event_loop_is_running():
    async def in_a_notebook():
        recorded = await tl.Lab(Scripted(), runs=None).run(tl.OneAnswer(), TASK)
        return tl.counterfactual(recorded, tl.OneAnswer())

    assert asyncio.run(in_a_notebook()).whole


def test_a_loaded_run_answers_too(tmp_path):
    recorded = wait(
        tl.Lab(Scripted(), runs=tmp_path).run(tl.TreeOfThoughts(search=tl.BeamSearch(width=None)), TASK)
    )
    loaded = tl.load(recorded.path)
    assert tl.counterfactual(loaded, tl.TreeOfThoughts(search=tl.BeamSearch(width=1))).whole


def test_a_search_of_ones_own_answers_too():
    with tl.Recorder("mine", task=TASK) as recorder:
        root = recorder.thought(TASK.question)
        prompt = TASK.domain.answer_prompt(TASK, False)
        recorder.call(root, prompt, Reply(error="503"))
        recorder.call(root, prompt, "Answer: 26")
        recorder.call(root, "another question", "Answer: 25")
    would = tl.counterfactual(recorder.run, tl.OneAnswer())
    assert (would.whole, would.solved, would.run.answer) == (True, True, "26")


def test_a_model_that_made_no_record_answers_nothing():
    recorded = run(tl.OneAnswer())
    for name in ("sim/general", "no/such-model"):
        would = tl.counterfactual(recorded, tl.OneAnswer(model=name))
        assert (would.whole, len(would.lacking), would.solved) == (False, 1, None)


def test_a_budget_of_the_strategy_is_no_lack():
    recorded = run(tl.TreeOfThoughts(search=tl.BeamSearch(width=None)))
    capped = tl.TreeOfThoughts(search=tl.BeamSearch(width=None), budget=tl.Budget(calls=7))
    would = tl.counterfactual(recorded, capped)
    assert would.whole
    assert would.run.events == run(capped).events
    assert would.run.stop_reason == run(capped).stop_reason


def test_under_a_cap_only_the_first_lack_is_certain():
    """What a lacking call leaves of a cap, a real one would have used."""
    capped = tl.TreeOfThoughts(search=tl.BeamSearch(width=3), budget=tl.Budget(calls=26))
    would, real = (
        tl.counterfactual(run(tl.TreeOfThoughts(search=tl.BeamSearch(width=1))), capped),
        run(capped),
    )
    asked = {which(event) for event in real.events if isinstance(event, Call)}
    made = {p for p, reply in zip(*answered(real), strict=True) if reply.error is None}
    certain = [lack for lack in would.lacking if lack.certain]
    assert certain == [would.first_lack]
    assert which(certain[0]) in asked
    assert certain[0].position in made


def answered(made):
    lines = [line for line in made.lines if isinstance(line.e, Reply)]
    return [line.p for line in lines], [line.e for line in lines]


def test_what_no_record_can_tell_of_a_cap_is_refused():
    for cap in ({"seconds": 9.0}, {"tokens": 900}, {"usd": 1.0, "calls": 3}):
        capped = tl.SelfConsistency(strategy=tl.TreeOfThoughts(budget=tl.Budget(**cap)), attempts=2)
        with pytest.raises(ValueError, match=f"a cap on {next(iter(cap))} ends a search"):
            tl.counterfactual(run(capped), capped)


def test_a_strategy_that_bears_no_failure_lacks_and_is_no_bug():
    class Proud(tl.Prompting):
        """Raises when a call fails."""

        def think(self, task, at="0"):
            yield Thought(at, None, task.question)
            reply = yield from tl.ask(self.call(at, "answer", "something new"))
            if reply.error:
                raise ValueError("no failures here")
            return tl.Answer(reply.text, "answered")

    would = tl.counterfactual(run(tl.OneAnswer()), Proud())
    assert (would.whole, would.solved, len(would.lacking)) == (False, None, 1)
    assert would.run.error == "ValueError: no failures here"


def test_one_recorded_answer_is_no_several_attempts():
    with tl.Recorder("mine", task=TASK) as recorder:
        root = recorder.thought(TASK.question)
        recorder.call(root, TASK.domain.answer_prompt(TASK, False), "Answer: 26")
    five = tl.counterfactual(recorder.run, tl.SelfConsistency(strategy=tl.OneAnswer(), attempts=5))
    assert (five.whole, five.solved) == (False, None)


def test_a_killed_run_answers_what_it_was_told():
    recorded = run(tl.TreeOfThoughts())
    half = tl.Run(recorded.header, recorded.lines[: len(recorded.lines) // 2])
    would = tl.counterfactual(half, tl.TreeOfThoughts())
    assert not would.whole
    assert would.run.events[: len(would.certain)] == recorded.events[: len(would.certain)]


def test_what_cannot_be_thought_about_is_an_error():
    with pytest.raises(TypeError, match="Was `await` forgotten"):
        tl.counterfactual([3], tl.OneAnswer())
    with pytest.raises(TypeError, match="strategy must be a Strategy"):
        tl.counterfactual(run(tl.OneAnswer()), "beam")
    with tl.Recorder("mine") as recorder:
        recorder.thought("a problem")
    with pytest.raises(LookupError, match="has no task of tot_lab"):
        tl.counterfactual(recorder.run, tl.OneAnswer())
    assert tl.counterfactual([], tl.OneAnswer()) == []


def test_a_bug_in_the_strategy_is_raised():
    class Broken(tl.Strategy):
        """Ends badly."""

        def think(self, task, at="0"):
            yield Thought(at, None, task.question)
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        tl.counterfactual(run(tl.OneAnswer()), Broken())


# The published logs.


@pytest.fixture(scope="module")
def game24():
    return tl.load(RECORDS / "game24_bfs_gpt4_even.json")


def beam(width, **more):
    return tl.presets.game24().with_({"search.width": width, **more})


@pytest.mark.nightly
@needs_records
def test_the_published_search_itself_lacks_nothing(game24):
    made = tl.counterfactual(game24, beam(5))
    assert all(would.whole for would in made)
    for would, log in zip(made, game24, strict=True):
        assert [(node.id, node.text, node.samples) for node in would.run.tree][1:] == sorted(
            [(node.id, node.text, node.samples) for node in log.tree][1:],
            key=lambda known: would.run.tree[known[0]].order,
        )


@pytest.mark.slow
@needs_records
def test_a_narrower_beam_leaves_the_record_only_where_it_keeps_what_was_pruned(game24):
    made = tl.counterfactual(game24, beam(1))
    assert sum(would.whole for would in made) == 43
    for would, log in zip(made, game24, strict=True):
        for lack in would.lacking:
            path = would.run.tree.texts(lack.node)
            (pruned,) = [node.id for node in log.tree if log.tree.texts(node.id) == path]
            assert (lack.purpose, log.tree[pruned].state) == ("propose", "pruned")


@pytest.mark.slow
@needs_records
def test_fewer_draws_are_known_only_where_all_are_the_same(game24):
    """The order of the verdicts is not known."""
    would = tl.counterfactual(game24[0], beam(5, **{"evaluate.samples": 1}))
    mixed = {node.id for node in game24[0].tree if len(set(node.samples)) > 1}
    certain = {lack.node for lack in would.lacking if lack.certain}
    assert certain
    assert certain <= mixed
    assert {node.id for node in game24[0].tree if node.parent == "0"} & mixed == certain


@pytest.mark.slow
@needs_records
def test_the_published_votes_choose_what_they_chose():
    logs = tl.load(RECORDS / "writing_vote_gpt4_first20.json")
    voting = tl.TreeOfThoughts(
        propose=tl.Sample(count=5),
        evaluate=tl.Vote(samples=5),
        search=tl.BeamSearch(width=1),
        stop=tl.Stop(depth=2, solved=None),
    )
    made = tl.counterfactual(logs, voting)
    assert all(would.whole for would in made)
    assert [would.run.answer for would in made] == [log.answer for log in logs]
    wider = tl.counterfactual(logs, voting.model_copy(update={"search.width": 2}))
    assert {lack.purpose for would in wider for lack in would.lacking if lack.certain} == {"sample"}


@pytest.mark.slow
@needs_records
def test_a_crossword_log_holds_no_reply_and_says_so():
    log = tl.load(RECORDS / "crosswords_dfs_gpt4_even.json")[0]
    would = tl.counterfactual(log, tl.TreeOfThoughts(propose="propose"))
    assert [(lack.node, lack.purpose) for lack in would.lacking] == [("0", "propose")]
    assert isinstance(would.run.events[-1], Ended)
