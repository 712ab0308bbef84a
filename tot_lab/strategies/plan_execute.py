"""Plan–Execute–Reflect: write a plan, execute its steps, and reflect on the goal.

    plan     the model writes steps; a plan that cannot be carried out is requested again
    execute  the next step (linear), or a wave: all steps whose dependencies are done (dag)
             tool_call → the tool itself · analysis → one completion · composite → another strategy
    recover  a failed step is retried, then the open steps are rewritten (a patch)
    reflect  is the goal reached? If not, failed steps are patched, or further steps are appended
    answer   the answer in the last reflection

A completed step never runs again, neither in this run nor in one that resumes its journal. Each version of a
step is a thought that depends on the steps it needs, and each attempt at the step is a child of that thought.
Steps of a wave share no state; their outcomes are added to the plan when all of them have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from pydantic import AfterValidator, Field, TypeAdapter, field_validator

from tot_lab.core.calls import halts, stop_of
from tot_lab.core.parts import Part
from tot_lab.core.protocol import Procedure, ask, emit, gather, map_steps
from tot_lab.core.reading.verdicts import read_verdict, without_verdict
from tot_lab.core.records import Decided, Note, Scored, Thought, call_failed, parent_of
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.core.tools import Quantities, ToolSpec, tool_name
from tot_lab.strategies.acting import Acting, AvailableTools
from tot_lab.strategies.continued import all_but_the_root
from tot_lab.strategies.conversation import shortened
from tot_lab.strategies.plan_prompts import (
    AUGMENT,
    FURTHER_CALLS,
    HOW,
    ORDER,
    PATCH,
    PLAN,
    REQUIREMENTS,
    STEPS,
    VERDICT,
)
from tot_lab.strategies.plans import (
    DROPPED,
    SUMMARY,
    Mode,
    PlanDraft,
    PlanStep,
    added_calls,
    calls_to_choose,
    filled_in,
    further_calls,
    inserted,
    missing_calls,
    planned,
    rewritten,
    shown,
    text_of,
    with_edited_text,
)
from tot_lab.strategies.react import ReAct
from tot_lab.strategies.structured import RETRIES, Tier, ask_json, calls_per_ask
from tot_lab.strategies.tool_needs import MAX_REQUIRED, classify_tools

REFLECTION_TOKENS = {"shallow": 1500, "deep": 2500}
"""The most tokens of a reflection, by `reflection_depth`."""


class Outcome(NamedTuple):
    """The outcome of one step.

    Attributes:
        step: The step, with its new status.
        node: Id of the thought with the result. "" if there is no result.
        halt: The error of a call refused by a budget or a cancellation, which ends the run. "" if no
            call was refused.
        preview: The text that the model is shown in place of the result. `None` means the result itself.
        was_called: Whether the tool of a `tool_call` step was called, with or without success.
    """

    step: PlanStep
    node: str = ""
    halt: str = ""
    preview: str | None = None
    was_called: bool = False


class Tried(NamedTuple):
    """The outcome of one attempt at a step; see `Outcome`. `error` is "" if the attempt succeeded. A tool
    call that failed has a `node` too."""

    node: str
    result: str
    error: str
    preview: str | None = None


class PlanExecute(Acting):
    """Plan the task, execute the steps, reflect on the result, and refine the plan.

    Best for tasks whose steps are known beforehand, especially if tools carry out most of them. Trade-off: a
    bad plan is noticed only after its steps were paid for. Calls: 1 for the plan and 1 for the reflection, 1
    for each analysis step, those of `strategy` for each composite step, 1 for each patch, 2 for each
    refinement, 1 with `classify_tools`, and 1 if required calls are missing; none for a tool_call step.

    A reflection that states SATISFIED ends the work, so no further step runs. One that states neither
    SATISFIED nor UNSATISFIED is recorded as unreadable and counts as not satisfied.

    References:
        reactive-agents-ts (github.com/tylerjrbuell/reactive-agents-ts), strategy `plan-execute-reflect`; Wang
        et al. 2023, Plan-and-Solve, arXiv:2305.04091.
    """

    kind = "plan_execute"
    aliases: ClassVar[tuple[str, ...]] = ("plan-execute-reflect",)

    setting_aliases: ClassVar[Mapping[str, str]] = {
        "step_kernel_max_iterations": "strategy.kernel_max_iterations"  # only ReAct has it
    }

    strategy: Strategy = ReAct(max_iterations=3)
    """The strategy that solves a composite step. The step is its task, with the tools that the step names.
    The setting name `step_kernel_max_iterations` sets `max_iterations` of this strategy if it is
    `tl.ReAct`."""

    plan_mode: Mode = "linear"
    """`linear` executes the steps in order. `dag` executes every step whose dependencies are done,
    concurrently unless `parallel=False`."""

    max_steps: Annotated[int, Field(ge=1, le=100)] = 20
    """The most steps of a plan or a refinement."""

    step_retries: Annotated[int, Field(ge=0)] = 1
    """Further attempts at a step that failed. A tool's own `retries` do not apply in a plan. `tool_retries`
    does, if it is set: each attempt at the step may then repeat the call."""

    max_patches: Annotated[int, Field(ge=0)] = 2
    """The most patches during execution: requests to rewrite the steps that are not completed. A failed step
    causes at most one patch."""

    max_refinements: Annotated[int, Field(ge=0)] = 2
    """The most patches and augmentations (requests for further steps) after reflections."""

    patch_strategy: Literal["in-place", "replan-remaining"] = "in-place"
    """`in-place` rewrites the failed steps and the pending ones that must change. `replan-remaining` replaces
    all open steps."""

    reflection_depth: Literal["shallow", "deep"] = "deep"
    """`shallow` reflects in at most 1,500 tokens, `deep` in at most 2,500."""

    required_tools: Quantities = {}
    """Minimum number of calls of each tool by steps of the plan, as `{"web-search": 4}` or
    `["web-search×4"]`. Steps are added for missing calls. The model is asked once more for the arguments of
    tools that have no effects and take one text; composite steps decide on calls of other tools. A tool
    with `used_when_named`, such as `deep-think`, is required once if the task names it, even if no plan can
    be read.
    """

    classify_tools: bool = False
    """Whether to ask the model first which tools the task needs, and how often. The answer is added to
    `required_tools`.
    """

    max_retries: Annotated[int, Field(ge=0)] = RETRIES
    """Further requests for a plan after one that was rejected."""

    tier: Tier = "mid"
    """Capability of the model: prompts describe the JSON by an example (`local`), by a schema and an example
    (`mid`), or by the schema alone (`large`, `frontier`)."""

    @field_validator("strategy")
    @classmethod
    def _takes_the_tools_of_a_step(cls, strategy: Strategy) -> Strategy:
        """Refuse settings that name tools: the plan decides which tools a composite step has."""
        waiting: list[Any] = [strategy]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                waiting += value.values()
            elif isinstance(value, list | tuple):
                waiting += value
            elif isinstance(value, Part):
                for name in ("tools", "required_tools"):
                    if getattr(value, name, None):
                        raise ValueError(
                            f"{name} must not be set on the strategy of composite steps: got "
                            f"{getattr(value, name)!r}. The plan says which tools each step may call."
                        )
                waiting += (getattr(value, name) for name in type(value).model_fields)
        return strategy

    @field_validator("overflow")
    @classmethod
    def _calls_no_tools(cls, overflow: str) -> str:
        if overflow == "more":
            raise ValueError(
                "overflow must be 'cut': got 'more', which adds a tool, and the planning model calls none. "
                "Set overflow='more' on `strategy`."
            )
        return overflow

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        work = _Work(self, task, at)
        return (yield from work.carried_out())

    def max_calls(self, task: Task) -> int | None:
        steps = self._calls_per_step(task)
        if steps is None:
            return None
        reviews = self.max_refinements + 1
        plans = reviews + self.max_patches
        asked = plans + bool(self.required_tools or self.classify_tools)
        named = sum(spec.used_when_named for spec in task.tools)
        classified = MAX_REQUIRED * len(task.tools) if self.classify_tools else 0
        added = sum(self.required_tools.values()) + named + classified
        carried_out = (self.max_steps * plans + added) * steps
        return self.classify_tools + asked * calls_per_ask(self.max_retries) + carried_out + reviews + 1

    def _calls_per_step(self, task: Task) -> int | None:
        inner = self.strategy.max_calls(task.domain.part(task, "", ""))  # the instruction is not known yet
        return None if inner is None else max(inner, 1) * (self.step_retries + 1)


class _Work:
    """The execution of one plan. Its state changes only between waves."""

    def __init__(self, strategy: PlanExecute, task: Task, at: str) -> None:
        self.by = strategy
        self.task = task
        self.at = at
        self.available: AvailableTools = strategy.available_tools(task, tuple(strategy.required_tools))
        self.stated = self.available.by_own_name(strategy.required_tools)
        self.required = strategy.required(task, self.available, self.stated)
        self.goal = task.answer_prompt(True)
        self.steps: list[PlanStep] = []
        self.results: dict[str, str] = {}  # step id → the thought that holds its result
        self.patched: set[str] = set()
        self.dropped: set[str] = set()  # steps that a patch replaced
        self.patches = 0  # patches during execution
        self.refinements = 0  # patches and augmentations after a reflection
        self.version = 0
        self.thoughts = 0
        self.called: Counter[str | None] = Counter()  # calls by tool_call steps, by tool name
        self.previews: dict[str, str] = {}  # step id → the text by `transform_result`
        self.halt = ""
        self.held = Answer("", "")

    def carried_out(self) -> Procedure[Answer]:
        """Plan, execute and reflect, repeatedly while refinements are left."""
        if self.by.classify_tools and self.available.tools:
            needs = yield from classify_tools(self.by, self.task, self.available, self.at)
            if needs.refused is not None:
                return (yield from self._ended(needs.refused))
            stated = {**needs.required, **self.stated}
            self.required = self.by.required(self.task, self.available, stated)
        steps, stop = yield from self._ask_planner("plan", self._planned, PLAN)
        required = self.required
        if steps is None:
            named = self.by.named(self.task, self.available) if stop == "limit:retries" else []
            if not named:
                return (yield from self._ended(stop))
            steps, required = [], {name: required[name] for name in named}
        steps = yield from self._with_required(steps, required)
        yield from self._taken("plan.created", steps, goal=self.task.question, mode=self.by.plan_mode)
        while True:
            yield from self._execute()
            if self.halt:
                return (yield from self._ended(self.halt))
            satisfied, review, stop = yield from self._reflect()
            if stop:
                return (yield from self._ended(stop))
            if satisfied:
                return (yield from self._ended("limit:required_tools" if self._unmet() else "answered"))
            if self.refinements >= self.by.max_refinements:
                return (yield from self._ended("limit:refinements"))
            self.refinements += 1
            if any(step.status != "completed" and step.id not in self.dropped for step in self.steps):
                stop = yield from self._patch(review)
            else:
                stop = yield from self._augment(review)
            if stop:
                return (yield from self._ended(stop))

    def _with_required(self, steps: list[PlanStep], required: Mapping[str, int]) -> Procedure[list[PlanStep]]:
        """Add steps for the required calls that the plan lacks. No argument is invented: in one further
        request, the model writes the arguments of tools that have no effects and take one text; composite
        steps choose the arguments of other tools. A tool that the task requests by name gets the task's
        question.
        """
        tools, task = self.available.tools, self.task
        missing = missing_calls(steps, required)
        named = missing.keys() & {*self.by.named(task, self.available)}
        written = {
            name: count
            for name, count in missing.items()
            if name not in named and tools[name].effects == () and tools[name].takes_one_text
        }
        for name, count in missing.items():
            if name in named:
                given = self.by.arguments_for_model(task, tools[name], [])
                steps = inserted(steps, added_calls(steps, name, count, given))
            elif name not in written:
                steps = inserted(steps, calls_to_choose(steps, name, count, task.question))
        if not written:
            return steps
        lines = [f"- {name}: {count} more" for name, count in written.items()]
        parts = [f"The plan so far:\n{shown(steps, SUMMARY)}", "\n".join([FURTHER_CALLS, *lines])]
        by, before = self.by, steps

        def read(draft: PlanDraft) -> list[PlanStep]:
            return further_calls(draft, before, written, tools, by.plan_mode, by.max_steps)

        more, stop = yield from self._ask_planner("augment", read, *parts)
        steps = inserted(steps, more or [])
        for name, count in missing_calls(steps, {name: required[name] for name in written}).items():
            data = {"tool": name, "required": required[name], "missing": count, "stop": stop}
            yield Note("plan.requirement_failed", self.at, data, fallback=True)
        return steps

    def _unmet(self) -> list[str]:
        """Required tools that were called too rarely. Tools of completed composite steps are left out: such a
        step decides itself how often to call a tool.
        """
        finished = [step for step in self.steps if step.type == "composite" and step.status == "completed"]
        chosen = {name for step in finished for name in step.tool_hints}
        return [
            name for name, count in self.required.items() if self.called[name] < count and name not in chosen
        ]

    # Execute.

    def _execute(self) -> Procedure[None]:
        """Execute all steps whose dependencies are done, and patch the plan after failures."""
        while not self.halt:
            completed = {step.id for step in self.steps if step.status == "completed"}
            ready = [s for s in self.steps if s.status == "pending" and completed.issuperset(s.depends_on)]
            if not ready:
                yield from self._skip()
                return
            wave = ready[:1] if self.by.plan_mode == "linear" else ready
            known = {step.id: step for step in self.steps}
            outcomes = yield from gather(
                [self._step(step, known) for step in wave],
                at_most=self.by._calls_per_step(self.task),
                at_once=None if self.by.parallel else 1,
            )
            for outcome in outcomes:
                self._put(outcome.step)
                if outcome.node:
                    self.results[outcome.step.id] = outcome.node
                if outcome.preview is not None:
                    self.previews[outcome.step.id] = outcome.preview
                self.called[outcome.step.tool_name] += outcome.was_called
                self.halt = self.halt or outcome.halt
            failed = {outcome.step.id for outcome in outcomes if outcome.step.status == "failed"}
            if failed - self.patched and self.patches < self.by.max_patches and not self.halt:
                self.patches += 1
                yield from self._patch("")

    def _skip(self) -> Procedure[None]:
        """Skip the pending steps: each depends on a step that was not completed."""
        known = {step.id: step for step in self.steps}
        for step in [step for step in self.steps if step.status == "pending"]:
            lacking = [id for id in step.depends_on if known[id].status != "completed"]
            why = f"{step.id}: it needs {', '.join(lacking)}, not completed"
            try:
                filled_in([step.tool_args, step.instruction], step, known)
            except ValueError as unsound:
                why = str(unsound)
            self._put(step.changed(status="skipped", error=why))
            yield Decided(step.node, "pruned", why)
            yield Note("plan.step_failed", step.node, _of(step, status="skipped", error=why, retries=0))

    def _step(self, step: PlanStep, known: Mapping[str, PlanStep]) -> Procedure[Outcome]:
        """Attempt one step until it is completed or its retries are used up."""
        error, was_called = "", False
        for number in range(self.by.step_retries + 1):
            yield Note("plan.step_started", step.node, _of(step, retries=number))
            if step.error is not None:  # the plan is at fault, as in an unknown tool: retrying cannot help
                error = step.error
                break
            try:
                arguments = filled_in(step.tool_args, step, known)
                instruction = filled_in(step.instruction, step, known)
            except ValueError as unsound:  # an invalid reference: retrying cannot help
                error = str(unsound)
                break
            if step.type == "tool_call":
                tried = self._tool(step, arguments, number)
            elif step.type == "analysis":
                tried = self._analysis(step, instruction, known, number, error)
            else:
                tried = self._composite(step, instruction, known, number, error)
            done = yield from tried
            error = done.error
            was_called = was_called or (step.type == "tool_call" and bool(done.node))
            if not error:
                yield Note(
                    "plan.step_completed", step.node, _of(step, result=done.result, result_node=done.node)
                )
                made = step.changed(status="completed", result=done.result, error=None, retries=number)
                return Outcome(made, done.node, preview=done.preview, was_called=was_called)
            if halts(error):
                if step.type != "composite" or error == "cancelled":
                    return Outcome(step, halt=error)
                break  # it may have been the step's own budget; the next call shows whether the run's is left
        yield Decided(step.node, "failed", error)
        yield Note("plan.step_failed", step.node, _of(step, status="failed", error=error, retries=number))
        failed = step.changed(status="failed", error=error, retries=number)
        return Outcome(failed, was_called=was_called)

    def _tool(self, step: PlanStep, arguments: Any, number: int) -> Procedure[Tried]:
        name = self.available.known.get(tool_name(step.tool_name or ""), step.tool_name or "")
        refusal = self.available.refusal(name)
        if refusal is not None:
            return Tried("", "", refusal)
        call = self.by.tool_call(step.node, name, arguments, number)
        reply = yield from ask(msgspec.structs.replace(call, options={"retries": 0, **call.options}))
        if reply.error is not None and halts(reply.error):
            return Tried("", "", reply.error)
        result = f"→ {reply.text or '(nothing)'}" if reply.error is None else f"failed: {reply.error}"
        text = f"{name} {result}"
        shown = yield from self.by.transformed(call, name, reply)
        thought = yield from emit(Thought(f"{step.node}.{number}", step.node, text))
        if thought.text != text:
            return Tried(thought.id, thought.text.removeprefix(f"{name} → "), "")
        return Tried(thought.id, reply.text, reply.error or "", shown)

    def _analysis(
        self, step: PlanStep, instruction: str, known: Mapping[str, PlanStep], number: int, error: str
    ) -> Procedure[Tried]:
        parts = [self.goal, _now(step, instruction), self._results(step, known), _again(error)]
        reply = yield from ask(self.by.call(step.node, "analysis", "\n\n".join(filter(None, parts)), number))
        if reply.error is not None:
            yield call_failed(step.node, "analysis", reply.error)
            return Tried("", "", reply.error)
        thought = yield from emit(Thought(f"{step.node}.{number}", step.node, reply.text))
        return Tried(thought.id, thought.text, "" if thought.text.strip() else "the reply was empty")

    def _composite(
        self, step: PlanStep, instruction: str, known: Mapping[str, PlanStep], number: int, error: str
    ) -> Procedure[Tried]:
        """Solve the step as a task of its own. The root of its subtree is recorded here, because a person may
        edit the text.
        """
        root = f"{step.node}.{number}"
        task = self._task_of(step, instruction or step.title, known, error)
        thought = yield from emit(Thought(root, step.node, task.question))
        if thought.text != task.question:
            task = self._task_of(step, thought.text, known, error)
        answer = yield from map_steps(
            all_but_the_root(root), self.by.strategy.think(task, root), of=(Thought, Scored)
        )
        if answer.text:
            return Tried(answer.node or root, answer.text, "")
        stop = answer.stop_reason
        return Tried("", "", stop if halts(stop) else f"no answer ({stop})")

    def _task_of(self, step: PlanStep, instruction: str, known: Mapping[str, PlanStep], error: str) -> Task:
        background = "\n\n".join(filter(None, [self._results(step, known), _again(error)]))
        hinted = tuple(self._hinted(step, name) for name in step.tool_hints if name in self.available.tools)
        task = self.task.model_copy(update={"tools": hinted})
        return task.domain.part(task, instruction, background)

    def _hinted(self, step: PlanStep, name: str) -> ToolSpec:
        """A tool of a composite step. Its use is required only if the plan's own text names it, and not if a
        result that is inserted into the instruction does.
        """
        spec = self.available.tools[name]
        used = spec.used_when_named and spec.is_requested_in(step.instruction or step.title)
        return spec.model_copy(update={"used_when_named": used})

    def _results(self, step: PlanStep, known: Mapping[str, PlanStep]) -> str:
        """The results of the steps that `step` depends on."""
        most, results = self.by.max_result_characters, []
        for before in (known[id] for id in step.depends_on):
            result = self.previews.get(before.id, before.result or "")
            results.append(f"{before.label}:\n{shortened(result, most)}")
        return "\n\n".join(["Results of steps before:", *results]) if results else ""

    # Reflect and refine.

    @property
    def _rewrites(self) -> int:
        """How many patches and augmentations were requested. The sample indices depend on it, so that a
        prompt that recurs after one of them gets a new reply."""
        return self.patches + self.refinements

    def _reflect(self) -> Procedure[tuple[bool, str, str]]:
        """Reflect on the goal.

        Returns:
            Whether the goal is reached, the text of the reflection, and the stop reason if the call failed
            ("" if it succeeded).
        """
        parts = [self.goal, self._shown(), HOW[self.by.reflection_depth], VERDICT]
        call = self.by.call(self.at, "review", "\n\n".join(parts), self._rewrites)
        most = REFLECTION_TOKENS[self.by.reflection_depth]
        reply = yield from ask(msgspec.structs.replace(call, max_tokens=most))
        if reply.error is not None:
            yield call_failed(self.at, "review", reply.error)
            return False, "", stop_of(reply.error)
        thought = yield from emit(self._thought(reply.text, tuple(self.results.values())))
        verdict = read_verdict(thought.text)
        if verdict is None:
            yield Note("parse.unreadable", thought.id, {"kind": "review", "draw": self._rewrites})
        satisfied = verdict is True
        reflection = without_verdict(thought.text)
        text = self.task.domain.read_answer(self.task, reflection) if reflection.strip() else None
        if text is not None:
            self.held = Answer(text, "", thought.id)
        data = {"satisfied": satisfied, "node": thought.id, "version": self.version, "answer": text}
        yield Note("plan.reflected", self.at, data)
        return satisfied, thought.text, ""

    def _patch(self, review: str) -> Procedure[str]:
        """Have the open steps rewritten. Returns "", or the stop reason if that failed; the plan is then
        unchanged.
        """
        failed = [step.id for step in self.steps if step.status == "failed"]
        self.patched.update(failed)
        what = PATCH[self.by.patch_strategy]
        steps, stop = yield from self._ask_planner("patch", self._patched, self._shown(), review, what)
        if steps is None:
            self.halt = self.halt or (stop if halts(stop) else "")
            return stop
        dropped: list[str] = []
        if self.by.patch_strategy == "replan-remaining":
            dropped = [step.id for step in self.steps if step.status in ("pending", "skipped")]
            self.dropped.update(failed, dropped)
        yield from self._taken("plan.patched", steps, failed=failed, dropped=dropped)
        return ""

    def _augment(self, review: str) -> Procedure[str]:
        """Have steps appended. Returns "", or the stop reason if that failed."""
        steps, stop = yield from self._ask_planner("augment", self._planned, self._shown(), review, AUGMENT)
        if steps is None:
            return stop
        yield from self._taken("plan.augmented", steps)
        return ""

    def _planned(self, draft: PlanDraft) -> list[PlanStep]:
        by = self.by
        return planned(draft, self.steps, self.available.tools, by.plan_mode, by.max_steps)

    def _patched(self, draft: PlanDraft) -> list[PlanStep]:
        by = self.by
        if by.patch_strategy == "in-place":
            return rewritten(draft, self.steps, self.available.tools, by.plan_mode, by.max_steps)
        kept = [
            step.changed(status="skipped", error=DROPPED) if step.status in ("pending", "skipped") else step
            for step in self.steps
        ]
        return planned(draft, kept, self.available.tools, by.plan_mode, by.max_steps)

    def _ask_planner(
        self, kind: str, read: Callable[[PlanDraft], list[PlanStep]], *parts: str
    ) -> Procedure[tuple[list[PlanStep] | None, str]]:
        """The steps that the model writes. If no reply could be used, `None` and the stop reason."""
        prompt = "\n\n".join(filter(None, [self.task.task_prompt(True), *parts, self._rules()]))
        sound: TypeAdapter[Any] = TypeAdapter(Annotated[PlanDraft, AfterValidator(read)])
        sample_index = self._rewrites * calls_per_ask(
            self.by.max_retries
        )  # equal prompts need distinct samples
        call = self.by.call(self.at, kind, prompt, sample_index)
        result = yield from ask_json(call, sound, tier=self.by.tier, retries=self.by.max_retries, whole=True)
        failed = result.replies[-1].error
        return result.value, "limit:retries" if failed is None else stop_of(failed)

    def _taken(self, name: str, steps: Sequence[PlanStep], **more: Any) -> Procedure[None]:
        """Continue with `steps`. New and rewritten steps become thoughts, whose texts a person may edit."""
        before = {step.id: step for step in self.steps}
        fresh = {step.id: step for step in steps if not step.node}
        for step in steps:
            old = before.get(step.id)
            if old is None or old.status in ("completed", "failed"):
                continue
            if step.id in fresh:
                yield Decided(old.node, "pruned", "written anew")
            elif step.error == DROPPED != old.error:
                yield Decided(old.node, "pruned", DROPPED)
            elif old.status != step.status:
                yield Decided(old.node, "kept", "open again")
        nodes = {step.id: step.node for step in steps}
        waiting = list(fresh.values())
        while waiting:  # in order, but each after its dependencies
            step = next(step for step in waiting if all(nodes[id] for id in step.depends_on))
            waiting.remove(step)
            text, source = text_of(step), (before[step.id].node,) if step.id in before else ()
            depends = tuple(nodes[id] for id in step.depends_on)
            thought = yield from emit(self._thought(text, source, depends))
            nodes[step.id] = thought.id
            result = step if thought.text == text else with_edited_text(step, thought.text)
            fresh[step.id] = result.changed(node=thought.id)
        self.steps = [fresh.get(step.id, step) for step in steps]
        self.version += 1
        data = {"version": self.version, "steps": [step.content() for step in self.steps], **more}
        yield Note(name, self.at, data)

    def _ended(self, stop: str) -> Procedure[Answer]:
        """End with the answer of the latest reflection that gave one.

        Without one, the model is asked for an answer; if no further call is possible, the result of the last
        completed step is used.
        """
        refused = halts(stop) or stop == "error"
        held = self.held
        if not held.text and self.version and not refused:
            reply = yield from ask(self.by.call(self.at, "answer", f"{self._shown()}\n\n{self.goal}"))
            if reply.error is not None:
                yield call_failed(self.at, "answer", reply.error)
                stop, refused = stop_of(reply.error), True
            else:
                thought = yield from emit(self._thought(reply.text, tuple(self.results.values())))
                text = self.task.domain.read_answer(self.task, thought.text)
                if text is None:
                    yield Note("parse.unreadable", thought.id, {"kind": "answer", "draw": 0})
                held = Answer(text or "", stop, thought.id)
        done = [step for step in self.steps if step.status == "completed"]
        if not held.text and refused and done:
            text = self.task.domain.read_answer(self.task, done[-1].result or "")
            held = Answer(text or "", stop, self.results[done[-1].id])
        status = "completed" if stop == "answered" else "abandoned" if halts(stop) else "failed"
        yield Note("plan.ended", self.at, {"status": status, "stop": stop})
        if held.node is not None:
            yield Decided(held.node, "answer", stop)
        return Answer(held.text, stop, held.node)

    # Helpers.

    def _put(self, step: PlanStep) -> None:
        self.steps = [step if other.id == step.id else other for other in self.steps]

    def _thought(self, text: str, source: tuple[str, ...] = (), depends: tuple[str, ...] = ()) -> Thought:
        """The next child of the plan's root thought."""
        self.thoughts += 1
        return Thought(f"{self.at}.{self.thoughts - 1}", self.at, text, source, depends)

    def _shown(self) -> str:
        steps = [
            step.changed(result=self.previews[step.id]) if step.id in self.previews else step
            for step in self.steps
        ]
        return f"The plan, and what came of it so far:\n{shown(steps, self.by.max_result_characters)}"

    def _rules(self) -> str:
        """The prompt text about how steps are written."""
        lines = [f"- {name}: {n} or more steps of the type tool_call" for name, n in self.required.items()]
        required = "\n".join([REQUIREMENTS, *lines]) if lines else ""
        tools = (
            f"Tools:\n{self.available.listed()}"
            if self.available.tools
            else "There are no tools: plan no tool_call."
        )
        order = ORDER[self.by.plan_mode].format(most=self.by.max_steps)
        return "\n\n".join(filter(None, [tools, required, STEPS, order]))


def _of(step: PlanStep, **more: Any) -> dict[str, Any]:
    return {"step": step.id, **more}


def _now(step: PlanStep, instruction: str) -> str:
    what = "\n".join(filter(None, [step.title, instruction]))
    return f"Do not answer yet. Carry out this step of a plan for it, and no other:\n{what}"


def _again(error: str) -> str:
    return f"An earlier try failed: {error}\nDo it another way." if error else ""
