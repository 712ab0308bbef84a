"""What a lab is given once for all of its runs: a strategy, a system prompt, a level, a profile and ids."""

import json

import msgspec
import pytest
from support import TASK, Scripted, for_each, wait

import tot_lab as tl
from tot_lab.strategies.defaults import PROFILES
from tot_lab.testing import legs
from tot_lab.views.explorer.cell import cell

DEFAULTS = {
    "strategy": tl.Reflexion(strategy=tl.WithThinking(strategy=tl.ReAct()), max_retries=0),
    "system_prompt": "Be brief.",
    "thinking_level": "Low",
    "profile": "local",
    "agent_id": "scout",
    "session_id": "monday",
}


def answering(call):
    return tl.Reply("Answer: 26")


def lab(model=None, **settings):
    return tl.Lab(model or Scripted(answering), **{"runs": None, **settings})


def calls_of(made):
    return [call for call in made.events if isinstance(call, tl.Call)]


# The strategy.


def test_r12_a_lab_runs_the_strategy_that_it_was_given():
    async def streamed(lab):
        stream = lab.stream(TASK)
        async for _ in stream:
            pass
        return stream.run

    for given in (tl.ChainOfThought(), "chain_of_thought"):
        holding = lab(strategy=given, tools=["calculator"])  # without it, tools mean ReAct
        assert wait(holding.run(TASK)).strategy == tl.ChainOfThought()
        assert wait(streamed(holding)).strategy == tl.ChainOfThought()
        assert wait(holding.estimate(TASK)).calls == 1
        assert wait(holding.run(tl.OneAnswer(), TASK)).strategy == tl.OneAnswer()
    with pytest.raises(ValueError, match="did you mean 'react'"):
        lab(strategy="raect")
    for wrong in (3, tl.ReAct):
        with pytest.raises(TypeError, match="strategy must be a Strategy"):
            lab(strategy=wrong)


# The system prompt.


def test_r12_a_labs_system_prompt_is_that_of_tasks_without_one():
    holding = lab(system_prompt="Be brief.")
    made = wait(holding.run(tl.OneAnswer(), TASK))
    assert made.task.system_prompt == made.header.task["system_prompt"] == "Be brief."
    assert all(call.messages[0].content == "Be brief." for call in calls_of(made))
    own = TASK.model_copy(update={"system_prompt": "Be long."})
    assert wait(holding.run(tl.OneAnswer(), own)).task.system_prompt == "Be long."
    assert wait(lab().run(tl.OneAnswer(), TASK)).task.system_prompt == ""
    for name in ("system_prompt", "agent_id", "session_id"):
        with pytest.raises(TypeError, match=f"{name} must be a string"):
            lab(**{name: 3})


def test_a_system_prompt_is_not_put_into_a_run_that_was_made_without(tmp_path):
    made = wait(lab("sim/general", runs=tmp_path).run(tl.TreeOfThoughts(stop=tl.Stop(depth=1)), TASK))
    holding = lab("sim/general", runs=tmp_path, system_prompt="Be brief.")
    lines = made.path.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:5]))
    assert wait(holding.resume(cut)).events == made.events
    branch = wait(holding.branch(made, "0.0", score=0.9))
    assert not any(message.role == "system" for call in calls_of(branch) for message in call.messages)


# The level.


def level_of(strategy, given):
    return wait(lab(thinking_level=given).run(strategy, TASK)).header.strategy


def test_r12_a_labs_level_is_that_of_strategies_without_one():
    thinking = tl.WithThinking(strategy=tl.OneAnswer())
    assert level_of(thinking, "Low")["level"] == "low"
    assert level_of(thinking.with_(reflect_every=2), "high")["level"] == "high"  # a copy has no level either
    assert level_of(tl.BestOf(strategy=thinking, attempts=1), "low")["strategy"]["level"] == "low"
    for own in ("off", "medium"):
        assert level_of(thinking.with_(level=own), "low")["level"] == own
        assert level_of(tl.WithThinking(strategy=tl.OneAnswer(), level=own), "low")["level"] == own
    assert level_of(thinking, None) == thinking.settings()
    with pytest.warns(RuntimeWarning, match=r"thinking_level='high' of the lab has no effect on one_answer"):
        assert level_of(tl.OneAnswer(), "high") == tl.OneAnswer().settings()
    with pytest.warns(UserWarning, match="unknown thinking level 'most'"):
        assert level_of(thinking, "most")["level"] == "off"


# The profile.


@tl.tool
def essay() -> str:
    """A long text."""
    return "words " * 5_000


@pytest.mark.slow
def test_s2_a_profile_sets_how_much_of_a_result_the_model_is_shown():
    def reading(call):
        if len(call.messages) == 1:
            return tl.Reply(tool_calls=(tl.records.ToolCall("a", "essay", "{}"),))
        return answering(call)

    def shown(strategy, profile):
        made = wait(lab(Scripted(reading), profile=profile, tools=[essay]).run(strategy, TASK))
        assert made.tools_df()["result"][0].startswith("words " * 3_000)  # the record has what the tool gave
        return next(len(m.content) for call in calls_of(made) for m in call.messages if m.role == "tool")

    for profile, limit in [
        ("local", 2_000),
        ("mid", 4_000),
        ("large", 8_000),
        ("frontier", 16_000),
        (None, 4_000),
    ]:
        for strategy in (tl.ToolLoop(), tl.ReAct(max_iterations=2)):
            assert limit <= shown(strategy, profile) < limit + 200
    own = tl.ToolLoop(max_result_characters=300)
    assert 300 <= shown(own, "frontier") < 500


def test_s2_a_profile_fits_histories_prompts_and_nested_strategies():
    def prepared(strategy, profile):
        return tl.Lab(Scripted(), runs=None, profile=profile).runner.prepared(strategy)

    assert set(PROFILES) == {"local", "mid", "large", "frontier"}
    strategies = [
        tl.WithSynthesis(strategy=tl.ReAct()),
        tl.PlanExecute(),
        tl.DeepThink(),
        tl.Adaptive(),
        tl.Reflexion(),
        tl.TreeOfThoughts(propose=tl.WithTools()),
    ]
    for strategy in strategies:
        assert prepared(strategy, None) is strategy
        assert prepared(strategy, "mid") == strategy  # today's defaults
        local = prepared(strategy, "local")
        assert local != strategy
        assert prepared(local, "frontier") == local  # what was filled in was given
    assert prepared(strategies[0], "local") == tl.WithSynthesis(
        strategy=tl.ReAct(max_result_characters=2_000), above=500
    )
    assert prepared(strategies[1], "large").tier == "large"
    assert prepared(strategies[1], "large").strategy.max_result_characters == 8_000
    assert prepared(tl.DeepThink(tier="local"), "large").tier == "local"
    assert prepared(strategies[3], "local").settings() != strategies[3].settings()
    assert prepared(strategies[5], "local").propose.max_result_characters == 2_000
    with pytest.raises(ValueError, match="profile must be one of local, mid, large, frontier: got 'huge'"):
        lab(profile="huge")


# The ids, and all of it together.


def test_s2_ids_are_in_the_header_and_nowhere_without_them(tmp_path):
    made = wait(lab(runs=tmp_path, agent_id="scout", session_id="monday").run(tl.OneAnswer(), TASK))
    loaded = tl.load(made.path).header
    assert (loaded.agent_id, loaded.session_id) == ("scout", "monday")
    plain = wait(lab(runs=tmp_path).run(tl.OneAnswer(), TASK))
    assert not {"agent_id", "session_id"} & json.loads(msgspec.json.encode(plain.header)).keys()


class Reads(tl.Strategy):
    """A strategy of one's own, which answers with what it reads of its lab."""

    kind = "tests/reads"

    def think(self, task, at="0"):
        yield tl.Thought(at, tl.records.parent_of(at), task.question)
        lab = task.lab
        read = (lab.profile, lab.result_characters, lab.history_tokens, lab.agent_id, lab.session_id)
        text = f"{read} {task.system_prompt}"
        yield tl.Thought(f"{at}.0", at, text)
        return tl.Answer(text, "answered", f"{at}.0")


@pytest.mark.parametrize(
    "strategy", [Reads(), tl.BestOf(strategy=Reads(), attempts=1), tl.WithThinking(strategy=Reads())]
)
def test_s2_r12_every_strategy_can_read_the_context_of_its_lab(strategy, tmp_path):
    given = {"profile": "local", "agent_id": "scout", "session_id": "monday", "system_prompt": "Be brief."}
    made = wait(lab(runs=tmp_path, **given).run(strategy, TASK))
    assert made.answer == "('local', 2000, 500, 'scout', 'monday') Be brief."
    assert wait(tl.load(made.path).replay()).identical  # it is in the file
    plain = wait(lab(runs=tmp_path).run(strategy, TASK))
    assert plain.answer == "(None, 4000, 1000, '', '') "
    assert "lab" not in plain.header.task


def test_s2_r4_calls_of_tools_and_plans_are_attributed_to_the_agent():
    def reply(call):
        steps = [{"title": "Legs", "type": "tool_call", "toolName": "legs", "toolArgs": {"animal": "duck"}}]
        return json.dumps({"steps": steps}) if call.purpose == "plan" else "SATISFIED: yes\nAnswer: 2"

    known = wait(
        lab(Scripted(reply), tools=[legs], agent_id="scout", session_id="monday").run(tl.PlanExecute(), TASK)
    )
    (row,) = known.tools_df().itertuples()
    assert (row.tool, row.agent_id, row.session_id) == ("legs", "scout", "monday")
    assert known.plans[0].agent_id == "scout"
    nobody = wait(lab(Scripted(reply), tools=[legs]).run(tl.PlanExecute(), TASK))
    assert nobody.tools_df()["agent_id"].isna().all()
    assert nobody.plans[0].agent_id.startswith("plan_execute on ")


def expect_defaults(made):
    assert made.header.strategy["strategy"]["level"] == "low"
    assert made.header.strategy["strategy"]["strategy"]["max_result_characters"] == 2_000
    assert made.header.task["system_prompt"] == "Be brief."
    assert (made.header.agent_id, made.header.session_id) == ("scout", "monday")
    assert all(call.effort == "low" for call in calls_of(made) if call.purpose == "act")


@pytest.mark.slow
def test_the_defaults_travel_with_the_settings_of_a_lab(tmp_path):
    holding = lab("sim/general", runs=tmp_path, cache=tmp_path / "calls", **DEFAULTS)
    strategy = DEFAULTS["strategy"]

    async def streamed():
        stream = holding.stream(TASK)
        async for _ in stream:
            pass
        return stream.run

    sweep = wait(holding.sweep(strategy, [TASK]))
    again = wait(holding.sweep(strategy, [TASK]))
    assert (again.found, again.by_id.keys()) == (1, sweep.by_id.keys())
    other = wait(lab("sim/general", runs=tmp_path).sweep(strategy, [TASK]))
    assert other.found == 0
    first = wait(holding.run(TASK))
    for_each(
        [
            first,
            wait(streamed()),
            wait(holding.replaying().run(TASK)),
            next(sweep.runs()),
            wait(tl.Session(holding).ask(strategy, TASK)),
        ],
        expect_defaults,
    )
    assert wait(first.replay()).identical


@pytest.mark.nightly
def test_dask_workers_have_the_defaults(tmp_path):
    distributed = pytest.importorskip("distributed")
    holding = lab("sim/general", runs=tmp_path, **DEFAULTS)
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster) as client:
        sweep = wait(holding.sweep(DEFAULTS["strategy"], TASK, client=client))
    expect_defaults(next(sweep.runs()))


def test_another_strategy_of_a_branch_has_the_defaults():
    holding = lab("sim/general", **DEFAULTS)
    parent = wait(lab("sim/general").run(tl.TreeOfThoughts(stop=tl.Stop(depth=1)), TASK))
    with pytest.warns(RuntimeWarning, match="thinking_level='Low' of the lab has no effect on react"):
        made = wait(holding.branch(parent, "0.0", strategy=tl.ReAct()))
    assert '"max_result_characters":2000' in json.dumps(made.header.strategy, separators=(",", ":"))


def test_the_cell_of_a_lab_with_defaults_makes_them_again():
    text = cell(lab("sim/general", **DEFAULTS), tl.OneAnswer(), TASK, None)
    names = {"tl": tl}
    exec(text.split("run = await")[0], names)
    settings = names["lab"].runner.settings
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS
    assert not any(name in cell(lab("sim/general"), tl.OneAnswer(), TASK, None) for name in DEFAULTS)
