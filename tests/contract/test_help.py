"""`?` on a settings class shows its signature and each field with its meaning, default and range."""

import inspect
import pickle
import pydoc

import cloudpickle
import pytest
from IPython.core.oinspect import Inspector
from pydantic import BaseModel, Field

import tot_lab as tl
from tot_lab.core.registry import import_parts
from tot_lab.strategies.plans import Plan, PlanStep

OF_VALIDATORS = ("FieldInfo", "Annotated", "typing.", "Validator", "Metadata", "<factory>", "<class")
RECORDS = {Plan, PlanStep}  # made by runs


def settings_classes():
    import_parts()
    spaces = [tl, tl.tools, tl.domains, *tl._NAMESPACES]
    values = [getattr(space, name) for space in spaces for name in dir(space)]
    found = {value for value in values if isinstance(value, type) and issubclass(value, BaseModel)} - RECORDS
    assert {tl.TreeOfThoughts, tl.Budget, tl.Task, tl.Settings, tl.Role, tl.tools.Python, tl.LiteLLM} <= found
    assert len(found) > 100
    return sorted(found, key=lambda one: one.__name__)


def shown(value, name="it"):
    return Inspector(theme_name="nocolor")._get_info(value, name)["text/plain"]


def paragraphs(text):
    return text.split("\n\n")


@pytest.mark.parametrize("kind", settings_classes(), ids=lambda one: one.__name__)
@pytest.mark.slow
def test_help_shows_each_field_of_a_settings_class(kind):
    text = shown(kind)
    assert "validating input data" not in text
    assert not [word for word in OF_VALIDATORS if word in text]
    assert {*inspect.signature(kind).parameters} == {*kind.model_fields}
    flat = " ".join(text.split())
    for name, field in kind.model_fields.items():
        default = "required" if field.is_required() else "default "
        start = flat.index(f" {name} (")
        assert default in flat[start : flat.index("): ", start)], f"{kind.__name__}.{name} has no docstring"


class Chooser(tl.Strategy):
    """Chooses one.

    More about it.

    References:
        Nobody, 2020.
    """

    share: float = Field(0.5, gt=0, le=1)
    """What it takes,
    in two lines.
    """

    low: int | None = Field(None, ge=3)
    """The least."""

    word: str
    """A word."""

    limits: tl.Budget = tl.Budget(calls=2)
    """Limits."""

    names: list[str] = Field(default_factory=lambda: ["a"])
    """Names."""

    kind = ""

    def think(self, task, at="0"):
        raise NotImplementedError


class Undocumented(Chooser):
    kind = ""
    extra: bool = False


def test_help_has_meaning_default_and_range_before_the_references():
    assert inspect.getdoc(Chooser).startswith("Chooses one.\n\nMore about it.\n\nParameters:\n")
    assert inspect.getdoc(Chooser).endswith(".\n\nReferences:\n    Nobody, 2020.")
    rows = paragraphs(inspect.getdoc(Chooser))[2]
    assert "    share (float in (0, 1], default 0.5): What it takes, in two lines.\n" in rows
    assert "    low (int >= 3 | None, default None): The least.\n" in rows
    assert "    word (str, required): A word.\n" in rows
    assert "    limits (Budget, default Budget(calls=2)): Limits.\n" in rows
    assert "    names (list[str], default ['a']): Names." in rows
    assert str(inspect.signature(Chooser)).endswith(
        "share: float = 0.5, low: int | None = None, word: str, "
        "limits: Budget = Budget(calls=2), names: list[str] = ['a']) -> None"
    )


def test_a_class_without_a_docstring_shows_its_own_fields_below_that_of_its_base():
    text = inspect.getdoc(Undocumented)
    assert text.startswith("Chooses one.")
    assert text.count("Parameters:") == 1
    assert "    extra (bool, default False)\n" in text


def test_an_object_and_a_copy_of_its_class_show_the_same():
    assert inspect.getdoc(Chooser(word="a")) == inspect.getdoc(Chooser)
    copy = pickle.loads(cloudpickle.dumps(_made_here()))
    assert inspect.getdoc(copy).count("Parameters:") == 1
    assert "    own (int, default 1)" in inspect.getdoc(copy)


def _made_here():
    class Here(tl.Strategy):
        """Made in a function."""

        kind = ""
        own: int = 1

    return Here


@pytest.mark.parametrize("kind", [tl.BeamSearch, tl.Task, Chooser, Undocumented])
def test_the_built_in_help_shows_the_same(kind):
    text = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    flat = " ".join(text.replace("|", " ").split())
    assert " ".join(inspect.getdoc(kind).replace("|", " ").split()) in flat


def test_help_on_the_lab_shows_its_settings():
    text = shown(tl.Lab)
    assert "model: str | Model | Endpoint," in text
    assert "mode: Mode = 'auto'" in text
    assert "    timeout (float | None, default 120.0): Seconds" in text


def test_help_on_the_package_is_for_users():
    text = shown(tl)
    assert 'tl.Lab("tiny/numbers")' in text
    assert "docs/README.md" in text
    assert not [word for word in ("_NAMES", "Rooms", "stub", "Recorder") if word in text]
    assert "Init docstring" not in shown(tl.stats)
