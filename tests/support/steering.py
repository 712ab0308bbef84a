"""Runs that a person steers, and what a search keeps when a person changes it."""

import asyncio

import tot_lab as tl
from support import Scripted, wait
from support.letters import TASK_OF_LETTERS, letters
from tot_lab.core.records import Note

SEARCHES = [
    tl.BeamSearch(width=2),
    tl.BestFirst(),
    tl.DepthFirst(),
    tl.MCTS(iterations=8),
    tl.MCTS(iterations=4, batch=2),
    tl.searches.LATS(iterations=8),
    tl.searches.AStar(heuristic="score"),
    tl.searches.Levin(),
]


BY_BUDGET = [
    tl.searches.PRMBeam(width=2, count=3),
    tl.searches.DVTS(subtrees=2, count=3),
    tl.searches.REBASE(width=6),
    tl.searches.ParticleFilter(particles=6),
    tl.searches.ParticleGibbs(particles=6, iterations=3),
]
"""Searches that say how many children a thought gets: six below the root."""


def worth(path):
    """A score that differs between all paths: the middle letters are the best."""
    return sum(
        0.3 ** (1 + depth) * {"a": 0.2, "b": 0.9, "c": 0.6}.get(text, 0.1) for depth, text in enumerate(path)
    )


def strategy(search=None, score=worth, count=3, **stop):
    return tl.TreeOfThoughts(
        propose=tl.Sample(count=count),
        evaluate=lambda task, path: score(path),
        search=search or tl.BestFirst(),
        stop=tl.Stop(**{"depth": 3, "solved": None, "nodes": 40, **stop}),
        answer="best_leaf",
        parallel=False,
    )


def steered(act, search=None, *, at=1, runs=None, budget=None, score=worth, wrap=lambda made: made, **stop):
    """A run in which `act(steer)` is done while the last child of the expansion number `at` (the root's is 0)
    is scored, just before the search picks again. `wrap` makes another strategy of the search."""
    last = []

    def watching(path):
        if path[-1] == "c":
            last.append(path)
            if len(last) == at + 1:
                act(stream.steer)
        return score(path)

    async def go():
        async for _ in stream:
            pass
        return stream.run

    lab = tl.Lab(Scripted(letters), runs=runs)
    stream = lab.stream(wrap(strategy(search, watching, **stop)), TASK_OF_LETTERS, budget=budget)
    run = asyncio.run(go())
    assert len(last) > at
    assert stream.steer.waiting == []
    return run


def picks(run):
    return [
        (event.data["parents"])
        for event in run.events
        if isinstance(event, Note) and event.name == "tot.picked"
    ]


def plain(search=None, **more):
    return wait(tl.Lab(Scripted(letters), runs=None).run(strategy(search, **more), TASK_OF_LETTERS))


def same(run):
    """Whether a replay makes every record again."""
    made = wait(run.replay())
    assert made.divergence is None
    return made.identical


def check_prune(search):
    """Check that nothing below a pruned thought is expanded, and that it is not the answer."""
    usual = plain(search)
    first = next(pick for pick in picks(usual) if pick != ["0"])[0]
    run = steered(lambda steer: steer.prune(first), search)
    assert run.tree[first].state == "pruned"
    assert run.tree[first].reason == "person"
    taken = next(
        k for k, event in enumerate(run.events) if isinstance(event, Note) and event.name == "person.acts"
    )
    later = picks(run)[sum(isinstance(e, Note) and e.name == "tot.picked" for e in run.events[:taken]) :]
    assert later
    assert not [id for pick in later for id in pick if f"{id}.".startswith(f"{first}.")]
    below = [node for node in run.tree if f"{node.id}.".startswith(f"{first}.")]
    assert {node.state for node in below} == {"pruned"}
    assert not f"{run.best.id}.".startswith(f"{first}.")
    assert same(run)


def check_rescore(search):
    """Check that a person's score counts as if the evaluator had given it."""
    # 0.0 is scored while the root is expanded, and rescored before the next pick.
    usual = plain(search, score=lambda path: 0.99 if path == ["a"] else worth(path))
    run = steered(lambda steer: steer.rescore("0.0", 0.99), search, at=0)
    assert run.tree["0.0"].score == 0.99
    assert run.tree["0.0"].by == "person"
    assert picks(run) == picks(usual) != picks(plain(search))
    assert run.best.id == usual.best.id
    assert same(run)


def check_graft(search):
    """Check that a grafted thought is expanded and that the run replays."""
    # 0.1 (b) is the best child of the root, so every search expands it first.
    run = steered(lambda steer: steer.graft("0.1", "z", 1.0), search, at=2)
    assert run.tree["0.1.3"].text == "z"
    assert any("0.1.3" in pick for pick in picks(run))
    assert same(run)
