"""What is recorded, cached, resumed and replayed of tool calls."""

import asyncio

import pytest
from support import wait
from support.errands import COUNTED, TASK, changed, counted, errand, fine, lab_with, look_up, results

import tot_lab as tl
from tot_lab.core.tools import tool_call
from tot_lab.models.keys import request_of
from tot_lab.tools import NotReplayed
from tot_lab.views.explorer.cell import cell


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
    other = lab_with(changed(counted, max_characters=200), impure, cache=tmp_path / "cache")
    assert results(other, *calls) == ["3", "3", "5"]  # another tool: its own answers
    assert len(COUNTED) == 5
    assert results(lab_with(counted), calls[0], calls[1]) == ["3", "3"]  # no cache, none used
    assert len(COUNTED) == 7


def test_the_key_of_a_call_knows_no_order_and_no_spaces():
    def key(text):
        return request_of(tool_call("0", "t", text, sample_index=len(text)), {"kind": "t"}).key

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
    with pytest.raises(ValueError, match="The tool 'lambda' cannot be pure"):
        lab_with(tl.tool(pure=True)(lambda: secret))


@pytest.mark.slow
def test_replay_is_offline_and_says_what_it_will_not_do(tmp_path):
    impure = changed(counted, name="impure", pure=False)
    reaching = changed(counted, name="reaching", effects=("network",))
    lab = lab_with(counted, impure, reaching, cache=tmp_path)
    results(lab, ("counted", {"a": 1}), ("reaching", {"a": 2}))
    replaying = lab.replaying()
    assert results(replaying, ("counted", {"a": 1}), ("reaching", {"a": 2})) == ["1", "2"]
    assert len(COUNTED) == 2
    with pytest.raises(NotReplayed, match="The tool 'impure' is not pure"):
        results(replaying, ("impure", {"a": 1}))
    assert results(replaying, ("counted", {"a": 7})) == ["7"]  # what failed was not kept: it only computes
    assert len(COUNTED) == 3
    with pytest.raises(tl.errors.CacheMiss, match="the tool call"):
        results(replaying, ("reaching", {"a": 8}))
    uncached = lab_with(counted, reaching, model="sim/general", mode="replay")
    with pytest.raises(NotReplayed, match=r"The tool 'reaching' has effects \(network\)"):
        results(uncached, ("reaching", {"a": 1}))
    assert results(uncached, ("counted", {"a": 9})) == ["9"]
    assert len(COUNTED) == 4


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
        ValueError, match=r"must have the tools of the run: got \['fine'\] instead of \['counted', 'fine'\]"
    ):
        wait(lab_with(fine, runs=tmp_path).resume(cut))
    with pytest.raises(ValueError, match="must have the effect_policy of the run"):
        wait(lab_with(counted, fine, effect_policy=tl.EffectPolicy(allow={"counted", "fine"})).resume(cut))


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
            thought = yield from tl.emit(tl.Thought(f"{at}.0", at, seen.text))
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
        return tuple(await lab.estimate(errand(*calls), TASK))[:3]

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

    stronger = changed(counted, max_characters=500)
    told = changed(counted, description="Adds up.")
    seen = [ids(), ids(counted), ids(stronger), ids(told), ids(counted, effect_policy=tl.EffectPolicy())]
    assert len({run_id for run_id, _ in seen}) == 5
    assert [found for _, found in seen] == [0] * 5
    assert ids(counted) == (seen[1][0], 1)


@pytest.mark.nightly
def test_dask_workers_have_the_tools(tmp_path):
    distributed = pytest.importorskip("distributed")

    @tl.tool(effects=())
    def nested(a: int, tool_context: dict) -> int:
        return a + tool_context["more"]

    policy = tl.EffectPolicy(allow={"process", "network"})
    more = {"tool_context": {"more": 5}, "effect_policy": policy, "model": "sim/general"}
    lab = lab_with(nested, tl.tools.Python(), look_up, runs=tmp_path, **more)
    asked = errand(("nested", {"a": "4"}), ("look-up", {"place": {"town": "Bern"}}))
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster) as client:
        sweep = wait(lab.sweep(asked, TASK, client=client))
    assert list(sweep.df().answer) == ["9\nBern m peak 3 None False None"]
    header = next(sweep.runs()).header
    assert list(header.tools) == ["nested", "python", "look-up"]
    assert header.effect_policy["allow"] == ["network", "process"]


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
    from tot_lab.lab.sharing import export_calls

    ticks = iter(range(100))
    lab = lab_with(
        tl.tool(name="tick")(lambda: next(ticks)), counted, cache=tmp_path / "cache", model="sim/general"
    )
    runs = [wait(lab.run(errand(("tick", {}), ("counted", {"a": 1})), TASK)) for _ in range(2)]
    assert [run.answer for run in runs] == ["0\n1", "1\n1"]
    made = export_calls(tmp_path / "calls.jsonl.gz", runs, lab.gateway.cache)
    assert (made.calls, made.uncached) == (2, 2)  # the model's and counted's; those of tick never are


def test_the_cell_of_a_lab_with_tools_makes_them_again():
    policy = tl.EffectPolicy(allow=frozenset({"process"}))
    tools = [tl.tools.Calculator(digits=3), tl.tools.Python(memory=512)]
    text = cell(lab_with(*tools, model="sim/general", effect_policy=policy), tl.OneAnswer(), TASK, None)
    names = {"tl": tl}
    exec(text.split("run = await")[0], names)
    made = names["lab"].gateway.toolbox
    assert list(made.tools.values()) == tools
    assert made.policy == policy
    assert "contains the function counted" in cell(
        lab_with(counted, model="sim/general"), tl.OneAnswer(), TASK, None
    )
    secret = lab_with(*tools, model="sim/general", tool_context={"key": "sk-1234567890"})
    assert "sk-" not in cell(secret, tl.OneAnswer(), TASK, None)
