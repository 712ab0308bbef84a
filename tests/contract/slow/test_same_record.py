"""One record, whatever the transport: latencies, batching, cache, replay and resumption change no record.

The model is an endpoint with all layers of the stack. `test_contract.py` tests the same of a function, which
has no stack.
"""

import threading

import pytest
from support import SMALL, TASK, wait
from support.contract import every_strategy, trial_of
from support.endpoint import scripted
from support.sweeping import OverHttp, Server

import tot_lab as tl
from tot_lab.testing import expect_same, legs

WAYS = {
    "slow": {"mode": "off", "samples": False},
    "slow and batched": {"mode": "off", "samples": True},
    "slow, batched and stored": {"mode": "auto", "samples": True},
    "read from the cache": {"mode": "auto", "samples": False},
    "read offline": {"mode": "replay", "samples": False},
}


def compare(strategy, task, tools, folder, endpoint):
    """Compare the records of all ways with that of a run without latencies, batching and cache.

    endpoint: makes the model from `samples` and whether it is slow.
    """

    def lab(mode, samples, slow=True):
        cache = None if mode == "off" else folder / "cache"
        return tl.Lab(endpoint(samples, slow), runs=folder / "runs", cache=cache, mode=mode, tools=tools)

    plain = lab("off", samples=False, slow=False)
    whole = wait(plain.run(strategy, task))
    for name, way in WAYS.items():
        expect_same(whole.events, wait(lab(**way).run(strategy, task)).events, f"when it is {name}")
    lines = whole.path.read_bytes().splitlines(keepends=True)
    torn = folder / "torn.jsonl"
    torn.write_bytes(b"".join(lines[: len(lines) // 2]))
    resumed = wait(lab("off", samples=True).resume(torn, strategy=strategy, task=task))
    expect_same(whole.events, resumed.events, "when it is resumed")


@every_strategy("slow", "nightly")
def test_every_strategy_records_the_same_with_any_transport(strategy, tmp_path):
    trial = trial_of(strategy)
    compare(
        strategy,
        trial.task,
        [legs],
        tmp_path,
        lambda samples, slow: scripted(samples=samples, spread=0.003 * slow, concurrency=5),
    )


@pytest.mark.parametrize(
    "strategy",
    [
        tl.SelfConsistency(attempts=16),
        tl.BestOf(strategy=SMALL, attempts=2),
        tl.TreeOfThoughts(search="mcts", stop=tl.Stop(nodes=12)),
        tl.TreeOfThoughts(search="rebase", stop=tl.Stop(depth=3)),
        tl.TreeOfThoughts(propose=tl.Propose(), evaluate=tl.Value(samples=2), stop=tl.Stop(depth=3)),
        tl.ReAct(),
        tl.DeepThink(max_iterations=1),
    ],
    ids=lambda strategy: str(getattr(strategy, "search", strategy).kind),
)
def test_over_http_with_latencies_up_to_50_ms_too(strategy, tmp_path):
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def endpoint(samples, slow):
        server.seconds = 0.05 * slow
        return OverHttp(url=str(server.server_address[1]), samples=samples)

    try:
        compare(strategy, TASK, [], tmp_path, endpoint)
    finally:
        server.shutdown()
        server.server_close()
