"""The answer that an answer rule chooses from given leaves."""

import tot_lab as tl
from support import TASK
from tot_lab.core.records import Decided, Scored, Thought
from tot_lab.core.tree import Tree


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
