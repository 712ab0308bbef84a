"""A sweep as one page, in a real browser with the network off: its cells, filters and runs are those of the
sweep.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.browser import soon
from support.explorer import AXE

import tot_lab as tl
from tot_lab.analysis.why import blame_and_findings, why_it_failed
from tot_lab.apps.cli import main
from tot_lab.views.explorer.sweep_page import save_html

APP = "document.querySelector('#tot-lab-explorer').explorer"
SIGNS = {
    "proposer": "P",
    "evaluator": "E",
    "search": "S",
    "answerer": "A",
    "cut short": "C",
    "person": "H",
    "unsolvable": "U",
    "unknown": "?",
}


def in_table(page: Any, column: str) -> list[str]:
    """The values of a column as they stand in the table."""
    return page.evaluate(
        """column => {
            const [heads, rows] = ["th", "tbody tr"].map(
                (what) => [...document.querySelectorAll(`.tl-table ${what}`)]);
            const place = heads.findIndex((one) => one.textContent.split(" ")[0] === column);
            return rows.map((row) => row.cells[place].textContent);
        }""",
        column,
    )


@pytest.mark.slow
def test_the_file_has_one_script_and_names_no_address(swept, tmp_path):
    page = swept.save_html(tmp_path / "sweep.html").read_text()
    assert page.count("<script>") == 1
    assert page.count('type="application/gzip"') >= 1
    assert "http://" not in page.split("<script>")[0]


def test_only_runs_are_shown(tmp_path):
    with pytest.raises(TypeError, match="expects a sweep, a run or several runs: got str"):
        save_html(["no run"], tmp_path / "x.html")


@pytest.mark.slow
def test_a_page_never_replaces_a_journal(swept):
    journal = next(swept.folder.glob("*.jsonl"))
    before = journal.read_bytes()
    with pytest.raises(ValueError, match=r"must end in \.html or \.htm: got .*\.jsonl'"):
        swept.save_html(journal)
    assert journal.read_bytes() == before


def test_an_explorer_of_no_runs_is_an_error():
    with pytest.raises(ValueError, match=r"run must contain at least one run: got \[\]"):
        tl.Explorer([])


@pytest.mark.slow
def test_an_explorer_of_a_sweep_is_a_frame_of_its_own_origin(swept):
    shown = tl.Explorer(swept)._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts allow-downloads"')
    assert "allow-same-origin" not in shown
    assert shown.count("<iframe") == 1
    assert "<script" not in shown  # all of the page is quoted


@pytest.mark.slow
def test_show_takes_a_folder_of_runs(swept, tmp_path, capsys):
    out = tmp_path / "all.html"
    assert main(["show", str(swept.folder), "--out", str(out), "--no-open"]) == 0
    assert str(out) in capsys.readouterr().out
    rows = json.loads(out.read_text().split('id="sweep">')[1].split("</script>")[0])["rows"]
    assert len(rows) == len(swept.df())


@pytest.mark.nightly
def test_every_cell_says_whether_its_run_is_right_and_whom_to_blame(opened_sweep, swept):
    page = opened_sweep(swept)
    cells = page.evaluate(
        """() => [...document.querySelectorAll(".tl-matrix tbody tr")].flatMap((row) =>
            [...row.querySelectorAll("td")].flatMap((cell, place) =>
                [...cell.children].map((one) => [row.cells[0].title, place, one.textContent])))"""
    )
    heads = page.locator(".tl-matrix thead th").all_text_contents()[1:]
    shown = sorted((task, heads[place], sign) for task, place, sign in cells)
    true = []
    for row in swept.df().itertuples():
        blamed = blame_and_findings(swept.run(row.run_id))[0]
        true.append((row.task, row.setting, "✓" if blamed is None else f"✗{SIGNS[blamed.on]}"))
        assert (blamed is None) == bool(row.correct)
    assert shown == sorted(true)
    assert {sign[0] for *_, sign in true} == {"✓", "✗"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("correct:false", lambda df: df[df.correct == False]),  # noqa: E712
        ("calls>20 correct:true", lambda df: df[(df.calls > 20) & (df.correct == True)]),  # noqa: E712
        ("setting:CoT repeat=1", lambda df: df[(df.setting == "CoT") & (df["repeat"] == 1)]),
        ('setting:"search.width=3"', lambda df: df[df.setting.astype(str).str.contains("search.width=3")]),
        ("stop_reason:limit", lambda df: df[df.stop_reason.astype(str).str.contains("limit")]),
        ("search.width:none", lambda df: df[df["search.width"].isna()]),
    ],
)
def test_a_filter_gives_what_pandas_gives(opened_sweep, swept, query, matches):
    page = opened_sweep(swept)
    page.get_by_role("button", name="table").click()
    page.get_by_role("searchbox").fill(query)
    wanted = list(matches(swept.df()).run_id)
    assert 0 < len(wanted) < len(swept.df())
    soon(lambda: in_table(page, "run_id") == wanted)


@pytest.mark.slow
def test_a_column_that_is_not_there_is_named(opened_sweep, swept):
    page = opened_sweep(swept)
    page.get_by_role("searchbox").fill("colour:red")
    soon(lambda: page.get_by_text("no column colour").count() == 1)
    assert page.locator(".tl-run").count() == len(swept.df())


@pytest.mark.nightly
@pytest.mark.parametrize("column", ["calls", "task", "search.width"])
def test_a_click_on_a_head_sorts_by_the_column(opened_sweep, swept, column):
    page = opened_sweep(swept)
    page.get_by_role("button", name="table").click()
    for ascending, sign in ((True, "↑"), (False, "↓")):
        page.locator(".tl-table thead button").filter(has_text=column).first.click()
        page.locator(".tl-table thead button").filter(has_text=f"{column} {sign}").wait_for()
        frame = swept.df().astype({"task": str})
        true = frame.sort_values(column, ascending=ascending, kind="stable", na_position="last")
        assert in_table(page, "run_id") == list(true.run_id)


@pytest.mark.nightly
def test_a_cell_opens_exactly_its_run(opened_sweep, swept):
    page = opened_sweep(swept)
    for row in list(swept.df().itertuples())[::7]:
        run = swept.run(row.run_id)
        page.locator(f'[data-row="{row.Index}"]').click()
        soon(lambda run=run: page.evaluate(f"{APP}?.source.runs[0].about.id") == run.id)
        assert page.evaluate("location.hash").startswith(f"#run={run.id}")
        nodes = page.evaluate(
            f"""async () => {{
                const {{ source }} = {APP};
                const [recording] = source.runs;
                const found = [];
                for (let node = 0; node < recording.nodes; node++) {{
                    const {{ text, calls }} = await source.details(0, node);
                    found.push([recording.id(node), text, calls.map((one) => [one.prompt, one.reply])]);
                }}
                return found;
            }}"""
        )
        assert {id: text for id, text, _ in nodes} == {node.id: node.text for node in run.tree}
        calls = [line.e for line in run.lines if isinstance(line.e, tl.Call)]
        asked = [([message.content for message in call.messages], call.node) for call in calls]
        shown = [([m["content"] for m in prompt], id) for id, _, calls in nodes for prompt, _ in calls]
        assert sorted(shown) == sorted(asked)


@pytest.mark.nightly
def test_the_runs_are_one_tab_stop_and_the_arrow_keys_move_within_them(opened_sweep, swept):
    page = opened_sweep(swept)
    focused = "document.activeElement.dataset.row"
    column = "document.activeElement.closest('td').cellIndex"
    assert page.locator(".tl-run[tabindex='0']").count() == 1
    page.locator(".tl-run[tabindex='0']").focus()
    stops = set()
    first = page.evaluate(focused)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('.tl-run')") is False
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(focused) == first
    for _ in range(len(swept.df()) - 1):
        stops.add(page.evaluate(focused))
        page.keyboard.press("ArrowRight")
    stops.add(page.evaluate(focused))
    assert stops == {str(row) for row in range(len(swept.df()))}
    page.keyboard.press("ArrowRight")  # nothing is beyond the last one
    last = page.evaluate(focused)
    where = page.evaluate(column)
    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused) != last
    assert page.evaluate(column) == where
    page.keyboard.press("ArrowDown")
    assert page.evaluate(column) == where
    row = int(page.evaluate(focused))
    page.keyboard.press("Enter")
    opened_run = f"{APP}?.source.runs.map(one => one.about.id)"
    soon(lambda: page.evaluate(opened_run) == [swept.df().run_id[row]])
    assert page.locator(".tl-run[tabindex='0']").count() == 1


@pytest.mark.nightly
def test_two_cells_are_compared(opened_sweep, swept):
    page = opened_sweep(swept)
    ids = list(swept.df().run_id)
    page.locator('[data-row="0"]').click()
    page.get_by_title("the next run that is chosen is compared").click()
    page.locator('[data-row="9"]').click()
    both = f"{APP}?.source.runs.map(one => one.about.id)"
    soon(lambda: page.evaluate(both) == [ids[0], ids[9]])
    soon(lambda: page.evaluate(f"{APP}.view") == "compare")
    page.locator('[data-row="3"]').click(modifiers=["Shift"])
    soon(lambda: page.evaluate(both) == [ids[0], ids[3]])
    page.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    page.locator("summary", has_text="export").click()
    page.get_by_role("button", name="copy link").click()
    address = page.evaluate("window.copied")
    assert address.endswith(f"#run={ids[0]}&with={ids[3]}&view=compare")
    soon(lambda: page.evaluate("location.href") == address)
    page.go_back()
    soon(lambda: page.evaluate(both) == [ids[0], ids[9]])
    page.go_back()
    soon(lambda: page.evaluate(both) == [ids[0]])
    page.goto("about:blank")
    page.goto(address)
    soon(lambda: page.evaluate(both) == [ids[0], ids[3]])
    assert page.evaluate(f"{APP}.view") == "compare"


@pytest.mark.nightly
def test_a_finding_about_the_second_run_selects_thoughts_of_the_second_run(opened_sweep, swept):
    page = opened_sweep(swept)
    frame = swept.df()
    failed = int(frame.index[frame.correct == False][-1])  # noqa: E712
    page.locator('[data-row="0"]').click()
    page.locator(f'[data-row="{failed}"]').click(modifiers=["Shift"])
    finding = page.locator(".tl-finding").filter(has_text="B: why it failed").first
    finding.click()
    wanted = why_it_failed(swept.run(frame.run_id[failed])).nodes
    ids = f"{APP}.ids().filter((id) => id.startsWith('b:'))"
    soon(lambda: page.evaluate(ids) == [f"b:{id}" for id in wanted])


@pytest.mark.nightly
def test_the_next_failed_run_goes_through_all_of_them_and_only_them(opened_sweep, swept):
    page = opened_sweep(swept)
    frame = swept.df()
    failed = list(frame[frame.correct == False].run_id)  # noqa: E712
    assert len(failed) > 2
    seen = []
    for _ in failed:
        page.keyboard.press("]")
        soon(lambda: page.evaluate(f"{APP}?.source.runs[0].about.id") not in [None, *seen[-1:]])
        seen.append(page.evaluate(f"{APP}.source.runs[0].about.id"))
    assert seen == failed
    page.keyboard.press("[")
    soon(lambda: page.evaluate(f"{APP}.source.runs[0].about.id") == failed[-2])


@pytest.mark.nightly
def test_an_address_opens_its_run_and_the_back_button_the_one_before(opened_sweep, swept):
    page = opened_sweep(swept)
    ids = list(swept.df().run_id)
    for row in (2, 5):
        page.locator(f'[data-row="{row}"]').click()
        soon(lambda row=row: page.evaluate(f"{APP}?.source.runs[0].about.id") == ids[row])
    address = page.evaluate("location.href")
    soon(lambda: "view=" in page.evaluate("location.href"))
    page.go_back()
    soon(lambda: page.evaluate(f"{APP}.source.runs[0].about.id") == ids[2])
    page.goto("about:blank")
    page.goto(address)
    soon(lambda: page.evaluate(f"{APP}?.source.runs[0].about.id") == ids[5])


@pytest.mark.slow
def test_hostile_texts_of_runs_stay_texts(opened_sweep):
    text = "</script><img src=x onerror=alert(1)><b>\u2028]]>"
    runs = []
    for answer in (text, "b"):
        with tl.Recorder(text, task=tl.general(text, answer="b")) as recorder:
            root = recorder.thought(text)
            recorder.call(root, text, text, purpose="answer")
            recorder.end(answer, node=recorder.thought(answer, parent=root))
        runs.append(recorder.run)
    page = opened_sweep(runs)
    assert page.locator("img").count() == 0
    page.locator('[data-row="0"]').click()
    soon(lambda: page.evaluate(f"{APP}?.source.runs[0].about.question") == text)
    page.get_by_role("button", name="table").click()
    assert "</script><img src=x" in "".join(in_table(page, "answer"))
    assert page.locator("img").count() == 0


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(opened_sweep, swept, scheme):
    page = opened_sweep(swept, color_scheme=scheme)
    page.locator('[data-row="9"]').click()
    soon(lambda: page.evaluate(f"{APP}?.drawn"))
    page.evaluate(f"() => {{ {AXE.read_text()} }}")
    for view in ("table", "matrix"):
        page.get_by_role("button", name=view).click()
        found = page.evaluate("axe.run()")["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
