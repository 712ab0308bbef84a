"""The notes that the records of a tree search imply, live and in frames."""

import random

import pytest
from support import TASK, Scripted, wait

import tot_lab as tl
from tot_lab.core.records import Decided
from tot_lab.record.search_notes import notes_of

SEARCHES = {
    "beam": tl.TreeOfThoughts(search=tl.BeamSearch(width=2), stop=tl.Stop(min_score=0.3, solved=None)),
    "mcts": tl.TreeOfThoughts(search="mcts", stop=tl.Stop(depth=2, solved=None)),
    "nothing": tl.TreeOfThoughts(stop=tl.Stop(min_score=1.0)),
    "nested": tl.Reflexion(strategy=tl.TreeOfThoughts(stop=tl.Stop(depth=2))),
    "planned": tl.TreeThenAct(max_depth=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_t10_the_live_stream_has_the_named_events_of_the_frame(name):
    watched = []

    async def streamed():
        lab = tl.Lab(Scripted(), runs=None)
        stream = lab.stream(SEARCHES[name], TASK)
        live = [event async for event in stream]
        await lab.run(SEARCHES[name], TASK, watch=lambda lines: watched.extend(line.e for line in lines))
        return live, stream.run

    live, made = wait(streamed())
    frame = made.events_df()
    framed = list(zip(frame["name"], frame["node"], frame["data"], strict=True))
    for seen in (live, watched):
        named = [(e.name, e.at, e.data) for e in seen if isinstance(e, tl.Note) and e.name.startswith("tot.")]
        assert {"tot.started", "tot.level_started", "tot.proposed", "tot.evaluated"} <= {
            name for name, _, _ in named
        }
        assert sorted(map(repr, named)) == sorted(repr(row) for row in framed if row[0].startswith("tot."))
    recorded = [event for event in live if not isinstance(event, tl.Note)]
    assert len(recorded) == len([event for event in made.events if not isinstance(event, tl.Note)])
    root = frame[(frame["node"] == "0") & (frame["name"] == "thought")]
    assert len(root) == 1


def test_levels_follow_from_the_tree():
    """Each level, counted from the tree alone."""
    made = wait(tl.Lab(Scripted(), runs=None).run(SEARCHES["beam"], TASK))
    levels = [note.data for note in notes_of(made) if note.name == "tot.pruned"]
    assert [level["depth"] for level in levels] == sorted({node.depth for node in made.tree} - {0})
    for level in levels:
        nodes = [node for node in made.tree if node.depth == level["depth"]]
        kept = [node for node in nodes if node.state in ("kept", "complete", "answer")]
        assert set(level["kept"]) == {node.id for node in kept}
        assert level["kept_scores"] == sorted((node.score for node in kept), reverse=True)
        assert level["pruned_below_floor"] == sum(node.reason == "min_score" for node in nodes)


@pytest.mark.parametrize("seed", range(3))
def test_kept_thoughts_have_the_order_in_which_the_search_kept_them(seed):
    """Branches are answered in any order, and equal scores keep the order of their parents."""
    roll = random.Random(seed)
    model = Scripted(
        lambda call: f"step {call.node}.{call.sample_index}", latency=lambda call: roll.random() / 200
    )
    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=3),
        evaluate=lambda task, path: 0.5,
        search=tl.BeamSearch(width=6),
        stop=tl.Stop(depth=3),
    )
    made = wait(tl.Lab(model, runs=None).run(search, TASK))
    decided = [event.id for event in made.events if isinstance(event, Decided) and event.what == "kept"]
    noted = [id for note in notes_of(made) if note.name == "tot.pruned" for id in note.data["kept"]]
    assert noted == decided
    assert len(noted) > 10
