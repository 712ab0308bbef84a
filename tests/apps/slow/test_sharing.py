"""docs/how-to/share.md as two people follow it: the second has another home, a copied folder, no network."""

import os
import shlex
import shutil
import subprocess
import sys
from itertools import count

import pytest
from support import ROOT, TASK, Scripted, wait
from support.endpoint import scripted
from support.pages import blocks
from support.providers import Providers, Said
from support.shell import tot_lab

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.lab.sharing import export_calls

PAGE = "docs/how-to/share.md"
NO_NETWORK = """
import socket

def refuse(*_):
    raise AssertionError("the network was used")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""
RUN = "import sys; from support.pages import execute; execute(sys.stdin.read(), {})"
COUNTED = 'print("seen:", len(runs), again.answer, again.usage.calls, again.usage.paid, len(table.df()))'


class Person:
    """Somebody with a home and a folder, who types what the page says."""

    def __init__(self, folder, cut=False):
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        (folder / "home").mkdir()
        (folder / "site").mkdir()
        if cut:
            (folder / "site/sitecustomize.py").write_text(NO_NETWORK)
        paths = [folder / "site", ROOT, ROOT / "tests"]
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.env = {**kept, "HOME": str(folder / "home"), "PYTHONPATH": os.pathsep.join(map(str, paths))}

    def do(self, *words, code=""):
        """The output of Python with these arguments."""
        done = subprocess.run(
            [sys.executable, "-W", "error::RuntimeWarning", *words],
            cwd=self.folder,
            env=self.env,
            input=code,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shell(self, command):
        words = shlex.split(command)
        assert words[0] == "tot-lab"
        return self.do("-m", *[words[0].replace("-", "_"), *words[1:]])


def reply(asked):
    return Said("score: 0.5" if "score" in str(asked.json) else "4 + 9 = 13 (left: 10 13 13)")


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_colleague_reruns_everything_without_the_network(tmp_path, whole):
    """`whole`: the first person saves all pages, tables and figures too, and the second replays all runs."""
    export, replay = (line for block in blocks(PAGE, "sh") for line in block.splitlines())
    *own, loaded, rerun = blocks(PAGE)
    if not whole:
        own = [own[0], own[1].partition("\n")[0]]
    with Providers(reply) as server:
        model = f'tl.OpenAICompatible(model="m", base_url="{server.base("openai")}", api_key="")'
        one = Person(tmp_path / "one")
        one.do("-c", RUN, code="".join(own).replace('"sim/game24"', model))
        said = one.shell(export)
        made = len(server.calls)
    assert made > 20
    assert " calls of 21 runs" in said
    assert "1 runs in runs\n" in said
    assert "20 runs in runs/sweep" in said
    assert "not in the file" not in said

    other = Person(tmp_path / "other", cut=True)
    shutil.copytree(one.folder / "runs", other.folder / "runs")
    shutil.copy(one.folder / "calls.jsonl.gz", other.folder)
    if whole:
        assert other.shell(replay).count(": identical,") == 21
    again = ["import tot_lab as tl\n", loaded, rerun.replace('"sim/game24"', model), COUNTED]
    shown = other.do("-c", RUN, code="".join(again))
    assert "seen: 21 " in shown
    assert shown.split()[-1] == "20"
    assert float(shown.split()[-2]) == 0
    tables = [tl.load(folder) for folder in (one.folder / "runs/sweep", other.folder / "again/sweep")]
    assert len({run.id for run in tables[0]}) == 20
    assert {run.id: run.answer for run in tables[0]} == {run.id: run.answer for run in tables[1]}


def test_the_network_of_the_second_person_is_cut(tmp_path):
    with pytest.raises(AssertionError, match="the network was used"):
        Person(tmp_path, cut=True).do("-c", "import socket; socket.create_connection(('127.0.0.1', 9))")


def test_the_export_lists_what_it_lacks(tmp_path):
    def answer(call):
        return Reply(error="down") if next(numbers) == 1 else Reply("Answer: 4")

    numbers = count()
    lab = tl.Lab(scripted(answer), cache=tmp_path / "calls", runs=tmp_path / "runs")
    kept = wait(lab.run(tl.SelfConsistency(attempts=3), TASK))
    uncached = tl.Lab(scripted(), mode="off", runs=tmp_path / "runs/deep/er")
    gone = wait(uncached.run(tl.OneAnswer(), tl.open_ended("3?")))
    simulated = tl.Lab(Scripted(), runs=tmp_path / "runs/.hidden")
    wait(simulated.run(tl.OneAnswer(), TASK))
    free = wait(tl.Lab("sim/game24", runs=tmp_path / "runs").run(tl.OneAnswer(), tl.game24("4 9 10 13")))

    made = export_calls(tmp_path / "x.jsonl.gz", [kept, gone, free], tl.Cache(tmp_path / "calls"))
    assert (made.calls, made.runs, made.lost, made.failed, made.uncached) == (2, 3, {gone.id: 1}, 1, 1)
    done = tot_lab("cache", "export", "y.jsonl.gz", "runs", "--cache", "calls", folder=tmp_path)
    assert done.returncode == 1
    assert "y.jsonl.gz: 2 calls of 3 runs" in done.stdout
    assert "1 failed calls" in done.stdout
    assert "missing: 1 calls of 1 runs" in done.stderr
    assert "1 of runs/deep/er/" in done.stderr
    assert len(tl.load(tmp_path / "runs")) == 3


def test_a_folder_below_a_file_of_another_kind_is_named(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    wait(tl.Lab(Scripted(), runs=tmp_path / "a").run(tl.OneAnswer(), TASK))
    (tmp_path / "a/b/table.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"1 of 2 files are not runs: a/b/table\.json"):
        assert len(tl.load(tmp_path)) == 1
