"""The code in the README and the guides runs as it stands there."""

import json
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from random import Random

import distributed
import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from support import ROOT, TASK, Scripted, mostly_nightly, run
from support.pages import blocks, execute
from support.providers import Providers, Said
from support.serving import process

import tot_lab as tl
from tot_lab.testing import check_strategy

CLUSTER = "docs/how-to/cluster.md"
EXTEND = "docs/how-to/extend.md"
SERVE = "docs/how-to/serve.md"
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
LONG = "docs/concepts/sweeps_and_statistics.md"
BRIDGES = ("docs/how-to/inspect.md", "docs/how-to/mcp.md", "docs/how-to/traces.md", "docs/how-to/trackers.md")
"""Their code needs other packages, and is executed by the tests of `interop` and `tools`."""
SHARE = "docs/how-to/share.md"
"""Followed by two people in `apps/slow/test_sharing.py`."""
EXECUTED = [page for page in PAGES if page not in (CLUSTER, SHARE, *BRIDGES) and blocks(page)]
FIGURE, WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"
SERVER, REWARDS = "http://localhost:8000/v1", "http://localhost:8001/v1"
"""The addresses of servers in the pages."""

SUMS = [(11, 40), (23, 5), (38, 17), (64, 9)]
"""Two numbers in each problem of `math500.jsonl`, which is in the folder of every page."""


def problem_file(folder):
    rows = [{"problem": f"Double the sum of {a} and {b}.", "answer": str(2 * (a + b))} for a, b in SUMS]
    (folder / "math500.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def summands(asked):
    """The numbers in the problem of a request, if it has one of `math500.jsonl`."""
    found = re.search(r"sum of (\d+) and (\d+)", str(asked.json["messages"]))
    return found and [int(number) for number in found.groups()]


def last_number(text):
    return int(re.findall(r"\d+", text)[-1])


def reply_of_a_server(asked):
    if summands(asked):
        return Said(tuple(solved(asked) for _ in range(asked.n)), output_tokens=10 * asked.n)
    return Said("score: 0.5" if "score" in str(asked.json) else "Answer: 26")


def solved(asked):
    """All three steps, or the next one if a text stops it. The first two may err, more often if the sum is
    large: of the four problems, two are clearly harder than the others.
    """
    last = asked.json["messages"][-1]
    steps = last["content"].split("\n\n")[:-1] if last["role"] == "assistant" else []
    begun = len(steps)
    while len(steps) < (begun + 1 if asked.json.get("stop") else 3):
        slip = ROLL.random() < (0.6 if sum(summands(asked)) > 52 else 0.05)
        if not steps:
            steps.append(f"By way {ROLL.randrange(100)}, the sum is {sum(summands(asked)) + slip}.")
        elif len(steps) == 1:
            steps.append(f"Doubled, that is {2 * last_number(steps[0]) + slip}.")
        else:
            box = f"Therefore, the final answer is: $\\boxed{{{last_number(steps[1])}}}$."
            steps.append(box if "boxed" in str(asked.json) else f"Answer: {last_number(steps[1])}")
    return "\n\n".join(steps[begun:])


ROLL = Random(4)


def rewards(asked):
    """vLLM's `/pooling`: a right step has a higher reward than a wrong one."""
    total = sum(summands(asked))
    steps = asked.json["messages"][-1]["content"].split("<extra_0>")[:-1]
    results = [total, 2 * total, 2 * total]
    each = [0.9 if str(result) in step else 0.2 for step, result in zip(steps, results, strict=False)]
    usage = {"prompt_tokens": 20 * len(steps), "total_tokens": 20 * len(steps)}
    return {"data": [{"index": 0, "data": [[1 - reward, reward] for reward in each]}], "usage": usage}


def at_this_server(code, server):
    """`code` with the address of `server` for those in the pages."""
    return code.replace(SERVER, server.base("openai")).replace(REWARDS, server.base("openai"))


EMPTIED = """
import os, sys
os.chdir({folder!r})
os.environ.update({variables})
if "ipywidgets" in sys.modules:
    sys.modules["ipywidgets"].Widget.close_all()
get_ipython().reset()
"""
"""Ends the widgets of a kernel, forgets every name, and goes to another folder."""


@pytest.fixture(scope="module")
def kernel():
    """One kernel for all pages. Two kernels that start at the same time may choose the same port, and one of
    them dies before it runs anything: then it is started again.
    """
    with ExitStack() as after:
        for start in range(3):
            client = NotebookClient(nbformat.v4.new_notebook(), timeout=120)
            try:
                after.enter_context(client.setup_kernel())
                break
            except RuntimeError as error:
                if "before replying to kernel_info" not in str(error) or start == 2:
                    raise
        yield client


@pytest.mark.parametrize("page", mostly_nightly(EXECUTED, [page for page in EXECUTED if page != LONG]))
def test_the_cells_of_a_page_show_what_they_promise(kernel, page, tmp_path):
    """In a real kernel and in order. A server on this machine stands for those of the providers."""
    with Providers(reply_of_a_server) as server, ExitStack() as after:
        variables = {"TOT_LAB_CACHE": str(tmp_path / "calls")}
        for provider, family in (("OPENAI", "openai"), ("ANTHROPIC", "anthropic")):
            variables |= {f"{provider}_BASE_URL": server.base(family), f"{provider}_API_KEY": "none"}
        server.pages["/pooling"] = rewards
        problem_file(tmp_path)
        sources = [at_this_server(code, server) for code in blocks(page)]
        if page == SERVE:  # its command, at a free port
            words = shlex.split(blocks(page, "bash")[0])[2:]
            _, printed = after.enter_context(process(*words, folder=tmp_path, **variables))
            sources = [code.replace("http://127.0.0.1:8400/v1", printed["API"]) for code in sources]
        sources.insert(0, EMPTIED.format(folder=str(tmp_path), variables=variables))
        cells = [nbformat.v4.new_code_cell(code) for code in sources]
        kernel.nb = nbformat.v4.new_notebook(cells=cells)
        kernel.reset_execution_trackers()
        for index, cell in enumerate(cells):
            kernel.execute_cell(cell, index)
    problems = {cell.source: shown for cell in cells[1:] if (shown := problem(cell))}
    assert not problems


def problem(cell: nbformat.NotebookNode) -> str:
    """What keeps a person from reading the output of a cell: nothing is shown, or the address of an object, a
    pile of figures, a warning, or too much. The text is what is left where nothing else can be shown.
    """
    if not cell.outputs:
        return "nothing is shown"
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr" and "Warning" in output.text:
            return output.text[:500]
        data = output.get("data", {"text/plain": output.get("text", "")})
        text = data.get("text/plain", "")
        if re.search(r" at 0x[0-9a-f]+|\bFigure(Widget)?\(|</\w+>", text):
            return text[:500]
        words = re.sub(r"<style>.*?</style>|<[^>]*>", " ", data.get("text/html", ""), flags=re.DOTALL)
        if (size := max(len(text), len(words))) > 5_000:
            return f"{size} characters of text"
    return ""


def test_a_cell_that_shows_nothing_useful_is_found():
    def cell(text=""):
        book = nbformat.v4.new_code_cell("run")
        book.outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": text})] if text else []
        return book

    assert not problem(cell("42"))
    for wrong in ("", "<A object at 0x7f00>", "x" * 5_001, "(Figure({}),)", "'<p>a page</p>'"):
        assert problem(cell(wrong))


def test_the_search_in_the_pictures_goes_as_they_say(tmp_path, monkeypatch):
    """The only way to the answer was pruned at `0.1`; with another score there, the answer is found."""
    monkeypatch.chdir(tmp_path)
    _, _, _, live, lost, branched = blocks("README.md")[:6]
    names = execute(live + lost, {"tl": tl})
    (pruned,) = (found for found in tl.diagnose(names["run"]) if found.kind == "good_pruned")
    assert pruned.nodes == ("0.1",)
    assert not names["run"].correct
    assert execute(branched, names)["other"].correct


def test_the_mark_in_the_guide_is_about_the_thought_that_it_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = blocks("docs/concepts/run_and_record.md")
    (marked,) = (code for code in page if "run.mark(" in code)
    search = next(code for code in page if "4 8 8 11" in code).partition("tl.Explorer(")[0]
    run = execute(search + marked, {"tl": tl})["run"]
    ((id, mark),) = run.marks.items()
    way = mark.note.removesuffix(" is 24")
    assert eval(way) == 24
    left = run.tree[id].text.partition("left: ")[2].rstrip(")").split()
    assert sorted(re.findall(r"\d+", way)) == sorted(left)


@pytest.mark.nightly
def test_the_experiment_of_the_guide_is_what_the_guide_says(tmp_path, monkeypatch):
    """The messages of the packages, whole solutions in groups, and accuracy against generated tokens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOT_LAB_CACHE", str(tmp_path / "calls"))
    problem_file(tmp_path)
    with Providers(reply_of_a_server) as server:
        server.pages["/pooling"] = rewards
        *experiment, answers, estimates, _ = blocks("docs/how-to/search_and_learn.md")
        names = execute(at_this_server("\n".join(experiment), server), {})
        generated = [asked for asked in server.calls if summands(asked)]  # `lab.check` has others
        rewarded = [asked for asked in server.asked if asked.path == "/pooling"]
        server.asked.clear()
        assert len(execute(answers, names)["answers"].df()) == 3 * len(SUMS)
        shown = execute(estimates, names)["estimates"]
        assert not [asked for asked in server.asked if asked.method == "POST"], "no further call"
        assert [list(frame["k"]) for frame in shown] == [[1, 2, 4, 8, 16]] * 4
    frame = names["sweep"].df()
    assert len(frame) == 6 * 2 * len(SUMS)
    assert frame.error.isna().all()
    assert (frame.flops_prefix_once < frame.flops).all()
    assert frame.seconds_alone.notna().any()
    assert set(frame.answer_state[frame.search.notna()]) == {"finished"}
    for asked in generated + rewarded:
        system, user, *reply = asked.json["messages"]
        assert system == {"role": "system", "content": names["boxed"]}
        assert user["content"] in {f"Double the sum of {a} and {b}." for a, b in SUMS}
        assert [message["role"] for message in reply] in ([], ["assistant"])
    solutions = [asked.n for asked in generated if "stop" not in asked.json]
    assert sum(solutions) == 2 * 16 * len(SUMS)  # of majority and of best of N, whose sizes share them
    assert min(solutions) >= 4
    assert {asked.json["temperature"] for asked in generated} == {0.8}
    shown = [asked.json["messages"][-1]["content"].count("<extra_0>") for asked in rewarded]
    assert set(shown) == {1, 2, 3}
    figure = tl.figures.plot_scaling(names["sweep"], cost="output_tokens")
    assert {line.legendgroup for line in figure.data} == {str(k) for k in range(6)}
    means = frame.groupby("setting").output_tokens.mean()
    assert [means[f"majority attempts={n}"] for n in (4, 16)] == [40, 160]
    assert [means[f"particles search.particles={n}"] for n in (4, 16)] == [120, 480]


@pytest.mark.nightly
def test_the_cluster_page_runs_on_a_cluster(tmp_path, monkeypatch):
    """With a scheduler of this machine at the address that it names."""
    monkeypatch.chdir(tmp_path)
    page, _ = blocks(CLUSTER)
    with Providers(lambda asked: Said("Answer: 4")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
        one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
        with distributed.LocalCluster(**one) as cluster:
            names = execute(page.replace("tcp://10.0.0.5:8786", cluster.scheduler_address), {})
            distributed.default_client().close()
        assert names["sweep"].df().answer.tolist() == ["4"]


@pytest.mark.nightly
def test_the_script_of_the_cluster_page_ends_cleanly(tmp_path):
    (tmp_path / "script.py").write_text(blocks(CLUSTER)[1])
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("Sweep: 16 of 16 runs")
    assert all(line.startswith("sweep: ") for line in done.stderr.splitlines()), done.stderr


def block_with(words: str) -> str:
    """The only block of the guide that contains `words`."""
    (code,) = [code for code in blocks(EXTEND) if words in code]
    return code


def test_the_strategy_of_the_guide_makes_the_calls_that_it_states(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    twice = execute(block_with("class Twice("), {"tl": tl, "task": TASK})["Twice"]
    got = run(twice())
    assert got.usage.calls == twice().max_calls(TASK) == 2
    assert got.answer


def test_the_error_about_an_evaluator_is_two_lines_below_the_cell(kernel):
    """IPython shows where the user's code is wrong, the right signature, and no code of the library."""
    cell = nbformat.v4.new_code_cell(
        "import tot_lab as tl\ndef half(path):\n    return 0.5\ntl.TreeOfThoughts(evaluate=half)"
    )
    kernel.nb = nbformat.v4.new_notebook(cells=[cell])
    with pytest.raises(CellExecutionError):
        kernel.execute_cell(cell, 0)
    (error,) = cell.outputs
    shown = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error.traceback))
    assert "----> 4 tl.TreeOfThoughts(evaluate=half)" in shown
    assert ".py" not in shown
    first, second = shown.splitlines()[-2:]
    assert first.endswith("evaluator 'half' has the wrong arguments: got (path).")
    assert second.startswith("It must be (task, path) -> score, or (task, paths) -> scores")


def test_an_error_about_a_function_during_a_run_is_near_the_cell_and_the_function(kernel):
    """IPython shows the cell, the user's function and the line that raised the error."""
    run = "await tl.Lab('sim/game24', runs=None).run(tl.TreeOfThoughts(evaluate={}), tl.game24('4 5 6 10'))"
    texts = {
        "def seven(task, path):\n    return 7\n"
        + run.format("seven"): "must return a score from 0 to 1: got 7.0.",
        "def key(task, path):\n    return {}['k']\n" + run.format("key"): "KeyError: 'k'",
        "import sys, traceback\nprint(len(traceback.extract_tb(sys.last_value.__traceback__)))": "",
    }
    cells = [nbformat.v4.new_code_cell(f"import tot_lab as tl\n{text}") for text in texts]
    kernel.nb = nbformat.v4.new_notebook(cells=cells)
    for place, ends in enumerate(texts.values()):
        with pytest.raises(CellExecutionError) if ends else nullcontext():
            kernel.execute_cell(cells[place], place)
    seven, key = (re.sub(r"\x1b\[[\d;]*m", "", "\n".join(cell.outputs[0].traceback)) for cell in cells[:2])
    for shown, ends in zip((seven, key), texts.values(), strict=False):
        assert "----> 4 await tl.Lab" in shown
        assert shown.endswith(ends)
    assert seven.count(".py:") == 1
    assert "----> 3     return {}['k']" in key
    assert key.count(".py:") == 0
    assert int(cells[2].outputs[0].text) > 9


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["beam", "random_beam", "ByScore"])
def test_the_searches_of_the_guide_keep_the_contract(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = block_with(f"class {name}(" if name == "ByScore" else f"def {name}(")
    made = execute(code, {"tl": tl})[name]
    search = made(width=4) if name == "ByScore" else made
    check_strategy(tl.TreeOfThoughts(search=search))
    deep = tl.TreeOfThoughts(search=search, stop=tl.Stop(solved=None, depth=2))
    assert run(deep).stop_reason == "limit:depth"


@pytest.mark.nightly
def test_the_domain_of_the_guide_is_searchable():
    domain = execute(block_with("class Countdown("), {"tl": tl})["Countdown"]()
    task = tl.Task(domain=domain, question="7")

    def reply(call):
        return (
            f"score: {0.9 if call.sample_index else 0.5}"
            if call.purpose == "value"
            else str(call.sample_index + 1)
        )

    got = run(tl.TreeOfThoughts(stop=tl.Stop(depth=4, solved=0.5), merge=True), task, Scripted(reply))
    assert got.stop_reason == "solved"
    assert got.correct
    assert any(node.state == "merged" for node in got.tree)
