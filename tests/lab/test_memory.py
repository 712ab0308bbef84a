"""Memory (R2, S5): what critics learnt, what was concluded and what was said is known to later turns of a
session, and with `Lab(memory=…)` to later runs."""

import asyncio
import sqlite3

import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply

SPIDERS = tl.general("How many legs have two spiders?")
CRITIQUES = ["UNSATISFIED: count 8 legs for each spider", "SATISFIED: yes"]


def critic(*critiques, answer="Answer: 16"):
    left = iter(critiques)
    return Scripted(lambda call: next(left) if call.purpose == "critique" else answer)


def reflexion(**settings):
    return tl.Reflexion(strategy=tl.ChainOfThought(), max_retries=1, **settings)


def lab(path, model=None, **options):
    return tl.Lab(model or Scripted(), **{"runs": None, "memory": path, **options})


# Later runs (R2).


def test_r2_prior_critiques_load_and_are_stored_without_further_calls(tmp_path):
    """The same as `lessons.recall` before the run and `lessons.add` after it, by hand."""
    path = tmp_path / "memory.db"
    first = wait(lab(path, critic(*CRITIQUES)).run(reflexion(), SPIDERS))
    assert first.header.strategy["prior_critiques"] == []  # nothing was known yet
    model = critic("SATISFIED: yes")
    then = wait(lab(path, model).run(reflexion(), TASK))  # in another lab, as in another process
    assert then.header.strategy["prior_critiques"] == [CRITIQUES[0]]
    assert CRITIQUES[0] in model.calls[0].prompt
    by_hand = tl.Lessons(tmp_path / "by hand.db")
    by_hand.add(first)
    assert by_hand.recall(TASK) == then.strategy.prior_critiques


def test_r2_memory_is_off_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tl.Lab(critic(*CRITIQUES), runs=None)
    wait(mine.run(reflexion(), SPIDERS))
    mine = tl.Lab(model := critic("SATISFIED: yes"), runs=None)
    made = wait(mine.run(reflexion(), TASK))
    assert mine.memory is None
    assert "count 8 legs" not in model.calls[0].prompt
    assert made.task == TASK.hidden() or made.task == TASK
    assert list(tmp_path.iterdir()) == []


def test_r2_critiques_that_are_given_stand(tmp_path):
    path = tmp_path / "memory.db"
    wait(lab(path, critic(*CRITIQUES)).run(reflexion(), SPIDERS))
    mine = reflexion(prior_critiques=["mind the duck"])
    made = wait(lab(path, model := critic("SATISFIED: yes")).run(mine, TASK))
    assert made.strategy.prior_critiques == ["mind the duck"]
    assert CRITIQUES[0] in model.calls[0].prompt  # and what is recalled is told besides


def test_r2_an_unlike_task_recalls_nothing(tmp_path):
    path = tmp_path / "memory.db"
    wait(lab(path, critic(*CRITIQUES)).run(reflexion(), SPIDERS))
    other = tl.general("Who wrote Faust?")
    made = wait(lab(path, model := critic("SATISFIED: yes")).run(reflexion(), other))
    assert made.task.context == ""
    assert made.strategy.prior_critiques == []
    assert model.calls[0].prompt == run(reflexion(), other, critic("SATISFIED: yes")).events[3].prompt


# Memory is one thing (S5).


@pytest.mark.parametrize(
    "strategy",
    [
        tl.OneAnswer(),
        tl.ReAct(),
        tl.TreeOfThoughts(propose=tl.Sample(count=1), stop=tl.Stop(depth=1)),
        tl.Adaptive(),
        tl.DeepThink(),
    ],
    ids=lambda strategy: strategy.kind,
)
def test_s5_any_strategy_of_a_later_run_knows_critiques_and_conclusions(tmp_path, strategy):
    path = tmp_path / "memory.db"
    wait(lab(path, critic(*CRITIQUES)).run(reflexion(), SPIDERS))
    model = Scripted(lambda call: "Answer: 26")
    made = wait(lab(path, model).run(strategy, TASK))
    asked = [call.prompt for call in model.calls if call.purpose != "route"]
    assert asked
    assert all(CRITIQUES[0] in prompt for prompt in asked)
    assert all(f"Question: {SPIDERS.question}\nAnswer: 16" in prompt for prompt in asked)
    assert made.header.task["context"] == made.task.context
    assert CRITIQUES[0] in made.header.task["context"]
    assert wait(made.replay()).identical


def test_s5_what_deep_think_concluded_is_known_to_a_later_agent(tmp_path):
    path = tmp_path / "memory.db"
    thought = wait(tl.think("Which database suits spiders?", lab(path, "sim/general"), preset="quick"))
    question = tl.general("Which database suits them? Two spiders ask.")
    made = wait(lab(path, model := Scripted()).run(tl.ReAct(max_iterations=1), question))
    assert thought.answer[:200] in model.calls[0].prompt
    assert "Which database suits spiders?" in made.task.context


def test_s5_the_record_stays_the_same_when_memory_grows(tmp_path):
    path = tmp_path / "memory.db"
    wait(lab(path, critic(*CRITIQUES)).run(reflexion(), SPIDERS))
    mine = lab(path, "sim/general", runs=tmp_path / "runs", cache=tmp_path / "cache")
    made = wait(mine.run(tl.OneAnswer(), TASK))
    wait(lab(path, critic("UNSATISFIED: the legs of a duck", "SATISFIED: yes")).run(reflexion(), TASK))
    loaded = tl.load(made.path)
    assert wait(loaded.replay()).identical
    again = wait(
        mine.replaying().run(loaded.strategy, loaded.task)
    )  # known answers only: the text is the key
    assert again.events == made.events
    later = wait(mine.run(tl.OneAnswer(), TASK))
    assert "the legs of a duck" in later.task.context
    assert "the legs of a duck" not in loaded.task.context


def test_s5_a_key_depends_on_the_text_alone(tmp_path):
    path = tmp_path / "memory.db"
    wait(lab(path, critic(*CRITIQUES)).run(reflexion(), SPIDERS))
    cache = tmp_path / "cache"
    made = wait(lab(path, "sim/general", cache=cache).run(tl.OneAnswer(), TASK))
    without = tl.Lab("sim/general", cache=cache, runs=None, mode="replay")  # no memory, the same words
    told = tl.Task(**{**dict(TASK), "context": made.task.context})
    assert wait(without.run(tl.OneAnswer(), told)).events == made.events


@pytest.mark.slow
def test_s5_streams_estimates_and_resumed_runs_remember_too(tmp_path):
    path = tmp_path / "memory.db"
    wait(lab(path, critic(*CRITIQUES)).run(reflexion(), SPIDERS))

    async def streamed():
        stream = lab(path, model := Scripted()).stream(tl.OneAnswer(), TASK)
        async for _ in stream:
            pass
        return stream.run, model

    _, model = wait(streamed())
    assert CRITIQUES[0] in model.calls[0].prompt
    assert len(kept(path, "answers")) == 2
    mine = lab(path, "sim/general", cache=tmp_path / "cache", runs=tmp_path / "runs")
    first = wait(mine.run(tl.OneAnswer(), tl.general("How many legs has a crab?")))
    count = len(kept(path, "answers"))
    lines = first.path.read_bytes().splitlines(keepends=True)
    cut = first.path.with_name("cut.jsonl")
    cut.write_bytes(b"".join(lines[:3]))
    assert wait(lab(path, "sim/general", cache=tmp_path / "cache").resume(cut)).answer == first.answer
    assert len(kept(path, "answers")) == count  # a run is kept once
    assert wait(mine.estimate(tl.OneAnswer(), TASK)).cached == 0
    wait(mine.run(tl.OneAnswer(), TASK))


def test_s5_a_sweep_neither_recalls_nor_stores(tmp_path):
    """Its runs would depend on each other's order."""
    path = tmp_path / "memory.db"
    wait(lab(path, critic(*CRITIQUES)).run(reflexion(), SPIDERS))
    before = kept(path, "answers")
    sweep = wait(lab(path, model := Scripted()).sweep(tl.OneAnswer(), [TASK, SPIDERS]))
    assert all(CRITIQUES[0] not in call.prompt for call in model.calls)
    assert {made.task.context for made in sweep.runs()} == {""}
    assert kept(path, "answers") == before


def kept(path, table):
    database = sqlite3.connect(path)
    try:
        return database.execute(f"SELECT * FROM {table}").fetchall()
    finally:
        database.close()


def test_lessons_of_an_earlier_version_are_refused_and_left_as_they_are(tmp_path):
    path = tmp_path / "lessons.db"
    tl.Lessons(path)
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 1")
    database.close()
    before = path.read_bytes()
    with pytest.raises(tl.errors.LessonsError, match=r"lessons\.db: .*older version .*Move it away"):
        tl.Lessons(path)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_what_is_recalled_is_bounded(tmp_path):
    path = tmp_path / "memory.db"
    for k in range(6):
        long = Scripted(lambda call, k=k: f"Answer: {k} " + "legs " * 9_000)
        wait(lab(path, long).run(tl.OneAnswer(), tl.open_ended(f"Legs {k}? " + "spiders " * 3_000)))
    made = wait(lab(path).run(tl.OneAnswer(), tl.open_ended("How many legs have spiders?")))
    assert 1_000 < len(made.task.context) < 12_000
    assert "more characters are not shown" in made.task.context


def test_a_memory_that_cannot_be_used_is_refused_or_said(tmp_path):
    with pytest.raises(TypeError, match=r"memory must be a path or tl\.Lessons"):
        tl.Lab(Scripted(), runs=None, memory=7)
    path = tmp_path / "memory.db"
    path.write_bytes(b"this is a diary\n" * 500)
    with pytest.raises(tl.errors.LessonsError, match="cannot be read"):
        lab(path)
    path.unlink()
    mine = lab(path, Scripted(lambda call: path.write_bytes(b"a diary\n" * 900) and "Answer: 26"))
    with pytest.warns(RuntimeWarning, match=r"memory\.db: .*The run is complete, but was not added"):
        made = wait(mine.run(tl.OneAnswer(), TASK))
    assert made.answer == "26"


# Turns of a session (S5).


def ask_all(session, *turns):
    async def asked():
        return [await session.ask(*turn) for turn in turns]

    return wait(asked())


def test_s5_a_later_turn_of_a_session_knows_the_earlier_ones():
    model = Scripted(lambda call: "Answer: 16")
    session = tl.Session(tl.Lab(model, runs=None))
    first, then = ask_all(session, (tl.OneAnswer(), SPIDERS), (tl.OneAnswer(), TASK))
    assert first.task.context == ""
    assert f"Question: {SPIDERS.question}\nAnswer: 16" in model.calls[1].prompt
    assert f"Question: {SPIDERS.question}\nAnswer: 16" in then.header.task["context"]
    assert wait(then.replay()).identical
    other = tl.Session(session.lab)
    (alone,) = ask_all(other, (tl.OneAnswer(), TASK))
    assert alone.task.context == ""  # another session knows nothing of it


def test_s5_what_a_critic_learnt_is_known_to_a_later_turn():
    model = critic(*CRITIQUES)
    session = tl.Session(tl.Lab(model, runs=None))
    ask_all(session, (reflexion(), SPIDERS), (tl.OneAnswer(), TASK))
    assert CRITIQUES[0] in model.calls[-1].prompt
    assert CRITIQUES[1] not in model.calls[-1].prompt  # a satisfied one teaches nothing


def test_s5_what_deep_think_concluded_is_known_to_a_later_turn_and_the_other_way_round():
    mine = tl.Lab("sim/general", runs=None)
    session = tl.Session(mine)
    thought = wait(tl.think("Which database?", mine, preset="quick", memory=session.memory))
    (then,) = ask_all(session, (tl.OneAnswer(), tl.general("How do we move to it?")))
    assert thought.answer[:200] in then.task.context
    last = wait(tl.think("What next?", mine, preset="quick", memory=session.memory))
    assert "How do we move to it?" in last.task.context
    shared = tl.SessionMemory()
    assert tl.Session(mine, memory=shared).memory is shared
    with pytest.raises(TypeError, match=r"memory must be a tl\.SessionMemory"):
        tl.Session(mine, memory=[])


def test_s5_a_session_over_a_lab_with_memory_tells_nothing_twice(tmp_path):
    model = Scripted(lambda call: "Answer: 16")
    session = tl.Session(lab(tmp_path / "memory.db", model))
    ask_all(session, (tl.OneAnswer(), SPIDERS), (tl.OneAnswer(), TASK))
    assert model.calls[1].prompt.count(SPIDERS.question) == 1
    fresh = tl.Session(lab(tmp_path / "memory.db", model))
    ask_all(fresh, (tl.OneAnswer(), TASK))
    assert SPIDERS.question in model.calls[2].prompt  # a later run


def test_s5_a_turn_that_fails_is_not_remembered():
    async def cancelled():
        session = tl.Session(tl.Lab(lambda call: asyncio.sleep(60), runs=None))
        running = asyncio.ensure_future(session.ask(tl.OneAnswer(), TASK))
        await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return session

    assert len(wait(cancelled()).memory) == 0
    session = tl.Session(tl.Lab(Scripted(lambda call: Reply(error="timeout")), runs=None))
    (made,) = ask_all(session, (tl.OneAnswer(), TASK))
    assert (made.stop_reason, len(session.memory)) == ("error", 0)
    assert all(isinstance(call, Call) for call in session.lab.model.calls)
