"""Runs for the tests of the explorer, and what these tests share."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tot_lab as tl
from support import ROOT

APP = "document.querySelector('.tl-root').parentElement.explorer"


def carried_out(model: Any, strategy: tl.Strategy, task: tl.Task, tools: Any = (), **more: Any) -> tl.Run:
    """A run, made in a thread of its own: the browser has this one's event loop."""
    lab = tl.Lab(model, tools=list(tools), runs=None)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(lab.run(strategy, task, **more))).result()


def agent(strategy: tl.Strategy, task: int = 0) -> tl.Run:
    tools = [tl.tools.Calculator(), *tl.domains.multi_hop_tools()]
    return carried_out(tl.sim.SimAgent(skill=0.7), strategy, tl.domains.multi_hop_tasks(16)[task], tools)


def game(strategy: tl.Strategy, cards: str = "4 8 8 11", **more: Any) -> tl.Run:
    return carried_out(tl.sim.SimGame24(skill=0.35, noise=0.3, seed=1), strategy, tl.game24(cards), **more)


HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked = 1'>",
    "\"'`&lt;&quot;--><!--]]>${window.hacked = 1}{{7*7}}",
    "\u202eright to left\u202c \u05e2\u05d1\u05e8\u05d9\u05ea",
    "NUL \0 and \x1b[31m and \u2028\u2029 and \ud800 alone",
    "<b>" * 100_000,
]
AXE = ROOT / "tot_lab" / "views" / "explorer" / "js" / "node_modules" / "axe-core" / "axe.min.js"
