"""Tasks, the domains that they belong to, and answers.

A domain contains the knowledge about a family of tasks that a search needs, and nothing about how to search.
A path is the list of thoughts from the first step to a node; the root is not a step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import wraps
from inspect import isfunction, signature
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import AfterValidator, ConfigDict, Field, SerializeAsAny

from tot_lab.core.calls import TokenLogprob
from tot_lab.core.parts import Part, PydanticModel, UserFunction, class_of
from tot_lab.core.reading.answers import concluded_answer
from tot_lab.core.reading.lists import read_list
from tot_lab.core.reading.scores import read_label, read_label_logprobs, read_score, read_scores
from tot_lab.core.reading.votes import read_choice
from tot_lab.core.tool import Tool
from tot_lab.core.tools import ToolSpec

Path = Sequence[str]


class Ungraded(Exception):
    """Raised if answers cannot be graded. The message gives the reason."""


def _lacks(domain: Prompts, method: str, other: str = "", note: str = "") -> NotImplementedError:
    """The error about a method that `domain` lacks. Only some parts of the kind `other`, such as `proposer`,
    need the method. An empty `other` means that it is always needed. `note` says what the method returns.
    """
    names = ", ".join(signature(getattr(Prompts, method)).parameters)
    instead = f", or use another {other}" if other else ""
    return NotImplementedError(
        f"the domain {domain.kind!r} has no {method}({names}). Define it{note}{instead}."
    )


class Prompts:
    """The prompts of a domain.

    `statement` adds `task.context` to each of them. An evaluator's prompt ends with the candidate, so that
    siblings share a prefix that a server can cache.
    """

    kind: ClassVar[str]

    def statement(self, task: Task) -> str:
        """The problem as every prompt shows it, with the context added by research or lessons."""
        return f"{task.question}\n\nWhat is known so far:\n{task.context}" if task.context else task.question

    def steps(self, path: Path) -> str:
        """A path as numbered lines."""
        return "\n".join(f"{k}. {step}" for k, step in enumerate(path, 1)) or "(no steps yet)"

    def sample_prompt(self, task: Task, path: Path) -> str:
        """Asks for one next step."""
        raise _lacks(self, "sample_prompt", "proposer")

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        """Asks for up to `count` different next steps in one reply."""
        raise _lacks(self, "propose_prompt", "proposer")

    def value_prompt(self, task: Task, path: Path) -> str:
        """Asks how promising the last step of `path` is."""
        raise _lacks(self, "value_prompt", "evaluator")

    def part_prompts(self, task: Task, path: Path) -> list[str]:
        """Asks for a verdict on each part of the state separately, for `evaluate="parts"`.

        Equal prompts count as one part. Without prompts the state gets no score.
        """
        raise _lacks(self, "part_prompts", "evaluator")

    def max_parts(self, task: Task) -> int:
        """The maximum number of `part_prompts` of a state. It bounds the calls; more prompts are an error."""
        raise _lacks(self, "max_parts", "evaluator", " (the most part_prompts of a state)")

    def judge_prompt(self, task: Task, path: Path) -> str:
        """Asks for a verdict on the last step of `path`: one of `judge_labels` and no other word."""
        raise _lacks(self, "judge_prompt", "evaluator")

    def vote_prompt(self, task: Task, paths: Sequence[Path]) -> str:
        """Asks which of `paths`, numbered from 1, is the most promising."""
        raise _lacks(self, "vote_prompt", "evaluator")

    def joint_prompt(self, task: Task, path: Path, candidates: Sequence[str]) -> str:
        """Asks for a score of each of `candidates`, next steps after `path`, in one reply."""
        raise _lacks(self, "joint_prompt", "evaluator")

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        """Asks for the whole answer at once, after step-by-step reasoning if `reasoning`.

        Strategies use `Task.answer_prompt`, which also shows the earlier steps.
        """
        raise _lacks(self, "answer_prompt")

    def task_prompt(self, task: Task, reasoning: bool) -> str:
        """States the task for a request that itself prescribes the format of the reply, such as JSON.

        The default is `answer_prompt`; a domain whose `answer_prompt` specifies a format overrides it.
        Strategies use `Task.task_prompt`, which also shows the earlier steps.
        """
        return self.answer_prompt(task, reasoning)

    def response_format(self, purpose: str, task: Task, path: Path) -> dict[str, Any] | None:
        """A JSON schema for the reply to a prompt of that purpose (`sample`, `value`, …), or `None`."""
        return None


class Readers:
    """The readers of a domain, which read replies. `None` means that a reply could not be read.

    Attributes:
        value_labels: Labels that an evaluator answers with, and their values in the domain's own units. Empty
            if it answers with a score from 0 to 1.
        judge_labels: Labels whose probabilities `evaluate="logprob"` reads, and their values from 0 to 1.
    """

    value_labels: ClassVar[dict[str, float]] = {}
    judge_labels: ClassVar[dict[str, float]] = {"yes": 1.0, "no": 0.0}

    @property
    def value_top(self) -> float:
        """The highest value of one sample."""
        return max(self.value_labels.values(), default=1.0)

    def read_sample(self, task: Task, path: Path, text: str) -> str | None:
        """The step in the reply to `sample_prompt`."""
        return text.strip() or None

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        """The steps in the reply to `propose_prompt`, in order, repeats included."""
        return read_list(text)

    def pool_proposals(self, task: Task, path: Path, texts: Sequence[str]) -> list[str]:
        """The steps in several replies to one `propose_prompt`, in order of first appearance, without repeats
        between replies.

        For a single reply it equals `read_proposals`.
        """
        pooled: list[str] = []
        for text in texts:
            known = set(pooled)
            pooled += [step for step in self.read_proposals(task, path, text) if step not in known]
        return pooled

    def read_value(self, text: str) -> float | None:
        """The value that an evaluator's reply states, in the domain's own units (see `value_labels`)."""
        return read_label(text, self.value_labels) if self.value_labels else read_score(text)

    def read_part(self, text: str) -> float | None:
        """The value in a reply about one part of a state, in the units of `read_value`."""
        return self.read_value(text)

    def join_parts(self, scores: Sequence[float]) -> float:
        """The score of a state from the scores of its readable parts (at least one): the lowest."""
        return min(scores)

    def read_judge(self, tokens: Sequence[TokenLogprob]) -> tuple[float, float] | None:
        """Read a verdict from log-probabilities.

        Returns:
            The score from 0 to 1 among the labels alone, and the probability that the verdict is one of them.
            `None` if it could not be read.
        """
        return read_label_logprobs(tokens, self.judge_labels)

    def read_vote(self, text: str, count: int) -> int | None:
        """The chosen candidate among `count`, counted from 0."""
        return read_choice(text, count)

    def read_joint(self, text: str, names: Sequence[str]) -> list[float | None]:
        """The scores from 0 to 1 that one reply gives the candidates with these texts.

        The score of a candidate that is missing is `None`.
        """
        return read_scores(text, names)

    def read_answer(self, task: Task, text: str) -> str | None:
        """The answer in the reply to `answer_prompt`."""
        return text.strip() or None


class Rules:
    """The rules of a domain: when two paths reach the same state, when a path is complete, and how an answer
    is found and graded.
    """

    kind: ClassVar[str]

    def assess(self, task: Task, path: Path) -> float | None:
        """A score from 0 to 1 that needs no model. `None` leaves the thought to the evaluator."""
        return None

    def complete(self, task: Task, path: Path) -> bool | None:
        """Whether `path` needs no further step. `None` if the domain cannot tell.

        If a domain does not override `complete`, `states_answer` decides.
        """
        return None

    def states_answer(self, task: Task, path: Path) -> bool | None:
        """Whether the last line of the last step states an answer. `None` if answers have no such form."""
        return concluded_answer("\n".join(path[-2:])) is not None

    @property
    def is_text(self) -> bool:
        """Whether the domain does not override `complete`, so that only the text of a path shows its end."""
        return type(self).complete is Rules.complete

    def state(self, task: Task, path: Path) -> Hashable | None:
        """A key that is equal for paths that reach the same state. `None` means that `path` is not merged."""
        return None

    def answer(self, task: Task, path: Path) -> str | None:
        """The answer that `path` holds. `None` if it holds none."""
        return path[-1] if path else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Whether a correct answer can still be reached from `path`. `None` if the domain cannot tell.

        For finished runs (`tl.diagnose`, `tl.stats.judge_evaluator`). No strategy may call it.
        """
        return None

    def same(self, task: Task, answer: str) -> Hashable:
        """A key that is equal for answers that count as the same."""
        return " ".join(answer.casefold().split())

    def verify(self, task: Task, answer: str) -> bool | None:
        """Whether `answer` satisfies the rules that the problem itself states. The reference is not used.

        `None` if the domain cannot tell.
        """
        return None

    def grade(self, task: Task, answer: str) -> float | None:
        """How correct `answer` is, from 0 to 1 (correct). `None` if answers to `task` are not graded, such as
        for lack of a reference.

        Raises `Ungraded` if `answer` cannot be graded, such as for lack of a package.
        """
        return None

    def why_ungraded(self, task: Task) -> str:
        """Why answers to `task` cannot be graded, and what to do about it. Empty if they can be graded, or if
        nobody asked for a grade.
        """
        lacks = type(self).grade is Rules.grade
        return f"the domain {self.kind!r} has no grade(self, task, answer)" if lacks else ""

    def credit(self, task: Task, answer: str) -> float | None:
        """Partial credit for `answer`, from 0 to 1, which never counts as solved. `None` if there is
        no partial credit besides `grade`.
        """
        return None

    def is_bounded(self, task: Task) -> bool:
        """Whether `grade` and `solvable` are fast on `task`, whatever it contains and whatever the answer is.
        If not, a run loaded from a file is graded only on request.
        """
        return False

    def expected(self, task: Task) -> Any:
        """Return the right answer in the form shown to people. Returns `None` if it is not known, or if
        other answers can be right too.
        """
        return task.reference

    def answer_pattern(self, task: Task) -> str | None:
        """The regular expression that decides which answers are correct. `None` if another rule decides."""
        return None

    def runs_code(self, task: Task) -> bool:
        """Whether `grade` runs code that `task` holds. A run loaded from a file is then not graded."""
        return False


_ACCEPTED: Mapping[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "str | None": lambda value: isinstance(value, str | None),
    "float | None": lambda value: value is None or hasattr(value, "__float__"),
    "list[str]": lambda value: (
        isinstance(value, list | tuple | None) and all(isinstance(one, str) for one in value or ())
    ),
}


def _checked(method: Callable[..., Any], returns: str) -> Callable[..., Any]:
    """Return `method` with a check of the type of its result, so that a wrong one is an error at once."""
    accepts = _ACCEPTED[returns]

    @wraps(method)
    def checked(self: Domain, *args: Any, **kwargs: Any) -> Any:
        value = method(self, *args, **kwargs)
        if not accepts(value):
            raise TypeError(
                f"{type(self).__name__}.{method.__name__} must return {returns}: got {value!r:.80}."
            )
        return value

    return checked


class Domain(Prompts, Readers, Rules, Part):
    """The knowledge about a family of tasks that a search needs. The defaults suit any question.

    Methods must not do I/O or keep state. They are also used to inspect finished runs, where the path of a
    baseline is a single whole reply: methods must accept any text, and must not raise.
    """

    kind: ClassVar[str] = ""

    verifies_paths: ClassVar[bool] = False
    """Whether a path of steps holds an answer only if `verify` accepts it."""

    player: ClassVar[str] = "sim/general"
    """Name of the simulated model that knows the prompts of this domain."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, method in [*vars(cls).items()]:
            known = getattr(getattr(Domain, name, None), "__annotations__", {})
            if isfunction(method) and known.get("return") in _ACCEPTED:
                setattr(cls, name, _checked(method, known["return"]))

    @classmethod
    def task_factory(cls) -> Callable[..., Task] | None:
        """A function that makes a task from a problem and keyword settings. `None` means that a task can be
        made from any question, and the keyword settings are those of the domain.
        """
        return None

    @classmethod
    def example_tasks(cls) -> Callable[..., list[Task]] | None:
        """A function that makes the first `count` tasks of the domain. `None` if it has none."""
        return None

    @classmethod
    def tools(cls) -> tuple[Tool, ...]:
        """Tools for its tasks. In `tl.Lab(tools=…)`, the name of the domain stands for all of them."""
        return ()

    def part(self, task: Task, question: str, known: str) -> Task:
        """The task of answering `question` as a part of `task`.

        By default it is the same problem, with `known`, a text of earlier results, and the question in its
        context. A domain that accepts any question makes a new problem of `question`.
        """
        now = f"Of all this only one part is to be done now, and nothing else:\n{question}"
        return task.with_context(known, now)


class Answer(msgspec.Struct, frozen=True):
    """The result of a strategy.

    Attributes:
        text: The answer. Empty if it is missing.
        stop_reason: Why the strategy ended, one of `STOP_CODES`.
        node: Id of the thought that holds the answer. `None` if there is no such thought.
        score: The score of that thought. `None` if it has none.
        ranked: Ids of the thoughts that hold candidate answers, best first.
    """

    text: str
    stop_reason: str
    node: str | None = None
    score: float | None = None
    ranked: tuple[str, ...] = ()


def _encodable(text: str) -> str:
    text.encode()  # a lone surrogate cannot be written to a file; the error names the field
    return text


_Text = Annotated[str, AfterValidator(_encodable)]


class LabContext(PydanticModel):
    """Settings of a lab that strategies may read."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    profile: str | None = None
    """Tier of the model: `local`, `mid`, `large` or `frontier`. `None` if the lab has none."""

    result_characters: Annotated[int, Field(ge=1)] = 4_000
    """Maximum number of characters of a tool's result that the model is shown."""

    transform_result: UserFunction | None = None
    """Function `(tool, result) -> text` that returns the text which the model is shown for a tool's result.
    `None` shows the result itself.
    """

    history_tokens: Annotated[int, Field(ge=0)] = 1_000
    """Tokens of earlier turns above which the history is condensed."""

    agent_id: str = ""
    """Id of the agent for which the lab works."""

    session_id: str = ""
    """Id of the session in which the lab works."""


def make_task(kind: str, *given: Any, **settings: Any) -> Task:
    """Make a task with the `task_factory` of the domain named `kind`."""
    make = class_of(kind, Domain).task_factory()
    assert make is not None
    return make(*given, **settings)


class Task(PydanticModel):
    """One problem."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    setting_aliases: ClassVar[Mapping[str, str]] = {"answer": "reference", "prompt": "question"}
    """Other names of settings. They are not accepted, but the error suggests the setting."""

    domain: SerializeAsAny[Domain]
    """The family of tasks it belongs to."""

    question: _Text
    """The text of the problem."""

    data: dict[str, Any] = Field(default_factory=dict)
    """Further data that the domain needs."""

    context: _Text = ""
    """Context added by research or lessons. Every prompt shows it."""

    steps: tuple[_Text, ...] = ()
    """Steps taken before the strategy's root. Every path that a domain receives begins with them."""

    system_prompt: _Text = ""
    """System prompt of every model call of a run on this task, whatever the strategy. Calls of a reward model
    do not have it; see `tl.evaluators.RewardModel(system=…)`.
    """

    reference: Any = None
    """Ground truth. It is removed before a strategy receives the task."""

    id: _Text = ""
    """Name of the task in results."""

    tools: tuple[ToolSpec, ...] = ()
    """Tools that the strategy may call. The lab sets them (`tl.Lab(tools=…)`)."""

    context_window: Annotated[int, Field(ge=1)] | None = None
    """The model's context window in tokens. `None` if it is not known. The lab sets it."""

    lab: LabContext = LabContext()
    """Settings of the lab that every strategy may read, also a nested one. The lab sets it."""

    def hidden(self) -> Task:
        """The task as a strategy receives it, without the reference."""
        return self if self.reference is None else self.model_copy(update={"reference": None})

    def with_context(self, *sections: str) -> Task:
        """The task with `sections` after its context. Empty sections are left out."""
        return self.model_copy(update={"context": "\n\n".join(filter(None, [self.context, *sections]))})

    def path(self, texts: Path) -> list[str]:
        """The path that domains receive: the earlier steps, then `texts`, the thoughts of the strategy."""
        return [*self.steps, *texts]

    def without_steps(self) -> Task:
        """The task for a user's evaluator function: without `steps`, which the paths already contain."""
        return self.model_copy(update={"steps": ()}) if self.steps else self

    def answer_prompt(self, reasoning: bool) -> str:
        """The domain's `answer_prompt`. It has no path, so the earlier steps are shown as context."""
        return self.domain.answer_prompt(self._with_steps(), reasoning)

    def task_prompt(self, reasoning: bool) -> str:
        """The domain's `task_prompt`, with the earlier steps as context."""
        return self.domain.task_prompt(self._with_steps(), reasoning)

    def _with_steps(self) -> Task:
        if not self.steps:
            return self
        return self.with_context(f"The steps taken so far:\n{self.domain.steps(self.steps)}")

    def grade(self, answer: str) -> float | None:
        """How correct `answer` is, from 0 to 1. `None` if it is not graded, such as without a reference."""
        return self.domain.grade(self, answer)

    def settings(self) -> dict[str, Any]:
        """The task as JSON-ready data."""
        empty = {
            name for name in ("steps", "system_prompt", "tools", "context_window") if not getattr(self, name)
        }
        if self.lab == LabContext():
            empty.add("lab")
        return {**self.model_dump(exclude={"domain", *empty}), "domain": self.domain.settings()}
