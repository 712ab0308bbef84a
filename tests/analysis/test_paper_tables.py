"""The table of a sweep in LaTeX: its form, its numbers, and its provenance beside it."""

import json
import re

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Scripted, wait

import tot_lab as tl
from tot_lab.analysis.sweep_summary import Summary
from tot_lab.analysis.sweep_tables import escaped, latex_table

TASKS = [tl.general(f"What is {k} + {k}?", answer=2 * k, grade="number") for k in range(1, 9)]
ODD = "\\&%$#_{}~^<>|[*\"'`--–…−×≤ \n\r\t\0\u2028"


class Says(tl.OneAnswer):
    """Answers with the sum for the first `right` tasks, else wrongly."""

    kind = "says_for_a_table"
    right: int = 0

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        number = int(task.question.split()[2])
        return tl.Answer(str(2 * number if number <= self.right else 0), "answered", at)


def swept(settings, tasks=TASKS, **options):
    return wait(tl.Lab(Scripted(), runs=None).sweep(settings, tasks, **options))


GOOD = {"none": Says(right=0), "all": Says(right=8), "six": Says(right=6)}


def cells(tex):
    """Check the form of a table strictly, and return the text of its cells by row.

    It must consist of one `tabular` with the rules of booktabs. Braces and dollar signs are balanced,
    commands are known, every special character is escaped, and each row has a cell for every column.
    """
    lines = tex.splitlines()
    assert tex.endswith("\\end{tabular}\n")
    (columns,) = re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", lines[0]).groups()
    assert [k for k, line in enumerate(lines) if line.startswith(("\\top", "\\mid", "\\bottom"))] == [
        1,
        3,
        len(lines) - 2,
    ]
    assert (lines[1], lines[3], lines[-2]) == ("\\toprule", "\\midrule", "\\bottomrule")
    rows = [line.removesuffix(r" \\") for line in (lines[2], *lines[4:-2])]
    assert all(line.endswith(r" \\") for line in (lines[2], *lines[4:-2]))
    found = []
    for row in rows:
        depth = math = 0
        split = [""]
        for token in re.findall(r"\\(?:[A-Za-z]+|.)|.", row):
            if token.startswith("\\"):
                assert token[1:] in COMMANDS, token
            depth += (token == "{") - (token == "}")
            math ^= token == "$"
            assert depth >= 0
            assert token not in {"%", "#", "~", "^", "_", "|", '"', "<", ">"} or (math and token in "<>")
            if token == "&":
                assert depth == math == 0
                split.append("")
            else:
                split[-1] += token
        assert depth == math == 0
        assert len(split) == len(columns)
        assert not split[0].startswith(("[", "*"))
        found.append([cell.strip() for cell in split])
    return found


COMMANDS = re.findall(
    r"\S+",
    "& % $ # _ { } textbackslash textasciitilde textasciicircum textless textgreater textbar textquotesingle "
    "textasciigrave textendash textemdash dots symbol times div pm leq geq neq rightarrow",
)


@pytest.mark.nightly
def test_the_table_has_rates_intervals_and_corrected_p_values(tmp_path):
    sweep = swept(GOOD, repeats=2)
    head, *rows = cells(sweep.save(tmp_path / "table.tex", against="none").read_text())
    assert head[:5] == ["setting", "runs", r"success (\%)", r"95\% interval", "$p$ (Holm)"]
    rates = tl.stats.success_rates(sweep).set_index("setting")
    p = tl.stats.compare_all(sweep, against="none").set_index("a")["p_holm"]
    assert [row[0] for row in rows] == list(GOOD)
    for name, runs, rate, interval, compared, *_ in rows:
        known = rates.loc[name]
        assert runs == "16"
        assert rate == f"{100 * known.rate:.1f}"
        assert interval == f"{100 * known.low:.1f}--{100 * known.high:.1f}"
        assert compared == ("baseline" if name == "none" else f"{p[name]:.3f}")


def test_without_a_baseline_there_is_no_p_value_and_empty_columns_are_left_out(tmp_path):
    head, *rows = cells(swept(GOOD, TASKS[:2]).save(tmp_path / "a.tex").read_text())
    assert head == [
        "setting",
        "runs",
        r"success (\%)",
        r"95\% interval",
        "calls/run",
        "tokens/run",
        "cost/run",
    ]
    assert len(rows) == 3


@pytest.mark.slow
def test_an_ungraded_setting_has_no_rate(tmp_path):
    sweep = swept({"a": Says()}, tl.general("What is 1 + 1?"))
    (row,) = cells(sweep.save(tmp_path / "a.tex").read_text())[1:]
    assert row[2:4] == ["--", "--"]
    with pytest.raises(ValueError, match="against='a' has no graded run"):
        sweep.save(tmp_path / "b.tex", against="a")
    assert not (tmp_path / "b.tex").exists()
    assert not (tmp_path / "b.provenance.json").exists()


def test_errors_and_lost_calls_are_shown(tmp_path):
    sweep = wait(tl.Lab(Scripted(lambda call: ""), runs=None).sweep({"tree": tl.TreeOfThoughts()}, TASKS[:1]))
    with pytest.warns(UserWarning, match="were lost") as said:
        tex = sweep.save(tmp_path / "a.tex").read_text()
    assert len(said) == 1
    head, row = cells(tex)
    assert head[-1] == "lost calls"
    assert r"\% " in row[-1]


@pytest.mark.slow
def test_every_special_character_of_a_name_is_escaped(tmp_path):
    names = [f"{sign}{sign} a {sign}{sign}" for sign in ODD if sign.isprintable() and sign != " "]
    settings = {name: Says(right=k) for k, name in enumerate([*names, ODD, "a, b & c"])}
    rows = cells(swept(settings, TASKS[0]).save(tmp_path / "a.tex").read_text())
    assert len(rows) == 1 + len(settings)
    assert rows[-1][0] == r"a, b \& c"


@pytest.mark.slow
@given(st.text())
def test_any_name_is_one_cell(text):
    lines = [r"\begin{tabular}{lr}", r"\toprule", r"a & b \\", r"\midrule", rf"{escaped(text)} & 1 \\"]
    assert len(cells("\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""]))) == 2


def test_two_hyphens_are_no_dash():
    assert escaped("a--b---c-d") == "a-{}-b-{}-{}-c-d"


@pytest.mark.slow
def test_the_provenance_is_in_a_file_beside_the_table(tmp_path):
    sweep = swept(GOOD, TASKS[:3])
    tex = sweep.save(tmp_path / "table.tex", against="all").read_text()
    assert "%" not in tex.replace(r"\%", "")
    assert {path.name for path in tmp_path.iterdir()} == {"table.tex", "table.provenance.json"}
    provenance = json.loads((tmp_path / "table.provenance.json").read_text())
    assert provenance["tot_lab"] == tl.__version__
    assert provenance["model"] == sweep.runner.gateway.settings
    assert set(provenance["settings"]) == set(GOOD)
    assert provenance["cache"]["mode"] == "auto"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", provenance["date"])
    assert provenance["table"]["against"] == "all"
    assert "Holm" in provenance["table"]["p"]


@pytest.mark.slow
def test_a_wrong_baseline_is_said(tmp_path):
    sweep = swept(GOOD, TASKS[:2])
    with pytest.raises(ValueError, match="against='x' is not a setting of the sweep: 'none', 'all', 'six'"):
        sweep.save(tmp_path / "a.tex", against="x")
    with pytest.raises(ValueError, match=r"a\.csv: against= applies to \.tex only"):
        sweep.save(tmp_path / "a.csv", against="all")
    with pytest.raises(ValueError, match="at least two values of 'setting'"):
        swept({"one": Says()}, TASKS[:2]).save(tmp_path / "a.tex", against="one")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ungraded_runs_show_in_every_table(tmp_path):
    tasks = [TASKS[0], TASKS[1].model_copy(update={"reference": None})]
    sweep = swept({"one": tl.OneAnswer()}, tasks)
    first, _, row = str(sweep).splitlines()[:3]
    assert "2 of 2 runs · 1 of 2 graded" in first
    assert row.split()[:5] == ["one", "1", "of", "2", "graded"]
    assert "1 of 2 graded" in sweep._repr_html_().partition("<table>")[0]
    assert "<td>1 of 2 graded</td>" in sweep._repr_html_()
    _, line = cells(sweep.save(tmp_path / "a.tex").read_text())
    assert line[:2] == ["one", "1 of 2 graded"]
    sweep.save(tmp_path / "a.csv")
    assert json.loads((tmp_path / "a.csv.json").read_text())["runs"] == {"finished": 2, "graded": 1, "of": 2}
    assert "1 of 2 runs graded" in tl.figures.plot_sweep(sweep, y="calls").layout.title.subtitle.text
    graded = swept({"one": tl.OneAnswer()}, TASKS[:2])
    figure = tl.figures.plot_sweep(graded)
    assert "graded" not in f"{graded}{graded._repr_html_()}{figure.layout.title.subtitle.text}"


def test_an_answer_without_a_grade_says_what_to_pass():
    task = tl.general("How many?", answer=26)
    lab = tl.Lab("sim/general", runs=None)
    run, sweep = wait(lab.run(tl.OneAnswer(), task)), wait(lab.sweep(tl.OneAnswer(), task))
    for card in (str(run), run._repr_html_(), str(sweep), sweep._repr_html_()):
        assert "ungraded: pass grade=" in card
    unknown = wait(lab.run(tl.OneAnswer(), tl.general("How many?")))
    assert "grade=" not in str(unknown)


@pytest.mark.slow
def test_a_p_value_of_random_swaps_is_an_upper_estimate_with_their_number(tmp_path):
    def rows(differ):
        shares = {"a": [True, True], "b": [True, False]}  # of each task that differs
        return [
            {"setting": setting, "task": f"{task}", "correct": solved, "error": None, "score": float(solved)}
            for task in range(differ)
            for setting, runs in shares.items()
            for solved in runs
        ]

    exact = pandas.DataFrame(rows(13))
    drawn = pandas.DataFrame(rows(14))
    assert tl.stats.compare(exact, "a", "b").swaps == 0
    assert tl.stats.compare(exact, "a", "b").p == 2 / 2**13
    found = tl.stats.compare(drawn, "a", "b")
    assert found.swaps == 9_999
    assert found.p >= 1 / 10_000
    lines = [Summary(name, 28, 28, *[None] * 5, 0, {}) for name in "ab"]
    assert "$p$ (Holm; 9,999 random swaps)" in latex_table(lines, drawn, "b").text
    assert r"$\leq$0.001" in latex_table(lines, drawn, "b").text
    assert "leq" not in latex_table(lines, exact, "b").text
