"""Graph of Thoughts: the order of its operations beside that of the published package, and its paths.

`pytest -m proof tests/search/test_graph_of_thoughts.py` runs the published package. `PYTHONPATH=tests python
tests/search/test_graph_of_thoughts.py PYTHON` writes the golden file anew, with a Python that has the
package.
"""

import json
import subprocess
import sys
import venv
from random import Random

import pytest
from support import GOLDEN, TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.core.records import Decided, Scored, Thought
from tot_lab.strategies.search.searches import SearchState

SCRIPT = GOLDEN / "graph_of_thoughts_order.py"
ORDER = SCRIPT.with_suffix(".json")
GraphOfThoughts, Refine = tl.searches.GraphOfThoughts, tl.proposers.Refine


def plan(seed):
    """A random list of operations.

    The package has no `refine` that keeps the original. Its graph hands both to the next operation, the
    originals first, so that equal scores of an original and a version of another could differ in order.
    """
    random = Random(seed)
    operations, thoughts = [], 1
    while not operations or (len(operations) < 7 and thoughts < 40):
        do = random.choice(["generate", "aggregate", "refine", "keep"]) if operations else "generate"
        count = random.randint(1, 4)
        match do:
            case "generate":
                thoughts *= count
                operations.append({"do": do, "count": count})
            case "aggregate":
                size = random.choice([None, 2, 3])
                thoughts = count * (-(-thoughts // size) if size else 1)
                operations.append({"do": do, "count": count} | ({"size": size} if size else {}))
            case "refine":
                operations += [{"do": do}, {"do": "keep", "count": count}]
                thoughts = min(2 * thoughts, count)
            case _:
                each = random.random() < 0.5
                operations.append({"do": do, "count": count, "each": each})
                thoughts = thoughts if each else min(thoughts, count)
    refines = any(operation["do"] == "refine" for operation in operations)
    return {"seed": seed, "levels": 1_000_000 if refines else 4, "operations": operations}


PLANS = [plan(seed) for seed in range(150)]


def published(python):
    """What the package does with `PLANS`."""
    done = subprocess.run(
        [python, SCRIPT], input=json.dumps(PLANS), capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout)


def ours(plan):
    """What the search does with a plan, driven by hand on the same scores."""
    random = Random(plan["seed"])
    scores = [random.randrange(plan["levels"]) / plan["levels"] for _ in range(500)]
    state = SearchState(TASK, "0", tl.TreeOfThoughts())
    state.tree.add(Thought("0", None, "root"))
    searching = GraphOfThoughts(operations=plan["operations"]).run(state)
    steps, made, value, left = [], 0, None, ["0"]
    while True:
        try:
            step = searching.send(value)
        except StopIteration:
            break
        if isinstance(step, Decided):
            value = step
            left.remove(step.id)
            continue
        value, used = [], []
        for group in step.parents:
            (do,) = step.why[group[0]].values()
            refining = do == "refine"
            assert (step.proposer == Refine()) if refining else (step.proposer is None)
            texts = [state.tree[id].text for id in (group[1:] if refining else group)]
            steps.append([do, texts, step.count])
            for _ in range(step.count):
                id = f"{group[0]}.{len(state.tree[group[0]].children)}"
                state.tree.add(Thought(id, group[0], str(made), group[1:]))
                state.tree.add(Scored(id, scores[made]))
                value.append(id)
                made += 1
            used += () if refining else group
        left = [id for id in left if id not in used] + value
    return {"steps": steps, "left": [state.tree[id].text for id in left]}


def same(theirs, made):
    """The same operations on the same thoughts in the same order, and the same thoughts left."""
    assert made["steps"] == theirs["steps"]
    assert sorted(made["left"]) == sorted(theirs["left"])


@pytest.mark.slow
def test_operations_are_carried_out_in_the_order_of_the_published_package():
    golden = json.loads(ORDER.read_text())
    assert len(golden) == len(PLANS)
    assert sum(len(one["steps"]) for one in golden) > 1_000
    for plan, theirs in zip(PLANS, golden, strict=True):
        same(theirs, ours(plan))


@pytest.mark.proof
def test_the_golden_file_is_what_the_published_package_does(tmp_path):
    venv.create(tmp_path / "apart", with_pip=True)
    python = tmp_path / "apart" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "graph-of-thoughts==0.0.2"]
    subprocess.run(pip, check=True, timeout=300)
    assert published(python) == json.loads(ORDER.read_text())


# In a whole run.


def named(call):
    return f"{call.node}/{call.sample_index}" if call.purpose == "sample" else "score: 0.5"


def searched(*operations, **settings):
    model = Scripted(named)
    search = GraphOfThoughts(operations=operations)
    stop = tl.Stop(**{"solved": None, **settings})
    return run(tl.TreeOfThoughts(search=search, stop=stop), TASK, model), model.calls


def test_an_aggregate_continues_its_first_thought_and_names_the_others():
    made, _ = searched({"do": "generate", "count": 5}, {"do": "aggregate", "size": 2, "count": 1})
    sources = {node.id: node.source for node in made.tree if node.depth == 2}
    assert sources == {"0.0.0": ("0.1",), "0.2.0": ("0.3",), "0.4.0": ()}
    assert wait(made.replay()).identical


def test_at_the_depth_limit_an_aggregate_stands_beside_its_thoughts():
    made, calls = searched({"do": "generate", "count": 4}, {"do": "aggregate", "size": 2}, depth=1)
    assert {node.id: node.source for node in made.tree if node.source} == {
        "0.4": ("0.0", "0.1"),
        "0.5": ("0.2", "0.3"),
    }
    assert made.tree.texts("0.4") == ["0/4"]
    (asked,) = [call for call in calls if (call.purpose, call.sample_index) == ("sample", 4)]
    assert "0/0" in asked.prompt
    assert "0/1" in asked.prompt
    assert "0/2" not in asked.prompt


def test_refining_gives_each_thought_versions_that_compete_with_it():
    operations = ({"do": "generate", "count": 2}, {"do": "refine", "count": 2})
    made, _ = searched(*operations, {"do": "keep", "each": True})
    assert [made.tree[f"0.{k}"].source for k in range(6)] == [(), (), *[("0.0",)] * 2, *[("0.1",)] * 2]
    pruned = [node.id for node in made.tree if node.state == "pruned"]
    assert pruned == ["0.2", "0.3", "0.4", "0.5"]  # all scores are equal: the first of each group stays


def test_independent_operations_are_made_at_once():
    """Only thoughts below one parent wait for each other, because they share its numbers."""
    made, _ = searched(
        {"do": "generate", "count": 4}, {"do": "generate", "count": 2}, {"do": "aggregate", "size": 2}
    )
    notes = [event for event in made.events if getattr(event, "name", "") == "tot.picked"]
    assert [len(note.data["parents"]) for note in notes] == [1, 4, 4]


@pytest.mark.slow
@pytest.mark.parametrize("propose", ["sample", "propose"])
@pytest.mark.parametrize("evaluate", ["value", "vote", "joint"])
def test_the_bound_on_calls_holds_for_any_operations(propose, evaluate):
    for one in PLANS[:25]:
        search = GraphOfThoughts(operations=one["operations"])
        strategy = tl.TreeOfThoughts(
            search=search, propose=propose, evaluate=evaluate, stop=tl.Stop(solved=None, depth=9)
        )
        assert run(strategy).usage.calls <= strategy.max_calls(TASK)


def test_the_question_cannot_be_rewritten():
    with pytest.raises(ValueError, match="put `generate` before `refine`"):
        searched({"do": "refine"})


def test_operations_are_settings():
    search = tl.TreeOfThoughts(search=GraphOfThoughts(operations=[{"do": "generate", "count": 2}]))
    assert tl.part_of(json.loads(json.dumps(search.settings()))) == search


if __name__ == "__main__":
    golden = published(sys.argv[1])
    ORDER.write_text("[\n" + ",\n".join(json.dumps(one) for one in golden) + "\n]\n")
