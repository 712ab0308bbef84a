"""Execution of runs. The way of one call from `lab.run` to the record:

    Lab.run                   lab/lab.py      fills in the lab's defaults, opens the journal
    Execution.carry_out       runner.py       makes the driver and the generator of the strategy
    Driver.drive              driver.py       runs turns until the strategy has returned its answer
      Stepper.turn            stepper.py      advances the generator to its `Call`, and gives it a position
      Recorder.record         recorder.py     takes in the call
      Admission.admit         admission.py    reserves, holds back or refuses (budget.py)
      Clock.start             clock.py        counts its time limit
      Workers.take            driver.py       a task waits for a slot (slots.py) and asks the gateway
      Gateway.ask             gateway.py      the stack of the model (models/stack.py) or the tool answers
      Driver.receive          driver.py       settles the budget
      Recorder.record         recorder.py     takes in the reply, at the position of the call
      Stepper.answer          stepper.py      the next turn sends it to the generator
    Recorder.flush            recorder.py     at the end of each turn: writes the journal, calls the watchers

What a person changes (edits of a branch, acts on a live search) is added to the steps before they reach the
driver: roles.py, steering.py, branching.py. replay.py carries out a recorded run with its own replies.
"""

from tot_lab.core.attach import attach
from tot_lab.record.methods import RunMethods

attach(RunMethods, "tot_lab.runtime.replay", "replay")
