"""Adaptive routing: classify the task, choose a strategy for it, and run that strategy.

    classify  the kind of task: by the routing table, by rules, and by a model call only if neither decides
    delegate  to the strategy of that kind
    fall back to the default strategy after a partial result

Every choice is recorded in a note with its reason. If the default strategy runs after a partial result, a
second note says so.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Literal, NamedTuple, Self

import msgspec
from pydantic import model_validator

from tot_lab.core.calls import halts
from tot_lab.core.parts import REGISTRY
from tot_lab.core.protocol import Procedure, resample
from tot_lab.core.reading.names import read_name
from tot_lab.core.records import Decided, Note, Thought, parent_of
from tot_lab.core.registry import names
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.plan_execute import PlanExecute
from tot_lab.strategies.react import ReAct
from tot_lab.strategies.reflexion import Reflexion
from tot_lab.strategies.search.searches import LIMIT_OF_ITERATIONS
from tot_lab.strategies.search.tree_of_thoughts import TreeOfThoughts
from tot_lab.strategies.structured import ask_name
from tot_lab.strategies.tree_then_act import TreeThenAct

TaskKind = Literal["simple", "writing", "steps", "open"]

KINDS: dict[TaskKind, str] = {
    "simple": "one question or one job: a fact, a calculation, a few look-ups",
    "writing": "a text whose quality matters, and which gains from being criticised and written anew",
    "steps": "several clear steps that build on each other",
    "open": "open-ended or creative: many ways lead on, and several are worth comparing",
}
"""The kinds of task, with the descriptions that the model is shown."""

ROUTES: dict[str, str] = {
    "simple": "reactive",
    "writing": "reflexion",
    "steps": "plan-execute-reflect",
    "open": "tree-of-thought",
}
"""The default strategy for each kind of task."""

_WORDS: dict[TaskKind, tuple[str, ...]] = {
    "simple": (),
    "writing": ("quality-critical", "quality-critical writing"),
    "steps": ("multi-step", "clear multi-step"),
    "open": ("open-ended", "creative", "ToT"),
}
"""Further words by which a reply may name each kind of task: those of reactive-agents-ts (see `Adaptive`)."""

SHORT = 40
"""The most words of a simple task."""

LOOKED_AT = 4_000
"""Characters of a task that the rules examine. The patterns take time quadratic in this number."""

_TEXTS = (
    r"(?:essay|report|letter|e-?mail|article|summary|abstract|review|documentation|speech|proposal|"
    r"paragraph|statement|section|announcement|explanation|post)s?"
)
_CUES: dict[TaskKind, re.Pattern[str]] = {
    "open": re.compile(
        r"\b(?:brainstorm\w*|imagine|invent|come up with|creativ\w+|open-ended|poems?|stor(?:y|ies)|slogans?|"
        r"ideas for|different ways|explore|what if)\b",
        re.IGNORECASE,
    ),
    "writing": re.compile(
        rf"\b(?:write|draft|compose|prepare)\b[^.?!]*\b{_TEXTS}\b|"
        r"\b(?:rewrite|proofread|revise|polish|rephrase)\b",
        re.IGNORECASE,
    ),
    "steps": re.compile(
        r"\A\s*(?:please\s+)?plan\b|"
        r"\bfirst\b.*\b(?:then|next|after that|finally)\b|\bthen\b.*\b(?:finally|after that)\b|"
        r"(?:^|\n)[ \t]*1[.)].*\n[ \t]*2[.)]",
        re.IGNORECASE | re.DOTALL,
    ),
}


_NEGATED = re.compile(
    r"\b(?:(?:do|does|did|need|should|must|would|ca|wo)n['’]?t|cannot|never|without|avoid|instead\s+of|"
    r"rather\s+than|(?:not|no)(?!\s+(?:more|less|fewer|only|exceed\w*)))\b"
    r"(?:(?!\bbut\b)[^.,;:?!\n])*+",
    re.IGNORECASE,
)
"""A negation, to the end of its clause."""

_FACT = re.compile(
    r"(?:(?:in|on|at|to|from|of|for|by|with)\s+)?"
    r"(?:what|who|whom|whose|when|where|which|how\s+(?:many|much|old|tall|long|far|high|deep|large|big|often|fast))\b",
    re.IGNORECASE,
)
_JOB = re.compile(
    r"(?:please\s+)?(?:calculate|compute|look\s+up|convert|translate|define|count|spell|add|subtract|multiply|divide)\b",
    re.IGNORECASE,
)
_SUM = re.compile(r"(?=\D*\d)[\d\s.,()+*/×÷^=?%-]+")
_MORE = re.compile(
    r"\b(?:compar\w+|contrast|versus|vs|trade-?offs?|pros|cons|advantages?|best|better|should|would|could|might|"
    r"recommend\w*|strateg\w+|design\w*|architectur\w+|research\w*|analy[sz]\w+|evaluat\w+|investigat\w+|"
    r"summari[sz]\w+|expla\w+|argue|why|improv\w+|optimi[sz]\w+|implement\w*|refactor\w*|migrat\w+)\b",
    re.IGNORECASE,
)
"""Words of tasks that require more than finding a fact."""


class Classification(NamedTuple):
    """The kind of a task, and why."""

    kind: TaskKind
    why: str


class Choice(NamedTuple):
    """The chosen strategy.

    Attributes:
        strategy: Its name in `Adaptive.strategies`.
        kind: The kind of the task, or of its domain if `by` is `table`. `None` if `by` is `default`, or if
            the model named a strategy that no kind of task leads to.
        by: What decided: `table` (the entry of the domain in `routes`), `rule` or `model`, or `default` if
            none of these did.
        why: The reason, in words.
    """

    strategy: str
    kind: str | None
    by: str
    why: str


def kind_of(task: Task) -> Classification | None:
    """Classify a task by rules. Returns `None` if they do not decide.

    The rules, in this order:

    - `open`: the domain distinguishes states, so there is something to search.
    - `open`, `writing`, `steps`: the question contains cues of exactly one of these. Negated clauses do not
      count.
    - `simple`: a sum, a question for a fact, or one small job such as a look-up, in at most 40 words, without
      words of larger tasks (comparison, recommendation, research and others).
    """
    if task.domain.state(task, task.steps) is not None:
        return Classification("open", f"the domain {task.domain.kind!r} tells states apart")
    wanted = _NEGATED.sub("…", task.question[:LOOKED_AT])
    found = {kind: match for kind, cue in _CUES.items() if (match := cue.search(wanted))}
    if len(found) > 1:
        return None
    for kind, match in found.items():
        return Classification(kind, f"it says {_shown(match)}")
    return _simple(task.question.strip())


def _simple(question: str) -> Classification | None:
    """Classify `question` as simple. Returns `None` if that is not clear."""
    if len(question.split()) > SHORT or len(question) > LOOKED_AT or _MORE.search(question):
        return None
    if _SUM.fullmatch(question):
        return Classification("simple", "it is a sum")
    *before, last = re.split(r"(?<=[.?!])\s+", question)
    fact = _FACT.match(last) if last.endswith("?") else None
    job = None if before else _JOB.match(last)
    if match := fact or job:
        return Classification("simple", f"it asks for {'a fact' if fact else 'one job'}: {_shown(match)}")
    return None


def _shown(match: re.Match[str]) -> str:
    return repr(" ".join(match[0].split())[:60])


class Adaptive(Prompting):
    """Choose a strategy by the kind of task, and run it.

    Best for mixed tasks whose best strategy is not known. Trade-off: a wrong choice costs a whole attempt.
    Calls: none if the routes or the rules decide, else 1, plus those of the chosen strategy; if its result is
    partial, also those of the default strategy.

    The model's reply may name a kind of task, also in the words of reactive-agents-ts (`multi-step`,
    `open-ended`, `creative`), or a strategy: by its key in `strategies`, its own name, or its name in
    reactive-agents-ts (`tree-of-thought`). Case and separators do not matter. A reply that names none, or
    several, is recorded as unreadable, and `default` runs.

    The choice is recorded as a note, which `tl.stats.routed(run)` reads.

    References:
        reactive-agents-ts (github.com/tylerjrbuell/reactive-agents-ts), strategy `adaptive`.
    """

    kind = "adaptive"

    strategies: dict[str, Strategy] = {
        "reactive": ReAct(),
        "reflexion": Reflexion(),
        "plan-execute-reflect": PlanExecute(),
        "tree-of-thought": TreeThenAct(),
    }
    """The strategies to choose from, by name."""

    routes: dict[str, str] = {}
    """The strategy for each kind of task (`simple`, `writing`, `steps`, `open`; see `kind_of`) or domain
    (such as `game24`). The entry of a domain takes precedence. Kinds without an entry use the built-in
    `ROUTES`. `tl.stats.calibrate_router` derives routes from a sweep."""

    default: str = "reactive"
    """The strategy for tasks whose kind could not be decided, or has no entry in `routes` and a built-in
    route that is not in `strategies`. It also runs after a partial result: the chosen strategy stagnated,
    reached a limit, or gave no answer.
    """

    enabled: bool = True
    """Whether to choose at all. If `False`, every task goes to `default`."""

    @model_validator(mode="after")
    def _are_there(self) -> Self:
        for field, name in (("default", self.default), *(("routes", to) for to in self.routes.values())):
            if name not in self.strategies:
                known = ", ".join(self.strategies) or "none"
                raise ValueError(f"{field}: unknown strategy: got {name!r}. Known are {known}.")
        for kind in self.routes:
            near = get_close_matches(kind, KINDS, n=1)
            if near and kind not in (*KINDS, *REGISTRY, *names("domains")):
                raise ValueError(
                    f"routes: unknown kind of task or domain: got {kind!r}. Did you mean {near[0]!r}?"
                )
        return self

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        choice = self._settled(task) or (yield from self._ask_model(task, at))
        if isinstance(choice, str):  # the call was refused, as any further one would be
            return Answer("", choice)
        data = {"selectedStrategy": choice.strategy, "kind": choice.kind, "by": choice.by, "why": choice.why}
        undecided = self.enabled and choice.by == "default"
        yield Note("adaptive.chosen", at, {**data, **self._used(choice.strategy)}, fallback=undecided)
        answer = yield from self.strategies[choice.strategy].think(task, f"{at}.0")
        if choice.strategy == self.default or not _is_partial(self.strategies[choice.strategy], answer):
            return answer
        yield Note("adaptive.fell_back", at, {"stop": answer.stop_reason, **self._used(self.default)})
        again = _with_attempt(task, answer)
        rescue = yield from resample(1, self.strategies[self.default].think(again, f"{at}.1"))
        stop = rescue.stop_reason if halts(rescue.stop_reason) else answer.stop_reason
        taken, left = rescue, answer
        if answer.text and not rescue.text:
            taken, left = msgspec.structs.replace(answer, stop_reason=stop), rescue
        if left.node is not None:
            yield Decided(left.node, "pruned", "another strategy's answer was taken")
        return taken

    def max_calls(self, task: Task) -> int | None:
        choice = self._settled(task)
        names = [choice.strategy] if choice else [self.default, *map(self._of, KINDS)]
        most = [self._most(task, name) for name in names]
        known = [calls for calls in most if calls is not None]
        return max(known) + (choice is None) if len(known) == len(most) else None

    def _most(self, task: Task, name: str) -> int | None:
        """The most calls if `name` is chosen, those of the default strategy included."""
        most = [self.strategies[one].max_calls(task) for one in {name, self.default}]
        known = [calls for calls in most if calls is not None]
        return sum(known) if len(known) == len(most) else None

    def _used(self, name: str) -> dict[str, str]:
        return {"strategyUsed": name, "progress": f"{self.kind}→{name}"}

    def _of(self, kind: str) -> str:
        """The strategy for tasks of `kind`."""
        name = self.routes.get(kind) or ROUTES.get(kind, "")
        return name if name in self.strategies else self.default

    def _settled(self, task: Task) -> Choice | None:
        """The choice, if it needs no model call."""
        if not self.enabled:
            return Choice(self.default, None, "default", "choosing is turned off")
        domain = task.domain.kind
        if domain in self.routes:
            return Choice(self.routes[domain], domain, "table", f"the routes name the domain {domain!r}")
        found = kind_of(task)
        return None if found is None else Choice(self._of(found.kind), found.kind, "rule", found.why)

    def _ask_model(self, task: Task, at: str) -> Procedure[Choice | str]:
        """The choice that the model's reply makes, or `default` if it makes none. A call that a budget or a
        cancellation refused gives its error instead."""
        listed = "\n".join(f"{kind}: {what}" for kind, what in KINDS.items())
        prompt = (
            f"A task for somebody else:\n<task>\n{task.task_prompt(False)}\n</task>\n\n"
            f"The kinds of task that there are:\n{listed}\n\n"
            f"Which kind is it? Do not do the task. Reply with JSON and nothing else, "
            f'as {{"kind": "simple"}}: {", ".join(KINDS)}.'
        )
        names = self._names()
        call = self.call(at, "route", prompt)
        found = yield from ask_name(call, "kind", list(KINDS), lambda text: read_name(text, names, "kind"))
        if not isinstance(found, str):
            return found
        return found if halts(found) else self._undecided(found or "the model named none of the kinds")

    def _undecided(self, why: str) -> Choice:
        """The default strategy, if neither a rule nor the model has chosen one."""
        return Choice(
            self.default, None, "default", f"no rule decided, and {why}: the default is {self.default!r}"
        )

    def _names(self) -> dict[str, Choice]:
        """The choice for each name that a reply may state: a kind of task, or a strategy by any of its names
        that no other strategy has."""
        kinds = {kind: Choice(self._of(kind), kind, "model", "the rules did not decide") for kind in KINDS}
        named = {choice.strategy: choice for choice in reversed(kinds.values())}
        names: dict[str, list[Choice]] = {}
        for name, strategy in self.strategies.items():
            choice = named.get(name) or Choice(name, None, "model", "the model named the strategy")
            for word in {name, strategy.kind, *strategy.aliases}:
                names.setdefault(word, []).append(choice)
        return {
            **{ROUTES[kind]: choice for kind, choice in kinds.items()},
            **{word: choices[0] for word, choices in names.items() if len(choices) == 1},
            **{word: choice for kind, choice in kinds.items() for word in (kind, *_WORDS[kind])},
        }


def _is_partial(strategy: Strategy, answer: Answer) -> bool:
    """Whether the default strategy should run too.

    A search that ends at its depth limit, or a tree search at its limit of iterations, counts as complete.
    `False` after a call refused by a budget or a cancellation, since the default strategy could make no call
    either.
    """
    if halts(answer.stop_reason):
        return False
    complete = ["limit:depth", *([LIMIT_OF_ITERATIONS] if isinstance(strategy, TreeOfThoughts) else [])]
    cut = answer.stop_reason.startswith("limit:") and answer.stop_reason not in complete
    return not answer.text or cut or answer.stop_reason == "stagnated"


def _with_attempt(task: Task, answer: Answer) -> Task:
    """The task with the result of the first attempt in its context."""
    if not answer.text:
        return task
    attempt = f"An earlier attempt was not finished ({answer.stop_reason}). It came to: {answer.text}"
    return task.with_context(attempt)
