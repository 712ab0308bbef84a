"""`%think` and `%%think` in a real kernel and in a terminal: they run, are shown, can be stopped. (D13.)"""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest
from jupyter_client import manager
from support import ROOT

from tot_lab.apps.magics import await_magics, keep_question_marks

SLOW = """
import asyncio
import tot_lab as tl

async def slow(call):
    print("asked", flush=True)
    await asyncio.sleep(0 if call.purpose == "branch" else 30)
    return '{"solution": "a step", "confidence": 5}'

lab = tl.Lab(slow, runs=None)
"""


TICKING = """
ticks = []

async def tick():
    while True:
        ticks.append(1)
        await asyncio.sleep(0.01)

ticking = asyncio.ensure_future(tick())
"""


class Kernel:
    """A kernel with the extension, in a folder of its own."""

    def __init__(self, folder):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(folder / "config")}
        env |= {"TOT_LAB_MODEL": "sim/general", "TOT_LAB_CACHE": str(folder / "calls"), "NO_COLOR": "1"}
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
            env.pop(name, None)
        (folder / "here").mkdir()
        started = manager.start_new_kernel(
            kernel_name="python3", env=env, cwd=str(folder / "here"), extra_arguments=["--log-level=40"]
        )
        self.kernels, self.client = started
        self.folder = folder / "here"
        assert self.run("%load_ext tot_lab")[0] == "ok"

    def run(self, cell, heard=lambda text: None):
        """The status, what was shown (kind, text) and the traceback of a cell."""
        self.shown, self.html, self.errors = [], [], []

        def take(message):
            kind, content = message["msg_type"], message["content"]
            if kind == "error":
                self.errors.append("\n".join(content["traceback"]))
            elif kind in ("display_data", "update_display_data", "execute_result"):
                self.shown.append((kind, content["data"]["text/plain"]))
                self.html.append(content["data"].get("text/html", ""))
            elif kind == "stream":
                self.shown.append((content["name"], content["text"]))
                heard(content["text"])

        reply = self.client.execute_interactive(cell, output_hook=take, timeout=60)["content"]
        return reply["status"], self.shown, "".join(self.errors), reply.get("payload", [])

    def said(self, cell):
        """What a cell prints."""
        status, shown, error, _ = self.run(cell)
        assert status == "ok", error
        return "".join(text for kind, text in shown if kind == "stdout").strip()

    def completed(self, text):
        asked = self.client.complete(text, len(text))
        while True:
            message = self.client.get_shell_msg(timeout=30)
            if message["parent_header"].get("msg_id") == asked:
                return message["content"]["matches"]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        made = Kernel(tmp_path_factory.mktemp("kernel"))
    yield made
    made.client.stop_channels()
    made.kernels.shutdown_kernel(now=True)


pytestmark = [pytest.mark.filterwarnings("ignore")]  # jupyter_client's own


@pytest.mark.nightly
def test_a_question_in_a_line_leaves_a_run_and_shows_it(kernel):
    """D13: the result is shown as a panel."""
    status, shown, error, _ = kernel.run("%think --branches 2 Why doesn't it work?")
    assert (status, error) == ("ok", "")
    assert shown[0][0] == "display_data"  # the tree, which is painted anew
    assert "sim/general" in shown[0][1]
    assert all(kind == "update_display_data" for kind, _ in shown[1:-1])
    assert shown[-2][1].startswith("done · ")
    assert shown[-1][0] == "display_data"
    assert kernel.html[-1]
    told = kernel.said("print(thought.question, thought.strategy.strategy.num_branches)")
    assert told == "Why doesn't it work? 2"
    kernel.run("%think --preset quick --out 'quoted' Does \"a\" differ from 'b'?")
    assert kernel.said("print(quoted.question)") == "Does \"a\" differ from 'b'?"


def test_a_cell_has_its_question_below(kernel):
    kernel.run("%%think --preset quick --no-gather --out mine --budget calls=4\nOne line,\ntwo: it's 'so'")
    told = kernel.said("print(mine.question, mine.strategy.strategy.max_iterations, mine.header.budget)")
    assert told == "One line,\ntwo: it's 'so' 1 {'calls': 4}"


def test_d13_tools_are_given_in_the_line_and_gather(kernel):
    """A tool that may read files must be allowed to, and the panel says what was gathered."""
    (kernel.folder / "notes.md").write_text("It rained.")
    refused = kernel.run("%%think --preset quick --tools read_file root=.\nWhy did it rain?")
    assert "--allow files" in refused[2] + str(refused[1])
    kernel.run("%%think --preset quick --tools read_file root=. --allow files\nDebug notes.md, please.")
    assert "Gathered" in kernel.html[-1]
    told = kernel.said("print(list(thought.header.tools), thought.header.effect_policy['allow'])")
    assert told == "['read-file'] ['files']"
    kernel.run("import tot_lab as tl\nmine = tl.Lab('sim/general', runs=None)")
    assert "--lab excludes --tools and --allow" in str(
        kernel.run("%%think --lab mine --tools calculator\nWhy?")
    )


def test_a_later_thought_knows_the_earlier_ones(kernel):
    """D13: kept in the session's memory for later turns."""
    kernel.run("%think --preset quick --out first Which database?")
    kernel.run("%%think --preset quick --out second\nHow do we get there?")
    told = kernel.said("print(first.answer in second.task.context, 'Which database?' in second.task.context)")
    assert told == "True True"


def test_variables_and_files_are_told(kernel):
    (kernel.folder / "notes.md").write_text("It rained.")
    (kernel.folder / "picture.png").write_bytes(b"\x89PNG\0")
    kernel.run("import pandas\ntable = pandas.DataFrame({'city': ['Oslo']})\ntext = 'of my own'")
    kernel.run("%%think --preset quick --context text table --files n*.md\nWhy?")
    told = "--- text ---\nof my own\n\n--- table ---\n,city\n0,Oslo\n\n--- notes.md ---\nIt rained."
    assert told in kernel.said("print(thought.task.context)")
    assert "binary" in kernel.run("%%think --files *\nWhy?")[1][-1][1]


def test_the_question_keeps_its_quotation_marks(kernel):
    (kernel.folder / "my notes.md").write_text("It rained.")
    kernel.run("""%think --preset "quick" --files "my n*.md" -- Isn't this "odd", or 'so' "odd"?""")
    assert kernel.said("print(thought.question)") == """Isn't this "odd", or 'so' "odd"?"""
    assert "It rained." in kernel.said("print(thought.task.context)")
    kernel.run('%think --preset quick "Which  database"')
    assert kernel.said("print(thought.question)") == "Which  database"


def test_what_was_cut_is_said(kernel):
    kernel.run("long = 'word ' * 20_000")
    shown = kernel.run("%think --preset quick --context long -- Why?")[1]
    assert "long was shortened: 40,000 of 99,999 characters are used" in shown[-2][1]


def test_a_lab_of_the_notebook_thinks_with_its_model_and_tools(kernel):
    kernel.run("import tot_lab as tl\nmy_lab = tl.Lab('sim/general', runs=None, tools=['calculator'])")
    kernel.run("%think --preset quick --lab my_lab Why?")
    assert kernel.said("print(thought is my_lab.last, list(thought.header.tools))") == "True ['calculator']"


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%think", "No question given"),
        ("%%think --branches 3", "No question given"),
        ("%%think beside\nbelow", "Write the question below %%think"),
        ("%think --branches x Why?", "--branches: invalid int value: 'x'"),
        ("%think --brnches 2 Why?", "unrecognized arguments: --brnches"),
        ("%think --preset huge Why?", "invalid choice: 'huge' (choose from"),
        ("%think --model sim/generl Why?", "did you mean 'sim/general'?"),
        ("%think --model openai Why?", "No API key for openai/gpt-4.1-mini"),
        ("%think --budget cals=1 -- Why?", "Unknown setting: got 'cals'"),
        ("%think --context tabel -- Why?", "this notebook has no variable tabel"),
        ("%think --files ../x -- Why?", "a pattern must be a relative path"),
        ("%think --files none.* -- Why?", "none.*: no file matches"),
        ("%think --out 1x Why?", "--out must be the name of a variable: got '1x'"),
        ("%think --out class Why?", "--out must be the name of a variable: got 'class'"),
        ("%think --brnches 2 Why?", "`%think --help` shows the options"),
        ("%think --context no_lab Why?", "`--` ends the values of an option"),
        ("%think --lab no_lab Why?", "--lab must name a tl.Lab: got no_lab, of type int"),
        ("%think --lab no_lab --model x Why?", "--lab and --model exclude each other"),
    ],
)
def test_bad_options_are_one_sentence(cell, says, kernel):
    kernel.run("no_lab = 1\nthought = 'as it was'")
    status, shown, error, _ = kernel.run(cell)
    assert status == "error"
    text = "".join(text for _, text in shown)  # it may come in pieces
    assert {kind for kind, _ in shown} == {"stderr"}
    assert (error, text.strip().count("\n")) == ("", 0)
    assert text.startswith("UsageError: ")
    assert says in text
    assert kernel.said("print(thought)") == "as it was"


def test_help_and_completion(kernel):
    for cell in ("%think --help", "%%think --help"):
        status, shown, _, _ = kernel.run(cell)
        assert status == "ok"
        assert shown[0][1].strip().startswith("%think [--branches N]")
        assert "approaches per iteration, 2 to 5" in shown[0][1]
    for cell in ("%think?", "%%think?"):
        (page,) = kernel.run(cell)[3]
        assert "--no-gather" in page["data"]["text/plain"]
    kernel.run("a_table_of_mine = 1")
    assert "--branches" in kernel.completed("%%think --br")
    assert kernel.completed("%think --preset th") == ["thorough"]
    assert "a_table_of_mine" in kernel.completed("%think --context a_tab")
    assert "sim/general" in kernel.completed("%think --model sim/gen")
    assert "calls=" in kernel.completed("%%think --budget ca")


def test_other_cells_are_as_they_were(kernel):
    kernel.run("async def f():\n    return 7")
    said = kernel.said("x = await f()\nprint(x, 'get_ipython().run_line_magic(\\'think\\', 1)')")
    assert said == "7 get_ipython().run_line_magic('think', 1)"
    loop = "for n in range(2):\n    %think --preset quick --out o What is {n} in $n$?\n    print(o.question)"
    assert kernel.said(loop) == "What is {n} in $n$?\nWhat is {n} in $n$?"  # a question is as typed


def test_the_loop_goes_on_while_it_thinks(kernel):
    kernel.run(SLOW.replace("30", "0.6"))
    kernel.run(TICKING)
    shown = kernel.run("%think --preset quick --lab lab Why?")[1]
    assert any(text.startswith("converge … · 2 calls · 1 s") for _, text in shown)  # nothing but time went by
    assert int(kernel.said("ticking.cancel()\nprint(len(ticks))")) > 20


def test_it_is_painted_at_most_five_times_a_second(kernel):
    kernel.run(SLOW.replace("30", "0.02").replace('print("asked", flush=True)', "pass"))
    started = time.monotonic()
    shown = kernel.run("%think --lab lab --iterations 5 Why?")[1]
    painted = [text for _, text in shown[:-1]]
    assert len(painted) <= (time.monotonic() - started) * 5 + 2
    assert painted[-1].startswith("done · ")


def test_an_interrupt_leaves_a_sentence_and_the_run_so_far(kernel):
    kernel.run(SLOW)
    asked = []

    def heard(text):
        asked.append(text)
        if "".join(asked).count("asked") == 2 and not interrupted:
            interrupted.append(True)
            kernel.kernels.interrupt_kernel()

    interrupted = []
    started = time.monotonic()
    status, shown, error, _ = kernel.run("%%think --lab lab --out part\nWhy?", heard)
    assert status == "error"
    assert time.monotonic() - started < 120
    assert re.fullmatch(r"Interrupted after (1 call|\d calls); the run so far is in `part`.", error)
    assert shown[-1][1].startswith(f"interrupted · {error.split()[2]} call")  # both count the same calls
    said = kernel.said("print(part.stop_reason, len(part.tree), len(asyncio.all_tasks()) < 20)")
    assert said == "cancelled 3 True"


# What the shell is given.


LINE = "get_ipython().run_line_magic('think', 'x')"


def transformed(text):
    return "".join(await_magics(text.splitlines(keepends=True)))


@pytest.mark.parametrize(
    ("cell", "becomes"),
    [
        (f"{LINE}\n", f"await {LINE}\n"),
        (f"é = {LINE}\n", f"é = await {LINE}\n"),
        (f"if x:\n    {LINE}\n{LINE}\n", f"if x:\n    await {LINE}\nawait {LINE}\n"),
        ("get_ipython().run_cell_magic('think', 'x', '')\n", f"await {LINE}\n"),
        ("get_ipython().run_cell_magic('thinking', 'x', 'y')\n", None),
        (f"await {LINE}\n", None),
        (f"'''\n{LINE}\n'''\n", None),
        ("get_ipython().run_line_magic('think'\n", None),
    ],
)
def test_only_a_think_is_awaited(cell, becomes):
    assert transformed(cell) == (becomes or cell)


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("%think Why?\n", True),
        ("    x = %think --branches 2 Why is 'this' so??\n", True),
        ("%think?\n", False),
        ("%think Why\n", False),
        ("%thinking Why?\n", False),
        ("x = 'think'\n", False),
    ],
)
def test_a_question_mark_is_no_wish_for_help(line, changed):
    (given,) = keep_question_marks([line])
    assert (given != line) == changed
    assert keep_question_marks(["%%bash\n", line]) == ["%%bash\n", line]
    text = ["x = '''\n", line, "'''\n", line]
    assert keep_question_marks(text) == [*text[:3], given]


# In a terminal.


def test_in_a_terminal_it_tells_its_way_and_ctrl_c_stops_it(tmp_path):
    (tmp_path / "begin.py").write_text(SLOW)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TOT_LAB_MODEL": "sim/general", "IPYTHONDIR": str(tmp_path)}
    env |= {"TERM": "dumb", "NO_COLOR": "1", "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"]
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = ""

    def until(words):
        nonlocal seen
        ends = time.monotonic() + 60
        while words not in seen:
            assert time.monotonic() < ends, seen
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 10_000).decode()
        said, _, seen = seen.partition(words)
        return said

    def enter(line):
        os.write(ours, f"{line}\n".encode())

    try:
        until("In [1]: ")
        enter("%load_ext tot_lab")
        until("In [2]: ")
        enter("%think --preset quick Why?")
        said = until("In [3]: ")
        assert "calling sim/general" in said
        assert re.search(r"\d s  converge: ", said)
        assert "Deep Think, simulated model" in said
        enter("%run begin.py")
        until("In [4]: ")
        enter("%think --lab lab --out part Why?")
        until("asked")
        until("asked")
        running.send_signal(2)
        said = until("In [5]: ")
        assert "the run so far is in `part`" in said
        assert "Traceback" not in said
        enter("print('so', part.stop_reason)")
        until("so cancelled")
    finally:
        running.kill()
        running.wait()
        os.close(ours)
