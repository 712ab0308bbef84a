"""A run as tables.

One row per thing that happened, one column per fact, built column by column in time linear
in the records. What is not known is NA, never 0. Calls belong to the thought they were asked for
(`Call.node`); a call and its reply share a position in the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from tot_lab.analysis.turns import steps_of
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Decided, Decision, Line, Note, Position, Scored, Thought, parent_of
from tot_lab.core.tools import asks_no_model, tool_of
from tot_lab.record.marks import Mark, Verdict
from tot_lab.record.run import Run, Usage, selected_strategies, usage_of

if TYPE_CHECKING:
    import pandas

SOURCES = ("model", "cache", "joined")
MARKS = get_args(Verdict)
STATES = ("proposed", "unread", *get_args(Decision))


class CallRow(NamedTuple):
    """A call's line and its reply's, None while it is open."""

    line: Line
    call: Call
    answered: Line | None
    reply: Reply | None


def calls_of(run: Run) -> list[CallRow]:
    """Every model call with its reply, in live order."""
    return [row for row in call_rows(run) if not asks_no_model(row.call)]


def tools_of(run: Run) -> list[CallRow]:
    """Every call of a tool or a function with what it gave, in live order."""
    return [row for row in call_rows(run) if asks_no_model(row.call)]


def call_rows(run: Run) -> list[CallRow]:
    """Both, in live order."""
    replies = {line.p: (line, line.e) for line in run.lines if isinstance(line.e, Reply) and line.p}
    none = (None, None)
    return [
        CallRow(line, line.e, *replies.get(line.p, none))
        for line in run.lines
        if isinstance(line.e, Call) and line.p
    ]


def usage_by_node(run: Run) -> dict[str, Usage]:
    """What the calls asked for each thought used; a thought without calls used nothing. Calls asked
    for an id that no thought has are left out."""
    answered: dict[str, list[Line]] = {id: [] for id in run.tree.nodes}
    for row in calls_of(run):
        if row.answered is not None and row.call.node in answered:
            answered[row.call.node].append(row.answered)
    nothing = Usage(0, 0, *[None] * 4) if "calls" in run.header.unknown else usage_of([])
    return {id: usage_of(lines) if lines else nothing for id, lines in answered.items()}


def thinking_by_node(run: Run) -> dict[str, str | None]:
    """What a model thought before it wrote each thought: the thinking of the replies to calls for its parent
    since the last thought that such replies led to. Evaluations and reflections lead to none."""
    replies = {line.p: line.e for line in run.lines if isinstance(line.e, Reply) and line.p}
    thoughts: dict[str, list[str]] = {}
    used: set[str] = set()
    thinking: dict[str, str | None] = {}
    for line in sorted((line for line in run.lines if line.p), key=lambda line: line.p):
        event = line.e
        if isinstance(event, Call):
            reply = replies.get(line.p)
            if asks_no_model(event) or event.purpose in _JUDGING or reply is None or reply.error is not None:
                continue
            if event.node in used:
                used.remove(event.node)
                thoughts[event.node] = []
            thoughts.setdefault(event.node, []).append(reply.thinking or "")
        elif isinstance(event, Thought) and event.parent in thoughts:
            used.add(event.parent)
            thinking[event.id] = "\n\n".join(filter(None, thoughts[event.parent])) or None
    return thinking


_JUDGING = frozenset(
    (
        "value",
        "part",
        "vote",
        "joint",
        "logprob",
        "judge",
        "critique",
        "review",
        "reflect",
        "route",
        "classify",
    )
)
"""Kinds of call whose replies become no thought."""


@gc_paused()
def nodes_df(run: Run) -> pandas.DataFrame:
    """One row per thought, in the order in which they were proposed; the run need not be finished.

    - id, parent (NA for a root), text: string
    - thinking: string, what the model thought before it wrote this thought, apart from the text; NA for none.
      Of several calls that led to a thought (draws of one proposal), the thinking of all
    - depth: Int64, steps below the root
    - score: Float64, 0–1, NA when unread or not evaluated; raw: Float64, in the evaluator's units
    - unread: boolean, whether it was evaluated and no draw could be read; also of thoughts that were kept or
      pruned since, whose `state` no longer tells
    - draws, unread_draws: Int64, evaluations drawn, and those of them that could not be read
    - by: string, what evaluated it, NA for nothing
    - state: category, the last decision (`STATES`); reason: string, the rule behind it
    - merged: string, id of the thought whose state it reached, NA for most
    - children: Int64
    - on_solution_path: boolean, whether it leads to the answer
    - calls: Int64, calls answered for it, refused ones not counted, NA when the record lacks some
    - input_tokens, output_tokens: Int64, of those calls, NA when one of them is not known
    - cost: Float64, USD if every call were paid; paid: Float64, USD really paid; NA when not known
    - mark: category, what a person said of it (`MARKS`), NA for nothing; note: string, in their words
    - strategy: string, what the run was asked to use; selected_strategy: string, what `tl.Adaptive` selected
      for this part of the tree, NA where nothing was selected
    - simulated: boolean, whether a simulated model took part in the run

    The sums of calls, tokens, cost and paid are those of `run.usage`.
    """
    nodes = list(run.tree)
    by_node = usage_by_node(run)
    usage = [by_node[node.id] for node in nodes]
    path = set(run.solution_path)
    thinking = thinking_by_node(run)
    lossy = "calls" in run.header.unknown
    known, nothing = run.marks, Mark()
    marks = [known.get(node.id, nothing) for node in nodes]
    return typed_frame(
        {
            **each(nodes, id="string", parent="string", depth="Int64", text="string"),
            "thinking": ("string", [thinking.get(node.id) for node in nodes]),
            **each(nodes, score="Float64", raw="Float64", unread="boolean"),
            "draws": ("Int64", [len(node.draws) for node in nodes]),
            "unread_draws": ("Int64", [node.draws.count(None) for node in nodes]),
            "by": ("string", [node.by or None for node in nodes]),
            "state": (STATES, [node.state for node in nodes]),
            "reason": ("string", [node.reason or None for node in nodes]),
            "merged": ("string", [node.merged for node in nodes]),
            "children": ("Int64", [len(node.children) for node in nodes]),
            "on_solution_path": ("boolean", [node.id in path for node in nodes]),
            "calls": ("Int64", [None if lossy else used.calls for used in usage]),
            **each(usage, input_tokens="Int64", output_tokens="Int64", cost="Float64", paid="Float64"),
            "mark": (MARKS, [mark.verdict for mark in marks]),
            "note": ("string", [mark.note or None for mark in marks]),
            "strategy": ("string", [run.name] * len(nodes)),
            "selected_strategy": ("string", _selected(run, [node.id for node in nodes])),
            "simulated": ("boolean", [run.simulated] * len(nodes)),
        }
    )


@gc_paused()
def calls_df(run: Run) -> pandas.DataFrame:
    """One row per model call, in live order; refused and open ones included.

    - position: string, place in the program (`0.1.2`), which its reply shares
    - node: string, id of the thought it was asked for; kind: string (propose, value, …)
    - draw: Int64; attempt: string, of the strategies around it, outermost first, NA for none;
      repeat: Int64
    - prompt: string, all messages, NA when it is not known; reply: string, NA when there is none
    - thinking: string, what the model thought before its reply, reported by the provider or written in
      `<think>` tags; NA for none
    - error: string, why there is no reply, NA when there is one
    - finish: string, why the model stopped (`length`: the reply was cut off at `max_tokens`), NA when
      it does not say
    - made: boolean, False when it was refused, NA while it is open; `made.sum()` is `run.usage.calls`
    - model: string, that which replied, or was asked for; temperature: Float64, NA = the model's own
    - input_tokens, output_tokens: Int64; cost: Float64, USD if it were paid; paid: Float64, USD
      really paid; NA when not known
    - asked: float64, seconds since the run began; seconds: Float64, until its reply, NA while open; both
      NA when the record has no times
    - source: category, where the reply came from: `model`, `cache` (or the record of the run that this
      one was branched from), or `joined` (an equal call that was under way); NA while open or refused, or
      when the record does not say
    - sent: Float64, seconds since the run began when it was sent (the last time); tries: Int64, how
      often; both NA for what is not sent (a function, a simulated model, a known answer)
    - simulated: boolean, whether a simulated model replied, NA while open
    """
    calls = calls_of(run)
    replies = [row.reply for row in calls]
    by_place = ways_of(run)
    ways = [by_place[row.line.p] for row in calls]
    made = [None if row.answered is None else bool(usage_of([row.answered]).calls) for row in calls]
    unknown = run.header.unknown
    replied = [bool(known) and "calls" not in unknown for known in made]
    return typed_frame(
        {
            "position": ("string", [_dotted(row.line.p) for row in calls]),
            "node": ("string", [row.call.node for row in calls]),
            "kind": ("string", [row.call.purpose for row in calls]),
            "draw": ("Int64", [row.call.sample_index for row in calls]),
            "attempt": ("string", [_dotted(row.call.attempt) or None for row in calls]),
            "repeat": ("Int64", [row.call.repeat for row in calls]),
            "prompt": ("string", [row.call.prompt if row.call.messages else None for row in calls]),
            "reply": (
                "string",
                [r.text if r and r.error is None and "replies" not in unknown else None for r in replies],
            ),
            "thinking": ("string", [(reply.thinking or None) if reply else None for reply in replies]),
            **each(replies, error="string"),
            "finish": ("string", [reply and reply.finish_reason for reply in replies]),
            "made": ("boolean", made),
            "model": ("string", [(row.reply and row.reply.model) or row.call.model for row in calls]),
            "temperature": ("Float64", [row.call.temperature for row in calls]),
            **each(replies, input_tokens="Int64", output_tokens="Int64", cost="Float64"),
            **each([row.answered for row in calls], paid="Float64"),
            "asked": ("float64", [None if "times" in unknown else row.line.t for row in calls]),
            "seconds": ("Float64", _seconds(run, calls)),
            "source": (
                SOURCES,
                [w.source if has_reply else None for w, has_reply in zip(ways, replied, strict=True)],
            ),
            **each(ways, sent="Float64", tries="Int64"),
            **each(replies, simulated="boolean"),
        }
    )


@gc_paused()
def tools_df(run: Run) -> pandas.DataFrame:
    """One row per call of a tool, in live order; refused and open ones included.

    - position: string, place in the program; node: string, id of the thought it was called for
    - tool: string, its name; arguments: string, JSON as the model or the strategy wrote it
    - result: string, what it gave, NA when it failed; error: string, why, NA when it did not
    - asked: float64, seconds since the run began; seconds: Float64, until its result, NA while open
    - source: category, `model` for one that was really carried out, `cache` or `joined` as in `calls_df`
    - tries: Int64, how often it was tried
    """
    calls = tools_of(run)
    replies = [row.reply for row in calls]
    ways = ways_of(run)
    return typed_frame(
        {
            "position": ("string", [_dotted(row.line.p) for row in calls]),
            "node": ("string", [row.call.node for row in calls]),
            "tool": ("string", [tool_of(row.call) for row in calls]),
            "arguments": ("string", [row.call.prompt for row in calls]),
            "result": ("string", [r.text if r and r.error is None else None for r in replies]),
            "error": ("string", [r.error if r else None for r in replies]),
            "asked": ("float64", [row.line.t for row in calls]),
            "seconds": ("Float64", [a.answered.t - a.line.t if a.answered else None for a in calls]),
            "source": (SOURCES, [ways[row.line.p].source if row.answered else None for row in calls]),
            "tries": ("Int64", [ways[row.line.p].tries for row in calls]),
        }
    )


@gc_paused()
def steps_df(run: Run) -> pandas.DataFrame:
    """What a run that acts thought, did and saw: one row per action, in program order; a turn that asked for
    no tool has a row too. Of a run that does not act, such as a plain tree search, the table is empty:
    `nodes_df` has its thoughts.

    - turn: Int64, number of the turn, from 1. A turn is one reply of a loop's model, or of an analysis step
      of a plan. NA for a tool that the strategy called itself (a step of a plan, a proposer's look-up)
    - node: string, id of the turn's thought, NA while there is none or when its call failed; for a tool that
      the strategy called itself, the thought it was called for
    - thought: string, what was said besides the calls
    - action: string, the name of the tool, NA for none; arguments: string, JSON as it was written
    - observation: string, what the model was shown of the result; error: string, why there was none, or why
      the turn's own call failed. Both are NA where an action came to nothing: it was the answer, which was
      taken, or the run ended
    - thinking: string, what the model thought before it said this, apart from it; NA for none
    - seconds: Float64, that the turn's call took; input_tokens, output_tokens: Int64 and cost: Float64, USD
      if it were paid, of that call. These and `thinking` stand in the first row of a turn and are NA in its
      others, so that sums are right; NA when not known
    - tool_seconds: Float64, that the tool took, NA where none was called
    - strategy, selected_strategy: as in `nodes_df`
    """
    row = {row.line.p: row for row in call_rows(run)}
    steps = list(steps_of(run))
    calls = [row.get(step.call or ()) for step in steps]
    replies = [call.reply if call else None for call in calls]
    tools = [row.get(step.tool or ()) for step in steps]
    return typed_frame(
        {
            **each(steps, turn="Int64"),
            **each(steps, node="string", thought="string", action="string", arguments="string"),
            **each(steps, observation="string", error="string"),
            "thinking": ("string", [(reply.thinking or None) if reply else None for reply in replies]),
            "seconds": ("Float64", _seconds(run, calls)),
            **each(replies, input_tokens="Int64", output_tokens="Int64", cost="Float64"),
            "tool_seconds": ("Float64", _seconds(run, tools)),
            "strategy": ("string", [run.name] * len(steps)),
            "selected_strategy": ("string", _selected(run, [step.node for step in steps])),
        }
    )


def _seconds(run: Run, calls: Sequence[CallRow | None]) -> list[float | None]:
    """How long each call took until its reply; `None` where that is not known."""
    timed = "times" not in run.header.unknown
    return [call.answered.t - call.line.t if call and call.answered and timed else None for call in calls]


def _selected(run: Run, ids: Sequence[str | None]) -> list[str | None]:
    """What `tl.Adaptive` selected for the part of the tree that each of these thoughts is in."""
    selected = selected_strategies(run)
    if not selected:
        return [None] * len(ids)

    def of(id: str | None) -> str | None:
        while id is not None and id not in selected:
            id = parent_of(id)
        return None if id is None else selected[id]

    return [of(id) for id in ids]


class _Way(NamedTuple):
    """What the notes beside the record tell of a call's way."""

    source: str = "model"
    sent: float | None = None
    tries: int | None = None


def ways_of(run: Run) -> defaultdict[Position, _Way]:
    """The way of each call, by its position."""
    ways: defaultdict[Position, _Way] = defaultdict(_Way)
    for line in run.lines:
        if line.p or not isinstance(note := line.e, Note) or "call" not in note.data:
            continue
        place = tuple(note.data["call"])
        if note.name == "call.sent":
            ways[place] = ways[place]._replace(sent=line.t, tries=note.data["tries"])
        elif note.name == "call.cached":
            ways[place] = ways[place]._replace(source="cache")
        elif note.name == "call.joined":
            ways[place] = ways[place]._replace(source="joined")
    return ways


@gc_paused()
def events_df(run: Run) -> pandas.DataFrame:
    """One row per record, in the order in which they happened.

    - position: string, place in the program, NA for what stands beside the canonical list
    - seconds: float64, since the run began
    - name: string. A note has its own (`tot.pruned`). Thoughts, scores and decisions are named
      after the innermost strategy that announced itself (`tot.started`) at their id or above:
      `tot.proposed`, `tot.evaluated`, `tot.decided`; without one `thought`, `scored`, `decided`.
      The others are `call`, `reply` and `ended`, and what happened to a call on its way to a real
      model, beside the canonical list and with the call's place as `data["call"]`: `call.cached`
      (run: the one whose record answered it, where that was not the cache; see `lab.branch`),
      `call.joined` (an equal one was under way), `call.queued` (strategy: whether by a limit of the
      strategy itself), `call.sent` (tries, n),
      `call.retried` (error, status, wait in seconds), `call.dropped` (settings that the provider does
      not take), `call.refused` (by `spend`: the most it could have cost, and what was left, in USD),
      `call.answered`, `call.damaged` and `call.unstored` (the cache's troubles)
    - node: string, id of the thought it is about, NA for none
    - data: object, the whole record as a dict: `pandas.json_normalize(df.data)` makes columns of
      it, `df.data.str["depth"]` takes one out; depth counts from the strategy's own
      root. A proposal has depth, node_id, parent_id, content (and source, depends), an evaluation
      depth, node_id, score (and raw, draws, by)
    - simulated: boolean, whether a simulated model took part in the run
    """
    rows = list(_events(run))
    timed = "times" not in run.header.unknown
    return typed_frame(
        {
            "position": ("string", [_dotted(line.p) or None for line in run.lines]),
            "seconds": ("float64", [line.t if timed else None for line in run.lines]),
            **each(rows, name="string", node="string", data="object"),
            "simulated": ("boolean", [run.simulated] * len(run.lines)),
        }
    )


class _Event(NamedTuple):
    """A record by name, the thought it is about, and what it holds."""

    name: str
    node: str | None
    data: dict[str, Any]


def _events(run: Run) -> Iterator[_Event]:
    """The records of a run in the words of `events_df`."""
    started = ((line.e.at, line.e.name) for line in run.lines if isinstance(line.e, Note))
    prefixes = {at: name.removesuffix(".started") for at, name in started if name.endswith(".started")}
    node_of_call = {line.p: line.e.node for line in run.lines if isinstance(line.e, Call)}
    nodes = run.tree.nodes
    # Of each thought: which strategy announced it, and the depth of that strategy's root.
    scopes: dict[str | None, tuple[str, int]] = {}
    for line in run.lines:
        event = line.e
        if isinstance(event, Thought):
            announced = prefixes.get(event.id)
            above = scopes.get(event.parent, ("", 0))
            scopes[event.id] = (announced, nodes[event.id].depth) if announced else above
        if isinstance(event, Thought | Scored | Decided):
            prefix, root = scopes[event.id]
            within, alone, held = _of_thought(event)
            place = {"depth": nodes[event.id].depth - root, "node_id": event.id}
            yield _Event(f"{prefix}.{within}" if prefix else alone, event.id, {**place, **held})
        elif isinstance(event, Note):
            yield _Event(event.name, event.at, dict(event.data))
        else:
            held = msgspec.to_builtins(event)
            name = held.pop("type")
            if isinstance(event, Reply):
                held["paid"] = line.paid
                yield _Event(name, node_of_call.get(line.p), held)
            else:
                yield _Event(name, event.node, held)


def _of_thought(event: Thought | Scored | Decided) -> tuple[str, str, dict[str, Any]]:
    """What a record about a thought is called inside a strategy and alone, and what it holds besides."""
    if isinstance(event, Thought):
        links = {"source": list(event.source), "depends": list(event.depends)}
        known = {name: ids for name, ids in links.items() if ids}
        return "proposed", "thought", {"parent_id": event.parent, "content": event.text, **known}
    if isinstance(event, Scored):
        held = {"score": event.score, "raw": event.raw, "draws": list(event.draws), "by": event.by}
        return "evaluated", "scored", held
    return "decided", "decided", {"what": event.what, "reason": event.reason, "other": event.other}


def _dotted(position: Position) -> str:
    return ".".join(map(str, position))


def each(things: Sequence[Any], **dtypes: str) -> dict[str, tuple[str, list[Any]]]:
    """A column of `typed_frame` for each named attribute of some things, `None` where there is no thing."""
    return {
        name: (dtype, [None if thing is None else getattr(thing, name) for thing in things])
        for name, dtype in dtypes.items()
    }


def typed_frame(columns: dict[str, tuple[str | tuple[str, ...], list[Any]]]) -> pandas.DataFrame:
    """The columns as a frame. A tuple of words for a dtype is a category of these, whichever occur:
    frames of several runs then concatenate as one category."""
    import pandas as pd  # noqa: PLC0415  pictures use this file without it

    made = {
        name: pd.Series(values, dtype=pd.CategoricalDtype(list(dtype)) if isinstance(dtype, tuple) else dtype)
        for name, (dtype, values) in columns.items()
    }
    return pd.DataFrame(made)
