"""What every strategy, traversal, domain, model and figure keeps, taken from the exports.

To add one, write its file, name it in its package's list, and run this file. A strategy that
cannot be made without settings (it wraps another) gets a line in `SETTINGS`.
"""

import asyncio
import json

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import TASK, Scripted, answer_to, run, shuffled, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import STOP_WORDS, Thought, parent_of
from tot_lab.core.thinking import Every, Within
from tot_lab.domains import DOMAINS
from tot_lab.figures import FIGURES
from tot_lab.models import MODELS
from tot_lab.models.simulated import Simulated
from tot_lab.models.stack import Endpoint
from tot_lab.strategies import STRATEGIES, TRAVERSALS

SEARCH = tl.TreeOfThoughts(branch_factor=2, max_depth=2)
SETTINGS = {tl.BestOf: {"strategy": SEARCH, "attempts": 2}, tl.SelfConsistency: {"attempts": 3}}

MADE = [kind(**SETTINGS.get(kind, {})) for kind in STRATEGIES]
MADE += [tl.TreeOfThoughts(traversal=kind(), beam_width=None) for kind in TRAVERSALS]
MADE += [
    tl.TreeOfThoughts(generate="propose", evaluate="joint", max_parse_retries=1),
    tl.TreeOfThoughts(evaluate="vote", evaluation_draws=3, traversal="depth_first"),
    tl.TreeOfThoughts(evaluate="logprob"),
    tl.TreeOfThoughts(
        generate="propose", proposal_draws=2, branch_factor=6, max_depth=2, max_parse_retries=1
    ),
    tl.TreeOfThoughts(traversal="best_first", max_nodes=9, merge=True, answer="leaf", evaluation_draws=2),
    tl.BestOf(strategy=tl.SelfConsistency(attempts=2), attempts=2, evaluate="score"),
]
NAMES = [f"{made.kind}-{k}" for k, made in enumerate(MADE)]
every_strategy = pytest.mark.parametrize("strategy", MADE, ids=NAMES)


class Nested(tl.Strategy):
    """Runs a strategy at another id."""

    strategy: tl.Strategy

    def think(self, task, at="0"):
        yield Thought(at, None, "above")
        yield Thought(f"{at}.1", at, "beside")
        return (yield from self.strategy.think(task, f"{at}.3"))


# Strategies.


@every_strategy
def test_the_record_does_not_depend_on_latency(strategy):
    first = run(strategy)
    assert first.stopped in STOP_WORDS or first.stopped.split(":")[0] in ("limit", "budget")
    for seed in range(4):
        assert run(strategy, model=Scripted(latency=shuffled(seed))).events == first.events


@every_strategy
def test_a_repeat_is_another_sample_and_is_itself_repeatable(strategy):
    assert run(strategy, repeat=1).events == run(strategy, repeat=1).events
    assert run(strategy, repeat=1).events != run(strategy).events


@every_strategy
def test_the_bound_on_calls_holds(strategy):
    model = Scripted()
    run(strategy, model=model)
    assert len(model.calls) <= strategy.max_calls(TASK)
    hopeless = Scripted(lambda call: "???" if call.kind != "sample" else "step")
    run(strategy, model=hopeless)
    assert len(hopeless.calls) <= strategy.max_calls(TASK)


@every_strategy
def test_it_runs_at_another_id(strategy):
    nested = run(Nested(strategy=strategy))
    alone = run(strategy)
    assert nested.answer == alone.answer
    ids = {node.id for node in nested.tree}
    assert {"0", "0.1"} | {"0.3" + node.id[1:] for node in alone.tree} == ids


@every_strategy
def test_a_budget_is_kept_to_the_call(strategy):
    whole = len(model_calls(strategy))
    for cap in {cap for cap in (0, 1, 2, whole // 2, whole - 1) if cap < whole}:
        runs = []
        for seed in range(3):
            model = Scripted(latency=shuffled(seed))
            runs.append(run(strategy, model=model, budget=tl.Budget(calls=cap)))
            assert len(model.calls) <= cap
        assert runs[0].events == runs[1].events == runs[2].events
        assert runs[0].stopped in ("budget:calls", "solved")
    enough = run(strategy, budget=tl.Budget(calls=whole))
    assert enough.usage.calls == whole
    assert enough.stopped == run(strategy).stopped


def model_calls(strategy):
    model = Scripted()
    run(strategy, model=model)
    return model.calls


@every_strategy
def test_it_can_be_cancelled_at_any_moment(strategy):
    whole = run(strategy)

    async def cancelled_after(calls: int) -> tl.Run:
        reached = asyncio.Event()

        def reply(call):
            if len(model.calls) >= calls:
                reached.set()
            return answer_to(call)

        model = Scripted(reply, latency=shuffled(calls))
        lab = tl.Lab(model, runs=None)
        running = asyncio.ensure_future(lab.run(strategy, TASK))
        await asyncio.wait([running, asyncio.ensure_future(reached.wait())], return_when="FIRST_COMPLETED")
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            assert lab.last.stopped in ("cancelled", whole.stopped)  # it may just have ended
        return lab.last

    for calls in {1, 2, whole.usage.calls // 2, whole.usage.calls}:
        cut = wait(cancelled_after(calls))
        assert tl.Tree.of(cut.events) == cut.tree
        assert wait(cut.replay()).divergence is None


@every_strategy
def test_it_replays_and_resumes_from_any_line(strategy, tmp_path):
    lab = tl.Lab(Scripted(latency=shuffled(5)), runs=tmp_path)
    whole = wait(lab.run(strategy, TASK))
    assert wait(tl.load(whole.path).replay()) == (True, len(whole.events), None)
    lines = whole.path.read_bytes().splitlines(keepends=True)
    for cut in range(1, len(lines), max(1, len(lines) // 8)):
        path = tmp_path / f"cut-{cut}.jsonl"
        path.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        paid = sum(b'"type":"reply"' in line for line in lines[:cut])
        model = Scripted()
        assert wait(tl.Lab(model, runs=None).resume(path)).events == whole.events
        assert len(model.calls) == whole.usage.calls - paid
        assert tl.load(path).events == whole.events


@every_strategy
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(st.text(), min_size=1, max_size=8))
def test_any_reply_is_survived_and_no_score_is_made_up(strategy, texts):
    def reply(call):
        return texts[(len(call.prompt) + call.draw) % len(texts)]

    got = run(strategy, model=Scripted(reply))
    for node in got.tree:
        assert node.score is None or 0 <= node.score <= 1
        if node.by in ("value", "logprob") and all(draw is None for draw in node.draws):
            assert node.score is None
    assert wait(got.replay()).identical


@every_strategy
def test_a_model_that_fails_costs_branches_not_the_run(strategy):
    def always(call):
        raise ConnectionError("no route")

    def sometimes(call):
        if len(call.prompt) % 3 == call.draw % 3:
            raise ConnectionError("no route")
        return answer_to(call)

    failed = run(strategy, model=Scripted(always))
    assert failed.stopped == "error"
    assert failed.answer == ""
    assert failed.usage.errors == failed.usage.calls > 0
    assert run(strategy, model=Scripted(sometimes)).stopped is not None


@every_strategy
def test_it_is_driven_by_next_and_send_alone(strategy):
    def drive(thinking):
        value = None
        while True:
            try:
                step = thinking.send(value)
            except StopIteration as end:
                return end.value
            value = None
            if isinstance(step, Call):
                got = answer_to(step)
                value = Reply(got) if isinstance(got, str) else got
            elif isinstance(step, Every):
                value = [drive(branch) for branch in step.branches]
            elif isinstance(step, Within):
                value = drive(step.thinking)

    answer = drive(strategy.think(TASK))
    assert (answer.text, answer.stop) == (run(strategy).answer, run(strategy).stopped)


@every_strategy
def test_it_never_sees_the_reference(strategy):
    seen = []

    class Spy(tl.Strategy):
        def think(self, task, at="0"):
            seen.append(task.reference)
            return (yield from strategy.think(task, at))

    run(Spy())
    assert seen == [None]


@every_strategy
def test_it_goes_on_with_a_thought_that_a_person_changed(strategy):
    whole = run(strategy)
    changed = "a person's own step\nAnswer: 4711"
    for node in thoughts_of(whole):
        old, model = whole.tree[node].text, Scripted()
        made = wait(tl.Lab(model, runs=None).branch(whole, node, content=changed))
        assert made.tree[node].text == changed
        for call in (call for call in model.calls if (call.at + ".").startswith(node + ".")):
            if call.kind != "judge" or call.at == node:  # a judge is shown the answer alone
                assert "4711" in call.prompt
            assert old not in call.prompt.partition("Candidate")[0]
        asked = [event for event in made.events if isinstance(event, Call)]
        assert {repr(call) for call in asked} - {repr(e) for e in whole.events} == set(map(repr, model.calls))
        if made.best is not None and made.best.id == node:
            assert made.answer == "4711"
        assert wait(made.replay()) == (True, len(made.events), None)


@every_strategy
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_it_goes_on_with_a_score_that_a_person_gave(strategy, score):
    whole = run(strategy)
    for node in (id for id in thoughts_of(whole) if whole.tree[id].by):
        made = wait(tl.Lab(Scripted(), runs=None).branch(whole, node, score=score))
        assert (made.tree[node].score, made.tree[node].by) == (score, "person")
        assert made.score == made.tree[made.best.id].score
        if score == 1.0 and strategy.kind != "self_consistency":  # that goes by votes
            assert made.score == 1.0
        if made.best.id == node:
            assert made.score == score
        assert wait(made.replay()).identical


def thoughts_of(made):
    return [node.id for node in made.tree if node.text != made.question]


@every_strategy
def test_it_goes_on_from_a_thought_of_another(strategy, tmp_path):
    begun = run(tl.TreeOfThoughts(beam_width=1, max_depth=2, solved_threshold=None))
    for node in ("0", "0.1", begun.solution_path[-1]):
        model, steps = Scripted(latency=shuffled(1)), begun.steps(node)
        lab = tl.Lab(model, runs=tmp_path)
        made = wait(lab.branch(begun, node, strategy=strategy))
        assert [event for event in made.events if isinstance(event, Thought)][: len(steps) + 1] == [
            Thought(above.id, above.parent, above.text) for above in begun.tree.path(node)
        ]
        assert made.tree[node].score == begun.tree[node].score
        assert {id for id in made.tree.nodes if not (id + ".").startswith(node + ".")} == {
            above.id for above in begun.tree.path(node)[:-1]
        }
        assert model.calls
        for call in model.calls:
            assert all(step in call.prompt for step in steps)
        again = tl.part_of(json.loads(json.dumps(made.header.strategy)))
        assert run(again).tree == made.tree
        assert len(model.calls) <= again.max_calls(TASK)
        lines = made.path.read_bytes().splitlines(keepends=True)
        cut = tmp_path / f"cut-{node}.jsonl"
        cut.write_bytes(b"".join(lines[: len(lines) // 2]))
        assert wait(tl.Lab(Scripted(), runs=None).resume(cut)).events == made.events
        assert wait(tl.load(made.path).replay()).identical
        nested = run(Nested(strategy=again))
        assert {"0.3" + id[1:] for id in made.tree.nodes} | {"0", "0.1"} == set(nested.tree.nodes)


@every_strategy
def test_another_goes_on_from_any_thought_of_it(strategy):
    begun = run(strategy)
    for node in begun.tree:
        made = wait(tl.Lab(Scripted(), runs=None).branch(begun, node.id, strategy=tl.OneAnswer()))
        assert [above.id for above in made.tree.path(f"{node.id}.0")[:-1]] == [
            above.id for above in begun.tree.path(node.id)
        ]
        (call,) = [event for event in made.events if isinstance(event, Call)]
        assert all(step in call.prompt for step in begun.steps(node.id))


@every_strategy
def test_its_settings_come_back(strategy):
    assert tl.part_of(json.loads(json.dumps(strategy.settings()))) == strategy


# Domains.

HANDS = {
    "game24": tl.game24("4 5 6 10"),
    "general": TASK,
    "mini_crossword": tl.mini_crossword(1),
    "creative_writing": tl.creative_writing(1),
}
PATHS = {
    "game24": [[], ["10 - 4 = 6 (left: 5 6 6)"]],
    "general": [[], ["a spider has 8 legs"]],
    "mini_crossword": [[], ["h2. polar (grid: _____ polar _____ _____ _____)"]],
    "creative_writing": [[], ["1. A sailor comes home. 2. He finds his street changed."]],
}


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_prompt_shows_problem_context_and_path(domain):
    task = HANDS[domain.kind].model_copy(update={"context": "an earlier lesson"})
    for path in PATHS[domain.kind]:
        step = "6 * 5 = 30 (left: 6 30)" if domain.kind == "game24" else "so three have 24"
        prompts = [
            task.domain.sample_prompt(task, path),
            task.domain.propose_prompt(task, path, 3),
            task.domain.value_prompt(task, [*path, step]),
            task.domain.judge_prompt(task, [*path, step]),
            task.domain.vote_prompt(task, [[*path, step], [*path, "another"]]),
            task.domain.joint_prompt(task, path, [step, "another"]),
            task.domain.answer_prompt(task, False),
            task.domain.answer_prompt(task, True),
        ]
        for prompt in prompts:
            assert task.question in prompt
            assert "an earlier lesson" in prompt
        for prompt in prompts[:6]:
            assert all(text in prompt for text in path)
        assert all(step in prompt for prompt in prompts[2:6])


@pytest.mark.parametrize("domain", DOMAINS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=300), path=st.lists(st.text(max_size=40), max_size=4))
def test_its_readers_survive_any_text(domain, text, path):
    task = HANDS[domain.kind]
    known = task.domain
    assert known.read_sample(task, path, text) is None or known.read_sample(task, path, text).strip()
    assert all(known.read_proposals(task, path, text))
    top = max(known.value_labels.values(), default=1.0)
    assert known.read_value(text) is None or 0 <= known.read_value(text) <= top
    assert known.read_vote(text, 3) in (None, 0, 1, 2)
    assert len(known.read_joint(text, 3)) == 3
    assert known.complete(task, path) in (None, True, False)
    hash(known.state(task, path))
    answer = known.answer(task, path)
    assert answer is None or known.grade(task, answer) in (None, 0.0, 1.0)
    known.grade(task, text)
    hash(known.same(task, text))


@pytest.mark.parametrize("domain", DOMAINS)
@settings(max_examples=60, deadline=None)
@given(path=st.lists(st.text(max_size=40), max_size=4))
def test_it_can_be_asked_what_is_solvable_of_any_path(domain, path):
    task = HANDS[domain.kind]
    assert task.domain.solvable(task, path) in (None, True, False)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("generate", ["sample", "propose"])
def test_a_search_goes_on_in_the_middle_as_it_would_from_the_root(domain, generate):
    """Every prompt, reading and answer is that of the whole path."""
    task = HANDS[domain.kind]
    lab = tl.Lab(f"sim/{domain.kind}", runs=None)
    whole = wait(lab.run(tl.TreeOfThoughts(generate=generate, solved_threshold=None), task))
    first = whole.tree.root.children[0]
    further = tl.TreeOfThoughts(generate=generate, max_depth=2, solved_threshold=None)
    made = wait(lab.branch(whole, first, strategy=further))
    assert len(made.tree) > 3
    known = {call.prompt for call in whole.events if isinstance(call, Call) and call.at == first}
    asked = {call.prompt for call in made.events if isinstance(call, Call) and call.at == first}
    assert asked <= known
    held = task.domain.answer(task, made.steps(made.best.id)) if made.best else None
    assert made.answer == (held or "")


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_comes_back(domain):
    task = HANDS[domain.kind]
    assert tl.part_of(json.loads(json.dumps(task.domain.settings()))) == task.domain


# Models.

SIMULATED = [model for model in MODELS if issubclass(model, Simulated)]
ENDPOINTS = [
    tl.LiteLLM(model="gpt-4.1-mini"),
    tl.LiteLLM(model="ollama/qwen3:8b", api_base="http://localhost:11434", context_window=8192),
    tl.Local(weights="smollm2-135m"),
]


def test_every_model_is_simulated_or_an_endpoint():
    assert {*SIMULATED, *map(type, ENDPOINTS)} == set(MODELS)


@pytest.mark.parametrize("model", ENDPOINTS, ids=lambda model: model.name)
def test_an_endpoint_is_known_by_what_can_change_its_answers(model):
    again = tl.part_of(json.loads(json.dumps(model.settings())))
    assert isinstance(again, Endpoint)
    assert again.identity() == model.identity() == json.loads(json.dumps(model.identity()))
    gentler = model.model_copy(update={"concurrency": 3, "retries": 0, "requests_per_minute": 9})
    assert gentler.identity() == model.identity()
    assert model.name in str(model.identity())


@pytest.mark.parametrize("model", SIMULATED)
def test_a_model_answers_any_call_the_same_way_each_time(model):
    made = tl.part_of({"kind": model.kind})
    for prompt in [
        "",
        "What is this?",
        tl.game24("4 5 6 10").domain.sample_prompt(tl.game24("4 5 6 10"), []),
    ]:
        call = Call("0", "sample", (Message("user", prompt),))
        first, again = wait(made(call)), wait(tl.part_of({"kind": model.kind})(call))
        assert isinstance(first, Reply)
        assert first == again
        assert first.error is None
        assert first.input_tokens is not None
    assert tl.part_of(json.loads(json.dumps(made.settings()))) == made


@pytest.mark.parametrize("model", SIMULATED)
@pytest.mark.parametrize("field", ["draw", "attempt", "repeat"])
def test_a_further_sample_is_another_one(model, field):
    made = tl.part_of({"kind": model.kind})
    task = HANDS[model.kind.removeprefix("sim/")]
    message = (Message("user", task.domain.sample_prompt(task, [])),)
    numbers = [(k,) for k in range(8)] if field == "attempt" else range(8)
    calls = [Call("0", "sample", message, **{field: number}) for number in numbers]
    assert len({wait(made(call)).text for call in calls}) > 1
    cold = [Call("0", "sample", message, temperature=0, **{field: number}) for number in numbers]
    assert len({wait(made(call)).text for call in cold}) == 1


# Figures.


def own_search() -> tl.Run:
    with tl.Recorder("own") as recorder:
        root = recorder.thought("<b>problem</b>")
        step = recorder.thought("step", root)
        recorder.score(step, 0.5)
        recorder.decide(step, "kept")
    return recorder.run


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.__name__)
@pytest.mark.parametrize("strategy", MADE, ids=NAMES)
def test_every_figure_draws_every_strategy(figure, strategy):
    made = figure(run(strategy))
    assert isinstance(made, go.Figure)
    assert json.loads(made.to_json())["data"]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.__name__)
def test_every_figure_draws_what_a_person_recorded(figure):
    assert "<b>problem" not in figure(own_search()).to_json()
    simulated = wait(tl.Lab("sim/game24", runs=None).run(SEARCH, tl.game24("4 5 6 10")))
    assert "simulated" in figure(simulated).to_json()


def test_ids_say_whose_child_a_thought_is():
    assert parent_of("0.3.1") == "0.3"
    assert parent_of("0") is None
