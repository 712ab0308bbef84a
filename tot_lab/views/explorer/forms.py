"""Forms: ipywidgets controls generated from the fields of a pydantic model.

A form has no knowledge of particular strategies. Types, ranges and descriptions come from the fields and
their docstrings. A validation error is shown beside its control. Input is never corrected silently: a number
out of range is kept and its error is shown.
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
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tot_lab.core.parameters import field_docs
from tot_lab.core.parts import InvalidSettings, Part, class_of
from tot_lab.core.registry import AXES, axes, built_in, offered
from tot_lab.strategies.baselines import ChainOfThought
from tot_lab.strategies.search import Stop
from tot_lab.views.figures.theme import themed

SHOWN = 10
"""Number of settings that a form shows initially. A button shows the others."""


@cache
def form_classes() -> tuple[type[Part], ...]:
    """Return the classes of all strategies and tree search components that a form offers.

    Components of other installed packages come last. Those that cannot be imported are left out.
    """
    found = [*built_in("strategies").values(), *axes(), Stop]
    for group in ("strategies", *AXES):
        for name in offered(group):
            with suppress(ValueError):
                found.append(class_of(name, Part))
    return tuple(dict.fromkeys(found))


LABEL = {"description_width": "12.5em"}
WIDTH = "22.5em"
BELOW = themed("0 0 var(--space-2) 13em")
"""Margin of the texts below the widgets of a form."""

_SHORTER = (
    ("Value error, ", ""),
    ("Input should be a valid", "must be a"),
    ("Input should be", "must be"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "more than"),
)


class Mistake(ValueError):
    """Raised if the controls of a form contain invalid input.

    Args:
        fields: Names of the invalid fields.
    """

    def __init__(self, fields: list[str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


def field_descriptions(kind: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of `kind` as one line, documented fields first."""
    docs = {name: " ".join(text.split()) for name, text in field_docs(kind).items()}
    return {**docs, **{name: "" for name in kind.model_fields if name not in docs}}


class Accepted(NamedTuple):
    """The values that a field accepts."""

    type: Any
    """The first type in the annotation of the field for which there is a control."""

    low: float | None = None
    high: float | None = None
    """The bounds. `None` means no bound. They do not state whether a value may be equal to a bound."""

    optional: bool = False
    """Whether `None` is accepted."""

    @property
    def range(self) -> str:
        """The bounds as text. Empty if there is no lower bound."""
        if self.low is None or self.high is None:
            return "" if self.low is None else f"{self.low:g} or more"
        return f"{self.low:g} to {self.high:g}"


def accepted_values(field: FieldInfo) -> Accepted | None:
    """Return the values that `field` accepts, or `None` if there is no control for its type."""
    members = list(_members(field.annotation, field.metadata))
    optional = any(kind is type(None) for kind, _ in members)
    for kind, metadata in members:
        if _is_simple(kind) or kinds_of(kind):
            low = [getattr(item, name) for item in metadata for name in ("ge", "gt") if hasattr(item, name)]
            high = [getattr(item, name) for item in metadata for name in ("le", "lt") if hasattr(item, name)]
            return Accepted(kind, max(low, default=None), min(high, default=None), optional)
    return None


def _members(annotation: Any, metadata: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each type of an annotation (the members of a union) with its metadata, such as bounds."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        for item in more:
            metadata = [*metadata, *(item.metadata if isinstance(item, FieldInfo) else [item])]
        yield from _members(inner, metadata)
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member, metadata)
    else:
        yield annotation, list(metadata)


def kinds_of(base: Any) -> list[type[BaseModel]]:
    """Return the classes that a control offers for a field of type `base`.

    For a `Part`, these are the subclasses in `form_classes()` whose fields all have initial values. For
    another pydantic model, it is the class `base` itself.
    """
    if not isinstance(base, type) or not issubclass(base, BaseModel):
        return []
    if not issubclass(base, Part):
        return [base]
    subclasses = [kind for kind in form_classes() if issubclass(kind, base)]
    return [kind for kind in subclasses if all(map(_has_initial_value, kind.model_fields.values()))]


def _has_initial_value(field: FieldInfo) -> bool:
    """Return whether a form has an initial value for the field.

    This is so if the field has a default, has a simple type, or accepts a part without required fields.
    """
    if not field.is_required():
        return True
    kinds = [kind for kind, _ in _members(field.annotation, field.metadata)]
    return any(_is_simple(kind) or _default_part(kind) is not None for kind in kinds)


def _is_simple(kind: Any) -> bool:
    return get_origin(kind) is Literal or kind in (bool, int, float, str)


def _default_part(base: Any) -> type[BaseModel] | None:
    """Return the subclass of `base` that a form selects initially, or `None` if no class qualifies.

    Only classes without required fields are considered. `ChainOfThought` is preferred.
    """
    subclasses = [
        kind
        for kind in form_classes()
        if isinstance(base, type)
        and issubclass(kind, base)
        and not any(field.is_required() for field in kind.model_fields.values())
    ]
    return ChainOfThought if ChainOfThought in subclasses else next(iter(subclasses), None)


class Control:
    """The control of one field: a widget, an error message, and a checkbox for `None` if that is accepted.

    Args:
        name: Name of the field.
        accepts: The values that the field accepts.
        meaning: Description of the field.
        start: Initial value.
        changed: Called after each change.
    """

    def __init__(
        self, name: str, accepts: Accepted, meaning: str, start: Any, changed: Callable[[], None]
    ) -> None:
        self.name = name
        self.accepts = accepts
        self.meaning = " ".join(filter(None, [meaning, accepts.range and f"({accepts.range})"]))
        self.widget = self._widget(start)
        self.widget.observe(lambda _: changed(), "value")
        self.none: Any = None
        if accepts.optional and not isinstance(self, Choice):
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
        self.error = ""
        self._error_box: Any = None

    def _widget(self, start: Any) -> Any:
        kind, low, high, _ = self.accepts
        common = {
            "description": self.name,
            "tooltip": self.meaning,
            "style": LABEL,
            "layout": {"width": WIDTH},
        }
        if get_origin(kind) is Literal:
            options = list(get_args(kind))
            common["layout"] = _layout_for(options)
            return ipywidgets.Dropdown(
                options=options, value=start if start in options else options[0], **common
            )
        if kind is bool:
            return ipywidgets.Checkbox(value=bool(start), **common)
        if kind is str:
            return ipywidgets.Textarea(value=start or "", rows=1, continuous_update=False, **common)
        # An optional number needs an initial value that is shown when the checkbox "none" is cleared.
        if kind is float:
            initial = 1.0 if high is None or low is None else (low + high) / 2
            start = initial if start is None else start
            return ipywidgets.FloatText(value=start, step=0.05, continuous_update=False, **common)
        initial = 0 if low is None else 100
        return ipywidgets.IntText(
            value=initial if start is None else start, continuous_update=False, **common
        )

    def value(self) -> Any:
        """Return the current value."""
        if self.none is not None and self.none.value:
            return None
        return self.widget.value

    def show_error(self, error: str) -> None:
        """Show `error` under the widget. An empty text removes the error."""
        self.error = error
        if self._error_box is None and error:
            self._error_box = ipywidgets.HTML(layout={"width": "100%", "margin": BELOW})
            self.cell.children = (*self.cell.children, self._error_box)
        if self._error_box is not None:
            self._error_box.value = red(error)
            self._error_box.layout.display = None if error else "none"

    def update(self) -> None:
        """Disable the widget if its checkbox `none` is checked."""
        if self.none is not None:
            self.widget.disabled = self.none.value


def _layout_for(options: Sequence[str]) -> dict[str, str]:
    """Return a layout that is wide enough for the label, the arrow and the longest option."""
    width = 15.5 + 0.57 * max(map(len, options))
    return {"width": f"{width:.1f}em", "min_width": WIDTH}


class Choice(Control):
    """The control of a field whose value is a pydantic model. `below` shows the form of the chosen class."""

    def __init__(
        self, name: str, accepts: Accepted, meaning: str, start: Any, changed: Callable[[], None]
    ) -> None:
        self.changed = changed
        self.below = ipywidgets.VBox()
        super().__init__(name, accepts, meaning, start, changed)

    def _widget(self, start: Any) -> Any:
        kinds = kinds_of(self.accepts.type)
        if start is None and not self.accepts.optional:
            start = (_default_part(self.accepts.type) or kinds[0])()
        if start is not None and type(start) not in kinds:
            kinds = [type(start), *kinds]
        self.start = start
        self.kinds = {kind.__name__: kind for kind in kinds}
        self.forms: dict[str, Form] = {}
        names = [*(["none"] if self.accepts.optional else []), *self.kinds]
        return ipywidgets.Dropdown(
            options=names,
            value="none" if start is None else type(start).__name__,
            description=self.name,
            tooltip=self.meaning,
            style=LABEL,
            layout=_layout_for(names),
        )

    @property
    def form(self) -> Form | None:
        """The form of the selected class, or `None` if "none" is selected. Forms of previously selected
        classes keep their values.
        """
        name = self.widget.value
        if name == "none":
            return None
        if name not in self.forms:
            kind = self.kinds[name]
            form = Form(kind, self.changed, self.start if type(self.start) is kind else None)
            about = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
            form.box.children = (ipywidgets.HTML(docstring_html(about)), *form.box.children)
            self.forms[name] = form
            self.below.children = (*self.below.children, form.box)
        return self.forms[name]

    def value(self) -> Any:
        form = self.form
        return None if form is None else form.value()

    def update(self) -> None:
        chosen = self.form
        for form in self.forms.values():
            form.box.layout.display = None if form is chosen else "none"
        self.below.layout.display = None if chosen else "none"
        if chosen is not None:
            chosen.update()


class Form:
    """The controls for the fields of a pydantic model.

    Args:
        kind: The class of the pydantic model.
        changed: Called after each change.
        start: Initial values. `None` means the defaults.
        names: Names of the fields that get a control. `None` means all fields.
    """

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
        for name, meaning in field_descriptions(kind).items():
            field = kind.model_fields[name]
            if names is not None and name not in names:
                continue
            accepts = accepted_values(field)
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            value = getattr(start, name, default)
            if accepts is None or (accepts.type is str and not isinstance(value, str | None)):
                only_code.append(name)
                if start is not None:
                    self._held[name] = value
                continue
            control = Choice if kinds_of(accepts.type) else Control
            self.controls.append(control(name, accepts, meaning, value, changed))
        self._error_box = ipywidgets.HTML(layout={"display": "none"})
        parts = [self._error_box, *_grid(self.controls[:SHOWN])]
        descriptions = "".join(
            f"<dt><code>{control.name}</code></dt><dd>{docstring_html(control.meaning)}</dd>"
            for control in self.controls
            if control.meaning
        )
        if only_code:
            descriptions += f"<dt>set in code only</dt><dd>{', '.join(map(escape, only_code))}</dd>"
        self._sections: list[tuple[Any, Any]] = []  # pairs of a toggle button and the box that it shows
        if len(self.controls) > SHOWN:
            more = self.controls[SHOWN:]
            self._sections.append((_toggle(f"more settings ({len(more)})"), ipywidgets.VBox(_grid(more))))
        if descriptions:
            self._sections.append((_toggle("descriptions"), ipywidgets.HTML(f"<dl>{descriptions}</dl>")))
        for button, _ in self._sections:
            button.observe(lambda _: changed(), "value")
        buttons = ipywidgets.HBox([button for button, _ in self._sections])
        self.box = ipywidgets.VBox([*parts, buttons, *(box for _, box in self._sections)])
        self.update()

    def value(self) -> BaseModel:
        """Return the model with the entered values, and show each error beside its control.

        Raises:
            Mistake: The input is invalid.
        """
        values: dict[str, Any] = {**self._held}
        nested: list[str] = []
        for control in self.controls:
            try:
                values[control.name] = control.value()
            except Mistake as mistake:
                nested += [f"{control.name}.{name}" for name in mistake.fields]
        errors: dict[str, str] = {}
        model = None
        try:
            model = self.kind(**values)
        except InvalidSettings as error:
            for problem in error.problems:
                name = str(problem["loc"][0]) if problem["loc"] else ""
                if name in values or not name:
                    errors.setdefault(name, shorten_message(problem["msg"]))
        for control in self.controls:
            control.show_error(errors.get(control.name, ""))
        self._error_box.value = red(errors.get("", ""))
        self._error_box.layout.display = None if "" in errors else "none"
        if model is None or nested:
            raise Mistake([*nested, *(name or self.kind.__name__ for name in errors)])
        return model

    def update(self) -> None:
        """Update all controls, and show the sections whose buttons are pressed."""
        for control in self.controls:
            control.update()
        for button, box in self._sections:
            box.layout.display = None if button.value else "none"


def shorten_message(message: str) -> str:
    """Shorten an error message of pydantic, such as "Input should be" to "must be"."""
    for long, short in _SHORTER:
        message = message.replace(long, short)
    return message


def red(text: str) -> str:
    """Return an error message as HTML. Screen readers announce it."""
    colour = themed("color: var(--jp-error-color1, var(--light-warning))")
    return f'<span role="alert" style="{colour}">{escape(text)}</span>' if text else ""


def docstring_html(text: str) -> str:
    """Return the text of a docstring as HTML."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _grid(controls: Sequence[Control]) -> list[Any]:
    """Arrange the controls in columns, and below them the indented forms of the `Choice` controls."""
    columns = "repeat(auto-fill, minmax(27em, 1fr))"
    grid = ipywidgets.GridBox(
        [control.cell for control in controls],
        layout={"grid_template_columns": columns, "align_items": "flex-start"},
    )
    below = [control.below for control in controls if isinstance(control, Choice)]
    for box in below:
        box.layout.margin = themed("0 0 0 var(--space-3)")
        box.layout.padding = themed("0 0 0 var(--space-4)")
        box.layout.border_left = themed("2px solid var(--jp-border-color2, var(--light-border))")
    return [grid, *below]


def _toggle(label: str) -> Any:
    return ipywidgets.ToggleButton(description=label, layout={"width": "auto"})


def close_inside(widget: Any) -> None:
    """Close the children, the style and the layout of `widget`, because `widget.close` does not."""
    for child in getattr(widget, "children", ()):
        close_inside(child)
        child.close()
    for part in (getattr(widget, "style", None), widget.layout):
        if part is not None:
            part.close()
