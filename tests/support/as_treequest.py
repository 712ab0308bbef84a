"""The steps of searches driven by hand, in the numbers of the package `treequest`."""

from treequest_steps import scores_of

import tot_lab as tl
from support.by_hand import drive


def parents_of(search, seed, levels=10**9, **options):
    """The parents of all thoughts of a search driven by hand, in the numbers of treequest."""
    scores = scores_of(seed, levels)
    made, state = drive(search, lambda id: next(scores), **options)
    number = {node.id: node.order - 1 for node in state.tree}
    return [number[node.parent] for node in state.tree if node.parent is not None], made


def steps_with_two_models(search, seed, **options):
    """Parent and model of each thought of a search driven by hand, where `b` gets half of the scores."""
    scores, models = scores_of(seed, 20), []

    def score(id, proposer):
        models.extend(proposer.models)
        return next(scores) / (1 if models[-1] == "a" else 2)

    made, state = drive(search, score, propose=tl.proposers.Mixture(models=["a", "b"]), **options)
    number = {node.id: node.order - 1 for node in state.tree}
    parents = [number[node.parent] for node in state.tree if node.parent is not None]
    return [list(step) for step in zip(parents, models, strict=True)], made
