"""What the engine itself costs: a search whose model answers at once, and one whose model is slow.

    python benchmarks/engine.py [--peers] [--keep]

The work: tree of thoughts with branch 5, beam 5, depth 4 and a model that answers every call with
a constant. That is 80 thoughts (5 + 25 + 25 + 25) and 160 calls, all of it recorded to a journal
on disk. Printed, beside the target of each:

1. CPU per node: what a search costs when the model costs nothing.
2. Wall ÷ ideal when every call takes 20 ms. Ideal = 8 rounds of calls one after another: a level
   cannot propose before the level above it is scored.
3. Speed against the same search with a barrier between the proposals and the evaluations of a
   level, when a call takes 20 ms on average (exponential), the same times in both. A Monte-Carlo
   figure of what could be gained at best stands beside it.
   And the wall time under a cap of USD that is far away, against the time without one: for an endpoint
   that knows its price, and for a function, which does not, so that its calls are admitted in a ramp.
   And how long the branches of Deep Think take together, against the slowest of them, when a call takes
   100 ms.
4. CPU per call of each strategy, tools and the scripted model of `tot_lab.testing` included: a record in
   memory, `ChainOfThought` inside what wraps another. What the others need above its 1 call is theirs.
5. With --peers: the same work in jeevesagent, treequest and langgraph, each in a venv of its own
   that is made for the purpose and deleted again (--keep: left where it is). A round of ours and
   one of the peer's take turns, each in a fresh process; the ratio of a pair is what counts,
   since this or that machine is often half as fast a minute later.

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tot_lab as tl
from tot_lab.core.calls import CallObserver, Model, Need
from tot_lab.core.registry import built_in
from tot_lab.models.stack import Endpoint
from tot_lab.testing import TASK as ASKED
from tot_lab.testing import Scripted, legs

SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=5), search=tl.BeamSearch(width=5), stop=tl.Stop(depth=4))
TASK = tl.general("What is six times seven?")
LEVELS = (5, 25, 25, 25)
NODES, CALLS = sum(LEVELS), 2 * sum(LEVELS)
LATENCY = 0.020

HERE = Path(__file__).parent
PEERS = (
    # what is installed, the script that runs in its venv, how it is told to run and the target there
    ("jeevesagent==0.9.7", "jeevesagent_peer.py", {"run": "≥ 3, 4 hoped", "stream": ""}),
    ("treequest==0.3.3", "treequest_peer.py", {"step": "", "step in place": ""}),
    ("langgraph", "langgraph_peer.py", {"no checkpointer": "", "memory checkpointer": ""}),
)


async def at_once(call: tl.Call) -> str:
    """The null model."""
    return "score: 0.5" if call.purpose == "value" else "a next step"


async def steady(call: tl.Call) -> str:
    """Every call takes the same time."""
    await asyncio.sleep(LATENCY)
    return await at_once(call)


class Uneven:
    """Calls take 20 ms on average, each a time that follows from the seed and the call alone.
    With `barriers`, no thought of a level is evaluated before its last proposal has come."""

    def __init__(self, seed: int, *, barriers: bool) -> None:
        self.seed = seed
        self.barriers = barriers
        self.proposing = 0
        self.proposed = asyncio.Event()

    async def __call__(self, call: tl.Call) -> str:
        seconds = random.Random(f"{self.seed} {call.purpose} {call.node} {call.sample_index}").expovariate(
            1 / LATENCY
        )
        if call.purpose == "value":
            if self.barriers:
                await self.proposed.wait()
            await asyncio.sleep(seconds)
        else:
            self.proposing += 1  # all of a level are under way before the first has come
            self.proposed.clear()
            await asyncio.sleep(seconds)
            self.proposing -= 1
            if self.proposing == 0:
                self.proposed.set()
        return await at_once(call)


async def searched(model: Model, folder: str) -> float:
    """Wall seconds of one search; its size is checked."""
    began = time.perf_counter()
    run = await tl.Lab(model, runs=folder).run(SEARCH, TASK)
    seconds = time.perf_counter() - began
    assert (len(run.tree) - 1, run.usage.calls) == (NODES, CALLS), (len(run.tree), run.usage)
    return seconds


class Priced(Endpoint):
    """An endpoint that knows its price: every call takes the same time, and costs a tenth of a cent."""

    kind = "bench_engine.priced"
    concurrency: int = 256

    @property
    def name(self) -> str:
        return "priced"

    def identity(self) -> dict[str, Any]:
        return {"model": self.name}

    def need(self, calls: Sequence[tl.Call]) -> Need:
        return Need(200 * len(calls), 0.01 * len(calls), prompt=100)

    async def answer(self, calls: Sequence[tl.Call], observer: CallObserver) -> Sequence[tl.Reply]:
        await asyncio.sleep(LATENCY)
        used = {"input_tokens": 80, "output_tokens": 20, "cost": 0.001}
        return [tl.Reply(await at_once(call), **used) for call in calls]  # type: ignore[arg-type]


async def unpriced(call: tl.Call) -> tl.Reply:
    """The same as a function, which has no price beforehand."""
    return (await Priced().answer([call], Unheard()))[0]


class Unheard:
    """An observer that nobody listens to."""

    paid: float | None = None
    watched = False

    def note(self, name: str, **data: Any) -> None: ...

    def partial(self, text: str) -> None: ...


async def under_a_cap(rounds: int) -> None:
    """Wall time under a generous cap of USD against that without a cap."""
    models: dict[str, Any] = {"price known": Priced(), "price unknown, a ramp": unpriced}
    for known, model in models.items():
        lab = tl.Lab(model, runs=None, mode="off")
        ratios = []
        await lab.run(SEARCH, TASK)
        for _ in range(rounds):
            seconds = []
            for budget in (None, tl.Budget(usd=1000.0)):
                began = time.perf_counter()
                run = await lab.run(SEARCH, TASK, budget=budget)
                seconds.append(time.perf_counter() - began)
                assert run.usage.calls == CALLS, run.usage
            ratios.append(seconds[1] / seconds[0])
        target = "≤ 1.05" if model is not unpriced else ""
        line(f"USD cap ÷ none, {known}", statistics.median(ratios), target, spread(ratios))


def strategies() -> list[tl.Strategy]:
    """One of each kind, cheap inside."""
    inner = tl.ChainOfThought()
    wrappers = {tl.BestOf, tl.WithThinking, tl.WithSynthesis}
    kinds: list[Any] = list(built_in("strategies").values())
    return [kind(strategy=inner) if kind in wrappers else kind() for kind in kinds]


async def each_strategy(runs: int = 60) -> None:
    """µs of CPU that a call takes in each strategy."""
    for strategy in strategies():
        lab = tl.Lab(Scripted(), runs=None, tools=[legs])
        await lab.run(strategy, ASKED)
        began, calls, tools = time.process_time(), 0, 0
        for repeat in range(runs):
            run = await lab.run(strategy, ASKED, repeat=repeat)
            calls += run.usage.calls
            tools += sum(isinstance(e, tl.Reply) and e.tool is not None for e in run.events)
        spent = (time.process_time() - began) / calls * 1e6
        note = f"{calls / runs:.1f} calls and {tools / runs:.1f} of tools a run"
        line(f"CPU µs per call, {strategy.kind}", spent, "", note)


async def one_round(runs: int = 100, *, on_disk: bool = True) -> dict[str, Any]:
    """CPU per node over `runs` searches, in the form in which the peers tell theirs."""
    with tempfile.TemporaryDirectory() as folder:
        lab = tl.Lab(at_once, runs=folder if on_disk else None)
        run = await lab.run(SEARCH, TASK)
        await lab.run(SEARCH, TASK)
        began = time.process_time()
        for _ in range(runs):
            await lab.run(SEARCH, TASK)
        cpu = time.process_time() - began
    return {"us_per_node": cpu / runs / NODES * 1e6, "nodes": len(run.tree) - 1, "calls": run.usage.calls}


async def sleeps() -> float:
    """Wall seconds of the same sleeps with no search around them: what clock and loop add."""
    began = time.perf_counter()
    for width in LEVELS:
        for _ in range(2):
            await asyncio.gather(*(asyncio.sleep(LATENCY) for _ in range(width)))
    return time.perf_counter() - began


def output_of(command: Sequence[str | Path]) -> dict[str, Any]:
    """The JSON line that a script prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}:\n{done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def in_theory(repeats: int = 20_000) -> float:
    """How much faster it is without barriers when nothing but the calls takes time: of each
    level, the mean of max(a) + max(b) over that of max(a + b), a and b exponential."""
    generator = np.random.default_rng(0)
    with_barriers = without = 0.0
    for width in LEVELS:
        a, b = generator.exponential(size=(2, repeats, width))
        with_barriers += float((a.max(axis=1) + b.max(axis=1)).mean())
        without += float((a + b).max(axis=1).mean())
    return with_barriers / without


async def waiting(rounds: int) -> None:
    """Parts 2 and 3."""
    with tempfile.TemporaryDirectory() as folder:
        ideal = 2 * len(LEVELS) * LATENCY
        bare, walls = [], []
        for _ in range(rounds):
            bare.append(await sleeps())
            walls.append(await searched(steady, folder))
        note = f"{rounds} rounds; {statistics.median(bare) / ideal:.2f} for the sleeps with no search at all"
        line("wall ÷ ideal, 20 ms a call", statistics.median(walls) / ideal, "≤ 1.08", note)
        free, held = [], []
        for seed in range(rounds):
            held.append(await searched(Uneven(seed, barriers=True), folder))
            free.append(await searched(Uneven(seed, barriers=False), folder))
        pairs = f"{len(free)} pairs; {in_theory():.2f} in theory"
        line("with barriers ÷ without, 20 ms mean", sum(held) / sum(free), "≥ 1.2", pairs)


async def developing(rounds: int) -> None:
    """Deep Think's branches side by side."""
    model = Scripted(latency=lambda call: 0.1)
    ratios = []
    for repeat in range(rounds):
        run = await tl.Lab(model, runs=None).run(tl.presets.deep_think_quick(), ASKED, repeat=repeat)
        calls = run.calls_df()
        stage = calls[calls["purpose"] == "develop"]
        together = (stage["asked"] + stage["seconds"]).max() - stage["asked"].min()
        ratios.append(together / stage["seconds"].max())
    note = f"{spread(ratios)}; 3 branches, 100 ms a call"
    line("Deep Think, DEVELOP ÷ slowest branch", statistics.median(ratios), "≤ 1.10", note)


@contextmanager
def venv_of(package: str, keep: bool = False) -> Iterator[Path]:
    """The python of a throwaway venv that holds `package`."""
    folder = Path(tempfile.mkdtemp(prefix="tot_lab-peer-"))
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = folder / "bin" / "python"
        quiet = ["--quiet", "--disable-pip-version-check", "--no-warn-script-location"]
        command = [str(python), "-m", "pip", "install", *quiet, package]
        installed = subprocess.run(command, capture_output=True, text=True, check=False)
        if installed.returncode:
            raise SystemExit(f"{package} could not be installed:\n{installed.stderr}")
        yield python
    finally:
        if keep:
            print(f"{package}: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def against_peers(rounds: int, keep: bool) -> None:
    """Part 4."""
    print("\nCPU per node, peer ÷ ours")
    for package, script, modes in PEERS:
        with venv_of(package, keep) as python:
            for mode, target in modes.items():
                own: list[str | Path] = [sys.executable, __file__, "--round"]
                other: list[str | Path] = [python, HERE / "peers" / script, mode]
                pairs = [(output_of(own), output_of(other)) for _ in range(rounds)]
                told = pairs[0][1]
                ratios = [peer["us_per_node"] / us["us_per_node"] for us, peer in pairs]
                ours, theirs = (
                    statistics.median(side["us_per_node"] for side in sides)
                    for sides in zip(*pairs, strict=True)
                )
                size = f"{told['nodes']} nodes, {told['calls']} calls; {theirs:.0f} µs ÷ {ours:.0f} µs"
                name = f"{package.partition('=')[0]} {told['version']}, {mode}"
                line(name, statistics.median(ratios), target, size)


def line(what: str, value: float, target: str, note: str) -> None:
    print(f"{what:38} {value:7.2f}   {target and 'target ' + target:22} {note}", flush=True)


def spread(values: Sequence[float], unit: float = 1.0) -> str:
    return f"{len(values)} rounds, {min(values) / unit:.2f} to {max(values) / unit:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="run the same work in other libraries too")
    parser.add_argument("--keep", action="store_true", help="leave the peers' venvs where they are")
    parser.add_argument("--rounds", type=int, default=15, help="how often each thing is measured")
    parser.add_argument("--round", action="store_true", help="one round of ours, as a JSON line")
    options = parser.parse_args()
    if options.round:
        print(json.dumps(asyncio.run(one_round())))
        return
    rounds = [output_of([sys.executable, __file__, "--round"]) for _ in range(options.rounds)]
    costs = [float(told["us_per_node"]) for told in rounds]
    print(f"branch 5, beam 5, depth 4: {rounds[0]['nodes']} nodes, {rounds[0]['calls']} calls, all recorded")
    line("CPU µs per node, journal on disk", statistics.median(costs), "", spread(costs))
    in_memory = [asyncio.run(one_round(on_disk=False))["us_per_node"] for _ in range(options.rounds)]
    line("CPU µs per node, record in memory", statistics.median(in_memory), "", spread(in_memory))
    asyncio.run(waiting(options.rounds))
    asyncio.run(under_a_cap(options.rounds))
    asyncio.run(developing(options.rounds))
    asyncio.run(each_strategy())
    if options.peers:
        against_peers(options.rounds, options.keep)


if __name__ == "__main__":
    main()
