"""A strategy as an Inspect solver: `Task(dataset, solver=tl.inspect.think(tl.TreeOfThoughts()), scorer=…)`.

Model calls go through `Model.generate` and tool calls through `execute_tools`, so that Inspect's limits,
approval, cache and log apply. The budget of the run is what remains of the sample's limits, so that the
search stops before Inspect ends the sample. If Inspect nevertheless raises an error that ends the sample, the
run is cancelled, its best answer so far becomes the output, and the error is raised again.

    solve
      Lab.run            with `_Sample.generate` as the model, and the tools of the sample
        _Sample.watch    a span for each thought, with its scores (`record/logs/inspect_thoughts.py`)
      state.output       the answer
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any, ClassVar

import msgspec
from pydantic import PrivateAttr

from tot_lab.core.calls import Call, Reply, refused
from tot_lab.core.model_setting import model_names, models_of
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Decided, Ended, Line, Note, Scored, Thought
from tot_lab.core.strategy import Strategy, strategy_named
from tot_lab.core.task import Task
from tot_lab.core.tools import TOOL, tool_name
from tot_lab.interop.inspect_messages import (
    arguments_in,
    chat_messages,
    choice_of,
    inspect_package,
    question_of,
    reply_of,
    settings_of,
    tools_offered,
)
from tot_lab.interop.inspect_tasks import mark_choice
from tot_lab.lab.lab import Lab
from tot_lab.record.logs.inspect_thoughts import CALL, RUN, SOURCE, THOUGHT, data_of, span_name
from tot_lab.record.run import Run
from tot_lab.tools import Tool

SHARE = 0.95
"""Fraction of the sample's remaining time that a search may use. The rest is reserved for ending the run."""

A_DAY = 86_400.0


def think(
    strategy: Strategy | str = "tree_of_thoughts",
    *,
    task: Callable[[str], Task] | None = None,
    runs: str | os.PathLike[str] | None = None,
) -> Any:
    """Return an Inspect solver that runs a strategy on each sample.

    The strategy calls the model of the evaluation and the tools of the sample (`use_tools`). The epoch of
    the sample gives the repeat of the run. The log has a span of type `thought` for each thought, with its
    scores. `metadata["tot_lab"]` of the sample has the status and the stop reason of the run. If all calls of
    a run fail, the sample has an error.

    The search stops before it reaches the sample's limit on tokens, cost, turns or time, and returns its best
    answer so far. It does not stop before a limit on messages or working time, or on a formula of token
    counts: Inspect ends the search at that limit, and the output is the best answer so far. If Inspect caches
    replies, each `sample_index` of the same prompt has its own cache entry.

    Args:
        strategy: The strategy, or its name.
        task: Function that makes a task from the user prompt of the sample, such as `tl.game24`. `None` makes
            a `General` task, which has the choices, system messages and earlier turns of the sample.
        runs: Folder in which the journal of each run is written. `None` keeps runs in memory only.

    Raises:
        ImportError: If inspect_ai is not installed.
        ValueError: If a setting of the strategy names a model.
    """
    ai = inspect_package("tl.inspect.think")
    strategy = strategy_named(strategy)
    if own := sorted({*model_names(strategy), *models_of(strategy)}):
        raise ValueError(f"strategy must call only the model of the evaluation: got the models {own}.")

    def solver(**settings: Any) -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            return await _solve(ai, strategy, task, runs, state)

        return solve

    solver.__name__ = "think"
    made = ai.solver.solver(name="tot_lab/think")(solver)
    return made(
        strategy=strategy.settings(),
        task=None if task is None else f"{task.__module__}.{task.__qualname__}",
        runs=None if runs is None else os.fspath(runs),
    )


async def _solve(
    ai: Any,
    strategy: Strategy,
    make: Callable[[str], Task] | None,
    runs: str | os.PathLike[str] | None,
    state: Any,
) -> Any:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "tl.inspect.think requires asyncio: got another event loop, such as trio. "
            "Set INSPECT_ASYNC_BACKEND=asyncio."
        ) from None
    choices = [choice.value for choice in state.choices]
    task = question_of(state.messages, choices) if make is None else make(state.user_prompt.text)
    async with ai.util.span(span_name(strategy.kind), type=RUN):
        sample = _Sample(ai, state)
        lab = Lab(sample.generate, runs=runs, tools=sample.tools(), timeout=None)
        running = sample.running = loop.create_task(
            lab.run(strategy, task, budget=_budget(ai), repeat=state.epoch - 1, watch=sample.watch)
        )
        try:
            await running
        except asyncio.CancelledError:
            if sample.refusal is None:
                raise
        finally:
            if lab.last is not None:
                sample.keep(lab.last)
        if sample.refusal is not None:
            raise sample.refusal
        if (failure := running.result().failure) is not None:
            raise RuntimeError(failure) from sample.failed
    state.messages.append(state.output.message)
    return state


def _budget(ai: Any) -> Budget:
    """Return a budget of what remains of the sample's limits on turns, cost, time and tokens."""
    limits = ai.util.sample_limits()

    def left(limit: Any) -> Any:
        return None if limit.limit is None else max(limit.limit - limit.usage, 0)

    # A token limit may count output tokens only. One with a formula cannot be a budget and is left out.
    tokens = {"all": "tokens", "output": "output_tokens"}.get(getattr(limits.token, "type", "all"))
    amounts: dict[str, Any] = {"calls": left(limits.turn), "usd": left(limits.cost)}
    if (seconds := left(limits.time)) is not None:
        amounts["seconds"] = SHARE * seconds
    if tokens is not None:
        amounts[tokens] = left(limits.token)
    return Budget(**amounts)


class _Sample:
    """A sample during its run: the model and the tools that the run calls, and the spans of its thoughts."""

    def __init__(self, ai: Any, state: Any) -> None:
        self.ai = ai
        self.state = state
        self.model = ai.model.get_model()
        self.running: asyncio.Task[Run] | None = None
        self.refusal: Exception | None = None
        """The exception with which Inspect ended the sample."""
        self.failed: Exception | None = None
        """The error of the last call that failed."""
        self._contexts: dict[str | None, Context] = {None: copy_context()}
        """Context variables by thought id. In each context, Inspect's current span is that of the thought.
        The key `None` is the run.
        """
        self._written: dict[str, Any] = {}
        """Inspect's messages with tool calls, by id. Later prompts contain these messages unconverted."""
        self._open: dict[int, Line] = {}
        """Lines of calls that are recorded but not yet sent to Inspect, by `id(call)`."""
        self._ending = (
            ai.util.LimitExceededError,
            ai.model.ModelRefusalError,
            ai._util.exception.TerminateSampleError,
        )

    # Calls.

    async def generate(self, call: Call) -> Reply:
        """Answer a call with the model of the evaluation."""
        line = self._open.pop(id(call), None)
        reply: Reply = await self._within(line, call.node, call.purpose, self._ask(call))
        return reply

    async def _ask(self, call: Call) -> Reply:
        ai = self.ai
        output = await self.model.generate(
            chat_messages(ai, call.messages, self._written),
            tools=tools_offered(ai, call),
            tool_choice=choice_of(call, ai),
            config=settings_of(ai, call),
            cache=self._cache(call),
        )
        reply = reply_of(output)
        if reply.tool_calls:
            message = output.choices[0].message
            self._written[message.id] = message
            reply = msgspec.structs.replace(reply, provider_state=json.dumps(message.id))
        return reply

    def _cache(self, call: Call) -> Any:
        """Return the evaluation's cache policy, with a scope for each sample index and attempt. `False` if
        the evaluation does not cache.
        """
        active = self.ai.model._generate_config.active_generate_config().cache
        policy = self.model.config.cache if active is None else active
        if not policy:
            return False
        policy = self.ai.model.CachePolicy() if policy is True else policy
        number = "/".join(map(str, (*call.attempt, call.sample_index)))
        return policy.model_copy(update={"scopes": {**policy.scopes, "sample_index": number}})

    async def _within(
        self, line: Line | None, node: str | None, name: str, asking: Coroutine[Any, Any, Any]
    ) -> Any:
        """Await `asking` in a new span below the span of the thought `node`, and return its result.

        If Inspect ends the sample meanwhile, this cancels the run and does not return.
        """

        async def ask() -> Any:
            async with self.ai.util.span(span_name(name), type=CALL):
                if line is not None:
                    self._info(line, has_event=True)
                return await asking

        context = self._contexts.get(node, self._contexts[None]).copy()
        task = asyncio.get_running_loop().create_task(ask(), context=context)
        try:
            return await task
        except self._ending as error:
            if self.refusal is None:
                self.refusal = error
                assert self.running is not None
                self.running.cancel()
            return await asyncio.get_running_loop().create_future()  # waits until the run is cancelled
        except Exception as error:
            self.failed = error
            raise

    # Tools.

    def tools(self) -> list[Tool]:
        """Return the tools of the sample as tools of a lab."""
        return [self._tool(self.ai.tool.ToolDef(tool)) for tool in self.state.tools]

    def _tool(self, given: Any) -> Tool:
        made = _InspectTool(
            name=tool_name(given.name),
            description=given.description,
            parameters=given.parameters.model_dump(exclude_none=True),
            effects=None,
            timeout=A_DAY,  # Inspect has its own limits, and a person may have to approve a call
            retries=0,
        )

        async def use(arguments: dict[str, Any]) -> str:
            line, node = self._taken(f"{TOOL}:{made.name}", arguments)
            text: str = await self._within(line, node, given.name, self._use(given, arguments))
            return text

        made._use = use
        return made

    def _taken(self, model: str, arguments: dict[str, Any]) -> tuple[Line | None, str | None]:
        """Remove the first open call of the tool `model` (`tool:NAME`) with these arguments. Return its line
        and node.

        Returns `(None, None)` if there is no such call.
        """
        for key, line in self._open.items():
            call = line.e
            if isinstance(call, Call) and call.model == model and arguments_in(call.prompt)[0] == arguments:
                del self._open[key]
                return line, call.node
        return None, None

    async def _use(self, given: Any, arguments: Mapping[str, Any]) -> str:
        call = self.ai.tool.ToolCall(
            id=f"call_{os.urandom(6).hex()}", function=given.name, arguments=dict(arguments)
        )
        asked = self.ai.model.ChatMessageAssistant(content="", tool_calls=[call])
        messages = (await self.ai.model.execute_tools([asked], self.state.tools)).messages
        errors = [message.error.message for message in messages if getattr(message, "error", None)]
        if errors:
            raise RuntimeError("; ".join(errors))
        return "\n\n".join(message.text for message in messages)

    # Thoughts.

    def watch(self, lines: Sequence[Line]) -> None:
        """Write new records to Inspect's transcript of the sample."""
        for line in lines:
            if line.p:  # a note without a position is derived from other records
                self._show(line)

    def _show(self, line: Line) -> None:
        record = line.e
        if isinstance(record, Thought):
            context = self._contexts.get(record.parent, self._contexts[None]).copy()
            context.run(_at_once, self._begin(line, record))
        elif isinstance(record, Call):
            self._open[id(record)] = line
        elif isinstance(record, Reply):
            call = next((one for one in self._open.values() if one.p == line.p), None)
            if call is not None:  # the call never reached Inspect
                del self._open[id(call.e)]
                self._inform(call, None)
            if call is not None or refused(record.error):
                self._inform(line, None)
        else:
            self._inform(line, _node_of(record))

    async def _begin(self, line: Line, thought: Thought) -> None:
        async with self.ai.util.span(span_name(f"{thought.id} {thought.text}"), type=THOUGHT):
            self._info(line)
            self._contexts[thought.id] = copy_context()

    def _inform(self, line: Line, node: str | None) -> None:
        self._contexts.get(node, self._contexts[None]).run(self._info, line)

    def _info(self, line: Line, has_event: bool = False) -> None:
        self.ai.log.transcript().info(data_of(line, has_event=has_event), source=SOURCE)

    # Output.

    def keep(self, run: Run) -> None:
        """Write the answer and the outcome of a run to the output, choices and metadata of the sample."""
        state = self.state
        state.output = self.ai.model.ModelOutput.from_content(str(self.model), run.answer)
        mark_choice(state, run.answer)
        state.metadata[SOURCE] = {
            "run": run.id,
            "status": run.status,
            "stop_reason": run.stop_reason,
            "score": run.score,
            "calls": run.usage.calls,
            "journal": None if run.path is None else str(run.path),
        }


def _node_of(record: Scored | Decided | Note | Ended) -> str | None:
    if isinstance(record, Note):
        return record.at
    return record.node if isinstance(record, Ended) else record.id


def _at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise RuntimeError(
        "An Inspect span must begin without awaiting: got one that awaits, perhaps to make its id."
    )


class _InspectTool(Tool):
    """An Inspect tool as a tool of a lab."""

    kind: ClassVar[str] = "inspect_tool"
    _use: Callable[[dict[str, Any]], Awaitable[str]] = PrivateAttr()

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Awaitable[str]:
        return self._use(arguments)
