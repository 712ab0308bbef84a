"""Every number that is painted about a run is the one that is recomputed from its frames."""

import json
import re
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal
from html import unescape

import numpy as np
import pandas as pd
import pytest
from support import Scripted
from support import run as run_
from support.browser import soon
from support.contract import MADE, trial_of
from support.counted import counted
from support.deep_think_replies import TASK as DESIGN
from support.deep_think_replies import play
from support.explorer import APP, agent, carried_out

import tot_lab as tl
from tot_lab.views.explorer.comparing import differences
from tot_lab.views.figures.confidence import confidence_info
from tot_lab.views.figures.theme import colour
from tot_lab.views.figures.timeline import timeline_info
from tot_lab.views.figures.tree import rings_of, tree_info
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
    """A number with so many significant digits. Two numbers if both are equally near, but for 1e-12."""
    ways = ROUND_HALF_DOWN, ROUND_HALF_UP
    return {float(Context(count, way).create_decimal(Decimal(f"{value:.12g}"))) for way in ways}


def is_money(text, value):
    """Whether an amount of USD is written with its significant digits, a tie rounded either way."""
    if value == 0:
        return text == "$0"
    if value < 0.01:
        return float(text.removeprefix("$")) in digits(value, 2)
    places = Decimal("0.01" if value >= 1 else "0.0001")
    ways = ROUND_HALF_DOWN, ROUND_HALF_UP
    amount = Decimal(f"{value:.12g}")
    return text in {f"${amount.quantize(places, way)}" for way in ways}


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
    names = re.findall(r"<th>(.*?)</th>", page)
    rows = [
        dict(zip(names, map(unescape, re.findall(r"<td>(.*?)</td>", row)), strict=True))
        for row in re.findall(r"<tr>(<td>.*?)</tr>", page.partition("<tbody>")[2].partition("</tbody>")[0])
    ]
    for row, run in zip(rows, runs, strict=True):
        calls, into, out, cost = used(run.calls_df())
        assert whole(row["calls"].split()[0]) == calls
        assert row["tokens"] == f"{into:,} in, {out:,} out"
        assert is_money(row["cost"], cost)
        assert (row["strategy's score"] == "") == (run.score is None)
        assert run.score is None or is_score(row["strategy's score"], run.score)
        assert f"run {run.id} · " in page
        assert f" · {run.seconds:,.2f} s" in page
    total = np.sum([used(run.calls_df()) for run in runs], axis=0)
    facts = unescape(re.search("</h1><p>(.*?)</p>", page)[1]).split(" · ")
    tools = sum(len(run.tools_df().dropna(subset="seconds")) for run in runs)
    right = [run.correct for run in runs if run.correct is not None]
    assert facts[:5] == [
        "40 runs",
        f"{sum(right)} of {len(right)} correct ({sum(right) / len(right):.0%})",
        f"{int(total[0]):,} calls",
        f"{tools:,} tool calls",
        f"{int(total[1]):,} tokens in, {int(total[2]):,} tokens out",
    ]
    assert is_money(facts[5].removeprefix("cost "), total[3])


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


CRITERIA = ("correctness", "completeness", "elegance", "practicality")


def test_the_confidences_of_deep_think():
    tasks = tl.domains.constrained_tasks(3)
    made = [carried_out("sim/constrained", tl.DeepThink(), task) for task in tasks]
    made += [run_(tl.DeepThink(), DESIGN, Scripted(play))]
    for one in made:
        asked = one.calls_df()
        replies = [json.loads(text) for text in asked[asked["purpose"] == "converge"]["reply"]]
        sure = [reply["confidence"] for reply in replies]
        thought = tl.deep_thought(one)
        assert [float(x) for x in re.findall(r"^  \d+ +confidence ([\d.]+)/10", repr(thought), re.M)] == sure
        report = thought.report()
        assert [float(x) for x in re.findall(r"Iteration \d+ · confidence ([\d.]+)/10", report)] == sure
        assert f"(confidence: {max(sure):.1f}/10)" in report
        assert one.score == max(sure) / 10
        judged = [its for reply in replies for its in reply["evaluations"]]
        read = [[its[name] for name in CRITERIA if name in its] for its in judged]
        means = [(its["name"], sum(own) / len(own)) for its, own in zip(judged, read, strict=True)]
        shown = re.findall(r"- \*\*\[([\d.]+)/10\]\*\* \**(.*?)\**(?: ★)?(?: —.*)?$", report, re.M)
        assert {(score, name) for score, name in shown} <= {(f"{mean:.1f}", name) for name, mean in means}
        info = confidence_info(one)
        assert list(info.confidence) == sure
        assert not info.assumed.any()
        assert sorted(zip(info.names, info.score, strict=True)) == sorted(means)
        figure = tl.figures.plot_confidence(one)
        drawn = [y for trace in figure.data if "confidence" in (trace.name or "") for y in trace.y]
        assert {*sure} <= {*drawn}


# What the browser paints.


def test_two_compared_runs(runs, opened):
    for one, other in zip(runs[::5], runs[1::5], strict=True):
        page = opened(one, other)
        page.evaluate(f"{APP}.set({{ view: 'compare', viewed: true }})")
        panel = page.locator(".tl-differences")
        soon(panel.is_visible)
        rows = panel.locator("tbody tr, table > tr").evaluate_all(
            "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        shown = {name: both * (3 - len(both)) for name, *both in rows}  # what both share stands once
        for which, made in enumerate((one, other)):
            calls, into, out, cost = used(made.calls_df())
            found = re.fullmatch(r"([\d,]+) calls? · ([\d,]+) tokens? · (\S+)", shown["usage"][which])
            assert [whole(found[1]), whole(found[2])] == [calls, into + out]
            assert is_money(found[3], cost)
            answer = " ".join(made.answer.split()) or "none"
            assert answer.startswith(shown["answer"][which].rstrip("… "))
        frame = differences(one, other)
        text = panel.inner_text()
        assert whole(re.search(r"^([\d,]+) differences?$", text, re.M)[1]) == len(frame)
        alike = re.search(r"([\d,]+) of ([\d,]+) thoughts? in both are the same", text)
        alone = [frame.loc[frame["kind"] == f"only-{which}", "thoughts"].sum() for which in "ab"]
        matched = len(one.nodes_df()) - alone[0]
        assert matched == len(other.nodes_df()) - alone[1]
        unlike = frame.loc[frame["a"].notna() & frame["b"].notna(), "a"].nunique()
        assert [whole(alike[1]), whole(alike[2])] == [matched - unlike, matched]
        listed = re.findall(r"only in ([AB]), ([\d,]+) thoughts?", text)
        only = frame[frame["kind"].astype(str).str.startswith("only")]
        wanted = zip(only["kind"].astype(str).str[-1].str.upper(), only["thoughts"], strict=True)
        assert sorted((which, whole(size)) for which, size in listed) == sorted(wanted)
        page.close()


def test_the_plans(opened):
    for task in range(4):
        made = agent(tl.PlanExecute(), task)
        page = opened(made)
        page.evaluate(f"{APP}.set({{ view: 'plan', viewed: true }})")
        cards = page.locator(".tl-board .tl-card .tl-quiet")
        soon(lambda cards=cards: cards.count() > 0)
        shown = [re.search(r"(?<= · )([\d.]+ m?s)\b", text) for text in cards.all_text_contents()]
        wanted = []
        began, took, steps = {}, {}, []
        for line in made.lines:
            if not isinstance(line.e, tl.Note) or not line.e.name.startswith("plan."):
                continue
            if line.e.name in ("plan.created", "plan.patched", "plan.augmented", "plan.ended"):
                wanted += [took.get(id) for id in steps]
                steps = [step["id"] for step in line.e.data.get("steps", [])]
            elif line.e.name == "plan.step_started":
                began.setdefault(line.e.data["step"], line.t)
            elif line.e.name in ("plan.step_completed", "plan.step_failed"):
                took[line.e.data["step"]] = line.t - began[line.e.data["step"]]
        assert len(shown) == len(wanted)
        for text, seconds in zip(shown, wanted, strict=True):
            assert (text is None) == (seconds is None)
            if text:
                amount, unit = text[1].split()
                assert float(amount) == pytest.approx(seconds * (1000 if unit == "ms" else 1), abs=0.51)
        page.close()


def test_the_page_of_a_sweep(swept, opened_sweep):
    page, frame = opened_sweep(swept), swept.df()
    heading = page.locator(".tl-title").first.inner_text()
    right = int(frame["correct"].sum())
    assert f"{len(frame)} runs · {right} right · {len(frame) - right} wrong" in heading
    heads = page.locator(".tl-matrix thead th").all_text_contents()[1:]
    for row in page.locator(".tl-matrix tbody tr").all():
        task = row.locator("th").get_attribute("title")
        for setting, cell in zip(heads, row.locator("td").all(), strict=True):
            its = frame[(frame["task"].astype(str) == task) & (frame["setting"].astype(str) == setting)]
            signs = [text[0] for text in cell.locator("button").all_text_contents()]
            assert signs == ["✓" if correct else "✗" for correct in its["correct"]]
    legend = page.get_by_role("group", name="legend").inner_text()
    assert sum(map(int, re.findall(r"(\d+)$", legend, re.M))) == len(frame) - right
    page.get_by_role("button", name="table").click()
    names = [text.split()[0] for text in page.locator(".tl-table thead th").all_text_contents()]
    rows = page.locator(".tl-table tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    by_run = frame.set_index("run_id")
    numeric = [name for name in names if name in frame and frame[name].dtype.kind in "iuf"]
    assert {"calls", "input_tokens", "output_tokens", "cost"} <= {*numeric}
    assert len(rows) == len(frame)
    for row in rows:
        shown = dict(zip(names, row, strict=True))
        for name in numeric:
            value, text = by_run.loc[shown["run_id"], name], shown[name]
            if pd.isna(value):
                assert text == ""
            elif float(value).is_integer():
                assert whole(text) == value, name
            else:
                assert float(text) in digits(value, 3), name


def test_the_explorer(runs, opened):
    for run in runs:
        page = opened(run)
        nodes, asked = run.nodes_df().set_index("id"), run.calls_df()
        calls, into, out, cost = used(asked)
        bar = page.get_by_role("group", name="time").inner_text()
        found = re.search(
            r"([\d,]+) thoughts · frontier (\d+) · (\d+) open calls? · ([\d,]+)(?: of \d+)? calls?"
            r" · ([\d,]+) tokens · ([\d,]+) in · ([\d,]+) out · (\S+) cost",
            bar,
        )
        numbers = [whole(found[k]) for k in range(1, 8)]
        waiting = [len(rings_of(run)["open frontier"]), asked["made"].isna().sum()]
        assert numbers == [len(nodes), *waiting, calls, into + out, into, out], run.name
        assert is_money(found[8], cost)
        check_verdict(page, run)
        check_legend(page, run, nodes)
        check_colours(page, run, nodes)
        for id in [*run.tree.nodes][:4] + [*run.tree.nodes][-2:]:
            check_details(page, run, nodes, id)
        page.close()


def check_verdict(page, run):
    strip = page.get_by_role("group", name="verdict").inner_text()
    score = re.search(r"· strategy's score (\S+)", strip)
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
