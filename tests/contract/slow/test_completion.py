"""Tab after a public object lists its names, and none of the libraries that it is made of."""

import jedi
import pytest
from jupyter_client import manager
from pydantic import BaseModel
from support import ROOT, TASK, Scripted, wait

import tot_lab as tl

OF_PYDANTIC = {name for name in dir(BaseModel) if not name.startswith("_")} - {"copy"}


@pytest.fixture(scope="module")
def objects():
    lab = tl.Lab(Scripted(), runs=None, tools=["calculator"])
    run = wait(lab.run(tl.TreeOfThoughts(stop=tl.Stop(depth=1)), TASK))
    sweep = wait(lab.sweep({"one": tl.OneAnswer(), "two": tl.ChainOfThought()}, [TASK]))
    search = tl.TreeOfThoughts()
    return {
        "tl": tl,
        "lab": lab,
        "run": run,
        "sweep": sweep,
        "search": search,
        "task": TASK,
        "tree": run.tree,
    }


def completed(code, objects):
    return [found.name for found in jedi.Interpreter(code, [objects]).complete()]


@pytest.mark.parametrize(
    ("code", "some"),
    [
        ("tl.", ["Lab", "TreeOfThoughts", "game24", "stats"]),
        ("lab.", ["run", "sweep", "stream", "last"]),
        ("run.", ["answer", "nodes_df", "plot", "usage", "status", "replay"]),
        ("run.usage.", ["calls", "cost"]),
        ("run.best.", ["score", "text", "children"]),
        ("tree.", ["nodes", "leaves"]),
        ("sweep.", ["df", "runs", "calls_df"]),
        ("search.", ["with_", "propose", "evaluate", "stop"]),
        ("search.stop.", ["depth", "solved"]),
        ("task.", ["question", "domain", "context"]),
        ("tl.stats.", ["compare", "pass_at_k"]),
        ("tl.sim.", ["SimGame24"]),
        ("tl.figures.", ["plot_tree"]),
        ("tl.presets.", ["beam_search"]),
        ("tl.tools.", ["calculator", "mcp"]),
        ("tl.TreeOfThoughts(", ["propose=", "search="]),
        ("tl.BeamSearch(", ["width="]),
        ("tl.Budget(", ["calls="]),
        ("lab.run(", ["budget="]),
    ],
)
def test_jedi_lists_the_names(code, some, objects):
    names = completed(code, objects)
    assert set(some) <= {*names}
    assert code.endswith("(") or not OF_PYDANTIC & {*names}


@pytest.mark.filterwarnings("ignore")  # jupyter_client's own
def test_a_kernel_lists_the_names_and_shows_the_settings(tmp_path):
    kernels, client = manager.start_new_kernel(
        kernel_name="python3", env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    )
    try:
        code = (
            "import tot_lab as tl\n"
            "run = await tl.Lab('sim/game24', runs=None).run(tl.OneAnswer(), tl.game24('4 9 10 13'))\n"
            "search = tl.TreeOfThoughts()"
        )
        assert client.execute_interactive(code, timeout=120)["content"]["status"] == "ok"
        for start, some in [("run.", "nodes_df"), ("search.", "evaluate"), ("tl.", "Lab")]:
            found = client.complete(start, reply=True, timeout=120)["content"]["matches"]
            names = {name.removeprefix(start) for name in found}
            assert some in names
            assert not OF_PYDANTIC & names
        for name, row in [
            ("tl.BeamSearch", "width (int >= 1 | None, default 2): Thoughts kept"),
            ("tl.Budget", "usd (float >= 0 | None, default None): Cost of all calls in USD"),
            ("search", "temperature (float in [0, 2] | None, default None): Sampling temperature"),
            ("tl.Lab", "timeout (float | None, default 120.0): Seconds"),
            ("tl", "tl.Explorer(run)"),
        ]:
            answer = client.inspect(name, reply=True, timeout=120)["content"]
            text = answer["data"]["text/plain"]
            assert row in text
            assert "FieldInfo" not in text
    finally:
        client.stop_channels()
        kernels.shutdown_kernel(now=True)
