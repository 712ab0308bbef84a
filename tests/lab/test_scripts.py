"""Scripts: the blocking forms of run, sweep and think, prompts without a model, and models out of reach."""

import asyncio
import inspect
import socket
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from support import TASK, Scripted
from support.providers import Providers

import tot_lab as tl
from tot_lab.core.parts import stored_settings
from tot_lab.testing import wait


def test_a_script_waits_for_run_sweep_and_think(tmp_path):
    lab = tl.Lab("sim/general", runs=tmp_path)
    assert lab.run_sync(tl.OneAnswer(), TASK) is lab.last
    assert lab.sweep_sync({"one": tl.OneAnswer()}, TASK, repeats=2).df().shape[0] == 2
    assert tl.think_sync("Why?", lab, gather=False).stop_reason
    assert inspect.signature(tl.Lab.run_sync) == inspect.signature(tl.Lab.run)
    assert not inspect.iscoroutinefunction(lab.run_sync)


@pytest.mark.parametrize("name", ["run", "sweep"])
def test_a_running_loop_is_a_clear_error_and_makes_no_call(name):
    model = Scripted()

    async def notebook():
        getattr(tl.Lab(model, runs=None), f"{name}_sync")(tl.OneAnswer(), TASK)

    with pytest.raises(RuntimeError, match=rf"Write `await lab\.{name}\(…\)`"):
        asyncio.run(notebook())
    assert not model.calls


def test_threads_share_a_lab():
    together = Barrier(4, timeout=10)

    async def model(call):
        await asyncio.to_thread(together.wait)  # all four are under way at once
        return "Answer: 26"

    lab = tl.Lab(model, runs=None)
    with ThreadPoolExecutor(4) as threads:
        made = [threads.submit(lab.run_sync, tl.OneAnswer(), tl.general(f"{k}?")) for k in range(4)]
        runs = [one.result() for one in made]
    assert [run.answer for run in runs] == ["26"] * 4
    assert [run.question for run in runs] == [f"{k}?" for k in range(4)]


def test_a_server_out_of_reach_is_warned_about_once_and_nothing_counts_as_sent():
    lab = tl.Lab(tl.OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1"), runs=None, mode="off")
    with pytest.warns(UserWarning, match=r"No server answers at http://127\.0\.0\.1:9/v1 for m") as caught:
        sweep = lab.sweep_sync(tl.SelfConsistency(attempts=3), [tl.general("a?"), tl.general("b?")])
    run = lab.run_sync(tl.OneAnswer(), TASK)  # a second warning would be an error
    problem = "No server answers at http://127.0.0.1:9/v1 for m. Start it, or set base_url of the model."
    assert len(caught) == 1
    assert run.usage == (0, 0, 0, 0, 0.0, 0.0)
    assert run.calls_df()[["made", "error"]].to_dict("records") == [{"made": False, "error": problem}]
    assert run.failure == problem
    assert run.nodes_df()["calls"].sum() == 0
    assert "calls     0 ·" in repr(run)
    assert run.diagnostics["failed_calls"] == 1
    assert tl.diagnose(run).of("failed_calls")
    assert sweep.df()["calls"].sum() == 0
    assert sweep.counts[2:] == (0, 0)  # neither sent nor saved
    assert lab.spent == 0


def test_a_sweep_that_goes_on_when_its_server_is_back_counts_what_was_sent(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = tl.OpenAICompatible(model="m", base_url=f"http://127.0.0.1:{port}/v1")
    asked = tl.OneAnswer(), [tl.general("a?"), tl.general("b?")]

    def counted():
        with warnings.catch_warnings(action="ignore"):  # calls were lost
            return tl.Lab(model, runs=tmp_path / "runs", cache=tmp_path / "calls").sweep_sync(*asked).counts

    assert counted() == (0, 0, 0, 0)
    with Providers(port=port):
        assert counted() == (2, 2, 2, 0)
    assert counted() == (2, 2, 2, 0)  # read from the journals


def test_a_missing_key_names_what_to_set_in_each_lab(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    again = {"answer": "gpt-4.1-mini"}  # another route to the same model
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # that of a script, which shows a warning of one place once
        for _ in range(2):
            lab = tl.Lab("gpt-4.1-mini", roles=again, runs=None, mode="off")
            assert "OPENAI_API_KEY" in lab.run_sync(tl.OneAnswer(), TASK).failure
            assert lab.run_sync(tl.TreeOfThoughts(), TASK).failure
    assert ["OPENAI_API_KEY" in str(one.message) for one in caught] == [True, True]


# Prompts.


def test_a_preview_shows_each_prompt_with_its_slots_filled(monkeypatch):
    search = tl.TreeOfThoughts(
        model="gpt-4.1-mini",  # never called
        propose=tl.Propose(count=3, prompt="P|{problem}|{steps}|{count}"),
        evaluate=tl.Value(prompt=r"V|{problem}|{candidate}|\boxed{answer}|{{x}}"),
    )
    shown = search.preview(tl.game24("4 9 10 13"))
    assert "P|4 9 10 13|(no steps yet)|3" in shown
    value = next(line for line in shown.splitlines() if line.startswith("V|"))
    assert value.startswith("V|4 9 10 13|")
    assert "(left: " in value
    assert value.endswith(r"|\boxed{answer}|{{x}}")
    assert "value (after simulated replies)" in shown
    assert "propose (after" not in shown


def test_a_preview_is_what_is_sent_and_works_in_a_running_loop():
    model = Scripted()
    strategy = tl.OneAnswer()

    async def notebook():
        shown = strategy.preview(TASK)
        await tl.Lab(model, runs=None).run(strategy, TASK)
        return shown

    assert asyncio.run(notebook()).endswith(model.calls[0].prompt)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: tl.Propose(prompt="{question}"),
            "unknown slot {question}. The slots are {problem}, {steps}, {count}",
        ),
        (lambda: tl.Sample(prompt="{problem} {candidate}"), "unknown slot {candidate}"),
        (lambda: tl.Value(prompt="{problem} {steps}"), "must contain {candidate}"),
        (lambda: tl.Value(prompt="{problem} {candidates}"), "unknown slot {candidates}"),
        (lambda: tl.Vote(prompt="{problem} {steps}"), "must contain {candidates}"),
        (lambda: tl.Value(prompt="{candidate}"), "must contain {problem}"),
        (lambda: tl.evaluators.RewardModel(prompt="{problem} {candidate}"), "unknown slot {candidate}"),
    ],
)
def test_a_template_with_other_slots_is_an_error(make, says):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert says in str(caught.value)
    assert "The slots are " in str(caught.value)


def test_a_stored_run_with_such_a_template_is_loaded_replayed_and_branched(tmp_path):
    with stored_settings():  # as before templates were checked
        evaluate = tl.Value(prompt="{problem} {steps} {mark}")
        strategy = tl.TreeOfThoughts(evaluate=evaluate, search=tl.BeamSearch(width=2))
    lab = tl.Lab("sim/game24", cache=str(tmp_path), runs=None)
    wait(lab.run(strategy, TASK)).save(tmp_path / "run.jsonl")
    run = tl.load(tmp_path / "run.jsonl")
    assert run.strategy.evaluate.prompt == "{problem} {steps} {mark}"
    assert wait(run.replay()).identical
    kept = next(node.id for node in run.tree if node.depth == 1 and node.state == "kept")
    assert wait(lab.branch(run, kept, score=1.0)).tree[kept].score == 1.0
    with pytest.raises(ValueError, match=r"unknown slot \{mark\}"):
        run.strategy.evaluate.with_(prompt="{problem} {candidate} {mark}")


def test_a_template_without_slots_is_the_system_text():
    shown = tl.TreeOfThoughts(evaluate=tl.Value(prompt="Be strict.")).preview(TASK)
    assert "[system]\nBe strict.\n[user]\n" in shown
