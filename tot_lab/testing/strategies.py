"""The promises of a strategy: one function each, which raises an AssertionError if the strategy breaks it."""

from __future__ import annotations

import asyncio
import dis
import inspect
import json
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple, TypeVar

from tot_lab.analysis.rehearsal import carry_out
from tot_lab.core.calls import Call, Reply
from tot_lab.core.parts import Part, UserFunction, needs_functions, part_of, parts_in
from tot_lab.core.protocol import Budget, Procedure, gather, resample
from tot_lab.core.records import Event, Record, Thought, is_stop_code
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Domain, Task
from tot_lab.core.tools import TOOL, asks_no_model, is_of_function
from tot_lab.core.tree import Tree
from tot_lab.lab.lab import Lab
from tot_lab.record.importers import load
from tot_lab.record.run import Run
from tot_lab.runtime.branching import describe_change
from tot_lab.runtime.roles import thinking_of
from tot_lab.strategies.baselines import OneAnswer
from tot_lab.strategies.search import BeamSearch, Stop, TreeOfThoughts
from tot_lab.testing.model import HOSTILE, TASK, Scripted, answer_to, expect, legs, shuffled
from tot_lab.tools import Tool, Toolbox
from tot_lab.views.figures import figures_of

T = TypeVar("T")

SECONDS = 120.0
"""Time limit of one run. A strategy that does not end breaks its promise."""


def wait(thing: Awaitable[T]) -> T:
    """Return the result of an awaitable. Raises TimeoutError after `SECONDS`."""

    async def soon() -> T:
        return await asyncio.wait_for(thing, SECONDS)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(soon())
    with ThreadPoolExecutor(1) as apart:  # a notebook has a running event loop, in which another cannot run
        return apart.submit(asyncio.run, soon()).result()


_MODELS: Sequence[Sequence[str | Reply]] = [*([one] for one in HOSTILE), HOSTILE]


class Trial(NamedTuple):
    """A strategy under test, with its task, its model and its tools.

    Attributes:
        strategy: The strategy.
        task: The task that it is given.
        reply: Function that makes the replies of the model. They must depend on the call alone.
        tools: Tools of the lab.
    """

    strategy: Strategy
    task: Task = TASK
    reply: Callable[[Call], str | Reply] = answer_to
    tools: Sequence[Tool] = (legs,)

    def model(self, seed: int | None = None) -> Scripted:
        """Return a new model with these replies. A seed gives it random latencies."""
        return Scripted(self.reply, None if seed is None else shuffled(seed))

    def lab(self, model: Scripted | None = None, runs: Path | None = None) -> Lab:
        """Return a lab with these tools."""
        return Lab(model or self.model(), runs=runs, tools=self.tools)

    def run(self, model: Scripted | None = None, strategy: Strategy | None = None, **options: Any) -> Run:
        """Run the strategy once, in memory."""
        return wait(self.lab(model).run(strategy or self.strategy, self.task, **options))


HINT = (
    "The strategy may use random, time or the order of a set, which differs between processes. "
    "A search draws numbers with `yield state.random_numbers()`."
)


def expect_same(events: Sequence[Record], others: Sequence[Record], when: str) -> None:
    """Raise an AssertionError that shows the first difference of two records, if they differ."""
    for k, (one, other) in enumerate(zip(events, others, strict=False)):
        expect(one == other, f"the record differs {when}: record {k} was\n  {one}\nand is\n  {other}\n{HINT}")
    expect(
        len(events) == len(others),
        f"the record differs {when}: it had {len(events)} lines and has {len(others)}",
    )


def _thoughts_of(run: Run) -> list[str]:
    return [node.id for node in run.tree if node.text != run.question]


def _calls_of(run: Run) -> list[Call]:
    """Return the model calls of a run."""
    return [event for event in run.events if isinstance(event, Call) and not asks_no_model(event)]


class _Nested(Strategy):
    """A strategy that runs another strategy below its own root."""

    strategy: Strategy
    number: int = 3

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, None, "above")
        yield Thought(f"{at}.1", at, "beside")
        return (yield from self.strategy.think(task, f"{at}.{self.number}"))


class _Branches(Strategy):
    """A strategy that runs another strategy in several branches at once, each with its own samples."""

    strategy: Strategy
    numbers: tuple[int, ...]

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, None, "above")
        branches = [resample(k, self.strategy.think(task, f"{at}.{k}")) for k in self.numbers]
        answers = yield from gather(branches)
        return Answer(json.dumps([[one.text, one.stop_reason, one.node] for one in answers]), "answered")


# Promises of a strategy.


def uses_no_clock_and_no_random_numbers(trial: Trial) -> None:
    """The strategy's own code, and functions of its module which this code calls, use none of `UNRECORDED`.

    Functions whose results are recorded, such as an async evaluator, may use them, and so may tot_lab's code.
    """
    for part in parts_in(trial.strategy):
        for function in _own_functions(part):
            for code, module in _modules_used(function):
                expect(
                    module not in UNRECORDED,
                    f"line {code.co_firstlineno} of {Path(code.co_filename).name}, {code.co_name!r}, uses "
                    f"{module}, whose results are not recorded. A search draws numbers with "
                    "`yield state.random_numbers()`, and tl.Budget(seconds=…) limits time.",
                )


UNRECORDED = ("random", "numpy.random", "secrets", "uuid", "time", "datetime")
"""Modules whose results are not recorded, so that a replay would differ."""


def _own_functions(part: Part) -> Iterator[Callable[..., Any]]:
    """Yield the functions of a part, except those of tot_lab and those whose results are recorded."""
    if isinstance(part, UserFunction):
        recorded = inspect.iscoroutinefunction(part.wrapped) or "paths" in part.parameters
        if not recorded and inspect.isfunction(part.wrapped):
            yield part.wrapped
    elif not inspect.iscoroutinefunction(type(part).__call__):  # an async part is recorded
        for kind in type(part).__mro__:
            if kind.__module__.partition(".")[0] not in ("tot_lab", "pydantic"):
                yield from map(inspect.unwrap, filter(inspect.isfunction, vars(kind).values()))


def _modules_used(function: Callable[..., Any]) -> Iterator[tuple[CodeType, str]]:
    """Yield each code object of a function, and of functions of its module that it calls, with each module
    that the code uses.
    """
    known, waiting = {function}, [function]
    while waiting:
        function = waiting.pop()
        for code in _codes_in(function.__code__):
            for step in dis.get_instructions(code):
                if step.opname == "IMPORT_NAME":
                    yield code, step.argval
                if step.opname != "LOAD_GLOBAL":
                    continue
                value = function.__globals__.get(step.argval)
                if inspect.isfunction(value) and value.__module__ == function.__module__:
                    waiting += [] if value in known else [value]
                    known.add(value)
                elif value is not None:
                    module = _module_of(value)
                    if module == "numpy" and "random" in code.co_names:
                        module = "numpy.random"
                    yield code, module


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and the code objects of the functions and comprehensions inside it."""
    waiting = [code]
    while waiting:
        yield (code := waiting.pop())
        waiting.extend(inner for inner in code.co_consts if isinstance(inner, CodeType))


def _module_of(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    return getattr(value, "__module__", None) or type(getattr(value, "__self__", value)).__module__


def ends_with_a_stop_code(trial: Trial) -> None:
    """The strategy ends by itself, with one of the stop codes in `STOP_CODES`."""
    run = trial.run()
    expect(
        run.stop_reason is not None and is_stop_code(run.stop_reason),
        f"unknown stop code: got {run.stop_reason!r}",
    )


def records_the_same_for_any_latency(trial: Trial) -> None:
    """The record does not depend on the order in which replies arrive."""
    first = trial.run().events
    for seed in range(4):
        expect_same(first, trial.run(trial.model(seed)).events, "when replies arrive in another order")


def runs_beside_itself(trial: Trial) -> None:
    """If 24 branches of one run carry out the strategy at once, each gives the same record as alone."""
    together = trial.run(trial.model(6), _Branches(strategy=trial.strategy, numbers=tuple(range(24))))
    answers = json.loads(together.answer)
    for k in (0, 11, 23):
        alone = trial.run(strategy=_Branches(strategy=trial.strategy, numbers=(k,)))
        record = alone.events[1:-1]
        begin = together.events.index(record[0]) if record[0] in together.events else 0
        when = f"between branch {k} alone and beside 23 others"
        expect_same(record, together.events[begin : begin + len(record)], when)
        expect(
            [answers[k]] == json.loads(alone.answer),
            f"alone, branch {k} answers {json.loads(alone.answer)[0]}, and beside others {answers[k]}",
        )


def takes_new_samples_for_a_repeat(trial: Trial) -> None:
    """A repeat takes new samples, and the same repeat always gives the same record."""
    first = trial.run()
    again = trial.run(repeat=1).events
    expect_same(again, trial.run(repeat=1).events, "when the same repeat is run again")
    expect(again != first.events or not first.usage.calls, "a repeat took the same samples")


def bounds_its_calls(trial: Trial) -> None:
    """`max_calls` is an upper bound on the strategy's model calls, even if no reply is useful."""
    most = trial.strategy.max_calls(trial.task)
    if most is None:
        return
    for reply in (
        trial.reply,
        lambda call: "???",
        lambda call: "step" if call.purpose == "sample" else "???",
    ):
        model = Scripted(reply)
        trial.run(model)
        expect(len(model.calls) <= most, f"it made {len(model.calls)} calls, but max_calls is {most}")


def runs_at_another_id(trial: Trial) -> None:
    """Inside another strategy, the strategy first records its root at the given id, and all else below it.

    Several ids are tried, since the order of a set of ids depends on the ids.
    """
    alone = trial.run()
    for number in range(3, 8):
        _runs_at(trial, alone, number)


def _runs_at(trial: Trial, alone: Run, number: int) -> None:
    at = f"0.{number}"
    nested = trial.run(strategy=_Nested(strategy=trial.strategy, number=number))
    thoughts = [event for event in nested.events if isinstance(event, Thought)]
    expect(len(thoughts) > 2, "it recorded no thought")
    root = thoughts[2]
    expect((root.id, root.parent) == (at, "0"), f"its first thought at {at!r} is {root}")
    outside = [event.id for event in thoughts[2:] if not f"{event.id}.".startswith(f"{at}.")]
    expect(not outside, f"thoughts {outside} are not below {at!r}, the id that it was given")
    ids = ["0", "0.1", *(at + node.id[1:] for node in alone.tree)]
    expect([*nested.tree.nodes] == ids, f"at {at!r} its thoughts are {[*nested.tree.nodes]}. {HINT}")
    expect(nested.answer == alone.answer, f"its answer at {at!r} is {nested.answer!r}, not {alone.answer!r}")


def keeps_its_budget(trial: Trial) -> None:
    """A cap on calls is never exceeded, and always refuses the same calls. A run with a refused call ends
    with `budget:calls` or `solved`, unless the strategy reads the budget.
    """
    whole = trial.run()
    calls = whole.usage.calls
    reads_budget = any(
        isinstance(e, Call) and is_of_function(e) and e.purpose == "budget" for e in whole.events
    )
    for cap in {cap for cap in (0, 1, 2, calls // 2, calls - 1) if 0 <= cap < calls}:
        runs = []
        for seed in range(3):
            model = trial.model(seed)
            runs.append(trial.run(model, budget=Budget(calls=cap)))
            expect(len(model.calls) <= cap, f"it made {len(model.calls)} calls under a cap of {cap}")
            expect_same(runs[0].events, runs[-1].events, f"with another latency, under a cap of {cap} calls")
        expect(
            reads_budget or runs[0].stop_reason in ("budget:calls", "solved"),
            f"call {cap + 1} was refused, but it stopped with {runs[0].stop_reason!r}, not 'budget:calls'",
        )
    if reads_budget:
        return  # the run depends on the budget that is left
    enough = trial.run(budget=Budget(calls=calls))
    expect(
        enough.usage.calls == calls,
        f"it needs {calls} calls, but made {enough.usage.calls} under a cap of {calls}",
    )
    expect(
        enough.stop_reason == whole.stop_reason,
        f"under a cap that it did not reach, it stopped with {enough.stop_reason!r}",
    )


def can_be_cancelled_at_any_time(trial: Trial) -> None:
    """Cancelling ends the run. The record up to then is complete and replays."""
    whole = trial.run()

    async def cancelled_after(calls: int) -> Run:
        reached = asyncio.Event()

        def reply(call: Call) -> str | Reply:
            if len(model.calls) >= calls:
                reached.set()
            return trial.reply(call)

        model = Scripted(reply, latency=shuffled(calls))
        lab = trial.lab(model)
        running = asyncio.ensure_future(lab.run(trial.strategy, trial.task))
        waiting = asyncio.ensure_future(reached.wait())
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            stop = lab.last.stop_reason if lab.last else None
            expect(stop in ("cancelled", whole.stop_reason), f"when cancelled, it stopped with {stop!r}")
        assert lab.last is not None
        return lab.last

    for calls in {1, 2, whole.usage.calls // 2, whole.usage.calls}:
        cut = wait(cancelled_after(calls))
        expect(Tree.of(cut.events) == cut.tree, "its tree differs from the tree of its records")
        divergence = wait(cut.replay(trial.strategy, trial.task)).divergence
        expect(divergence is None, f"a run cancelled after {calls} calls does not replay: {divergence}")


def replays_and_resumes_from_any_line(trial: Trial) -> None:
    """A replay gives the same record. A run cut off after any line resumes without repeating a call."""
    with tempfile.TemporaryDirectory() as folder:
        whole = wait(trial.lab(trial.model(5), Path(folder)).run(trial.strategy, trial.task))
        path = whole.path
        assert path is not None
        replay = wait(load(path).replay(trial.strategy, trial.task))
        expect(replay.identical, f"it does not replay: {replay.divergence}")
        lines = path.read_bytes().splitlines(keepends=True)
        for cut in range(1, len(lines), max(1, len(lines) // 8)):
            torn = Path(folder) / f"cut-{cut}.jsonl"
            torn.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
            paid = load(torn).usage.calls
            model = trial.model()
            resumed = wait(trial.lab(model).resume(torn, strategy=trial.strategy, task=trial.task))
            expect_same(whole.events, resumed.events, f"when it resumes from line {cut}")
            left = whole.usage.calls - paid
            made = len(model.calls)
            expect(made == left, f"when it resumed from line {cut}, it made {made} calls instead of {left}")
            expect_same(whole.events, load(torn).events, f"in the file that was resumed from line {cut}")


def survives_any_reply(trial: Trial, replies: Sequence[Sequence[str | Reply]] = _MODELS) -> None:
    """No reply makes the strategy raise an exception, and a thought without a readable score has no score.

    Args:
        replies: The replies of several models. Each call gets one of a model's replies.
    """
    for texts in replies:
        _survives(trial, texts)


def _survives(trial: Trial, texts: Sequence[str | Reply]) -> None:
    model = f"a model that replies {str(texts[0])[:60]!r}" + (" and other texts" if len(texts) > 1 else "")
    try:
        run = trial.run(Scripted(lambda call: texts[(len(call.prompt) + call.sample_index) % len(texts)]))
    except Exception as error:
        raise AssertionError(f"with {model} it raised {type(error).__name__}: {error}") from error
    most, calls = trial.strategy.max_calls(trial.task), run.usage.calls
    expect(most is None or calls <= most, f"with {model} it made {calls} calls, but max_calls is {most}")
    for node in run.tree:
        score = node.score
        expect(
            score is None or 0 <= score <= 1,
            f"with {model} thought {node.id} has the score {score}, which is not from 0 to 1",
        )
        unreadable = bool(node.samples) and all(sample is None for sample in node.samples)
        expect(
            not unreadable or score is None,
            f"with {model} thought {node.id} has the score {score}, but no reply contained a score",
        )
    divergence = wait(run.replay(trial.strategy, trial.task)).divergence
    expect(divergence is None, f"with {model} the run does not replay: {divergence}")


def survives_a_model_that_fails(trial: Trial) -> None:
    """No failed call makes the strategy raise. If all calls fail, it ends with `error` and no answer."""

    def always(call: Call) -> str:
        raise ConnectionError("no route")

    def sometimes(call: Call) -> str | Reply:
        if len(call.prompt) % 3 == call.sample_index % 3:
            raise ConnectionError("no route")
        return trial.reply(call)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The model function failed", RuntimeWarning)
        failed, some = (trial.run(Scripted(model)) for model in (always, sometimes))
    if trial.run().usage.calls:
        expect(failed.usage.errors == failed.usage.calls > 0, "some calls of a failing model have no error")
        expect(
            failed.stop_reason == "error", f"every call failed, but it stopped with {failed.stop_reason!r}"
        )
        expect(failed.answer == "", f"every call failed, but it answered {failed.answer!r}")
    expect(
        some.stop_reason is not None and is_stop_code(some.stop_reason),
        f"some calls failed, and it stopped with the unknown stop code {some.stop_reason!r}",
    )


def can_be_driven_by_hand(trial: Trial) -> None:
    """The strategy's generator can be driven by hand, without an event loop, and gives the same answer."""
    whole = trial.run()
    results = {
        (call.model, call.prompt): reply
        for call, reply in zip(whole.events, whole.events[1:], strict=False)
        if isinstance(call, Call) and call.purpose == TOOL and isinstance(reply, Reply)
    }

    def reply(call: Call) -> Reply:
        got = results[call.model, call.prompt] if call.purpose == TOOL else trial.reply(call)
        return Reply(got) if isinstance(got, str) else got

    answer = carry_out(thinking_of(trial.strategy, whole.task or trial.task, {}), reply)
    expect(isinstance(answer, Answer), f"it must return an Answer: got {answer!r}")
    expect(
        (answer.text, answer.stop_reason) == (whole.answer, whole.stop_reason),
        f"driven by hand, it returned {answer}",
    )


def never_sees_the_reference(trial: Trial) -> None:
    """The strategy does not receive the reference answer of the task."""
    seen = []

    class _Spy(Strategy):
        def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
            seen.append(task.reference)
            return (yield from trial.strategy.think(task, at))

    trial.run(strategy=_Spy())
    expect(seen == [None], f"it received the reference {seen}")


def continues_with_a_changed_thought(trial: Trial) -> None:
    """If a user changes a thought (`lab.branch`), everything after it builds on the new text.

    A strategy must continue with the value that `emit(...)` returns. The new text is `CHANGED`, or that
    of another thought if the domain cannot read `CHANGED`. A thought for which both are impossible is
    skipped.
    """
    paths: list[tuple[str, list[str]]] = []
    spied = trial.task.model_copy(update={"domain": _spied(trial.task.domain, paths)})
    whole = trial._replace(task=spied).run()
    for node in _thoughts_of(whole):
        changed = _another_text(whole, node)
        if changed is None:
            continue
        old, model = whole.tree[node].text, trial.model()
        made_up = changed == CHANGED
        paths.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # `lab.branch` warns if the new text is not used
            made = wait(trial.lab(model).branch(whole, node, content=changed))
        expect(
            made.tree[node].text == changed,
            f"thought {node} should have the changed text: got {made.tree[node].text!r}",
        )
        if not made_up:
            _expect_no_prompt_of(whole.steps(node), made, paths)
        elsewhere = any(old in other.text for other in made.tree)
        below = (call for call in model.calls if f"{call.node}.".startswith(f"{node}."))
        for call in below if made_up else ():
            where = f"a {call.purpose} call for {call.node}, below the changed thought {node},"
            # A judge sees only the answer, a synthesis only what precedes the latest turn, and Deep Think's
            # later iterations only what a synthesis has made of the thought.
            way = made.tree.path(call.node) if call.node in made.tree else []
            made_anew = any(other.source for other in way if other.id.startswith(f"{node}."))
            apart = {
                "judge": call.node != node,
                "synthesize": call.node == node,
                **dict.fromkeys(("branch", "develop", "converge"), made_anew),
            }.get(call.purpose, False)
            expect(apart or "4711" in call.prompt, f"{where} lacks its text")
            shown = call.prompt.partition("Candidate")[0]
            expect(elsewhere or old not in shown, f"{where} has the old text")
        fresh = {*map(repr, _calls_of(made))} - {*map(repr, whole.events)}
        expect(fresh == {*map(repr, model.calls)}, "it repeated a call whose reply was known")
        if made_up and made.best is not None and made.best.id == node:
            expect(
                made.answer == "4711",
                f"the answer should be that of the changed thought: got {made.answer!r}",
            )
        expect(wait(made.replay()).identical, "the branch does not replay")


CHANGED = "a changed step\nAnswer: 4711"
"""The text of a changed thought, if the domain can read it."""


def _another_text(run: Run, node: str) -> str | None:
    """Return a text that the domain can read at `node`: `CHANGED`, or that of another thought, or `None`."""
    old = run.tree[node].text
    for text in dict.fromkeys([CHANGED, *(other.text for other in run.tree)]):
        try:
            read = describe_change(run, node, text, None, None)["content"]
        except ValueError:
            continue
        if read == text and text not in (old, run.question):
            return text
    return None


def _expect_no_prompt_of(old: list[str], made: Run, paths: Iterable[tuple[str, list[str]]]) -> None:
    """Raise an AssertionError if a prompt was made from the path `old`, which was changed in `made`.

    Paths are compared, not prompts, since a short text such as `2` occurs in many prompts.
    """
    if any(made.steps(node.id) == old for node in made.tree):
        return  # another thought has this path
    for method, path in paths:
        is_old = method.endswith("_prompt") and path[: len(old)] == old
        expect(
            not is_old, f"a person changed the thought {old[-1]!r}, but {method} was given the path {path}"
        )


def continues_with_a_changed_score(trial: Trial) -> None:
    """If a user changes the score of a thought, the thought and an answer based on it have the new score."""
    whole = trial.run()
    for node, score in ((id, score) for id in _thoughts_of(whole) for score in (0.0, 1.0)):
        by = whole.tree[node].by
        if not by:
            continue
        made = wait(trial.lab().branch(whole, node, score=score))
        actual = (made.tree[node].score, made.tree[node].by)
        expect(actual == (score, "person"), f"thought {node} was given the score {score}, but has {actual}")
        if made.best is None:
            continue
        expect(
            made.score == made.tree[made.best.id].score,
            "the score of the answer differs from that of its thought",
        )
        expect(
            made.best.id != node or made.score == score,
            f"the answer should have the given score {score}: got {made.score}",
        )
        expect(wait(made.replay()).identical, "the branch does not replay")


def continues_another_strategy(trial: Trial) -> None:
    """The strategy can continue from a thought of another strategy's run.

    Its prompts show the earlier steps, its thoughts are below that thought, and the run replays and resumes.
    """
    begun = trial.run(strategy=TreeOfThoughts(search=BeamSearch(width=1), stop=Stop(depth=2, solved=None)))
    ids = dict.fromkeys(["0", *(["0.1"] if "0.1" in begun.tree else []), *begun.solution_path[-1:]])
    complete = trial.task.domain.complete
    nodes = [id for id in ids if not complete(trial.task, begun.steps(id))]  # nothing follows a solution
    with tempfile.TemporaryDirectory() as folder:
        for node in nodes:
            model, steps = trial.model(1), begun.steps(node)
            made = wait(trial.lab(model, Path(folder)).branch(begun, node, strategy=trial.strategy))
            above = [Thought(one.id, one.parent, one.text) for one in begun.tree.path(node)]
            first = [event for event in made.events if isinstance(event, Thought)][: len(above)]
            expect(first == above, f"the path to {node} differs from the recorded one")
            expect(
                made.tree[node].score == begun.tree[node].score,
                f"the score of {node} differs from the recorded one",
            )
            inside = {id for id in made.tree.nodes if f"{id}.".startswith(f"{node}.")}
            strays = {*made.tree.nodes} - inside - {one.id for one in above}
            expect(
                not strays, f"continuing from {node}, it has thoughts that are not below it: {sorted(strays)}"
            )
            expect(
                bool(model.calls) or not trial.run().usage.calls, f"continuing from {node}, it made no call"
            )
            for call in model.calls:
                lacking = [step for step in steps if step not in call.prompt]
                expect(not lacking, f"a {call.purpose} call does not show the earlier step {lacking[:1]}")
            again: Part | None = part_of(json.loads(json.dumps(made.header.strategy)), Strategy)
            if again is None or needs_functions(again):  # a file holds no functions
                again = made.strategy
            assert isinstance(again, Strategy)
            expect(
                trial.run(strategy=again).tree == made.tree,
                "a strategy made from its settings gave another tree",
            )
            most = again.max_calls(trial.task)
            expect(most is None or len(model.calls) <= most, "it made more calls than max_calls")
            assert made.path is not None
            lines = made.path.read_bytes().splitlines(keepends=True)
            cut = Path(folder) / f"cut-{node}.jsonl"
            cut.write_bytes(b"".join(lines[: len(lines) // 2]))
            resumed = wait(trial.lab().resume(cut, strategy=again))
            expect_same(made.events, resumed.events, "when a branch is resumed")
            expect(wait(load(made.path).replay(again)).identical, "the branch does not replay")
            nested = trial.run(strategy=_Nested(strategy=again))
            below = {"0.3" + id[1:] for id in made.tree.nodes} | {"0", "0.1"}
            expect(below == {*nested.tree.nodes}, "inside another strategy the branch has other thoughts")


def shows_a_domain_the_whole_path(trial: Trial) -> None:
    """Every path that the strategy passes to the domain begins with the steps of the task (`task.steps`), and
    every prompt shows these steps.
    """
    steps = ("Count the legs of one spider: 8.", "Count those of the duck: 2.")
    paths: list[tuple[str, list[str]]] = []
    domain = _spied(trial.task.domain, paths)
    task = trial.task.model_copy(update={"domain": domain, "steps": steps})
    model = trial.model()
    wait(trial.lab(model).run(trial.strategy, task))
    for method, path in paths:
        whole = path[: len(steps)] == [*steps]
        expect(whole, f"the path of {method} lacks the earlier steps: got {path}. Use task.path(…).")
    for call in model.calls:
        lacking = [step for step in steps if step not in call.prompt]
        expect(
            not lacking,
            f"a {call.purpose} call does not show the earlier step {lacking[:1]}. Use task.answer_prompt(…).",
        )


def _spied(domain: Domain, paths: list[tuple[str, list[str]]]) -> Domain:
    """Return an equal domain that appends the name of each called method and its path to `paths`.

    Calls from one method of the domain to another are left out.
    """
    inside = ContextVar("inside", default=False)

    def spied(name: str, signature: inspect.Signature) -> Callable[..., Any]:
        def method(self: Domain, *args: Any, **named: Any) -> Any:
            given = signature.bind(self, *args, **named).arguments
            received = [given["path"]] if "path" in given else given.get("paths", [])
            if not inside.get():
                paths.extend((name, [*path]) for path in received)
            before = inside.set(True)
            try:
                return getattr(super(kind, self), name)(*args, **named)
            finally:
                inside.reset(before)

        return method

    methods: dict[str, Any] = {}
    for name, function in inspect.getmembers(Domain, inspect.isfunction):
        if name != "steps" and not name.startswith("_") and function.__module__ == Domain.__module__:
            methods[name] = spied(name, inspect.signature(function))
    names = {"kind": domain.kind, "__module__": __name__, **methods}
    kind: type[Domain] = type("_Spied", (type(domain),), names)
    return kind(**dict(domain))


def can_be_continued_by_another(trial: Trial) -> None:
    """`OneAnswer` can continue from each thought of the strategy, and its prompt shows the earlier steps.

    The check is skipped for a domain without an `answer_prompt`.
    """
    try:
        trial.task.answer_prompt(False)
    except NotImplementedError:
        return
    begun = trial.run()
    for node in begun.tree:
        if trial.task.domain.complete(trial.task, begun.steps(node.id)):
            continue  # nothing follows a complete path
        made = wait(trial.lab().branch(begun, node.id, strategy=OneAnswer()))
        path = [above.id for above in made.tree.path(f"{node.id}.0")[:-1]]
        expect(
            path == [above.id for above in begun.tree.path(node.id)],
            f"the path to {node.id} differs from the recorded one",
        )
        (call,) = _calls_of(made)
        lacking = [step for step in begun.steps(node.id) if step not in call.prompt]
        expect(not lacking, f"a strategy that continues from {node.id} does not see the step {lacking[:1]}")


def keeps_its_settings(trial: Trial) -> None:
    """The strategy's settings, saved as JSON and loaded, give an equal strategy."""
    settings = json.loads(json.dumps(trial.strategy.settings(), allow_nan=False))
    again = part_of(settings, Strategy)
    same = again == trial.strategy
    if again is not None and needs_functions(again):  # JSON does not hold functions
        same = again.settings() == settings
    expect(same, f"a strategy made from its settings differs: got {again!r}")


def is_drawn(trial: Trial) -> None:
    """Every figure can draw a run of the strategy. Its frames and graph contain every thought and event."""
    import plotly.graph_objects as go  # noqa: PLC0415

    run = trial.run()
    for figure in figures_of("run"):
        drawn = figure(run)
        data = json.loads(drawn.to_json())["data"] if isinstance(drawn, go.Figure) else []
        expect(bool(data), f"{figure.__name__} drew nothing")
    ids = {*run.tree.nodes}
    expect({*run.nodes_df()["id"]} == ids, "nodes_df lacks thoughts")
    expect({*run.graph()} == ids, "the graph lacks thoughts")
    events = [event for event in run.events if isinstance(event, Event)]
    expect(len(run.events_df()) >= len(events), "events_df lacks events")


PROMISES: tuple[Callable[[Trial], None], ...] = (
    uses_no_clock_and_no_random_numbers,
    ends_with_a_stop_code,
    records_the_same_for_any_latency,
    runs_beside_itself,
    takes_new_samples_for_a_repeat,
    bounds_its_calls,
    runs_at_another_id,
    keeps_its_budget,
    can_be_cancelled_at_any_time,
    replays_and_resumes_from_any_line,
    survives_any_reply,
    survives_a_model_that_fails,
    can_be_driven_by_hand,
    never_sees_the_reference,
    continues_with_a_changed_thought,
    continues_with_a_changed_score,
    continues_another_strategy,
    shows_a_domain_the_whole_path,
    can_be_continued_by_another,
    keeps_its_settings,
    is_drawn,
)
"""The promises of a strategy, one function each."""


def _has_thoughts(trial: Trial) -> None:
    """The domain can read a step or an answer in at least one reply of the model."""
    run = trial.run()
    why = run.failure or f"the domain {trial.task.domain.kind!r} could read no reply of the model"
    expect(
        len(run.tree) > 1,
        f"nothing can be checked, since a run has no thought below the question: {why}. Pass model=, a "
        f"function Call -> str that replies with steps or answers of this domain.",
    )


def check_strategy(
    strategy: Strategy,
    task: Task = TASK,
    *,
    model: Callable[[Call], str | Reply] = answer_to,
    tools: Iterable[Tool] = (legs,),
    promises: Iterable[Callable[[Trial], None]] = PROMISES,
) -> None:
    """Check that `strategy` keeps all `promises`. Prints nothing, and takes a few seconds.

    Args:
        strategy: The strategy.
        task: The task that it is given.
        model: A function `Call -> Reply | str` with the replies that your strategy expects. The default knows
            the call purposes of tot_lab: it proposes texts such as `step 7`, and replies `Answer: …` to
            unknown purposes. A domain that cannot read such texts needs another function.
        tools: Tools of the lab.
        promises: The promises to check, from `PROMISES`.

    Raises:
        AssertionError: If a promise is broken. The message names the first one.
        TypeError: If an argument has the wrong type.
    """
    if not isinstance(strategy, Strategy):
        raise TypeError(f"strategy must be a Strategy such as tl.OneAnswer(): got {strategy!r}.")
    if not isinstance(task, Task):
        raise TypeError(f'task must be a Task such as tl.general("…"): got {task!r}.')
    if not callable(model) or any(map(inspect.iscoroutinefunction, (model, type(model).__call__))):
        raise TypeError(
            f"model must be a function Call -> Reply | str that is not async: got {model!r}. For a simulated "
            f"player, pass lambda call: player.written(call, dice(call))."
        )
    trial = Trial(strategy, task, model, tuple(Toolbox(tools).tools.values()))
    is_scripted = task is TASK and model is answer_to
    for promise in promises if is_scripted else (_has_thoughts, *promises):
        try:
            promise(trial)
        except AssertionError as broken:
            raise AssertionError(f"{type(strategy).__name__} {promise.__name__}: {broken}") from None
        except Exception as error:
            shown = f"{type(error).__name__}: {error}"
            raise AssertionError(
                f"{type(strategy).__name__} {promise.__name__}: it raised {shown}"
            ) from error
