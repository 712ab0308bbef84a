"""Why a run failed, in one sentence."""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tot_lab.analysis.blame import Blame, Blamed, Labels
from tot_lab.analysis.by_person import REPLACED, changes_of
from tot_lab.analysis.diagnosis import Diagnosis, Finding, findings_of, seen_at_once
from tot_lab.analysis.frames import calls_of, tools_of, tools_offered
from tot_lab.analysis.known import can_be_asked, judged
from tot_lab.core.bulk import gc_paused
from tot_lab.core.purposes import role_of
from tot_lab.core.records import Decided, Scored, describe_stop
from tot_lab.core.tools import TOOL
from tot_lab.core.tree import Node, format_score
from tot_lab.record.run import Run, expect_run

NAMED = 3
"""Maximum number of thoughts that the sentence names. `Finding.nodes` has all of them."""


_UNKNOWN = "The cause is not known: nothing tells which thoughts could lead to a right answer."

REPEATED = ("right_not_chosen", "unsolvable", "good_pruned", "cut_short")
"""Kinds of findings that repeat `why_it_failed` if they concern no other thoughts."""


@gc_paused()
def diagnose(run: Run) -> Diagnosis:
    """Find the problems of a run that its record shows. The run need not be finished.

    Kinds of findings:

    - why_it_failed: which component is to blame for a failed run, and at which thoughts. It comes first, and
      the header of the explorer shows it too.
    - right_not_chosen: the answer is wrong or missing, and a leaf holds a right one. Needs ground truth.
    - unsolvable: no answer can be right. Needs a solver. good_pruned: a pruned thought is marked right, or
      could have led to a right answer, which the run did not give. Needs a solver, ground truth or marks.
    - blind_scores: thoughts that can still lead to a right answer do not score above the others. Needs a
      solver.
    - marks: how the scores agree with a person's marks. marked_wrong: the answer rests on a thought that is
      marked wrong.
    - person: what a person changed, in a branch or while the run was under way.
    - cut_short: a budget, the cap on thoughts or that on iterations ended the search before it had expanded
      every thought that was not pruned. out_of_turns: a tool loop used up its turns.
    - unfinished_answer: the answer of a search on text comes from a path that does not state an answer.
      separator_unseen: no reply ended at a stop sequence, so each reply is a single step.
    - assumed_confidence: Deep Think could read no confidence, so the answer is that of its last iteration.
      shortened_texts: prompts of later phases contained only a part of a text.
    - failed_calls, refused_calls, cut_off (replies that ended at `max_tokens`), unreadable_replies,
      unreadable_scores: calls that were lost. shared_tokens: replies for which the server reported only one
      token count for several replies together.
    - failed_tools: failed tool calls. unavailable_tools: tools that the model asked for and could not call.
      repeated_calls: the same call on the same path with the same result. unused_tools: tools were offered,
      none was called, and the answer is not known to be right.
    - duplicates: siblings with the same text.
    - score_collapse: an evaluator gave nearly all thoughts the same score.
    - contradiction: samples of the score of one thought are far apart. equal_states: thoughts with the same
      state (or siblings with the same text, if the domain has no states) have scores far apart. equal_draws:
      all samples of the score of each thought are equal.
    """
    expect_run(run, "diagnose")
    lost = _lost(run, asking=True)
    return Diagnosis([*([lost[1]] if lost else []), *findings_of(run)])


def blame_and_findings(run: Run) -> tuple[Blamed | None, Diagnosis]:
    """Return the component to blame for a failed run (`None` if it did not fail), and the findings about the
    run, without those that only repeat `why_it_failed`.
    """
    lost = _lost(run)
    if lost is None:
        return None, seen_at_once(run)
    blamed, why = lost
    others = (
        finding
        for finding in seen_at_once(run)
        if finding.kind not in REPEATED or not {*finding.nodes} <= {*why.nodes}
    )
    return blamed, Diagnosis([why, *others])


def why_it_failed(run: Run) -> Finding | None:
    """Return the finding `why_it_failed`: the component to blame, as `judge_evaluator` determines it.

    If neither a solver of the domain, a reference nor marks tell which thoughts could still lead to a correct
    answer, the finding says what the record shows: that a wrong answer was accepted, whether a tool returned
    the right one, or which pruned thoughts have the highest scores. Returns `None` if the run did not fail,
    or has not ended.
    """
    lost = _lost(run)
    return lost and lost[1]


def _lost(run: Run, *, asking: bool | None = None) -> tuple[Blamed, Finding] | None:
    labels = Labels(run, asking=can_be_asked(run) if asking is None else asking)
    return blame_and_reason(labels) if labels.asking and labels.failed else None


def blame_and_reason(labels: Labels) -> tuple[Blamed, Finding]:
    """Return the component to blame for a failed run, and the finding that says so."""
    blamed = labels.blame()
    why = _reason(labels.run, blamed)
    nodes = tuple(node.id for node in why.nodes)
    if why.on not in (None, blamed.on):
        blamed = Blamed(why.on, why.nodes[0].depth if nodes else blamed.depth, nodes)
    return blamed, Finding("why_it_failed", why.sentence, nodes)


class _Reason(NamedTuple):
    """The component to blame, what it did, and the thoughts that show it. `on=None` keeps the blame of
    `Labels.blame`.
    """

    on: Blame | None
    text: str
    nodes: Sequence[Node] = ()

    @property
    def sentence(self) -> str:
        """The reason as a sentence that begins with the component to blame."""
        who = "Answer" if self.on == "answerer" else self.on and self.on.capitalize()
        return f"{who}: {self.text}" if who else self.text


def _reason(run: Run, blamed: Blamed) -> _Reason:
    nodes = [run.tree[id] for id in blamed.nodes]
    match blamed.on:
        case "unsolvable":
            return _Reason(None, "No answer to this question can be right.", [run.tree.root])
        case "answerer":
            return _not_chosen(run, nodes)
        case "proposer":
            return _not_proposed(run, nodes)
        case "cut short":
            ended = _interruption(run) or "the search ended"
            cut = f"{ended} before it expanded {_ids(nodes)}, {_hope(run, nodes)}.{_above(run, nodes)}"
            return _accepted(run) or _Reason("cut short", cut, nodes)
        case "evaluator" if run.best is not None and blamed.nodes == (run.best.id,):
            return _accepted(run) or _pruned(run, nodes)
        case "evaluator":
            return _pruned(run, nodes)
        case _:
            return _shown_by_record(run)


def _accepted(run: Run) -> _Reason | None:
    """Return the evaluator or the person that scored a wrong answer so high that the search stopped with it,
    as a reason. `None` if the search did not stop because of a score.
    """
    best = run.best
    if run.stop_reason != "solved" or best is None or not _scored(best):
        return None
    if best.by == "person":
        given = _ids([best], _scored)
        text = f"set the score of {given}, and it was accepted as the answer, which is wrong."
        return _Reason("person", text, [best])
    return _Reason("evaluator", f"accepted {_ids([best])} as the answer, which is wrong.", [best])


def _hope(run: Run, nodes: Sequence[Node]) -> str:
    """Return a relative clause about good thoughts: they are right, or could lead to a right answer."""
    if _are_right(run, nodes):
        return "which is right" if len(nodes) == 1 else "which are right"
    return "which could still lead to a right answer"


def _above(run: Run, good: Sequence[Node]) -> str:
    """Return how many evaluated thoughts scored above all of `good`, as a sentence. "" if none did, or if
    some of `good` were not evaluated."""
    if not all(map(judged, good)):
        return ""
    most = max(node.rank for node in good)
    above = sum(judged(node) and node.rank > most for node in run.tree)
    return f" {above} other{'s' if above > 1 else ''} scored higher." if above else ""


def _are_right(run: Run, good: Sequence[Node]) -> bool:
    """Return whether all of `good` are right answers, not only thoughts that could lead to one."""
    task = run.task
    answers = [None if task is None else task.domain.answer(task, run.steps(node.id)) for node in good]
    return all(answer is not None and run.grades([answer]) == [1.0] for answer in answers)


def _pruned(run: Run, good: Sequence[Node]) -> _Reason:
    """Return why the thoughts `good`, from which a right answer could be reached, were pruned.

    A person is to blame only if the person's changes alone explain the pruning.
    """
    others = [node for node in good if node.reason != "person"]
    if not others:
        return _Reason("person", f"pruned {_ids(good)}, {_hope(run, good)}.", good)
    if _are_right(run, others) and (misjudged := _misjudged(run, others)):
        return misjudged
    by: dict[str, list[Node]] = defaultdict(list)
    scores = _Scores(run)
    for node in others:
        by[scores.blame(node)].append(node)
    if high := by["search"]:
        level = "its level" if len(high) == 1 else "their level"
        although = f"although no thought that was kept on {level} scored higher"
        return _Reason("search", f"pruned {_ids(high)}, {_hope(run, high)}, {although}.", high)
    if low := by["evaluator"]:
        what = "gave no readable score to" if all(node.unreadable for node in low) else "pruned"
        return _Reason("evaluator", f"{what} {_ids(low)}, {_hope(run, low)}.", low)
    if lowered := by["lowered"]:
        then = "it was" if len(lowered) == 1 else "they were"
        text = f"set the score of {_ids(lowered, _scored)}, {_hope(run, lowered)}, and {then} pruned."
        return _Reason("person", text, lowered)
    raised = list({rival.id: rival for node in others for rival in scores.raised(node)}.values())
    then = "was" if len(others) == 1 else "were"
    text = f"set the score of {_ids(raised, _scored)} above that of {_ids(others)}"
    return _Reason("person", f"{text}, {_hope(run, others)} and {then} pruned.", [*others, *raised])


class _Scores:
    """The scores of a run's thoughts when they were pruned, and those of the thoughts that were kept."""

    def __init__(self, run: Run) -> None:
        self.given: dict[str, list[tuple[int, Scored]]] = defaultdict(list)
        """The readable evaluations of each thought, each with its index in `run.events`."""
        self.pruned: dict[str, int] = {}
        """The index in `run.events` of the decision that pruned each thought."""
        for place, event in enumerate(run.events):
            if isinstance(event, Scored) and event.score is not None:
                self.given[event.id].append((place, event))
            elif isinstance(event, Decided) and event.what == "pruned":
                self.pruned[event.id] = place
        self.most: dict[int, float] = {}
        """The highest score that a kept thought of each level ever had."""
        self.raised_by_person: dict[int, list[str]] = defaultdict(list)
        """Ids of the kept thoughts that a person scored, by level."""
        self.levels: dict[int, list[str]] = defaultdict(list)
        """Ids of the pruned thoughts of each level."""
        self.nodes = run.tree.nodes
        for node in run.tree:
            if node.state == "pruned":
                self.levels[node.depth].append(node.id)
            elif node.state in ("kept", "complete", "answer"):
                scores = [event.score or 0 for _, event in self.given[node.id]]
                self.most[node.depth] = max([*scores, self.most.get(node.depth, -1)])
                if any(event.by == "person" for _, event in self.given[node.id]):
                    self.raised_by_person[node.depth].append(node.id)

    def at(self, id: str, place: int) -> Scored | None:
        """Return the last readable evaluation of the thought `id` up to the index `place`, or `None`."""
        return next((event for when, event in reversed(self.given[id]) if when <= place), None)

    def raised(self, node: Node) -> list[Node]:
        """Return the kept thoughts on the level of the pruned thought `node` that scored above it only
        because a person set their scores.
        """
        place = self.pruned[node.id]
        own = self.at(node.id, place)
        found = []
        for id in self.raised_by_person[node.depth] if own else ():
            before = [event for when, event in self.given[id] if when <= place]
            higher = {event.by == "person" for event in before if _value(event) > _value(own)}
            if higher == {True} and before[-1].by == "person":
                found.append(self.nodes[id])
        return found

    def blame(self, node: Node) -> str:
        """Return why a thought was pruned: `search`, if no kept thought on its level scored higher;
        `lowered`, if a person set the score of the thought itself; `raised`, if it would have been kept had
        a person not raised the scores of other thoughts; else `evaluator`.
        """
        place = self.pruned.get(node.id)
        own = None if place is None else self.at(node.id, place)
        if place is None or own is None:
            return "evaluator"
        if self.most.get(node.depth, math.inf) <= _value(own):
            return "search"
        if own.by == "person":
            return "lowered"
        raised = len(self.raised(node))
        if not raised:
            return "evaluator"
        better = sum(_value(self.at(id, place)) > _value(own) for id in self.levels[node.depth])
        return "raised" if better < raised else "evaluator"


def _value(event: Scored | None) -> float:
    return -1 if event is None or event.score is None else event.score


def _not_proposed(run: Run, ends: Sequence[Node]) -> _Reason:
    """Return why no child of `ends`, the last good thoughts, could still lead to a right answer."""
    children = [run.tree[id] for node in ends for id in node.children]
    if not children:
        return _Reason("proposer", f"no thought could be read from its replies at {_ids(ends)}.", ends)
    task = run.task
    if task is not None and all(node.text == run.question for node in ends):
        if found := _shown_by_tools(run):
            return found._replace(nodes=found.nodes or ends)
        if all(not child.children and task.domain.complete(task, run.steps(child.id)) for child in children):
            if len(children) == 1:
                return _Reason("proposer", "the only answer that was written is wrong.", ends)
            return _Reason("proposer", _none_right(len(children)), ends)
    none = f"no child of {_ids(ends)} could still lead to a right answer"
    replaced = {change.node for change in changes_of(run) if change.what == REPLACED}
    if written := [child for child in children if child.id in replaced]:
        return _Reason("person", f"replaced the text of {_ids(written)}, and {none}.", written)
    return _Reason("proposer", f"{none}.", ends)


def _none_right(number: int) -> str:
    return f"none of the {number} answers that were written is right."


def _right_at(nodes: Sequence[Node]) -> _Reason:
    text = f"a right one was at {_ids(nodes)}, and another one was given."
    return _Reason("answerer", text, nodes)


def _not_chosen(run: Run, right: Sequence[Node]) -> _Reason:
    """Return why none of the `right` answers was given, as far as the scores show it."""
    return _misjudged(run, right) or _right_at(right)


def _misjudged(run: Run, right: Sequence[Node]) -> _Reason | None:
    """Return that the given answer scored as high as the `right` ones or higher, and who scored it so. `None`
    if a right one scored higher, or a score is missing.
    """
    given = run.best
    if given is None or given.score is None or not all(map(_scored, [given, *right])):
        return None
    by_person = [node for node in (given, *right) if node.by == "person"]
    scores = [node.rank for node in right]
    if max(scores) > given.rank or any(node.score is None for node in right):
        return None
    equal = [node for node in right if node.rank == given.rank]
    if by_person:
        than = "as high as" if equal else "lower than"
        ids, wrong = _ids(equal or right, _scored), _ids([given], _scored)
        scored = f"the right answer, {ids}, scored {than} the wrong one, {wrong}"
        return _Reason("person", f"set the score of {_ids(by_person)}, and {scored}.", right)
    wrong = f"the wrong answer, {_ids([given])}"
    above = "as high as" if equal else "higher than"
    return _Reason("evaluator", f"scored {wrong}, {above} the right one, {_ids(equal or right)}.", right)


def _scored(node: Node) -> bool:
    """Return whether an evaluator or a person scored a thought."""
    return judged(node) or node.by == "person"


def _shown_by_record(run: Run) -> _Reason:
    """Return the reason if it is unknown which thoughts could lead to a right answer: that a wrong answer was
    accepted, or what the results of tools or the grades of other answers show.
    """
    found = _shown_by_tools(run)
    if not run.answer and (ended := _interruption(run)):
        calls = calls_of(run)
        last = run.tree[calls[-1].call.node] if calls and calls[-1].call.node in run.tree else run.tree.root
        text = f"{ended} before it gave an answer." + (f" {found.sentence}" if found else "")
        return _Reason("cut short", text, (found and found.nodes) or [last])
    if run.answer and (accepted := _accepted(run)):
        return accepted if found is None else accepted._replace(text=f"{accepted.text} {found.sentence}")
    found = found or _shown_by_grades(run)
    if found is not None:
        return found._replace(nodes=found.nodes or [run.best or run.tree.root])
    pruned = [node for node in run.tree if node.state == "pruned" and node.score is not None]
    best = heapq.nlargest(NAMED, pruned, key=lambda node: node.rank)
    text = f"{_end_of(run)}. {_UNKNOWN}"
    text += f" The best of the pruned ones: {_ids(best)}." if best else ""
    return _Reason(None, text, best or [run.best or run.tree.root])


def _shown_by_tools(run: Run) -> _Reason | None:
    """Return a reason that says whether a tool call returned the right answer, or that no offered tool was
    called. `None` if no tools were offered, or the task has no reference text that is graded as right.
    """
    made = [row for row in tools_of(run) if row.call.purpose == TOOL]
    if not made:
        offered = any(tools_offered(run, row) for row in calls_of(run))
        return _Reason("proposer", "called no tool before the answer.") if offered else None
    reference = None if run.task is None else run.task.reference
    if not isinstance(reference, str) or not reference.strip() or run.grades([reference]) != [1.0]:
        return None
    asked = [run.tree[id] for id in dict.fromkeys(row.call.node for row in made) if id in run.tree]
    results = [(row.call.node, row.reply.text) for row in made if row.reply and row.reply.error is None]
    words = r"\s+".join(map(re.escape, reference.split()))
    right = re.compile(rf"(?<![\w.]){words}(?!\w|\.\w)", re.IGNORECASE)
    ids = dict.fromkeys(id for id, text in results if id in run.tree and right.search(text))
    if ids:
        nodes = [run.tree[id] for id in ids]
        given = "another one" if run.answer else "none"
        text = f"the right one is in a tool result at {_ids(nodes)}, and {given} was given."
        return _Reason("answerer", text, nodes)
    match len(results):
        case 0:
            return _Reason(None, "Tools: every call failed.", asked)
        case 1:
            text = "the only tool result that it requested does not contain the right answer."
        case many:
            text = f"none of the {many} tool results that it requested contains the right answer."
    return _Reason("proposer", text, asked)


def _shown_by_grades(run: Run) -> _Reason | None:
    """Return the reason that the grades of several judged answers show. `None` if there are fewer than two
    graded answers, or if the strategy proposes steps instead of whole answers.
    """
    task = run.task
    purposes = {row.call.purpose for row in calls_of(run)} - {"branch"}
    roles = {role_of(purpose) for purpose in purposes}
    if task is None or run.grade is None or "propose" in roles or roles.isdisjoint(("answer", "synthesize")):
        return None
    answers = [(node, task.domain.answer(task, run.steps(node.id))) for node in run.tree if judged(node)]
    held = [(node, answer) for node, answer in answers if answer is not None]
    grades = run.grades([answer for _, answer in held])
    graded = [(grade, node) for grade, (node, _) in zip(grades, held, strict=True) if grade is not None]
    if len(graded) < 2:
        return None
    top = max(grade for grade, _ in graded)
    best = [node for grade, node in graded if grade == top]
    if top == 1.0:
        return _right_at(best)
    text = _none_right(len(graded))
    if top <= run.grade:
        return _Reason("proposer", text)
    text += f" The best, at {_ids(best[:1])}, has the grade {top:.3g}."
    return _Reason("proposer", text, best)


def _interruption(run: Run) -> str:
    """Return a clause that says which limit or budget ended the run, or that it was cancelled. "" if it ended
    in another way."""
    stop = run.stop_reason or ""
    interrupted = stop.startswith(("budget:", "limit:")) or stop == "cancelled"
    return f"the run {describe_stop(stop)}" if interrupted else ""


def _end_of(run: Run) -> str:
    """Return a clause that says what stopped the run, or else that the answer is wrong or missing."""
    stop = run.stop_reason or ""
    if stop.startswith(("budget:", "limit:")) or stop in ("error", "cancelled", "exhausted", "stagnated"):
        return f"The run {describe_stop(stop)}" + (f": {run.error[:200]}" if run.error else "")
    return "The answer is wrong" if run.answer else "There is no answer"


def _ids(nodes: Sequence[Node], shows: Callable[[Node], bool] = judged) -> str:
    """Name up to `NAMED` thoughts, with the scores of those for which `shows` is true."""
    names = [
        node.id if node.score is None or not shows(node) else f"{node.id} (score {format_score(node.score)})"
        for node in nodes[:NAMED]
    ]
    more = len(nodes) - len(names)
    noun = "thought" if len(nodes) == 1 else "thoughts"
    return f"{noun} {', '.join(names)}" + (f" and {more} more" if more > 0 else "")
