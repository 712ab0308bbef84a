"""Multi-hop questions over the documents of an invented world, and the tools that look into them."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections import Counter

import pytest
from support import wait

import tot_lab as tl
from tot_lab.core.tool import Unfit
from tot_lab.core.tools import tool_call
from tot_lab.domains.multi_hop import COUNT, answer_of, facts_in, hops_in, world
from tot_lab.tools import document_tools

TASKS = tl.domains.multi_hop_tasks(COUNT)
DOCUMENTS = tl.domains.multi_hop_documents()
SEARCH, OPEN = tl.domains.multi_hop_tools()


# The questions and the world.


def test_the_world_is_the_same_everywhere() -> None:
    assert 60 <= len(DOCUMENTS) <= 120
    told = json.dumps(dict(DOCUMENTS), sort_keys=True)
    assert (
        hashlib.sha256(told.encode()).hexdigest()
        == "a11626c38934fc5051beee411ae9cb5339bf31926d3f6d47b7eb5c59fde0a2f2"
    )
    assert max(map(len, DOCUMENTS.values())) < 400


def test_questions_are_of_one_two_and_three_hops() -> None:
    assert len({task.question for task in TASKS}) == len({task.id for task in TASKS}) == 120
    assert Counter(len(hops_in(task.question).relations) for task in TASKS) == {1: 40, 2: 40, 3: 40}
    assert [hops_in(task.question).start.kind for task in TASKS[:30]].count("town") < 15
    assert (
        tl.domains.multi_hop_tasks(2, hops=3)
        == [TASKS[2], TASKS[5]]
        == [tl.domains.multi_hop(3), tl.domains.multi_hop(6)]
    )


def test_every_answer_follows_from_what_the_documents_say() -> None:
    assert facts_in("\n".join(DOCUMENTS.values())) == dict(world().facts)
    for task in TASKS:
        hops = hops_in(f"Task:\n{task.question}\n\nSteps so far:\n(none)")
        assert hops is not None
        assert hops.question == task.question
        at = hops.start
        for relation in hops.relations:
            (at,) = {
                fact[relation.name, at]
                for text in DOCUMENTS.values()
                if (relation.name, at) in (fact := facts_in(text))
            }
        assert at == answer_of(hops)
        assert at.name == task.reference
        assert at.name not in task.question


def test_a_fact_stands_in_one_document_among_others_that_mention_the_name() -> None:
    mentions = [sum(task.reference in text for text in DOCUMENTS.values()) for task in TASKS]
    assert min(mentions) > 1
    assert (
        sum(title.endswith("(inn)") and title.replace("inn", "ship") in DOCUMENTS for title in DOCUMENTS) == 8
    )


@pytest.mark.parametrize(("count", "hops"), [(0, None), (121, None), (41, 2), (0, 3)])
def test_there_are_no_others(count: int, hops: int | None) -> None:
    with pytest.raises(ValueError, match=f"count must be .*got {count}"):
        tl.domains.multi_hop_tasks(count, hops=hops)


def test_bad_numbers_are_named() -> None:
    with pytest.raises(ValueError, match=r"hops must be .*got 4"):
        tl.domains.multi_hop_tasks(1, hops=4)
    with pytest.raises(ValueError, match="got number=121"):
        tl.domains.multi_hop(121)


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("Tolm", 1),
        ("the River Tolm.", 1),
        ("  tolm ", 1),
        ("Answer: Tolm", 1),
        ("Orle", 0),
        ("Tolm or Orle", 0),
        ("", 0),
    ],
)
def test_an_answer_is_right_when_it_is_the_name(answer: str, grade: float) -> None:
    assert TASKS[1].reference == "Tolm"
    assert TASKS[1].grade(answer) == grade
    assert (TASKS[1].domain.same(TASKS[1], answer) == "tolm") == (grade == 1 and "Answer" not in answer)


def test_without_a_reference_nothing_is_graded() -> None:
    assert TASKS[1].hidden().grade("Tolm") is None


def test_a_path_says_true_things_or_not() -> None:
    task, game = TASKS[1], TASKS[1].domain
    right = [
        "Bastian Tarrow came into the world in Ivelstow.",
        "Ivelstow lies on the river Tolm.",
        "Answer: Tolm",
    ]
    assert [game.solvable(task, right[:k]) for k in range(4)] == [True] * 4
    assert [game.complete(task, right[:k]) for k in range(4)] == [False, False, False, True]
    assert game.answer(task, right) == "Tolm"
    assert game.solvable(task, ["Bastian Tarrow came into the world in Kelby."]) is False
    assert game.solvable(task, ["I look him up."]) is None
    assert game.solvable(task, ["Answer: Orle"]) is False


# The tools.


@pytest.mark.slow
def test_search_ranks_and_says_what_each_document_is() -> None:
    found = SEARCH.carry_out({"query": "captain of the Grey Heron"}, {}).splitlines()
    assert len(found) == 5
    assert {line.partition(". ")[2].partition(":")[0] for line in found[:2]} == {
        "Grey Heron (inn)",
        "Grey Heron (ship)",
    }
    assert "commands" not in "".join(found)  # that has to be read
    assert SEARCH.carry_out({"query": "zebra"}, {}) == "No document has any of these words."
    for task in TASKS:
        start = hops_in(task.question).start
        assert start.name in SEARCH.carry_out({"query": start.phrase}, {})


@pytest.mark.parametrize(
    "query", ['"a', "NEAR(a, b)", "a* OR title:b", "'; DROP TABLE documents; --", "x" * 5000]
)
def test_no_query_breaks_the_search(query: str) -> None:
    assert SEARCH.carry_out({"query": query}, {}).startswith(("1. ", "No document"))


def test_arguments_that_do_not_fit_are_said() -> None:
    for tool, arguments in (
        (SEARCH, {}),
        (SEARCH, {"query": 3}),
        (OPEN, {"name": "Kelby"}),
        (SEARCH, {"query": ""}),
    ):
        with pytest.raises(Unfit):
            tool.carry_out(arguments, {})
    with pytest.raises(ValueError, match="at least one word"):
        SEARCH.carry_out({"query": "?!"}, {})
    with pytest.raises(LookupError, match=r"no document 'Grey Heron'; near it are .*'Grey Heron \(ship\)'"):
        OPEN.carry_out({"title": "Grey Heron"}, {})


def test_they_are_pure_and_known_by_what_the_documents_hold() -> None:
    other, _ = document_tools({**DOCUMENTS, "More": "More is more."})
    assert SEARCH.pure
    assert OPEN.pure
    assert SEARCH.identity() == tl.domains.multi_hop_tools()[0].identity() != other.identity()
    assert len(json.dumps(SEARCH.settings())) < 1500  # the documents are not written to every run
    again = tl.part_of(json.loads(json.dumps(OPEN.settings())))
    with pytest.raises(LookupError, match="not stored in files"):
        again.carry_out({"title": "Kelby (town)"}, {})
    assert (
        pickle.loads(pickle.dumps(OPEN))
        .carry_out({"title": "Kelby (town)"}, {})
        .startswith("Kelby is a town")
    )
    with pytest.raises(ValueError, match="documents must not be empty"):
        document_tools({})


def test_a_lab_carries_them_out() -> None:
    class Looking(tl.Strategy):
        """Opens a document."""

        def think(self, task: tl.Task, at: str = "0") -> tl.Procedure[tl.Answer]:
            yield tl.Thought(at, None, task.question)
            found = yield from tl.ask(tool_call(at, "search", {"query": "Kelby"}))
            read = yield from tl.ask(
                tool_call(at, "open", {"title": found.text.split("\n")[0][3:].partition(":")[0]})
            )
            return tl.Answer(read.text, "answered", at)

    made = wait(tl.Lab("sim/agent", runs=None, tools=tl.domains.multi_hop_tools()).run(Looking(), TASKS[0]))
    assert made.answer.startswith("Kelby is a town")
    assert wait(made.replay()).identical
