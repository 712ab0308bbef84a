"""What every strategy, value of a search, domain, model and figure keeps, taken from the exports.

To add one, write its file, name it in its package's list, and run this file. What a strategy keeps is in
`tot_lab.testing`, for anybody's own too; one that cannot be made without settings (it wraps another) gets a
line in `support.SETTINGS`.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import DOMAINS, SMALL, STRATEGIES, mostly_nightly, wait
from support.contract import FIRST, HANDS, MADE, PATHS, every_strategy, in_lane, trial_of
from support.puzzle_tasks import MOVES, WORDS
from support.tiny_model import WEIGHTS

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.purposes import ROLES
from tot_lab.core.records import parent_of
from tot_lab.core.registry import built_in
from tot_lab.core.tools import asks_no_model
from tot_lab.domains.puzzles.player import SimPuzzle
from tot_lab.models.chat.served import ServedModel
from tot_lab.models.openai_compatible import OpenAIServer
from tot_lab.models.simulated import Simulated
from tot_lab.models.stack import Endpoint
from tot_lab.models.tiny.endpoint import Tiny
from tot_lab.testing import (
    PROMISES,
    bounds_its_calls,
    records_the_same_for_any_latency,
    survives_any_reply,
)
from tot_lab.views.figures import figures_of

# Strategies.


@pytest.mark.parametrize(
    ("promise", "strategy"),
    [
        pytest.param(
            promise,
            made,
            id=f"{promise.__name__}-{made.kind}-{k}",
            marks=in_lane(2 * (k >= len(STRATEGIES)) or promise not in FIRST),
        )
        for promise in PROMISES
        for k, made in enumerate(MADE)
    ],
)
def test_a_strategy_keeps(promise, strategy):
    """`make check` tries four promises of each strategy, `make test` all, and `make nightly` those of each
    value of tree search.
    """
    promise(trial_of(strategy))


@pytest.mark.nightly
@every_strategy("slow", "nightly")
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(st.text(), min_size=1, max_size=8))
def test_any_reply_is_survived_and_no_score_is_made_up(strategy, texts):
    survives_any_reply(trial_of(strategy), [texts])


@pytest.mark.nightly
@every_strategy("slow", "nightly")
def test_it_runs_without_tools(strategy):
    for promise in (bounds_its_calls, records_the_same_for_any_latency):
        promise(trial_of(strategy, tools=()))


def test_each_has_a_bound_on_its_calls():
    """A bound of `None` would break no promise."""
    assert [made.kind for made in MADE if made.max_calls(trial_of(made).task) is None] == []


@every_strategy()
def test_each_of_its_calls_belongs_to_a_role(strategy):
    made = trial_of(strategy).run()
    calls = [event for event in made.events if isinstance(event, tl.Call)]
    kinds = {call.purpose for call in calls if not asks_no_model(call)}
    assert kinds
    assert kinds <= {kind for kinds in ROLES.values() for kind in kinds}


NOT_BY_SCORE = (tl.answers.Deepest, tl.answers.MajorityVote, tl.answers.FirstComplete)

BY_SCORE = [
    made
    for made in MADE
    if isinstance(made, tl.TreeOfThoughts | tl.BestOf)
    and not isinstance(getattr(made, "answer", None), NOT_BY_SCORE)
]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", mostly_nightly(BY_SCORE, BY_SCORE[::4]), ids=lambda made: made.kind)
def test_where_the_answer_is_chosen_by_score_one_of_1_is_not_passed_over(strategy):
    trial = trial_of(strategy)
    whole = trial.run()
    for node in (node for node in whole.tree if node.by and node.text != whole.question):
        assert wait(trial.lab().branch(whole, node.id, score=1.0)).score == 1.0


# Domains.

PLAYED_BY = {
    "word_sums": "sim/agent",
    "multi_hop": "sim/agent",
    "open_ended": "sim/general",
    "gym": "sim/general",
}
PLAYED_BY |= {kind: SimPuzzle(words=WORDS) for kind in MOVES}
"""Which model knows a domain, where it is not called like it."""


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
def test_what_siblings_share_stands_first_and_the_candidate_last(domain):
    """So that a server reads the rules, the problem and the steps before it once for all siblings."""
    task = HANDS[domain.kind].model_copy(update={"context": "an earlier lesson"})
    ask = task.domain
    path = PATHS[domain.kind][1]
    steps = {
        "game24": ("6 * 5 = 30 (left: 6 30)", "5 + 6 = 11 (left: 6 11)"),
        "mini_crossword": tuple(f"h3. {w} (grid: _____ polar {w} _____ _____)" for w in ("apple", "eagle")),
    }.get(domain.kind, ("a spider spins", "two beetles fly"))
    pairs = {
        "value": [ask.value_prompt(task, [*path, step]) for step in steps],
        "judge": [ask.judge_prompt(task, [*path, step]) for step in steps],
        "joint": [ask.joint_prompt(task, path, pair) for pair in (steps, steps[::-1])],
        "vote": [ask.vote_prompt(task, [[*path, s] for s in pair]) for pair in (steps, steps[::-1])],
    }
    for kind, (one, other) in pairs.items():
        same = next(k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        shared = one[:same]
        assert task.question in shared, kind
        assert "an earlier lesson" in shared, kind
        assert kind == "vote" or path[-1] in shared, kind
        rest = f"{one[same:]}\n{other[same:]}"
        left = [line for line in rest.split("\n") if not any(s in line or line in s for s in (*path, *steps))]
        assert not [line for line in left if len(line) > 20], (kind, "words of ours behind the candidate")


@pytest.mark.nightly
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
    assert len(known.read_joint(text, ["a", "b", "c"])) == 3
    assert known.complete(task, path) in (None, True, False)
    hash(known.state(task, path))
    answer = known.answer(task, path)
    grade = None if answer is None else known.grade(task, answer)
    assert grade is None or 0 <= grade <= 1
    known.grade(task, text)
    hash(known.same(task, text))


@pytest.mark.nightly
@pytest.mark.parametrize("domain", DOMAINS)
@settings(max_examples=60, deadline=None)
@given(path=st.lists(st.text(max_size=40), max_size=4))
def test_it_can_be_asked_what_is_solvable_of_any_path(domain, path):
    task = HANDS[domain.kind]
    assert task.domain.solvable(task, path) in (None, True, False)


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("generate", ["sample", "propose"])
def test_a_search_goes_on_in_the_middle_as_it_would_from_the_root(domain, generate):
    """Every prompt, reading and answer is that of the whole path."""
    task = HANDS[domain.kind]
    lab = tl.Lab(PLAYED_BY.get(domain.kind, f"sim/{domain.kind}"), runs=None)
    whole = wait(lab.run(tl.TreeOfThoughts(propose=generate, stop=tl.Stop(solved=None)), task))
    first = next(child for child in whole.tree.root.children if whole.tree[child].children)
    further = tl.TreeOfThoughts(propose=generate, stop=tl.Stop(depth=2, solved=None))
    made = wait(lab.branch(whole, first, strategy=further))
    assert len(made.tree) > 3
    known = {call.prompt for call in whole.events if isinstance(call, Call) and call.node == first}
    asked = {call.prompt for call in made.events if isinstance(call, Call) and call.node == first}
    assert asked <= known
    held = task.domain.answer(task, made.steps(made.best.id)) if made.best else None
    assert made.answer == (held or "")


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_comes_back(domain):
    task = HANDS[domain.kind]
    assert tl.part_of(json.loads(json.dumps(task.domain.settings()))) == task.domain


# Models.

MODELS = list(dict.fromkeys(built_in("models").values()))
SIMULATED = [model for model in MODELS if issubclass(model, Simulated)]
ENDPOINTS = [
    tl.LiteLLM(model="gpt-4.1-mini"),
    tl.LiteLLM(model="ollama/qwen3:8b", api_base="http://localhost:11434", context_window=8192),
    tl.Local(weights="smollm2-135m"),
]
ENDPOINTS += [Tiny(weights=str(WEIGHTS))]
ENDPOINTS += [kind(model="m", revision="4f2a") for kind in MODELS if issubclass(kind, ServedModel)]
OWN_URL = [OpenAIServer(model="openai/m", base_url="http://a/v1")]  # openai/… with a base URL


def test_every_model_is_simulated_or_an_endpoint():
    assert {*SIMULATED, *map(type, ENDPOINTS)} == set(MODELS)


@pytest.mark.parametrize("model", [*ENDPOINTS, *OWN_URL], ids=lambda model: f"{model.kind} {model.name}")
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


@pytest.mark.slow
@pytest.mark.parametrize("model", SIMULATED)
@pytest.mark.parametrize("field", ["sample_index", "attempt", "repeat"])
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


@pytest.mark.slow
@pytest.mark.parametrize("figure", figures_of("run"), ids=lambda figure: figure.__name__)
def test_every_figure_draws_what_a_person_recorded(figure):
    assert "<b>problem" not in figure(own_search()).to_json()
    simulated = wait(tl.Lab("sim/game24", runs=None).run(SMALL, tl.game24("4 5 6 10")))
    assert "simulated" in figure(simulated).to_json()


def test_ids_say_whose_child_a_thought_is():
    assert parent_of("0.3.1") == "0.3"
    assert parent_of("0") is None
