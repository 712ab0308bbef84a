"""The settings of a lab: declared once, and seen wherever a user looks for them."""

import inspect
import pydoc
from dataclasses import FrozenInstanceError, dataclass, fields
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel
from support import TASK, wait

import tot_lab as tl
from tot_lab.core.parameters import field_docs, takes_fields_of
from tot_lab.lab.lab import LabSettings
from tot_lab.runtime.gateway import Gateway
from tot_lab.runtime.runner import Runner
from tot_lab.runtime.settings import RunnerSettings

NAMES = [field.name for field in fields(LabSettings)]


def test_the_signature_has_every_setting_with_its_type_and_default():
    parameters = inspect.signature(tl.Lab).parameters
    assert list(parameters) == NAMES
    for field in fields(LabSettings):
        parameter = parameters[field.name]
        assert parameter.annotation == field.type
        assert (parameter.kind is parameter.KEYWORD_ONLY) == (field.name != "model")
        assert (parameter.default is parameter.empty) == (field.name == "model")
    assert {"model", "roles", "runs", "cache", "spend", "tools", "plans", "memory"} <= parameters.keys()
    assert parameters["timeout"].default == 120.0
    assert parameters["runs"].default == "runs"


def test_help_describes_every_setting():
    shown = pydoc.plain(pydoc.render_doc(tl.Lab))
    docs = field_docs(LabSettings)
    assert docs.keys() == {*NAMES}
    shown = " ".join(shown.replace("\n |", "\n").partition("Parameters:")[2].split())
    rows = [(f"{name} (", f": {docs[name].split()[0]}") for name in NAMES]
    places = [shown.index(meaning, shown.index(start)) for start, meaning in rows]
    assert places == sorted(places)
    assert "Seconds that one call may take after it was sent." in shown


@pytest.mark.nightly
@pytest.mark.parametrize("uses_jedi", [False, True])
def test_a_kernel_completes_the_settings(uses_jedi):
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        setup = f"import tot_lab as tl; get_ipython().Completer.use_jedi = {uses_jedi}"
        assert client.execute_interactive(setup, timeout=60)["content"]["status"] == "ok"

        def completed(code):
            reply = client.complete(code, len(code), reply=True, timeout=60)
            return {match.rstrip("=") for match in reply["content"]["matches"] if match.endswith("=")}

        assert completed("lab = tl.Lab('sim/general', ") | {"model"} == set(NAMES)
        assert completed("tl.Lab('sim/general', mode='off', ti") == {"timeout"}
        assert completed("tl.Lab('sim/general', mem") == {"memory"}
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    ("args", "given", "error"),
    [
        ((), {}, r"Lab.__init__\(\) missing a required argument: 'model'"),
        (("sim/general", "runs"), {}, r"Lab.__init__\(\) too many positional arguments"),
        (("sim/general",), {"modus": "off"}, r"Lab.__init__\(\) got an unexpected keyword argument 'modus'"),
    ],
)
def test_an_error_of_the_arguments_names_the_lab(args, given, error):
    with pytest.raises(TypeError, match=error):
        tl.Lab(*args, **given)


def test_what_cannot_change_cannot_be_assigned(tmp_path):
    lab = tl.Lab("sim/general", runs=None, plans=tmp_path / "plans.db")
    for name in ("timeout", "plans", "model", "spent", "gateway"):
        with pytest.raises(AttributeError):
            setattr(lab, name, None)
    for name in ("mode", "roles", "model", "settings", "given_cache"):
        with pytest.raises(AttributeError):
            setattr(lab.gateway, name, None)
    with pytest.raises(AttributeError):
        lab.runner.timeout = 1.0
    with pytest.raises(FrozenInstanceError):
        lab.runner.settings.timeout = 1.0


def test_a_runner_and_a_gateway_take_the_settings_whole():
    settings = RunnerSettings("sim/general", roles={"evaluate": {"temperature": 0.5}}, strategy="react")
    gateway = Gateway(settings)
    assert gateway.model == tl.sim.SimGeneral()
    assert gateway.roles == {"evaluate": tl.Role(temperature=0.5)}
    assert (gateway.mode, gateway.given_cache) == ("auto", None)
    assert Gateway(RunnerSettings("sim/general", mode="off", cache="folder")).given_cache is None
    runner = Runner(settings)
    assert runner.strategy == tl.ReAct()
    assert (runner.timeout, runner.settings.timeout) == (120.0, 120.0)


def test_a_replaying_lab_has_the_same_settings(tmp_path):
    lab = tl.Lab(
        "sim/general",
        runs=tmp_path / "runs",
        plans=tmp_path / "plans.db",
        memory=tmp_path / "memory.db",
        tools=["calculator"],
        tool_context={"user": "me"},
        strategy="one_answer",
        system_prompt="Be brief.",
        spend=1.0,
        timeout=3.0,
        agent_id="a",
    )
    again = lab.replaying()
    assert (again.gateway.mode, again.gateway.spend_limiter.cap, again.memory) == ("replay", None, None)
    assert (again.runs, again.plans, again.timeout) == (lab.runs, lab.plans, 3.0)
    changed = {"mode", "spend"}
    assert {name for name in NAMES if name not in changed} == {
        name
        for name in NAMES
        if getattr(again.runner.settings, name) == getattr(lab.runner.settings, name) and name not in changed
    }
    first = wait(lab.run(TASK))
    assert wait(again.run(TASK)).events == first.events


def test_a_worker_receives_no_file_of_the_lab_and_whether_it_has_a_cache(tmp_path):
    lab = tl.Lab(
        "sim/general", runs=tmp_path, plans=tmp_path / "p.db", memory=tmp_path / "m.db", cache=tmp_path / "c"
    )
    sent = lab.runner.settings.portable()
    assert (sent.spend, sent.runs, sent.plans, sent.memory) == (None, None, None, None)
    assert sent.cache == Path()
    assert tl.Lab("sim/general", mode="off", cache=None).runner.settings.portable().cache is None


@dataclass(frozen=True)
class Size:
    """The size of a box."""

    width: int
    """Its width in cm."""

    height: int = 2
    """Its height in cm, which
    is over two lines here.
    """

    unnamed: int = 0


@dataclass(frozen=True)
class Box(Size):
    """A box of a colour."""

    colour: str = "red"
    """Its colour."""


class Made:
    """A thing made of a box."""

    @takes_fields_of(Box)
    def __init__(self, box: Box) -> None:
        """Make it."""
        self.box = box


def test_a_constructor_takes_the_fields_of_a_class_and_its_bases():
    assert Made(1, colour="blue").box == Box(1, 2, 0, "blue")
    shown = "(width: int, height: int = 2, unnamed: int = 0, colour: str = 'red') -> None"
    assert str(inspect.signature(Made)) == shown
    assert inspect.getdoc(Made.__init__).splitlines() == [
        "Make it.",
        "",
        "Parameters:",
        "    width (int, required): Its width in cm.",
        "    height (int, default 2): Its height in cm, which is over two lines here.",
        "    unnamed (int, default 0)",
        "    colour (str, default 'red'): Its colour.",
    ]
