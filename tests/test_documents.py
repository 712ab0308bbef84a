"""The code in the README, in CONTRIBUTING and in the recipes runs as it stands there."""

import ast
import asyncio
import inspect
import re
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import distributed
import pytest
from providers import Providers, Said
from redis_server import RedisServer
from support import TASK, Scripted, run

import tot_lab as tl
from tot_lab.core.records import parent_of
from tot_lab.testing import check_strategy

ROOT = Path(__file__).parent.parent


def blocks(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def execute(code: str, names: dict) -> dict:
    """Run a notebook cell, `await` and all."""
    compiled = compile(code, "<document>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def cell():
        done = eval(compiled, names)
        if inspect.iscoroutine(done):
            await done

    asyncio.run(cell())
    return names


ONE_MACHINE, (CLUSTER,) = (
    [code for code in blocks("README.md") if ("10.0.0.5" in code) == elsewhere] for elsewhere in (False, True)
)
FIRST, ASTRAY, LOOKED_INTO = blocks("README.md")[:3]


@pytest.mark.slow
@pytest.mark.parametrize("code", ONE_MACHINE, ids=lambda code: code.strip().splitlines()[0][:40])
def test_the_readme_runs(code, tmp_path, monkeypatch):
    """On a quarter of the tasks: each of its lines runs, and `tl.stats.anytime_performance` of 800 runs takes
    a while."""
    hands = tl.game24_tasks
    monkeypatch.setattr(tl, "game24_tasks", lambda count: hands(count)[: max(count // 4, 1)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problems.jsonl").write_text('{"q": "What is 2 + 2?", "a": 4}\n')

    async def complete(prompt, temperature):
        return "score: 0.5" if "score" in prompt else "Answer: 4"

    def says(asked):
        return Said("score: 0.5" if "score" in str(asked.json) else "Answer: 26")

    with Providers(says) as server:
        for provider, family in (("OPENAI", "openai"), ("ANTHROPIC", "anthropic")):
            monkeypatch.setenv(f"{provider}_BASE_URL", server.base(family))
            monkeypatch.setenv(f"{provider}_API_KEY", "none")
        names = {"tl": tl, "my_client": SimpleNamespace(complete=complete)}
        if code != FIRST and "tl.Lab(" not in code:  # it goes on with what the first block made
            execute(FIRST, names)
        else:
            names |= {"search": tl.TreeOfThoughts(), "task": TASK}
        execute(code, names)
    if "run" in names:
        assert names["run"].correct is (code != ASTRAY)
        assert list((tmp_path / "runs").glob("*.jsonl"))


@pytest.mark.slow
def test_the_search_in_the_pictures_goes_as_they_say(tmp_path, monkeypatch):
    """The only way to the answer was pruned at `0.1`; with another score there, the answer is found."""
    monkeypatch.chdir(tmp_path)
    names = execute(ASTRAY, {"tl": tl})
    (pruned,) = (found for found in tl.diagnose(names["run"]) if found.kind == "good_pruned")
    assert pruned.nodes == ("0.1",)
    assert not names["run"].correct
    assert execute(LOOKED_INTO, names)["other"].correct


@pytest.mark.slow
def test_the_readme_runs_on_a_cluster(tmp_path, monkeypatch):
    """With a Redis and a scheduler of this machine at the addresses that it names."""
    monkeypatch.chdir(tmp_path)
    redis = RedisServer(tmp_path, requirepass="password")
    with Providers(lambda asked: Said("Answer: 26")) as server, ExitStack() as after:
        after.callback(redis.stop)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
        one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
        with distributed.LocalCluster(**one) as cluster:
            code = CLUSTER.replace("redis://:password@10.0.0.5:6379/0", redis.url)
            code = code.replace("tcp://10.0.0.5:8786", cluster.scheduler_address)
            names = execute(code, {"tl": tl, "settings": tl.OneAnswer(), "tasks": [TASK]})
            distributed.default_client().close()
        assert names["sweep"].df().answer.tolist() == ["26"]


@pytest.mark.slow
def test_the_strategy_in_contributing_runs():
    code, _, held = blocks("CONTRIBUTING.md")
    names = {name: getattr(tl, name) for name in tl.__all__ if name != "plot_tree"}
    twice = execute(code, {**names, "parent_of": parent_of})["Twice"]
    got = run(twice())
    assert got.usage.calls == twice().max_calls(TASK) == 2
    assert got.answer
    execute(held, {"Twice": twice})["test_twice"]()


@pytest.mark.slow
def test_the_search_in_contributing_keeps_the_contract():
    _, code, _ = blocks("CONTRIBUTING.md")
    by_score = execute(code, {})["ByScore"]
    check_strategy(tl.TreeOfThoughts(search=by_score(width=4)))
    search = tl.TreeOfThoughts(search=by_score(width=4), stop=tl.Stop(solved=None, depth=2))
    assert run(search).stop_reason == "limit:depth"


def test_the_domain_in_the_recipe_is_searchable():
    (code,) = blocks("tests/README.md")
    domain = execute(code, {"tl": tl})["Countdown"]()
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
