"""Tools: what a function tells a model, that whatever a tool does its call is answered, and that what a
policy denies is not done."""

import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest
from pydantic import Field, SecretStr
from support import Scripted, wait
from support.errands import (
    COUNTED,
    TASK,
    Place,
    changed,
    counted,
    errand,
    fine,
    lab_with,
    look_up,
    quick,
    result,
    results,
)

import tot_lab as tl
from tot_lab.analysis.frames import usage_by_node
from tot_lab.core.parts import part_of
from tot_lab.core.registry import built_in
from tot_lab.core.scrubbing import scrubbed
from tot_lab.core.tools import ToolSpec
from tot_lab.tools.toolbox import Carrying, Toolbox


@pytest.fixture(autouse=True)
def uncounted():
    COUNTED.clear()


# What a function tells a model.


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
        (lambda *many: many, r"takes arguments by name: got \*many"),
        (lambda **named: named, r"takes arguments by name: got \*\*named"),
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
        with pytest.raises(TypeError, match=f"{function.__name__}: .*a tool must return its result"):
            tl.tool(function)


def test_types_that_json_cannot_hold_or_nobody_knows_are_refused():
    class Local:
        pass

    def held(thing: Local) -> None: ...

    def late(thing: "Unknown") -> None: ...  # noqa: F821

    with pytest.raises(TypeError, match="held: its arguments cannot be described as a JSON schema"):
        tl.tool(held)
    with pytest.raises(TypeError, match="late: name 'Unknown' is not defined"):
        tl.tool(late)
    with pytest.raises(ValueError, match="did you mean 'pure'"):
        tl.tool(pur=True)(lambda: 1)


@pytest.mark.slow
def test_a_tool_that_was_defined_in_a_notebook_has_its_types():
    code = (
        "from __future__ import annotations\n"
        "import tot_lab as tl\n"
        "from typing import Literal\n"
        "class Mine: pass\n"
        "@tl.tool\n"
        "def double(x: int, how: Literal['a', 'b'] = 'a') -> int:\n    'Twice.'\n    return 2 * x\n"
        "print(double.parameters['properties']['how']['enum'], double.function.identified_by_source)"
    )
    shell = (
        f"from IPython.core.interactiveshell import InteractiveShell as S; S.instance().run_cell({code!r})"
    )
    out = subprocess.run([sys.executable, "-c", shell], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['a', 'b'] True"


def test_two_tools_of_one_name_and_one_from_a_file_are_refused():
    with pytest.raises(ValueError, match="names of tools must differ: got 'look-up' twice"):
        lab_with(look_up, look_up)
    with pytest.raises(
        LookupError, match=r"The tool 'look-up' was read from recorded settings.*errands\.look_up"
    ):
        lab_with(part_of(look_up.settings()))


# Whatever a tool does, its call is answered.


@quick(retries=0, timeout=0.2)
def hangs() -> str:
    time.sleep(2)
    return "too late"


@quick(retries=0, timeout=0.2)
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


@quick
def huge() -> str:
    return "x" * 100_000_000


@quick
def odd() -> object:
    return {"set": {1}, "place": Place(town="Bern"), "thing": Path("a"), (1, 2): 3}


@pytest.mark.slow
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
    assert time.monotonic() - began < 50  # one of them waits for a minute
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


@pytest.mark.slow
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
    assert time.monotonic() - began < 50
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


@pytest.mark.slow
def test_one_that_hangs_holds_nobody_else_up():
    released = threading.Event()

    @quick(retries=0, timeout=90)
    def slow() -> str:
        return "released" if released.wait(60) else "held up"

    @quick(retries=0)
    def releases() -> str:
        released.set()
        return "fine"

    told = results(lab_with(slow, releases), *[("slow", {})] * 5, ("releases", {}), at_once=True)
    assert sorted(told) == ["fine", *["released"] * 5]


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert lab.last.stop_reason == "cancelled"
    assert list(lab.last.tools_df().error.fillna("")) == ["", "cancelled"]
    again = wait(lab.resume(lab.last.path))
    assert again.answer == "fine\nlate"
    assert again.tools_df().source.isna().tolist() == [False, False]


def test_no_secret_is_recorded_or_told(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_API_KEY", "sk-environment-1234")

    @quick(max_characters=100)
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


@pytest.mark.slow
def test_the_key_of_a_model_is_in_no_result(shared):
    model = tl.LiteLLM(model="gpt-4.1-mini", api_key="sk-given-as-argument", api_base=shared.url)
    box = Toolbox([tl.tool(lambda: "it is sk-given-as-argument")])
    lab = lab_with(*box.tools.values(), model=model, mode="off")
    assert results(lab, ("lambda", {})) == ["it is •••"]


# By name.


def test_a_name_stands_for_a_tool_or_for_those_of_a_domain():
    lab = lab_with("calculator", counted, "web-fetch", "multi_hop")
    assert list(lab.gateway.toolbox.tools.values())[:2] == [tl.tools.Calculator(), counted]
    assert [*lab.gateway.toolbox.tools][2:5] == ["web-fetch", "search", "open"]
    assert tl.tools.tools_named("multi_hop") == tl.domains.multi_hop_tools()
    assert tl.tools.tools_named("list_files", {"root": "."}) == (tl.tools.ListFiles(root="."),)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("calculater", "unknown tool 'calculater'; did you mean 'calculator'? Known are calculator, "),
        ("", "unknown tool ''; known are calculator, python"),
        ("read_file", "The tool 'read_file' requires settings: root=… (ReadFile)"),
        ("web_search", "requires settings: provider=… (WebSearch)"),
        ("function_tool", "unknown tool 'function_tool'"),
    ],
)
def test_a_name_that_stands_for_no_tool_is_told_of(name, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        lab_with(name)


def test_every_tool_that_is_here_has_a_name():
    kinds = {kind for kind in vars(tl.tools).values() if isinstance(kind, type) and issubclass(kind, tl.Tool)}
    made = {tl.tools.FunctionTool, tl.tools.DeepThinkTool, tl.tools.McpTool}  # of a function, a lab, a server
    assert kinds - {tl.Tool, *made} == {*built_in("tools").values()}


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


def test_m12_a_tool_that_the_lab_denies_is_an_error_at_construction(tmp_path):
    """Each way to deny it is refused, whatever the cache holds, and the tool and its effects are named."""
    reaching = changed(counted, effects=("network", "files"))
    assert results(lab_with(reaching, cache=tmp_path), ("counted", {"a": 1})) == ["1"]
    for policy, why in [
        (tl.EffectPolicy(), "does not allow files, network"),
        (tl.EffectPolicy(allow={"files"}), "does not allow network"),
        (tl.EffectPolicy(mode="deny_all", allow={"counted"}), "denies all effects"),
        (tl.EffectPolicy(mode="allow_all", deny={"files"}), "denies files"),
        (tl.EffectPolicy(allow={"counted"}, deny={"counted"}), "denies counted"),
    ]:
        with pytest.raises(ValueError, match=rf"'counted' \(effects: network, files\).*{why}"):
            lab_with(reaching, cache=tmp_path, effect_policy=policy)
    with pytest.raises(ValueError, match=r"'fine' \(effects: not declared .*denies fine"):
        lab_with(fine, effect_policy=tl.EffectPolicy(deny={"fine"}))
    assert COUNTED == [(1, 0)]
    lab_with(reaching, effect_policy=tl.EffectPolicy(allow={"network", "files"}))
    lab_with(reaching, effect_policy=tl.EffectPolicy(allow={"counted"}))


def test_m12_tools_given_by_name_and_those_of_a_replay_keep_the_policy():
    with pytest.raises(ValueError, match=r"'python' \(effects: process\).*does not allow process"):
        lab_with("calculator", "python", effect_policy=tl.EffectPolicy(allow={"network"}))
    allowed = lab_with("python", model="sim/general", effect_policy=tl.EffectPolicy(allow={"process"}))
    assert allowed.replaying().gateway.toolbox.policy == tl.EffectPolicy(allow={"process"})
    lab_with(effect_policy=tl.EffectPolicy(mode="deny_all"))  # without tools, a policy denies none


@pytest.mark.parametrize(
    ("settings", "policy", "allowed"),
    [
        ({}, tl.EffectPolicy(mode="deny_all"), False),
        ({}, tl.EffectPolicy(), False),
        ({}, tl.EffectPolicy(allow={"network"}), False),
        ({}, tl.EffectPolicy(allow={"act"}), True),
        ({}, tl.EffectPolicy(mode="allow_all"), True),
        ({"effects": ()}, tl.EffectPolicy(), True),
        ({"effects": ()}, tl.EffectPolicy(mode="deny_all"), True),
        ({"pure": True}, tl.EffectPolicy(mode="deny_all"), True),
    ],
)
def test_undeclared_effects_count_as_effects(settings, policy, allowed):
    """The author of a function that deletes files may not have read about effects."""

    @tl.tool(**settings)
    def act(what: str) -> str:
        """Does something."""
        return what

    model = Scripted(lambda call: tl.Reply("Answer: 26"))
    wait(tl.Lab(model, runs=None, tools=[act]).run(tl.ReAct(effect_policy=policy), TASK))
    assert {"act" in [tool["name"] for tool in call.tools] for call in model.calls} == {allowed}
    if allowed:
        tl.Lab(model, runs=None, tools=[act], effect_policy=policy)
    else:
        with pytest.raises(ValueError, match=r"'act' \(effects: not declared .*effects=\(\)"):
            tl.Lab(model, runs=None, tools=[act], effect_policy=policy)


def test_m12_a_tool_that_a_strategy_denies_is_not_offered():
    model = Scripted(lambda call: tl.Reply("Answer: 26"))
    lab = tl.Lab(model, runs=None, tools=[changed(counted, effects=("files",)), changed(fine, effects=())])
    wait(lab.run(tl.ReAct(effect_policy=tl.EffectPolicy(deny={"files"})), TASK))
    assert model.calls
    for call in model.calls:
        assert [tool["name"] for tool in call.tools] == ["fine", "final-answer"]


@pytest.mark.slow
def test_a_tool_keeps_its_own_time_and_not_the_labs():
    @tl.tool(timeout=5.0)
    async def slow(n: int) -> str:
        """Takes a while."""
        await asyncio.sleep(0.3)
        return "done"

    def reply(call):
        if any(message.role == "tool" for message in call.messages):
            return "Answer: 26"
        return tl.Reply(tool_calls=(tl.records.ToolCall("a", "slow", '{"n": 1}'),))

    lab = tl.Lab(Scripted(reply), runs=None, tools=[slow], timeout=0.1)
    assert wait(lab.run(tl.ToolLoop(), TASK)).tools_df()["result"].tolist() == ["done"]


@pytest.mark.slow
def test_a_coroutine_is_closed_if_the_call_ends_as_it_arrives():
    """Python would warn that it was never awaited."""
    made = []

    async def late():
        return "late"

    async def call_and_cancel():
        loop = asyncio.get_running_loop()

        @tl.tool
        def slow(text: str) -> str:
            """Return a coroutine, and end the call before it is awaited."""
            loop.call_soon_threadsafe(loop.call_soon, task.cancel)
            made.append(late())
            return made[-1]

        carrying = Carrying(slow, {}, False, ())
        task = asyncio.ensure_future(carrying._carried_out({"text": "x"}, None))
        await asyncio.wait([task])
        await asyncio.sleep(0.02)  # the thread of the tool has ended, too

    for _ in range(30):
        asyncio.run(call_and_cancel())
    assert {inspect.getcoroutinestate(one) for one in made} == {inspect.CORO_CLOSED}
