"""Tree of Thoughts, line by line: the numbers in the names are those of the published designs,
T = beam search (JeevesAgent), M = the state machine (Jido AI)."""

import contextlib
import json
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import (
    ANSWERS,
    EVALUATORS,
    IN_PARTS,
    PROPOSERS,
    SEARCHES,
    STRATEGIES,
    TASK,
    InParts,
    Scripted,
    answer_to,
    dice,
    run,
    shuffled,
    wait,
)

import tot_lab as tl
from tot_lab.core.calls import Call
from tot_lab.core.records import Decided, Scored, Thought
from tot_lab.record.search_notes import notes_of
from tot_lab.strategies.search import searches as search_states


def notes(run: tl.Run, name: str) -> list[dict]:
    return [note.data for note in notes_of(run) if note.name == name]


def scores(given: dict[str, float | None]):
    """A model whose verdict on a thought is given by the last step's text; None is unreadable."""

    def reply(call: Call) -> str:
        if call.purpose != "value":
            return answer_to(call)
        known = [value for text, value in given.items() if call.prompt.rstrip().endswith(text)]
        return "unclear" if not known or known[0] is None else f"score: {known[0]}"

    return reply


class Words(tl.domains.General):
    """Thoughts are letters: the k-th draw proposes the k-th letter, and the prompt ends with the path."""

    kind = "tests/words"

    def sample_prompt(self, task, path):
        return f"next after {'/'.join(path)}"

    def value_prompt(self, task, path):
        return f"value of {'/'.join(path)}"


def words(given: dict[str, float | str], default: float = 0.5, **settings) -> tl.Run:
    """A search over letters a, b, c with the values given by path (`a/b`)."""

    def reply(call):
        if call.purpose == "sample":
            return "abcdefgh"[call.sample_index]
        value = given.get(call.prompt.removeprefix("value of "), default)
        return f"score: {value}" if isinstance(value, float) else str(value)

    task = tl.general("Which word?").model_copy(update={"domain": Words()})
    return run(tl.TreeOfThoughts(stop=tl.Stop(depth=2)).with_(**settings), task, Scripted(reply))


def paths(run: tl.Run) -> dict[str, str]:
    """State by path."""
    return {"/".join(run.tree.texts(node.id)): node.state for node in run.tree if node.parent is not None}


# T: beam search.


def test_t1_t15_thirty_calls_with_the_defaults():
    search = tl.TreeOfThoughts()
    model = Scripted(lambda call: "step" if call.purpose == "sample" else "score: 0.5")
    got = run(search, model=model)
    assert (search.propose.count, search.search.width, search.stop.depth) == (3, 2, 3)
    assert len(model.calls) == search.max_calls(TASK) == 30
    assert [level["frontier_size"] for level in notes(got, "tot.level_started")] == [1, 2, 2]


def test_t1_the_best_of_a_level_are_expanded():
    got = words({"a": 0.2, "b": 0.9, "c": 0.4}, **{"stop.solved": None})
    assert {path for path in paths(got) if "/" in path} == {f"{x}/{y}" for x in "bc" for y in "abc"}
    assert paths(got)["a"] == "pruned"


def test_t2_stops_when_a_kept_thought_reaches_the_threshold():
    got = words({"b": 0.9}, **{"stop.solved": 0.9})
    assert got.stop_reason == "solved"
    assert notes(got, "tot.solved") == [{"depth": 1, "node_id": "0.1", "score": 0.9}]
    assert len(got.tree) == 4


def test_t3_a_floor_drops_even_when_the_beam_has_room():
    got = words({"a": 0.1, "b": 0.9, "c": 0.2}, **{"stop.min_score": 0.3})
    assert paths(got)["a"] == paths(got)["c"] == "pruned"
    assert notes(got, "tot.pruned")[0]["pruned_below_floor"] == 2
    empty = words({}, default=0.1, **{"stop.min_score": 0.3})
    assert empty.stop_reason == "exhausted"
    assert notes(empty, "tot.empty_beam") == [{"depth": 1}]


@pytest.mark.slow
def test_t4_parallel_false_asks_one_after_another():
    flying, most = 0, 0

    async def model(call):
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await __import__("asyncio").sleep(0.001)
        flying -= 1
        return answer_to(call)

    one_by_one = run(tl.TreeOfThoughts(parallel=False), model=model)
    assert most == 1
    assert one_by_one.events == run(tl.TreeOfThoughts()).events
    run(tl.TreeOfThoughts(), model=model)
    assert most > 2


def test_t5_prompts_can_be_replaced_and_nothing_inside_them_is_filled_twice():
    task = tl.general("What is {steps}?")
    search = tl.TreeOfThoughts(
        propose=tl.Sample(prompt="P|{problem}|{steps}|{count}|"),
        evaluate=tl.Value(prompt="E|{problem}|{candidate}"),
        stop=tl.Stop(depth=1),
    )
    model = Scripted(lambda call: "step" if call.purpose == "sample" else "score: 1")
    run(search, task, model)
    assert model.calls[0].prompt == "P|What is {steps}?|(no steps yet)|1|"
    assert "E|What is {steps}?|step" in {call.prompt for call in model.calls}
    for kind in (tl.Sample, tl.Propose, tl.Value, tl.Vote):
        with pytest.raises(ValueError, match=r"prompt[\s\S]*must contain {problem}"):
            kind(prompt="no problem, but {steps}")


PLAIN = "You are a careful solver of puzzles."


@pytest.mark.parametrize(("path", "purpose"), [("propose.prompt", "sample"), ("evaluate.prompt", "value")])
def test_t5_m10_a_plain_prompt_is_the_system_text(path, purpose):
    """The program supplies the problem and the steps."""
    model = Scripted()
    run(tl.TreeOfThoughts().with_({path: PLAIN}), model=model)
    calls = [call for call in model.calls if call.purpose == purpose]
    assert calls
    for call in calls:
        assert (call.messages[0].role, call.messages[0].content) == ("system", PLAIN)
        assert TASK.question in call.messages[-1].content
        assert PLAIN not in call.messages[-1].content
    others = {call.messages[0].role for call in model.calls if call.purpose != purpose}
    assert others == {"user"}


def test_t5_default_thoughts_are_stored_stripped():
    got = run(tl.TreeOfThoughts(stop=tl.Stop(depth=1)), model=Scripted(lambda call: "  a step \n"))
    assert {node.text for node in list(got.tree)[1:]} == {"a step"}


def test_t6_proposer_sees_the_path_and_evaluator_the_steps_before():
    model = Scripted(
        lambda call: f"thought {call.sample_index}" if call.purpose == "sample" else "score: 0.5"
    )
    run(tl.TreeOfThoughts(propose=tl.Sample(count=1), stop=tl.Stop(depth=2)), model=model)
    first, value, second, value_2 = model.calls
    assert "no steps yet" in first.prompt
    assert "1. thought 0" in second.prompt
    assert all(TASK.question in call.prompt for call in model.calls)
    assert "no steps yet" in value.prompt
    assert "thought 0" in value.prompt
    assert value_2.prompt.count("thought 0") == 2  # the step before, and the candidate


def test_t7_the_root_costs_nothing():
    got = run(tl.TreeOfThoughts())
    root = got.tree.root
    assert (root.text, root.depth, root.score, root.by) == (TASK.question, 0, 1.0, "root")
    assert isinstance(got.events[0], Thought)
    assert isinstance(got.events[1], Scored)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((path, 0) for path in ("propose.count", "search.width", "stop.depth", "stop.nodes")),
        ("answer.top_k", 0),
        ("evaluate.samples", 0),
        ("propose.max_parse_retries", -1), ("evaluate.max_parse_retries", -1),
        *((path, 1.1) for path in ("stop.min_score", "stop.solved", "stop.min_improvement")),
        *((path, -1) for path in ("stop.min_depth", "stop.min_score", "stop.solved")),
        ("stop.patience", 0), ("stop.depth", 1001), ("propose", "guess"), ("evaluate", "feel"),
        ("search", "sideways"), ("evaluate.combine", "max"), ("answer", "worst"), ("temperature", 3),
        ("no_such_setting", 1), ("stop.no_such_setting", 1), ("budget", {"calls": -1}),
        ("propose.count", True), ("stop.nodes", "7"), ("parallel", "no"), ("stop.min_score", True),
        ("stop", {"depht": 3}), ("merge.state", 1),
    ],
)  # fmt: skip
def test_t8_bad_settings_are_refused_by_name(path, value):
    with pytest.raises(ValueError, match=path.rpartition(".")[2] if path != "merge.state" else "merge"):
        tl.TreeOfThoughts().with_({path: value})


def test_t8_settings_of_an_axis_are_refused_where_they_stand():
    with pytest.raises(ValueError, match=r"stop\.depth"):
        tl.TreeOfThoughts(stop={"depth": 0})
    with pytest.raises(
        ValueError, match=r"no setting 'temprature'; did you mean 'tl.TreeOfThoughts\(temperature=…\)'"
    ):
        tl.Propose(temprature=1)


def test_t9_the_answer_is_the_best_of_the_whole_tree():
    got = words({"a": 0.8, "b": 0.7}, default=0.3, answer="best", **{"stop.solved": None})
    assert (got.answer, got.best.id, got.score) == ("a", "0.0", 0.8)
    kept = got.nodes_df().set_index("id")
    assert kept.loc["0.0.1", ["parent", "text", "score", "depth"]].tolist() == ["0.0", "b", 0.3, 2]
    assert len(kept) == len(got.tree)
    tie = words({"b": 0.9, "b/a": 0.9}, answer="best", **{"stop.solved": None})
    assert tie.best.id == "0.1"
    nothing = run(tl.TreeOfThoughts(), model=Scripted(lambda call: ""))
    assert (nothing.answer, nothing.best, nothing.stop_reason) == ("", None, "exhausted")
    assert notes(nothing, "tot.no_thoughts") == [{"total_nodes": 1}]


def test_t10_events_and_fields():
    got = words(
        {"a": 0.1, "b": 0.9, "c": 0.5}, **{"stop.min_score": 0.2, "stop.solved": None, "stop.depth": 1}
    )
    assert notes(got, "tot.started") == [{"branch_factor": 3, "beam_width": 2, "max_depth": 1}]
    assert notes(got, "tot.level_started") == [{"depth": 1, "frontier_size": 1}]
    assert notes(got, "tot.pruned") == [
        {"depth": 1, "kept": ["0.1", "0.2"], "kept_scores": [0.9, 0.5], "pruned_below_floor": 1}
    ]
    assert notes(got, "tot.completed") == [{"winner_id": "0.1", "winner_score": 0.9, "total_nodes": 4}]
    kinds = [type(e) for e in got.events if isinstance(e, Thought | Scored) and e.id != "0"]
    assert kinds == [Thought, Scored] * 3  # a candidate's two stand together
    frame = got.events_df()
    proposed = frame[frame["name"] == "tot.proposed"]
    assert list(proposed["node"]) == ["0.0", "0.1", "0.2"]
    assert len(frame[frame["name"] == "tot.evaluated"]) == 3


@pytest.mark.parametrize("why", ["unreadable", "failed", "refused"])
@pytest.mark.parametrize(
    "strategy", [tl.presets.beam_search(), tl.presets.state_machine(), tl.TreeThenAct()], ids=lambda s: s.kind
)
def test_t10_a_run_without_thoughts_ends_with_an_empty_beam_and_no_thoughts(strategy, why):
    model = Scripted(lambda call: tl.Reply(error="down: no") if why == "failed" else "")
    budget = tl.Budget(calls=0) if why == "refused" else None
    got = run(strategy, model=model, budget=budget)
    recorded = [note for note in notes_of(got) if note.name.startswith("tot.")]
    assert [note.name for note in recorded] == [
        "tot.started", "tot.level_started", "tot.picked", "tot.pruned", "tot.empty_beam", "tot.no_thoughts"
    ]  # fmt: skip
    assert recorded[-2].data == {"depth": 1}
    assert recorded[-1].data == {"total_nodes": 1}
    names = [name for name in got.events_df()["name"] if name.startswith("tot.")]
    end = names.index("tot.no_thoughts")
    assert names[end - 2 : end] == ["tot.pruned", "tot.empty_beam"]
    assert "tot.completed" not in names


def test_t10_thoughts_are_recorded_whole():
    long = "x" * 5000
    got = run(
        tl.TreeOfThoughts(stop=tl.Stop(depth=1)),
        model=Scripted(lambda call: long if call.purpose == "sample" else "score: 1"),
    )
    assert {node.text for node in list(got.tree)[1:]} == {long}


def test_t12_usage_adds_up_per_run_and_per_node():
    got = run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), tl.sim.SimGame24())
    frame = got.nodes_df()
    assert frame["calls"].sum() == got.usage.calls == len(got.calls_df())
    assert frame["input_tokens"].sum() == got.usage.input_tokens > 0
    assert frame["output_tokens"].sum() == got.usage.output_tokens > 0


def test_t14_the_strategies_that_one_uses_are_its_settings():
    def used(settings):
        inside = settings.values() if isinstance(settings, dict) else settings
        found = [kind for value in inside if isinstance(value, dict | list) for kind in used(value)]
        kind = settings.get("kind") if isinstance(settings, dict) else None
        return [kind, *found] if kind in {strategy.kind for strategy in STRATEGIES} else found

    search = tl.TreeOfThoughts()
    assert used(search.settings()) == ["tree_of_thoughts"]
    around = tl.Reflexion(strategy=tl.BestOf(strategy=search))
    assert used(around.settings()) == ["reflexion", "best_of", "tree_of_thoughts"]


# M: the state machine.


@pytest.mark.parametrize("thoughts", ['["one", "two", "three", "four"]', "1. one\n2. two\n3. three\n4. four"])
def test_m1_one_call_each_for_siblings_and_their_scores(thoughts):
    search = tl.presets.state_machine()
    model = Scripted(lambda call: thoughts if call.purpose == "propose" else "[0.1, 0.5, 0.3]")
    got = run(search, model=model)
    assert [call.purpose for call in model.calls[:2]] == ["propose", "joint"]
    children = got.tree["0"].children
    assert [(got.tree[id].text, got.tree[id].score) for id in children] == [
        ("one", 0.1),
        ("two", 0.5),
        ("three", 0.3),
    ]


def test_m1_each_strategy_may_have_a_model_of_its_own():
    """By a name, or by a word that stands for one."""
    search = tl.TreeOfThoughts(stop=tl.Stop(depth=1), model="sim/general")
    model = Scripted()
    lab = tl.Lab(model, roles={"evaluate": "sim/general"}, runs=None)
    assert set(wait(lab.run(search, TASK)).calls_df().model) == {"sim/general"}
    assert model.calls == []
    assert tl.LiteLLM(model="google").name == tl.LiteLLM(model="gemini/gemini-2.5-flash").name


def test_m1_searches_are_named():
    names = ("beam", "depth_first", "best_first")
    made = [tl.TreeOfThoughts(search=name).search for name in names]
    assert made == [tl.BeamSearch(), tl.DepthFirst(), tl.BestFirst()]


def test_m3_depth_first_backtracks_in_score_order():
    values = {"a": 0.3, "b": 0.9, "c": 0.6}
    got = words(values, search="depth_first", **{"stop.solved": None})
    expanded = [level_parent(got, id) for id in ordered_parents(got)]
    assert expanded == ["", "b", "c", "a"]
    assert got.stop_reason == "limit:depth"


def ordered_parents(run: tl.Run) -> list[str]:
    return list(dict.fromkeys(node.parent for node in run.tree if node.parent is not None))


def level_parent(run: tl.Run, id: str) -> str:
    return "/".join(run.tree.texts(id))


@pytest.mark.parametrize("cap", [1, 2, 3, 7, 8, 12])
@pytest.mark.parametrize("search", ["beam", "depth_first", "best_first", "mcts"])
def test_m4_max_nodes_is_never_overshot_and_used_up(cap, search):
    got = words(
        {}, search=search, **{"stop.nodes": cap, "stop.depth": 3, "stop.solved": None, "search.width": None}
    )
    assert len(got.tree) == cap
    assert got.stop_reason == "limit:nodes"


def test_m5_success_counts_from_min_depth_on():
    got = words({"b": 1.0, "b/c": 1.0}, **{"stop.min_depth": 2})
    assert got.stop_reason == "solved"
    assert notes(got, "tot.solved")[0]["node_id"] == "0.1.2"


def test_m6_convergence_and_a_window_of_one_is_off():
    flat = words({}, **{"stop.patience": 1, "stop.depth": 5})
    assert flat.stop_reason == "converged"
    assert len(notes(flat, "tot.level_started")) == 2
    assert words({}, **{"stop.patience": None, "stop.depth": 5}).stop_reason == "limit:depth"
    falling = words(
        {"a": 0.9}, default=0.1, search=tl.BestFirst(width=2), **{"stop.patience": 2, "stop.depth": 6}
    )
    assert falling.stop_reason == "converged"  # the best score stays, though its thought was expanded
    rising = {"/".join("a" * k): 0.1 * k for k in range(1, 6)}
    assert words(rising, default=0.0, **{"stop.patience": 1, "stop.depth": 5}).stop_reason == "limit:depth"


def test_m7_what_is_trimmed_is_recorded():
    best = words({"a": 0.9, "b": 0.8, "c": 0.7}, search=tl.BestFirst(width=2), **{"stop.solved": None})
    assert best.tree["0.2"].state == "pruned"
    assert best.tree["0.2"].reason == "beam"
    deep = words({"a": 0.9, "b": 0.8, "c": 0.7}, search=tl.DepthFirst(width=2), **{"stop.solved": None})
    assert {"a/a", "b/a"} <= set(paths(deep))  # it still backtracks
    assert deep.tree["0.2"].state == "pruned"


def state_machine(values, branch, depth, nodes, window, least, width):
    """The traversal `bfs` of the state machine, written from its design: one expansion after the other.

    Returns the paths in the order of their expansion, those that were trimmed, and why it ended.
    """
    queue, later, best, count = [""], [], [0.0], 1
    expanded, trimmed = [], set()
    while queue:
        parent = queue.pop(0)
        children = [f"{parent}{letter}" for letter in "abcdefgh"[:branch]][: nodes - count]
        expanded.append(parent)
        count += len(children)
        best.append(max([best[-1], *(values(child) for child in children)]))
        later += children
        if not queue:
            kept = sorted(later, key=lambda path: (-values(path), path))[:width]
            trimmed |= {path for path in later if path not in kept}
            queue, later = [path for path in later if path in kept and len(path) < depth], []
        recent = best[1:][-window:]  # the root has no score
        if count == nodes:
            return expanded, trimmed, "limit:nodes"
        if queue and window > 1 and len(recent) == window and recent[-1] - recent[0] < least:
            return expanded, trimmed, "converged"
    return expanded, trimmed, "limit:depth"


@pytest.mark.slow
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_m6_m7_bfs_expands_keeps_and_converges_as_the_state_machine_does(data):
    branch, depth = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    nodes, window = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 4))
    width = data.draw(st.none() | st.integers(1, 4))
    drawn = random.Random(data.draw(st.integers(0, 999)))
    known: dict[str, float] = {}

    def values(path):
        return known.setdefault(path, round(drawn.random() * 0.9, 2))

    def reply(call):
        if call.purpose == "propose":
            return json.dumps(list("abcdefgh"[:branch]))
        return json.dumps([values("".join(path)) for path in candidates_of(call)])

    def candidates_of(call):
        path = call.prompt.partition("path ")[2].partition("|")[0]
        return [f"{path}{letter}" for letter in call.prompt.partition("|")[2]]

    class Paths(tl.domains.General):
        kind = ""

        def joint_prompt(self, task, path, candidates):
            return f"path {''.join(path)}|{''.join(candidates)}"

    search = tl.presets.state_machine(
        traversal_strategy="bfs", branching_factor=branch, max_depth=depth, max_nodes=nodes,
        convergence_window=window, beam_width=width,
    )  # fmt: skip
    got = run(search, TASK.model_copy(update={"domain": Paths()}), Scripted(reply))
    expanded, trimmed, why = state_machine(values, branch, depth, nodes, window, 0.02, width)
    tree = got.tree
    assert ["".join(tree.texts(pick["parents"][0])) for pick in notes(got, "tot.picked")] == expanded
    # A thought that was trimmed can still become the answer, the best leaf, which is its state then.
    beam = [e.id for e in got.events if isinstance(e, Decided) and e.reason == "beam"]
    assert {"".join(tree.texts(id)) for id in beam} == trimmed
    assert got.stop_reason == why


def test_m7_bfs_keeps_all_by_default():
    every = tl.presets.state_machine(traversal_strategy="bfs", convergence_window=1)
    assert every.search.width is None
    model = Scripted(lambda call: '["a", "b", "c"]' if call.purpose == "propose" else "[0.1, 0.2, 0.3]")
    got = run(every, model=model)
    assert len(got.tree) == 1 + 3 + 9 + 27
    assert {node.state for node in got.tree} <= {"kept", "answer", "root", "proposed", "complete"}


def test_m8_leaves_are_ranked_by_score_depth_and_id():
    values = {"a": 0.9, "b": 0.8, "a/b": 0.7}
    some = {"search": "best_first", "stop.nodes": 7, "stop.solved": None}
    got = words(values, default=0.4, answer="best_leaf", **some, **{"answer.top_k": 4})
    assert [node.id for node in got.candidates] == ["0.1", "0.0.1", "0.0.0", "0.0.2"]
    assert got.best.id == "0.1"


def test_m9_parse_retries_take_new_draws_and_an_unread_score_stays_unread():
    def reply(call):
        if call.purpose == "sample":
            return "step"
        return "score: 0.4" if call.sample_index == 2 else "well"

    given_up = run(
        tl.TreeOfThoughts(
            propose=tl.Sample(max_parse_retries=1),
            evaluate=tl.Value(max_parse_retries=1),
            stop=tl.Stop(depth=1),
        ),
        model=Scripted(reply),
    )
    assert {node.state for node in list(given_up.tree)[1:]} <= {"unreadable", "kept", "pruned", "answer"}
    assert all(node.unreadable and node.score is None for node in list(given_up.tree)[1:])
    model = Scripted(reply)
    read = run(
        tl.TreeOfThoughts(
            propose=tl.Sample(max_parse_retries=2),
            evaluate=tl.Value(max_parse_retries=2),
            stop=tl.Stop(depth=1),
        ),
        model=model,
    )
    assert all(node.score == 0.4 for node in list(read.tree)[1:])
    assert sorted(
        call.sample_index for call in model.calls if call.purpose == "value" and call.node == "0.1"
    ) == [0, 1, 2]
    assert read.diagnostics["unreadable_replies"] == 6


def test_m10_replaced_prompts_see_problem_and_path():
    search = tl.presets.state_machine().model_copy(
        update={
            "propose.prompt": "P|{problem}|{steps}|{count}",
            "evaluate.prompt": "E|{problem}|{steps}|{candidates}",
        }
    )
    model = Scripted(lambda call: '["one", "two"]' if call.purpose == "propose" else "[0.1, 0.5]")
    run(search, model=model)
    deeper = [call.prompt for call in model.calls if call.node == "0.1"]
    problem = TASK.question
    assert deeper == [f"P|{problem}|1. two|3", f"E|{problem}|1. two|1. one\n2. two"]


def test_m13_reasons_in_one_vocabulary():
    assert words({"a": 1.0}).stop_reason == "solved"
    assert words({}, **{"stop.nodes": 3}).stop_reason == "limit:nodes"
    assert words({}).stop_reason == "limit:depth"
    assert words({}, default=0.1, **{"stop.min_score": 0.5}).stop_reason == "exhausted"
    both = words({"a": 1.0}, **{"stop.nodes": 4})  # solved comes before a cap
    assert both.stop_reason == "solved"
    flat = {"stop.patience": 1, "search.width": 1, "stop.depth": 5}
    assert words({}, **flat).stop_reason == "converged"
    assert (
        words({}, **flat, **{"stop.nodes": 7}).stop_reason == "limit:nodes"
    )  # so does a cap, before convergence


def test_m14_accessors():
    got = words({"b": 0.9, "b/a": 1.0})
    assert got.best.id == "0.1.0"
    assert got.solution_path == ["0", "0.1", "0.1.0"]
    assert got.result.text == got.answer == "a"
    unfinished = tl.Run(got.header, got.lines[:10])
    assert (unfinished.result, unfinished.best, unfinished.solution_path) == (None, None, [])
    assert unfinished.stop_reason is None


# The other axes.


@pytest.mark.parametrize(
    ("combine", "raw", "score"), [("mean", 7.0, 0.35), ("sum", 21.0, 0.35), ("vote", 1.0, 0.05)]
)
def test_draws_are_combined_as_set(combine, raw, score):
    def reply(call):
        return (
            "10 - 4 = 6 (left: 5 6 6)"
            if call.purpose == "sample"
            else ["likely", "sure", "likely"][call.sample_index]
        )

    if combine != "vote":
        raw, score = (22 / 3, 22 / 60) if combine == "mean" else (22.0, 22 / 60)
    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=1), evaluate=tl.Value(samples=3, combine=combine), stop=tl.Stop(depth=1)
    )
    node = run(search, tl.game24("4 5 6 10"), Scripted(reply)).tree["0.0"]
    assert node.samples == (1.0, 20.0, 1.0)
    assert (node.raw, node.score) == pytest.approx((raw, score))


def test_an_unread_draw_lowers_a_sum_and_not_a_mean():
    def reply(call):
        return "10 - 4 = 6 (left: 5 6 6)" if call.purpose == "sample" else ["sure", "hm"][call.sample_index]

    for combine, score in [("sum", 0.5), ("mean", 1.0)]:
        search = tl.TreeOfThoughts(
            propose=tl.Sample(count=1), evaluate=tl.Value(samples=2, combine=combine), stop=tl.Stop(depth=1)
        )
        node = run(search, tl.game24("4 5 6 10"), Scripted(reply)).tree["0.0"]
        assert (node.score, node.samples) == (score, (20.0, None))


def test_votes_compare_the_candidates_of_a_round():
    def reply(call):
        return (
            "abc"[call.sample_index] if call.purpose == "sample" else f"best: {[2, 2, 3][call.sample_index]}"
        )

    got = run(tl.TreeOfThoughts(evaluate=tl.Vote(samples=3), stop=tl.Stop(depth=1)), model=Scripted(reply))
    assert [got.tree[f"0.{k}"].score for k in range(3)] == [0, pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert [got.tree[f"0.{k}"].raw for k in range(3)] == [0, 2, 1]


def proposals(replies: list[str], **settings) -> tuple[tl.Run, Scripted]:
    """A search of one level whose k-th draw of proposals is given; "gone" fails."""

    def reply(call):
        if call.purpose != "propose":
            return "score: 0.5"
        if replies[call.sample_index] == "gone":
            raise ConnectionError("gone")
        return replies[call.sample_index]

    search = tl.TreeOfThoughts(
        propose="propose", search=tl.BeamSearch(width=None), stop=tl.Stop(depth=1)
    ).with_(settings)
    model = Scripted(reply, latency=shuffled(3))
    got = run(search, model=model)
    assert len(model.calls) <= search.max_calls(TASK)
    return got, model


def test_proposals_of_several_draws_are_pooled():
    replies = ["1. a\n2. b", "1. b\n2. c\n3. c", "1. a\n2. d\n3. e"]
    got, model = proposals(replies, **{"propose.samples": 3, "propose.count": 5})
    assert [got.tree[id].text for id in got.tree.root.children] == ["a", "b", "c", "c", "d"]
    assert got.tree["0.3"].reason == "repeats 0.2"  # within one reply, as ever
    assert sorted(call.sample_index for call in model.calls if call.purpose == "propose") == [0, 1, 2]


def test_a_draw_that_fails_or_cannot_be_read_leaves_the_others():
    replies = ["gone", "", "1. a", "", "1. b"]
    got, model = proposals(replies, **{"propose.samples": 3, "propose.max_parse_retries": 2})
    assert [got.tree[id].text for id in got.tree.root.children] == ["a", "b"]
    assert sorted(call.sample_index for call in model.calls if call.purpose == "propose") == [0, 1, 2, 3, 4]
    assert [note["draw"] for note in notes(got, "parse.unreadable")] == [1, 3]
    assert len(notes(got, "call.failed")) == got.usage.errors == 1
    none, _ = proposals(["gone"] * 3, **{"propose.samples": 3})
    assert (none.stop_reason, len(none.tree)) == ("error", 1)


def in_parts(given: dict[str, str], **settings) -> tl.Run:
    """A search of one step, "step 24", whose parts "all", "2" and "4" get the given replies."""

    def reply(call):
        if call.purpose == "sample":
            return "step 24"
        said = given[call.prompt.rpartition(": ")[2]]
        if said == "gone":
            raise ConnectionError("gone")
        return said

    search = tl.TreeOfThoughts(propose=tl.Sample(count=1), evaluate="parts", stop=tl.Stop(depth=1)).with_(
        settings
    )
    model = Scripted(reply)
    got = run(search, IN_PARTS, model)
    assert len(model.calls) == search.max_calls(IN_PARTS) == 1 + 3 * search.evaluate.samples
    assert all(call.purpose == "part" and call.node == "0.0" for call in model.calls[1:])
    return got


def test_each_part_of_a_state_is_judged_by_itself():
    node = in_parts({"all": "score: 0.9", "2": "score: 0.4", "4": "score: 0.6"}).tree["0.0"]
    assert (node.score, node.samples, node.by) == (0.4, (0.9, 0.4, 0.6), "parts")
    often = in_parts({"all": "score: 0.9", "2": "score: 0.4", "4": "no idea"}, **{"evaluate.samples": 2})
    assert often.tree["0.0"].samples == (0.9, 0.4, None)


def test_a_domain_with_more_parts_than_it_says_is_told_of():
    class More(InParts):
        kind = "tests/more_parts"

        def max_parts(self, task):
            return 0

    task = TASK.model_copy(update={"domain": More()})
    with pytest.raises(ValueError, match=r"More has \d parts at thought 0\.0, its max_parts allows 0"):
        run(tl.TreeOfThoughts(evaluate="parts"), task)


def test_a_part_that_cannot_be_read_is_unread_and_no_number():
    some = in_parts({"all": "no idea", "2": "gone", "4": "score: 0.6"})
    assert (some.tree["0.0"].score, some.tree["0.0"].samples) == (0.6, (None, None, 0.6))
    assert notes(some, "call.failed")[0]["kind"] == "part"
    nothing = in_parts({"all": "no idea", "2": "gone", "4": "hm"}).tree["0.0"]
    assert (nothing.unreadable, nothing.score, nothing.samples) == (True, None, (None, None, None))
    failed = in_parts(dict.fromkeys(("all", "2", "4"), "gone"))
    assert (failed.tree["0.0"].state, failed.stop_reason) == ("failed", "error")


def test_equal_parts_are_asked_once_and_a_state_without_parts_is_unread():
    class Same(InParts):
        kind = "tests/same_parts"

        def part_prompts(self, task, path):
            return ["one", "one"] if path[-1] == "a" else []

    model = Scripted(lambda call: "ab"[call.sample_index] if call.purpose == "sample" else "score: 0.3")
    search = tl.TreeOfThoughts(propose=tl.Sample(count=2), evaluate="parts", stop=tl.Stop(depth=1))
    got = run(search, TASK.model_copy(update={"domain": Same()}), model)
    assert [call.purpose for call in model.calls] == ["sample", "sample", "part"]
    assert (got.tree["0.0"].samples, got.tree["0.1"].unreadable) == ((0.3,), True)


def test_parts_need_a_domain_that_has_them():
    search, model = tl.TreeOfThoughts(evaluate="parts"), Scripted()
    for ask in (search.max_calls, lambda task: run(search, task, model)):
        with pytest.raises(NotImplementedError, match=r"'general' has no .*part_prompts"):
            ask(TASK)
    assert model.calls == []
    with pytest.raises(ValueError, match=r"Parts has no setting .prompt."):
        tl.TreeOfThoughts(evaluate=tl.evaluators.Parts(prompt="{problem}"))


def test_the_deepest_thought_answers_whatever_its_score():
    values = {"a": 0.9, "b": 0.8, "b/a": 0.1, "b/b": 0.6}
    some = {"search": tl.DepthFirst(prune_below=0.7), "propose.count": 2}
    got = words(values, default=0.9, answer="deepest", **some, **{"stop.solved": None})
    assert (got.best.id, got.score) == ("0.0.0", 0.9)
    dead = words(values | {"a": 0.2}, answer="deepest", **some, **{"stop.solved": None})
    assert (dead.best.id, dead.answer, dead.score) == ("0.1.0", "a", 0.1)
    assert dead.tree["0.1.0"].state == "answer"


def test_a_repeated_proposal_is_said_and_not_scored_again():
    model = Scripted(lambda call: "1. same\n2. same\n3. other" if call.purpose == "propose" else "score: 0.5")
    got = run(tl.TreeOfThoughts(propose="propose", stop=tl.Stop(depth=1)), model=model)
    assert got.tree["0.1"].state == "duplicate"
    assert got.tree["0.1"].reason == "repeats 0.0"
    assert len(model.calls) == 3


def test_merged_thoughts_are_linked_and_expanded_once():
    steps = ["10 - 4 = 6 (left: 5 6 6)", "6 - 5 = 1 (left: 1 4 10)", "4 + 6 = 10 (left: 5 10 10)"]

    def reply(call):
        if call.purpose != "propose":
            return "likely"
        return (
            "\n".join(steps) if call.node == "0" else "5 + 10 = 15 (left: 10 15)\n10 + 5 = 15 (left: 10 15)"
        )

    search = tl.TreeOfThoughts(
        propose="propose", search=tl.BeamSearch(width=None), stop=tl.Stop(depth=2, solved=None), merge=True
    )
    got = run(search, tl.game24("4 5 6 10"), Scripted(reply))
    merged = [node for node in got.tree if node.state == "merged"]
    assert [(node.id, node.merged) for node in merged] == [("0.2.1", "0.2.0")]
    links = [(a, b) for a, b, kind in got.graph().edges(data="kind") if kind == "merged"]
    assert links == [("0.2.1", "0.2.0")] or links == [("0.2.0", "0.2.1")]


def test_an_evaluator_need_not_be_a_model():
    def longest(task, path):
        return min(len(path[-1]) / 10, 1.0)

    model = Scripted(lambda call: "x" * (call.sample_index + 1))
    search = tl.TreeOfThoughts(evaluate=longest, stop=tl.Stop(depth=1))
    got = run(search, model=model)
    assert len(model.calls) == search.max_calls(TASK) == 3
    assert [got.tree[f"0.{k}"].score for k in range(3)] == [0.1, 0.2, 0.3]
    assert got.tree["0.0"].by.endswith("longest")
    judged = run(
        tl.TreeOfThoughts(evaluate=lambda task, path: len(path[-1]) == 2, stop=tl.Stop(depth=1)), model=model
    )
    assert [judged.tree[f"0.{k}"].score for k in range(3)] == [0.0, 1.0, 0.0]
    with pytest.raises(ValueError, match=r"thought 0\.0, must return a score from 0 to 1: got 7\.0"):
        run(tl.TreeOfThoughts(evaluate=lambda task, path: 7.0), model=model)


@pytest.mark.slow
def test_an_oracle_gives_the_ceiling():
    task = tl.game24("4 5 6 10")
    search = tl.TreeOfThoughts(
        propose=tl.Propose(count=30), evaluate=tl.domains.oracle(task), search=tl.BeamSearch(width=None)
    )
    got = run(search, task, tl.sim.SimGame24(skill=0.3))
    assert got.reachable == 1.0
    assert got.correct
    assert got.stop_reason == "solved"


def test_a_persons_own_search_and_its_mistakes():
    def two_oldest(tree, frontier):
        return frontier[:2]

    got = words({}, search=two_oldest, **{"stop.solved": None})
    assert [level["frontier_size"] for level in notes(got, "tot.level_started")] == [1, 2, 1]
    with pytest.raises(ValueError, match=r"of its frontier: got '0\.9'"):
        words({}, search=tl.searches.FunctionSearch(function=lambda tree, frontier: ["0.9"], width=2))


def test_best_first_in_batches_and_mcts_in_batches_expand_all():
    for search in (tl.BestFirst(batch=2), tl.MCTS(batch=2), "mcts"):
        got = words({}, search=search, **{"stop.solved": None, "stop.depth": 3})
        assert len(got.tree) == 1 + 3 + 9 + 27
        assert got.stop_reason == "limit:depth"


def test_mcts_goes_where_the_value_is():
    values = {"a": 0.9, "b": 0.1, "c": 0.1, "a/a": 0.9, "a/b": 0.9, "a/c": 0.9}
    uct = tl.MCTS(exploration=0.1, iterations=2)
    got = words(values, default=0.0, search=uct, **{"stop.depth": 3, "stop.solved": None})
    assert [level_parent(got, id) for id in ordered_parents(got)] == ["", "a", "a/a"]


def test_a_budget_of_the_search_alone():
    search = tl.TreeOfThoughts(budget=tl.Budget(calls=8))
    got = run(tl.BestOf(strategy=search, attempts=2, evaluate="score"))
    assert got.usage.calls == 16
    assert run(search).stop_reason == "budget:calls"


def test_best_of_n_over_a_search_samples_anew():
    got = run(tl.BestOf(strategy=tl.TreeOfThoughts(), attempts=3, evaluate="score"))
    attempts = [[node.text for node in got.tree if node.id.startswith(f"0.{k}.")] for k in range(3)]
    assert attempts[0] != attempts[1] != attempts[2]
    assert got.score == max(got.tree[node.id].score for node in got.candidates)


def test_best_of_n_judges_an_answer_that_its_search_valued_in_the_same_words():
    model = Scripted(lambda call: "Answer: 26" if call.purpose == "sample" else "score: 0.5")
    got = run(tl.BestOf(strategy=tl.TreeOfThoughts(stop=tl.Stop(depth=1)), attempts=2), model=model)
    assert got.correct
    assert sum(call.purpose == "judge" for call in model.calls) == 2


def test_a_width_is_taken_by_what_can_be_expanded():
    got = words({}, search=tl.BestFirst(width=2), **{"stop.depth": 2, "stop.solved": None})
    assert {"a/a", "b/a"} <= set(paths(got))  # the leaves below a do not push b out


def test_mcts_learns_from_expansions_that_brought_nothing():
    values = {"a": 0.6, "b": 0.5, "a/a": 0.0, "a/b": 0.0, "a/c": 0.0}
    uct = tl.MCTS(exploration=0.1)
    some = {"search": uct, "stop.depth": 3, "stop.solved": None, "stop.nodes": 11}
    for floor in (0.0, 0.1):
        assert ordered_parents(words(values, **some, **{"stop.min_score": floor}))[:3] == ["0", "0.0", "0.1"]


def test_a_model_that_dies_in_mid_search_is_an_error():
    def reply(call):
        if call.node.count(".") > 0 and call.purpose == "sample":
            raise ConnectionError("gone")
        return answer_to(call)

    got = run(tl.TreeOfThoughts(), model=Scripted(reply))
    assert got.stop_reason == "error"
    assert got.answer


def test_nested_searches_count_depth_from_their_own_root():
    frame = run(
        tl.BestOf(strategy=tl.TreeOfThoughts(stop=tl.Stop(depth=2)), attempts=2, evaluate="score")
    ).events_df()
    for name in ("tot.proposed", "tot.evaluated"):
        assert set(frame[frame["name"] == name]["data"].str["depth"]) == {1, 2}


def test_self_consistency_takes_the_majority():
    said = ["Answer: 26", "Answer: 24", "Answer: 26 "]
    got = run(tl.SelfConsistency(attempts=3), model=Scripted(lambda call: said[call.attempt[0]]))
    assert (got.answer, got.correct, got.score) == ("26", True, pytest.approx(2 / 3))


# Presets against their sources.


def test_presets_are_their_sources_defaults():
    beam = tl.presets.beam_search()
    assert (beam.propose, beam.evaluate, beam.search) == (
        tl.Sample(count=3),
        tl.Value(),
        tl.BeamSearch(width=2),
    )
    assert (beam.stop, beam.answer, beam.parallel) == (tl.Stop(solved=1.0, depth=3), tl.answers.Best(), True)
    assert (beam.stop.min_score, beam.stop.patience) == (0.0, None)
    assert beam.max_calls(TASK) == 30
    machine = tl.presets.state_machine()
    assert machine.search == tl.BestFirst(width=None)
    assert machine.propose == tl.Propose(count=3, max_parse_retries=1)
    assert (machine.evaluate, machine.answer) == (
        tl.evaluators.Joint(max_parse_retries=1),
        tl.answers.BestLeaf(top_k=3),
    )
    assert machine.stop == tl.Stop(
        solved=1.0, depth=3, nodes=100, patience=1, min_improvement=0.02, min_depth=2
    )
    assert tl.WithTools().max_round_trips == 3
    paper = tl.presets.game24()
    assert (paper.search.width, paper.stop.depth) == (5, 4)
    assert (paper.evaluate.samples, paper.evaluate.combine) == (3, "sum")


def test_the_papers_call_counts():
    # Yao et al. 2023: one propose call for the root and five a level after it, three draws a thought.
    model = Scripted(
        lambda call: "\n".join(f"step {k}" for k in range(8)) if call.purpose == "propose" else "score: 0.5"
    )
    run(tl.presets.game24(), model=model)
    assert sum(call.purpose == "propose" for call in model.calls) == 1 + 5 + 5 + 5
    assert sum(call.purpose == "value" for call in model.calls) == 3 * 8 * 16


# Properties over generated searches.


@st.composite
def searches(draw):
    """Any registered values of the axes, with numbers of their own."""
    evaluate = numbered(draw, EVALUATORS)
    if "combine" in type(evaluate).model_fields:
        evaluate = evaluate.with_(combine=draw(st.sampled_from(["mean", "sum", "vote"])))
    return tl.TreeOfThoughts(
        propose=numbered(draw, PROPOSERS),
        evaluate=evaluate,
        search=numbered(draw, SEARCHES),
        answer=draw(st.sampled_from(ANSWERS))(),
        stop=tl.Stop(
            depth=draw(st.integers(1, 3)),
            nodes=draw(st.none() | st.integers(1, 30)),
            solved=draw(st.sampled_from([None, 0.95, 1.0])),
            min_score=draw(st.sampled_from([0.0, 0.3])),
            patience=draw(st.none() | st.integers(1, 2)),
        ),
        merge=draw(st.booleans()),
        parallel=draw(st.booleans()),
    )


def numbered(draw, kinds):
    """One of `kinds`, with small numbers in place of those that it has by default, and any width."""
    kind = draw(st.sampled_from(kinds))
    given = {
        name: draw(st.integers(0, 2) if name == "max_parse_retries" else st.integers(1, 4))
        for name, value in kind()
        if (type(value) is int and value < 100) or name == "width"
    }
    if "width" in given and draw(st.booleans()):
        with contextlib.suppress(ValueError):  # some need a width
            return kind(**{**given, "width": None})
    return kind(**given)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(search=searches(), seed=st.integers(0, 10**6), cap=st.none() | st.integers(0, 40))
@example(
    search=tl.TreeOfThoughts(propose=tl.Sample(count=1), evaluate="vote", search=tl.MCTS(width=2)),
    seed=0,
    cap=1,
)
def test_every_search_keeps_its_limits_and_its_record(search, seed, cap):
    def reply(call):
        roll = dice(call).random() * (1 + seed % 7) % 1
        return f"#{seed % 3}" if roll < 0.05 else answer_to(call)

    trees = []

    class Kept(tl.Tree):
        def __init__(self, steps=()):
            super().__init__(steps)
            trees.append(self)

    search_states.Tree, original = Kept, search_states.Tree
    try:
        model = Scripted(reply, latency=shuffled(seed, 0.0005))
        got = run(search, IN_PARTS, model, budget=None if cap is None else tl.Budget(calls=cap))
    finally:
        search_states.Tree = original
    assert tl.Tree.of(got.events) == trees[0]
    assert len(model.calls) <= min(search.max_calls(IN_PARTS), 10**9 if cap is None else cap)
    assert max(node.depth for node in got.tree) <= search.stop.depth
    assert len(got.tree) <= (search.stop.nodes or 10**9)
    if isinstance(search.search, tl.BeamSearch | tl.DepthFirst | tl.BestFirst):  # each expands a thought once
        assert all(len(node.children) <= search.propose.max_children() for node in got.tree)
    ids = [event.id for event in got.events if isinstance(event, Thought)]
    assert len(ids) == len(set(ids))
    if isinstance(search.search, tl.BeamSearch) and search.search.width is not None:
        for level in notes(got, "tot.pruned"):
            assert len(level["kept"]) <= search.search.width
    for event in got.events:
        if isinstance(event, Scored) and all(draw is None for draw in event.samples) and event.samples:
            assert event.score is None
    again = run(search, IN_PARTS, Scripted(reply), budget=None if cap is None else tl.Budget(calls=cap))
    assert again.events == got.events
    assert json.loads(json.dumps(search.settings())) == search.settings()


def test_decisions_name_known_thoughts():
    got = run(tl.TreeOfThoughts())
    assert all(event.id in got.tree for event in got.events if isinstance(event, Decided | Scored))
