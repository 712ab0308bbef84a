"""Tools: what a function tells a model, that whatever a tool does its call is answered, that what a policy
denies is not done, and that nothing gets out of the folder, the process or the network it was given."""

import asyncio
import enum
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, ValidationError
from support import Scripted, wait

import tot_lab as tl
from tot_lab.core.calls import Message
from tot_lab.core.parts import part_of
from tot_lab.core.tools import ToolSpec, tool_call
from tot_lab.explorer.cell import cell
from tot_lab.frames import usage_by_node
from tot_lab.models.keys import key_of, request_of
from tot_lab.scrubbing import scrubbed
from tot_lab.tools import NotReplayed
from tot_lab.tools.calculator import shown, value_of
from tot_lab.tools.toolbox import Toolbox
from tot_lab.tools.web import is_public

TASK = tl.general("What is there to do?")


class Errand(tl.Strategy):
    """Calls tools one after another, and asks the model once. 1 call.

    calls: of each tool its name and the arguments as JSON. at_once: all of them together.
    """

    calls: list[list[str]]
    at_once: bool = False

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        asked = [tool_call(at, name, arguments, draw=k) for k, (name, arguments) in enumerate(self.calls)]
        replies = yield from tl.every(
            [tl.ask(call) for call in asked], at_most=0, at_once=None if self.at_once else 1
        )
        yield from tl.ask(tl.Call(at, "answer", (Message("user", "?"),)))
        return tl.Answer("\n".join(reply.error or reply.text for reply in replies), "answered", at)

    def max_calls(self, task):
        return 1


def errand(*calls, **more):
    written = [[name, given if isinstance(given, str) else json.dumps(given)] for name, given in calls]
    return Errand(calls=written, **more)


def lab_with(*tools, model=None, **more):
    known = "sim/general" if "cache" in more else Scripted()  # a function of one's own is not cached
    return tl.Lab(model or known, **{"runs": None, "tools": tools, **more})


def results(lab, *calls, **more):
    """What each call came to: its text, or its error after a cross."""
    run = wait(lab.run(errand(*calls, **more), TASK))
    assert run.stopped == "answered"
    assert run.usage.calls == 1  # a tool is no model call
    replies = [line.e for line in run.lines if isinstance(line.e, tl.Reply) and line.e.tool]
    return [f"✗ {reply.error}" if reply.error else reply.text for reply in replies]


def result(tool, arguments, **more):
    return results(lab_with(tool, **more), (tool.name, arguments))[0]


def changed(tool, **settings):
    return tool.model_copy(update=settings)


def quick(function=None, **more):
    """A tool that is not waited for long."""
    more = {"timeout": 0.2, "backoff": 0.0, **more}
    return tl.tool(**more) if function is None else tl.tool(**more)(function)


# What a function tells a model.


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


class Place(BaseModel):
    town: str
    at: tuple[float, float] | None = None


@tl.tool(effects=("network",))
def look_up(
    place: Place,
    unit: Unit = Unit.METRE,
    kind: Literal["peak", "lake"] = "peak",
    most: Annotated[int, Field(ge=1, le=9, description="at most")] = 3,
    tags: list[str] | None = None,
    schema: bool = False,
    tool_context: dict | None = None,
) -> str:
    """Looks a place up.

    In an atlas."""
    return f"{place.town} {unit.value} {kind} {most} {tags} {schema} {(tool_context or {}).get('atlas')}"


def test_a_function_gives_its_schema():
    assert look_up.name == "look-up"
    assert look_up.description == "Looks a place up.\n\nIn an atlas."
    assert look_up.spec.effects == ("network",)
    properties = look_up.parameters["properties"]
    assert list(properties) == ["place", "unit", "kind", "most", "tags", "schema"]
    assert look_up.parameters["required"] == ["place"]
    assert properties["most"] == {
        "default": 3,
        "description": "at most",
        "maximum": 9,
        "minimum": 1,
        "type": "integer",
    }
    assert properties["kind"]["enum"] == ["peak", "lake"]
    assert properties["tags"]["anyOf"] == [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}]
    assert look_up.parameters["$defs"]["Place"]["required"] == ["town"]
    assert "argument_" not in json.dumps(look_up.parameters)
    assert part_of(look_up.settings()).spec == look_up.spec  # from a file, without the function


def test_arguments_are_checked_and_read_as_json_means_them():
    lab = lab_with(look_up, tool_context={"atlas": "Times"})
    place = {"town": "Bern", "at": [46.9, 7.4]}
    told = results(
        lab,
        ("look-up", {"place": place, "unit": "ft", "most": "5", "tags": ["a"], "schema": True}),
        ("look-up", {"place": {"town": 7}, "most": 10, "colour": "red"}),
        ("look-up", {}),
        ("look-up", "[1, 2]"),
        ("look-up", "{"),
        ("look-up", "[" * 5_000),
        ("look-up", ""),
        ("no-such", {}),
    )
    assert told[0] == "Bern ft peak 5 ['a'] True Times"
    assert told[1].startswith("✗ the arguments do not fit: ")
    for part in ("place.town: Input should be a valid string", "most: Input should be less", "colour: Extra"):
        assert part in told[1]
    assert told[2] == told[6] == "✗ the arguments do not fit: place: Field required"
    assert told[3] == "✗ the arguments must be a JSON object, not [1, 2]"
    assert told[4].startswith("✗ the arguments are no JSON: ")
    assert told[5].startswith("✗ the arguments are no JSON: ")
    assert told[7] == "✗ LookupError: there is no tool 'no-such'; there are look-up"


class Counter:
    def __init__(self):
        self.count = 0

    def up(self, by: int = 1) -> int:
        """Counts."""
        self.count += by
        return self.count

    async def __call__(self, by: int) -> dict:
        await asyncio.sleep(0)
        return {"by": by}


def test_methods_objects_partials_lambdas_and_async_functions_are_tools():
    counter = Counter()
    assert results(lab_with(counter.up), ("up", {"by": 3}), ("up", {})) == ["3", "4"]
    assert result(tl.tool(name="counter")(counter), {"by": 2}) == '{"by":2}'
    assert result(tl.tool(name="five")(partial(counter.up, by=5)), {}) == "9"
    assert result(tl.tool(lambda: "hello"), {}) == "hello"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x, r"the parameter 'x' has no type"),
        (lambda *many: many, r"takes arguments by name, and \*many is none"),
        (lambda **named: named, r"takes arguments by name, and \*\*named is none"),
    ],
)
def test_what_no_model_can_give_is_refused_at_once(function, why):
    with pytest.raises(TypeError, match=why):
        tl.tool(function)


def test_a_default_written_as_a_field_is_its_value():
    @tl.tool
    def many(most: int = Field(default=3, ge=1), tags: list[str] = Field(default_factory=list)) -> str:  # noqa: B008
        tags.append("x")
        return f"{most} {tags}"

    assert many.parameters["properties"]["most"] == {"default": 3, "minimum": 1, "type": "integer"}
    assert results(lab_with(many), ("many", {}), ("many", {"most": 0}), ("many", {}))[::2] == ["3 ['x']"] * 2


def test_a_function_that_yields_is_no_tool():
    def numbers():
        yield 1

    async def later():
        yield 1

    for function in (numbers, later):
        with pytest.raises(TypeError, match=f"{function.__name__}: a tool returns its result"):
            tl.tool(function)


def test_types_that_json_cannot_hold_or_nobody_knows_are_refused():
    class Local:
        pass

    def held(thing: Local) -> None: ...

    def late(thing: "Unknown") -> None: ...  # noqa: F821

    with pytest.raises(TypeError, match="held: its arguments cannot be told to a model"):
        tl.tool(held)
    with pytest.raises(TypeError, match="late: name 'Unknown' is not defined"):
        tl.tool(late)
    with pytest.raises(ValueError, match="did you mean 'pure'"):
        tl.tool(pur=True)(search)


def test_a_tool_that_was_defined_in_a_notebook_has_its_types():
    code = (
        "from __future__ import annotations\n"
        "import tot_lab as tl\n"
        "from typing import Literal\n"
        "class Mine: pass\n"
        "@tl.tool\n"
        "def double(x: int, how: Literal['a', 'b'] = 'a') -> int:\n    'Twice.'\n    return 2 * x\n"
        "print(double.parameters['properties']['how']['enum'], double.function.told_by_source)"
    )
    shell = (
        f"from IPython.core.interactiveshell import InteractiveShell as S; S.instance().run_cell({code!r})"
    )
    out = subprocess.run([sys.executable, "-c", shell], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['a', 'b'] True"


def test_two_tools_of_one_name_and_one_from_a_file_are_refused():
    with pytest.raises(ValueError, match="two are named 'look-up'"):
        lab_with(look_up, look_up)
    with pytest.raises(LookupError, match=r"the tool 'look-up' came from a file.*test_tools\.look_up"):
        lab_with(part_of(look_up.settings()))


# Whatever a tool does, its call is answered.


@quick(retries=0)
def hangs() -> str:
    time.sleep(2)
    return "too late"


@quick(retries=0)
async def waits() -> str:
    await asyncio.sleep(60)
    return "too late"


@quick
def raises(what: str) -> str:
    raise {"exit": SystemExit(3), "stop": StopIteration(1), "late": TimeoutError("theirs")}.get(
        what, RuntimeError(what)
    )


@quick
async def raises_later(what: str) -> str:
    raise {"exit": SystemExit(3), "stop": KeyError(1), "cancel": asyncio.CancelledError()}[what]


@quick(timeout=20)
def huge() -> str:
    return "x" * 100_000_000


@quick
def odd() -> object:
    return {"set": {1}, "place": Place(town="Bern"), "thing": Path("a"), (1, 2): 3}


@quick
def fine() -> str:
    return "fine"


def test_a_tool_that_misbehaves_is_contained_and_the_run_goes_on():
    lab = lab_with(hangs, waits, raises, raises_later, huge, odd, fine)
    calls = [
        ("hangs", {}),
        ("waits", {}),
        ("raises", {"what": "no luck"}),
        ("raises", {"what": "exit"}),
        ("raises", {"what": "stop"}),
        ("raises", {"what": "late"}),
        ("raises-later", {"what": "exit"}),
        ("raises-later", {"what": "cancel"}),
        ("huge", {}),
        ("odd", {}),
        ("fine", {}),
    ]
    began = time.monotonic()
    told = results(lab, *calls)
    assert time.monotonic() - began < 10
    assert told[:8] == [
        "✗ no result within 0.2 s",
        "✗ no result within 0.2 s",
        "✗ RuntimeError: no luck",
        "✗ RuntimeError: SystemExit(3)",
        "✗ RuntimeError: StopIteration(1)",
        "✗ TimeoutError: theirs",
        "✗ RuntimeError: SystemExit(3)",
        "✗ CancelledError: ",
    ]
    assert len(told[8]) < 20_100
    assert told[8].endswith("\n… (99,980,000 more characters were cut)")
    assert told[9] == '{"set":[1],"place":{"town":"Bern","at":null},"thing":"a","1,2":3}'
    assert told[10] == "fine"
    frame = lab.last.tools_df()
    assert list(frame.tool) == [name for name, _ in calls]
    assert list(frame.tries) == [1, 1, 2, 2, 2, 2, 2, 1, 1, 1, 1]
    assert frame.error.isna().tolist() == [False] * 8 + [True] * 3
    assert lab.last.diagnostics["failed_tools"] == 8
    assert {use.calls for use in usage_by_node(lab.last).values()} == {1}


class Unsayable(Exception):
    def __str__(self):
        raise self


class Unwritable:
    def __repr__(self):
        raise KeyError("no")


class Outcome(BaseException):
    """As pytest's own are."""


@quick(retries=0)
async def raises_what_is_no_exception(what: str) -> str:
    raise {"unsayable": Unsayable(), "outcome": Outcome("no"), "closed": GeneratorExit()}[what]


@quick(retries=0, timeout=0.1)
async def heeds_no_cancelling() -> str:
    for _ in range(10):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)
    return "too late"


@quick
def forms(what: str) -> object:
    COUNTED.append(what)
    circle = []
    circle.append(circle)
    nan = {"nan": float("nan"), "inf": float("-inf")}
    return {"nan": nan, "circle": circle, "unwritable": Unwritable(), "big": 10**5_000, "lone": ["\ud800"]}[
        what
    ]


def test_nothing_that_a_tool_raises_or_returns_hangs_the_run():
    """An error that cannot be said, and one that is no Exception, once left a run waiting for ever; a tool
    that does not heed its cancelling went on past its time; a result of no form was worked out twice."""
    raised = ("unsayable", "outcome", "closed")
    returned = ("nan", "circle", "unwritable", "big", "lone")
    began = time.monotonic()
    told = results(
        lab_with(raises_what_is_no_exception, heeds_no_cancelling, forms),
        *[("raises-what-is-no-exception", {"what": what}) for what in raised],
        ("heeds-no-cancelling", {}),
        *[("forms", {"what": what}) for what in returned],
    )
    assert time.monotonic() - began < 5
    assert told[:4] == [
        "✗ Unsayable: ",
        "✗ RuntimeError: Outcome('no')",
        "✗ RuntimeError: GeneratorExit()",
        "✗ no result within 0.1 s",
    ]
    assert told[4:7] == ['{"nan":NaN,"inf":-Infinity}', '["..."]', '"<Unserializable Unwritable object>"']
    assert told[7].startswith("1000")
    assert told[8] == "['\\ud800']"
    assert [*returned] == COUNTED


def test_what_a_tool_does_wrong_itself_is_not_laid_to_its_arguments():
    @quick
    async def reads_badly(town: str) -> str:
        COUNTED.append(town)
        return Place(town=3).town

    (told,) = results(lab_with(reads_badly), ("reads-badly", {"town": "Bern"}))
    assert told.startswith("✗ ValidationError: 1 validation error for Place\ntown")
    assert COUNTED == ["Bern", "Bern"]  # it may go better the second time


def test_one_that_hangs_holds_nobody_else_up():
    began = time.monotonic()
    slow = changed(hangs, name="slow", timeout=0.5)
    told = results(lab_with(slow, fine), *[("slow", {})] * 5, ("fine", {}), at_once=True)
    assert time.monotonic() - began < 2.0
    assert sorted(told) == ["fine", *["✗ no result within 0.5 s"] * 5]


def test_timeouts_retries_and_backoff_are_those_of_the_design():
    """M11: 15 s, 1 retry, 200 ms."""
    tool = tl.tool(lambda: "")
    assert (tool.timeout, tool.retries, tool.backoff) == (15.0, 1, 0.2)
    tries = []

    @tl.tool(retries=3, backoff=0.05)
    def flaky() -> str:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise ConnectionError("not yet")
        return "at last"

    lab = lab_with(flaky)
    assert results(lab, ("flaky", {})) == ["at last"]
    waits = [round(b - a, 2) for a, b in pairwise(tries)]
    assert [lower <= wait < lower + 0.1 for wait, lower in zip(waits, (0.05, 0.1, 0.2), strict=True)] == [
        True
    ] * 3
    retried = [
        e.data for e in (line.e for line in lab.last.lines) if getattr(e, "name", "") == "call.retried"
    ]
    assert [(r["error"], r["wait"]) for r in retried] == [
        ("ConnectionError: not yet", wait) for wait in (0.05, 0.1, 0.2)
    ]
    assert list(lab.last.tools_df().tries) == [4]


def test_wrong_arguments_are_not_tried_again():
    lab = lab_with(look_up)
    results(lab, ("look-up", {}))
    assert list(lab.last.tools_df().tries) == [1]


def test_cancelling_while_a_tool_hangs_leaves_a_valid_run(tmp_path):
    begun = threading.Event()

    @tl.tool
    def blocks() -> str:
        begun.set()
        time.sleep(1)
        return "late"

    lab = lab_with(blocks, fine, runs=tmp_path)

    async def cut():
        task = asyncio.create_task(lab.run(errand(("fine", {}), ("blocks", {})), TASK))
        await asyncio.to_thread(begun.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    wait(cut())
    assert lab.last.stopped == "cancelled"
    assert list(lab.last.tools_df().error.fillna("")) == ["", "cancelled"]
    again = wait(lab.resume(lab.last.path))
    assert again.answer == "fine\nlate"
    assert again.tools_df().source.isna().tolist() == [False, False]


def test_no_secret_is_recorded_or_told(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_API_KEY", "sk-environment-1234")

    @quick(most_characters=100)
    def leaks(how: str, tool_context: dict) -> str:
        keys = ["sk-environment-1234", tool_context["maps_token"], tool_context["more"].get_secret_value()]
        if how == "raise":
            raise RuntimeError(f"401 for {keys}")
        return f"{keys}" if how == "return" else "x" * 190 + keys[0]  # cut inside it

    context = {"maps_token": "tok-context-5678", "more": SecretStr("kept"), "plain": "not secret"}
    lab = lab_with(leaks, tool_context=context, runs=tmp_path)
    told = results(lab, ("leaks", {"how": "return"}), ("leaks", {"how": "raise"}), ("leaks", {"how": "cut"}))
    assert told[0] == "['•••', '•••', '•••']"
    assert told[1] == "✗ RuntimeError: 401 for ['•••', '•••', '•••']"
    written = lab.last.path.read_text()
    for secret in ("sk-environment", "tok-context", "kept"):
        assert secret not in written
    assert scrubbed("x" * 5 + "sk-environment-12") == "xxxxx•••"
    assert scrubbed("sk-envi") == "sk-envi"  # could be anything


def test_secrets_are_known_at_any_depth_and_however_they_are_named(monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "environment-5678")
    hidden = {
        "maps": {"apiKey": "sk-nested-1234", "api-keys": ["sk-listed-1234"]},
        "more": [{"DB_PASS": "dbpass-1234"}, SecretStr("in-a-list")],
    }

    @quick
    def leaks(tool_context: dict) -> str:
        return str(
            [*tool_context["maps"].values(), "dbpass-1234", "in-a-list", os.environ["PGPASSWORD"], "kept"]
        )

    context = {**hidden, "monkey": "not-a-secret", 5: "not-a-name"}
    assert result(leaks, {}, tool_context=context) == "['•••', ['•••'], '•••', '•••', '•••', 'kept']"


def test_the_key_of_a_model_is_in_no_result(shared):
    model = tl.LiteLLM(model="gpt-4.1-mini", api_key="sk-given-as-argument", api_base=shared.url)
    box = Toolbox([tl.tool(lambda: "it is sk-given-as-argument")])
    lab = lab_with(*box.tools.values(), model=model, mode="off")
    assert results(lab, ("lambda", {})) == ["it is •••"]


# What is recorded, cached, resumed and replayed.

COUNTED = []


@tl.tool(pure=True)
def counted(a: int, b: int = 0) -> int:
    """Adds."""
    COUNTED.append((a, b))
    return a + b


@pytest.fixture(autouse=True)
def uncounted():
    COUNTED.clear()


def test_a_pure_tool_is_carried_out_once_and_an_impure_one_every_time(tmp_path):
    impure = changed(counted, name="impure", pure=False)
    calls = [("counted", '{"a": 1, "b": 2}'), ("counted", '{"b":2,"a":1}'), ("impure", {"a": 5})]
    lab = lab_with(counted, impure, cache=tmp_path / "cache")
    assert results(lab, *calls) == ["3", "3", "5"]
    assert results(lab, *calls) == ["3", "3", "5"]
    assert COUNTED == [(1, 2), (5, 0), (5, 0)]
    assert list(lab.last.tools_df().source) == ["cache", "cache", "model"]
    other = lab_with(changed(counted, most_characters=200), impure, cache=tmp_path / "cache")
    assert results(other, *calls) == ["3", "3", "5"]  # another tool: its own answers
    assert len(COUNTED) == 5
    assert results(lab_with(counted), calls[0], calls[1]) == ["3", "3"]  # no cache, none used
    assert len(COUNTED) == 7


def test_the_key_of_a_call_knows_no_order_and_no_spaces():
    def key(text):
        return key_of(request_of(tool_call("0", "t", text, draw=len(text)), {"kind": "t"}))

    assert key('{"a": 1, "b": {"d": 2, "c": [3]}}') == key('{ "b":{"c":[3],"d":2},"a":1}')
    assert key('{"a": 1}') != key('{"a": "1"}')
    assert key("{") != key("}")
    assert key("[" * 100_000) != key("[" * 100_001)


def test_a_failure_is_not_kept(tmp_path):
    lab = lab_with(tl.tools.Calculator(), cache=tmp_path)
    for _ in range(2):
        assert results(lab, ("calculator", {"expression": "1/0"})) == [
            "✗ ZeroDivisionError: division by zero"
        ]
        assert list(lab.last.tools_df().source) == ["model"]


def test_a_pure_tool_must_be_known_by_its_source():
    secret = 3
    with pytest.raises(ValueError, match="the tool 'lambda' cannot be pure"):
        lab_with(tl.tool(pure=True)(lambda: secret))


def test_replay_is_offline_and_says_what_it_will_not_do(tmp_path):
    impure = changed(counted, name="impure", pure=False)
    reaching = changed(counted, name="reaching", effects=("network",))
    lab = lab_with(counted, impure, reaching, cache=tmp_path)
    results(lab, ("counted", {"a": 1}), ("reaching", {"a": 2}))
    replaying = lab.replaying()
    assert results(replaying, ("counted", {"a": 1}), ("reaching", {"a": 2})) == ["1", "2"]
    assert len(COUNTED) == 2
    with pytest.raises(NotReplayed, match="the tool 'impure' is not pure"):
        results(replaying, ("impure", {"a": 1}))
    uncached = lab_with(counted, reaching, model="sim/general", mode="replay")
    with pytest.raises(NotReplayed, match=r"the tool 'reaching' has effects \(network\)"):
        results(uncached, ("reaching", {"a": 1}))
    assert results(uncached, ("counted", {"a": 9})) == ["9"]  # it only computes
    assert len(COUNTED) == 3


def test_a_run_with_tools_comes_back_from_its_file_without_them(tmp_path):
    lab = lab_with(counted, tl.tools.Calculator(digits=3), runs=tmp_path, effect_policy=tl.EffectPolicy())
    made = wait(lab.run(errand(("counted", {"a": 4}), ("calculator", {"expression": "1/3"})), TASK))
    loaded = tl.load(made.path)
    assert loaded.header.tools == {
        "counted": counted.settings(),
        "calculator": tl.tools.Calculator(digits=3).settings(),
    }
    assert loaded.header.effect_policy == {"mode": "allow_list", "allow": [], "deny": []}
    assert loaded.task.tools == (counted.spec, tl.tools.Calculator(digits=3).spec)
    COUNTED.clear()
    assert wait(loaded.replay()).identical
    assert wait(lab.resume(made.path)).answer == made.answer  # finished: only loaded
    assert COUNTED == []


def test_a_killed_run_goes_on_and_carries_no_tool_out_again(tmp_path):
    lab = lab_with(counted, fine, runs=tmp_path)
    made = wait(lab.run(errand(("counted", {"a": 4}), ("fine", {})), TASK))
    lines = made.path.read_bytes().splitlines(keepends=True)
    replied = next(k for k, line in enumerate(lines) if b'"tool":"counted"' in line and b'"reply"' in line)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[: replied + 1]))
    COUNTED.clear()
    assert wait(lab.resume(cut)).events == made.events
    assert COUNTED == []
    cut.write_bytes(b"".join(lines[: replied + 1]))
    with pytest.raises(
        ValueError, match=r"was made with tools=\['counted', 'fine'\]; this lab has \['fine'\]"
    ):
        wait(lab_with(fine, runs=tmp_path).resume(cut))
    with pytest.raises(ValueError, match="was made with effect_policy="):
        wait(lab_with(counted, fine, effect_policy=tl.EffectPolicy(mode="deny_all")).resume(cut))


def test_a_branch_carries_nothing_out_that_its_parent_did():
    @tl.tool
    def once() -> str:
        COUNTED.append("once")
        return "first"

    class Judged(tl.Strategy):
        kind = "judged_errand"

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            seen = yield from tl.ask(tool_call(at, "once", {}))
            thought = yield from tl.happen(tl.Thought(f"{at}.0", at, seen.text))
            return tl.Answer(thought.text, "answered", thought.id)

        def max_calls(self, task):
            return 0

    lab = lab_with(once)
    made = wait(lab.run(Judged(), TASK))
    other = wait(lab.branch(made, "0.0", content="second"))
    assert (made.answer, other.answer, COUNTED) == ("first", "second", ["once"])


def test_an_estimate_follows_tools_that_only_compute(tmp_path):
    reaching = changed(counted, name="reaching", effects=("network",))
    lab = lab_with(counted, reaching, cache=tmp_path)

    async def look(*calls):
        return tuple(await lab.estimate(errand(*calls), TASK))

    assert wait(look(("counted", {"a": 1}))) == (1, 0, False)  # the model was not asked yet
    wait(lab.run(errand(), TASK))
    assert wait(look(("counted", {"a": 1}))) == (1, 1, True)
    assert wait(look(("reaching", {"a": 1}))) == (1, 1, False)
    assert COUNTED == [(1, 0), (1, 0)]  # not the one that reaches out
    assert len(list(tmp_path.glob("*/cache.db"))) == 1
    assert not any("counted" in str(entry) for entry in map(repr, lab.gateway.cache.entries()))


def test_sweeps_share_no_runs_when_their_tools_differ(tmp_path):
    def ids(*tools, **more):
        lab = lab_with(*tools, model="sim/general", runs=tmp_path, **more)
        sweep = wait(lab.sweep(errand(("counted", {"a": 1})), TASK))
        return next(iter(sweep.by_id)), sweep.found

    stronger = changed(counted, most_characters=500)
    told = changed(counted, description="Adds up.")
    seen = [ids(), ids(counted), ids(stronger), ids(told), ids(counted, effect_policy=tl.EffectPolicy())]
    assert len({run_id for run_id, _ in seen}) == 5
    assert [found for _, found in seen] == [0] * 5
    assert ids(counted) == (seen[1][0], 1)


def test_dask_workers_have_the_tools(tmp_path):
    distributed = pytest.importorskip("distributed")

    @tl.tool
    def nested(a: int, tool_context: dict) -> int:
        return a + tool_context["more"]

    more = {"tool_context": {"more": 5}, "effect_policy": tl.EffectPolicy(), "model": "sim/general"}
    lab = lab_with(nested, tl.tools.Python(), look_up, runs=tmp_path, **more)
    asked = errand(("nested", {"a": "4"}), ("look-up", {"place": {"town": "Bern"}}))
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster) as client:
        sweep = wait(lab.sweep(asked, TASK, client=client))
    assert list(sweep.df().answer) == ["9\nthe effect policy does not allow network"]
    assert list(next(sweep.runs()).header.tools) == ["nested", "python", "look-up"]


def test_two_labs_keep_their_tools_apart():
    def one() -> str:
        return "one"

    def two() -> str:
        return "two"

    labs = [lab_with(tl.tool(name="which")(function)) for function in (one, two)]

    async def both():
        return await asyncio.gather(*(lab.run(errand(("which", {})), TASK) for lab in labs))

    assert [run.answer for run in wait(both())] == ["one", "two"]


def test_an_experiment_with_an_impure_tool_can_be_exported(tmp_path):
    from tot_lab.sharing import export_calls

    ticks = iter(range(100))
    lab = lab_with(
        tl.tool(name="tick")(lambda: next(ticks)), counted, cache=tmp_path / "cache", model="sim/general"
    )
    runs = [wait(lab.run(errand(("tick", {}), ("counted", {"a": 1})), TASK)) for _ in range(2)]
    assert [run.answer for run in runs] == ["0\n1", "1\n1"]
    assert (
        export_calls(tmp_path / "calls.jsonl.gz", runs, lab.gateway.cache) == 2
    )  # the model's and counted's


def test_the_cell_of_a_lab_with_tools_makes_them_again():
    policy = tl.EffectPolicy(allow=frozenset({"process"}))
    tools = [tl.tools.Calculator(digits=3), tl.tools.Python(memory=512)]
    text = cell(lab_with(*tools, model="sim/general", effect_policy=policy), tl.OneAnswer(), TASK, None)
    names = {"tl": tl}
    exec(text.split("run = await")[0], names)
    made = names["lab"].gateway.toolbox
    assert list(made.tools.values()) == tools
    assert made.policy == policy
    assert "holds the function counted" in cell(
        lab_with(counted, model="sim/general"), tl.OneAnswer(), TASK, None
    )
    secret = lab_with(*tools, model="sim/general", tool_context={"key": "sk-1234567890"})
    assert "sk-" not in cell(secret, tl.OneAnswer(), TASK, None)


# By name.


def test_a_name_stands_for_a_tool_or_for_those_of_a_domain():
    lab = lab_with("calculator", counted, "web-fetch", "multi_hop")
    assert list(lab.gateway.toolbox.tools.values())[:2] == [tl.tools.Calculator(), counted]
    assert [*lab.gateway.toolbox.tools][2:5] == ["web-fetch", "search", "open"]
    assert tl.tools.tools_named("multi_hop") == tl.multi_hop_tools()
    assert tl.tools.tools_named("list_files", {"root": "."}) == (tl.tools.ListFiles(root="."),)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("calculater", "unknown tool 'calculater'; did you mean 'calculator'? Known are calculator, "),
        ("", "unknown tool ''; there are calculator, python"),
        ("read_file", "the tool 'read_file' needs more than its name: root=… (ReadFile)"),
        ("web_search", "needs more than its name: provider=… (WebSearch)"),
        ("function_tool", "unknown tool 'function_tool'"),
    ],
)
def test_a_name_that_stands_for_no_tool_is_told_of(name, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        lab_with(name)


def test_every_tool_that_is_here_has_a_name():
    kinds = {kind for kind in vars(tl.tools).values() if isinstance(kind, type) and issubclass(kind, tl.Tool)}
    assert kinds - {tl.Tool, tl.tools.FunctionTool} == {*tl.tools.TOOLS}


# The effect policy.


def test_the_effect_policy_keeps_its_whole_table():
    """M12: deny beats allow; both policies must let a tool through, which is the stricter mode, the union of
    what they deny and the intersection of what they allow."""
    effects = ("a", "b")
    names = [frozenset(), frozenset({"a"}), frozenset({"b"}), frozenset({"a", "b"})]
    policies = [
        tl.EffectPolicy(mode=mode, allow=allow, deny=deny)
        for mode, allow, deny in product(("deny_all", "allow_list", "allow_all"), names, names)
    ]
    tools = [
        ToolSpec(name="t", description="", parameters={}, effects=has)
        for has in ((), ("a",), ("b",), effects)
    ]

    def passes(mode, allow, deny, has):
        if set(has) & deny:
            return False
        return not has or mode == "allow_all" or (mode == "allow_list" and set(has) <= allow)

    strict = ("deny_all", "allow_list", "allow_all")
    for tool in tools:
        for one in policies:
            assert (one.refusal(tool) is None) == passes(one.mode, one.allow, one.deny, tool.effects)
        for lab, own in product(policies, policies):
            both = lab.refusal(tool) is None and own.refusal(tool) is None
            mode = min(lab.mode, own.mode, key=strict.index)
            allow = [set(effects) if p.mode == "allow_all" else p.allow for p in (lab, own)]
            assert both == passes(mode, allow[0] & allow[1], lab.deny | own.deny, tool.effects)
    named = ToolSpec(name="fetch", description="", parameters={}, effects=("network",))
    assert tl.EffectPolicy(allow={"fetch"}).refusal(named) is None
    assert "denies fetch" in tl.EffectPolicy(mode="allow_all", deny={"fetch"}).refusal(named)
    assert tl.EffectPolicy().mode == "allow_list"


def test_what_the_policy_denies_is_not_done_even_from_the_cache(tmp_path):
    reaching = changed(counted, effects=("network",))
    allowed = lab_with(reaching, cache=tmp_path)
    assert results(allowed, ("counted", {"a": 1})) == ["1"]
    denied = lab_with(reaching, cache=tmp_path, effect_policy=tl.EffectPolicy())
    why = "✗ the effect policy does not allow network"
    assert results(denied, ("counted", {"a": 1}), ("counted", {"a": 2})) == [why, why]
    assert denied.last.tools_df().tries.isna().all()
    assert COUNTED == [(1, 0)]
    assert len(denied.last.task.tools) == 1


# The calculator.


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1/3 + 0.1", "13/30 ≈ 0.433333333333"),
        ("8 / (3 - 8/3)", "24"),
        ("(3 + 1/2) × 4^2", "56"),
        ("-2^2", "-4"),
        ("2^-2", "0.25"),
        ("2^3^2", "512"),
        ("7 // 2 + 7 % 4", "6"),
        ("1.5e3", "1500"),
        ("2**100", str(2**100)),
        ("10^50 / 3", "≈ 3.33333333333E+49"),
        ("0^0", "1"),
        ("1^99999999 + (-1)^20001 + 0^20000", "0"),
        ("2^9999 - 2^9999 + 2^5001 // 2^5000", "2"),
    ],
)
def test_the_calculator_is_exact(expression, value):
    assert result(tl.tools.Calculator(), {"expression": expression}) == value


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("0^-1", "ZeroDivisionError: 0 to a negative power"),
        ("2^0.5", "ValueError: an exponent must be a whole number, not 1/2: a root is seldom exact"),
        ("9^9^9^9", "ValueError: the power has more than about 3,000 digits"),
        ("1e99999999999", "ValueError: the number 1e99999999999 has more than about 3,000 digits"),
        ("__import__('os')", 'ValueError: only numbers, + - * / // % ^ and parentheses are known, not "__'),
        ("2(3)", "ValueError: only numbers, + - * / // % ^ and parentheses are known, not '2(3)'"),
        ("(" * 999, "ValueError: this is no arithmetic expression: ((("),
        ("1" * 1001, "ValueError: the expression has 1,001 characters; 1,000 are the most"),
        ("", "ValueError: this is no arithmetic expression: "),
    ],
)
def test_the_calculator_says_what_it_cannot_do(expression, why):
    assert result(tl.tools.Calculator(), {"expression": expression}).startswith(f"✗ {why}")


@settings(max_examples=300, deadline=2_000)
@given(st.text(alphabet="0123456789.eE+-*/%^() ", max_size=40) | st.text(max_size=20))
def test_no_text_makes_the_calculator_crash_or_hang(text):
    try:
        value = value_of(text)
    except (ValueError, ZeroDivisionError):
        return
    assert shown(value, 12)


# Python in a process.


def python(code, **more):
    return result(tl.tools.Python(**more), {"code": code})


isolated = pytest.mark.skipif(not tl.tools.Python().isolated, reason="needs: namespaces for users")


def left_behind(mark):
    """Processes of this machine whose command or environment holds `mark`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_text():
                found.append(folder.name)
        except OSError:
            continue
    return found


def soon_gone(mark):
    """Whether they are gone within two seconds: a killed process takes a moment to die."""
    end = time.monotonic() + 2
    while (left := left_behind(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return not left


def test_python_gives_what_is_printed_and_knows_nothing_of_us(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "sk-environment-1234")
    assert python("print(6 * 7)") == "42\n"
    assert python("x = 1") == "(nothing was printed)"
    seen = python(
        "import os, sys; print(dict(os.environ), os.listdir('.'), sys.flags.isolated, sys.argv[1:])"
    )
    assert seen in ("{} [] 1 []\n", "{'LC_CTYPE': 'C.UTF-8'} [] 1 []\n")
    assert "EOFError" in python("input()")


def test_a_snippet_that_fails_is_a_failed_call_with_its_traceback_and_the_same_again():
    told = python("print('so far')\n1/0")
    assert told == python("print('so far')\n1/0")
    assert told.startswith("✗ RuntimeError: exit status 1\n")
    assert "so far" in told
    assert 'File "snippet.py", line 2' in told
    assert python("raise SystemExit(3)").startswith("✗ RuntimeError: exit status 3")
    assert "SyntaxError" in python("def")


def test_a_snippet_that_eats_is_stopped():
    assert "MemoryError" in python("x = 'a' * (3 << 30)")
    assert "File too large" in python("open('f', 'wb').write(b'a' * (3 << 20))", written=1)
    assert python("while True: print('x' * 1000)", written=1) == "✗ RuntimeError: it printed more than 1 MB"
    began = time.monotonic()
    assert python("while True: pass", timeout=1) == "✗ no result within 1 s"
    assert time.monotonic() - began < 4


def test_a_snippet_cannot_hold_up_the_lab_by_what_it_leaves():
    """A pipe in place of the file that its output went to once stopped the event loop for ever, and
    folders in folders cost the result."""
    swapped = "import os\nfor name in os.listdir('..'):\n    if name != 'work': os.unlink('../' + name)\n"
    assert python(f"{swapped}os.mkfifo('../output'); print('fine')", timeout=10) == "fine\n"
    before = set(Path(tempfile.gettempdir()).glob("tot_lab-*"))
    deep = "import os\nfor _ in range(2_000):\n    os.mkdir('d'); os.chdir('d')\nprint('fine')"
    assert python(deep) == "fine\n"
    assert set(Path(tempfile.gettempdir()).glob("tot_lab-*")) <= before


def test_what_a_snippet_starts_ends_with_it():
    mark = "sleep-mark-7391"
    sleeping = f"os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)', '{mark}'])"
    child = f"    if os.fork() == 0:\n        {{}}{sleeping}"
    forks = f"import os, sys, time\nfor _ in range(20):\n{child}\nprint('done')"
    began = time.monotonic()
    assert python(forks.format("")) == "done\n"
    assert time.monotonic() - began < 5
    assert soon_gone(mark)
    assert python(f"{forks.format('')}\ntime.sleep(60)", timeout=1) == "✗ no result within 1 s"
    assert soon_gone(mark)
    if tl.tools.Python().isolated:  # one that leaves the process group does not get away either
        assert python(forks.format("os.setsid(); ")) == "done\n"
        assert soon_gone(mark)


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="the kernel counts no processes of root")
def test_processes_are_limited():
    assert "BlockingIOError" in python(
        "import os\nfor _ in range(100):\n    if not os.fork():\n        os.pause()"
    )


def test_cancelling_ends_the_process():
    mark = "cancel-mark-5127"
    sleeping = f"[sys.executable, '-c', 'import time; time.sleep(60)', '{mark}']"
    code = f"import os, sys; os.execv(sys.executable, {sleeping})"
    lab = lab_with(tl.tools.Python())

    async def cut():
        task = asyncio.create_task(lab.run(errand(("python", {"code": code})), TASK))
        for _ in range(200):
            await asyncio.sleep(0.02)
            if left_behind(mark):
                break
        assert left_behind(mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(soon_gone, mark)

    wait(cut())


@isolated
def test_an_isolated_snippet_has_no_network_and_sees_no_other_process(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = python(f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)")
    assert "Network is unreachable" in told or "Connection refused" in told
    assert "PermissionError" in python(f"print(open('/proc/{os.getpid()}/environ').read())")
    assert "ProcessLookupError" in python(f"import os; os.kill({os.getpid()}, 0)")


# Files under a root.


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "a.md").write_text("one\ntwo\nthree\n")
    (root / "data.bin").write_bytes(bytes(range(256)))
    (root / "huge.txt").write_text("x" * 2_000)
    (tmp_path / "secret.txt").write_text("secret")
    (root / "out").symlink_to(tmp_path / "secret.txt")
    (root / "outside").symlink_to(tmp_path)
    (root / "inside").symlink_to(root / "notes")
    (root / "circle").symlink_to(root / "circle")
    os.mkfifo(root / "pipe")
    return root


def test_files_under_the_root_are_read_whole_or_in_part(root):
    read = tl.tools.ReadFile(root=root)
    assert read.effects == ("files",)
    assert result(read, {"path": "notes/a.md"}) == "one\ntwo\nthree\n"
    assert result(read, {"path": "inside/a.md", "first_line": 2, "last_line": 2}) == "two\n"
    assert result(read, {"path": "./notes/../notes/a.md", "first_line": 3}) == "three\n"
    assert "notes/a.md has 3 lines" in result(read, {"path": "notes/a.md", "first_line": 4})
    assert "first_line: Input should be greater" in result(read, {"path": "notes/a.md", "first_line": 0})


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret.txt", "lies outside the files that may be read"),
        ("notes/../../secret.txt", "lies outside"),
        ("out", "lies outside"),
        ("outside/secret.txt", "lies outside"),
        ("/etc/passwd", "must be a path below the root"),
        ("\0", "must be a path below the root"),
        ("..\\secret.txt", "must be a path below the root"),
        ("~/.ssh/id_rsa", "No such file"),
        ("notes", "is no plain file"),
        ("", "is no plain file"),
        (".", "is no plain file"),
        ("pipe", "is no plain file"),
        ("circle", "leads nowhere"),
        ("nowhere.md", "No such file"),
        ("notes/a.md/b", "Not a directory"),
        ("x" * 5_000, "File name too long"),
        ("data.bin", "is no text: a binary file of 256 bytes"),
        ("huge.txt", "has 2,000 bytes; 1,000 are the most"),
    ],
)
def test_nothing_else_can_be_read(root, path, why):
    told = result(tl.tools.ReadFile(root=str(root), most_bytes=1_000), {"path": path})
    assert told.startswith("✗ ")
    assert why in told
    assert str(root.parent) not in told  # nor where the root is


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs: /dev/zero")
def test_a_device_is_no_file():
    assert "is no plain file" in result(tl.tools.ReadFile(root="/dev"), {"path": "zero"})


def test_a_link_that_is_put_there_meanwhile_leads_nowhere(root, monkeypatch):
    resolve = Path.resolve

    def late(path, **more):
        found = resolve(path, **more)
        if found.name == "a.md":
            (root / "notes").rename(root / "other")
            (root / "notes").symlink_to(root.parent)
            (root.parent / "a.md").write_text("secret")
        return found

    monkeypatch.setattr(Path, "resolve", late)
    assert (
        result(tl.tools.ReadFile(root=root), {"path": "notes/a.md"})
        == "✗ FileNotFoundError: notes/a.md: Not a directory"
    )


def test_files_are_listed(root):
    listing = tl.tools.ListFiles(root=root)
    assert result(listing, {}).splitlines() == [
        "circle (a link)",
        "data.bin (256 bytes)",
        "huge.txt (2,000 bytes)",
        "inside (a link)",
        "out (a link)",
        "outside (a link)",
        "pipe (no plain file)",
        "notes/a.md (14 bytes)",
    ]
    assert result(listing, {"pattern": "*.md"}) == "notes/a.md (14 bytes)"
    assert result(listing, {"pattern": "../*"}) == "no file matches '../*'"
    for k in range(1_001):
        (root / f"{k}.txt").touch()
    assert result(listing, {"pattern": "*.txt"}).endswith("… (more than 1,000; give a narrower pattern)")
    with pytest.raises(ValueError, match="is no folder"):
        tl.tools.ReadFile(root=root / "data.bin")


def test_a_file_that_is_deleted_meanwhile_is_not_listed(root, monkeypatch):
    lstat = os.lstat

    def late(name, **more):
        if name == "huge.txt":
            (root / name).unlink(missing_ok=True)
        return lstat(name, **more)

    monkeypatch.setattr(os, "lstat", late)
    assert result(tl.tools.ListFiles(root=root), {"pattern": "*.[bt]*"}) == "data.bin (256 bytes)"


def test_lines_are_counted_as_editors_count(root):
    (root / "page.txt").write_text("one\x0c\u2028still one\ntwo\n")
    assert result(tl.tools.ReadFile(root=root), {"path": "page.txt", "first_line": 2}) == "two\n"


# The web.


class Site(NamedTuple):
    url: str
    port: int
    seen: list


@pytest.fixture(scope="module")
def site():
    """A real server on this machine."""
    seen = []
    pages = {
        "/page": (
            "text/html",
            "<title>T</title><script>bad()</script><h1>A page</h1><p>Some <a href='/x'>words</a>.",
        ),
        "/plain": ("text/plain", "grüezi"),
        "/binary": ("image/png", "\x89PNG"),
        "/big": ("text/plain", "x" * 50_000),
        "/deep": ("text/html", "<div>" * 3_000 + "deep"),
    }

    once = gzip.compress(b"x" * 10_000_000)
    odd = {
        "/thrice": ({"content-type": "text/plain", "content-encoding": "gzip, gzip"}, gzip.compress(once)),
        "/once": ({"content-type": "text/plain", "content-encoding": "gzip"}, once),
        "/charset": ({"content-type": "text/plain; charset=punycode"}, b"aa-" + b"b9" * 300_000),
        "/comments": ({"content-type": "text/html"}, b"<!--" * 400_000),
        "/no-charset": ({"content-type": "text/plain; charset=rot13"}, b"abc"),
    }

    async def answer(request):
        seen.append((request.path, dict(request.headers)))
        if request.path in pages:
            kind, text = pages[request.path]
            response = web.Response(text=text, content_type=kind)
            response.enable_compression()
            return response
        if request.path == "/to":
            raise web.HTTPFound(request.query["url"])
        if request.path in odd:
            return web.Response(body=odd[request.path][1], headers=odd[request.path][0])
        if request.path == "/slow":
            await asyncio.sleep(30)
        if request.path == "/endless-redirect":
            stream = web.StreamResponse(status=302, headers={"location": "/plain"})
            await stream.prepare(request)
            with suppress(ConnectionError):
                while True:
                    await stream.write(b"x" * 100_000)
            return stream
        if request.path == "/endless":  # until nobody listens
            stream = web.StreamResponse(headers={"content-type": "text/plain"})
            await stream.prepare(request)
            with suppress(ConnectionError):
                for _ in range(10_000):
                    await stream.write(b"x" * 10_000)
            return stream
        raise web.HTTPNotFound

    loop, ready, found = asyncio.new_event_loop(), threading.Event(), {}

    async def serve():
        runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
        runner.app.router.add_get("/{rest:.*}", answer)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found["runner"], found["port"] = runner, runner.addresses[0][1]
        ready.set()

    def serving():
        loop.run_until_complete(serve())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(found["runner"].cleanup())
        loop.close()

    thread = threading.Thread(target=serving)
    thread.start()
    ready.wait(10)
    yield Site(f"http://127.0.0.1:{found['port']}", found["port"], seen)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def fetched(url, **more):
    return result(tl.tools.WebFetch(**{"retries": 0, "allow_private": True, **more}), {"url": url})


def test_a_page_becomes_text(site):
    assert fetched(f"{site.url}/page").endswith("# A page\n\nSome [words](/x).")
    assert "bad()" not in fetched(f"{site.url}/page")
    assert fetched(f"{site.url}/plain") == "grüezi"
    assert fetched(f"{site.url}/to?url=/plain") == f"(from {site.url}/plain)\ngrüezi"
    assert "no text: image/png" in fetched(f"{site.url}/binary")
    assert fetched(f"{site.url}/none") == f"✗ RuntimeError: {site.url}/none answered with HTTP 404"
    assert fetched(f"{site.url}/big", most_bytes=1_000) == "x" * 1_000 + "\n… (cut at 1,000 bytes)"
    assert fetched(f"{site.url}/endless", most_bytes=1_000).endswith("(cut at 1,000 bytes)")
    assert fetched(f"{site.url}/slow", timeout=0.3) == "✗ no result within 0.3 s"
    assert "was redirected more than 1 times" in fetched(
        f"{site.url}/to?url=/to%3Furl=/plain", most_redirects=1
    )
    assert "deep" in fetched(f"{site.url}/deep")


def test_a_page_that_means_harm_is_an_error_and_holds_nobody_up(site):
    """Packed in packed, moved with a body without end, or written to keep a parser or a codec busy."""
    assert fetched(f"{site.url}/once", most_bytes=1_000) == "x" * 1_000 + "\n… (cut at 1,000 bytes)"
    assert fetched(f"{site.url}/thrice").endswith("is packed as gzip, gzip, which was not asked for")
    assert "'rot13' is not a text encoding" in fetched(f"{site.url}/no-charset")
    moved = fetched(f"{site.url}/endless-redirect", timeout=10)
    assert moved == f"(from {site.url}/plain)\ngrüezi"

    async def longest_pause(path):
        fetch, pauses = tl.tools.WebFetch(retries=0, allow_private=True, timeout=1), [0.0]
        run = asyncio.create_task(
            lab_with(fetch).run(errand(("web-fetch", {"url": f"{site.url}{path}"})), TASK)
        )
        while not run.done():
            began = time.monotonic()
            await asyncio.sleep(0.01)
            pauses.append(time.monotonic() - began)
        assert (await run).answer == "no result within 1 s"
        return max(pauses)

    for path in ("/charset", "/comments"):
        assert wait(longest_pause(path)) < 0.8


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_a_private_address_is_refused_however_it_is_written(site, host):
    before = len(site.seen)
    told = fetched(f"http://{host}:{site.port}/plain", allow_private=False)
    assert told.startswith("✗ ")
    assert "is no public address" in told or "gaierror" in told
    assert len(site.seen) == before


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{port}/plain", "http://10.0.0.1/", "http://169.254.169.254/latest"]
)
def test_a_redirect_to_a_private_address_is_refused(site, target):
    where = target.format(port=site.port)
    told = fetched(f"{site.url}/to?url={where}", allow_private=("127.0.0.1/32",))
    assert told.startswith("✗ PermissionError: ")
    assert told.endswith("is no public address")
    assert fetched(f"{site.url}/plain", allow_private=("127.0.0.1/32",)) == "grüezi"


def test_a_name_is_looked_up_once_so_it_cannot_change_its_meaning(site, monkeypatch):
    real, looked_up = socket.getaddrinfo, []

    def changing(host, port, *given, **more):
        if host == "changing.example":
            looked_up.append(host)
            host = "203.0.113.1" if len(looked_up) == 1 else "127.0.0.1"
        return real(host, port, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    before = len(site.seen)
    told = fetched(
        f"http://changing.example:{site.port}/plain", allow_private=("203.0.113.0/24",), timeout=0.5
    )
    assert told.startswith("✗ ")
    assert looked_up == ["changing.example"]
    assert len(site.seen) == before


def test_only_http_and_no_proxy(site, monkeypatch):
    monkeypatch.setenv("http_proxy", site.url)
    for url in (
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1/",
        "//x",
        "nonsense",
        "http://",
    ):
        assert fetched(url).startswith("✗ "), url
    assert fetched(f"{site.url}/to?url=file:///etc/passwd").startswith("✗ ")
    before = len(site.seen)
    assert "is no public address" in fetched("http://10.1.2.3/", allow_private=False)
    assert len(site.seen) == before


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.1", "127.0.0.1", "169.254.1.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fec0::1"),
        *("fc00::1", "ff02::1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1", "2001:db8::1"),
        "2001:0:7f00:1::",
    ],
)
def test_addresses_that_are_not_the_internets(address):
    from ipaddress import ip_address

    assert not is_public(ip_address(address))


def test_addresses_that_are():
    from ipaddress import ip_address

    public = ("8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")
    assert all(is_public(ip_address(address)) for address in public)


def test_a_page_is_fetched_once_and_then_from_the_cache(site, tmp_path):
    lab = lab_with(tl.tools.WebFetch(allow_private=True), cache=tmp_path)
    call = ("web-fetch", {"url": f"{site.url}/plain"})
    first, before = results(lab, call), len(site.seen)
    assert results(lab.replaying(), call) == first == ["grüezi"]
    assert len(site.seen) == before


async def search(query: str, count: int):
    return [
        ("One", "https://a.example", query),
        {"title": "Two", "url": "https://b.example", "text": "2"},
    ] * count


async def broken_search(query: str, count: int):
    return [("only a title",)]


def test_a_search_is_the_users_own():
    told = result(tl.tools.WebSearch(provider=search, count=2), {"query": "tea"})
    assert told == "1. One\nhttps://a.example\ntea\n\n2. Two\nhttps://b.example\n2"
    assert "✗ " in result(tl.tools.WebSearch(provider=broken_search, backoff=0), {"query": "tea"})
    with pytest.raises(ValidationError, match="provider"):
        tl.tools.WebSearch()


def test_what_is_built_in_declares_what_it_does(tmp_path):
    built_in = {
        "calculator": ((), True, tl.tools.Calculator()),
        "python": (("process",), False, tl.tools.Python()),
        "read-file": (("files",), False, tl.tools.ReadFile(root=tmp_path)),
        "list-files": (("files",), False, tl.tools.ListFiles(root=tmp_path)),
        "web-fetch": (("network",), True, tl.tools.WebFetch()),
        "web-search": (("network",), True, tl.tools.WebSearch(provider=search)),
    }
    for name, (effects, pure, tool) in built_in.items():
        assert (tool.name, tool.effects, tool.pure) == (name, effects, pure)
        assert part_of(tool.settings()).settings() == tool.settings()
        assert tool.description
        msgspec.json.encode(tool.settings())
