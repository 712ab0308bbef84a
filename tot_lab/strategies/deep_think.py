"""Deep Think: branch, develop, converge, repeat.

    branch      one call: different approaches
    develop     one call per approach, concurrently: plan, execute, observe and reflect in one reply
    converge    one call: judge all solutions, reflect, and synthesise one solution
    repeat      with the best synthesis so far, and the lessons and best approaches of the last iteration

Model output cannot break an iteration. An unreadable reply is used as plain text, with an assumed confidence
on which no decision depends; a failed call loses only its branch. A synthesis is a thought with several
sources, so the tree shows which solutions it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import msgspec
from pydantic import BaseModel, Field

from tot_lab.core.calls import halts, stop_of
from tot_lab.core.protocol import Procedure, Slots, emit, gather, with_timeout
from tot_lab.core.reading.json_values import find_json
from tot_lab.core.reading.judgements import match_all, match_once
from tot_lab.core.reading.thinking import split_thinking
from tot_lab.core.records import Decided, Note, Scored, Thought, parent_of
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Answer, Task
from tot_lab.core.tools import characters_within, tokens_in
from tot_lab.strategies.conversation import shortened
from tot_lab.strategies.deep_think_prompts import ANEW, BRANCH, CONVERGE, DEVELOP
from tot_lab.strategies.deep_think_replies import (
    AdoptedIdea,
    Approach,
    Approaches,
    Convergence,
    Development,
    Evaluation,
    IterationResult,
    Judgement,
    ReplyModel,
    Synthesis,
    ThoughtBranch,
)
from tot_lab.strategies.structured import Structured, Tier, ask_json, described, read_json_as

M = TypeVar("M", bound=BaseModel)

Show: TypeAlias = Callable[[str, str, str], str]
"""A function that shortens a text of an earlier phase to the part that a prompt shows. Its arguments are the
name of the text (such as `solution`), the id of its branch (or ""), and the text."""

ASSUMED = 3.0
"""The assumed confidence, out of 10, of a reply that could not be read."""

CONFIDENT = 9.5
"""The least confidence, out of 10, that ends the search from the second iteration on."""

DIRECT = "Direct approach"
"""Name of the only branch if the reply to BRANCH could not be read."""

SHOWN = 8_000
"""Characters of each text of an earlier phase that a prompt shows if the context window is not known."""


INSTRUCTIONS = 250
"""An upper bound of the tokens of a phase's instructions."""

FORMS: dict[str, type[ReplyModel]] = {
    "branch": Approaches,
    "develop": Development,
    "converge": Convergence,
}
"""The type of the replies of each phase."""

SLOTS = Slots("deep think", 4)
"""The limit of concurrent calls, shared by all runs of Deep Think in this process.

References:
    Cogtrix (see `DeepThink`): four concurrent calls.
"""

_MAX_ITERATIONS = 5
_MAX_BRANCHES = 5


class Sizes(NamedTuple):
    """The size of a search, after clamping."""

    max_iterations: int
    num_branches: int
    beam_width: int


class DeepThink(Prompting):
    """Develop several approaches per iteration, and combine the best of them into one solution.

    Best for questions with several good answers and trade-offs between them: designs, decisions, causes of a
    fault. Trade-off: every call is long, and the judge is the model itself. Calls: num_branches + 2 for each
    iteration, with the defaults 5 to 15; one more if the server turns out not to support JSON schemas.

    Settings outside their range are clamped, and the note `deep_think.clamped` records it. Presets:
    `tl.presets.deep_think_quick`, `_balanced`, `_thorough`, `_maximum`. Results of research belong in the
    task's `context`. All runs of a process together have at most 4 calls of Deep Think in flight.

    An approach is a child of the most confident synthesis so far, or of the root in the first iteration. A
    solution is a child of its approach.
    A synthesis is a child of the best solution; its `source` names the solutions whose ideas it uses. The
    answer is the synthesis of the iteration with the highest confidence, of equal ones the later. Its score
    is that confidence / 10, or `None` if the confidence was assumed.

    The task and the instructions of a prompt leave a part of the context window (`tl.Task.context_window`)
    free. The texts of earlier phases fill at most three quarters of that part, or a quarter of the whole
    window if that is more; the longest are shortened if they do not fit. If the window is not known, each
    text has at most 8,000 characters. Each cut is a note `deep_think.shortened`, a line of the report, and a
    finding of `tl.diagnose`.

    Stops: `converged` (the model expects no improvement from another iteration), `solved` (a confidence of at
    least 9.5), `limit:iterations`, `limit:timeout`, and `limit:errors` if a later iteration failed and an
    earlier one answers. `tl.deep_thought(run)` gives the iterations and the report.

    References:
        Cogtrix, an assistant (github.com/NorthlandPositronics/Cogtrix), docs/DEEPTHINK.md.
    """

    setting_aliases: ClassVar[Mapping[str, str]] = {
        "max_iterations": "max_iterations",
        "num_branches": "num_branches",
        "beam_width": "beam_width",
        "temperature": "temperature",
        "model": "model",
        "task": "tl.general(task)",
        "context": "tl.general(task, context=…)",
        "provider": 'tl.Lab("provider/model")',
        "base_url": "tl.Lab(tl.LiteLLM(api_base=…))",
        "api_key": "tl.Lab(tl.LiteLLM(api_key=…))",
        "context_window": "tl.Lab(tl.LiteLLM(context_window=…))",
    }

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.7
    """Sampling temperature, 0–2. `None` means the model's default."""

    max_iterations: int = 3
    """The most iterations, 1–5."""

    num_branches: int = 3
    """Approaches per iteration, 2–5."""

    beam_width: int = 2
    """Solutions that the next iteration builds on, 1–3, and at most `num_branches`."""

    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call, counted from when it is sent, in place of the lab's `timeout`. The calls of
    DEVELOP together have twice that. A call that takes longer fails with an error that names the limit, and
    its branch is lost.
    """

    tier: Tier = "mid"
    """Capability of the model: prompts describe the JSON by an example (`local`), by a schema and an example
    (`mid`), or by the schema alone (`large`, `frontier`)."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        sizes = yield from self._clamped(at)
        work = _Iterations(self, task, sizes, at)
        return (yield from work.carried_out())

    def max_calls(self, task: Task) -> int:
        sizes, _ = self._sizes()
        return sizes.max_iterations * (sizes.num_branches + 2) + 1

    def _clamped(self, at: str) -> Procedure[Sizes]:
        sizes, clamped = self._sizes()
        for field, used in clamped.items():
            data = {"field": field, "given": getattr(self, field), "used": used}
            yield Note("deep_think.clamped", at, data)
        return sizes

    def _sizes(self) -> tuple[Sizes, dict[str, int]]:
        """The size of the search, and the settings that were clamped, with the values used instead."""
        branches = _between(2, self.num_branches, _MAX_BRANCHES)
        sizes = Sizes(
            _between(1, self.max_iterations, _MAX_ITERATIONS),
            branches,
            _between(1, self.beam_width, min(3, branches)),
        )
        return sizes, {name: n for name, n in sizes._asdict().items() if n != getattr(self, name)}


class _Iterations:
    """A search in progress. Its state changes only between stages."""

    def __init__(self, strategy: DeepThink, task: Task, sizes: Sizes, at: str) -> None:
        self.by = strategy
        self.task = task
        self.sizes = sizes
        self.at = at
        self.goal = task.task_prompt(True)
        # `task.context_window` is that of the lab's default model, and says nothing about another model.
        self.window = task.context_window if strategy.model is None else None
        self.past: list[IterationResult] = []
        self.schema = True  # whether the server supports JSON schemas, as far as known
        self.direct = False  # whether the approaches of the iteration were unreadable
        self.unjudged = False  # whether the judgement of the iteration was unreadable

    def carried_out(self) -> Procedure[Answer]:
        """Branch, develop and converge, repeatedly while improvement is possible."""
        base, unfinished = self.at, list[ThoughtBranch]()
        stop = "limit:iterations"
        for number in range(1, self.sizes.max_iterations + 1):
            approaches, failed = yield from self._branch(base, number)
            if not approaches:
                stop = self._failed(failed)
                break
            developed = yield from gather(
                [self._develop(branch) for branch in approaches], at_most=1, seconds=2 * self.by.timeout
            )
            branches = [branch for branch, _ in developed]
            if all(branch.solution_node is None for branch in branches):
                failed = next((halt for _, halt in developed if halts(halt)), developed[0][1])
                stop = self._failed(failed)
                break
            result, failed = yield from self._converge(base, number, branches)
            if result is None:
                unfinished, stop = branches, self._failed(failed)
                break
            self.past.append(result)
            base = self._best().node
            if self.unjudged and self.direct and all(one.assumed or one.error for one in branches):
                stop = "error"  # no stage had a readable reply: the model refuses or is not capable
                break
            if not result.should_continue:
                stop = "converged"
                break
            if number > 1 and result.confidence >= CONFIDENT:
                stop = "solved"
                break
        return (yield from self._answer(stop, unfinished))

    # Branch.

    def _branch(self, base: str, number: int) -> Procedure[tuple[list[ThoughtBranch], str]]:
        """The approaches of an iteration. Empty, with the stop reason, if the call failed."""
        request = BRANCH.format(count=self.sizes.num_branches)
        (lessons,) = yield from self._shown(base, "branch", lambda show: [self._lessons(number, show)])
        prompt = _joined(self.goal, lessons, request, ANEW if self.past else "")
        result, failed = yield from self._ask_phase(base, "branch", prompt, Approaches, number - 1)
        if failed:
            return [], failed
        self.direct = result.value is None
        if result.truncated:
            yield Note("deep_think.truncated", base, {"what": "branch"}, fallback=True)
        if result.value is None:
            yield from self._assume(base, "branch", result.error)
            strategy = _raw(result) or "Solve the task directly."
            approaches = [Approach(name=DIRECT, strategy=strategy)]
        else:
            approaches = result.value.branches[: self.sizes.num_branches]
            if (given := len(result.value.branches)) > len(approaches):
                yield Note("deep_think.left_out", base, {"given": given, "used": len(approaches)})
        branches = []
        first = (number - 1) * _MAX_BRANCHES  # an earlier iteration may have children at the base
        for k, approach in enumerate(approaches):
            text = f"{approach.name or f'Approach {k + 1}'}\n{approach.strategy}"
            thought = yield from emit(Thought(f"{base}.{first + k}", base, text))
            name, _, strategy = thought.text.partition("\n")  # a person may have edited them
            branches.append(
                ThoughtBranch(f"b{k}", name, strategy, approach.rationale, approach.risks, node=thought.id)
            )
        return branches, ""

    def _lessons(self, number: int, show: Show) -> str:
        """The prompt text about earlier iterations. Empty for the first."""
        if not self.past:
            return ""
        last, best = self.past[-1], self._best()
        kept = [branch for branch in last.branches if branch.id in last.beam]
        lines = [
            f"This is iteration {number}. The best solution so far, with {_trusted(best)}:",
            f"<solution>\n{show('best solution', '', best.best_solution)}\n</solution>",
            _part(
                "What the last iteration teaches:",
                show("lessons", "", _joined(last.reflection_summary, *last.insights)),
            ),
            _part("The best of its approaches:", "\n\n".join(_solution(branch, show) for branch in kept)),
            _part("Look at this first:", show("next focus", "", last.next_focus)),
        ]
        return _joined(*lines)

    # Develop.

    def _develop(self, branch: ThoughtBranch) -> Procedure[tuple[ThoughtBranch, str]]:
        """Develop one approach: plan, execute, observe, reflect. The second value is the stop reason if that
        failed, and otherwise "".
        """
        found, approach = yield from self._shown(
            branch.node, "develop", lambda show: [self._found(show), _approach(branch, show)]
        )
        prompt = _joined(self.goal, found, DEVELOP)
        result, failed = yield from self._ask_phase(
            branch.node, "develop", prompt, Development, closing=approach
        )
        made, raw = result.value, _raw(result)
        if failed or (made is None and not raw):
            empty = "the reply was cut off before its answer" if result.truncated else "the reply was empty"
            why = (failed and result.error) or empty
            if not failed:
                yield Note("deep_think.empty", branch.node, {"what": "develop", "error": why}, fallback=True)
            yield Decided(branch.node, "failed", why)
            return msgspec.structs.replace(branch, error=why), failed or "error"
        if made is None:
            yield from self._assume(branch.node, "develop", result.error)
            made = Development(solution=raw)
        thought = yield from emit(Thought(f"{branch.node}.0", branch.node, made.solution))
        if made.rescaled:
            yield Note(
                "deep_think.rescaled", branch.node, {"why": f"{branch.name}: {made.rescaled}"}, fallback=True
            )
        written = {**vars(made), "strengths": tuple(made.strengths), "weaknesses": tuple(made.weaknesses)}
        written |= {"solution": thought.text, "solution_node": thought.id}
        del written["rescaled"]
        if result.truncated:
            yield Note(
                "deep_think.truncated", thought.id, {"what": "develop", "confidence": ASSUMED}, fallback=True
            )
        if result.truncated or result.value is None:
            written |= {"assumed": True, "truncated": result.truncated, "confidence": ASSUMED}
        return msgspec.structs.replace(branch, **written), ""

    def _found(self, show: Show) -> str:
        if not self.past:
            return ""
        best = show("best solution", "", self._best().best_solution)
        return f"The best solution so far, which is to be surpassed:\n<solution>\n{best}\n</solution>"

    # Converge.

    def _converge(
        self, base: str, number: int, branches: Sequence[ThoughtBranch]
    ) -> Procedure[tuple[IterationResult | None, str]]:
        """Judge the branches and synthesise a solution. `None`, with the stop reason, if the call failed."""
        solved = [branch for branch in branches if branch.solution_node is not None]
        shown = yield from self._shown(
            base, "converge", lambda show: [_solution(branch, show) for branch in solved]
        )
        solutions = "\n\n".join(shown)
        prompt = _joined(self.goal, CONVERGE.format(count=len(solved), solutions=solutions))
        result, failed = yield from self._ask_phase(base, "converge", prompt, Convergence, number - 1)
        if failed:
            return None, failed
        made: Judgement | None = result.value
        if made is None:
            made = read_json_as(Judgement, _raw(result)) or Judgement()
        if result.truncated:
            yield Note(
                "deep_think.truncated", base, {"what": "converge", "confidence": ASSUMED}, fallback=True
            )
        whole = made if isinstance(made, Convergence) and not result.truncated else None
        self.unjudged = whole is None
        ranked = yield from self._ranked(base, solved, made, whole is not None)
        if whole is not None:
            synthesised = yield from self._synthesised(number, ranked, whole)
        elif not result.truncated and _is_prose(_raw(result)):
            yield from self._assume(base, "converge", result.error)
            prose = Convergence(synthesis=Synthesis(solution=_raw(result)))
            synthesised = yield from self._synthesised(number, ranked, prose)
        else:
            synthesised = yield from self._stand_in(base, number, ranked, made, result)
        lost = [branch for branch in branches if branch.solution_node is None]
        beam = tuple(branch.id for branch in ranked[: self.sizes.beam_width])
        done = msgspec.structs.replace(synthesised, branches=(*ranked, *lost), beam=beam)
        yield Note("deep_think.iteration", done.node, msgspec.json.decode(msgspec.json.encode(done)))
        return done, ""

    def _ranked(
        self, base: str, solved: Sequence[ThoughtBranch], made: Judgement, whole: bool
    ) -> Procedure[list[ThoughtBranch]]:
        """The branches with scores, best first; ties are broken by the confidence that DEVELOP stated.

        If the reply is truncated or has no synthesis (`whole` is false), its scores are used only if it
        scores every branch.
        """
        names, written = [one.name for one in solved], [given.named for given in made.evaluations]
        match = match_once(names, written, [one.id for one in solved])
        judged = dict(zip(match.places, made.evaluations, strict=True))
        if not whole and any(judged.get(k, Evaluation()).score is None for k in range(len(solved))):
            judged = {}
        elif warning := " ".join(filter(None, [match.warning, made.scale])):
            yield Note("deep_think.matched", base, {"why": warning}, fallback=True)
        if judged and made.rescaled:
            yield Note("deep_think.rescaled", base, {"why": made.rescaled}, fallback=True)
        scored = []
        for k, branch in enumerate(solved):
            given = judged.get(k, Evaluation())
            node = branch.solution_node or branch.node
            score = yield from _score(node, given.score)
            scored.append(msgspec.structs.replace(branch, score=score, verdict=given.verdict))
        ranked = sorted(scored, key=lambda branch: (-_or_least(branch.score), -_confidence(branch)))
        for place, branch in enumerate(ranked):
            kept = place < self.sizes.beam_width
            why = "" if kept else f"below the best {self.sizes.beam_width}"
            yield Decided(branch.solution_node or branch.node, "kept" if kept else "pruned", why)
        return ranked

    def _stand_in(
        self,
        base: str,
        number: int,
        ranked: Sequence[ThoughtBranch],
        made: Judgement,
        reply: Structured[Convergence],
    ) -> Procedure[IterationResult]:
        """The result if the reply to CONVERGE has no synthesis: the solution of the best branch whose
        confidence was not assumed, or of the best of all if there is no such branch."""
        best = min(ranked, key=lambda branch: branch.assumed)
        why = "the reply was cut off" if reply.truncated else reply.error
        why = why if _raw(reply) else "the reply was empty"
        data = {"what": "converge", "error": why, "confidence": ASSUMED, "branch": best.id}
        yield Note("deep_think.assumed", base, data, fallback=True)
        return IterationResult(
            iteration=number,
            branches=(),
            best_solution=best.solution,
            confidence=ASSUMED,
            node=best.solution_node or "",
            reflection_summary=made.reflection.summary,
            insights=tuple(made.reflection.insights),
            assumed=True,
            truncated=reply.truncated,
            from_branch=best.id,
        )

    def _synthesised(
        self, number: int, solved: Sequence[ThoughtBranch], made: Convergence
    ) -> Procedure[IterationResult]:
        """Record the synthesis as a thought. Returns the result, still without `branches` and `beam`."""
        ideas = made.synthesis.taken
        places = match_all([branch.name for branch in solved], [idea.name for idea in ideas])
        taken = tuple(
            AdoptedIdea(solved[place].id, idea.idea)
            for place, idea in zip(places, ideas, strict=True)
            if place is not None
        )
        of = {one.branch for one in taken} or {branch.id for branch in solved}
        best = solved[0].solution_node or ""
        source = tuple(
            branch.solution_node
            for branch in solved[1:]
            if branch.id in of and branch.solution_node is not None
        )
        thought = yield from emit(Thought(f"{best}.0", best, made.synthesis.solution, source))
        score = yield from _score(thought.id, made.confidence)
        if score is None and not self.unjudged:
            why = "the confidence is not a number from 0 to 10"
            yield Note("deep_think.unrated", thought.id, {"error": why, "confidence": ASSUMED}, fallback=True)
        return IterationResult(
            iteration=number,
            branches=(),
            best_solution=thought.text,
            confidence=ASSUMED if score is None else score,
            node=thought.id,
            synthesis_reasoning=made.synthesis.reasoning,
            taken=taken,
            reflection_summary=made.reflection.summary,
            insights=tuple(made.reflection.insights),
            should_continue=made.should_continue is not False,
            next_focus=made.next_focus,
            assumed=score is None,
        )

    def _failed(self, stop: str) -> str:
        """The stop reason after an iteration that failed with `stop`: `limit:errors` instead of `error` if an
        earlier synthesis is the answer."""
        return "limit:errors" if stop == "error" and self.past else stop

    # The answer.

    def _answer(self, stop: str, unfinished: Sequence[ThoughtBranch]) -> Procedure[Answer]:
        """Answer with the most confident iteration. If no iteration was completed, answer with the most
        confident solution among the `unfinished` branches.
        """
        best = self._best() if self.past else None
        solved = sorted((one for one in unfinished if one.solution), key=lambda one: -_confidence(one))
        node, text = (None, "") if not solved else (solved[0].solution_node, solved[0].solution)
        if best is not None:
            node, text = best.node, best.best_solution
        if node is not None:
            yield Decided(node, "answer", stop)
        yield Note("deep_think.ended", self.at, {"stop": stop, "iteration": best and best.iteration})
        if node is None:
            return Answer("", stop)
        score = None if best is None or best.assumed else best.confidence / 10
        answer = self.task.domain.read_answer(self.task, text)
        if answer is None:
            yield Note("parse.unreadable", node, {"kind": "converge" if self.past else "develop", "draw": 0})
        others = [result.node for result in sorted(self.past, key=_trust, reverse=True)[1:]]
        return Answer(answer or "", stop, node, score, tuple(others))

    # Helpers.

    def _shown(self, at: str, what: str, write: Callable[[Show], list[str]]) -> Procedure[list[str]]:
        """The prompt texts that `write` makes, with the texts of earlier phases shortened until they fit.

        Each cut is recorded as a note on the thought `at`.
        """
        given: list[str] = []
        cuts: list[dict[str, Any]] = []

        def collect(part: str, branch: str, text: str) -> str:
            given.append(text)
            return text

        def shorten(part: str, branch: str, text: str) -> str:
            most = SHOWN if limit is None else characters_within(text, limit)
            if most < len(text):
                data = {"what": what, "text": part, "branch": branch, "shown": most, "of": len(text)}
                cuts.append({**data, "window": self.window})
            return shortened(text, most)

        write(collect)
        limit = self._limit(given, INSTRUCTIONS + tokens_in(described(FORMS[what], self.by.tier)))
        shown = write(shorten)
        for data in cuts:
            yield Note("deep_think.shortened", at, data)
        return shown

    def _limit(self, texts: Sequence[str], instructions: int) -> int | None:
        """The most tokens of each text so that all of `texts` fit. `None` if the window is not known."""
        if self.window is None:
            return None
        left = self.window - tokens_in(self.goal) - instructions
        # A quarter of the rest is left for the reply. `tokens_in` overestimates, so that the rest can seem to
        # be nothing: the texts get at least a quarter of the window.
        room = max(left * 3 // 4, self.window // 4)
        sizes = sorted(map(tokens_in, texts))
        for k, size in enumerate(sizes):
            if size * (len(sizes) - k) > room:
                return room // (len(sizes) - k)
            room -= size
        return max(sizes, default=0)

    def _best(self) -> IterationResult:
        """The iteration whose solution is the answer so far."""
        return max(self.past, key=_trust)

    def _ask_phase(
        self, at: str, purpose: str, prompt: str, form: type[M], sample_index: int = 0, closing: str = ""
    ) -> Procedure[tuple[Structured[M], str]]:
        """Make a call for JSON of type `form`. The second value is the stop reason if the call failed, and
        otherwise "".

        Args:
            sample_index: Distinguishes iterations, which may repeat a prompt at one thought.
        """
        call, tier = self.by.call(at, purpose, prompt, sample_index), self.by.tier
        seconds = self.by.timeout
        result = yield from with_timeout(
            seconds,
            ask_json(call, form, tier=tier, retries=0, schema=self.schema, closing=closing),
            slots=SLOTS,
        )
        if result.schema_refused and purpose == "branch":  # the first call; later ones omit the schema
            self.schema = False
            call = self.by.call(at, purpose, prompt, _MAX_ITERATIONS)
            result = yield from with_timeout(
                seconds,
                ask_json(call, form, tier=tier, retries=0, schema=False, closing=closing),
                slots=SLOTS,
            )
        error = result.replies[-1].error
        if error is None:
            return result, ""
        return result, "limit:timeout" if error.startswith("timeout") else stop_of(error)

    def _assume(self, at: str, what: str, error: str | None) -> Procedure[None]:
        """Record a note that a reply is used as plain text."""
        data = {"what": what, "error": error}
        yield Note(
            "deep_think.assumed",
            at,
            data if what == "branch" else {**data, "confidence": ASSUMED},
            fallback=True,
        )


def _score(node: str, value: float | None) -> Procedure[float | None]:
    """Record a CONVERGE score of 0 to 10. Returns it as recorded; a person may have edited it."""
    share = None if value is None else value / 10
    scored = yield from emit(Scored(node, share, value, (value,), "converge"))
    return value if scored.score == share else scored.score and scored.score * 10


def _trust(result: IterationResult) -> tuple[bool, float, int]:
    """The key by which the best iteration is the largest: a stated confidence before an assumed one, then the
    higher confidence, then the later iteration."""
    return not result.assumed, result.confidence, result.iteration


def _raw(result: Structured[Any]) -> str:
    """The text of the last reply, without its thinking."""
    return split_thinking(result.replies[-1].text)[1].strip()


def _is_prose(text: str) -> bool:
    """Whether a reply is a text for a reader, and not JSON in which something is missing."""
    return (
        not text.startswith(("{", "["))
        and not any(f'"{field}"' in text for field in ("evaluations", "synthesis"))
        and any(map(str.isalpha, text))
        and all(found.end - found.start < len(text) for found in find_json(text))
    )


def _between(low: int, value: int, high: int) -> int:
    return min(max(value, low), high)


def _or_least(score: float | None) -> float:
    return -1.0 if score is None else score


def _confidence(branch: ThoughtBranch) -> float:
    return -1.0 if branch.assumed else _or_least(branch.confidence)


# Prompt texts.


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _part(head: str, text: str) -> str:
    return f"{head}\n{text}" if text else ""


def _trusted(result: IterationResult) -> str:
    return (
        "a confidence that nobody knows" if result.assumed else f"a confidence of {result.confidence:g} of 10"
    )


def _approach(branch: ThoughtBranch, show: Show) -> str:
    fields = [("Strategy", branch.strategy), ("Rationale", branch.rationale), ("Risks", branch.risks)]
    lines = [branch.name]
    lines += [f"{what}: {show(what.lower(), branch.id, text)}" for what, text in fields if text]
    return "\n".join(["<approach>", *lines, "</approach>"])


def _solution(branch: ThoughtBranch, show: Show) -> str:
    """A branch with its solution, strengths and weaknesses."""
    own = branch.confidence
    fields = [
        ("Strategy", branch.strategy),
        ("Checked", branch.observation),
        ("Strengths", "; ".join(branch.strengths)),
        ("Weaknesses", "; ".join(branch.weaknesses)),
        ("Reflection", branch.reflection),
        ("Confidence", "" if branch.assumed or own is None else f"{own:g} of 10"),
        ("Verdict", branch.verdict),
        ("Score", "" if branch.score is None else f"{branch.score:g} of 10"),
    ]
    about = "\n".join(f"{what}: {show(what.lower(), branch.id, text)}" for what, text in fields if text)
    solution = f"<solution>\n{show('solution', branch.id, branch.solution)}\n</solution>"
    return f"<approach>\nName: {branch.name}\n{about}\n{solution}\n</approach>"
