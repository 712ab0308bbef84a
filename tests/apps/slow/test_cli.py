"""`tot-lab` as a shell sees it, in a folder of its own.

Ten tests start a real process. The others call the command in this one, which saves its imports.
"""

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import networkx
import pandas
import pytest
from support import ROOT, run
from support.providers import Hang, Providers, Said
from support.published import GAME24
from support.shell import ENV, shell, tot_lab

import tot_lab as tl
from tot_lab.apps.cli import main
from tot_lab.apps.cli.arguments import parse_fields


class Links(HTMLParser):
    """What a page would fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.outside += [
            value for name, value in attrs if name in ("src", "href") and not value.startswith("#")
        ]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The command in the folder of the test: exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def ran(*words):
        done = tot_lab(*words, folder=tmp_path)
        return done.returncode, done.stdout, done.stderr

    return ran


def test_demo_runs_twenty_searches_and_writes_what_it_says(tmp_path):
    done = shell("demo", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\d+ \d+ \d+ \d+ .*$", done.stdout, re.MULTILINE)
    assert len(rows) == 20
    assert "a real model of a small formal language" in done.stdout
    runs = [tl.load(path) for path in (tmp_path / "demo" / "runs").glob("*/*.jsonl")]
    assert len(runs) == 20
    solved = int(re.search(r"(\d+) of 20 solved", done.stdout)[1])
    assert 0 < solved == sum(run.correct for run in runs) < 20
    page = (tmp_path / "demo" / "report.html").read_text()
    links = Links()
    links.feed(page)
    assert not links.outside
    assert "real model of a small formal language" in page
    assert tot_lab("demo", folder=tmp_path).returncode == 0  # again: nothing is in its way


@pytest.mark.nightly
def test_demo_interrupted_keeps_what_was_finished(tmp_path):
    command = [sys.executable, "-m", "tot_lab", "demo", "out"]
    running = subprocess.Popen(command, cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    journals = tmp_path / "out" / "runs"
    for _ in range(500):
        if any(journals.glob("*/*.jsonl")):
            break
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode in (0, 130)
    assert b"Traceback" not in errors
    assert all(tl.load(path) for path in journals.glob("*/*.jsonl"))


def links_in(file, text):
    """The files that a page or a cell links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)", text)
    return [file.parent / path for path in found]


def links_of_notebook(file):
    cells = [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "markdown"]
    return [link for cell in cells for link in links_in(file, "".join(cell["source"]))]


def test_notebooks_are_copied_and_nothing_is_overwritten(tmp_path):
    done = tot_lab("notebooks", "mine", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine" / "notebooks" / "01_first_search.ipynb").is_file()
    assert (tmp_path / "mine" / "data" / "word_problems.jsonl").is_file()
    linked = [link for file in tmp_path.rglob("*.ipynb") for link in links_of_notebook(file)]
    linked += [link for file in tmp_path.rglob("*.md") for link in links_in(file, file.read_text())]
    assert len(linked) > 50
    assert not [str(path) for path in linked if not path.exists()]
    again = tot_lab("notebooks", "mine", folder=tmp_path)
    assert again.returncode == 1
    assert "already exists" in again.stderr
    assert "Traceback" not in again.stderr


def test_help_and_mistakes(tmp_path):
    assert "demo" in tot_lab("--help", folder=tmp_path).stdout
    assert shell("--version", folder=tmp_path).stdout.strip() == f"tot-lab {tl.__version__}"
    wrong = tot_lab("dance", folder=tmp_path)
    assert wrong.returncode == 2
    assert "dance" in wrong.stderr


@pytest.fixture
def journal(tmp_path):
    return run(tl.TreeOfThoughts(propose=tl.Sample(count=3))).save(tmp_path / "a.jsonl")


def test_show_writes_a_page_and_says_where(journal, tmp_path):
    done = tot_lab("show", "a.jsonl", "--no-open", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    page = Path(done.stdout.strip())
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert tmp_path not in page.parents
    both = tot_lab("show", "a.jsonl", "a.jsonl", "--out", "both.html", "--no-open", folder=tmp_path)
    assert both.stdout.strip() == str(tmp_path / "both.html")
    assert b'id="run-1"' in (tmp_path / "both.html").read_bytes()


def test_show_opens_the_browser(journal, tmp_path):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "tot_lab", "show", "a.jsonl", "--out", "a page.html"]
    subprocess.run(command, cwd=tmp_path, env={**ENV, "BROWSER": f"{browser} %s"}, timeout=60, check=True)
    assert opened.read_text().strip() == (tmp_path / "a page.html").as_uri()


def test_export_writes_what_the_ending_names(journal, tmp_path, here):
    for name in ("a.html", "a.svg", "a.graphml", "a.csv"):
        code, out, err = here("export", "a.jsonl", "--to", name)
        assert (code, out.strip()) == (0, name), err
    known = tl.load(journal)
    assert list(pandas.read_csv(tmp_path / "a.csv").id) == list(known.tree.nodes)
    assert set(networkx.read_graphml(tmp_path / "a.graphml")) == set(known.tree.nodes)
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    wrong = tot_lab("export", "a.jsonl", "--to", "a.docx", folder=tmp_path)
    assert wrong.returncode == 2
    assert "NAME.graphml" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize(
    "command", [("show", "--no-open", "--out", "new.html"), ("export", "--to", "new.csv")]
)
@pytest.mark.parametrize(
    ("name", "holds", "says"),
    [
        ("none.jsonl", None, "none.jsonl: no such file. Expected a run's journal"),
        ("empty.jsonl", b"", "empty.jsonl, line 1: no complete header"),
        ("table.csv", b"a,b\n1,2\n", "table.csv: no importer recognises this file"),
        ("other.jsonl", b'{"a": 1}\n', "other.jsonl, line 1: no header; expected a run's journal"),
        ("picture.png", b"\x89PNG\r\n\x1a\n\x00", "picture.png: no importer recognises this file"),
    ],
)
def test_what_is_no_run_is_said_to_be_none(command, name, holds, says, here):
    if holds is not None:
        Path(name).write_bytes(holds)
    code, out, err = here(command[0], name, *command[1:])
    assert (code, out) == (2, "")
    assert err.startswith(f"tot-lab: {says}")
    assert err.count("\n") == 1
    assert "Errno" not in err
    assert not [*Path().glob("new.*")]


def test_what_cannot_be_written_is_named(journal, tmp_path):
    (tmp_path / "a.csv").mkdir()
    done = tot_lab("export", "a.jsonl", "--to", "a.csv", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "tot-lab: a.csv: Is a directory\n")


def test_a_folder_is_shown_as_a_whole_and_exported_run_by_run(here):
    Path("a_folder").mkdir()
    assert here("show", "a_folder", "--no-open") == (
        1,
        "",
        "tot-lab: a_folder: no run in this folder. Runs are NAME.jsonl, NAME.json, NAME.eval, "
        "NAME.parquet.\n",
    )
    code, out, err = here("export", "a_folder", "--to", "new.csv")
    assert (code, out) == (2, "")
    assert "a_folder: is a folder. Expected a run's journal" in err


# One search, and many.

HAND = ("--task", "game24", "4 5 6 10")
SIM = ("--model", "sim/game24")


def test_run_says_what_came_of_it_and_where_it_lies(tmp_path):
    words = (
        "run",
        "tree_of_thoughts",
        "search.width=5",
        "propose=propose",
        *HAND,
        *SIM,
        "--out",
        "a/b.jsonl",
    )
    done = shell(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    made = tl.load(tmp_path / "a" / "b.jsonl")
    assert made.strategy == tl.TreeOfThoughts(propose="propose", search=tl.BeamSearch(width=5))
    assert made.task == tl.game24("4 5 6 10")
    assert made.correct
    for said in (
        made.answer,
        "✓ correct",
        "simulated model",
        f"calls     {made.usage.calls} ",
        "ended     accepted a solution",
        "$0",
    ):
        assert said in done.stdout
    assert done.stdout.splitlines()[-1].split()[:2] == ["journal", "a/b.jsonl"]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["b.jsonl"]
    kept = made.path.read_bytes()
    again = tot_lab(*words, folder=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "already exists" in again.stderr
    assert made.path.read_bytes() == kept


def test_run_takes_a_preset_a_model_with_settings_a_budget_and_a_repeat(tmp_path):
    words = ("run", "presets.game24", "search.width=3", *HAND, *SIM, "skill=0.5", "garble=0.1")
    done = tot_lab(*words, "--budget", "calls=7", "usd=0.5", "--repeat", "2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    assert f"runs/{path.name}" in done.stdout
    made = tl.load(path)
    assert made.strategy == tl.presets.game24().model_copy(update={"search.width": 3})
    assert made.header.model == tl.sim.SimGame24(skill=0.5, garble=0.1).settings()
    assert (made.header.budget, made.header.repeat) == ({"calls": 7, "usd": 0.5}, 2)
    assert (made.stop_reason, made.usage.calls) == ("budget:calls", 7)


def test_a_text_is_written_with_open_ended(tmp_path, monkeypatch):
    """A line `Answer: …` in the text is part of it."""
    text = "Questions\nAnswer: one\nAnswer: two"
    words = ("run", "one_answer", "--task", "open_ended", "Write.", "--model", "openai/m", "--out", "a.jsonl")
    with Providers(lambda asked: Said(text)) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
        done = tot_lab(*words, "--cache", "calls", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    made = tl.load(tmp_path / "a.jsonl")
    assert (made.answer, made.task.domain.kind) == (text, "open_ended")
    assert "open_ended" in tot_lab("run", "--help", folder=tmp_path).stdout


@pytest.mark.nightly
def test_run_shows_no_key_and_fails_aloud(tmp_path, monkeypatch):
    key = "sk-not-to-be-seen"
    words = ("run", "one_answer", "--task", "general", "What is 17 * 3?", "answer=51", "grade=number")
    with Providers(lambda asked: Said("Answer: 51")) as server:
        for name, value in {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": server.base("openai")}.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(ENV, name, value)
        good = shell(*words, "--cache", "calls", "--model", "openai/gpt-4.1-mini", folder=tmp_path)
        bad = tot_lab(*words, "--cache", "calls", "--model", "no-such-provider/x", folder=tmp_path)
        assert server.calls
    assert good.returncode == 0, good.stderr
    assert "✓ correct" in good.stdout
    assert "simulated" not in good.stdout
    assert bad.returncode == 1
    assert "no-such-provider/x" in bad.stdout
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for said in (good.stdout, good.stderr, bad.stdout, bad.stderr, written.decode(errors="replace")):
        assert key not in said


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("5", [5]),
        ("1,2,5", [1, 2, 5]),
        ("sample,propose", ["sample", "propose"]),
        ("none,True,0.5", [None, True, 0.5]),
        ("", [""]),
        ("1,", [1, ""]),
        ('"a, b",c', ["a, b", "c"]),
        ('{"kind":"mcts","exploration":2},beam', [{"kind": "mcts", "exploration": 2}, "beam"]),
        ("[1,2]", [[1, 2]]),
        ("2nd,1=1", ["2nd", "1=1"]),
        ("[1,2", ["[1", 2]),
        ("[" * 100_000, ["[" * 100_000]),
    ],
)
def test_the_values_of_a_field(text, values):
    assert parse_fields([f"x={text}"]) == {"x": values}


TREE = ("tree_of_thoughts", *HAND)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run",), "arguments are required: --model, --task"),
        (("run", *HAND, *SIM), "No strategy given. Begin with one of tree_of_thoughts, "),
        (("run", "search.width=2", *HAND, *SIM), "No strategy given. Begin with one of tree_of_thoughts, "),
        (("run", "search.width=2", "one_answer", *HAND, *SIM), "Name a strategy before search.width=2."),
        (("run", "tree", *HAND, *SIM), "Unknown strategy 'tree'; known are tree_of_thoughts"),
        (("run", "raect", *HAND, *SIM), "Unknown strategy 'raect'; did you mean 'react'?"),
        (("run", "presets.chess", *HAND, *SIM), "presets.game24"),
        (("run", "tree_of_thoughts", "search.widht=2", *HAND, *SIM), "Did you mean 'search.width'?"),
        (
            ("run", "tree_of_thoughts", "search.width=0", *HAND, *SIM),
            "TreeOfThoughts.search.width must be greater",
        ),
        (
            ("run", "tree_of_thoughts", "search.width=x", *HAND, *SIM),
            "TreeOfThoughts.search.width must be a valid int",
        ),
        (("run", "tree_of_thoughts", "propose=guess", *HAND, *SIM), "propose: unknown kind 'guess'; known"),
        (("run", "tree_of_thoughts", "search=walk", *HAND, *SIM), "search: unknown kind 'walk'; known"),
        (
            ("run", "tree_of_thoughts", 'search={"kind":"mcts","exploration":-1}', *HAND, *SIM),
            "exploration",
        ),
        (("run", "tree_of_thoughts", "search.width=1,2", *HAND, *SIM), "A run takes one setting: got 2"),
        (("run", "tree_of_thoughts", "search.width=1", "search.width=2", *HAND, *SIM), "given twice"),
        (("run", "best_of", *HAND, *SIM), "best_of: BestOf.strategy must be given"),
        (("run", "baselines", *HAND, *SIM), "Use `tot-lab sweep` for several"),
        (("run", "one_answer", "--task", "game24", "4", "5", *SIM), "'5': expected FIELD=VALUE"),
        (("run", "one_answer", "--task", "game24", "4 5", *SIM), "four integers from 1 to 13"),
        (("run", "one_answer", "--task", "game24", *SIM), "needs a problem"),
        (("run", "one_answer", "--task", "chess", "e4", *SIM), "Unknown domain 'chess'; known are game24"),
        (("run", "one_answer", "--task", "mini_crossword", "99", *SIM), "number from 1 to 24"),
        (
            ("run", "one_answer", "--task", "general", "?", "gread=x", *SIM),
            "Known are answer, grade, c",
        ),
        (("run", "one_answer", "--task", "general", "?", "grade=x", *SIM), "grade: Input should be 'number'"),
        (("run", *TREE, "--model", "sim/game25"), "did you mean 'sim/game24'?"),
        (("run", *TREE, "--model", "sim/game24", "skill=2"), "SimGame24.skill must be less than"),
        (
            ("run", *TREE, "--model", "sim/game24", "skill=0,1"),
            "skill must be a valid number: got [0, 1]",
        ),
        (("run", *TREE, "--model", "local/none"), "weights must be one of"),
        (
            ("run", *TREE, "--model", "gpt-4.1", "api_key=sk-1"),
            "api_key must not be given on the command",
        ),
        (("run", *TREE, "--model", "gpt-4.1", "api_base=http://me:sk-1@host"), "api_base"),
        (("run", *TREE, *SIM, "--budget", "call=3"), "setting: got 'call'. Known are calls, input"),
        (("run", *TREE, *SIM, "--budget", "calls=-1"), "budget: Budget.calls must be greater"),
        (("run", *TREE, *SIM, "--budget", "3"), "--budget must be FIELD=VALUE, such as calls=60: got '3'"),
        (("run", *TREE, *SIM, "--mode", "on"), "'auto', 'off', 'refresh', 'replay'"),
        (("run", *TREE, *SIM, "--repeat", "-1"), "--repeat"),
        (("run", *TREE, *SIM, "--spend", "-1"), "spend must be at least 0 USD"),
        (("run", *TREE, *SIM, "--out", "a.csv"), "a run is written to NAME.jsonl"),
        (("run", "presets.mini_crossword", *HAND, *SIM), "'game24' has no max_parts"),
        (("sweep", "one_answer", *HAND, *SIM, "--out", "none/a.csv"), "no such folder: none"),
        (("sweep", "one_answer", *SIM), "No tasks given. Use --tasks FILE"),
        (("sweep", "baselines", "attempts=x", *HAND, *SIM), "baselines: attempts: Input should be a valid"),
        (("sweep", "one_answer", "one_answer", *HAND, *SIM), "are the same"),
        (("sweep", "one_answer", *HAND, *HAND, *SIM), "Use repeats= to run a task more than once"),
        (
            ("sweep", "one_answer", "--tasks", "game24", "count=0", *SIM),
            "from 1 to 1362, the number of solvable hands",
        ),
        (("sweep", "one_answer", "--tasks", "game24", *SIM), "count: Missing required argument"),
        (
            ("sweep", "one_answer", "--tasks", "none.csv", *SIM),
            "'none.csv' is neither a file nor a domain",
        ),
        (("sweep", "one_answer", *HAND, *SIM, "--out", "a.docx"), "NAME.csv, NAME.parquet or NAME.tex"),
        (
            ("sweep", "one_answer", *HAND, *SIM, "--repeats", "0"),
            "an integer of at least 1: got '0'",
        ),
        (
            ("sweep", "one_answer", *HAND, *SIM, "--at-once", "0"),
            "an integer of at least 1: got '0'",
        ),
        (("sweep", "one_answer", *HAND, *SIM, "--name", "a/b"), "name must be the name of a folder"),
    ],
)
def test_bad_words_are_named_in_one_line_and_nothing_is_asked(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as ended:  # argparse's
        code = ended.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert says in err
    assert err.startswith("tot-lab")
    assert err.count("\n") == 1
    assert "sk-1" not in err
    assert not [*tmp_path.iterdir()]


SWEEP = (
    *("sweep", "tree_of_thoughts", "propose=sample,propose", "search.width=1,2", "baselines", "attempts=3"),
    *("--tasks", "game24", "count=4", *SIM, "skill=0.5", "--repeats", "2", "--name", "hands"),
)


def test_sweep_writes_its_table_over_no_tasks(tmp_path):
    tasks = tmp_path / "tasks.csv"
    tasks.write_text("q,a\nWhat is 1 + 1?,2\n")
    words = ("sweep", "one_answer", "--tasks", "tasks.csv", "question=q", "answer=a", "grade=number", *SIM)
    done = tot_lab(*words, "--out", "./tasks.csv", folder=tmp_path)
    assert done.returncode == 2
    assert "is the file of the tasks" in done.stderr
    assert tasks.read_text() == "q,a\nWhat is 1 + 1?,2\n"


def test_answers_that_nothing_is_held_against_are_said(tmp_path):
    words = ("sweep", "one_answer", "--task", "general", "What is 1 + 1?", "answer=2", *SIM)
    assert "ungraded: pass grade= (number, " in tot_lab(*words, folder=tmp_path).stdout
    assert "ungraded" not in tot_lab(*words[:-2], "grade=number", *SIM, folder=tmp_path).stdout


@pytest.mark.filterwarnings("default")  # it is warned of, too
def test_what_a_full_disk_did_not_take_is_said(tmp_path, small_disk):
    disk = small_disk(16)
    done = tot_lab("run", "tree_of_thoughts", *HAND, *SIM, "--out", str(disk / "x.jsonl"), folder=tmp_path)
    assert done.returncode == 1
    assert "it could not be written" in done.stdout, done.stderr
    words = ("sweep", "tree_of_thoughts", "--tasks", "game24", "count=4", *SIM)
    (tmp_path / "runs").symlink_to(disk)
    done = tot_lab(*words, folder=tmp_path)
    assert done.returncode == 1
    assert re.search(r"\d runs could not be written", done.stdout)


def test_sweep_is_that_of_a_notebook(tmp_path, monkeypatch):
    done = tot_lab(*SWEEP, "--out", "hands.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    trees = tl.grid(tl.TreeOfThoughts, {"propose": ["sample", "propose"], "search.width": [1, 2]})
    settings = {"tree_of_thoughts": trees, **tl.baselines(3)}
    lab = tl.Lab(tl.sim.SimGame24(skill=0.5))
    sweep = asyncio.run(lab.sweep(settings, tl.game24_tasks(4), repeats=2, name="hands"))
    assert sweep.found == len(sweep.cells) == 64
    rates = tl.stats.success_rates(sweep).set_index("setting")
    for setting, rate in rates.iterrows():
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{setting}  ")]
        assert re.search(rf" {rate.rate:.1%} +{rate.low:.1%} – {rate.high:.1%} ", line), line
        assert line.endswith(f"  {rate.lost}")
    assert "a simulated model took part" in done.stdout
    assert "journals: runs/hands/" in done.stdout
    table = pandas.read_csv("hands.csv")
    assert list(table.run_id) == [cell.run_id for cell in sweep.cells]
    assert table.calls.tolist() == sweep.df().calls.tolist()
    assert json.loads(Path("hands.csv.json").read_text())["model"] == tl.sim.SimGame24(skill=0.5).settings()
    again = tot_lab(*SWEEP, "--out", "hands.tex", folder=tmp_path)
    assert "64 of them loaded from an earlier sweep" in again.stdout
    assert r"\begin{tabular}" in Path("hands.tex").read_text()


def test_sweep_over_a_file_of_tasks(tmp_path):
    (tmp_path / "sums.csv").write_text("q,a\nWhat is 2 + 2?,4\nWhat is 3 + 3?,6\n")
    words = ("--tasks", "sums.csv", "question=q", "answer=a", "grade=number", "--model", "sim/general")
    done = tot_lab(
        "sweep", "one_answer", "chain_of_thought", *words, *HAND, "--out", "t.csv", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    table = pandas.read_csv(tmp_path / "t.csv")
    assert table.task.tolist() == ["What is 2 + 2?", "What is 3 + 3?", "4 5 6 10"] * 2
    assert table.setting.tolist() == ["one_answer"] * 3 + ["chain_of_thought"] * 3
    wrong = tot_lab("sweep", "one_answer", "--tasks", "sums.csv", "question=x", *SIM, folder=tmp_path)
    assert wrong.returncode == 2
    assert "sums.csv line 2: field 'x' is missing: got the fields 'q', 'a'." in wrong.stderr


def test_sweep_estimates_without_asking(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def most_calls(text):
        return int(re.search(r"^calls +([\d,]+)", text, re.M)[1].replace(",", ""))

    assert main([*SWEEP, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "64 runs of sim/game24, a simulated model: free: 8 settings, 4 tasks" in said
    assert "left: 64 of 64 runs" in said
    assert "expected" not in said
    assert not [*tmp_path.iterdir()]
    assert main([*SWEEP, "--pilot", "2"]) == 0
    piloted = capsys.readouterr().out
    assert "left: 48 of 64 runs" in piloted
    assert "expected from 2 finished tasks" in piloted
    assert most_calls(piloted) < most_calls(said)
    assert main([*SWEEP, "--pilot", "5"]) == 2
    assert "pilot must be 1 to 4, the number of tasks: got 5." in capsys.readouterr().err
    assert main(SWEEP) == 0
    runs = tl.load(tmp_path / "runs" / "hands")
    assert 0 < sum(run.usage.calls for run in runs) <= most_calls(said)
    capsys.readouterr()
    assert main([*SWEEP, "--dry-run"]) == 0
    after = capsys.readouterr().out
    assert "left: 0 of 64 runs" in after
    assert most_calls(after) == 0


def test_sweep_interrupted_says_how_to_go_on_and_does(tmp_path):
    words = [word.replace("skill=0.5", "latency=0.02") for word in SWEEP]
    command = [sys.executable, "-m", "tot_lab", *words, "--out", "t.csv"]
    running = subprocess.Popen(
        [*command, "--at-once", "1"],
        cwd=tmp_path,
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journals = tmp_path / "runs" / "hands"
    while running.poll() is None and len([*journals.glob("*.jsonl")]) < 6:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "Traceback" not in errors
    finished = int(re.search(r"interrupted: (\d+) of 64 runs .* repeat the command", errors)[1])
    assert 0 < finished < 64
    assert f"Sweep: {finished} of 64 runs" in said
    assert not (tmp_path / "t.csv").exists()
    ended = {
        path for path in journals.glob("*.jsonl") if tl.load(path).stop_reason not in (None, "cancelled")
    }
    assert len(ended) == finished
    kept = {path: path.read_bytes() for path in ended}
    on = tot_lab(*words, "--out", "t.csv", folder=tmp_path)
    assert on.returncode == 0, on.stderr
    assert f"64 of 64 runs · {finished} of them loaded from an earlier sweep" in on.stdout
    assert {path: path.read_bytes() for path in ended} == kept
    trees = tl.grid(tl.TreeOfThoughts, {"propose": ["sample", "propose"], "search.width": [1, 2]})
    settings = {"tree_of_thoughts": trees, **tl.baselines(3)}
    lab = tl.Lab(tl.sim.SimGame24(), runs=None)  # with no latency, which changes no reply
    asyncio.run(lab.sweep(settings, tl.game24_tasks(4), repeats=2)).save(tmp_path / "whole.csv")
    tables = [pandas.read_csv(tmp_path / name) for name in ("t.csv", "whole.csv")]
    pandas.testing.assert_frame_equal(
        *(table.drop(columns=["seconds", "seconds_alone", "run_id"]) for table in tables)
    )


def test_a_sweep_in_which_all_goes_wrong_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tl.Cache(tmp_path / "empty")
    words = ("--mode", "replay", "--cache", "empty", "--tasks", "game24", "count=3")
    assert main(["sweep", "one_answer", *words, *SIM]) == 1
    assert capsys.readouterr().out.count("3 of 3 runs failed, without a grade, all with: CacheMiss") == 1


@pytest.mark.nightly
def test_run_interrupted_keeps_what_there_is(tmp_path):
    command = [sys.executable, "-m", "tot_lab", "run", *TREE, *SIM, "latency=0.2", "--out", "a.jsonl"]
    running = subprocess.Popen(
        command, cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while running.poll() is None and not [*tmp_path.glob("*.jsonl")]:
        time.sleep(0.01)
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "Traceback" not in errors
    assert re.search(r"ended:? +was cancelled", said)
    resumed = asyncio.run(tl.Lab(tl.sim.SimGame24(latency=0.2), runs=None).resume(tmp_path / "a.jsonl"))
    whole = asyncio.run(tl.Lab("sim/game24", runs=None).run(resumed.strategy, resumed.task))
    assert (resumed.stop_reason, resumed.answer) == (whole.stop_reason, whole.answer)


def test_tasks_under_constraints_have_words_too(tmp_path):
    player = ("--model", "sim/constrained", "skill=1", "noise=0")
    done = tot_lab(
        "run", "deep_think", "--task", "constrained", "4", *player, "--out", "a.jsonl", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert tl.load(tmp_path / "a.jsonl").grade == 1.0
    words = ("sweep", "one_answer", "--tasks", "constrained", "count=4", "kind=design", *player)
    done = tot_lab(*words, "--out", "t.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    table = pandas.read_csv(tmp_path / "t.csv")
    assert list(table.correct) == [True] * 4
    assert not table.task.str.startswith("Write").any()
    done = tot_lab(*words[:5], "kind=poem", *player, "--out", "u.csv", folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "tasks constrained: kind: Input should be 'writing' or 'design'" in done.stderr


# Tools.

AGENT = ("--model", "sim/agent", "skill=1")


def test_tools_are_named_and_only_what_is_allowed_is_done(tmp_path):
    words = ("run", "react", "--task", "word_sums", "1", *AGENT, "--out", "a.jsonl")
    done = tot_lab(*words, "--tools", "calculator,python", "--allow", "process", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"tools +2 × calculator$", done.stdout, re.MULTILINE)
    header = tl.load(tmp_path / "a.jsonl").header
    assert list(header.tools) == ["calculator", "python"]
    assert header.effect_policy == {"mode": "allow_list", "allow": ["process"], "deny": []}
    (tmp_path / "notes").mkdir()
    settings = ("--tools", "read_file", "root=notes", "max_bytes=9", "calculator", "digits=3")
    done = tot_lab(*words[:-1], "b.jsonl", *settings, "--allow", "files", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    tools = tl.load(tmp_path / "b.jsonl").header.tools
    assert (tools["read-file"]["max_bytes"], tools["calculator"]["digits"]) == (9, 3)


def test_tools_may_do_what_the_users_own_settings_file_allows(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "config" / "tot_lab" / "tot_lab.toml"
    own.parent.mkdir(parents=True)
    own.write_text('model = "sim/general"\nallow = ["process", "files"]\n')
    words = ["run", "react", "--task", "word_sums", "1", *AGENT, "--tools", "calculator,python"]
    assert main([*words, "--out", "a.jsonl"]) == 0
    header = tl.load(tmp_path / "a.jsonl").header
    assert header.effect_policy == {"mode": "allow_list", "allow": ["process"], "deny": []}
    assert main([*words, "--allow", "python", "--out", "b.jsonl"]) == 0  # the option goes before the file
    assert tl.load(tmp_path / "b.jsonl").header.effect_policy["allow"] == ["python"]
    (tmp_path / "tot_lab.toml").write_text('allow = ["network"]\n')  # a project's file allows nothing here
    capsys.readouterr()
    assert main([*words, "web_fetch", "--out", "c.jsonl"]) == 2
    assert "web-fetch: network; add --allow network,process" in capsys.readouterr().err
    own.write_text("allow = 3\n")
    assert main([*words, "--out", "d.jsonl"]) == 2
    assert f"{own}: allow: " in capsys.readouterr().err
    assert main([*words[:-1], "calculator", "--out", "d.jsonl"]) == 0  # it needs no permission


def test_a_sweep_has_the_tools_of_a_domain(tmp_path):
    words = ("sweep", "react", "chain_of_thought", "--tasks", "multi_hop", "count=3", *AGENT)
    done = tot_lab(*words, "--tools", "multi_hop", "--out", "t.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    table = pandas.read_csv(tmp_path / "t.csv").groupby("strategy").correct.sum()
    assert table["react"] == 3 > table["chain_of_thought"]
    (path, *_) = (tmp_path / "runs" / "sweep").glob("*.jsonl")
    assert list(tl.load(path).header.tools) == ["search", "open"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "--tools calculater",
            "unknown tool 'calculater'; did you mean 'calculator'? Known are calculator, py",
        ),
        ("--tools read_file", "The tool 'read_file' requires settings: root=… (ReadFile)"),
        ("--tools calculator digit=3", "Calculator has no setting 'digit'; did you mean 'digits'?"),
        ("--tools digits=3", "--tools: name a tool before digits=3"),
        (
            "--tools multi_hop digits=3",
            "'multi_hop' names tools that accept no settings: got digits",
        ),
        ("--tools calculator,calculator", "The names of tools must differ: got 'calculator' twice"),
        ("--tools python", "python: process; add --allow process"),
        ("--tools python,web_fetch --allow process", "web-fetch: network; add --allow network,process"),
        (
            "--tools python --allow proces",
            "--allow proces: no tool has this effect; did you mean 'process'?",
        ),
        ("--tools calculator --allow network", "--allow network: no tool has this effect; known are none"),
        ("--allow network", "--allow needs --tools: no tools are given"),
    ],
)
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_tools_that_cannot_be_had_are_told_of_before_anything_is_asked(
    command, words, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    assert main([command, "react", "--task", "word_sums", "1", *AGENT, *words.split()]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("tot-lab: ")
    assert says in said.err
    assert said.err.count("\n") == 1
    assert not [*tmp_path.iterdir()]


# Other people's runs.


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps([GAME24[0], {**GAME24[0], "idx": 8}]))
    return path


def test_a_run_of_a_published_log_is_named_by_its_number(log, journal, tmp_path, here):
    assert here("export", "log.json#1", "--to", "b.csv") == (0, "b.csv\n", "")
    assert list(pandas.read_csv(tmp_path / "b.csv").id) == list(tl.load(log)[1].tree.nodes)
    code, _, err = here("show", "log.json#0", "a.jsonl", "--out", "both.html", "--no-open")
    assert code == 0, err
    page = (tmp_path / "both.html").read_bytes()
    assert tl.load(log)[0].id.encode() in page
    log.rename(tmp_path / "odd#1")
    assert "log of 2 runs" in here("export", "odd#1", "--to", "c.csv")[2]
    assert here("export", "odd#1#1", "--to", "c.csv")[0] == 0


@pytest.mark.parametrize("command", [("show", "--no-open"), ("export", "--to", "new.csv")])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("log.json#2", "log.json#2: a log of 2 runs. Name one: log.json#0 to #1."),
        ("a.jsonl#0", "a.jsonl#0: a.jsonl contains one run. Name it without #0."),
        ("none.json#0", "none.json#0: no such file"),
        ("log.json#²", "log.json#²: no such file"),
        ("empty.json", "empty.json: contains no runs."),
        ("empty.json#0", "empty.json#0: contains no runs."),
    ],
)
def test_a_number_that_names_no_run_is_told_of(command, name, says, log, journal, here):
    log.with_name("empty.json").write_text('{"resourceSpans": []}')
    code, out, err = here(command[0], name, *command[1:])
    assert (code, out) == (2, "")
    assert err.startswith(f"tot-lab: {says}")
    assert err.count("\n") == 1


def test_a_log_of_several_runs_is_shown_as_a_whole_and_exported_run_by_run(log, here):
    assert here("show", "log.json", "--out", "all.html", "--no-open")[0] == 0
    assert 'id="sweep"' in Path("all.html").read_text()
    code, _, err = here("export", "log.json", "--to", "new.csv")
    assert (code, err) == (2, "tot-lab: log.json: a log of 2 runs. Name one: log.json#0 to #1.\n")


def test_the_pages_show_what_a_shell_does(tmp_path):
    """To the letter; a line `…` stands for some lines."""
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))])
    blocks = re.findall(r"^```console\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    shown = [part for block in blocks for part in re.split(r"^\$ tot-lab ", block, flags=re.MULTILINE)[1:]]
    assert len(shown) == 3
    for words, _, said in (part.partition("\n") for part in shown):
        done = tot_lab(*shlex.split(words), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        beginning, dots, end = said.partition("    …\n")
        assert done.stdout.startswith(beginning)
        assert done.stdout.endswith(end) if dots else done.stdout == said


# One question thought through.


@pytest.fixture
def own_settings(tmp_path, monkeypatch):
    for name, value in {"XDG_CONFIG_HOME": str(tmp_path / "config"), "TOT_LAB_MODEL": "sim/general"}.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(ENV, name, value)


@pytest.mark.nightly
def test_think_prints_what_comes_of_it_and_tells_its_way_apart(tmp_path, own_settings):
    (tmp_path / "notes.md").write_text("It rained.")
    words = ("think", "Why <is> it wet?", "--preset", "quick", "--branches", "7", "--files", "*.md")
    done = shell(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    run = tl.load(path)
    assert (run.question, run.task.context) == ("Why <is> it wet?", "--- notes.md ---\nIt rained.")
    assert run.answer in done.stdout
    assert "simulated" in done.stdout
    assert done.stderr.startswith("calling sim/general\n")
    assert "\n\n" not in done.stderr
    assert "num_branches=7 is out of range: 5 is used" in done.stderr
    assert re.search(r"\d s  converge: ", done.stderr)
    assert f"runs/{path.name}" in done.stderr


def test_think_takes_a_budget_tools_and_writes_a_report(tmp_path, own_settings):
    words = ("think", "Why?", "--budget", "calls=2", "--tools", "calculator", "--out", "report.md")
    done = tot_lab(*words, folder=tmp_path)
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    run = tl.load(path)
    assert (list(run.header.tools), run.header.budget) == (["calculator"], {"calls": 2})
    assert (done.returncode, done.stdout.strip()) == (int(not run.answer), run.answer)
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("# ")
    assert tot_lab(*words, folder=tmp_path).returncode == 2
    assert (tmp_path / "report.md").read_text() == report


def test_think_asks_whom_the_settings_name(tmp_path, own_settings):
    with Providers(Said("A whole text.")) as server:
        (tmp_path / "tot_lab.toml").write_text(
            f'[models.work]\nprovider = "openai"\nbase_url = "{server.base("openai")}"\n'
        )
        done = tot_lab("think", "Why?", "--preset", "quick", "--model", "work", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"calling openai/gpt-4.1-mini at {server.base('openai')} (settings: {tmp_path}" in done.stderr
    assert "A whole text." in done.stdout
    assert "simulated" not in done.stdout


def test_think_interrupted_keeps_what_there_is(tmp_path, own_settings):
    with Providers(Hang(60)) as server:
        (tmp_path / "tot_lab.toml").write_text(
            f'[models.work]\nprovider = "openai"\nbase_url = "{server.base("openai")}"'
        )
        command = [sys.executable, "-m", "tot_lab", "think", "Why?", "--model", "work"]
        running = subprocess.Popen(
            command, cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(1000):
            if any("chat" in asked.path for asked in server.asked):
                break
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"Traceback" not in errors
    assert b"lab.resume" in errors
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    assert tl.load(path).stop_reason == "cancelled"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "arguments are required: question"),
        (("Why?", "--branches", "x"), "--branches: invalid int value: 'x'"),
        (("Why?", "--preset", "huge"), "invalid choice: 'huge'"),
        (("Why?", "--model", "openai"), "No API key for openai/gpt-4.1-mini"),
        (("Why?", "--model", "sim/generl"), "did you mean 'sim/general'?"),
        (("Why?", "--budget", "cals=1"), "Unknown setting: got 'cals'"),
        (("Why?", "--files", "../x"), "a pattern must be a relative path"),
        (("Why?", "--tools", "web_fetch"), "add --allow network"),
        ((" ",), "question must not be empty"),
    ],
)
def test_bad_words_of_think_are_told_in_one_line(words, says, tmp_path, monkeypatch, capsys, own_settings):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    test_bad_words_are_named_in_one_line_and_nothing_is_asked(
        ("think", *words), says, tmp_path, monkeypatch, capsys
    )
