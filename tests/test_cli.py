"""`tot-lab` as a shell sees it: a real process, in a folder of its own."""

import os
import re
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
from support import run

import tot_lab as tl
from tot_lab.cli import main

ROOT = Path(__file__).parent.parent
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


class Links(HTMLParser):
    """What a page would fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.outside += [
            value for name, value in attrs if name in ("src", "href") and not value.startswith("#")
        ]


def tot_lab(*words: str, folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tot_lab", *words]
    return subprocess.run(
        command, cwd=folder, env=ENV, capture_output=True, text=True, timeout=120, check=False
    )


def test_demo_runs_twenty_searches_and_writes_what_it_says(tmp_path):
    done = tot_lab("demo", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\d+ \d+ \d+ \d+ .*$", done.stdout, re.MULTILINE)
    assert len(rows) == 20
    assert "simulated" in done.stdout
    runs = [tl.load(path) for path in (tmp_path / "demo" / "runs").glob("*/*.jsonl")]
    assert len(runs) == 20
    solved = int(re.search(r"(\d+) of 20 solved", done.stdout)[1])
    assert 0 < solved == sum(run.correct for run in runs) < 20
    page = (tmp_path / "demo" / "report.html").read_text()
    links = Links()
    links.feed(page)
    assert not links.outside
    assert "simulated" in page
    assert tot_lab("demo", folder=tmp_path).returncode == 0  # again: nothing is in its way


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


def test_notebooks_are_copied_and_nothing_is_overwritten(tmp_path):
    done = tot_lab("notebooks", "mine", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine" / "notebooks" / "01_first_search.ipynb").is_file()
    assert (tmp_path / "mine" / "data" / "word_problems.jsonl").is_file()
    again = tot_lab("notebooks", "mine", folder=tmp_path)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert "Traceback" not in again.stderr


def test_help_and_mistakes(tmp_path):
    assert "demo" in tot_lab("--help", folder=tmp_path).stdout
    assert tot_lab("--version", folder=tmp_path).stdout.strip() == f"tot-lab {tl.__version__}"
    wrong = tot_lab("dance", folder=tmp_path)
    assert wrong.returncode == 2
    assert "dance" in wrong.stderr


@pytest.fixture
def journal(tmp_path):
    return run(tl.TreeOfThoughts(branch_factor=3, beam_width=2)).save(tmp_path / "a.jsonl")


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


def test_export_writes_what_the_ending_names(journal, tmp_path):
    for name in ("a.html", "a.svg", "a.graphml", "a.csv"):
        done = tot_lab("export", "a.jsonl", "--to", name, folder=tmp_path)
        assert (done.returncode, done.stdout.strip()) == (0, name), done.stderr
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
        ("a_folder", None, "a_folder: this is a folder; expected a run's journal"),
        ("none.jsonl", None, "none.jsonl: there is no such file; expected a run's journal"),
        ("empty.jsonl", b"", "empty.jsonl, line 1: no whole header; expected a run's journal"),
        ("table.csv", b"a,b\n1,2\n", "table.csv, line 1: no header; expected a run's journal"),
        ("other.jsonl", b'{"a": 1}\n', "other.jsonl, line 1: no header; expected a run's journal"),
        ("picture.png", b"\x89PNG\r\n\x1a\n\x00", "picture.png, line 1: no header; expected a run's journal"),
    ],
)
def test_what_is_no_run_is_said_to_be_none(command, name, holds, says, tmp_path):
    (tmp_path / "a_folder").mkdir()
    if holds is not None:
        (tmp_path / name).write_bytes(holds)
    done = tot_lab(command[0], name, *command[1:], folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tot-lab: {says}")
    assert done.stderr.count("\n") == 1
    assert "Errno" not in done.stderr
    assert not [*tmp_path.glob("new.*")]


def test_what_cannot_be_written_is_named(journal, tmp_path):
    (tmp_path / "a.csv").mkdir()
    done = tot_lab("export", "a.jsonl", "--to", "a.csv", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "tot-lab: a.csv: Is a directory\n")


def test_every_command_says_what_it_does(capsys):
    def helped(*words):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        return capsys.readouterr().out

    named = re.compile(r"^    (\w+)\s{2,}(\S.*)$", re.MULTILINE)
    commands = [((name,), what) for name, what in named.findall(helped())]
    for (group,), _ in list(commands):
        if group in ("cache", "model"):
            commands += [((group, name), what) for name, what in named.findall(helped(group))]
    assert len(commands) == 14
    for words, what in commands:
        assert f"{what[0].upper()}{what[1:]}" in " ".join(helped(*words).split())
