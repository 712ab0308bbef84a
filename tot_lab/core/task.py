"""Tasks, the domains they belong to, and the answers they get.

Rule: a domain is everything a task family teaches a search, and nothing about how to search: the
prompts, how to read the replies, when two paths reach the same state, when a path is complete,
how an answer is read along it, and how an answer is graded. A path is the list of thoughts from
the first step to a node; the root is not a step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator

from tot_lab.core.calls import TokenLogprob
from tot_lab.core.parts import Part
from tot_lab.core.reading import (
    read_choice,
    read_label,
    read_label_logprobs,
    read_list,
    read_score,
    read_scores,
)
from tot_lab.core.tool import Tool
from tot_lab.core.tools import ToolSpec

Path = Sequence[str]


class Answer(msgspec.Struct, frozen=True):
    """What a strategy returns.

    text: the answer, "" when there is none. stop_reason: why it ended, a stop word. node: the thought
    that holds it. score: that thought's score. ranked: further candidates' ids, best first.
    """

    text: str
    stop_reason: str
    node: str | None = None
    score: float | None = None
    ranked: tuple[str, ...] = ()


class Domain(Part):
    """What a task family teaches a search. The defaults suit any question in words; a domain
    overrides what it knows better. No method may do I/O or keep state. A finished run is looked at with
    the same methods, and the path of a baseline is one whole reply: take any text, and raise nothing.

    value_labels: labels an evaluator answers with and what each is worth, in the domain's own
        units; empty when it answers with a score from 0 to 1.
    judge_labels: labels whose probabilities `evaluate="logprob"` reads, and what each is worth, 0–1.
    """

    kind: ClassVar[str] = ""
    value_labels: ClassVar[dict[str, float]] = {}
    judge_labels: ClassVar[dict[str, float]] = {"yes": 1.0, "no": 0.0}

    @property
    def value_top(self) -> float:
        """The most that one draw of a value can be worth."""
        return max(self.value_labels.values(), default=1.0)

    # What a domain brings.

    @classmethod
    def task_factory(cls) -> Callable[..., Task] | None:
        """Makes a task of a problem: a function of the problem and of settings by name. `None` makes one of
        any question, with the settings of the domain."""
        return None

    @classmethod
    def example_tasks(cls) -> Callable[..., list[Task]] | None:
        """Makes the first `count` tasks that the domain comes with, if it comes with any."""
        return None

    @classmethod
    def tools(cls) -> tuple[Tool, ...]:
        """The tools for its tasks, which a lab takes by the domain's name."""
        return ()

    # Prompts. Each shows `task.context` when there is any: `statement` does it. An evaluator's prompt ends
    # with the candidate, so that a server reads once what siblings share.

    def statement(self, task: Task) -> str:
        """The problem as every prompt shows it, with the context that research or lessons added."""
        return f"{task.question}\n\nWhat is known so far:\n{task.context}" if task.context else task.question

    def steps(self, path: Path) -> str:
        """A path as numbered lines; an empty one is said in words."""
        return "\n".join(f"{k}. {step}" for k, step in enumerate(path, 1)) or "(no steps yet)"

    def sample_prompt(self, task: Task, path: Path) -> str:
        """Asks for one next step."""
        raise NotImplementedError(f"the domain {self.kind!r} has no sample_prompt")

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        """Asks for up to `count` different next steps in one reply."""
        raise NotImplementedError(f"the domain {self.kind!r} has no propose_prompt")

    def value_prompt(self, task: Task, path: Path) -> str:
        """Asks how promising the last step of `path` is."""
        raise NotImplementedError(f"the domain {self.kind!r} has no value_prompt")

    def part_prompts(self, task: Task, path: Path) -> list[str]:
        """Asks for a verdict on each part of the state by itself, for `evaluate="parts"`; equal prompts are
        one part. None at all, and the state is unread."""
        raise NotImplementedError(f"the domain {self.kind!r} has no part_prompts")

    def most_parts(self, task: Task) -> int:
        """How many `part_prompts` a state has at most. It bounds the calls; what comes above is refused."""
        raise NotImplementedError(
            f"the domain {self.kind!r} has no most_parts: how many part_prompts a state has"
        )

    def judge_prompt(self, task: Task, path: Path) -> str:
        """Asks for a verdict on the last step of `path` in one of `judge_labels` and no other word."""
        raise NotImplementedError(f"the domain {self.kind!r} has no judge_prompt")

    def vote_prompt(self, task: Task, paths: Sequence[Path]) -> str:
        """Asks which of `paths`, numbered from 1, is the most promising."""
        raise NotImplementedError(f"the domain {self.kind!r} has no vote_prompt")

    def joint_prompt(self, task: Task, path: Path, candidates: Sequence[str]) -> str:
        """Asks for a score of each of `candidates`, next steps after `path`, in one reply."""
        raise NotImplementedError(f"the domain {self.kind!r} has no joint_prompt")

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        """Asks for the whole answer at once, after thinking step by step if `reasoning`."""
        raise NotImplementedError(f"the domain {self.kind!r} has no answer_prompt")

    def response_format(self, kind: str, task: Task, path: Path) -> dict[str, Any] | None:
        """A JSON schema that the reply to a prompt of that kind should fit, if there is one."""
        return None

    # Parts.

    def part(self, task: Task, question: str, known: str) -> Task:
        """What `question` asks as a task of its own, a part of `task`; known: what is known besides. Here
        it is the same problem, and its context says which part of it is to be done: a domain in which any
        words are a problem makes them one."""
        now = f"Of all this only one part is to be done now, and nothing else:\n{question}"
        context = "\n\n".join(filter(None, [task.context, known, now]))
        return task.model_copy(update={"context": context})

    # Reading. None = the reply says nothing that can be used.

    def read_sample(self, task: Task, path: Path, text: str) -> str | None:
        """The step in the reply to `sample_prompt`."""
        return text.strip() or None

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        """The steps in the reply to `propose_prompt`, in order; repeats are kept."""
        return read_list(text)

    def pool_proposals(self, task: Task, path: Path, texts: Sequence[str]) -> list[str]:
        """The steps in several replies to one `propose_prompt`, in order; here by first mention, without
        what an earlier reply has. Of a single reply it is `read_proposals`."""
        pooled: list[str] = []
        for text in texts:
            known = set(pooled)
            pooled += [step for step in self.read_proposals(task, path, text) if step not in known]
        return pooled

    def read_value(self, text: str) -> float | None:
        """One draw of a value, in the domain's own units."""
        return read_label(text, self.value_labels) if self.value_labels else read_score(text)

    def read_part(self, text: str) -> float | None:
        """One draw of a verdict on a part, in the units of a value."""
        return self.read_value(text)

    def join_parts(self, scores: Sequence[float]) -> float:
        """The score 0–1 of a state, by those of its parts that could be read (at least one): the worst."""
        return min(scores)

    def read_judge(self, tokens: Sequence[TokenLogprob]) -> tuple[float, float] | None:
        """The score 0–1 that the log-probabilities of a verdict speak for, among the labels alone, and
        how probable it is that the verdict is one of them."""
        return read_label_logprobs(tokens, self.judge_labels)

    def read_vote(self, text: str, count: int) -> int | None:
        """The choice among `count` candidates, from 0."""
        return read_choice(text, count)

    def read_joint(self, text: str, count: int) -> list[float | None]:
        """`count` scores 0–1 out of one reply, None for each that it does not state."""
        return read_scores(text, count)

    def read_answer(self, task: Task, text: str) -> str | None:
        """The answer in the reply to `answer_prompt`."""
        return text.strip() or None

    # Knowledge of states.

    def assess(self, task: Task, path: Path) -> float | None:
        """A score 0–1 that needs no model, or None: ask the evaluator."""
        return None

    def complete(self, task: Task, path: Path) -> bool | None:
        """Whether `path` needs no further step; None when the domain cannot tell."""
        return None

    def state(self, task: Task, path: Path) -> Hashable | None:
        """What two paths must share to be the same state; None = every path is its own."""
        return None

    def answer(self, task: Task, path: Path) -> str | None:
        """The answer that `path` holds, None when it holds none."""
        return path[-1] if path else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Whether a right answer can still be reached from `path`; None when the domain cannot tell.
        It is for looking at a finished run (`tl.diagnose`, `tl.stats.judge_evaluator`): no strategy may ask
        it."""
        return None

    def seen(self, task: Task, path: Path) -> tuple[Task, Path]:
        """What an evaluator of a person's own is given for `path`."""
        return task, path

    def same(self, task: Task, answer: str) -> Hashable:
        """What two answers must share to count as the same one."""
        return " ".join(answer.casefold().split())

    def grade(self, task: Task, answer: str) -> float | None:
        """How right `answer` is, 0–1 with 1 = correct; None when nothing is known to hold it against."""
        return None

    def is_bounded(self, task: Task) -> bool:
        """Whether `grade` and `solvable` take little time whatever a file says of `task`. If not, a run
        that was loaded from a file is graded only when its grade is asked for."""
        return False

    def answer_pattern(self, task: Task) -> str | None:
        """The regular expression that decides which answers are right; `None` where another rule does."""
        return None


class Task(BaseModel):
    """One problem.

    domain: the family it belongs to. question: the problem in words. data: what the domain needs
    besides. context: what research or lessons add; every prompt shows it. system_prompt: stands before
    every call to a model that a run on this task makes, whatever the strategy. reference: ground
    truth; it is taken away before a strategy sees the task. tools: those that a strategy may call; the
    lab that runs it says which (`tl.Lab(tools=…)`). context_window: tokens that the model takes at once, None
    when they are not known; a lab that has tools says them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    domain: SerializeAsAny[Domain]
    question: str
    data: dict[str, Any] = Field(default_factory=dict)
    context: str = ""
    system_prompt: str = ""
    reference: Any = None
    id: str = ""
    tools: tuple[ToolSpec, ...] = ()
    context_window: Annotated[int, Field(ge=1)] | None = None

    @field_validator("question", "context", "system_prompt", "id")
    @classmethod
    def _is_text(cls, value: str) -> str:
        value.encode()  # a lone surrogate could not be written; the error names the field
        return value

    def hidden(self) -> Task:
        """The task as a strategy may see it: without the reference."""
        return self if self.reference is None else self.model_copy(update={"reference": None})

    def grade(self, answer: str) -> float | None:
        """How right `answer` is, 0–1; None when there is nothing to hold it against."""
        return self.domain.grade(self, answer)

    def settings(self) -> dict[str, Any]:
        """The task as JSON-ready data."""
        empty = {name for name in ("system_prompt", "tools", "context_window") if not getattr(self, name)}
        return {**self.model_dump(exclude={"domain", *empty}), "domain": self.domain.settings()}
