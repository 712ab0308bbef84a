"""Execution of runs. The path of one call from `lab.run` to the record:

    Lab.run                   lab/lab.py      fills in the lab's defaults, opens the journal
    Execution.carry_out       runner.py       makes the driver and the generator of the strategy
    Driver.drive              driver.py       runs turns until the strategy has returned its answer

    In one turn (Driver._turn):
      Stepper.turn            stepper.py      advances the generator to its `Call`, and gives it a position
      Driver._take_up         driver.py       answers from the journal, or makes the call:
        Recorder.record       recorder.py     records the call
        Admission.admit       admission.py    admits, holds back or refuses it (budget.py)
        Clock.start           clock.py        starts its time limit, and restarts it with each request
        Workers.take          driver.py       queues it for a task
      Recorder.flush          recorder.py     writes the journal, then calls the watchers

    In the task (Workers._work):
      SlotPool.enter          slots.py        waits for a slot, if the strategy shares slots (Deep Think)
      Gateway.ask             gateway.py      the stack of the model (models/stack.py), or the tool, answers
        or Gateway.ask_each   gateway.py      answers several samples of one request together
        or text_of            threads.py      a user's function answers, in a thread if it is not async
      Driver.receive          driver.py       settles the budget, and records the reply:
        Recorder.record       recorder.py     at the position of the call
        Stepper.answer        stepper.py      passes it to the generator in the next turn

Changes by a person (edits of a branch, acts on a live search) are added to the steps of the strategy before
these reach the driver: roles.py, steering.py, branching.py. replay.py repeats a recorded run with its
recorded replies.
"""

from tot_lab.core.attach import attach
from tot_lab.record.run_methods import RunMethods

attach(RunMethods, "tot_lab.runtime.replay", "replay")
