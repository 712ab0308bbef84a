"""Every number that is painted about a run is the one that is recomputed from its frames."""

import re
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from html import unescape

import numpy as np
import pytest
from support.browser import soon
from support.contract import MADE, trial_of
from support.counted import counted
from support.explorer import APP

import tot_lab as tl
from tot_lab.views.figures.icicle import icicle_info
from tot_lab.views.figures.theme import colour
from tot_lab.views.figures.timeline import timeline_info
from tot_lab.views.figures.tree import tree_info
from tot_lab.views.report import report_html
from tot_lab.views.tree_svg import tree_svg

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def runs():
    """Forty runs of all strategies, two of which a budget ended."""
    made = [trial_of(strategy).run(counted()) for strategy in MADE[:38]]
    made += [trial_of(strategy).run(counted(), budget=tl.Budget(calls=7)) for strategy in MADE[:2]]
    assert {strategy.kind for strategy in MADE} == {run.header.strategy["kind"] for run in made}
    return made


def digits(value, count):
    """A number with so many significant digits. Two numbers if both are equally near."""
    ways = ROUND_HALF_EVEN, ROUND_HALF_UP
    return {float(Context(count, way).create_decimal(Decimal(value))) for way in ways}


def is_money(text, value):
    """Whether an amount of USD is written with its significant digits, a tie rounded either way."""
    if value == 0:
        return text == "$0"
    if value < 0.01:
        return float(text.removeprefix("$")) in digits(value, 2)
    places = Decimal("0.01" if value >= 1 else "0.0001")
    ways = ROUND_HALF_EVEN, ROUND_HALF_UP
    return text in {f"${Decimal(value).quantize(places, way)}" for way in ways}


def is_score(text, value):
    return text == "<0.001" if 0 < value < 0.001 else float(text) in digits(value, 3)


def used(calls):
    """Calls that were made, their tokens and their price, according to `calls_df`."""
    return int(calls["made"].sum()), *(
        calls[name].sum() for name in ("input_tokens", "output_tokens", "cost")
    )


def whole(text):
    return int(text.replace(",", ""))


# What Python paints.


def test_a_repr_and_a_card(runs):
    for run in runs:
        calls, into, out, cost = used(run.calls_df())
        text = repr(run)
        found = re.search(r"calls +([\d,]+).* · tokens ([\d,]+) in, ([\d,]+) out · cost (\S+)", text)
        assert [whole(found[k]) for k in (1, 2, 3)] == [calls, into, out]
        assert is_money(found[4], cost)
        assert whole(re.search(r"thoughts +([\d,]+)", text)[1]) == len(run.nodes_df())
        assert is_money(re.search(r"paid (\S+)", text)[1], run.calls_df()["paid"].sum())
        card = dict(re.findall(r"opacity:.65\">([a-z]+)</div><div>(.*?)</div>", run._repr_html_()))
        assert whole(card["calls"].split()[0]) == calls
        assert whole(card["thoughts"]) == len(run.nodes_df())
        assert re.findall(r"\d[\d,]*\d|\d", card["tokens"]) == [f"{into:,}", f"{out:,}"]
        assert is_money(re.sub("<.*?>", "", card["cost"]), cost)
        listed = re.findall(r"([\d,]+) × ([\w-]+)", card.get("tools", ""))
        assert {name: whole(count) for count, name in listed} == run.tools_df()[
            "tool"
        ].value_counts().to_dict()


def test_a_report(runs, tmp_path):
    page = report_html(runs, tmp_path / "report.html").read_text("utf-8")
    rows = [
        re.findall(r"<td class=n>(.*?)</td>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", page.partition("<tbody>")[2].partition("</tbody>")[0])
    ]
    for row, run in zip(rows, runs, strict=True):
        score, calls, into, out, cost, seconds = map(unescape, row)
        assert [whole(calls.split()[0]), whole(into), whole(out)] == list(used(run.calls_df()))[:3]
        assert is_money(cost, used(run.calls_df())[3])
        assert (score == "") == (run.score is None)
        assert not score or is_score(score, run.score)
        assert seconds == f"{run.seconds:.2f}"
    total = np.sum([used(run.calls_df()) for run in runs], axis=0)
    tiles = {name: value for value, name in re.findall(r"<div><b>(.*?)</b>(.*?)</div>", page)}
    assert [whole(tiles[name]) for name in ("runs", "calls", "tokens in", "tokens out")] == [40, *total[:3]]
    assert is_money(tiles["cost"], total[3])
    assert whole(tiles["tool calls"]) == sum(len(run.tools_df().dropna(subset="seconds")) for run in runs)
    right = [run.correct for run in runs if run.correct is not None]
    share = f"{sum(right)} of {len(right)} ({sum(right) / len(right):.0%})"
    assert tiles["correct"] == share


def test_the_tree_and_its_tooltips(runs):
    for run in runs:
        nodes, asked = run.nodes_df().set_index("id"), run.calls_df()
        info = tree_info(run)
        assert sorted(info.ids) == sorted(nodes.index)
        shades = re.findall(r'<(?:circle|polygon)[^>]* fill="(#\w+)"', tree_svg(run, 10**6))
        for id, score, depth, rows in zip(info.ids, info.score, info.depth, info.details, strict=True):
            own = nodes.loc[id]
            assert depth == own["depth"], id
            calls, into, out, cost = used(asked[asked["node"] == id])
            text = "\n".join(rows)
            assert np.isnan(score) == nodes["score"].isna()[id]
            if nodes["score"].notna()[id]:
                assert score == own["score"]
                assert is_score(re.search(r"^score (\S+)", text, re.M)[1], own["score"])
                assert own["state"] == "answer" or colour(float(score)) in shades  # its star may be hollow
            counted = re.search(
                r"^([\d,]+) calls?, ([\d,]+) tokens in, ([\d,]+) out, cost ([^,\n]+)", text, re.M
            )
            assert (counted is None) == (calls == 0), text
            if counted:
                assert [whole(counted[k]) for k in (1, 2, 3)] == [calls, into, out]
                assert is_money(counted[4].split(",")[0], cost)
        leaves = icicle_info(run).leaves
        assert leaves[info.parents == -1].sum() == (~np.isin(np.arange(len(info.ids)), info.parents)).sum()


COLUMNS = {
    "tokens in": "input_tokens",
    "tokens out": "output_tokens",
    "cost without cache hits": "cost",
    "paid": "paid",
}
"""The bars of `plot_cost`, and the columns of `calls_df` that they add up."""


def test_the_figures(runs):
    for run in runs:
        asked, nodes = run.calls_df(), run.nodes_df()
        calls, into, out, cost = used(asked)
        heading = tl.figures.plot_cost(run).layout.title.subtitle.text
        found = re.search(
            r"([\d,]+) calls .* ([\d,]+) tokens in, ([\d,]+) out .* cost (\S+), paid", unescape(heading)
        )
        assert [whole(found[k]) for k in (1, 2, 3)] == [calls, into, out]
        assert is_money(found[4], cost)
        sums = asked[asked["made"].fillna(False)].groupby("purpose", observed=True)
        bars = {trace.name: trace for trace in tl.figures.plot_cost(run).data if trace.type == "bar"}
        for name, column in COLUMNS.items():
            drawn = dict(zip(bars[name].x, bars[name].y, strict=True))
            assert drawn == sums[column].sum().to_dict(), (run.name, name)
        scores = tl.figures.plot_scores(run)
        drawn = [y for trace in scores.data if trace.mode == "markers" for y in trace.y if y is not None]
        judged = nodes[nodes["parent"].notna()]["score"].dropna()
        assert sorted(drawn) == sorted(judged)
        line = timeline_info(run)
        assert len(line.kind) == len(asked) + len(run.tools_df())


# What the browser paints.


def test_the_explorer(runs, opened):
    for run in runs:
        page = opened(run)
        nodes, asked = run.nodes_df().set_index("id"), run.calls_df()
        calls, into, out, cost = used(asked)
        bar = page.get_by_role("group", name="time").inner_text()
        found = re.search(
            r"([\d,]+) thoughts · frontier \d+ · (\d+) open · ([\d,]+)(?: of \d+)? calls? · ([\d,]+) tokens"
            r" · ([\d,]+) in · ([\d,]+) out · (\S+) cost",
            bar,
        )
        numbers = [whole(found[k]) for k in range(1, 7)]
        assert numbers == [len(nodes), asked["made"].isna().sum(), calls, into + out, into, out], run.name
        assert is_money(found[7], cost)
        check_verdict(page, run)
        check_legend(page, run, nodes)
        check_colours(page, run, nodes)
        for id in [*run.tree.nodes][:4] + [*run.tree.nodes][-2:]:
            check_details(page, run, nodes, id)
        page.close()


def check_verdict(page, run):
    strip = page.get_by_role("group", name="verdict").inner_text()
    score = re.search(r"· score (\S+)", strip)
    assert (score is None) == (run.score is None)
    assert score is None or is_score(score[1], run.score)


def check_legend(page, run, nodes):
    page.evaluate(f"{APP}.set({{ view: 'tree', viewed: true }})")  # a run with tools opens with its steps
    soon(lambda: page.get_by_role("group", name="legend").is_visible())
    words = page.get_by_role("group", name="legend").locator("button, span").all_text_contents()
    painted = dict(text.strip().rsplit(" ", 1) for text in words if " " in text.strip())
    counts = nodes["state"].value_counts()
    for state in ("pruned", "kept", "complete", "unreadable", "failed", "duplicate", "merged"):
        assert whole(painted.get(state, "0")) == counts.get(state, 0), (run.name, state, words)


def check_colours(page, run, nodes):
    got = page.evaluate(
        f"""() => Object.fromEntries(["score", "cost", "depth"].map((colour) => {{
            const app = {APP};
            app.set({{ colour }});
            return [colour, [...app.colours(0).values].map((one) => (isNaN(one) ? null : one))];
        }}))"""
    )
    ids = page.evaluate(f"Array.from({{ length: {len(nodes)} }}, (_, node) => {APP}.source.runs[0].id(node))")
    for name, painted in got.items():
        wanted = nodes[name] if name == "score" else nodes[name].fillna(0)
        for id, value in list(zip(ids, painted, strict=True))[name == "score" :]:  # no number at the question
            assert (value is None) == wanted.isna()[id], (run.name, name, id)
            assert value is None or value == pytest.approx(float(wanted[id])), (run.name, name, id)


def check_details(page, run, nodes, id):
    page.evaluate(f"{APP}.show(['{id}'])")
    panel = page.locator(".tl-details")
    soon(lambda: f"thought {id} " in panel.inner_text())
    asked = run.calls_df()
    its = asked[asked["node"] == id]
    into, out, cost = used(its)[1:]
    head = re.search(
        r"(\d+) calls? · .*?([\d,]+) → ([\d,]+) tokens .*?cost ([^,]+), paid", panel.inner_text()
    )
    assert (head is None) == (len(its) == 0), (run.name, id)
    if head:
        assert [whole(head[2]), whole(head[3])] == [into, out], (run.name, id)
        assert is_money(head[4], cost)
