"""Every strategy, and every value of a search: killed in the middle and resumed, and many at once."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys

import pytest
from support import SMALL, TASK, TESTS, Scripted, run, shuffled, wait
from support.contract import MADE, trial_of
from support.killed import ALL

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.runtime.recorder import Divergence

SEED = 20

CHILD = """
import asyncio, json, sys
from pathlib import Path
from support.killed import halfway
asyncio.run(halfway(Path(sys.argv[1]), json.loads(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The whole run of each strategy, and the folder of one that was killed. The other process has other
    hashes, as any other process of a person has.
    """
    folder, roll = tmp_path_factory.mktemp("killed"), random.Random(SEED)
    whole = [trial_of(strategy).run() for strategy in ALL]
    replies = [roll.randrange(run.usage.calls // 2, run.usage.calls) for run in whole]
    hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    paths = [str(TESTS), *sys.path]
    env = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-c", CHILD, str(folder), json.dumps(replies)]
    child = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=120)
    assert child.returncode == -signal.SIGKILL, child.stderr
    return [(one, folder / str(k)) for k, one in enumerate(whole)]


def resumed(killed, k):
    """The whole run, and the killed one after it was resumed. No reply is paid twice."""
    whole, folder = killed[k]
    (path,) = folder.glob("*.jsonl")
    cut = tl.load(path)
    assert cut.stop_reason is None
    known = sum(isinstance(event, Reply) and event.tool is None for event in cut.events)
    trial = trial_of(ALL[k])
    model = trial.model()
    again = wait(trial.lab(model).resume(path, strategy=trial.strategy, task=trial.task))
    assert len(model.calls) + known == whole.usage.calls
    assert tl.load(path).events == again.events
    return whole, again


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(MADE)), ids=[f"{made.kind}-{k}" for k, made in enumerate(MADE)])
def test_a_killed_run_resumes_to_the_same_record(killed, k):
    whole, again = resumed(killed, k)
    assert again.events == whole.events


@pytest.mark.slow
def test_a_search_that_goes_through_a_set_does_not_resume_elsewhere(killed):
    with pytest.raises(Divergence, match=r"tot\.picked|parents"):
        resumed(killed, len(MADE))


@pytest.mark.nightly
def test_all_at_once_in_one_lab_are_each_as_if_alone():
    """Two repeats of each, over 128 runs at the same time."""
    jobs = [(strategy, repeat) for strategy in MADE for repeat in (0, 1)]

    async def together():
        model = Scripted(latency=shuffled(3))
        lab = trial_of(MADE[0]).lab(model)
        return await asyncio.gather(
            *(lab.run(one, trial_of(one).task, repeat=repeat) for one, repeat in jobs)
        )

    for (strategy, repeat), made in zip(jobs, wait(together()), strict=True):
        assert made.events == trial_of(strategy).run(repeat=repeat).events, strategy


class Crowd(Scripted):
    """Knows how many calls were under way at the same time."""

    most, open = 0, 0

    async def __call__(self, call):
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            return await super().__call__(call)
        finally:
            self.open -= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        tl.methods.ForestOfThoughts(strategy=SMALL, trees=64, batch=64),
        tl.methods.WeightedBestOf(strategy=SMALL, attempts=64),
        tl.SelfConsistency(attempts=64),
        tl.TreeOfThoughts(
            propose=tl.proposers.Mixture(temperatures=(0.0, 0.5, 1.0), proposer=tl.Sample(count=64)),
            stop=tl.Stop(depth=1),
        ),
    ],
    ids=lambda strategy: strategy.kind,
)
def test_64_branches_run_at_once_and_are_recorded_as_if_one_after_another(strategy):
    crowd = Crowd(latency=lambda call: 0.05 + 0.001 * (call.sample_index % 7))
    assert run(strategy, TASK, crowd).events == run(strategy).events
    assert crowd.most >= 64
