"""FLOPs of model calls and the time of a run alone, as folds over records: against second implementations."""

from random import Random

import pandas
import pytest
from support import TASK, Scripted, answer_to, wait
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.analysis.tables import runs_df
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Ended, Line, Note
from tot_lab.record.compute import Compute, compute_of, flops_by_call

TREE = tl.TreeOfThoughts(stop=tl.Stop(solved=None, depth=2))


def counted(call):
    return Reply(answer_to(call), input_tokens=10, output_tokens=3)


def readable(call):
    return Reply("score: 0.5" if call.purpose == "value" else call.prompt, input_tokens=10, output_tokens=3)


def lab(roles, reply=counted, **settings):
    return tl.Lab(Scripted(reply), roles=roles, **{"runs": None, **settings})


# FLOPs.


def test_each_role_has_parameters_of_its_own():
    run = wait(lab({"propose": {"params": 1.5e9}, "evaluate": {"params": 7e9}}).run(TREE, TASK))
    calls = run.calls_df()
    size = calls["purpose"].map({"sample": 1.5e9, "value": 7e9})
    assert set(calls["purpose"]) == {"sample", "value"}
    assert list(calls["flops"]) == list(2 * size * 13)
    assert run.compute.flops == calls["flops"].sum()
    assert run.compute.flops_prefix_once == calls["flops_prefix_once"].sum() < run.compute.flops


def model_named(name):
    async def model(call):
        return Reply("score: 0.5" if call.purpose == "value" else "a step", None, "", name, 10, 3)

    return model


def test_parameters_of_a_role_with_a_model_are_those_of_its_model():
    """`small` answers the proposals of the strategy, which names it, and the judge is that of its role."""
    roles = {
        "small": {"model": model_named("small"), "params": 2e9},
        "evaluate": {"model": model_named("judge"), "params": 5e9},
        "propose": {"params": 1e9},  # a role for calls that name no other one
    }
    run = wait(lab(roles).run(TREE.with_(model="small"), TASK))
    assert set(run.calls_df()["flops"]) == {2 * 2e9 * 13}, "the strategy's model takes precedence"
    run = wait(lab(roles).run(TREE, TASK))
    assert set(run.calls_df()["flops"]) == {2 * 1e9 * 13, 2 * 5e9 * 13}
    unsized = {**roles, "small": model_named("small")}
    run = wait(lab(unsized).run(TREE.with_(model="small"), TASK))
    assert run.calls_df()["flops"].isna().all(), "another model than that of the role `propose`"


def test_parameters_of_a_reward_model_of_the_strategy():
    async def rewards(call):
        return Reply("0.5", input_tokens=40, output_tokens=0)

    tree = TREE.with_(evaluate=tl.evaluators.RewardModel(model=rewards))
    run = wait(lab({"propose": {"params": 1e9}, "evaluate": {"params": 7e9}}).run(tree, TASK))
    calls = run.calls_df().groupby("purpose")["flops"].first()
    assert dict(calls) == {"reward": 2 * 7e9 * 40, "sample": 2 * 1e9 * 13}


@pytest.mark.parametrize("roles", [None, {}, {"propose": {"params": 1.5e9}}])
def test_unknown_parameters_are_missing_and_never_zero(roles):
    run = wait(lab(roles).run(TREE, TASK))
    assert run.compute[:2] == (None, None)
    judged = run.calls_df()["purpose"] == "value"
    assert run.calls_df()["flops"][judged].isna().all()
    df = runs_df([run], "a test")
    assert df[["flops", "flops_prefix_once"]].isna().all(axis=None)


def test_unknown_tokens_are_missing_and_failed_calls_cost_nothing():
    def reply(call):
        return Reply(error="down") if call.sample_index == 1 else counted(call)

    chains = tl.SelfConsistency(attempts=3)
    sized = {"answer": {"params": 1e9}}
    assert wait(lab(sized, answer_to).run(chains, TASK)).compute.flops is None
    failing = wait(lab(sized, lambda call: Reply(error="down")).run(chains, TASK))
    assert failing.compute[:2] == (0, 0)
    flaky = wait(
        lab({**sized, "propose": {"params": 1e9}, "evaluate": {"params": 1e9}}, reply).run(TREE, TASK)
    )
    assert flaky.compute.flops == 2e9 * 13 * (flaky.usage.calls - flaky.usage.errors)


@pytest.mark.parametrize("size", [0, -1, float("inf"), float("nan"), "7B", True])
def test_parameters_are_a_positive_number(size):
    with pytest.raises(ValueError, match="role 'propose'"):
        tl.Lab("sim/game24", roles={"propose": {"params": size}})


# Shared prefixes.


def calls_and_replies(conversations):
    """Records of calls in program order; a conversation is its messages and the reply."""
    lines = []
    for k, (messages, written) in enumerate(conversations):
        call = Call("0", "answer", tuple(Message(*message) for message in messages), sample_index=k)
        size = len(written_out(messages))
        lines += [Line((k,), k, call), Line((k,), k, Reply(written, input_tokens=size, output_tokens=1))]
    return lines


def written_out(messages):
    return "".join(f"\x1e{role}\n{content}" for role, content in messages)


def once(conversations):
    found = flops_by_call(calls_and_replies(conversations), {"answer": 0.5}, ()).values()
    return [flops.flops_prefix_once - 1 for flops in found]  # one generated token each


def test_a_prefix_counts_once_as_in_a_tree_of_all_characters():
    """With one token a character, what counts is the number of nodes that each prompt adds to a trie."""
    rng = Random(3)
    for _ in range(300):
        conversations = []
        for _ in range(rng.randint(0, 12)):
            text = "".join(rng.choice("ab") for _ in range(rng.randint(0, 7)))
            begun = [("assistant", "".join(rng.choice("ab") for _ in range(3)))] * rng.randint(0, 1)
            written = "".join(rng.choice("ab") for _ in range(rng.randint(0, 4)))
            conversations.append(([("user", text), *begun], written))
        trie: set[str] = set()
        wanted = []
        for messages, written in conversations:
            prompt = written_out(messages)
            wanted.append(sum(prompt[:end] not in trie for end in range(1, len(prompt) + 1)))
            whole = (
                prompt + written if len(messages) == 2 else written_out([*messages, ("assistant", written)])
            )
            trie.update(whole[:end] for end in range(1, len(whole) + 1))
        assert once(conversations) == wanted


def test_samples_of_one_prompt_read_it_once():
    prompt = [("user", "How many legs has a spider?")]
    first = len(written_out(prompt))
    assert once([(prompt, "eight"), (prompt, "8"), (prompt, "six")]) == [first, 0, 0]


def test_the_prompt_of_a_failed_call_was_not_read():
    def reply(call):
        return Reply(error="down") if call.attempt == (0,) else counted(call)

    run = wait(lab({"answer": {"params": 0.5}}, reply).run(tl.SelfConsistency(attempts=4), TASK))
    assert list(run.calls_df()["flops_prefix_once"]) == [0, 13, 3, 3]


def test_a_step_continues_the_reply_before_it():
    """The separator alone is new: the steps before were generated, and count as such."""
    problem = ("user", "2 + 2 + 2?")
    steps = [
        ([problem], "2 + 2 = 4"),
        ([problem, ("assistant", "2 + 2 = 4\n\n")], "4 + 2 = 6"),
        ([problem, ("assistant", "2 + 2 = 4\n\n4 + 2 = 6\n\n")], "Answer: 6"),
    ]
    assert once(steps)[1:] == [2, 2]


def test_different_models_share_nothing():
    roles = {"propose": {"params": 1e9}, "evaluate": {"params": 1e9, "model": model_named("judge")}}
    run = wait(lab(roles).run(TREE.with_(evaluate=tl.Value(prompt="Problem:\n{problem}\n{candidate}")), TASK))
    first = run.calls_df().drop_duplicates("purpose").set_index("purpose")
    prompts = first["prompt"]
    assert all(prompt.startswith("Problem:") for prompt in prompts)
    assert list(first["flops"]) == list(first["flops_prefix_once"])


def test_prompts_that_a_log_lacks_are_unknown_prefixes():
    lines = calls_and_replies([([("user", "a")], "b")])
    size = len(written_out([("user", "a")]))
    assert compute_of(lines, {"answer": 0.5}, ["prompts"])[:2] == (size + 1, None)
    assert compute_of(lines, {"answer": 0.5}, ["calls"])[:2] == (None, None)


# The setting.


def test_parameters_change_no_run(tmp_path):
    """A sweep gets its FLOPs afterwards: the runs are found, and their files stay as they are."""

    def sweep(roles):
        return wait(lab(roles, runs=tmp_path).sweep(TREE, TASK))

    before = sweep({"evaluate": {"temperature": 0.5}})
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    after = sweep({"evaluate": {"temperature": 0.5, "params": 7e9}, "propose": {"params": 1e9}})
    assert before.df()["flops"].isna().all()
    assert after.found == 1
    assert after.df()["run_id"].tolist() == before.df()["run_id"].tolist()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == files
    (run,) = after.runs()
    assert after.df()["flops"].tolist() == [run.compute.flops] == [run.calls_df()["flops"].sum()]


def test_a_loaded_run_takes_parameters(tmp_path):
    run = wait(lab(None).run(TREE, TASK))
    loaded = tl.load(run.save(tmp_path / "a.jsonl"))
    assert loaded.compute.flops is None
    loaded.params = {"propose": 1e9, "value": 2e9}
    assert loaded.compute.flops == loaded.calls_df()["flops"].sum() > 0
    sized = wait(lab({"propose": {"params": 1e9}, "evaluate": {"params": 2e9}}).run(TREE, TASK))
    assert tl.load(sized.save(tmp_path / "b.jsonl")).compute[:2] == loaded.compute[:2] == sized.compute[:2]


# The time of a run alone.


def timed(*calls, notes=()):
    """Records of calls (position, asked, answered)."""
    lines = []
    for place, asked, answered in calls:
        lines.append(Line(place, asked, Call("0", "answer", ())))
        lines.append(Line(place, answered, Reply("", input_tokens=1, output_tokens=1)))
    lines += [
        Line((), time, Note(name, "0", {"call": list(place), "tries": 1})) for place, time, name in notes
    ]
    return [*sorted(lines, key=lambda line: line.t), Line((99,), 99.0, Ended("answered"))]


def alone(*calls, notes=(), unknown=()):
    return compute_of(timed(*calls, notes=notes), {}, unknown).seconds_alone


def test_calls_that_follow_each_other_add_up_and_the_gaps_do_not():
    assert alone(((0,), 1, 3), ((1,), 7, 8)) == 3


def test_of_calls_at_once_the_longest_chain_counts():
    """Two branches of two calls each, and then one more call."""
    branches = [((1, 0, 0), 0, 2), ((1, 0, 1), 2, 3), ((1, 1, 0), 0, 1), ((1, 1, 1), 1, 6)]
    assert alone(*branches, ((2,), 10, 11)) == 7


def test_of_nested_branches_the_longest_chain_counts():
    inner = [((0, 0, 0), 0, 1), ((0, 0, 1, 0, 0), 1, 2), ((0, 0, 1, 1, 0), 1, 5), ((0, 1, 0), 0, 4)]
    assert alone(*inner) == 5


def test_branches_that_ran_one_after_the_other_add_up():
    """As with `parallel=False`: the next branch begins after the last reply of the one before."""
    assert alone(((0, 0, 0), 0, 2), ((0, 1, 0), 2.5, 4.5), ((0, 2, 0), 5, 6)) == 5
    two_at_a_time = [((0, 0, 0), 0, 2), ((0, 1, 0), 0, 3), ((0, 2, 0), 2.5, 4.5), ((0, 3, 0), 3.5, 4)]
    assert alone(*two_at_a_time) == 4


def test_waiting_for_a_limit_and_failed_tries_do_not_count():
    notes = [((0,), 5, "call.queued"), ((0,), 10, "call.sent"), ((0,), 14, "call.sent")]
    assert alone(((0,), 0, 15), notes=notes) == 1


@pytest.mark.parametrize("how", ["call.cached", "call.joined", "call.queued"])
def test_a_call_whose_duration_is_not_known_makes_the_time_unknown(how):
    assert alone(((0,), 0, 1), notes=[((0,), 0.5, how)]) is None
    assert alone(((0,), 0, 1), unknown=["durations"]) is None
    open_call = [*timed(((0,), 0, 1)), Line((1,), 3, Call("0", "answer", ()))]
    assert compute_of(open_call, {}, ()).seconds_alone is None


def test_a_run_without_calls_takes_no_time():
    assert compute_of([Line((0,), 0.0, Ended("answered"))], {}, ()) == Compute(0, 0, 0)


def test_a_run_that_waits_for_others_has_the_time_of_its_own_calls():
    """One request at a time for all runs: a run waits longer than its own longest call takes."""
    endpoint = scripted(lambda call: "Answer: 4", seconds=0.02, concurrency=1)
    tasks = [tl.general(f"{k} + {k}?") for k in range(3)]
    sweep = wait(tl.Lab(endpoint, runs=None, mode="off").sweep(tl.SelfConsistency(attempts=3), tasks))
    for row, run in zip(sweep.df().itertuples(), sweep.runs(), strict=True):
        calls = run.calls_df()
        own = calls["asked"] + calls["seconds"] - calls["sent"]
        assert row.seconds_alone == pytest.approx(own.max())
        assert own.max() < own.sum() <= row.seconds


def test_cached_replies_leave_the_time_unknown(tmp_path):
    def sweep(strategy):
        made = tl.Lab(scripted(lambda call: "Answer: 4"), runs=None, cache=tmp_path)
        return wait(made.sweep(strategy, tl.general("2 + 2?")))

    first, second = sweep(tl.SelfConsistency(attempts=2)), sweep(tl.SelfConsistency(attempts=3))
    assert first.df()["seconds_alone"].notna().all()
    assert second.df()["seconds_alone"].isna().all()


# Where tokens and USD are axes.


@pytest.mark.slow
def test_flops_are_an_axis_of_anytime_performance_and_of_matched_cost():
    sized = {"propose": {"params": 1e9}, "evaluate": {"params": 7e9}}
    run = wait(lab(sized, readable).run(TREE, TASK))
    for unit in ("flops", "flops_prefix_once"):
        calls = run.calls_df()
        in_order = sorted(calls.index, key=lambda k: [*map(int, calls["position"][k].split("."))])
        spent = calls.loc[in_order]
        total = 0.0
        for number, amount in enumerate(spent[unit], 1):
            total += amount
            (row,) = tl.stats.anytime_performance(run, [total], unit=unit).itertuples()
            assert (row.calls, getattr(row, unit)) == (number, pytest.approx(total))
        (row,) = tl.stats.anytime_performance(run, [total * 0.999], unit=unit).itertuples()
        assert row.calls == number - 1
        points = tl.stats.anytime_performance(run, unit=unit)
        assert points["at"].iloc[-1] >= total
        assert points["calls"].iloc[-1] == run.usage.calls
        assert tl.stats.at_matched_cost([run], total, unit=unit)["tasks"].tolist() in ([0], [1])
    with pytest.raises(ValueError, match=r"FLOPs of some calls are unknown: .*params"):
        tl.stats.anytime_performance(wait(lab(None).run(TREE, TASK)), unit="flops")


@pytest.mark.slow
def test_flops_and_the_time_alone_are_axes_of_scaling():
    sweep = wait(
        tl.Lab("sim/game24", runs=None, roles={"answer": {"params": 1.5e9}}).sweep(
            {"vote": tl.grid(tl.SelfConsistency, attempts=[2, 8])}, tl.game24_tasks(3)
        )
    )
    for cost, title in (("flops", "FLOPs (per run)"), ("flops_prefix_once", "shared prefixes once")):
        figure = tl.figures.plot_scaling(sweep, cost=cost)
        means = sweep.df().groupby("setting", observed=True)[cost].mean()
        assert list(figure.data[0].x) == pytest.approx(sorted(means))
        assert title in figure.layout.xaxis.title.text
        assert "e+" in figure.data[0].hovertext[0]
    assert "alone" in tl.figures.plot_scaling(sweep, cost="seconds_alone").layout.xaxis.title.text
    assert tl.stats.pareto_frontier(sweep, unit="flops")["flops"].notna().all()


def test_a_frame_of_several_runs_has_the_columns():
    runs = [wait(lab({"answer": {"params": 1e9}}).run(tl.OneAnswer(), TASK)) for _ in range(2)]
    df = runs_df(runs, "a test")
    assert list(df["flops"]) == [2e9 * 13] * 2
    assert isinstance(df["seconds_alone"].dtype, pandas.Float64Dtype)
    assert df["seconds_alone"].notna().all()
