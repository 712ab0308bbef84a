"""Findings about one run: what went wrong, as far as its record shows.

A finding is a fact with its numbers and its thoughts, not a guess at a cause. Some findings require ground
truth (a reference, the domain's solver or a person's marks) and are omitted without it. The time is linear in
the size of the run.

Thresholds:

- COLLAPSED, 0.9: scores have collapsed if this share of at least ENOUGH (8) scores lies in a range of NEARLY
(0.02). A ranking by these scores then says almost nothing. Among fewer than 8 scores, equal ones are common.
0.02 is less than the steps in which models grade (0.05), and than the smallest step between the labels of the
Game of 24.
- FAR, 0.5 of the scale: verdicts this far apart contradict each other (`sure` and `impossible`); smaller
differences are the spread of a sampled number.
- FEW, 5 thoughts: `equal_draws` needs at least this many thoughts. `blind_scores` needs this many that could
lead to a right answer, and as many that could not.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tot_lab.analysis.by_person import changes_of
from tot_lab.analysis.frames import CallRow, calls_of, tools_of, tools_offered
from tot_lab.analysis.known import Known, can_be_asked, judged, wins
from tot_lab.core.calls import Reply, html_text, refused
from tot_lab.core.reading.json_values import json_of
from tot_lab.core.records import Decided, Note, describe_stop
from tot_lab.core.tools import is_of_function, tool_of
from tot_lab.core.tree import Node, format_score
from tot_lab.record.doubts import unreadable_example
from tot_lab.record.losses import is_truncated
from tot_lab.record.run import UNREADABLE, Run

COLLAPSED = 0.9
NEARLY = 0.02
ENOUGH = 8
FAR = 0.5
FEW = 5

_SHORTENED = "deep_think.shortened"
_TURNS = ("limit:iterations", "limit:round_trips")

SHOWN = 8
"""Maximum number of ids in a text. `Finding.nodes` has all of them."""


class Finding(NamedTuple):
    """A fact that the record of a run shows.

    Attributes:
        kind: The kind of finding, such as `duplicates`; see `tl.diagnose`.
        text: The finding as a sentence, with its numbers.
        nodes: Ids of the thoughts that the finding concerns.
    """

    kind: str
    text: str
    nodes: tuple[str, ...] = ()


class Diagnosis(tuple[Finding, ...]):
    """The findings of a run, those about its answer first. Empty if there are none."""

    def of(self, kind: str) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self if finding.kind == kind]

    def __repr__(self) -> str:
        lines = [
            f"{finding.kind}: {finding.text}" + (f" [{_ids(finding.nodes)}]" if finding.nodes else "")
            for finding in self
        ]
        return "\n".join(lines) or "nothing found"

    def _repr_html_(self) -> str:
        items = [
            f"<li><b>{html_text(finding.kind.replace('_', ' '))}</b> {html_text(finding.text)}"
            + (f" <code>{html_text(_ids(finding.nodes))}</code>" if finding.nodes else "")
            + "</li>"
            for finding in self
        ]
        return f"<ul>{''.join(items)}</ul>" if items else "<p>nothing found</p>"


def findings_of(run: Run) -> Diagnosis:
    """Return the findings about a run, except `why_it_failed`."""
    return _found(_Facts(run))


def seen_at_once(run: Run) -> Diagnosis:
    """Return the findings about a run without grading its answers now. If a loaded run still waits for
    grading, findings that need the grade are left out.
    """
    return _found(_Facts(run, asking=can_be_asked(run)))


def _found(facts: _Facts) -> Diagnosis:
    return Diagnosis(finding for look in _LOOKS for finding in look(facts))


class _Facts(Known):
    """The run, and facts that several checks use."""

    def __init__(self, run: Run, *, asking: bool = True) -> None:
        super().__init__(run, asking=asking)
        self.nodes = list(run.tree)
        self.marks = run.marks

    @cached_property
    def calls(self) -> list[CallRow]:
        return calls_of(self.run)

    @cached_property
    def missed(self) -> bool:
        """Whether the run has ended without an answer that is known to be correct. `False` without
        `asking`."""
        return self.asking and self.run.stop_reason is not None and self.run.correct is not True

    @cached_property
    def syntheses(self) -> dict[str, bool]:
        """For each iteration of Deep Think, by the id of the thought that ends it (its synthesis): whether
        its confidence was assumed, because none could be read."""
        notes = [event for event in self.run.events if isinstance(event, Note)]
        return {
            note.at: note.data.get("assumed", False) for note in notes if note.name == "deep_think.iteration"
        }

    @cached_property
    def drawn(self) -> list[tuple[Node, float]]:
        """Thoughts with several readable samples of their score, and the spread of these samples as a share
        of the scale. Votes are left out, and so are the scores of the parts of a thought (a crossword's
        clues), because they are not repeated samples of one score.
        """
        top = 1.0 if self.task is None else self.task.domain.value_top
        found = []
        for node in self.thoughts:
            read = [] if node.by == "parts" else [draw for draw in node.samples if draw is not None]
            scale = top if node.by == "value" else 1.0
            if len(read) > 1 and _alone(node) and 0 <= min(read) <= max(read) <= scale:
                found.append((node, (max(read) - min(read)) / scale))
        return found


# Checks of the answer.


def _right_not_chosen(facts: _Facts) -> Iterator[Finding]:
    right = facts.right_leaves if facts.missed else []
    grade = facts.run.grade if right else None
    if grade is not None:
        given = f"The answer has the grade {grade:g}" if facts.run.answer else "There is no answer"
        holds = "1 leaf holds" if len(right) == 1 else f"{len(right)} leaves hold"
        yield Finding("right_not_chosen", f"{given}, and {holds} a right one.", tuple(right))


def _unsolvable(facts: _Facts) -> Iterator[Finding]:
    if facts.nodes and facts.solvable.get(facts.nodes[0].id) is False:
        yield Finding("unsolvable", "No answer to this question can be right.", (facts.nodes[0].id,))


def _good_pruned(facts: _Facts) -> Iterator[Finding]:
    pruned = [node for node in facts.thoughts if node.state == "pruned"]
    marked = _marked(facts, pruned, "right")
    if marked:
        yield Finding("good_pruned", f"{_count(marked, 'thought')} marked right, and pruned.", _of(marked))
    if not facts.missed:
        return
    right = set(facts.right_leaves)
    good = [node for node in pruned if facts.solvable.get(node.id, node.id in right)]
    if not good:
        return
    text = f"{_count(good, 'pruned thought')} could still have led to a right answer"
    lost = _lost_at(facts)
    if lost is not None:
        text += f", and none of those kept at depth {lost} could"
    yield Finding("good_pruned", f"{text}.", _of(good))


def _lost_at(facts: _Facts) -> int | None:
    """Return the first depth at which only pruned thoughts could still lead to a correct answer. `None` if
    this holds at no depth.
    """
    stayed: Counter[int] = Counter()
    pruned: Counter[int] = Counter()
    for node in facts.thoughts:
        if facts.solvable.get(node.id):
            (pruned if node.state == "pruned" else stayed)[node.depth] += 1
    return min((depth for depth in pruned if not stayed[depth]), default=None)


def _marked_wrong(facts: _Facts) -> Iterator[Finding]:
    wrong = _marked(facts, [facts.run.tree[id] for id in facts.run.solution_path], "wrong")
    if wrong:
        are = "is" if len(wrong) == 1 else "are"
        text = f"The answer rests on {_count(wrong, 'thought')} that {are} marked wrong."
        yield Finding("marked_wrong", text, _of(wrong))


def _person(facts: _Facts) -> Iterator[Finding]:
    changes = changes_of(facts.run)
    if changes:
        more = len(changes) - SHOWN
        text = "; ".join(map(str, changes[:SHOWN])) + (f"; and {more} more" if more > 0 else "")
        nodes = dict.fromkeys(change.node for change in changes if change.node)
        yield Finding("person", f"A person changed this run: {text}.", tuple(nodes))


def _cut_short(facts: _Facts) -> Iterator[Finding]:
    stop = facts.run.stop_reason or ""
    waiting = [
        node
        for node in facts.thoughts
        if not node.children and node.state in ("kept", "proposed", "unreadable")
    ]
    if (stop.startswith("budget:") or stop in ("limit:nodes", "limit:iterations")) and waiting:
        ended = describe_stop(stop)
        text = f"The search {ended} with {_count(waiting, 'thought')} that it had not expanded."
        yield Finding("cut_short", text, _of(waiting))


def _out_of_turns(facts: _Facts) -> Iterator[Finding]:
    decided = [event for event in facts.run.events if isinstance(event, Decided) and event.reason in _TURNS]
    meant = facts.syntheses  # for Deep Think it is normal to use up all iterations
    ended = list(dict.fromkeys(event.id for event in decided if event.id not in meant))
    if ended:
        text = f"{_count(ended, 'loop')} used up all turns and ended with the last answer that could be read."
        yield Finding("out_of_turns", text, tuple(ended))
    elif facts.run.stop_reason in _TURNS and facts.nodes and not meant:
        text = "1 loop used up all turns, and ended without an answer."
        yield Finding("out_of_turns", text, (facts.nodes[0].id,))


def _unfinished_answer(facts: _Facts) -> Iterator[Finding]:
    state, best = facts.run.answer_state, facts.run.best
    if best is not None and state in ("unfinished", "cut"):
        why = (
            "its last step was cut off at max_tokens" if state == "cut" else "its last line states no answer"
        )
        yield Finding("unfinished_answer", f"The path of the answer is unfinished: {why}.", (best.id,))


def _separator_unseen(facts: _Facts) -> Iterator[Finding]:
    rows = [
        (row.call, row.reply)
        for row in facts.calls
        if row.call.stop and row.call.purpose == "sample" and row.reply and row.reply.error is None
    ]
    went_on = any(call.messages[-1].role == "assistant" and reply.text.strip() for call, reply in rows)
    seen = any(
        reply.ended is False
        or any(stop in reply.text for stop in call.stop)
        or (reply.ended is None and reply.finish_reason != "length" and went_on)
        for call, reply in rows
    )
    if rows and not seen:
        stops = " or ".join(dict.fromkeys(repr(stop) for call, _ in rows for stop in call.stop))
        text = f"None of {_count(rows, 'reply')} ended at {stops}, so each step is a whole reply."
        yield Finding("separator_unseen", text)


def _assumed_confidence(facts: _Facts) -> Iterator[Finding]:
    syntheses = [facts.run.tree[id] for id, assumed in facts.syntheses.items() if assumed]
    if syntheses and len(syntheses) == len(facts.syntheses):
        many = _count(syntheses, "iteration")
        text = f"Deep Think gave the answer of its last iteration: no confidence could be read in {many}."
        yield Finding("assumed_confidence", text, _of(syntheses))


def _shortened_texts(facts: _Facts) -> Iterator[Finding]:
    notes = [event for event in facts.run.events if isinstance(event, Note) and event.name == _SHORTENED]
    if notes:
        kinds = _tally(f"{note.data['text']} in {note.data['what']}" for note in notes)
        least = min(notes, key=lambda note: note.data["shown"] / note.data["of"]).data
        window = least["window"]
        why = f"has {window:,} tokens" if window else "is not known"
        text = (
            f"Later phases of Deep Think were shown only the beginning of {_count(notes, 'text')}: {kinds}; "
            f"at worst {least['shown']:,} of {least['of']:,} characters. The context window {why}."
        )
        nodes = dict.fromkeys(note.at for note in notes if note.at in facts.run.tree)
        yield Finding("shortened_texts", text, tuple(nodes))


# Checks of the scores.


def _blind_scores(facts: _Facts) -> Iterator[Finding]:
    scored = [node for node in facts.thoughts if judged(node) and node.score is not None]
    can = [node for node in scored if facts.solvable.get(node.id) is True]
    cannot = [node for node in scored if facts.solvable.get(node.id) is False]
    if min(len(can), len(cannot)) < FEW:
        return
    share = _above(_scores(can), _scores(cannot))
    if share <= 0.5:
        text = (
            f"The {len(can)} thoughts that could still lead to a right answer score {_mean(can)} on "
            f"average, the {len(cannot)} that could not {_mean(cannot)}. The former score higher in "
            f"{share:.0%} of pairs (equal scores count half; chance is 50%)."
        )
        yield Finding("blind_scores", text, _of(can))


def _marks(facts: _Facts) -> Iterator[Finding]:
    judged = [node for node in facts.nodes if node.id in facts.marks and facts.marks[node.id].verdict]
    if not judged:
        return
    right, wrong = (_marked(facts, judged, verdict) for verdict in ("right", "wrong"))
    parts = [
        f"{len(nodes)} marked {verdict}" + (f" (mean score {_mean(nodes)})" if _scores(nodes) else "")
        for verdict, nodes in (("right", right), ("wrong", wrong))
    ]
    text = " and ".join(parts)
    if _scores(right) and _scores(wrong):
        share = _above(_scores(right), _scores(wrong))
        text += f"; a right one scores above a wrong one in {share:.0%} of pairs (equal scores count half)"
    unscored = sum(node.score is None for node in judged)
    text += f"; {unscored} of them have no score" if unscored else ""
    yield Finding("marks", f"{text}.", _of(judged))


def _score_collapse(facts: _Facts) -> Iterator[Finding]:
    by_evaluator: dict[str, list[Node]] = defaultdict(list)
    for node in facts.thoughts:
        if node.score is not None and _alone(node):
            by_evaluator[node.by].append(node)
    for by, nodes in by_evaluator.items():
        nodes.sort(key=lambda node: node.rank)
        scores = _scores(nodes)
        first, last = _widest(scores, NEARLY)
        if len(nodes) >= ENOUGH and last - first >= COLLAPSED * len(nodes):
            low, high = format_score(scores[first]), format_score(scores[last - 1])
            within = low if low == high else f"{low} to {high}"
            number = f"{last - first} of {len(nodes)} thoughts"
            text = f"{number} got nearly the same score from the evaluator `{by}`: {within}."
            yield Finding("score_collapse", text, _of(nodes[first:last]))


def _contradiction(facts: _Facts) -> Iterator[Finding]:
    far = [(node, apart) for node, apart in facts.drawn if apart >= FAR]
    if far:
        text = (
            f"The evaluator contradicts itself on {len(far)} of {len(facts.drawn)} thoughts that it judged "
            f"more than once: its samples lie up to {max(apart for _, apart in far):.0%} of the scale apart."
        )
        yield Finding("contradiction", text, _of(node for node, _ in far))


def _equal_states(facts: _Facts) -> Iterator[Finding]:
    groups: dict[tuple[str, Hashable], list[Node]] = defaultdict(list)
    for node in facts.thoughts:
        if node.score is not None and _alone(node):
            state = facts.state(node)
            groups[node.by, (node.parent, _words(node)) if state is None else state].append(node)
    met = [group for group in groups.values() if len(group) > 1]
    far = [group for group in met if max(_scores(group)) - min(_scores(group)) >= FAR]
    if far:
        ends = [end(group, key=lambda node: node.rank) for group in far for end in (min, max)]
        text = (
            f"{len(far)} of {_count(met, 'state')} that came up more than once got scores that differ "
            f"by {FAR:g} or more."
        )
        yield Finding("equal_states", text, _of(ends))


def _equal_draws(facts: _Facts) -> Iterator[Finding]:
    if len(facts.drawn) >= FEW and not any(apart for _, apart in facts.drawn):
        further = sum(len(node.samples) - 1 for node, _ in facts.drawn)
        text = (
            f"All samples agree on each of the {len(facts.drawn)} thoughts that were judged more than once: "
            f"{further} further samples gave no new information."
        )
        yield Finding("equal_draws", text, _of(node for node, _ in facts.drawn))


# Checks for lost calls and thoughts.


def _lost_calls(facts: _Facts) -> Iterator[Finding]:
    answered = [(row, row.reply) for row in facts.calls if row.reply is not None]
    made = [(row, reply) for row, reply in answered if not refused(reply.error)]
    failed = [(row, reply) for row, reply in made if reply.error is not None]
    if failed:
        why = _tally(_beginning(reply) for _, reply in failed)
        text = f"{len(failed)} of {_count(made, 'call')} failed: {why}."
        yield Finding("failed_calls", text, _nodes_of(facts, (row for row, _ in failed)))
    unmade = [(row, reply) for row, reply in answered if refused(reply.error)]
    if unmade:
        why = _tally((reply.error or "")[:40].replace(":", " of ") for _, reply in unmade)
        text = f"{_count(unmade, 'call')} {'was' if len(unmade) == 1 else 'were'} refused: {why}."
        yield Finding("refused_calls", text, _nodes_of(facts, (row for row, _ in unmade)))
    cut = [row for row, reply in made if is_truncated(row.call, reply)]
    if cut:
        kinds = _tally(row.call.purpose for row in cut)
        text = f"{len(cut)} of {_count(made, 'reply')} ended at max_tokens: {kinds}."
        yield Finding("cut_off", text, _nodes_of(facts, cut))
    shared = [row for row, reply in made if reply.shared_tokens]
    if shared:
        text = (
            f"The token counts of {len(shared)} of {_count(made, 'reply')} are estimates: the server gave "
            f"one count for several replies together, which was divided among them."
        )
        yield Finding("shared_tokens", text, _nodes_of(facts, shared))


def _tools(facts: _Facts) -> Iterator[Finding]:
    calls = [row for row in tools_of(facts.run) if row.reply and not refused(row.reply.error)]
    failed = [row for row in calls if row.reply and row.reply.error is not None]
    if failed:
        why = _tally(f"{tool_of(row.call)}, {_reason(row)}" for row in failed)
        text = f"{len(failed)} of {_count(calls, 'tool call')} failed: {why}."
        yield Finding("failed_tools", text, _nodes_of(facts, failed))
    notes = [event for event in facts.run.events if isinstance(event, Note)]
    denied = [note for note in notes if note.name.endswith((".unknown_tool", ".denied_tool"))]
    if denied:
        which = _tally(str(note.data.get("tool", "?"))[:40] for note in denied)
        text = f"The model asked {_times(denied)} for a tool that it could not call: {which}."
        nodes = dict.fromkeys(note.at for note in denied if note.at in facts.run.tree)
        yield Finding("unavailable_tools", text, tuple(nodes))
    repeats = _repeats(facts, calls)
    if repeats:
        which = _tally(str(tool_of(row.call)) for row in repeats)
        text = (
            f"{len(repeats)} of {_count(calls, 'tool call')} had been made before on the same path, with the "
            f"same result: {which}."
        )
        yield Finding("repeated_calls", text, _nodes_of(facts, repeats))
    if not calls and facts.missed:
        turns = [row for row in facts.calls if tools_offered(facts.run, row)]
        names = dict.fromkeys(name for row in turns for name in tools_offered(facts.run, row))
        if turns:
            text = f"No tool was called in {_count(turns, 'turn')} that offered {', '.join(names)}."
            yield Finding("unused_tools", text, _nodes_of(facts, turns))


def _repeats(facts: _Facts, calls: Iterable[CallRow]) -> list[CallRow]:
    """Return the `calls` that repeat an earlier one at the same thought or above it, with the same result."""
    at: dict[str, list[tuple[CallRow, Hashable]]] = defaultdict(list)
    for row in calls:
        if row.reply is not None:
            same = tool_of(row.call), _arguments(row), row.reply.text, row.reply.error
            at[row.call.node].append((row, same))
    tree = facts.run.tree
    before: Counter[Hashable] = Counter()
    repeats = []
    waiting = [(id, True) for id in reversed(tree.roots)] if at else []
    while waiting:
        id, enters = waiting.pop()
        for row, key in at.get(id, ()):
            if enters and before[key]:
                repeats.append(row)
            before[key] += 1 if enters else -1
        if enters:
            waiting.append((id, False))
            waiting.extend((child, True) for child in reversed(tree[id].children))
    return repeats


def _arguments(row: CallRow) -> str:
    """Return the arguments of a tool call as JSON with sorted keys, or unchanged if they are not JSON."""
    try:
        return json.dumps(json_of(row.call.prompt), sort_keys=True)
    except ValueError:
        return row.call.prompt


def _unreadable(facts: _Facts) -> Iterator[Finding]:
    notes = [line.e for line in facts.run.lines if isinstance(line.e, Note) and line.e.name in UNREADABLE]
    if notes:
        kinds = _tally(str(note.data.get("kind", "?")) for note in notes)
        text = f"Nothing could be read from {_count(notes, 'reply')}: {kinds}."
        nodes = dict.fromkeys(note.at for note in notes if note.at in facts.run.tree)
        yield Finding("unreadable_replies", text, tuple(nodes))
    evaluated = [node for node in facts.thoughts if judged(node)]
    wholly = [node for node in evaluated if node.unreadable]
    partly = [node for node in evaluated if not node.unreadable and None in node.samples]
    if wholly or partly:
        more = f", of {len(partly)} in part" if partly else ""
        thoughts = f"{len(wholly)} of {_count(evaluated, 'thought')}"
        example = unreadable_example(facts.run, wholly)
        text = f"The evaluation of {thoughts} could not be read{more}{example}."
        yield Finding("unreadable_scores", text, _of([*wholly, *partly]))


def _duplicates(facts: _Facts) -> Iterator[Finding]:
    known: set[tuple[str | None, str]] = set()
    repeats = []
    for node in facts.thoughts:
        key = node.parent, _words(node)
        if key in known:
            repeats.append(node)
        known.add(key)
    if repeats:
        verb = "repeats" if len(repeats) == 1 else "repeat"
        text = f"{len(repeats)} of {_count(facts.thoughts, 'thought')} {verb} a sibling's text."
        yield Finding("duplicates", text, _of(repeats))


_LOOKS: Sequence[Callable[[_Facts], Iterator[Finding]]] = (
    _right_not_chosen,
    _unsolvable,
    _good_pruned,
    _marked_wrong,
    _person,
    _cut_short,
    _out_of_turns,
    _unfinished_answer,
    _separator_unseen,
    _assumed_confidence,
    _shortened_texts,
    _marks,
    _blind_scores,
    _score_collapse,
    _contradiction,
    _equal_states,
    _equal_draws,
    _lost_calls,
    _tools,
    _unreadable,
    _duplicates,
)


# Numbers and words.


def _words(node: Node) -> str:
    return " ".join(node.text.split())


def _alone(node: Node) -> bool:
    """Return whether an evaluator judged a thought independently of other thoughts, not by a vote."""
    return judged(node) and node.by not in ("vote", "tournament", "agreement")


def _above(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the share of pairs in which one of `ones` is greater than one of `others`. Ties count half."""
    return wins(ones, others) / (len(ones) * len(others))


def _widest(values: Sequence[float], width: float) -> tuple[int, int]:
    """Return the indices (start, end) of the longest slice of the sorted `values` that spans at most
    `width`.
    """
    best, start = (0, 0), 0
    for end, value in enumerate(values, 1):
        while value - values[start] > width:
            start += 1
        if end - start > best[1] - best[0]:
            best = start, end
    return best


def _scores(nodes: Iterable[Node]) -> list[float]:
    return [node.score for node in nodes if node.score is not None]


def _mean(nodes: Sequence[Node]) -> str:
    scores = _scores(nodes)
    return format_score(sum(scores) / len(scores))


def _marked(facts: _Facts, nodes: Iterable[Node], verdict: str) -> list[Node]:
    return [node for node in nodes if node.id in facts.marks and facts.marks[node.id].verdict == verdict]


def _nodes_of(facts: _Facts, calls: Iterable[CallRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.call.node for row in calls if row.call.node in facts.run.tree))


def _beginning(reply: Reply | None) -> str:
    """Return the beginning of an error message, which similar errors share. "" without an error."""
    return ((reply and reply.error) or "").partition(":")[0][:40]


def _times(things: Sequence[object]) -> str:
    return "once" if len(things) == 1 else f"{len(things)} times"


def _of(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(node.id for node in nodes)


def _count(things: Sequence[object], noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{len(things)} {noun if len(things) == 1 else plural}"


def _reason(row: CallRow) -> str:
    """Return the beginning of a tool's error. Of the error of a user's function, return up to 120 characters,
    which help its author."""
    error = (row.reply and row.reply.error) or ""
    return error[:120] if is_of_function(row.call) else _beginning(row.reply)


def _tally(words: Iterable[str]) -> str:
    return ", ".join(f"{count} × {word}" for word, count in Counter(words).most_common())


def _ids(nodes: Sequence[str]) -> str:
    more = len(nodes) - SHOWN
    named = f"thought{'s' * (len(nodes) > 1)} {', '.join(nodes[:SHOWN])}"
    return named + (f" and {more} more" if more > 0 else "")
