"""Reflexion: when it is satisfied and when it stagnates, how lessons travel, around a search (R2, T14)."""

import pytest
from support import TASK, Scripted, run, shuffled, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.strategies.reflexion import is_stagnant, read_verdict

CHAIN = tl.ChainOfThought()


def critics(*critiques, answers=("Answer: 1", "Answer: 2", "Answer: 3", "Answer: 4")):
    """A model whose attempts answer and whose critic speaks in this order."""
    answers, critiques = iter(answers), iter(critiques)
    return Scripted(lambda call: next(critiques if call.purpose == "critique" else answers))


def notes(made, name):
    return [event for event in made.events if isinstance(event, tl.Note) and event.name == name]


@pytest.mark.parametrize(
    ("critique", "satisfied"),
    [
        ("SATISFIED: it holds", True),
        ("**Satisfied:** it holds", True),
        ("**SATISFIED**: it holds", True),
        ("My verdict is SATISFIED: it holds", True),
        ("UNSATISFIED: no", False),
        ("SATISFIED: mostly, though unsatisfied with the form", False),
        ("I am not satisfied: no", False),
        ("I am not yet satisfied: no", False),
        ("The task isn't satisfied: no", False),
        ("Dissatisfied: no", False),
        ("It is not wrong. SATISFIED: it holds", True),
        ("satisfied", True),
        ("It is satisfied by 3", None),
        ("", None),
    ],
)
def test_what_a_critique_says(critique, satisfied):
    assert read_verdict(critique) is satisfied


@pytest.mark.parametrize(
    ("critique", "last", "stagnant"),
    [
        ("Count the legs  of the duck", "count the LEGS of the duck", True),
        ("no", "No", True),
        ("no", "no good", False),  # too short to be looked for in the other
        ("UNSATISFIED: count the duck's legs too", "Again: UNSATISFIED: count the duck's legs, please", True),
        ("UNSATISFIED: count the duck", "UNSATISFIED: a spider has eight", False),
        ("a" * 20, "a" * 30, False),
        ("a" * 21, "a" * 30, True),
        ("", "", False),
        ("", "no", False),
    ],
)
def test_what_counts_as_stagnation(critique, last, stagnant):
    assert is_stagnant(critique, last) is is_stagnant(last, critique) is stagnant


def test_it_tries_until_the_critique_is_satisfied():
    model = critics("UNSATISFIED: count the duck", "UNSATISFIED: spiders have 8", "SATISFIED: yes")
    made = run(tl.Reflexion(strategy=CHAIN), model=model)
    assert (made.answer, made.stop_reason, made.score) == ("3", "solved", 1.0)
    assert [call.purpose for call in model.calls] == ["answer", "critique"] * 3
    assert [(call.node, call.attempt) for call in model.calls[::2]] == [
        ("0.0", (0,)),
        ("0.1", (1,)),
        ("0.2", (2,)),
    ]
    first, second, third = (call.prompt for call in model.calls[::2])
    assert "count the duck" not in first
    assert "It answered: 1\nThe critique: UNSATISFIED: count the duck" in second
    assert "count the duck" in third
    assert "spiders have 8" in third
    assert [note.data["lessons"] for note in notes(made, "reflexion.attempt")] == [0, 1, 2]
    assert [note.data["satisfied"] for note in notes(made, "reflexion.critiqued")] == [False, False, True]
    assert notes(made, "reflexion.completed")[0].data == {"attempts": 3, "stop": "solved"}


def test_attempts_and_critiques_are_one_tree():
    made = run(tl.Reflexion(strategy=CHAIN), model=critics("UNSATISFIED: count", "SATISFIED: yes"))
    assert {node.id: node.text for node in made.tree} == {
        "0": TASK.question,
        "0.0": TASK.question,
        "0.0.0": "Answer: 1",
        "0.0.1": "UNSATISFIED: count",
        "0.1": TASK.question,
        "0.1.0": "Answer: 2",
        "0.1.1": "SATISFIED: yes",
    }
    assert made.tree["0.0.1"].source == ("0.0.0",)
    assert [(made.tree[id].score, made.tree[id].state) for id in ("0.0.0", "0.1.0")] == [
        (0.0, "pruned"),
        (1.0, "answer"),
    ]
    assert made.result.ranked == ("0.1.0", "0.0.0")


def test_it_ends_when_the_critique_repeats_itself():
    made = run(tl.Reflexion(strategy=CHAIN), model=critics("UNSATISFIED: No.", "unsatisfied:  no."))
    assert (made.answer, made.stop_reason, made.score) == ("2", "stagnated", 0.0)


def test_it_ends_after_its_retries():
    critiques = [f"UNSATISFIED: {word}" for word in ("sum", "form", "units", "reasons")]
    model = critics(*critiques)
    strategy = tl.Reflexion(strategy=CHAIN)
    made = run(strategy, model=model)
    assert (made.answer, made.stop_reason) == ("4", "limit:retries")
    assert len(model.calls) == strategy.max_calls(TASK) == 8
    assert run(tl.Reflexion(strategy=CHAIN, max_retries=0), model=critics(*critiques)).usage.calls == 2
    assert tl.Reflexion().max_calls(TASK) == 4 * (3 + 1)  # the design's loop of three turns inside


def test_a_critique_that_says_neither_is_seen_and_does_not_satisfy():
    made = run(tl.Reflexion(strategy=CHAIN, max_retries=1), model=critics("Well.", "Who knows?"))
    assert (made.stop_reason, made.score, made.tree["0.1.0"].by) == ("limit:retries", None, "critique")
    assert [note.data["kind"] for note in notes(made, "parse.unreadable")] == ["critique", "critique"]
    assert [note.data["satisfied"] for note in notes(made, "reflexion.critiqued")] == [None, None]


def test_a_critic_that_fails_costs_no_attempt():
    def reply(call):
        return Reply(error="no route") if call.purpose == "critique" else "Answer: 1"

    made = run(tl.Reflexion(strategy=CHAIN, max_retries=1), model=Scripted(reply))
    assert (made.answer, made.stop_reason, made.score) == ("1", "limit:retries", None)
    assert made.usage.calls == 4


def test_the_last_attempt_that_answered_is_taken():
    def reply(call):
        if call.purpose == "critique":
            return f"UNSATISFIED: {call.prompt}"
        return "Answer: 1" if call.attempt == (0,) else Reply(error="no route")

    made = run(tl.Reflexion(strategy=CHAIN, max_retries=1), model=Scripted(reply))
    assert (made.answer, made.best.id, made.best.state) == ("1", "0.0.0", "answer")


def test_no_answer_satisfies_nobody():
    model = Scripted(lambda call: f"SATISFIED: {call.attempt}" if call.purpose == "critique" else "  ")
    made = run(tl.Reflexion(strategy=CHAIN, max_retries=1), model=model)
    assert (made.answer, made.stop_reason, made.score) == ("", "limit:retries", 0.0)
    assert "It gave no answer" in model.calls[2].prompt


def test_a_deep_critique_looks_at_the_way_too():
    def critique_of(depth):
        search = tl.TreeOfThoughts(
            propose=tl.Sample(count=2), evaluate=lambda task, path: len(path) / 3, stop=tl.Stop(depth=2)
        )
        model = Scripted()
        made = run(tl.Reflexion(strategy=search, critique_depth=depth, max_retries=0), model=model)
        (prompt,) = (call.prompt for call in model.calls if call.purpose == "critique")
        return made, prompt

    made, deep = critique_of("deep")
    assert all(step in deep for step in made.steps(made.best.id))
    made, shallow = critique_of("shallow")
    assert made.answer in shallow
    assert made.steps(made.best.id)[0] not in shallow
    assert "the way" not in shallow.lower()
    for prompt in (deep, shallow):
        assert TASK.question in prompt


def test_lessons_of_earlier_runs_stand_in_the_header_and_in_every_attempt():
    strategy = tl.Reflexion(strategy=CHAIN, prior_critiques=["UNSATISFIED: mind the ducks"])
    model = critics("UNSATISFIED: no", "SATISFIED: yes")
    made = run(strategy, TASK.model_copy(update={"context": "A fact."}), model=model)
    assert made.header.strategy["prior_critiques"] == ["UNSATISFIED: mind the ducks"]
    for call in model.calls[::2]:
        assert "mind the ducks" in call.prompt
        assert "A fact." in call.prompt


def test_a_person_can_change_a_critique_and_a_verdict():
    lab = tl.Lab(critics("UNSATISFIED: count the duck", "SATISFIED: yes"), runs=None)
    made = wait(lab.run(tl.Reflexion(strategy=CHAIN), TASK))
    model = critics("SATISFIED: now")
    changed = wait(tl.Lab(model, runs=None).branch(made, "0.0.1", content="UNSATISFIED: mind the spiders"))
    assert "mind the spiders" in model.calls[0].prompt
    assert changed.stop_reason == "solved"
    taken = wait(tl.Lab(Scripted(), runs=None).branch(made, "0.0.0", score=1.0))
    assert (taken.answer, taken.stop_reason, taken.usage.calls) == ("1", "solved", 2)


def test_what_stops_an_attempt_does_not_stop_the_next():
    search = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2), budget=tl.Budget(calls=3))
    model = Scripted(lambda call: f"UNSATISFIED: {call.attempt}" if call.purpose == "critique" else "step")
    made = run(tl.Reflexion(strategy=search, max_retries=1), model=model)
    assert sum(call.purpose == "critique" for call in model.calls) == 2
    assert made.stop_reason == "limit:retries"


def test_the_critic_may_be_another_model():
    seen = []

    class Critic(tl.Part):
        kind = "test/critic"

        async def __call__(self, call: Call) -> str:
            seen.append(call.purpose)
            return "SATISFIED: yes"

    lab = tl.Lab(Scripted(), runs=None, roles={"critique": Critic()})
    assert wait(lab.run(tl.Reflexion(strategy=CHAIN), TASK)).stop_reason == "solved"
    assert seen == ["critique"]


# Around a tree search.

SEARCH = tl.TreeOfThoughts(propose=tl.Propose(count=3))


@pytest.mark.slow
def test_it_makes_a_tree_search_better_on_a_simulated_player():
    lab = tl.Lab(tl.sim.SimGame24(skill=0.4, noise=0.05), runs=None)
    tasks = tl.game24_tasks(20)
    sweep = wait(lab.sweep({"search": SEARCH, "reflexion": tl.Reflexion(strategy=SEARCH)}, tasks))
    right = sweep.df().groupby("setting")["correct"].sum()
    assert right["reflexion"] >= right["search"] + 3


def test_around_a_loop_with_tools_the_critic_sees_what_they_gave():
    lab = tl.Lab("sim/agent", tools=[tl.tools.Calculator()], runs=None)
    made = wait(lab.run(tl.Reflexion(), tl.domains.word_sums(3)))
    critiques = [e for e in made.events if isinstance(e, Call) and e.purpose == "critique"]
    results = [node.text for node in made.tree if node.id.startswith("0.0.") and "→" in node.text]
    assert results
    assert all(result in critiques[0].prompt for result in results)
    assert wait(made.replay()).identical


@pytest.mark.slow
def test_around_a_search_it_is_one_tree_that_replays_and_resumes(tmp_path):
    strategy = tl.Reflexion(strategy=SEARCH, max_retries=2)
    lab = tl.Lab(tl.sim.SimGame24(skill=0.2), runs=tmp_path)
    made = wait(lab.run(strategy, tl.game24("1 4 8 11")))
    assert len(notes(made, "reflexion.attempt")) > 1
    assert made.usage.calls <= strategy.max_calls(made.task)
    roots = [id for id in made.tree.root.children if made.tree[id].text == made.question]
    assert roots == [f"0.{k}" for k in range(len(roots))]
    assert wait(made.replay()).identical
    lines = made.path.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[: len(lines) * 2 // 3]))
    assert wait(lab.resume(cut)).events == made.events
    assert tl.figures.plot_tree(made).data


@pytest.mark.slow
def test_around_a_search_the_record_does_not_depend_on_latency():
    strategy = tl.Reflexion(strategy=tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2)))
    first = run(strategy)
    for seed in range(3):
        assert run(strategy, model=Scripted(latency=shuffled(seed))).events == first.events


def test_it_wraps_itself():
    inner = tl.Reflexion(strategy=CHAIN, max_retries=1)
    made = run(tl.Reflexion(strategy=inner, max_retries=1))
    assert wait(made.replay()).identical
    assert made.usage.calls <= tl.Reflexion(strategy=inner, max_retries=1).max_calls(TASK) == 10


@pytest.mark.parametrize("bad", [{"max_retries": -1}, {"critique_depth": "medium"}, {"strategy": "x"}])
def test_bad_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        tl.Reflexion(**bad)
