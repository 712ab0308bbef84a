"""Controls made from the fields of a part: what a person may set, and what is wrong with it.

A form knows no strategy. Types, ranges and meanings are those of the fields and of the
docstrings; what pydantic refuses is said beside its control, in short. Nothing is corrected in
silence: a number out of range stays as it was typed, and is said to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from html import escape
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import ipywidgets
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from tot_lab.core.parts import Part, class_of, field_docs
from tot_lab.core.registry import AXES, axes, built_in, offered
from tot_lab.strategies import ChainOfThought, Stop

SHOWN = 9
"""Settings of a form that are seen at once: the first that its docstring tells of."""


@cache
def exported() -> tuple[type[Part], ...]:
    """The strategies and the values of a tree search that there are, those of installed packages last. A
    package that cannot be used offers nothing here."""
    found = [*built_in("strategies").values(), *axes(), Stop]
    for group in ("strategies", *AXES):
        for name in offered(group):
            with suppress(ValueError):
                found.append(class_of(name, Part))
    return tuple(dict.fromkeys(found))


LABEL = {"description_width": "12.5em"}
WIDTH = "22.5em"
_SHORTER = (
    ("Value error, ", ""),
    ("Input should be a valid", "must be a"),
    ("Input should be", "must be"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "more than"),
)


class Mistake(ValueError):
    """What the controls hold cannot be used. `fields`: the names of those that are wrong."""

    def __init__(self, fields: list[str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


def meanings(kind: type[BaseModel]) -> dict[str, str]:
    """The attribute docstring of each field of `kind` in one line, the fields of its bases last."""
    docs = {name: " ".join(text.split()) for name, text in field_docs(kind).items()}
    return {**docs, **{name: "" for name in kind.model_fields if name not in docs}}


class Accepted(NamedTuple):
    """What a field takes: the first of its types that a control can be made for, its bounds, and
    whether None is one."""

    type: Any
    low: float | None = None
    high: float | None = None
    optional: bool = False

    @property
    def range(self) -> str:
        """Its bounds in words, "" without any."""
        if self.low is None or self.high is None:
            return "" if self.low is None else f"{self.low:g} or more"
        return f"{self.low:g} to {self.high:g}"


def accepted(field: FieldInfo) -> Accepted | None:
    """What `field` takes; `None` if no control can be made for it."""
    members = list(_members(field.annotation, field.metadata))
    optional = any(kind is type(None) for kind, _ in members)
    for kind, metadata in members:
        if _is_simple(kind) or kinds_of(kind):
            low = [getattr(one, name) for one in metadata for name in ("ge", "gt") if hasattr(one, name)]
            high = [getattr(one, name) for one in metadata for name in ("le", "lt") if hasattr(one, name)]
            return Accepted(kind, max(low, default=None), min(high, default=None), optional)
    return None


def _members(annotation: Any, metadata: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        for one in more:
            metadata = [*metadata, *(one.metadata if isinstance(one, FieldInfo) else [one])]
        yield from _members(inner, metadata)
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member, metadata)
    else:
        yield annotation, list(metadata)


def kinds_of(base: Any) -> list[type[BaseModel]]:
    """What may stand where a `base` is asked for: of parts the exported ones that a form can begin
    with, of other models the model itself."""
    if not isinstance(base, type) or not issubclass(base, BaseModel):
        return []
    if not issubclass(base, Part):
        return [base]
    fitting = [kind for kind in exported() if issubclass(kind, base)]
    return [kind for kind in fitting if all(map(_has_a_start, kind.model_fields.values()))]


def _has_a_start(field: FieldInfo) -> bool:
    """Whether there is a value to begin with: its default, or one that a control or a part without
    needs of its own has."""
    if not field.is_required():
        return True
    kinds = [kind for kind, _ in _members(field.annotation, field.metadata)]
    return any(_is_simple(kind) or _ready(kind) is not None for kind in kinds)


def _is_simple(kind: Any) -> bool:
    return get_origin(kind) is Literal or kind in (bool, int, float, str)


def _ready(base: Any) -> type[BaseModel] | None:
    """The exported part that stands for a `base` nobody has chosen: for a strategy a chain of thought,
    which self-consistency tries too."""
    fitting = [
        kind
        for kind in exported()
        if isinstance(base, type)
        and issubclass(kind, base)
        and not any(field.is_required() for field in kind.model_fields.values())
    ]
    return ChainOfThought if ChainOfThought in fitting else next(iter(fitting), None)


class Control:
    """One field: its widget, a box to tick where it may be none, and what is wrong with it.

    cell: what a form shows of it."""

    def __init__(
        self, name: str, takes: Accepted, meaning: str, start: Any, changed: Callable[[], None]
    ) -> None:
        self.name = name
        self.takes = takes
        self.meaning = " ".join(filter(None, [meaning, takes.range and f"({takes.range})"]))
        self.widget = self._widget(start)
        self.widget.observe(lambda _: changed(), "value")
        self.none: Any = None
        if takes.optional and not isinstance(self, Choice):
            self.none = ipywidgets.Checkbox(
                description="none",
                value=start is None,
                indent=False,
                tooltip=f"{name}: none",
                layout={"width": "auto"},
            )
            self.none.observe(lambda _: changed(), "value")
        row = [self.widget, self.none] if self.none else [self.widget]
        self.cell = ipywidgets.HBox(row, layout={"flex_flow": "row wrap", "align_items": "center"})
        self.wrong = ""
        """What is wrong with what it holds."""
        self._wrong: Any = None

    def _widget(self, start: Any) -> Any:
        kind, low, high, _ = self.takes
        named = {
            "description": self.name,
            "tooltip": self.meaning,
            "style": LABEL,
            "layout": {"width": WIDTH},
        }
        if get_origin(kind) is Literal:
            options = list(get_args(kind))
            named["layout"] = _wide_enough(options)
            return ipywidgets.Dropdown(
                options=options, value=start if start in options else options[0], **named
            )
        if kind is bool:
            return ipywidgets.Checkbox(value=bool(start), **named)
        if kind is str:
            return ipywidgets.Textarea(value=start or "", rows=1, continuous_update=False, **named)
        # A number that is none at first, and is then asked for, has to begin somewhere.
        if kind is float:
            begin = 1.0 if high is None or low is None else (low + high) / 2
            start = begin if start is None else start
            return ipywidgets.FloatText(value=start, step=0.05, continuous_update=False, **named)
        begin = 0 if low is None else 100
        return ipywidgets.IntText(value=begin if start is None else start, continuous_update=False, **named)

    def value(self) -> Any:
        """What the person has set."""
        if self.none is not None and self.none.value:
            return None
        return self.widget.value

    def say(self, wrong: str) -> None:
        """Say what is wrong with it, "" for nothing."""
        self.wrong = wrong
        if self._wrong is None and wrong:
            self._wrong = ipywidgets.HTML(layout={"width": "100%", "margin": "0 0 4px 13em"})
            self.cell.children = (*self.cell.children, self._wrong)
        if self._wrong is not None:
            self._wrong.value = red(wrong)
            self._wrong.layout.display = None if wrong else "none"

    def settle(self) -> None:
        """Make what is seen fit what is set."""
        if self.none is not None:
            self.widget.disabled = self.none.value


def _wide_enough(options: Sequence[str]) -> dict[str, str]:
    """For the label and the arrow, and a letter's usual width."""
    needed = 15.5 + 0.57 * max(map(len, options))
    return {"width": f"{needed:.1f}em", "min_width": WIDTH}


class Choice(Control):
    """One of several kinds of part, and the form of the one that is chosen, which stands `below`."""

    def __init__(
        self, name: str, takes: Accepted, meaning: str, start: Any, changed: Callable[[], None]
    ) -> None:
        self.changed = changed
        self.below = ipywidgets.VBox()
        super().__init__(name, takes, meaning, start, changed)

    def _widget(self, start: Any) -> Any:
        kinds = kinds_of(self.takes.type)
        if start is None and not self.takes.optional:
            start = (_ready(self.takes.type) or kinds[0])()
        if start is not None and type(start) not in kinds:
            kinds = [type(start), *kinds]
        self.start = start
        self.kinds = {kind.__name__: kind for kind in kinds}
        self.forms: dict[str, Form] = {}
        names = [*(["none"] if self.takes.optional else []), *self.kinds]
        return ipywidgets.Dropdown(
            options=names,
            value="none" if start is None else type(start).__name__,
            description=self.name,
            tooltip=self.meaning,
            style=LABEL,
            layout=_wide_enough(names),
        )

    @property
    def form(self) -> Form | None:
        """The form of what is chosen. Those of earlier choices are kept, with what was set there."""
        name = self.widget.value
        if name == "none":
            return None
        if name not in self.forms:
            kind = self.kinds[name]
            form = Form(kind, self.changed, self.start if type(self.start) is kind else None)
            about = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
            form.box.children = (ipywidgets.HTML(prose(about)), *form.box.children)
            self.forms[name] = form
            self.below.children = (*self.below.children, form.box)
        return self.forms[name]

    def value(self) -> Any:
        form = self.form
        return None if form is None else form.made()

    def settle(self) -> None:
        chosen = self.form
        for form in self.forms.values():
            form.box.layout.display = None if form is chosen else "none"
        self.below.layout.display = None if chosen else "none"
        if chosen is not None:
            chosen.settle()


class Form:
    """Controls for the fields of a model, those that matter first, and the value that they make.

    start: what the controls show at first, `None` means the defaults. names: the fields, `None` means all."""

    def __init__(
        self,
        kind: type[BaseModel],
        changed: Callable[[], None],
        start: BaseModel | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.kind = kind
        self.controls: list[Control] = []
        self._held: dict[str, Any] = {}
        only_code = []
        for name, meaning in meanings(kind).items():
            field = kind.model_fields[name]
            if names is not None and name not in names:
                continue
            takes = accepted(field)
            first = None if field.is_required() else field.get_default(call_default_factory=True)
            value = getattr(start, name, first)
            if takes is None or (takes.type is str and not isinstance(value, str | None)):
                only_code.append(name)
                if start is not None:
                    self._held[name] = value
                continue
            made = Choice if kinds_of(takes.type) else Control
            self.controls.append(made(name, takes, meaning, value, changed))
        self._wrong = ipywidgets.HTML(layout={"display": "none"})
        parts = [self._wrong, *_laid_out(self.controls[:SHOWN])]
        said = "".join(
            f"<dt><code>{control.name}</code></dt><dd>{prose(control.meaning)}</dd>"
            for control in self.controls
            if control.meaning
        )
        if only_code:
            said += f"<dt>set in code only</dt><dd>{', '.join(map(escape, only_code))}</dd>"
        self._opened: list[tuple[Any, Any]] = []  # a button, and what it shows and hides
        if len(self.controls) > SHOWN:
            more = self.controls[SHOWN:]
            self._opened.append((_opener(f"more settings ({len(more)})"), ipywidgets.VBox(_laid_out(more))))
        if said:
            self._opened.append((_opener("what they mean"), ipywidgets.HTML(f"<dl>{said}</dl>")))
        for button, _ in self._opened:
            button.observe(lambda _: changed(), "value")
        buttons = ipywidgets.HBox([button for button, _ in self._opened])
        self.box = ipywidgets.VBox([*parts, buttons, *(box for _, box in self._opened)])
        self.settle()

    def made(self) -> BaseModel:
        """The value. Raises `Mistake` when the controls hold what it does not take; each mistake is
        said beside its control."""
        values: dict[str, Any] = {**self._held}
        inside: list[str] = []
        for control in self.controls:
            try:
                values[control.name] = control.value()
            except Mistake as mistake:
                inside += [f"{control.name}.{name}" for name in mistake.fields]
        wrong: dict[str, str] = {}
        made = None
        try:
            made = self.kind(**values)
        except ValidationError as error:
            for problem in error.errors():
                name = str(problem["loc"][0]) if problem["loc"] else ""
                if name in values or not name:
                    wrong.setdefault(name, shortened(problem["msg"]))
        for control in self.controls:
            control.say(wrong.get(control.name, ""))
        self._wrong.value = red(wrong.get("", ""))
        self._wrong.layout.display = None if "" in wrong else "none"
        if made is None or inside:
            raise Mistake([*inside, *(name or self.kind.__name__ for name in wrong)])
        return made

    def settle(self) -> None:
        """Make what is seen fit what is set."""
        for control in self.controls:
            control.settle()
        for button, box in self._opened:
            box.layout.display = None if button.value else "none"


def shortened(message: str) -> str:
    """What pydantic says, in fewer words."""
    for long, short in _SHORTER:
        message = message.replace(long, short)
    return message


def red(text: str) -> str:
    """What is wrong, as HTML; also said to those who hear the page."""
    colour = "color: var(--jp-error-color1, #b00020)"
    return f'<span role="alert" style="{colour}">{escape(text)}</span>' if text else ""


def prose(text: str) -> str:
    """A docstring's sentences as HTML."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _laid_out(controls: Sequence[Control]) -> list[Any]:
    """The controls in as many columns as there is room for, then what stands under them, set in."""
    columns = "repeat(auto-fill, minmax(27em, 1fr))"
    grid = ipywidgets.GridBox(
        [control.cell for control in controls],
        layout={"grid_template_columns": columns, "align_items": "flex-start"},
    )
    below = [control.below for control in controls if isinstance(control, Choice)]
    for box in below:
        box.layout.margin, box.layout.padding = "0 0 0 6px", "0 0 0 10px"
        box.layout.border_left = "2px solid var(--jp-border-color2, #ccc)"
    return [grid, *below]


def _opener(label: str) -> Any:
    return ipywidgets.ToggleButton(description=label, layout={"width": "auto"})


def close_inside(widget: Any) -> None:
    """Close all that is in `widget`, and how it looks: each is a model of its own in the browser."""
    for child in getattr(widget, "children", ()):
        close_inside(child)
        child.close()
    for part in (getattr(widget, "style", None), widget.layout):
        if part is not None:
            part.close()
