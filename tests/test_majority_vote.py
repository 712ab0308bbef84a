"""The answer by majority of a finished search."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from reward_trees import candidates
from support import TASK, Scripted, run

import tot_lab as tl
from tot_lab.core.records import Decided, Scored, Thought
from tot_lab.core.tree import Tree

ITS_HUB = json.loads((Path(__file__).parent / "golden/its_hub.json").read_text())


def chosen(rows, rule=None, *, task=TASK, **settings):
    """The answer of a tree whose leaves are `rows`: text, score and, unless it is kept, state."""
    tree = Tree()
    tree.add(Thought("0", None, "problem"))
    for k, (text, score, *state) in enumerate(rows):
        tree.add(Thought(f"0.{k}", "0", text))
        tree.add(Scored(f"0.{k}", score))
        tree.add(Decided(f"0.{k}", *(state or ["kept"])))
    leaves = sorted(list(tree)[1:], key=lambda node: -node.rank)
    rule = rule or tl.answers.MajorityVote(**settings)
    text, node = rule.choose(task, tree, list(tree)[1:], leaves)
    return text, node and node.id


def test_the_most_frequent_answer_wins_and_the_domain_says_what_is_the_same():
    rows = [("Rome", 0.9), ("PARIS", 0.2), ("paris", 0.3)]
    assert chosen(rows) == ("paris", "0.2")
    assert chosen(rows, weighted=True) == ("Rome", "0.0")


def test_of_equal_votes_the_best_score_wins():
    assert chosen([("a", 0.2), ("b", 0.9), ("a", 0.3), ("b", 0.1)]) == ("b", "0.1")


def test_an_unreadable_score_has_a_vote_of_no_weight():
    rows = [("a", None), ("a", None), ("b", 0.1)]
    assert chosen(rows) == ("a", "0.0")
    assert chosen(rows, weighted=True) == ("b", "0.2")


def test_what_the_search_pruned_has_no_vote():
    assert chosen([("a", 0.1), ("b", 0.9, "pruned"), ("b", 0.9, "pruned")]) == ("a", "0.0")


def test_without_a_finished_path_the_best_one_answers():
    assert chosen([("a", 0.1, "pruned"), ("b", 0.9, "pruned")]) == ("b", "0.1")
    assert chosen([]) == ("", None)


def test_an_incomplete_path_has_no_vote():
    task = tl.game24("4 5 6 10")
    tree = Tree()
    steps = ["10 - 4 = 6 (left: 5 6 6)", "5 * 6 = 30 (left: 6 30)", "30 - 6 = 24 (left: 24)"]
    tree.add(Thought("0", None, task.question))
    for depth, step in enumerate(steps, 1):
        tree.add(Thought("0" + ".0" * depth, "0" + ".0" * (depth - 1), step))
    tree.add(Thought("0.1", "0", steps[0]))
    tree.add(Thought("0.2", "0", steps[0]))
    nodes = list(tree)[1:]
    text, node = tl.answers.MajorityVote().choose(task, tree, nodes, tree.leaves()[::-1])
    assert node.id == "0.0.0.0"
    assert task.domain.grade(task, text) is not None


@pytest.mark.parametrize("weighted", [False, True])
def test_it_counts_as_a_naive_count_does(weighted):
    for seed in range(200):
        random = Random(seed)
        rows = [(random.choice("abcd"), random.random()) for _ in range(1 + seed % 9)]
        votes = Counter()
        for text, score in rows:
            votes[text] += score if weighted else 1
        text, _ = chosen(rows, weighted=weighted)
        assert votes[text] == pytest.approx(max(votes.values()))


def test_its_hub_chooses_the_same_answers():
    """Self-consistency, and best of N."""
    for seed, theirs in ITS_HUB["answers"].items():
        rows = candidates(int(seed))
        voted, _ = chosen(rows)
        assert theirs["votes"] == Counter(answer for answer, _ in rows)
        assert theirs["votes"][voted] == theirs["votes"][theirs["voted"]]
        if [*theirs["votes"].values()].count(max(theirs["votes"].values())) == 1:
            assert voted == theirs["voted"]  # it draws among equally frequent answers
        assert max(rows, key=lambda row: row[1])[0] == theirs["best"] == chosen(rows, tl.answers.Best())[0]


def test_a_search_answers_by_it():
    strategy = tl.TreeOfThoughts(
        answer=tl.answers.MajorityVote(), search="rebase", stop=tl.Stop(solved=None, depth=1)
    )
    made = run(strategy, model=Scripted(answers))
    assert made.answer == "26"


def answers(call):
    if call.purpose == "value":
        return "score: 0.9" if "Answer: 24" in call.prompt else "score: 0.4"
    return "Answer: 24" if call.sample_index == 0 else "Answer: 26"
