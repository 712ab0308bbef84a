"""What a tree search processes of its prompts, and what sharing their beginnings saves.

    python benchmarks/prefix.py [MODEL ...] [--slots 4] [--count 3] [--width 2] [--threads 1] [--only slots]

1. What the prompts of siblings have in common, by domain and purpose: characters of the longest
   common beginning, and its share of the prompt. Simulated players write the trees.
2. A whole tree search of the Game of 24 on llama.cpp, with the model's own replies. Sharing is on and
   off in turn: several slots; one slot with a seed; one slot without. Tokens that llama.cpp processed
   per call (its own counters, processing beforehand included), seconds, and CPU time of the server.

smollm2-135m takes a minute on a quiet machine; qwen2.5-coder-1.5b, half an hour. On a noisy machine compare
tokens and CPU time, not seconds. Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from engine import line

import tot_lab as tl
from tot_lab.analysis.frames import calls_of
from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.core.reading.values import common_length
from tot_lab.domains.named import examples_of
from tot_lab.models.local import _server_for
from tot_lab.models.prefixes import Prefixes

DOMAINS = ("game24", "mini_crossword", "creative_writing", "constrained", "general")
TICKS = os.sysconf("SC_CLK_TCK")


# What siblings share


async def shared_in(domain: str, evaluate: str) -> dict[str, list[tuple[int, int]]]:
    """By purpose, for each pair of sibling prompts: characters in common, and of the second prompt."""
    (task,) = examples_of(domain, 1)
    search = tl.TreeOfThoughts(propose=tl.proposers.Propose(count=4), evaluate=evaluate, search="beam")  # type: ignore[arg-type]
    run = await tl.Lab(f"sim/{domain}", runs=None).run(search, task)
    prompts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in calls_of(run):
        parent, text = row.call.node.rpartition(".")[0], row.call.prompt
        if text not in prompts[row.call.purpose, parent]:
            prompts[row.call.purpose, parent].append(text)
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (purpose, _), texts in prompts.items():
        for one, other in pairwise(texts):
            found[purpose].append((common_length(one, other), len(other)))
    return found


async def what_siblings_share() -> None:
    for domain in DOMAINS:
        for evaluate in ("value", "joint", "vote", "logprob"):
            try:
                found = await shared_in(domain, evaluate)
            except (ValueError, LookupError):  # a domain without example tasks or such prompts
                continue
            for purpose, pairs in found.items():
                if purpose == "propose" and evaluate != "value":
                    continue
                same, whole = (sum(column) for column in zip(*pairs, strict=True))
                note = f"{same / len(pairs):.0f} of {whole / len(pairs):.0f} characters"
                line(f"{domain}, {purpose}", 100 * same / whole, "", f"% ({note})")


# A whole search


class Counting:
    """A server that counts the tokens it processes.

    It answers a call that is in `replies` for real, and returns the reply found there, so that searches with
    and without sharing make the same calls.
    """

    def __init__(self, endpoint: Any, replies: dict[str, Reply]) -> None:
        self.endpoint = endpoint
        self.replies = replies
        self.processed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.endpoint, name)

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        cached = 0

        class Noting:
            paid, watched, partial = None, False, staticmethod(observer.partial)

            def note(self, name: str, **data: Any) -> None:
                nonlocal cached
                cached += data.get("cached_tokens", 0)
                observer.note(name, **data)

        (reply,) = await self.endpoint.answer(calls, Noting())
        self.processed += (reply.input_tokens or 0) - cached
        key = repr(msgspec.structs.replace(calls[0], options={}))
        return [self.replies.setdefault(key, reply)]


async def without(self: Prefixes, call: Call, observer: CallObserver) -> Sequence[Reply]:
    """Let llama.cpp select the slot, and do not reuse anything for a call with a seed."""
    if call.seed is not None:
        call = msgspec.structs.replace(call, options={"cache_prompt": False, **call.options})
    return await self.endpoint.answer([call], observer)


def cpu_of(process: int) -> float:
    """Seconds of CPU time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def searched(
    name: str, on: bool, slots: int, seed: int | None, replies: dict[str, Reply], options: argparse.Namespace
) -> tuple[float, float, float, float, int]:
    """Tokens processed a call, prompt tokens a call, seconds and CPU seconds a call, and calls sent."""
    model = tl.Local(weights=name, slots=slots, threads=options.threads, context_window=1024)
    server = _server_for(model)
    prefixes = await asyncio.to_thread(server.start)
    counting = prefixes.endpoint = Counting(prefixes.endpoint, replies)  # type: ignore[assignment]
    task = tl.game24_tasks(3, structured=True)[2]
    search = tl.TreeOfThoughts(
        propose=tl.proposers.Sample(count=options.count),
        evaluate=tl.evaluators.Value(),
        search=tl.searches.BeamSearch(width=options.width),
        temperature=0.8,
        max_tokens=options.reply,
        seed=seed,
    )
    shared, pid = Prefixes.answer, server._process.pid  # type: ignore[union-attr]
    if not on:
        Prefixes.answer = without  # type: ignore[method-assign]
    try:
        began, cpu = time.perf_counter(), cpu_of(pid)
        run = await tl.Lab(model, runs=None, mode="off", timeout=None).run(search, task)
        took, cpu = time.perf_counter() - began, cpu_of(pid) - cpu
    finally:
        Prefixes.answer = shared  # type: ignore[method-assign]
        await model.close()
    df = run.calls_df()
    assert df.error.isna().all(), df.error.dropna().iloc[0]
    df = df[df.source == "model"]  # equal calls at the same time are one request
    calls = len(df)
    return counting.processed / calls, df.input_tokens.mean(), took / calls, cpu / calls, calls


async def whole_search(name: str, options: argparse.Namespace) -> None:
    settings: dict[str, tuple[int, int | None]]
    settings = {"slots": (options.slots, None), "seed": (1, 1), "plain": (1, None)}
    for part, (slots, seed) in settings.items():
        if options.only not in (None, part):
            continue
        print(f"\n{name}, {slots} slot{'s' * (slots > 1)}, {'no seed' if seed is None else 'with a seed'}")
        found, replies = {}, dict[str, Reply]()
        for on in (False, True):
            found[on] = await searched(name, on, slots, seed, replies, options)
            tokens, prompt, took, cpu, calls = found[on]
            note = f"of {prompt:.0f}; {calls} calls of {took:.1f} s, {cpu:.2f} s of CPU"
            line(f"tokens processed a call, {'shared' if on else 'not shared'}", tokens, "", note)
        ratios = [off / on for off, on in zip(found[False], found[True], strict=True)]
        target = "" if slots == 1 and seed is None else "1.5"  # llama.cpp does it by itself then
        line("  ratio", ratios[0], target, f"seconds {ratios[2]:.2f}, CPU time {ratios[3]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", default=["smollm2-135m"], help="models (default: smollm2-135m)")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--count", type=int, default=3, help="children of a thought")
    parser.add_argument("--width", type=int, default=2, help="of the beam")
    parser.add_argument("--reply", type=int, default=40, help="most tokens of a reply")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=["shared", "slots", "seed", "plain"])
    options = parser.parse_args()
    if options.only in (None, "shared"):
        asyncio.run(what_siblings_share())
    if options.only != "shared":
        for name in options.names:
            asyncio.run(whole_search(name, options))


if __name__ == "__main__":
    main()
