"""Strategies that make few calls."""

import tot_lab as tl

SMALL = [
    tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2)),
    tl.TreeOfThoughts(
        propose=tl.Sample(count=2, max_parse_retries=1),
        evaluate=tl.Value(samples=2, max_parse_retries=1),
        stop=tl.Stop(depth=2),
    ),
    tl.TreeOfThoughts(propose=tl.Propose(count=3), evaluate="joint", stop=tl.Stop(depth=2)),
    tl.TreeOfThoughts(propose=tl.Sample(count=2), evaluate=tl.Vote(samples=2), stop=tl.Stop(depth=2)),
    tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.DepthFirst(width=2), stop=tl.Stop(depth=2)),
    tl.TreeOfThoughts(
        propose=tl.Sample(count=2), search=tl.BestFirst(batch=2), stop=tl.Stop(depth=2, nodes=7)
    ),
    tl.BestOf(strategy=tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=1)), attempts=2),
    tl.SelfConsistency(attempts=4),
    tl.SelfConsistency(strategy=tl.BestOf(strategy=tl.OneAnswer(), attempts=2), attempts=2),
]
