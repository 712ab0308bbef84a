"""Lost calls are counted by role, carried by every result about several runs, and warned of above 5 %."""

import asyncio
import json
import re
import warnings
from types import SimpleNamespace

import pandas as pd
import pytest
from support import TASK, Scripted, answer_to, run, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.record.journal import Header
from tot_lab.record.losses import Losses, columns_of, describe, losses_of
from tot_lab.views.figures import figures_of
from tot_lab.views.figures.calibration import plot_calibration
from tot_lab.views.figures.heatmap import plot_heatmap
from tot_lab.views.figures.sweep import plot_sweep
from tot_lab.views.report import report_html

TREE = tl.TreeOfThoughts(propose=tl.Propose(count=3), stop=tl.Stop(depth=2))
TASKS = [
    tl.general(f"How many legs have {k} spiders and a duck?", answer=8 * k + 2, grade="number")
    for k in range(1, 5)
]
JUDGED = ("value", "judge", "part", "vote", "joint", "logprob")


def good(call: Call) -> Reply | str:
    """A reply of which everything can be read."""
    readable = {"value": f"score: {len(call.prompt) % 10 / 10}", "judge": "score: 0.5", "vote": "best: 1"}
    return readable.get(call.purpose) or answer_to(call)


async def judge_away(call: Call) -> Reply | str:
    """A player that raises on every call of a judge."""
    if call.purpose in JUDGED:
        raise RuntimeError("the judge is away")
    return good(call)


async def judge_mumbles(call: Call) -> Reply | str:
    """A player whose judge writes nothing readable."""
    return "hm" if call.purpose in JUDGED else good(call)


def swept(player, settings=None, **options):
    lab = tl.Lab(player, runs=None)
    return wait(lab.sweep(settings or {"tree": TREE, "at once": tl.OneAnswer()}, TASKS, **options))


def losses(strategy, player, task=TASK, **options):
    return losses_of(run(strategy, task, player, **options))


def quiet(make, *arguments, **options):
    """What `make` returns, and the warnings that it gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = make(*arguments, **options)
    return made, [str(one.message) for one in caught]


# Counting.


def test_failed_calls_are_counted_by_role():
    made = run(TREE, model=judge_away)
    found = losses_of(made)
    asked = made.calls_df().groupby("purpose").size()
    assert found["evaluate"] == Losses(asked["value"], asked["value"], 0, 0)
    assert found["propose"] == Losses(asked["propose"], 0, 0, 0)


def test_a_refused_call_was_not_made():
    made = run(TREE, model=judge_away, budget=tl.Budget(calls=2))
    found = losses_of(made)
    assert sum(lost.calls for lost in found.values()) == made.usage.calls == 2
    assert sum(lost.failed for lost in found.values()) == made.usage.errors


class Alternating:
    """A player of which every `every`-th reply to a judge's call cannot be read; it counts them."""

    def __init__(self, every: int, bad: str | None = "hm") -> None:
        self.every, self.bad = every, bad
        self.asked = self.lost = 0

    async def __call__(self, call: Call) -> Reply | str:
        if call.purpose in JUDGED:
            self.asked += 1
            if self.asked % self.every == 0:
                self.lost += 1
                if self.bad is None:
                    raise RuntimeError("away")
                return self.bad
        return good(call)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"evaluate": "value"},
        {"evaluate": "value", "evaluate.samples": 3},
        {
            "evaluate": "value",
            "evaluate.samples": 3,
            "evaluate.max_parse_retries": 2,
        },
        {"evaluate": "value", "evaluate.max_parse_retries": 1},
        {"evaluate": "vote"},
        {"evaluate": "vote", "evaluate.samples": 3},
        {
            "evaluate": "vote",
            "evaluate.samples": 2,
            "evaluate.max_parse_retries": 2,
        },
        {"evaluate": "joint"},
        {"evaluate": "joint", "evaluate.samples": 3},
        {"evaluate": "joint", "evaluate.max_parse_retries": 2},
    ],
    ids=str,
)
def test_every_reply_of_an_evaluator_that_cannot_be_read_is_counted_once(options, every):
    for generate in ("propose", "sample"):
        player = Alternating(every)
        found = losses(TREE.with_({**options, "propose": generate}), player)
        assert found["evaluate"] == Losses(player.asked, 0, player.lost, 0)
        player = Alternating(every, bad=None)
        found = losses(TREE.with_({**options, "propose": generate}), player)
        assert found["evaluate"] == Losses(player.asked, player.lost, 0, 0)


@pytest.mark.parametrize("every", [1, 2])
def test_parts_and_judged_attempts_are_counted_too(every):
    player = Alternating(every)
    found = losses(tl.BestOf(strategy=tl.ChainOfThought(), attempts=4), player)
    assert found["evaluate"] == Losses(4, 0, player.lost, 0)
    player, solver = Alternating(every, bad="?"), tl.sim.SimMiniCrossword(skill=0.5)

    async def asked(call):
        reply = await player(call)
        return reply if reply == "?" else await solver(call)

    search = tl.presets.mini_crossword().model_copy(update={"stop.nodes": 12})
    found = losses(search, asked, tl.domains.mini_crossword_tasks(1)[0], budget=tl.Budget(calls=60))
    assert search.evaluate == tl.evaluators.Parts()
    assert found["evaluate"].unreadable == player.lost > 0
    assert found["evaluate"].calls == player.asked


def test_proposals_answers_and_structured_replies_are_counted():
    garbled = tl.sim.SimGame24(garble=1.0)
    found = losses(
        tl.TreeOfThoughts(propose=tl.Propose(max_parse_retries=2), evaluate=tl.Value(max_parse_retries=2)),
        garbled,
        tl.game24("4 5 6 10"),
    )
    assert found["propose"] == Losses(3, 0, 3, 0)
    found = losses(tl.ChainOfThought(), garbled, tl.game24("4 5 6 10"))
    assert found["answer"] == Losses(1, 0, 1, 0)
    found = losses(tl.PlanExecute(), lambda call: asyncio.sleep(0, "no JSON at all"))
    assert found["plan"].unreadable == found["plan"].calls > 1


def cut_off(call: Call) -> Reply:
    made = good(call)
    made = made if isinstance(made, Reply) else Reply(made)
    return Reply(made.text, finish_reason="length", logprobs=made.logprobs)


def test_truncated_replies_are_counted_but_not_where_one_token_is_wanted():
    found = losses(TREE, Scripted(cut_off))
    assert found["propose"].truncated == found["propose"].calls > 0
    assert found["evaluate"].truncated == found["evaluate"].calls > 0
    found = losses(TREE.model_copy(update={"evaluate": "logprob"}), Scripted(cut_off))
    assert found["propose"].truncated == found["propose"].calls
    assert (found["evaluate"].calls > 0, found["evaluate"].truncated) == (True, 0)


class Own(tl.Strategy):
    """Asks in words of its own, and scores without samples."""

    kind = "own_words"
    purpose: str = "muse"

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        reply = yield from tl.ask(Call(at, self.purpose, (tl.records.Message("user", "?"),)))
        value = yield from tl.ask(Call(at, "value", (tl.records.Message("user", "?"),)))
        yield tl.Thought(f"{at}.0", at, reply.text)
        yield tl.records.Scored(f"{at}.0", 0.5, by="value")
        return tl.Answer(value.text, "answered", f"{at}.0")

    def max_calls(self, task):
        return 2


def test_a_strategy_of_ones_own_is_not_suspected():
    found = losses(Own(), lambda call: asyncio.sleep(0, "7"))
    assert found == {"other": Losses(1, 0, 0, 0), "evaluate": Losses(1, 0, 0, 0)}


def test_a_purpose_of_ones_own_may_name_its_role():
    found = losses(Own(purpose="critique:muse"), lambda call: asyncio.sleep(0, "7"))
    assert found == {"critique": Losses(1, 0, 0, 0), "evaluate": Losses(1, 0, 0, 0)}
    found = losses(Own(purpose="nothing:muse"), lambda call: asyncio.sleep(0, "7"))
    assert found["other"] == Losses(1, 0, 0, 0)


class TwoSamples(tl.Sample):
    """A proposer derived from another."""

    kind = "two_samples"
    count: int = 2


def test_a_derived_proposer_makes_calls_of_the_same_purpose():
    made = run(tl.TreeOfThoughts(propose=TwoSamples(), stop=tl.Stop(depth=2)), model=Scripted(good))
    assert {*losses_of(made)} == {"propose", "evaluate"}
    assert "sample" in made.calls_df()["purpose"].unique()


class ValueOfOnesOwn(tl.evaluators.Value):
    """A user's evaluator with the prompt and the purpose of a built-in one."""


@pytest.mark.parametrize("samples", [1, 3])
def test_a_derived_evaluator_is_counted_as_its_base(samples):
    def player(call):
        return "???" if call.purpose == "value" and call.node.endswith("1") else good(call)

    made = [
        losses(TREE.with_(evaluate=kind(samples=samples, max_parse_retries=1)), Scripted(player))
        for kind in (tl.evaluators.Value, ValueOfOnesOwn)
    ]
    assert made[0] == made[1]
    assert made[0]["evaluate"].unreadable > 0


def test_a_loaded_run_counts_the_same_and_a_published_log_is_unknown(tmp_path):
    made = run(TREE, model=Alternating(2))
    assert losses_of(tl.load(made.save(tmp_path / "a.jsonl"))) == losses_of(made)
    published = tl.Run(Header.now(unknown=("prompts", "replies", "times", "calls")), made.lines)
    assert losses_of(published) is None
    frame = tl.stats.lost_calls([published])
    assert frame["calls"].isna().all()
    assert (
        tl.stats.success_rates(pd.DataFrame({"setting": ["a"], "task": ["t"], "correct": [True]}))["lost"]
        .isna()
        .all()
    )


# What is said about several runs.


@pytest.mark.slow
def test_a_judge_that_is_away_is_seen_in_every_result():
    sweep = swept(judge_away)
    share = "evaluate 100.0% failed"
    for make in (
        lambda: tl.stats.success_rates(sweep),
        lambda: tl.stats.at_matched_cost(sweep, 6),
        lambda: tl.stats.pareto_frontier(sweep),
        lambda: tl.stats.success_rates(list(sweep.runs())),
        lambda: tl.stats.success_rates(iter(list(sweep.runs()))),
    ):
        shown, said = quiet(make)
        assert list(shown["lost"]) == [share, "none"]
        (text,) = said
        assert text.startswith("More than 5% of the calls or replies of a role were lost: ")
        assert re.search(r": (\d+) of \1 evaluate calls failed \(100.0%\)\.", text)
    sweep, share = swept(judge_mumbles), "evaluate 100.0% unreadable"  # its runs answer, and can be compared
    found, said = quiet(tl.stats.compare, sweep, "tree", "at once")
    assert (found.lost_a, found.lost_b, len(said)) == (share, "none", 1)
    pairs, said = quiet(tl.stats.compare_all, sweep)
    assert (list(pairs["lost_a"]), list(pairs["lost_b"]), len(said)) == ([share], ["none"], 1)


def test_the_columns_of_a_sweep_hold_the_counts_and_lost_calls_the_shares():
    sweep = swept(Alternating(3))
    frame = sweep.df()
    roles = ["propose", "evaluate", "answer"]
    names = [f"{role}_{kind}" for role in roles for kind in ("calls", "failed", "unreadable", "truncated")]
    assert [name for name in frame if name in names] == names
    assert (frame[names].dtypes == "Int64").all()
    assert frame[[f"{role}_calls" for role in roles]].sum().sum() == frame["calls"].sum()
    assert frame[[f"{role}_failed" for role in roles]].sum().sum() == frame["failed_calls"].sum()
    lost = tl.stats.lost_calls(sweep)
    assert list(zip(lost["setting"], lost["role"], strict=True)) == [
        ("tree", "propose"),
        ("tree", "evaluate"),
        ("at once", "answer"),
    ]
    row = lost.iloc[1]
    assert row["unreadable_share"] == row["unreadable"] / (row["calls"] - row["failed"]) > 0.2
    assert row["unreadable"] == frame["evaluate_unreadable"].sum()


def test_below_five_percent_the_share_is_said_and_nothing_is_warned():
    counts = {"propose": Losses(100, 5, 0, 0), "evaluate": Losses(100, 0, 0, 5)}
    frame = table_of(counts, counts)
    shown = tl.stats.success_rates(frame)  # warnings are errors here
    assert list(shown["lost"]) == ["propose 5.0% failed, evaluate 5.0% truncated"] * 2
    _, said = quiet(tl.stats.success_rates, table_of(counts, {"propose": Losses(100, 6, 0, 0)}))
    assert len(said) == 1
    assert "b: 6 of 100 propose calls failed (6.0%)" in said[0]
    assert "a:" not in said[0]


@pytest.mark.slow
def test_one_broken_setting_among_many_is_not_averaged_away():
    good = {"evaluate": Losses(1000, 0, 0, 0)}
    _, said = quiet(tl.stats.success_rates, table_of(*[good] * 30, {"evaluate": Losses(10, 10, 0, 0)}))
    assert len(said) == 1
    assert "10 of 10 evaluate calls failed" in said[0]


def test_the_warning_points_at_the_line_that_asked():
    with pytest.warns(UserWarning, match="were lost") as caught:
        tl.stats.success_rates(table_of({"act": Losses(10, 10, 0, 0)}))
    assert caught[0].filename == __file__


def table_of(*settings, **more):
    """A row for each setting, with these losses."""
    frame = pd.DataFrame(
        {
            "setting": [chr(97 + k) for k in range(len(settings))],
            "beam_width": pd.array(range(1, len(settings) + 1), dtype="Int64"),
            "task": "t",
            "correct": pd.array([k % 2 == 0 for k in range(len(settings))], dtype="boolean"),
            "calls": pd.array([10 + k for k in range(len(settings))], dtype="Int64"),
            **more,
        }
    )
    return frame.assign(**{name: pd.array(c, dtype=d) for name, (d, c) in columns_of(settings).items()})


DRAWN = {
    "plot_sweep": {"x": "beam_width"},
    "plot_heatmap": {"x": "beam_width", "y": "setting"},
    "plot_importance": {"settings": ["beam_width", "way"]},
}


@pytest.mark.nightly
@pytest.mark.parametrize("plot", figures_of("df"))
def test_every_figure_carries_the_shares(plot):
    options = DRAWN.get(plot.__name__, {})

    def said_by(frame):
        figure, said = quiet(plot, frame, **options)
        return figure.layout.title.subtitle.text, said

    four = [{"evaluate": Losses(100, 2, 0, 0), "propose": Losses(100, 0, 1, 0)}] * 4
    frame = table_of(*four, way=["x", "x", "y", "y"])
    frame["beam_width"] = pd.array([1, 2, 1, 2], dtype="Int64")
    assert said_by(frame)[0].endswith("lost calls: evaluate 2.0% failed, propose 1.0% unreadable")
    assert said_by(frame)[1] == []
    broken = frame.assign(evaluate_failed=pd.array([0, 0, 0, 90], dtype="Int64"))
    text, said = said_by(broken)
    assert "lost calls above 5%: evaluate 90.0% failed in d" in text
    assert len(said) == 1
    plain, said = said_by(frame[["setting", "beam_width", "way", "task", "correct", "calls"]])
    assert (plain.endswith("lost calls: unknown"), said) == (True, [])
    none, said = said_by(table_of(*[{"answer": Losses(9, 0, 0, 0)}] * 4, way=list("xxyy")).assign(
        beam_width=pd.array([1, 2, 1, 2], dtype="Int64")))  # fmt: skip
    assert (none.endswith("lost calls: none"), said) == (True, [])


@pytest.mark.slow
def test_the_columns_of_losses_are_no_settings():
    frame = table_of({"evaluate": Losses(10, 0, 0, 0)}, {"evaluate": Losses(20, 0, 0, 0)})
    frame.attrs["axes"] = ["beam_width"]
    assert "evaluate_calls" not in plot_sweep(frame, "setting").to_json()


@pytest.mark.slow
def test_calibration_and_amounts_carry_them_too():
    sweep = swept(Alternating(3))
    found, _ = quiet(tl.stats.judge_evaluator, sweep)
    figure, said = quiet(plot_calibration, found)
    assert "lost calls above 5%: evaluate 33.3% unreadable in tree" in figure.layout.title.subtitle.text
    assert len(said) == 1
    points = tl.stats.anytime_performance(sweep, [1, 4, 100])
    tree = points[points["setting"] == "tree"].groupby("at")[["evaluate_calls", "evaluate_unreadable"]].sum()
    assert tree["evaluate_calls"].is_monotonic_increasing
    assert tree.loc[1].sum() == 0
    whole = sweep.df()
    assert tree.loc[100, "evaluate_unreadable"] == whole["evaluate_unreadable"].sum()
    figure, said = quiet(plot_sweep, points, "at", color="setting")
    share = whole["evaluate_unreadable"].sum() / whole["evaluate_calls"].sum()
    assert f"evaluate {share:.1%} unreadable in tree" in figure.layout.title.subtitle.text
    _, said = quiet(plot_heatmap, points, "at", "setting")
    assert len(said) == 1


@pytest.mark.slow
def test_the_table_of_a_sweep_and_its_files_carry_them(tmp_path):
    sweep = swept(judge_away)
    lines = repr(sweep).splitlines()
    assert lines[1].endswith("lost calls")
    assert lines[2].endswith("evaluate 100.0% failed")
    assert lines[3].endswith("none")
    assert lines[4] == "! 4 of 8 runs failed, without a grade, all with: RuntimeError: the judge is away"
    assert lines[5].startswith("! more than 5% of the calls or replies of a role were lost: tree: ")
    assert "evaluate 100.0% failed" in sweep._repr_html_()
    assert "! more than 5%" in sweep._repr_html_()
    for name in ("a.csv", "a.tex"):
        _, said = quiet(sweep.save, tmp_path / name)
        assert len(said) == 1
    told = json.loads((tmp_path / "a.csv.json").read_text())["lost_calls"]
    assert told["tree"]["evaluate"]["failed"] == told["tree"]["evaluate"]["calls"] > 0
    assert "evaluate_failed" in (tmp_path / "a.csv").read_text().splitlines()[0].split(",")
    assert r"evaluate 100.0\% failed" in (tmp_path / "a.tex").read_text()
    assert "! more than" not in repr(swept(Scripted(good)))


@pytest.mark.slow
def test_the_page_of_many_runs_carries_them(tmp_path):
    runs = list(swept(judge_away).runs())
    page = report_html(runs, tmp_path / "r.html").read_text()
    assert "evaluate calls failed (100.0%)" in page
    page = report_html(list(swept(Scripted(good)).runs()), tmp_path / "s.html").read_text()
    assert "<p>lost calls: none</p>" in page


def test_in_words():
    assert describe(None) is None
    assert describe({}) == "none"
    many = {role: Losses(10_000, 1 + k, 0, 0) for k, role in enumerate(("act", "plan", "route"))}
    assert describe(many) == "route <0.1% failed, plan <0.1% failed, act <0.1% failed"
    assert describe(many, 1) == "route <0.1% failed, 2 more"


@pytest.mark.slow
def test_the_router_table_warns_once():
    sweep = swept(judge_mumbles)
    _, said = quiet(tl.stats.calibrate_router, SimpleNamespace(df=sweep.df))
    assert len(said) == 1
