"""The progress of a run, for a notebook output that is updated and for a terminal that prints line by line.

`Progress` is computed from the lines recorded so far. Clamped settings and fallbacks are shown as soon as
they are recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from tot_lab.core.calls import Call, Reply, html_text, is_made
from tot_lab.core.records import Ended, Line, Note, Position
from tot_lab.core.tools import named
from tot_lab.core.tree import Tree
from tot_lab.record.routed import route_of
from tot_lab.views.figures.theme import printable, short, themed
from tot_lab.views.report import tree_rows

_WIDTH = 90

_HEAD = themed("font-family:var(--font);font-size:var(--text-body)")
_TREE = themed(
    "background:none;color:inherit;font-size:var(--text-note);line-height:1.4;overflow-x:auto;"
    "margin:var(--space-2) 0"
)


class Progress:
    """The progress of a run. Pass its method `take` as `watch` to `tl.think` or `lab.run`.

    Args:
        about: A description of the model.
    """

    def __init__(self, about: str) -> None:
        self.about = about
        self.changes = 0
        """Number of changes of the display so far."""
        self.stop: str | None = None
        """Stop reason of the run; `None` while it is running."""
        self._tree = Tree()
        self._open: dict[Position, Call] = {}
        self._calls = 0
        self._tokens: int | None = 0
        self._route = ""
        self._seconds = 0.0
        self._new_lines = [f"calling {about}"]
        self._notes: list[str] = []

    def take(self, lines: Sequence[Line]) -> None:
        """Add new journal lines of the run."""
        lines = [line for line in lines if not (isinstance(line.e, Note) and line.e.name == "call.partial")]
        self.changes += bool(lines)
        for line in lines:
            self._seconds = line.t
            self._new_lines += [f"{line.t:7.1f} s  {text}" for text in self._describe(line)]

    def _describe(self, line: Line) -> Iterator[str]:
        event = line.e
        self._tree.add(event)
        if isinstance(event, Call):
            self._open[line.p] = event
        elif isinstance(event, Reply):
            call = self._open.pop(line.p, None)
            if call is not None:
                if is_made(event):
                    self._calls += 1
                    used = (event.input_tokens, event.output_tokens)
                    known = None not in (*used, self._tokens)
                    self._tokens = sum(filter(None, (*used, self._tokens))) if known else None
                about = self._tree.nodes.get(call.node)
                text = event.error or (about.text.partition("\n")[0] if about else "")
                yield f"{named(call)}: {short(text, _WIDTH)}"
        elif isinstance(event, Note):
            self._route = route_of(event) or self._route
            texts = list(_note_texts(event))
            self._notes += texts
            yield from texts
        elif isinstance(event, Ended):
            self.stop = event.stop_reason

    def tick(self, seconds: float) -> None:
        """Set the elapsed time. `changes` increases once per full second."""
        if int(seconds) > int(self._seconds):
            self._seconds = seconds
            self.changes += 1

    def new_lines(self) -> list[str]:
        """Return the lines of text that were added since the last call of `new_lines`."""
        lines, self._new_lines = self._new_lines, []
        return lines

    @property
    def head(self) -> str:
        """Status line: open calls, calls made, tokens and time."""
        under_way = Counter(map(named, self._open.values()))
        now = ", ".join(f"{name} × {count}" if count > 1 else name for name, count in under_way.items())
        ended = {None: f"{now or 'starting'} …", "cancelled": "interrupted", "error": "failed"}
        state = ended.get(self.stop, "done")
        used = [pluralize(self._calls, "call"), *([f"{self._tokens:,} tokens"] if self._tokens else [])]
        route = f" ({self._route})" if self._route else ""
        return f"{state} · {' · '.join(used)} · {self._seconds:.0f} s{route} · {self.about}"

    def rows(self) -> list[str]:
        """Return the lines of the current tree, followed by the notes."""
        return [*tree_rows(self._tree, []), *self._notes]

    def __str__(self) -> str:
        return "\n".join([self.head, *self.rows()])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        tree = escape(printable("\n".join(self.rows())))
        head = f'<div style="{_HEAD}">{html_text(printable(self.head))}</div>'
        html = f'{head}<pre style="{_TREE}">{tree}</pre>'
        return {"text/plain": str(self), "text/html": html}


def pluralize(number: int, name: str) -> str:
    """Return a count with its noun, such as `1 call` or `2 calls`."""
    return f"{number:,} {name}" + "s" * (number != 1)


_NOTES = {
    "adaptive.chosen": "{progress} ({by}: {why})",
    "adaptive.fell_back": "{progress} (the first choice stopped: {stop})",
    "deep_think.clamped": "{field}={given} is out of range: {used} is used",
    "deep_think.left_out": "only the first {used} of {given} approaches are used",
    "deep_think.truncated": "the reply of {what} is truncated",
    "deep_think.matched": "{why}",
    "deep_think.rescaled": "{why}",
    "joint.matched": "{why}",
    "think.nothing_gathered": "nothing was gathered",
    "research.window": "context window unknown: {assumed:,} tokens assumed (context_window sets it)",
    "research.cut": "{url} is truncated to its first {characters:,} characters",
}
"""Maps the name of a note to its text. The placeholders are fields of the note's data."""


def _note_texts(note: Note) -> Iterator[str]:
    data = note.data
    if note.name in _NOTES:
        yield _NOTES[note.name].format_map(data)
    elif note.name == "deep_think.assumed":
        alone = f"the reply of {data.get('what')} could not be parsed: its text is used as it is"
        yield "no synthesis: the best solution is used instead" if "branch" in data else alone
    elif note.name == "deep_think.shortened":
        text = " of ".join(filter(None, [data["text"], data["branch"]]))
        yield f"{data['what']} is shown {data['shown']:,} of {data['of']:,} characters of the {text}"
    elif note.name == "deep_think.iteration":
        confidence = "unknown" if data.get("assumed") else f"{data['confidence']:g} of 10"
        yield f"iteration {data['iteration']}: confidence {confidence}"
    elif note.name == "think.gathered":
        yield f"gathered: {data['results']} of {pluralize(data['tool_calls'], 'tool call')} returned results"
    elif note.name == "research.left_out":
        yield f"{pluralize(len(data['urls']), 'page')} not read: the limit is {data['max_pages']}"
    elif note.name == "research.failed":
        yield f"{data['url']} could not be read: {short(data['error'], _WIDTH)}"
