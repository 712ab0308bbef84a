"""Proposers that rewrite thoughts, mix models, and continue a reply: the calls, and the paths that result."""

import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.core.records import Note
from tot_lab.models.chat.requests import messages_of

Refine, Mixture, Continue = tl.proposers.Refine, tl.proposers.Mixture, tl.proposers.Continue


def searched(search, propose="sample", reply=None, answer="best_path", **stop):
    def scripted(call):
        return f"{call.node}/{call.sample_index}" if call.purpose == "sample" else "score: 0.5"

    model = Scripted(reply or scripted)
    stop = tl.Stop(**{"solved": None, **stop})
    lab = tl.Lab(model, runs=None, roles={"a": model, "b": model})
    strategy = tl.TreeOfThoughts(search=search, propose=propose, answer=answer, stop=stop)
    return wait(lab.run(strategy, TASK)), model.calls


# Refine.


def refining(*groups):
    def search(state):
        children = yield tl.Pick([state.root], 2)
        yield tl.Pick(children, 1)
        for group in groups:
            yield tl.Pick([group], 1, proposer=Refine())

    return search


def test_a_refined_thought_stands_beside_the_one_that_it_rewrites():
    made, calls = searched(refining(("0.1", "0.1.0"), ("0", "0.1")))
    assert (made.tree["0.1.1"].parent, made.tree["0.1.1"].source) == ("0.1", ("0.1.0",))
    assert made.tree.texts("0.1.1") == ["0/1", "0.1/1"]  # of the old step nothing is left
    assert made.tree.texts("0.2") == ["0/2"]
    (first,) = [call for call in calls if (call.node, call.sample_index) == ("0.1", 1)]
    assert "A first version of the next step:\n0.1/0" in first.prompt
    assert "Another line of thought" not in first.prompt
    (judged,) = [call for call in calls if call.node == "0.1.1"]
    assert "0.1/1" in judged.prompt
    assert "0.1/0" not in judged.prompt
    assert wait(made.replay()).identical


def test_a_thought_at_the_depth_limit_can_be_refined_but_not_expanded():
    made, _ = searched(refining(("0.0", "0.0.0")), depth=2)
    assert made.tree["0.0.1"].source == ("0.0.0",)
    with pytest.raises(
        ValueError, match=r"'0\.0\.0', which is complete or at the depth limit\. .* state\.open"
    ):
        searched(refining(("0.0.0", "0.0")), depth=2)


def test_other_thoughts_are_made_by_its_proposer():
    plain, refine = (
        run(tl.TreeOfThoughts(propose=propose))
        for propose in (tl.Sample(count=2), Refine(proposer=tl.Sample(count=2)))
    )
    assert plain.events == refine.events


def test_tools_and_mixtures_around_it_show_the_draft_too():
    def search(state):
        yield tl.Pick([state.root], 1)
        yield tl.Pick([("0", "0.0")], 1)

    for propose in (Mixture(proposer=Refine()), tl.WithTools(proposer=Refine())):
        _, calls = searched(search, propose)
        assert "A first version of the next step:\n0/0" in calls[-2].prompt


# Mixture.


def test_models_and_temperatures_take_turns_over_all_picks_of_a_thought():
    def search(state):
        yield tl.Pick([state.root], 3)
        yield tl.Pick([state.root, "0.0"], 2)

    made, calls = searched(search, Mixture(models=["a", "b"], temperatures=[0, 0.5, 1]))
    samples = [call for call in calls if call.purpose == "sample"]
    turns = sorted((call.node, call.sample_index, call.model, call.temperature) for call in samples)
    assert turns == [
        *[("0", k, f"@{'ab'[k % 2]}", (0, 0.5, 1)[k % 3]) for k in range(5)],
        *[("0.0", k, f"@{'ab'[k % 2]}", (0, 0.5, 1)[k % 3]) for k in range(2)],
    ]
    assert {call.model for call in calls if call.purpose == "value"} == {None}
    assert wait(made.replay()).identical


def test_the_members_of_a_mixture_are_for_searches_that_choose():
    mixture = Mixture(models=["a", "b"], temperatures=[0.5])

    def search(state):
        for member in reversed(mixture.members.values()):
            yield tl.Pick([state.root], 2, proposer=member)

    _, calls = searched(search)
    samples = [call for call in calls if call.purpose == "sample"]
    assert [(call.sample_index, call.model, call.temperature) for call in samples] == [
        (0, "@b", 0.5),
        (1, "@b", 0.5),
        (2, "@a", 0.5),
        (3, "@a", 0.5),
    ]


def test_a_mixture_inside_tools_keeps_its_models():
    propose = tl.WithTools(proposer=Mixture(models=["a", "b"], proposer=tl.Sample(count=2)))
    _, calls = searched("beam", propose, depth=1)
    assert [call.model for call in calls if call.purpose == "sample"] == ["@a", "@b"]
    with pytest.raises(ValueError, match="write WithTools"):
        Mixture(proposer=tl.WithTools())


# Continue.

SOLUTION = ["Three spiders have 24 legs.", "A duck has 2 legs.\nThat is all.", "Answer: 26"]


def continuing(separator):
    """A model that writes `SOLUTION` and continues what it has written, as a server with prefill does."""

    def reply(call):
        if call.purpose != "sample":
            return "score: 0.5"
        whole = separator.join(SOLUTION)
        begun = call.messages[-1].content if call.messages[-1].role == "assistant" else ""
        assert whole.startswith(begun)
        rest = whole[len(begun) :]
        return min((rest.partition(stop)[0] for stop in call.stop), key=len)

    return reply


@pytest.mark.parametrize("separator", ["\n\n", " ## "])
def test_the_steps_are_those_of_the_reply_that_is_continued(separator):
    propose = Continue(count=1, separator=separator)
    made, calls = searched("beam", propose, continuing(separator), "deepest", depth=3)
    assert made.tree.texts("0.0.0.0") == SOLUTION
    assert made.answer == "26"
    samples = [call for call in calls if call.purpose == "sample"]
    assert {call.messages[0].content for call in samples} == {TASK.answer_prompt(True)}
    roles = [[message["role"] for message in messages_of(call)] for call in samples]
    assert roles == [["user"], ["user", "assistant"], ["user", "assistant"]]
    assert wait(made.replay()).identical


def test_an_endpoint_that_ignores_the_stop_text_gives_one_step_all_the_same():
    def reply(call):
        return "one\n\ntwo\n\nthree" if call.purpose == "sample" else "score: 0.5"

    made, _ = searched("beam", Continue(count=1), reply, depth=1)
    assert made.tree["0.0"].text == "one"


def test_options_are_sent_only_where_a_reply_is_continued():
    options = {"continue_final_message": True, "add_generation_prompt": False}
    propose = Continue(count=1, options=options)
    _, calls = searched("beam", propose, continuing("\n\n"), depth=2)
    assert [call.options for call in calls if call.purpose == "sample"] == [{}, options]


def test_an_empty_continuation_is_unreadable():
    made, _ = searched("beam", Continue(count=1), lambda call: "\n\n", depth=2)
    assert len(made.tree) == 1
    assert [event.name for event in made.events if isinstance(event, Note)].count("parse.unreadable") == 1


# Lists in JSON that is damaged.


@pytest.mark.parametrize(
    ("text", "items", "repaired"),
    [
        ("['a', 'b',]", ["a", "b"], True),
        ('{"steps": ["a", "b"', ["a", "b"], True),
        ('["a", "b"]', ["a", "b"], False),
        ("1. a\n   - sub\n2. b", ["a\n- sub", "b"], False),
    ],
)
def test_the_repair_of_a_list_is_a_note(text, items, repaired):
    def reply(call):
        return Reply(text, finish_reason="length") if call.purpose == "propose" else "score: 0.5"

    made, _ = searched(tl.BeamSearch(width=2), tl.Propose(count=2), reply, depth=1)
    assert [made.tree[f"0.{k}"].text for k in range(2)] == items
    notes = [event for event in made.events if isinstance(event, Note) and event.name == "json.repaired"]
    data = {"kind": "propose", "draw": 0, "cut_off": True}
    assert notes == ([Note("json.repaired", "0", data)] if repaired else [])
    assert wait(made.replay()).identical
