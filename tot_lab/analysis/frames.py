"""A run as DataFrames.

Each table has one row per thought, call or record and one column per fact, and is built in time linear in the
number of records. Unknown values are NA, never 0. A call belongs to the thought that it was made for
(`Call.node`). A call and its reply have the same position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply, ToolCall, logprobs_of
from tot_lab.core.purposes import role_of
from tot_lab.core.records import STATES, Decided, Line, Note, Position, Scored, Thought, parent_of
from tot_lab.core.tools import TOOL, asks_no_model, tool_name, tool_of
from tot_lab.core.tree import Node
from tot_lab.record.compute import flops_by_call
from tot_lab.record.marks import Mark, Verdict
from tot_lab.record.nodes import CallSums, call_sums
from tot_lab.record.run import Run, Usage, replies_of, selected_strategies, usage_of
from tot_lab.record.search_notes import SearchNotes
from tot_lab.strategies.conversation import MAX_CALLS, Turn, recorded_turn
from tot_lab.strategies.react import FINAL

if TYPE_CHECKING:
    import pandas


# The steps of an agent: what the model thought, which tools it called, and which results it was shown. A turn
# is a call of purpose `act` or `analysis` and the thought that was recorded with its reply. Its actions are
# parsed from that thought as the tool loop parses them, and the outcome of action k is the thought's child k.
# Every other model call is a step too, so that the steps of a run contain all of its calls.


TURNS = ("act", "analysis")
"""The purposes of calls that are turns."""


class Action(NamedTuple):
    """An action, or a model call without an action. The fields turn, node, purpose, thought, action,
    arguments, observation and error are those of `steps_df`.

    Attributes:
        call: Position of the model call. `None` from the second action of a turn on, and for a tool that the
            strategy itself called.
        tool: Position of the tool call. `None` if none was made.
    """

    turn: int | None
    node: str | None
    purpose: str
    thought: str | None = None
    action: str | None = None
    arguments: str | None = None
    observation: str | None = None
    error: str | None = None
    call: Position | None = None
    tool: Position | None = None


def steps_of(run: Run) -> Iterator[Action]:
    """Return the steps of `run` in program order."""
    lines = sorted((line for line in run.lines if line.p), key=lambda line: line.p)
    replies = replies_of(lines)
    called: dict[str, tuple[Position, Call]] = {}  # by the id of the thought with its outcome
    for line in lines:
        if isinstance(line.e, Call) and line.e.purpose == TOOL:
            # The calls of a turn are branches of one `gather`, with the positions (…, step, branch, step).
            # The outcome of branch k is child k of the turn's thought.
            called[".".join([line.e.node, *map(str, line.p[-2:-1])])] = line.p, line.e
    number, of_turns = 0, set[Position]()
    for place, line in enumerate(lines):
        call, reply = line.e, replies.get(line.p)
        if not isinstance(call, Call):
            continue
        if call.purpose == TOOL and line.p not in of_turns:
            result = reply.text if reply and reply.error is None else None
            error = reply.error if reply else None
            yield Action(None, call.node, TOOL, None, tool_of(call), call.prompt, result, error, tool=line.p)
        elif call.purpose in TURNS:
            number += 1
            thought, max_calls = _thought_with(lines, place, call)
            if reply is None or thought is None:
                yield Action(number, None, call.purpose, error=reply.error if reply else None, call=line.p)
                continue
            turn = recorded_turn(thought, reply, _names(run, thought, call), call.tools, max_calls)
            step = Action(number, turn.id, call.purpose, turn.words, call=line.p)
            if not turn.calls:
                yield step
            for request, shown in _actions(run, turn):
                tool, made = called.get(shown or "", (None, None))
                if tool is not None and made is not None and tool_of(made) == request.name:
                    of_turns.add(tool)
                else:
                    tool = None
                observation, error = _outcome_of(run, request, shown)
                yield step._replace(
                    action=request.name,
                    arguments=request.arguments,
                    observation=observation,
                    error=error,
                    tool=tool,
                )
                step = step._replace(call=None)
        elif not asks_no_model(call):
            yield Action(None, call.node, call.purpose, error=reply.error if reply else None, call=line.p)


def _thought_with(lines: Sequence[Line], place: int, call: Call) -> tuple[Thought | None, int]:
    """Return the thought that was recorded with the reply to the call at the index `place` (`None` if no
    thought was), and how many of its actions were carried out at most."""
    most = MAX_CALLS
    for line in islice(lines, place + 1, None):
        if isinstance(line.e, Note) and line.e.name.endswith(".too_many_calls"):
            most = line.e.data["carried_out"]
        if not isinstance(line.e, Reply | Note) or line.p[:-1] != lines[place].p[:-1]:
            thought = line.e if isinstance(line.e, Thought) and line.e.parent == call.node else None
            return thought, most
    return None, most


def _names(run: Run, thought: Thought, call: Call) -> dict[str, str]:
    """Map each name and alias that the tool loop accepted in the turn of `thought` to the tool's own name."""
    labels = (run.tree[id].text.partition(" ")[0] for id in run.tree[thought.id].children)
    tools = run.header.task.get("tools", ())
    aliases = {tool_name(alias): tool["name"] for tool in tools for alias in tool.get("aliases", ())}
    own = (*(tool["name"] for tool in call.tools), *labels)
    return {**aliases, **{tool_name(name): name for name in own}}


def _actions(run: Run, turn: Turn) -> Iterator[tuple[ToolCall, str | None]]:
    """Yield the actions of a turn, each with the id of the thought with its outcome. An accepted answer has
    no such thought, so its id is `None`."""
    first = next((k for k, call in enumerate(turn.calls) if call.name == FINAL.name), None)
    taken = first is not None and not _text(run, f"{turn.id}.{first}").startswith(f"{FINAL.name} ")
    counted = 0
    for call in turn.calls:
        if taken and call.name == FINAL.name:
            yield call, None
        else:
            yield call, f"{turn.id}.{counted}"
            counted += 1


def _outcome_of(run: Run, call: ToolCall, result: str | None) -> tuple[str | None, str | None]:
    """Return the result of a call as the model saw it, and the error of a call that failed. One of them is
    `None`, or both if the thought `result`, which holds the outcome, is not recorded."""
    if result is None or result not in run.tree:
        return None, None
    text = _text(run, result).removeprefix(f"{call.name[:80]} ")
    if text.startswith("failed: "):
        return None, text.removeprefix("failed: ")
    return text.removeprefix("→ "), None


def _text(run: Run, id: str) -> str:
    return run.tree[id].text if id in run.tree else ""


# Frames.


SOURCES = ("model", "cache", "joined")
MARKS = get_args(Verdict)
PROCESSING = ("cached_tokens", "prefill_tokens_per_second", "decode_tokens_per_second")


class CallRow(NamedTuple):
    """The line of a call and the line of its reply, which is `None` while the call is open."""

    line: Line
    call: Call
    answered: Line | None
    reply: Reply | None


def calls_of(run: Run) -> list[CallRow]:
    """Return every model call with its reply, in the order in which they were recorded."""
    return [row for row in call_rows(run) if not asks_no_model(row.call)]


def tools_of(run: Run) -> list[CallRow]:
    """Return every call of a tool or a function with its result, in the order in which they were recorded."""
    return [row for row in call_rows(run) if asks_no_model(row.call)]


def tools_offered(run: Run, row: CallRow) -> list[str]:
    """Return the names of the lab's tools that a call offered to the model."""
    return [name for tool in row.call.tools if (name := str(tool.get("name"))) in run.header.tools]


def call_rows(run: Run) -> list[CallRow]:
    """Return model calls and tool calls, in the order in which they were recorded."""
    replies = {line.p: (line, line.e) for line in run.lines if isinstance(line.e, Reply) and line.p}
    none = (None, None)
    return [
        CallRow(line, line.e, *replies.get(line.p, none))
        for line in run.lines
        if isinstance(line.e, Call) and line.p
    ]


def usage_by_node(run: Run, ids: Iterable[str] | None = None) -> dict[str, Usage]:
    """Return the usage of the calls for each thought, or for the thoughts with these ids. Calls for other ids
    are left out."""
    answered: dict[str, list[Line]] = {id: [] for id in (run.tree.nodes if ids is None else ids)}
    for row in calls_of(run):
        if row.answered is not None and row.call.node in answered:
            answered[row.call.node].append(row.answered)
    nothing = Usage(0, 0, *[None] * 4) if "calls" in run.header.unknown else usage_of([])
    return {id: usage_of(lines) if lines else nothing for id, lines in answered.items()}


class Judgement(NamedTuple):
    """The evaluation of a thought: its score from 0 to 1, its score in the evaluator's units, and the
    evaluator. All fields are `None` without an evaluation.
    """

    score: float | None = None
    raw: float | None = None
    by: str | None = None


def judgement_of(node: Node) -> Judgement:
    """Return the evaluation of a thought. The score that a search gives to its root is not an evaluation."""
    return Judgement() if node.by == "root" else Judgement(node.score, node.raw, node.by or None)


def state_of(node: Node) -> str:
    """Return the state of a thought: one of `STATES`."""
    return "question" if node.parent is None and node.state == "proposed" else node.state


def thinking_by_node(run: Run) -> dict[str, str | None]:
    """Return the model's thinking before each thought: the thinking in all replies to calls for its parent
    that came after the previous child. Calls that evaluate, criticise or route are left out."""
    replies = {line.p: line.e for line in run.lines if isinstance(line.e, Reply) and line.p}
    thoughts: dict[str, list[str]] = {}
    used: set[str] = set()
    thinking: dict[str, str | None] = {}
    for line in sorted((line for line in run.lines if line.p), key=lambda line: line.p):
        event = line.e
        if isinstance(event, Call):
            reply = replies.get(line.p)
            if (
                asks_no_model(event)
                or role_of(event.purpose) in _JUDGING
                or reply is None
                or reply.error is not None
            ):
                continue
            if event.node in used:
                used.remove(event.node)
                thoughts[event.node] = []
            thoughts.setdefault(event.node, []).append(reply.thinking or "")
        elif isinstance(event, Thought) and event.parent in thoughts:
            used.add(event.parent)
            thinking[event.id] = "\n\n".join(filter(None, thoughts[event.parent])) or None
    return thinking


_JUDGING = ("evaluate", "critique", "route")
"""Roles of calls whose replies do not become thoughts."""


@gc_paused()
def nodes_df(run: Run) -> pandas.DataFrame:
    """Return one row per thought, in the order in which they were proposed. The run need not be finished.

    - id, parent (NA for a root), text: string
    - thinking: string, the model's thinking before this thought. NA if missing. If several calls led to
      the thought (samples of one proposal), the thinking of all
    - depth: Int64, steps below the root
    - score: Float64, 0 to 1, NA if unreadable or not evaluated; raw: Float64, in the evaluator's units. The
      score that a search gives to its root is no evaluation and left out
    - unreadable: boolean, whether it was evaluated and no sample could be read. It stays true for thoughts
      that were kept or pruned afterwards
    - samples, unreadable_samples: Int64, number of samples of its evaluation, and how many could not be read
    - by: string, the evaluator, NA if missing
    - state: category, the last decision (`STATES`), `question` for a root without one; reason: string, the
      rule that made it
    - merged: string, id of the earlier thought with the same state into which it was merged, NA if there is
      none
    - open: boolean, whether its children continue its text, even in the middle of a word
    - children: Int64
    - on_solution_path: boolean, whether it leads to the answer
    - calls: Int64, answered calls for this thought without refused ones, NA if the record lacks some
    - input_tokens, output_tokens: Int64, of those calls, NA if one is unknown
    - cost: Float64, USD without a cache; paid: Float64, USD really paid; NA if unknown
    - mark: category, a person's verdict (`MARKS`); note: string, a person's note; NA if missing
    - strategy: string, the strategy of the run; selected_strategy: string, the one that `tl.Adaptive`
      selected for this part of the tree, NA if none was selected
    - simulated: boolean, whether a simulated model took part in the run

    The sums of calls, tokens, cost and paid equal those of `run.usage`. If `tl.read_nodes` made the run
    from such a table, the columns about calls are copied from that table, and `run.usage` is unknown.
    """
    nodes = list(run.tree)
    by_node = usage_by_node(run)
    usage = [by_node[node.id] for node in nodes]
    path = set(run.solution_path)
    thinking = thinking_by_node(run)
    lossy = "calls" in run.header.unknown
    known, nothing = run.marks, Mark()
    marks = [known.get(node.id, nothing) for node in nodes]
    columns: dict[str, tuple[str | tuple[str, ...], list[Any]]] = {
        **each(nodes, id="string", parent="string", depth="Int64", text="string"),
        "thinking": ("string", [thinking.get(node.id) for node in nodes]),
        **each([judgement_of(node) for node in nodes], score="Float64", raw="Float64"),
        **each(nodes, unreadable="boolean"),
        "samples": ("Int64", [len(node.samples) for node in nodes]),
        "unreadable_samples": ("Int64", [node.samples.count(None) for node in nodes]),
        "by": ("string", [judgement_of(node).by for node in nodes]),
        "state": (STATES, [state_of(node) for node in nodes]),
        "reason": ("string", [node.reason or None for node in nodes]),
        **each(nodes, merged="string", open="boolean"),
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
    sums = call_sums(run)
    for name in CallSums.__struct_fields__ if sums else ():
        dtype, own = columns[name]
        of_table = [sums.get(node.id) for node in nodes]
        columns[name] = (
            dtype,
            [value if row is None else getattr(row, name) for row, value in zip(of_table, own, strict=True)],
        )
    return typed_frame(columns)


@gc_paused()
def calls_df(run: Run) -> pandas.DataFrame:
    """Return one row per model call, in the order in which they were made. Refused and open calls are
    included.

    - position: string, place in the program (`0.1.2`), the same as that of its reply
    - node: string, id of the thought it was made for; purpose: string (`propose`, `value`, …)
    - sample_index: Int64; attempt: string, the attempt numbers of the enclosing strategies, outermost first,
      NA if there are none; repeat: Int64
    - prompt: string, all messages, NA if unknown; reply: string, NA if missing
    - thinking: string, the model's thinking before its reply, as reported by the provider or written in
      `<think>` tags; NA if missing
    - error: string, why there is no reply, NA if there is one
    - finish_reason: string, why the model stopped (`length`: the reply was cut off at `max_tokens`), NA if
      unknown
    - made: boolean, true if it was sent or answered from the cache, false if it was refused or could not be
      sent, NA while open; `made.sum()` is `run.usage.calls`
    - model: string, the model that replied, or the requested one; temperature: Float64, NA for the model's
      default
    - input_tokens, output_tokens: Int64; cost: Float64, USD without a cache; paid: Float64, USD really paid;
      NA if unknown. If several samples were one request, each row has all tokens of the prompt, and its share
      of `paid`
    - flops, flops_prefix_once: Float64, as in `tot_lab.record.compute.Flops`: with the prompt counted in
      full, and without the prefix that it shares with earlier calls. NA without `params` of its role
    - shared_tokens: boolean, whether the server reported one token count for several replies together, of
      which each reply has an estimated share. NA while open
    - asked: float64, seconds since the start of the run; seconds: Float64, until its reply, NA while open.
      Both are NA if the record has no times
    - source: category, where the reply came from: `model`, `cache` (or the record of the run that this one
      was branched from), or `joined` (an equal call that was in flight). NA while open, if refused or if
      unknown
    - sent: Float64, seconds since the start of the run when it was last sent; tries: Int64, how often it was
      sent. Both are NA for calls that are not sent (a function, a simulated model, a cached reply)
    - cached_tokens: Int64, the part of input_tokens that the server had processed before and reused;
      prefill_tokens_per_second: Float64, its speed of processing the other input tokens;
      decode_tokens_per_second: Float64, its speed of generating the reply. NA if the server does not report
      it, and for calls that were not sent or that joined another
    - mean_logprob, min_logprob: Float64, mean and lowest log-probability of the tokens of the reply, NA if
      none were requested or reported
    - simulated: boolean, whether a simulated model replied, NA while open
    """
    return _calls_frame(run, calls_of(run))


def _calls_frame(run: Run, calls: list[CallRow]) -> pandas.DataFrame:
    replies = [row.reply for row in calls]
    logprobs = [logprobs_of(reply) if reply is not None else [] for reply in replies]
    by_place = call_status_of(run)
    ways = [by_place[row.line.p] for row in calls]
    made = [None if row.answered is None else bool(usage_of([row.answered]).calls) for row in calls]
    unknown = run.header.unknown
    flops = flops_by_call(run.lines, run.params, unknown)
    replied = [bool(known) and "calls" not in unknown for known in made]
    return typed_frame(
        {
            "position": ("string", [_dotted(row.line.p) for row in calls]),
            "node": ("string", [row.call.node for row in calls]),
            "purpose": ("string", [row.call.purpose for row in calls]),
            "sample_index": ("Int64", [row.call.sample_index for row in calls]),
            "attempt": ("string", [_dotted(row.call.attempt) or None for row in calls]),
            "repeat": ("Int64", [row.call.repeat for row in calls]),
            "prompt": ("string", [row.call.prompt if row.call.messages else None for row in calls]),
            "reply": (
                "string",
                [r.text if r and r.error is None and "replies" not in unknown else None for r in replies],
            ),
            "thinking": ("string", [(reply.thinking or None) if reply else None for reply in replies]),
            **each(replies, error="string"),
            "finish_reason": ("string", [reply and reply.finish_reason for reply in replies]),
            "made": ("boolean", made),
            "model": ("string", [(row.reply and row.reply.model) or row.call.model for row in calls]),
            "temperature": ("Float64", [row.call.temperature for row in calls]),
            **each(replies, input_tokens="Int64", output_tokens="Int64", cost="Float64"),
            **each([row.answered for row in calls], paid="Float64"),
            **each([flops.get(row.line.p) for row in calls], flops="Float64", flops_prefix_once="Float64"),
            **each(replies, shared_tokens="boolean"),
            "asked": ("float64", [None if "times" in unknown else row.line.t for row in calls]),
            "seconds": ("Float64", _seconds(run, calls)),
            "source": (
                SOURCES,
                [w.source if has_reply else None for w, has_reply in zip(ways, replied, strict=True)],
            ),
            **each(ways, sent="Float64", tries="Int64", cached_tokens="Int64"),
            **each(ways, prefill_tokens_per_second="Float64", decode_tokens_per_second="Float64"),
            "mean_logprob": ("Float64", [fmean(values) if values else None for values in logprobs]),
            "min_logprob": ("Float64", [min(values, default=None) for values in logprobs]),
            **each(replies, simulated="boolean"),
        }
    )


@gc_paused()
def tools_df(run: Run) -> pandas.DataFrame:
    """Return one row per tool call, in the order in which they were made. Refused and open calls are
    included.

    - position: string, place in the program; node: string, id of the thought it was made for
    - tool: string, its name; arguments: string, JSON as written by the model or the strategy
    - result: string, NA if the call failed; error: string, why it failed, NA if it did not
    - asked: float64, seconds since the start of the run; seconds: Float64, until its result, NA while open
    - source: category, `model` if it was really carried out, `cache` or `joined` as in `calls_df`
    - tries: Int64, how often it was tried
    - agent_id, session_id: string, the ids of the lab, NA if the lab had none
    """
    calls = tools_of(run)
    replies = [row.reply for row in calls]
    ways = call_status_of(run)
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
            "agent_id": ("string", [run.header.agent_id or None for _ in calls]),
            "session_id": ("string", [run.header.session_id or None for _ in calls]),
        }
    )


@gc_paused()
def steps_df(run: Run) -> pandas.DataFrame:
    """Return thoughts, actions and observations of an agent: one row per action, in program order. A turn
    without an action has a row too, and so has every other call of a model (a plan, its review, a synthesis).
    The table is empty for runs without turns and tools, such as a plain tree search.

    - turn: Int64, number of the turn, from 1. A turn is one reply of the model in a tool loop, or in an
      analysis step of a plan. NA for any other call, and for a tool that the strategy itself called (a step
      of a plan, a proposer's lookup)
    - node: string, id of the turn's thought, NA if the turn made no thought or its call failed. For any other
      call, the thought that it was made for
    - purpose: string, the purpose of the call (`act`, `plan`, `converge`, …), `tool` for a tool that the
      strategy itself called
    - thought: string, the text of the reply without the tool calls
    - action: string, the name of the tool, NA if missing; arguments: string, JSON as written
    - observation: string, the result as shown to the model; error: string, why there is no result, or why the
      turn's own call failed. Both are NA for an action without effect: the accepted answer, or the end of the
      run
    - thinking: string, the model's thinking before the reply; NA if missing
    - seconds: Float64, duration of the call; input_tokens, output_tokens: Int64 and cost: Float64, USD
      without a cache, of that call. These and `thinking` are given in the first row of a turn and NA in its
      other rows, so that the columns sum to the totals of the run. NA if unknown
    - tool_seconds: Float64, duration of the tool call, NA if missing
    - strategy, selected_strategy: as in `nodes_df`
    """
    row = {row.line.p: row for row in call_rows(run)}
    steps = list(steps_of(run))
    if all(step.turn is None and step.tool is None for step in steps):
        steps = []
    calls = [row.get(step.call or ()) for step in steps]
    replies = [call.reply if call else None for call in calls]
    tools = [row.get(step.tool or ()) for step in steps]
    return typed_frame(
        {
            **each(steps, turn="Int64"),
            **each(steps, node="string", purpose="string"),
            **each(steps, thought="string", action="string", arguments="string"),
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
    """Return how long each call took until its reply. `None` if that is unknown."""
    timed = not {"times", "durations"} & {*run.header.unknown}
    return [call.answered.t - call.line.t if call and call.answered and timed else None for call in calls]


def _selected(run: Run, ids: Sequence[str | None]) -> list[str | None]:
    """Return, for each thought id, the strategy that `tl.Adaptive` selected for its part of the tree. `None`
    if none was selected there, or the id is `None`."""
    selected = selected_strategies(run)
    if not selected:
        return [None] * len(ids)

    def of(id: str | None) -> str | None:
        while id is not None and id not in selected:
            id = parent_of(id)
        return None if id is None else selected[id]

    return [of(id) for id in ids]


class _CallStatus(NamedTuple):
    """How a call was answered, from the notes outside the canonical record. See `calls_df` for the fields."""

    source: str = "model"
    sent: float | None = None
    tries: int | None = None
    cached_tokens: int | None = None
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None


def call_status_of(run: Run) -> defaultdict[Position, _CallStatus]:
    """Return how each call was answered, by position."""
    ways: defaultdict[Position, _CallStatus] = defaultdict(_CallStatus)
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
        elif note.name == "call.processed" and ways[place].source == "model":
            known = {name: note.data[name] for name in PROCESSING if name in note.data}
            ways[place] = ways[place]._replace(**known)
    return ways


@gc_paused()
def events_df(run: Run) -> pandas.DataFrame:
    """Return one row per record, in the order of recording, and one per note that is not stored but follows
    from the records of a tree search.

    - position: string, place in the program. NA for notes that are not stored, and for notes about how a call
      was made, which depend on timing
    - seconds: float64, since the start of the run
    - name: string. A note has its own name (`tot.pruned`). Thoughts, scores and decisions are named after the
      innermost strategy around them with a note `NAME.started` (`tot.started`): `tot.proposed`,
      `tot.evaluated`, `tot.decided`. Before that note and outside of the strategy, they are `thought`,
      `scored` and `decided`. Other names are `call`, `reply` and `ended`, and the states of a call to a real
      model, with that call's position as `data["call"]`: `call.cached` (run: the run whose record answered
      it, if it was not the cache; see `lab.branch`), `call.joined` (an equal call was in flight),
      `call.queued` (slots: name of the slots that it waited for, if its strategy limits calls by slots),
      `call.sent` (tries, n; paid: USD that the call can have cost so far, if the lab has a limit),
      `call.retried` (error, status, wait in seconds, paid; input_tokens, output_tokens, cost, reported_usage
      and may_be_charged of the failed try as in `Reply`), `call.limit` (limit, before, reason, model: the
      adaptive limit of concurrent requests to the model changed with this call), `call.server` (server,
      version, model, revision, quantization, dtype, chat_template, as far as the server reports them: once,
      with the first call to it), `call.processed` (cached_tokens and speeds, as far as the server reports
      them), `call.dropped` (settings that the provider does not accept: once), `call.not_sent` (the model
      cannot be reached, or its price is unknown), `call.refused` (by `spend`: the most it could cost, and
      what was left, in USD), `call.damaged` and `call.unstored` (errors of the cache)
    - node: string, id of the thought it is about, NA if missing
    - data: object, the record as a dict. `pandas.json_normalize(df.data)` makes columns of it, and
      `df.data.str["depth"]` extracts one. `depth` counts from the strategy's own root. A proposal has depth,
      node_id, parent_id, content (and source, depends); an evaluation has depth, node_id, score (and raw,
      samples, by)
    - simulated: boolean, whether a simulated model took part in the run
    """
    rows = list(_events(run))
    lines = [line for line, _ in rows]
    timed = "times" not in run.header.unknown
    return typed_frame(
        {
            "position": ("string", [_dotted(line.p) or None for line in lines]),
            "seconds": ("float64", [line.t if timed else None for line in lines]),
            **each([note for _, note in rows], name="string", at="string", data="object"),
            "simulated": ("boolean", [run.simulated] * len(rows)),
        }
    ).rename(columns={"at": "node"})


def _events(run: Run) -> Iterator[tuple[Line, Note]]:
    """Yield each record of a run with the note that `events_df` shows for it.

    Notes that are not stored but follow from a record (see `SearchNotes`) come before it, on lines without a
    position.
    """
    node_of_call = {line.p: line.e.node for line in run.lines if isinstance(line.e, Call)}
    notes = SearchNotes()
    for line in run.lines:
        event = line.e
        yield from ((Line((), line.t, note), note) for note in notes.before(event))
        if isinstance(event, Thought | Scored | Decided):
            yield line, notes.named(event)
        elif isinstance(event, Note):
            yield line, event
        else:
            held = msgspec.to_builtins(event)
            name = held.pop("type")
            if isinstance(event, Reply):
                held["paid"] = line.paid
            node = node_of_call.get(line.p) if isinstance(event, Reply) else event.node
            yield line, Note(name, node or "", held)


def _dotted(position: Position) -> str:
    return ".".join(map(str, position))


def each(things: Sequence[Any], **dtypes: str) -> dict[str, tuple[str, list[Any]]]:
    """Return the named attributes of `things` as columns for `typed_frame`. The attributes of `None` are
    `None`."""
    return {
        name: (dtype, [None if thing is None else getattr(thing, name) for thing in things])
        for name, dtype in dtypes.items()
    }


def rows_frame(rows: Sequence[Sequence[Any]], **dtypes: str | tuple[str, ...]) -> pandas.DataFrame:
    """Return rows as a frame, with the names and dtypes of their columns in order (see `typed_frame`)."""
    return typed_frame(
        {name: (dtype, [row[place] for row in rows]) for place, (name, dtype) in enumerate(dtypes.items())}
    )


def typed_frame(columns: dict[str, tuple[str | tuple[str, ...], list[Any]]]) -> pandas.DataFrame:
    """Return the columns as a DataFrame. A tuple of words as dtype makes a category with all of these words,
    even those that do not occur, so that concatenated frames of several runs keep the category."""
    import pandas as pd  # noqa: PLC0415  figures use this module without pandas

    made = {
        name: pd.Series(values, dtype=pd.CategoricalDtype(list(dtype)) if isinstance(dtype, tuple) else dtype)
        for name, (dtype, values) in columns.items()
    }
    return pd.DataFrame(made)
