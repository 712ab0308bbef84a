"""A process that is killed in the middle of a run of every strategy."""

import asyncio
import os
import signal

import tot_lab as tl
from support import Scripted, shuffled
from support.contract import MADE, HashOrder, trial_of

BROKEN = tl.TreeOfThoughts(search=HashOrder(width=None), stop=tl.Stop(solved=None))
ALL = [*MADE, BROKEN]


class Halting(Scripted):
    """Replies to so many calls, and leaves those after them without a reply."""

    def __init__(self, reply, replies):
        super().__init__(reply, shuffled(replies))
        self.replies = replies
        self.halted = asyncio.Event()

    async def __call__(self, call):
        if len(self.calls) == self.replies:
            self.halted.set()
            await asyncio.Event().wait()
        return await super().__call__(call)


async def halfway(folder, replies):
    """Run all strategies at the same time, each on a model that gives so many replies. Kill this process once
    all of them wait.
    """
    running, models = [], []
    for k, strategy in enumerate(ALL):
        trial = trial_of(strategy)
        models.append(Halting(trial.reply, replies[k]))
        lab = trial.lab(models[-1], folder / str(k))
        running.append(asyncio.ensure_future(lab.run(strategy, trial.task)))
    await asyncio.gather(*(model.halted.wait() for model in models))
    os.kill(os.getpid(), signal.SIGKILL)
