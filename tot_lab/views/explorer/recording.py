"""Serialisation of a run for the browser.

A chunk contains consecutive lines of the journal as columns of small numbers. Thoughts, calls and times are
stored as differences between successive values, and repeated values as indices into a table. A chunk can
start at any line and refers to earlier thoughts and calls by number. A lost chunk can therefore be sent
again, and a repeated chunk is ignored. A column of integers is one string, in which most numbers take one
character. The texts of thoughts, prompts and replies are about a hundred times larger. They are sent
separately: the beginnings of thoughts in batches, the full texts on request. All JSON is ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain, islice
from operator import sub
from typing import Any

import msgspec

from tot_lab.analysis.by_person import changes_of
from tot_lab.core.acts import raised_limits
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply, readable
from tot_lab.core.records import Decided, Ended, Line, Note, Position, Scored, Thought
from tot_lab.core.tools import TOOL, named
from tot_lab.record.journal import encoder
from tot_lab.record.run import Run
from tot_lab.views.figures.verdict import verdict_of
from tot_lab.views.mathml import formulas_of

KINDS = (Thought, Scored, Decided, Call, Reply, Note, Ended)
"""Types of records. A chunk contains the index of each line's type in this tuple."""

DIGITS = {kind: str(digit) for digit, kind in enumerate(KINDS)}

TICKS = 10_000
"""Units of time per second in a chunk. The browser shows milliseconds."""

LONGEST = 1000
"""Maximum number of characters of a text in a chunk or batch. Longer texts are truncated."""

NOTE = 20_000
"""Maximum number of characters of the fields of a note in a chunk. Longer ones are omitted."""

BATCH = 200_000
"""Approximate number of characters in the first batch of texts."""

GROWTH = 8
"""Maximum size of a later batch, as a multiple of the first. After each batch the page draws all thoughts, so
the batches of a large run become larger.
"""

DIGITS_OF_NUMBERS = "".join(sign for sign in map(chr, range(ord("#"), ord("~") + 1)) if sign not in "&<\\")
"""The characters that encode the numbers of a column. Neither JSON nor HTML escapes them."""

LAST_DIGITS = 76
"""Number of characters of `DIGITS_OF_NUMBERS`, from the first, that encode the last digit of a number. The
others encode the digits before the last, the least significant first. A negative number begins with `!`."""

PREFIXES = ("", "b:")
"""Prefixes of thought ids in the browser: of the first run, and of a second run that is compared with it."""


class Recording:
    """The journal lines of a run, and the numbers that identify lines, thoughts and calls in the browser.

    Lines, thoughts and calls are numbered separately, from 0, in the order of the journal.
    """

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.lines: list[Line] = []
        self.nodes: dict[str, int] = {}
        """The number of each thought, by id."""
        self._calls: dict[Position, int] = {}
        self._thought_lines: list[int] = []  # line number of each thought
        self._call_lines: list[int] = []  # line number of each call
        # Numbers of the lines that refer to each thought, among the first `_indexed` lines.
        self._node_lines: dict[str, list[int]] = {}
        self._indexed = 0
        self.extend(lines)

    @gc_paused()
    def extend(self, lines: Iterable[Line]) -> None:
        """Append `lines`.

        Raises:
            ValueError: The id of a thought is repeated.
        """
        first = len(self.lines)
        self.lines.extend(lines)
        for number, line in enumerate(islice(self.lines, first, None), first):
            event = line.e
            if type(event) is Thought:
                node = len(self._thought_lines)
                if self.nodes.setdefault(event.id, node) != node:
                    raise ValueError(f"Duplicate thought: the id {event.id!r} is recorded twice.")
                self._thought_lines.append(number)
            elif type(event) is Call:
                self._calls[line.p] = len(self._call_lines)
                self._call_lines.append(number)

    @gc_paused()
    def chunk(self, first: int = 0, until: int | None = None) -> bytes:
        """Serialise the lines from `first` to `until` (exclusive) as a chunk. `None` means the end.

        Raises:
            KeyError: A record refers to a thought that is not recorded.
        """
        lines = self.lines[first:until]
        of: dict[type, list[Any]] = {kind: [] for kind in KINDS}
        for line in lines:
            of[type(line.e)].append(line)
        columns = {
            "first": first,
            "kinds": "".join([DIGITS[type(line.e)] for line in lines]),
            "times": _differences(round(line.t * TICKS) for line in lines),
            **self._thoughts(of[Thought]),
            **self._scores(of[Scored]),
            **self._decisions(of[Decided]),
            **self._call_columns(of[Call]),
            **self._replies(of[Reply]),
            **self._notes(of[Note]),
            **self._end(of[Ended]),
        }
        return _ascii(
            {name: column for name, column in columns.items() if column or name in ("first", "kinds")}
        )

    def _thoughts(self, lines: list[Any]) -> dict[str, Any]:
        parents, ordinals = [], []
        names: dict[int, str] = {}
        links: dict[str, list[Any]] = {"sources": [], "depends": []}
        for place, line in enumerate(lines):
            thought = line.e
            parents.append(-1 if thought.parent is None else self.nodes[thought.parent])
            above, _, last = thought.id.rpartition(".")
            ordinal = int(last) if last.isdecimal() and last.isascii() and len(last) < 10 else 0
            ordinals.append(ordinal)
            alone = thought.id == last
            regular = alone if thought.parent is None else not alone and above == thought.parent
            if not regular or last != str(ordinal):
                names[place] = readable(thought.id)
            if thought.source or thought.depends:
                links["sources"].extend([place, self._number(id)] for id in thought.source)
                links["depends"].extend([place, self._number(id)] for id in thought.depends)
        return {"parents": _differences(parents), "ordinals": _packed(ordinals), "names": names, **links}

    def _scores(self, lines: list[Any]) -> dict[str, Any]:
        events = [line.e for line in lines]
        table, rows = _unique_rows([(e.score, e.by, e.raw, tuple(e.samples)) for e in events])
        nodes = [self.nodes[e.id] for e in events]
        return {"scored": _differences(nodes), "scores": rows, "scoreTable": table}

    def _decisions(self, lines: list[Any]) -> dict[str, Any]:
        events = [line.e for line in lines]
        table, rows = _unique_rows([(e.what, truncate(e.reason)) for e in events])
        return {
            "decided": _differences([self.nodes[e.id] for e in events]),
            "decisions": rows,
            "decisionTable": table,
            "merged": [[at, self._number(e.other)] for at, e in enumerate(events) if e.other is not None],
        }

    def _call_columns(self, lines: list[Any]) -> dict[str, Any]:
        events = [line.e for line in lines]
        table, rows = _unique_rows([(named(e), e.sample_index) for e in events])
        nodes = [self.nodes.get(e.node, -1) for e in events]
        return {
            "asked": _differences(nodes),
            "questions": rows,
            "questionTable": table,
            "askedElsewhere": self._missing_ids(nodes, events),
        }

    def _replies(self, lines: list[Any]) -> dict[str, Any]:
        events = [line.e for line in lines]
        prices = [
            (
                *(_model_amount(e, e.cost), _model_amount(e, line.paid), e.error and truncate(e.error)),
                *(() if e.tool is None and e.sent else (e.tool is not None, e.sent)),
            )
            for e, line in zip(events, lines, strict=True)
        ]
        table, rows = _unique_rows(prices)
        return {
            "answered": _differences([self._calls[line.p] for line in lines]),
            "input": _amounts([_model_amount(e, e.input_tokens) for e in events], _differences),
            "output": _amounts([_model_amount(e, e.output_tokens) for e in events], _packed),
            "answers": rows,
            "answerTable": table,
        }

    def _notes(self, lines: list[Any]) -> dict[str, Any]:
        """Serialise notes. A note about a call refers to the call, any other note to its thought."""
        events = [line.e for line in lines]
        calls = [self._call_number(line) for line in lines]
        nodes = [
            self.nodes.get(e.at, -1) if call is None else call for e, call in zip(events, calls, strict=True)
        ]
        table, rows = _unique_rows(
            [
                (e.name, call is not None, _fields(e, () if call is None else ("call",)))
                for e, call in zip(events, calls, strict=True)
            ]
        )
        return {
            "noted": _differences(nodes),
            "notes": rows,
            "noteTable": [[name, about, data and json.loads(data)] for name, about, data in table],
            "notedElsewhere": self._missing_ids(nodes, events),
        }

    def _end(self, lines: list[Any]) -> dict[str, Any]:
        if not lines:
            return {}
        end = lines[-1].e
        summary = {
            "stop": end.stop_reason,
            "answer": truncate(end.answer),
            "node": self.nodes.get(end.node, -1),
            "score": end.score,
            "ranked": [self.nodes[id] for id in end.ranked if id in self.nodes],
            "error": end.error and truncate(end.error),
        }
        return {"ended": summary}

    def _number(self, id: str) -> int | str:
        """Return the number of a thought, or the id if no thought with this id is recorded yet."""
        return self.nodes.get(id, id)

    def _missing_ids(self, nodes: list[int], events: list[Any]) -> list[Any]:
        """Return a pair (position in the column, id) for each event whose thought is not recorded yet."""
        if -1 not in nodes:
            return []
        return [
            [place, readable(id)] for place, e in enumerate(events) if (id := _node_id(e)) not in self.nodes
        ]

    def _call_number(self, line: Line) -> int | None:
        """Return the number of the call that the note in `line` is about. `None` if it is about no call."""
        place = line.e.data.get("call") if isinstance(line.e, Note) and not line.p else None
        return self._calls.get(tuple(place)) if isinstance(place, list | tuple) else None

    def texts(self, first: int = 0) -> Iterator[bytes]:
        """Yield batches with the beginnings of the texts, starting at thought number `first`."""
        enough = BATCH * min(1 + first // 10_000, GROWTH)
        batch: list[str] = []
        size = 0
        for node in range(first, len(self._thought_lines)):
            thought = self.lines[self._thought_lines[node]].e
            assert isinstance(thought, Thought)
            batch.append(truncate(thought.text))
            size += len(batch[-1])
            if size >= enough:
                yield _ascii({"first": node + 1 - len(batch), "texts": batch})
                batch, size = [], 0
        if batch:
            yield _ascii({"first": len(self._thought_lines) - len(batch), "texts": batch})

    def details(self, id: str) -> dict[str, Any]:
        """Return all data of the thought `id`, including its calls and notes.

        Times are in seconds since the start of the run. The `seconds` of a call are its duration. Unknown
        values are `None`.

        Raises:
            KeyError: No thought has this id.
        """
        plain: dict[str, Any] = json.loads(self.details_json(id))
        return plain

    def details_json(self, id: str) -> bytes:
        """Return the result of `details` as ASCII JSON."""
        self._index()
        if id not in self.nodes:
            raise KeyError(f"no thought {id!r} in this run")
        details: dict[str, Any] = {
            **{"id": id, "text": "", "source": [], "depends": []},
            **{"score": None, "raw": None, "draws": [], "by": "", "state": "proposed"},
            **{"reason": "", "merged": None, "calls": [], "notes": []},
        }
        calls: dict[Position, dict[str, Any]] = {}
        for line in map(self.lines.__getitem__, self._node_lines[id]):
            event = line.e
            if isinstance(event, Thought):
                details.update(text=event.text, source=list(event.source), depends=list(event.depends))
            elif isinstance(event, Scored):
                details.update(score=event.score, raw=event.raw, draws=list(event.samples), by=event.by)
                if event.score is None and details["state"] == "proposed":
                    details["state"] = "unreadable"
            elif isinstance(event, Decided):
                details.update(state=event.what, reason=event.reason, merged=event.other or details["merged"])
            elif isinstance(event, Call):
                calls[line.p] = _call_details(line, event)
            elif isinstance(event, Reply):
                _add_reply(calls[line.p], line, event)
            elif isinstance(event, Note):
                place = event.data.get("call") if not line.p else None
                if isinstance(place, list | tuple) and (call := calls.get(tuple(place))) is not None:
                    _add_note(call, line, event)
                details["notes"].append({"name": event.name, "data": event.data, "seconds": line.t})
        details["calls"] = list(calls.values())
        texts = [details["text"], *(text for call in calls.values() for text in _texts_of(call))]
        if formulas := formulas_of(texts):
            details["formulas"] = formulas
        return _ascii(details)

    def _index(self) -> None:
        """Update the index from thoughts to the lines that refer to them."""
        for number in range(self._indexed, len(self.lines)):
            line = self.lines[number]
            event = line.e
            if isinstance(event, Thought | Scored | Decided):
                id = event.id
            elif isinstance(event, Call | Note):
                id = _node_id(event)
            elif isinstance(event, Reply):
                call = self.lines[self._call_lines[self._calls[line.p]]].e
                assert isinstance(call, Call)
                id = call.node
            else:
                continue
            self._node_lines.setdefault(id, []).append(number)
        self._indexed = len(self.lines)


def about_of(run: Run) -> dict[str, Any]:
    """Return what the browser shows of a run in addition to its lines: header, budget and verdict."""
    return {
        "id": run.id,
        "question": readable(run.question),
        "name": run.name,
        "strategy": run.header.strategy,
        "model": run.model,
        "started": run.header.started,
        "budget": {**(run.header.budget or {}), **raised_limits(run.lines_of(Note))},
        "repeat": run.header.repeat,
        "model_note": run.model_note,
        "unknown": run.header.unknown,
        "verdict": verdict_of(run)._asdict(),
        "parent": run.header.branched.get("run"),
        "path": None if run.path is None else str(run.path),
        "changed": [[*change, str(change)] for change in changes_of(run)],
    }


def _node_id(event: Call | Note) -> str:
    """Return the id of the thought that `event` refers to."""
    return event.node if isinstance(event, Call) else event.at


def _call_details(line: Line, call: Call) -> dict[str, Any]:
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


def _texts_of(call: dict[str, Any]) -> list[str]:
    """Return the texts of a call that the browser renders as Markdown with formulas."""
    prompt = [message["content"] for message in call["prompt"]]
    return list(filter(None, [*prompt, call["reply"], call["thinking"], call["error"]]))


def _add_reply(call: dict[str, Any], line: Line, reply: Reply) -> None:
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


def _model_amount(reply: Reply, amount: float | None) -> float | None:
    """Return `amount`, or 0 for the reply of a tool. `None` means that the model did not report an amount."""
    return amount if reply.tool is None else 0


def _add_note(call: dict[str, Any], line: Line, note: Note) -> None:
    if note.name == "call.sent":
        call.update(sent=line.t, tries=note.data["tries"])
    elif note.name == "call.cached":
        call["source"] = "cache"
    elif note.name == "call.joined":
        call["source"] = "joined"


def _fields(note: Note, without: tuple[str, ...]) -> str | None:
    """Return the fields of a note except `without` as JSON, or `None` if they are too long or not JSON."""
    fields = {name: value for name, value in note.data.items() if name not in without}
    if not fields:
        return "{}"
    try:
        data = _ascii(fields)
    except (TypeError, ValueError):
        return None
    return data.decode() if len(data) <= NOTE else None


def truncate(text: str) -> str:
    """Shorten a text to `LONGEST` characters."""
    return readable(text if len(text) <= LONGEST else text[:LONGEST] + "…")


class _Codes(dict[int, str]):
    """Maps each integer to its encoding in `DIGITS_OF_NUMBERS`, which is computed at first use."""

    def __missing__(self, number: int) -> str:
        rest, code = abs(number), "!" if number < 0 else ""
        while rest >= LAST_DIGITS:
            rest, digit = divmod(rest, len(DIGITS_OF_NUMBERS) - LAST_DIGITS)
            code += DIGITS_OF_NUMBERS[LAST_DIGITS + digit]
        self[number] = code = code + DIGITS_OF_NUMBERS[rest]
        return code


def _packed(numbers: Iterable[int]) -> str:
    """Return a column of integers as text."""
    return "".join(map(_Codes().__getitem__, numbers))


def _amounts(amounts: list[Any], packed: Callable[[list[Any]], str]) -> str | list[Any]:
    """Return a column of token counts as text, or unchanged if some counts are `None`."""
    return amounts if None in amounts else packed(amounts)


def _differences(numbers: Iterable[int]) -> str:
    """Return the difference of each number from its predecessor (the first from 0), as a column."""
    numbers = list(numbers)
    return _packed(map(sub, numbers, chain((0,), numbers)))


def _unique_rows(rows: list[Any]) -> tuple[list[Any], str]:
    """Return the distinct rows, and a column with the index of each row among them."""
    table: dict[Hashable, int] = {}
    places = [table.setdefault(row, len(table)) for row in rows]
    return list(table), _packed(places)


def _ascii(value: Any) -> bytes:
    """Return `value` as ASCII JSON. Infinities and NaN become null."""
    try:
        data = encoder.encode(value)
    except UnicodeEncodeError:  # a run that was not stored may contain a lone surrogate
        data = encoder.encode(_readable(value))
    return data if data.isascii() else json.dumps(msgspec.json.decode(data)).encode()


def _readable(value: Any) -> Any:
    """Apply `readable` to every text in `value`."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {_readable(name): _readable(item) for name, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list | tuple) else value
