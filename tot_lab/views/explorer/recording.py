"""What the browser is told of a run.

A chunk tells some lines of the journal, in the order in which they happened, as columns of
small numbers: thoughts, calls and times as differences, whatever repeats as a row of a table. It
stands alone but for the numbers of the thoughts and calls before it, which it names; so a chunk
that was lost is made again from any line, and one that comes twice does no harm. Texts are told
apart: beginnings in batches, the whole on request, since they weigh a hundred times more. All JSON
is ASCII, so that nothing on its way can spoil it.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from operator import sub
from typing import Any

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply, readable
from tot_lab.core.records import Decided, Ended, Line, Note, Position, Scored, Thought
from tot_lab.core.tools import TOOL, named
from tot_lab.record.journal import encoder
from tot_lab.record.run import Run

KINDS = (Thought, Scored, Decided, Call, Reply, Note, Ended)
"""A line is told by the place of its kind in this list."""

DIGITS = {kind: str(digit) for digit, kind in enumerate(KINDS)}

TICKS = 100_000
"""Ticks of the clock in a second."""

LONGEST = 1000
"""Characters of a text that are told without being asked for."""

BATCH = 200_000
"""Characters of text in one batch, about."""


class Recording:
    """The lines of a run, with the numbers that the browser knows them by: lines, thoughts and calls
    each from 0, in the order in which they happened."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.lines: list[Line] = []
        self.nodes: dict[str, int] = {}
        """The number of each thought, by id."""
        self._calls: dict[Position, int] = {}
        self._born: list[int] = []  # the line of each thought
        self._asked: list[int] = []  # the line of each call
        self._about: dict[str, list[int]] = {}  # the lines about each thought, as far as `_read`
        self._read = 0
        self.take(lines)

    @gc_paused()
    def take(self, lines: Iterable[Line]) -> None:
        """Go on with `lines`. A repeated id is a ValueError."""
        first = len(self.lines)
        self.lines.extend(lines)
        for number in range(first, len(self.lines)):
            line = self.lines[number]
            event = line.e
            if isinstance(event, Thought):
                if self.nodes.setdefault(event.id, len(self._born)) != len(self._born):
                    raise ValueError(f"thought {event.id!r} is recorded twice")
                self._born.append(number)
            elif isinstance(event, Call):
                self._calls[line.p] = len(self._asked)
                self._asked.append(number)

    @gc_paused()
    def chunk(self, first: int = 0, until: int | None = None) -> bytes:
        """The lines from number `first` up to number `until`, which is left out; `None` means all there are.
        Raises KeyError for a record about a thought that is unknown."""
        lines = self.lines[first:until]
        of: dict[type, list[Any]] = {kind: [] for kind in KINDS}
        for line in lines:
            of[type(line.e)].append(line)
        columns = {
            "first": first,
            "kinds": "".join([DIGITS[type(line.e)] for line in lines]),
            "times": _differences([round(line.t * TICKS) for line in lines]),
            **self._thoughts(of[Thought]),
            **self._scores(of[Scored]),
            **self._decisions(of[Decided]),
            **self._questions(of[Call]),
            **self._answers(of[Reply]),
            **self._notes(of[Note]),
            **self._end(of[Ended]),
        }
        return _ascii({name: column for name, column in columns.items() if column not in ([], {})})

    def _thoughts(self, lines: list[Any]) -> dict[str, Any]:
        parents, ordinals = [], []
        names: dict[int, str] = {}
        links: dict[str, list[Any]] = {"sources": [], "depends": []}
        for place, line in enumerate(lines):
            thought = line.e
            parents.append(-1 if thought.parent is None else self.nodes[thought.parent])
            last = thought.id.rpartition(".")[2]
            ordinal = int(last) if last.isdecimal() and last.isascii() and len(last) < 10 else 0
            ordinals.append(ordinal)
            if thought.id != (f"{thought.parent}.{ordinal}" if thought.parent is not None else f"{ordinal}"):
                names[place] = readable(thought.id)
            if thought.source or thought.depends:
                links["sources"].extend([place, self._number(id)] for id in thought.source)
                links["depends"].extend([place, self._number(id)] for id in thought.depends)
        return {"parents": _differences(parents), "ordinals": ordinals, "names": names, **links}

    def _scores(self, lines: list[Any]) -> dict[str, Any]:
        told = [line.e for line in lines]
        table, rows = _table([(e.score, e.by, e.raw, tuple(e.draws)) for e in told])
        nodes = [self.nodes[e.id] for e in told]
        return {"scored": _differences(nodes), "scores": rows, "scoreTable": table}

    def _decisions(self, lines: list[Any]) -> dict[str, Any]:
        told = [line.e for line in lines]
        table, rows = _table([(e.what, _beginning(e.reason)) for e in told])
        return {
            "decided": _differences([self.nodes[e.id] for e in told]),
            "decisions": rows,
            "decisionTable": table,
            "merged": [[at, self._number(e.other)] for at, e in enumerate(told) if e.other is not None],
        }

    def _questions(self, lines: list[Any]) -> dict[str, Any]:
        told = [line.e for line in lines]
        table, rows = _table([(named(e), e.sample_index) for e in told])
        nodes = [self.nodes.get(e.node, -1) for e in told]
        return {
            "asked": _differences(nodes),
            "questions": rows,
            "questionTable": table,
            "askedElsewhere": self._elsewhere(nodes, told),
        }

    def _answers(self, lines: list[Any]) -> dict[str, Any]:
        told = [line.e for line in lines]
        prices = [
            (
                *(_of_model(e, e.cost), _of_model(e, line.paid), e.error and _beginning(e.error)),
                *(() if e.tool is None else (True,)),
            )
            for e, line in zip(told, lines, strict=True)
        ]
        table, rows = _table(prices)
        return {
            "answered": _differences([self._calls[line.p] for line in lines]),
            "input": [_of_model(e, e.input_tokens) for e in told],
            "output": [_of_model(e, e.output_tokens) for e in told],
            "answers": rows,
            "answerTable": table,
        }

    def _notes(self, lines: list[Any]) -> dict[str, Any]:
        """What happened to a call names the call, any other note its thought."""
        told = [line.e for line in lines]
        calls = [self._call_of(line) for line in lines]
        nodes = [
            self.nodes.get(e.at, -1) if call is None else call for e, call in zip(told, calls, strict=True)
        ]
        table, rows = _table(
            [
                (e.name, call is not None, _fields(e, () if call is None else ("call",)))
                for e, call in zip(told, calls, strict=True)
            ]
        )
        return {
            "noted": _differences(nodes),
            "notes": rows,
            "noteTable": [[name, about, data and json.loads(data)] for name, about, data in table],
            "notedElsewhere": self._elsewhere(nodes, told),
        }

    def _end(self, lines: list[Any]) -> dict[str, Any]:
        if not lines:
            return {}
        end = lines[-1].e
        told = {
            "stop": end.stop_reason,
            "answer": _beginning(end.answer),
            "node": self.nodes.get(end.node, -1),
            "score": end.score,
            "ranked": [self.nodes[id] for id in end.ranked if id in self.nodes],
            "error": end.error and _beginning(end.error),
        }
        return {"ended": told}

    def _number(self, id: str) -> int | str:
        """The number of a thought, or its id while it has none."""
        return self.nodes.get(id, id)

    def _elsewhere(self, nodes: list[int], told: list[Any]) -> list[Any]:
        """The ids of thoughts that have no number yet, each with its place in the column."""
        if -1 not in nodes:
            return []
        return [[place, readable(id)] for place, e in enumerate(told) if (id := _about(e)) not in self.nodes]

    def _call_of(self, line: Line) -> int | None:
        """The call that a note beside the record is about."""
        place = line.e.data.get("call") if isinstance(line.e, Note) and not line.p else None
        return self._calls.get(tuple(place)) if isinstance(place, list | tuple) else None

    def texts(self, first: int = 0) -> Iterator[bytes]:
        """The beginnings of the thoughts' texts from number `first` on, batch by batch."""
        batch: list[str] = []
        size = 0
        for node in range(first, len(self._born)):
            thought = self.lines[self._born[node]].e
            assert isinstance(thought, Thought)
            batch.append(_beginning(thought.text))
            size += len(batch[-1])
            if size >= BATCH:
                yield _ascii({"first": node + 1 - len(batch), "texts": batch})
                batch, size = [], 0
        if batch:
            yield _ascii({"first": len(self._born) - len(batch), "texts": batch})

    def details(self, id: str) -> dict[str, Any]:
        """All that is known of a thought, its calls whole. Raises KeyError for an id that none has.

        Times are in seconds since the start of the run, `seconds` of a call until its reply; what is
        not known is None."""
        self._index()
        if id not in self.nodes:
            raise KeyError(f"no thought {id!r} in this run")
        told: dict[str, Any] = {
            **{"id": id, "text": "", "source": [], "depends": []},
            **{"score": None, "raw": None, "draws": [], "by": "", "state": "proposed"},
            **{"reason": "", "merged": None, "calls": [], "notes": []},
        }
        calls: dict[Position, dict[str, Any]] = {}
        for line in map(self.lines.__getitem__, self._about[id]):
            event = line.e
            if isinstance(event, Thought):
                told.update(text=event.text, source=list(event.source), depends=list(event.depends))
            elif isinstance(event, Scored):
                told.update(score=event.score, raw=event.raw, draws=list(event.draws), by=event.by)
                if event.score is None and told["state"] == "proposed":
                    told["state"] = "unreadable"
            elif isinstance(event, Decided):
                told.update(state=event.what, reason=event.reason, merged=event.other or told["merged"])
            elif isinstance(event, Call):
                calls[line.p] = _question(line, event)
            elif isinstance(event, Reply):
                _answer(calls[line.p], line, event)
            elif isinstance(event, Note):
                place = event.data.get("call") if not line.p else None
                if isinstance(place, list | tuple) and (call := calls.get(tuple(place))) is not None:
                    _way(call, line, event)
                told["notes"].append({"name": event.name, "data": event.data, "seconds": line.t})
        told["calls"] = list(calls.values())
        readable_told: dict[str, Any] = json.loads(_ascii(told))
        return readable_told

    def _index(self) -> None:
        """Read on which lines are about which thought."""
        for number in range(self._read, len(self.lines)):
            line = self.lines[number]
            event = line.e
            if isinstance(event, Thought | Scored | Decided):
                id = event.id
            elif isinstance(event, Call | Note):
                id = _about(event)
            elif isinstance(event, Reply):
                call = self.lines[self._asked[self._calls[line.p]]].e
                assert isinstance(call, Call)
                id = call.node
            else:
                continue
            self._about.setdefault(id, []).append(number)
        self._read = len(self.lines)


def about_of(run: Run) -> dict[str, Any]:
    """What the browser is told of a run besides its lines."""
    return {
        "id": run.id,
        "question": readable(run.question),
        "name": run.name,
        "strategy": run.header.strategy,
        "model": run.model,
        "started": run.header.started,
        "budget": run.header.budget,
        "repeat": run.header.repeat,
        "simulated": run.simulated,
        "parent": run.header.branched.get("run"),
        "path": None if run.path is None else str(run.path),
    }


def _about(event: Call | Note) -> str:
    """The id of the thought that `event` is about."""
    return event.node if isinstance(event, Call) else event.at


def _question(line: Line, call: Call) -> dict[str, Any]:
    return {
        "position": ".".join(map(str, line.p)),
        "kind": named(call),
        "draw": call.sample_index,
        "prompt": [
            {"role": "arguments" if call.purpose == TOOL else message.role, "content": message.content}
            for message in call.messages
        ],
        **{"reply": None, "thinking": None, "error": None, "finish": None},
        "model": call.model,
        "temperature": call.temperature,
        **{"input_tokens": None, "output_tokens": None, "cost": None, "paid": None},
        "asked": line.t,
        **{"sent": None, "seconds": None, "source": "model", "tries": None},
    }


def _answer(call: dict[str, Any], line: Line, reply: Reply) -> None:
    call.update(
        reply=reply.text if reply.error is None else None,
        thinking=reply.thinking,
        error=reply.error,
        finish=reply.finish_reason,
        model=reply.model or call["model"],
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cost=reply.cost,
        paid=line.paid,
        seconds=line.t - call["asked"],
    )


def _of_model(reply: Reply, amount: float | None) -> float | None:
    """What a reply used: a tool's nothing, where a model that does not say may have used anything."""
    return amount if reply.tool is None else 0


def _way(call: dict[str, Any], line: Line, note: Note) -> None:
    if note.name == "call.sent":
        call.update(sent=line.t, tries=note.data["tries"])
    elif note.name == "call.cached":
        call["source"] = "cache"
    elif note.name == "call.joined":
        call["source"] = "joined"


def _fields(note: Note, without: tuple[str, ...]) -> str | None:
    """The fields of a note as JSON; `None` if they are long, or no file could hold them."""
    fields = {name: value for name, value in note.data.items() if name not in without}
    if not fields:
        return "{}"
    try:
        data = _ascii(fields)
    except (TypeError, ValueError):
        return None
    return data.decode() if len(data) <= LONGEST else None


def _beginning(text: str) -> str:
    return readable(text if len(text) <= LONGEST else text[:LONGEST] + "…")


def _differences(numbers: list[int]) -> list[int]:
    return list(map(sub, numbers, chain((0,), numbers)))


def _table(rows: list[Any]) -> tuple[list[Any], list[int]]:
    """The distinct rows, and for each row its place among them."""
    table: dict[Hashable, int] = {}
    places = [table.setdefault(row, len(table)) for row in rows]
    return list(table), places


def _ascii(value: Any) -> bytes:
    """`value` as JSON. A number that JSON lacks is null."""
    try:
        data = encoder.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which a run in memory may hold
        data = encoder.encode(_readable(value))
    return data if data.isascii() else json.dumps(msgspec.json.decode(data)).encode()


def _readable(value: Any) -> Any:
    """`value` with every text in it made `readable`."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {_readable(name): _readable(item) for name, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list | tuple) else value
