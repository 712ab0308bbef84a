"""An endpoint for sweeps on several workers."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tot_lab as tl
from support import answer_to
from tot_lab.core.calls import Call, Need, Reply
from tot_lab.models.stack import Endpoint

TASKS = [tl.general(f"What is {k} and {k + 1}?", answer=26, grade="number") for k in range(8)]


class Logged(Endpoint):
    """An endpoint that writes each request to a file, which all workers share: pid, when it was sent and
    answered, and the call. At the call that `deadly` describes, it kills its process: once, or each time."""

    log: str
    seconds: float = 0.01
    deadly: str = "^$"
    again: bool = False

    @property
    def name(self) -> str:
        return "logged"

    def identity(self) -> dict[str, Any]:
        return {"model": "logged"}

    def need(self, calls: Sequence[Call]) -> Need:
        return Need(1, 0.0)

    async def answer(self, calls: Sequence[Call], observer: Any) -> list[Reply]:
        sent = time.time()
        (call,) = calls
        if re.search(self.deadly, call.prompt, re.DOTALL) and (
            self.again or not Path(self.log + ".dead").exists()
        ):
            Path(self.log + ".dead").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(self.seconds)
        observer.note("call.sent", tries=1, n=1)
        what = repr((call.prompt, call.sample_index, call.repeat))
        with open(self.log, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f"{os.getpid()}\t{sent}\t{time.time()}\t{what}\n")
        text = answer_to(call)
        return [Reply(str(text), model="logged", input_tokens=3, output_tokens=1, cost=0.25)]


class Priced(Logged):
    """One that says what a call can cost."""

    kind = "workers.priced"

    def need(self, calls: Sequence[Call]) -> Need:
        return Need(1, 0.25 * len(calls))
