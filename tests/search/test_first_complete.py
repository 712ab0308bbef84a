"""The answer of the first finished path."""

from support.votes import chosen

import tot_lab as tl
from tot_lab.core.records import Scored, Thought
from tot_lab.core.tree import Tree

RULE = tl.answers.FirstComplete()


def test_the_first_proposed_wins_whatever_its_score():
    assert chosen([("a", 0.1), ("b", 0.9)], RULE) == ("a", "0.0")
    assert chosen([("a", None), ("b", 0.9)], RULE) == ("a", "0.0")


def test_what_the_search_pruned_does_not_count():
    assert chosen([("a", 0.1, "pruned"), ("b", 0.2), ("c", 0.9)], RULE) == ("b", "0.1")


def test_without_a_finished_path_the_best_one_answers():
    assert chosen([("a", 0.1, "pruned"), ("b", 0.9, "pruned")], RULE) == ("b", "0.1")
    assert chosen([], RULE) == ("", None)


def test_an_unfinished_path_that_was_proposed_before_does_not_count():
    task = tl.game24("4 5 6 10")
    tree = Tree()
    tree.add(Thought("0", None, task.question))
    tree.add(Thought("0.0", "0", "10 - 4 = 6 (left: 5 6 6)"))
    tree.add(Scored("0.0", 0.9))
    path = "0"
    for step in ("10 - 4 = 6 (left: 5 6 6)", "5 * 6 = 30 (left: 6 30)", "30 - 6 = 24 (left: 24)"):
        path, parent = f"{path}.1", path
        tree.add(Thought(path, parent, step))
        tree.add(Scored(path, 0.1))
    text, node = RULE.choose(task, tree, list(tree)[1:], tree.leaves())
    assert node.id == path
    assert "24" not in text.split("=")[0]
    assert task.domain.verify(task, text)
