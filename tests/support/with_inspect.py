"""Tests that need Inspect. `interop/nightly/test_inspect.py` runs each in an environment that holds it:
`python -m pytest --noconftest tests/support/with_inspect.py`.
"""

import asyncio
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import pytest
from inspect_ai import Task, eval, task
from inspect_ai.analysis import events_df, samples_df
from inspect_ai.approval import Approval, ApprovalPolicy, approver
from inspect_ai.dataset import Sample
from inspect_ai.event import event_tree
from inspect_ai.log import list_eval_logs, read_eval_log, transcript
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.scorer import (
    Score,
    accuracy,
    answer,
    choice,
    exact,
    includes,
    match,
    model_graded_qa,
    pattern,
    perplexity,
    scorer,
)
from inspect_ai.solver import prompt_template, system_message, use_tools
from inspect_ai.tool import tool
from inspect_ai.util import TokenLimit, sandbox

import tot_lab as tl
from tot_lab.core.registry import built_in

# A model whose replies a function chooses, and an evaluation with it.


class Answering:
    """The model `chosen/…`: `reply(prompt, k)` answers the k-th call with that prompt in its sample."""

    reply = None
    asked = 0
    at_once = most_at_once = 0
    counts: dict = {}

    @classmethod
    def by(cls, reply):
        cls.reply, cls.asked, cls.at_once, cls.most_at_once, cls.counts = staticmethod(reply), 0, 0, 0, {}


@modelapi(name="chosen")
class Chosen(ModelAPI):
    async def generate(self, input, tools, tool_choice, config):
        sample = transcript()
        _, counts = Answering.counts.setdefault(id(sample), (sample, Counter()))
        prompt = "\n\n".join(message.text for message in input)
        counts[prompt] += 1
        Answering.asked += 1
        Answering.at_once += 1
        Answering.most_at_once = max(Answering.most_at_once, Answering.at_once)
        try:
            made = Answering.reply(prompt, counts[prompt] - 1)
            made = await made if asyncio.iscoroutine(made) else made
        finally:
            Answering.at_once -= 1
        if isinstance(made, ModelOutput):
            return made
        text, prompt_tokens, tokens = (
            made if isinstance(made, tuple) else (made, len(prompt) // 4, len(made) // 4)
        )
        output = ModelOutput.from_content("chosen/model", text)
        output.usage = ModelUsage(
            input_tokens=prompt_tokens, output_tokens=tokens, total_tokens=prompt_tokens + tokens
        )
        return output


def evaluated(folder, solver, samples=None, *, score=includes, reply=None, **options):
    """Return the log of an evaluation with one task."""
    if reply is not None:
        Answering.by(reply)
    samples = samples or [Sample(input="What is 6 * 7?", target="42")]
    made = Task(name="sums", dataset=samples, solver=solver, scorer=score())
    (log,) = eval(made, model="chosen/model", log_dir=str(folder), display="none", **options)
    return log


def sums(prompt, k):
    """Replies of a model that knows the answer at once, and can go on thinking for long."""
    if "Candidate" in prompt:
        return "score: 0.9" if "Answer: 42" in prompt else "score: 0.6"
    return "Answer: 42" if k == 0 else f"Step {k}: six times seven."


TREE = tl.TreeOfThoughts(
    propose=tl.Sample(count=3), search=tl.BeamSearch(width=2), stop=tl.Stop(depth=4, solved=None)
)


def shape(run):
    return [(node.id, node.parent, node.text, node.score, node.state) for node in run.tree]


# A strategy as a solver.

PUZZLES = ["4 9 10 13", "1 4 8 11", "1 1 4 6", "2 3 5 12", "3 3 8 8", "1 5 5 5", "2 7 8 9", "4 4 10 10"]
STRATEGIES = [
    *(
        tl.TreeOfThoughts(propose=propose, evaluate=evaluate, search=search, stop=tl.Stop(depth=3))
        for propose, evaluate, search in product(
            [tl.Propose(count=3), tl.Sample(count=2)],
            [tl.Value(samples=2), tl.Vote(samples=2), "joint"],
            [tl.BeamSearch(width=2), tl.BestFirst(), tl.DepthFirst()],
        )
    ),
    tl.TreeOfThoughts(search=tl.MCTS(iterations=4), propose=tl.Propose(count=2)),
    tl.OneAnswer(),
    tl.ChainOfThought(),
    tl.SelfConsistency(attempts=3),
    tl.BestOf(strategy=tl.ChainOfThought(), attempts=2),
    tl.methods.SelfRefine(),
    tl.TreeOfThoughts(search=tl.searches.REBASE(), propose=tl.Sample(count=3)),
]


@scorer(metrics=[accuracy()])
def solved():
    async def score(state, target):
        return Score(value=tl.game24(state.input_text).grade(state.output.completion))

    return score


def test_a_solver_makes_the_runs_that_a_lab_makes(tmp_path):
    """200 runs: the same prompts as often, answers, grades, calls, tokens and thoughts."""
    assert len(STRATEGIES) * len(PUZZLES) == 200
    for number, strategy in enumerate(STRATEGIES):
        said = defaultdict(list)
        player = tl.sim.SimGame24(skill=0.6)

        async def model(call, said=said, player=player):
            reply = await player(call)
            said[call.prompt].append((reply.text, reply.input_tokens, reply.output_tokens))
            return tl.Reply(reply.text, None, None, None, reply.input_tokens, reply.output_tokens)

        async def reference(strategy=strategy, model=model):
            lab = tl.Lab(model, runs=None)
            return [await lab.run(strategy, tl.game24(puzzle)) for puzzle in PUZZLES]

        runs = asyncio.run(reference())
        log = evaluated(
            tmp_path / str(number),
            tl.inspect.think(strategy, task=tl.game24),
            [Sample(input=puzzle, target="24", id=puzzle) for puzzle in PUZZLES],
            score=solved,
            reply=lambda prompt, k, said=said: said[prompt][k],
        )
        assert log.status == "success", log.error
        read = {run.question: run for run in tl.load(log.location)}
        by_id = {sample.id: sample for sample in log.samples}
        for run in runs:
            sample, again = by_id[run.question], read[run.question]
            about = (strategy, run.question)
            assert sample.output.completion == run.answer, about
            assert sample.scores["solved"].value == run.grade == again.grade, about
            usage = sample.model_usage["chosen/model"]
            assert usage.input_tokens == run.usage.input_tokens == again.usage.input_tokens, about
            assert usage.output_tokens == run.usage.output_tokens == again.usage.output_tokens, about
            calls = sum(event.event == "model" for event in sample.events)
            assert calls == run.usage.calls == again.usage.calls == sample.metadata["tot_lab"]["calls"], about
            assert shape(again) == shape(run), about
            assert again.stop_reason == run.stop_reason, about


@pytest.mark.parametrize("name", sorted(built_in("strategies")))
def test_every_strategy_is_a_solver(tmp_path, name):
    """Whatever the model replies, tools and schemas included. All calls are in the log, and read back."""
    kind = built_in("strategies")[name]
    inner = {"strategy": tl.ChainOfThought()} if kind.model_fields.get("strategy") else {}

    def reply(prompt, k):
        return 'Answer: 42\nscore: 0.5\n{"answer": "42"}'

    log = evaluated(tmp_path, [use_tools(add_up()), tl.inspect.think(kind(**inner))], reply=reply)
    (sample,) = log.samples
    assert sample.error is None
    run = tl.load(log.location)[0]
    assert run.usage.calls == sample.metadata["tot_lab"]["calls"] == Answering.asked > 0
    assert run.answer == sample.output.completion
    assert run.usage.input_tokens == sample.model_usage["chosen/model"].input_tokens


def calls_in(run):
    """Purposes and prompts of the calls, and the texts of their replies, functions included."""
    calls = [(e.purpose, e.prompt) for e in run.events if isinstance(e, tl.Call)]
    return calls + [("reply", e.text) for e in run.events if isinstance(e, tl.Reply)]


def longest(task, paths):
    return [min(len(path[-1]) / 100, 1.0) for path in paths]


def test_what_functions_answer_is_read_back_too(tmp_path):
    search = TREE.with_(evaluate=longest)
    log = evaluated(tmp_path / "solver", tl.inspect.think(search, runs=tmp_path / "runs"), reply=sums)
    mine = tl.load(log.samples[0].metadata["tot_lab"]["journal"])
    (run,) = tl.load(log.location)
    assert shape(run) == shape(mine)
    assert calls_in(run) == calls_in(mine)
    assert "evaluate" in {purpose for purpose, _ in calls_in(mine)}

    async def model(call):
        return sums(call.prompt, call.sample_index)

    sweep = asyncio.run(tl.Lab(model, runs=None).sweep(search, tl.general("What is 6 * 7?")))
    (path,) = sweep.save_inspect(tmp_path / "logs")
    (run,), (mine,) = tl.load(path), sweep.runs()
    assert shape(run) == shape(mine)
    assert calls_in(run) == calls_in(mine)


def test_thoughts_are_spans_with_their_scores_and_calls(tmp_path):
    (sample,) = evaluated(tmp_path, tl.inspect.think(TREE), reply=sums).samples
    spans = [event for event in sample.events if event.event == "span_begin"]
    thoughts = {event.id: event for event in spans if event.type == "thought"}
    by_name = {event.name.split()[0]: event for event in thoughts.values()}
    assert thoughts[by_name["0.1"].parent_id].name.split()[0] == "0"
    assert by_name["0"].parent_id not in thoughts
    parents = {event.id: event.parent_id for event in spans}
    for event in sample.events:
        if event.event == "model":  # in the span of the call, in that of the thought
            assert parents[event.span_id] in thoughts
    scores = [
        event.data["e"]["score"]
        for event in sample.events
        if event.event == "info" and event.source == "tot_lab" and event.data["e"]["type"] == "scored"
    ]
    assert set(scores) == {0.6, 0.9, 1.0}  # that of the question
    open_spans = Counter(event.id for event in spans)
    assert open_spans == Counter(event.id for event in sample.events if event.event == "span_end")


@pytest.mark.parametrize(("limit", "stop"), [("token_limit", "tokens"), ("turn_limit", "calls")])
def test_the_search_stops_before_a_limit_of_inspect(tmp_path, limit, stop):
    (whole,) = evaluated(tmp_path, tl.inspect.think(TREE), reply=sums).samples
    spent = {
        "token_limit": lambda sample: sample.model_usage["chosen/model"].total_tokens,
        "turn_limit": lambda sample: Answering.asked,
    }[limit]
    most = spent(whole) // 2
    log = evaluated(tmp_path, tl.inspect.think(TREE), reply=sums, **{limit: most})
    (sample,) = log.samples
    assert log.status == "success"
    assert sample.limit is None
    assert sample.output.completion == "42"
    assert sample.metadata["tot_lab"]["stop_reason"] == f"budget:{stop}"
    assert 0.8 * most < spent(sample) <= most
    assert log.results.scores[0].metrics["accuracy"].value == 1


def test_the_search_stops_before_a_limit_on_time(tmp_path):
    async def slow(prompt, k):
        await asyncio.sleep(1)
        return sums(prompt, k)

    (sample,) = evaluated(tmp_path, tl.inspect.think(TREE), reply=slow, time_limit=4).samples
    assert sample.limit is None
    assert sample.metadata["tot_lab"]["stop_reason"] == "budget:seconds"
    assert sample.output.completion == "42"


@pytest.mark.parametrize(
    "limit", [{"token_limit": TokenLimit(tokens=1200, type="input + output")}, {"working_limit": 1}]
)
def test_a_limit_that_no_budget_stands_for_ends_the_run_with_the_best_answer(tmp_path, limit):
    async def reply(prompt, k):
        if "working_limit" in limit:
            await asyncio.sleep(0.45)
        return sums(prompt, k)

    log = evaluated(tmp_path, tl.inspect.think(TREE, runs=tmp_path / "runs"), reply=reply, **limit)
    (sample,) = log.samples
    assert sample.limit.type == next(iter(limit)).removesuffix("_limit")
    assert sample.output.completion == "42"
    assert sample.metadata["tot_lab"]["stop_reason"] == "cancelled"
    assert Answering.at_once == 0
    run = tl.load(sample.metadata["tot_lab"]["journal"])
    assert (run.stop_reason, run.answer) == ("cancelled", "42")


def test_samples_of_a_prompt_are_cached_each_for_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("INSPECT_CACHE_DIR", str(tmp_path / "cache"))

    def many(prompt, k):
        return "score: 0.6" if "score:" in prompt else f"Answer: {40 + k}"

    strategy = tl.SelfConsistency(attempts=4)
    runs = []
    for _ in range(2):
        log = evaluated(tmp_path / "logs", tl.inspect.think(strategy), reply=many, cache=True, epochs=2)
        runs.append((Answering.asked, [shape(run) for run in tl.load(log.location)]))
    (asked, first), (again, second) = runs
    assert asked == 8
    assert again == 0
    assert first == second
    assert len({text for _, _, text, *_ in first[0]}) >= 4
    cached = [event.cache for event in log.samples[0].events if event.event == "model"]
    assert cached == ["read"] * 4
    assert [run.usage.paid for run in tl.load(log.location)] == [0.0, 0.0]
    evaluated(tmp_path / "logs", tl.inspect.think(strategy), reply=many)
    assert Answering.asked == 4  # without a cache


def test_no_more_calls_at_once_than_inspect_has_connections(tmp_path):
    async def slow(prompt, k):
        await asyncio.sleep(0.01)
        return sums(prompt, k)

    evaluated(tmp_path, tl.inspect.think(tl.SelfConsistency(attempts=8)), reply=slow, max_connections=2)
    assert Answering.most_at_once == 2


# Tools.


@tool
def add_up():
    async def execute(x: int, y: int):
        """Add two numbers.

        Args:
            x: First.
            y: Second.
        """
        return str(x + y)

    return execute


def calls_add_up(prompt, k):
    if "44" in prompt or "so it was decided" in prompt:
        return f"Answer: {'44' if '44' in prompt else 'unknown'}"
    output = ModelOutput.for_tool_call("chosen/model", "add-up", {"x": 40, "y": 4})
    output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    return output


def approving(decision):
    @approver
    def decided():
        async def approve(message, call, view, history):
            return Approval(decision=decision, explanation="so it was decided")

        return approve

    return [ApprovalPolicy(decided(), "add_up")]


@pytest.mark.parametrize("decision", ["approve", "reject", "terminate"])
def test_tools_run_by_inspect_with_its_approval(tmp_path, decision):
    solver = [use_tools(add_up()), tl.inspect.think(tl.ReAct())]
    samples = [Sample(input="What is 40 and 4?", target="44")]
    log = evaluated(tmp_path, solver, samples, reply=calls_add_up, approval=approving(decision))
    (sample,) = log.samples
    approvals = [event.decision for event in sample.events if event.event == "approval"]
    assert approvals == [decision]
    events = [event for event in sample.events if event.event == "tool"]
    if decision == "approve":
        assert sample.output.completion == "44"
        assert [(event.function, event.arguments, event.result) for event in events] == [
            ("add_up", {"x": 40, "y": 4}, "44")
        ]
        (run,) = tl.load(log.location)
        assert run.tools_df()[["tool", "result"]].values.tolist() == [["add-up", "44"]]
    elif decision == "reject":
        assert sample.limit is None
        assert "44" not in sample.output.completion
    else:
        assert sample.limit.type == "operator"


# What a sample asks.


def test_a_sample_with_choices_is_answered_with_one(tmp_path):
    samples = [
        Sample(input="2 + 2?", choices=["3", "4", "5"], target="B", id="right"),
        Sample(input="3 + 3?", choices=["6", "7"], target="A", id="wrong"),
    ]

    def reply(prompt, k):
        assert "(A) " in prompt
        return "I think.\nAnswer: B"

    log = evaluated(tmp_path, tl.inspect.think(tl.ChainOfThought()), samples, score=choice, reply=reply)
    assert {s.id: s.scores["choice"].value for s in log.samples} == {"right": "C", "wrong": "I"}


def test_messages_before_the_question_are_in_its_prompt(tmp_path):
    prompts = []

    def reply(prompt, k):
        prompts.append(prompt)
        return "Answer: 42"

    samples = [
        Sample(
            input=[
                ChatMessageUser(content="Let x be 6."),
                ChatMessageAssistant(content="Noted."),
                ChatMessageUser(content="What is 7 x?"),
            ],
            target="42",
        )
    ]
    solver = [
        system_message("Be brief."),
        prompt_template("{prompt} Think hard."),
        tl.inspect.think(tl.OneAnswer()),
    ]
    log = evaluated(tmp_path, solver, samples, reply=reply)
    (prompt,) = prompts
    assert prompt.startswith("Be brief.")
    for part in ("Let x be 6.", "Noted.", "What is 7 x? Think hard."):
        assert part in prompt
    assert log.samples[0].messages[-1].text == "42"
    image = [Sample(input=[ChatMessageUser(content=[ContentImage(image="data:image/png;base64,AA==")])])]
    log = evaluated(tmp_path, tl.inspect.think(tl.OneAnswer()), image, reply=reply)
    assert "a sample must contain only text: got a message with image" in log.error.message


def test_a_run_whose_calls_all_fail_is_an_error(tmp_path):
    def fails(prompt, k):
        raise ValueError("no such model")

    log = evaluated(tmp_path, tl.inspect.think(TREE), reply=fails, fail_on_error=False)
    (sample,) = log.samples
    assert "no such model" in sample.error.message


def test_some_calls_may_fail(tmp_path):
    def fails(prompt, k):
        if k == 1:
            raise ValueError("overloaded")
        return sums(prompt, k)

    (sample,) = evaluated(tmp_path, tl.inspect.think(TREE), reply=fails).samples
    assert sample.error is None
    assert sample.output.completion == "42"


def test_a_strategy_must_not_call_another_model():
    judged = tl.TreeOfThoughts(evaluate=tl.evaluators.RewardModel(model="tei_rerank/judge"))
    with pytest.raises(ValueError, match=r"got the models \['tei_rerank/judge'\]"):
        tl.inspect.think(judged)


def test_trio_is_refused(tmp_path):
    code = """
import tot_lab as tl
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
(log,) = eval(Task(dataset=[Sample(input="1")], solver=tl.inspect.think("one_answer")), model="mockllm/model",
              display="none", log_dir="logs")
print(log.error.message)
"""
    environment = {**os.environ, "INSPECT_ASYNC_BACKEND": "trio"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tl.inspect.think requires asyncio" in done.stdout, done.stderr


# Tasks of Inspect.

TWO = [
    Sample(input="What is 2 + 2?", target="4", id="two"),
    Sample(
        input=[ChatMessageSystem(content="Be brief."), ChatMessageUser(content="Half of 1?")], target="0.5"
    ),
]


@task
def small_sums():
    return Task(dataset=TWO, scorer=match(numeric=True))


@pytest.mark.parametrize(
    ("make", "right", "wrong"),
    [
        (lambda: match(numeric=True), ["4", "It is 4", "4.0"], ["5", ""]),
        (includes, ["4", "the 4"], ["5"]),
        (lambda: answer("line"), ["4"], ["5"]),
        (lambda: answer("word"), ["4"], ["5"]),
        (exact, ["4"], ["four"]),
        (lambda: pattern(r"ANSWER:\s*(\d+)"), ["4"], ["5"]),
        (lambda: pattern(r"^(\d+)$"), ["4"], ["5"]),
    ],
)
def test_a_scorer_of_inspect_grades_answers(make, right, wrong):
    first, second = tl.tasks(Task(dataset=TWO, scorer=make(), name="t"))
    assert (first.question, first.id, second.id) == ("What is 2 + 2?", "two", "2")
    assert (second.question, second.system_prompt) == ("Half of 1?", "Be brief.")
    assert [first.grade(text) for text in right] == [1.0] * len(right)
    assert [first.grade(text) for text in wrong] == [0.0] * len(wrong)
    assert first.hidden().grade(right[0]) is None  # a strategy must not see it


def test_choices_stay_with_their_samples():
    samples = [Sample(input="2 + 2?", choices=["3", "4"], target="B")]
    (made,) = tl.tasks(Task(dataset=samples, scorer=choice(), name="t"))
    assert "(B) 4" in made.question
    assert [made.grade(text) for text in ("B", "The answer is B", "A", "")] == [1.0, 1.0, 0.0, 0.0]


@scorer(metrics=[accuracy()])
def of_state():
    async def score(state, target):
        return Score(value=state.store.get("made by the solver")["value"])

    return score


@scorer(metrics=[accuracy()])
def in_sandbox():
    async def score(state, target):
        await sandbox().exec(["true"])
        return Score(value="C")

    return score


@scorer(metrics=[accuracy()])
def of_points():
    async def score(state, target):
        return Score(value=7)

    return score


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (of_state, "'of_state' cannot grade an answer: without the solver of its task it fails"),
        (in_sandbox, "'in_sandbox' cannot grade an answer: .*[Nn]o sandbox"),
        (of_points, "'of_points' .*must give one grade: got 7"),
        (perplexity, "'inspect_ai/perplexity' .*it needs more of the model's output"),
        (model_graded_qa, "'inspect_ai/model_graded_qa' .*Give the scorer a model with model="),
        (lambda: pattern(r"#### (\d+)"), "'inspect_ai/pattern' .*its pattern finds neither"),
    ],
)
def test_scorers_that_need_more_than_an_answer_are_refused_by_name(make, reason):
    with pytest.raises(ValueError, match=f"t: the scorer {reason}"):
        tl.tasks(Task(dataset=TWO, scorer=make(), name="t"))


def test_a_model_that_grades_is_asked_from_a_running_loop():
    Answering.by(lambda prompt, k: "GRADE: C" if "It is four" in prompt else "GRADE: I")
    made, _ = tl.tasks(Task(dataset=TWO, scorer=model_graded_qa(model=get_model("chosen/model")), name="t"))
    assert Answering.asked == 0  # not to try it

    async def graded():
        return [made.grade(text) for text in ("It is four", "It is five")]

    assert asyncio.run(graded()) == [1.0, 0.0]
    assert asyncio.run(graded()) == [1.0, 0.0]  # in another loop


def test_a_record_names_the_task_and_imports_nothing(tmp_path):
    async def model(call):
        return "Answer: 4"

    made = tl.tasks(small_sums())
    sweep = asyncio.run(tl.Lab(model, runs=tmp_path).sweep(tl.OneAnswer(), made))
    assert sweep.df()["score"].tolist() == [1.0, 0.0]
    run = next(sweep.runs())
    code = f"""
import sys, warnings
warnings.simplefilter("ignore")
import tot_lab as tl
run = tl.load({str(run.path)!r})
print(run.task.domain.task, run.task.domain.scorer, run.grade, "inspect_ai" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["small_sums", "inspect_ai/match", "None", "False"]
    with pytest.raises(ValueError, match="must be the only argument"):
        tl.tasks(small_sums(), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tl.load(run.path).grade is None


# Sweeps as logs.


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A sweep of searches in two settings, one of which a budget stops, and its logs."""
    lab = tl.Lab(tl.sim.SimGame24(skill=0.6), runs=tmp_path_factory.mktemp("runs"))
    settings = {
        "narrow/1": tl.TreeOfThoughts(search=tl.BeamSearch(width=1)),
        "wide": tl.TreeOfThoughts(search=tl.BeamSearch(width=3)),
    }
    sweep = asyncio.run(
        lab.sweep(settings, tl.game24_tasks(3), repeats=2, budget=tl.Budget(calls=25), name="games")
    )
    folder = tmp_path_factory.mktemp("logs")
    return sweep, folder, sweep.save_inspect(folder)


def test_a_log_per_setting_with_a_sample_per_run(saved):
    sweep, folder, paths = saved
    assert len(paths) == 2 == len(list_eval_logs(str(folder)))
    assert sweep.save_inspect(folder) == paths  # replaced
    assert len(list_eval_logs(str(folder))) == 2
    logs = [read_eval_log(str(path)) for path in paths]
    assert [log.eval.task for log in logs] == ["games narrow∕1", "games wide"]
    for log, label in zip(logs, sweep.settings, strict=True):
        table = sweep.df()
        rows = table[table["setting"] == label]
        assert log.status == "success"
        by_id = {sample.uuid: sample for sample in log.samples}
        samples = [by_id[id] for id in rows["run_id"]]
        runs = [sweep.run(id) for id in rows["run_id"]]
        assert [(s.id, s.epoch) for s in samples] == [(run.task.id, run.header.repeat + 1) for run in runs]
        assert [s.scores["grade"].value for s in samples] == rows["score"].tolist()
        metrics = log.results.scores[0].metrics
        means = rows.groupby("task_number")["score"].mean()
        assert metrics["accuracy"].value == pytest.approx(means.mean())
        assert metrics["stderr"].value == pytest.approx(means.std() / math.sqrt(3))
        usage = log.stats.model_usage["sim/game24"]
        assert usage.input_tokens == rows["input_tokens"].sum()
        assert usage.output_tokens == rows["output_tokens"].sum()
        for sample, run in zip(samples, runs, strict=True):
            assert sum(event.event == "model" for event in sample.events) == run.usage.calls
            assert sample.output.completion == run.answer
            stopped = run.stop_reason == "budget:calls"
            assert (sample.limit is not None) == stopped
            assert sample.limit is None or (sample.limit.type, sample.limit.limit) == ("turn", 25)
    assert any(sample.limit for log in logs for sample in log.samples)


def test_the_spans_of_a_log_are_the_tree(saved):
    sweep, _, paths = saved
    log = read_eval_log(str(paths[1]))
    sample, run = log.samples[0], sweep.run(log.samples[0].uuid)
    found = {}

    def walk(nodes, above):
        for node in nodes:
            if hasattr(node, "children"):
                inside = above
                if node.type == "thought":
                    inside = node.name.split()[0]
                    found[inside] = above
                walk(node.children, inside)
                assert "/" not in node.name

    walk(event_tree(sample.events), None)
    assert found == {node.id: node.parent for node in run.tree}
    times = [event.timestamp for event in sample.events if event.event != "span_end"]
    assert times == sorted(times)


def test_a_log_is_read_back_with_the_same_nodes(saved):
    sweep, _, paths = saved
    for path in paths:
        for run in tl.load(path):
            mine = sweep.run(run.id)
            assert shape(run) == shape(mine)
            assert run.usage == mine.usage
            assert (run.answer, run.grade, run.stop_reason) == (mine.answer, mine.grade, mine.stop_reason)
            assert run.header.repeat == mine.header.repeat
            assert run.simulated
            own = [event for event in mine.events if not isinstance(event, tl.Call)]
            assert [event for event in run.events if not isinstance(event, tl.Call)][: len(own)] == own


def test_the_frames_of_inspect_read_a_log(saved):
    sweep, folder, _ = saved
    samples, events = samples_df(str(folder)), events_df(str(folder))
    assert len(samples) == 12
    assert samples["score_grade"].sum() == sweep.df()["score"].sum()
    assert (events["event"] == "model").sum() == sweep.df()["calls"].sum()


def test_inspect_view_serves_a_log(saved):
    _, folder, paths = saved
    inspect = Path(sys.executable).with_name("inspect")
    command = [inspect, "view", "start", "--log-dir", str(folder), "--port", "7654", "--host", "127.0.0.1"]
    from urllib.error import URLError
    from urllib.request import urlopen

    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                listed = json.load(urlopen("http://127.0.0.1:7654/api/logs"))
                break
            except URLError:
                time.sleep(0.2)
        names = [each["name"] for each in listed["files"]]
        assert sorted(Path(name).name for name in names) == sorted(path.name for path in paths)
        for name in names:
            place = name.split("://")[-1]
            shown = json.load(urlopen(f"http://127.0.0.1:7654/api/logs/{place.replace('/', '%2F')}"))
            assert shown["eval"]["task"].startswith("games ")
    finally:
        process.terminate()
        process.wait()


def test_failed_and_unfinished_runs_are_visible(tmp_path):
    async def model(call):
        if "7" in call.prompt:
            raise ValueError("overloaded")
        if "8" in call.prompt:
            await asyncio.sleep(60)
        return "Answer: 4"

    lab = tl.Lab(model, runs=tmp_path / "runs")
    made = [tl.general(f"What is {n}?", answer=4, grade="number") for n in (4, 7, 8)]

    async def interrupted():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lab.sweep({"one": tl.OneAnswer()}, made), 2)

    asyncio.run(interrupted())
    (path,) = lab.last_sweep.save_inspect(tmp_path / "logs")
    log = read_eval_log(str(path))
    assert log.status == "cancelled"
    right, failed, cut = log.samples
    assert right.scores["grade"].value == 1
    assert failed.scores is None is cut.scores
    assert "overloaded" in failed.error.message
    assert cut.error.message == "The run was cancelled."
    assert (log.results.total_samples, log.results.completed_samples) == (3, 1)
    with pytest.raises(ValueError, match="a begun run"):
        tl.Sweep(lab.runner, tl.OneAnswer(), made, 1, "none", None, runs=None).save_inspect(tmp_path)


def test_the_tools_of_an_agent_are_in_the_log(tmp_path):
    lab = tl.Lab("sim/agent", tools=["multi_hop", "calculator"], runs=tmp_path / "runs")
    sweep = asyncio.run(lab.sweep({"agent": tl.ReAct(max_iterations=6)}, tl.domains.multi_hop_tasks(3)))
    (path,) = sweep.save_inspect(tmp_path / "logs")
    log = read_eval_log(str(path))
    runs = [sweep.run(sample.uuid) for sample in log.samples]
    calls = [len(run.tools_df()) for run in runs]
    assert [sum(event.event == "tool" for event in s.events) for s in log.samples] == calls
    assert sum(calls) > 2
    for run, again in zip(runs, tl.load(path), strict=True):
        assert shape(again) == shape(run)
        columns = ["node", "tool", "arguments", "result"]
        mine, read = run.tools_df(), again.tools_df()
        known = [name for name in columns if name in mine]
        assert read[known].values.tolist() == mine[known].values.tolist()
