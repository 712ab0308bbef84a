"""The axes of a tree search: what a search may yield and what it receives, whatever its algorithm."""

import asyncio
import json
import math
import threading

import pytest
from support import TASK, Scripted, run, wait
from support.letters import TASK_OF_LETTERS, letters

import tot_lab as tl
from tot_lab.core.records import Note, Thought


def searched(search, model=None, **settings):
    """A run by `search`, a generator of the state, and the model that answered it."""
    model = model or Scripted(letters)
    strategy = tl.TreeOfThoughts(search=search, **{"stop": tl.Stop(solved=None, depth=3), **settings})
    return run(strategy, TASK_OF_LETTERS, model), model


def texts(made, parent="0"):
    return {id: made.tree[id].text for id in made.tree[parent].children}


# A search is a generator.


def test_a_generator_is_a_whole_search_and_receives_the_children():
    received = []

    def two_levels(state):
        assert state.task.question == "Which letters?"
        first = yield tl.Pick([state.root])
        received.append(first)
        yield from state.prune(first[1:], "not the first")
        received.append((yield tl.Pick(first[:1], count=2)))

    made, _ = searched(two_levels)
    assert received == [["0.0", "0.1", "0.2"], ["0.0.0", "0.0.1"]]
    assert [made.tree[f"0.{k}"].state for k in range(3)] == ["answer", "pruned", "pruned"]
    assert made.tree["0.2"].reason == "not the first"
    assert made.tree["0.0.1"].state == "kept"
    assert (made.stop_reason, len(made.tree)) == ("exhausted", 6)
    assert wait(made.replay()).identical


def test_its_state_is_its_local_variables_so_that_runs_share_nothing():
    def once(state):
        yield tl.Pick([state.root])

    strategy = tl.TreeOfThoughts(search=once)
    assert run(strategy).events == run(strategy).events
    assert strategy.max_calls(TASK) is None  # it may expand a thought again


def test_it_receives_only_what_may_be_expanded_or_kept():
    received = []

    def search(state):
        received.extend((yield tl.Pick([state.root], 4)))

    def values(call):
        if call.purpose == "value":
            return "hm" if call.prompt.endswith("a") else f"score: 0.{'abcd'.index(call.prompt[-1]) + 1}"
        return letters(call)

    searched(search, Scripted(values), stop=tl.Stop(solved=None, min_score=0.3))
    assert received == ["0.2", "0.3"]


@pytest.mark.parametrize(
    ("pick", "error"),
    [
        (lambda root: tl.Pick(["0.9"]), r"ids of thoughts in its tree: got '0\.9'"),
        (lambda root: tl.Pick([root, root]), "must not pick a thought twice"),
        (lambda root: tl.Pick([root], [1, 2]), "one for each of the 1 parents"),
    ],
)
def test_a_pick_that_cannot_be_carried_out_is_an_error_that_names_it(pick, error):
    def search(state):
        yield pick(state.root)

    with pytest.raises(ValueError, match=error):
        searched(search)


def test_a_pick_of_one_id_without_a_list_is_an_error():
    def search(state):
        yield tl.Pick(state.root)

    with pytest.raises(TypeError, match="must pick a list of ids: got '0'"):
        searched(search)


def test_random_numbers_without_yield_name_it():
    def search(state):
        yield tl.Pick([state.random_numbers().choice([state.root])])

    with pytest.raises(AttributeError, match=r"no 'choice'\. Write `random = yield state\.random_numb"):
        searched(search)


@pytest.mark.parametrize("step", [["0"], ("0",), "0"])
def test_a_search_that_yields_ids_is_told_of_pick(step):
    def mine(state):
        yield step

    with pytest.raises(TypeError, match=r"search '.*mine' must yield tl\.Pick\(ids\): got ") as error:
        searched(mine)
    assert repr(step) in str(error.value)


def one_too_many(state, extra):
    yield tl.Pick([state.root])


@pytest.mark.parametrize(
    ("setting", "function", "right"),
    [
        ("evaluate", lambda path: 0.5, r"\(task, path\) -> score"),
        ("evaluate", lambda: 0.5, r"\(task, path\) -> score"),
        ("evaluate", lambda paths: [0.5], r"\(task, paths\) -> scores"),
        ("evaluate", lambda task, path, more: 0.5, r"\(task, path\) -> score"),
        ("evaluate", lambda *, task, path: 0.5, r"\(task, path\) -> score"),
        ("search", one_too_many, r"a generator \(state\) that yields tl\.Pick\(ids\)"),
    ],
)
def test_a_function_with_other_arguments_is_refused_with_the_right_ones(setting, function, right):
    with pytest.raises(
        ValueError, match=rf"has the wrong arguments: got \(.*\)\.\nIt must be .*{right}"
    ) as error:
        tl.TreeOfThoughts(**{setting: function})
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("setting", "function"),
    [
        ("evaluate", lambda path, task: 0.5),
        ("evaluate", lambda path, other: 0.5),
        ("search", lambda frontier, tree: []),
    ],
)
def test_arguments_in_another_order_are_refused(setting, function):
    with pytest.raises(ValueError, match=r"has its arguments in the wrong order: got \(.*\)\.\nIt must be "):
        tl.TreeOfThoughts(**{setting: function})


def test_arguments_may_have_other_names():
    assert tl.TreeOfThoughts(evaluate=lambda t, p: 0.5, search=lambda thoughts, ids: [])


def test_a_search_without_a_yield_is_told_so():
    with pytest.raises(
        ValueError, match=r"contains no yield\.\nIt must be a generator \(state\) that yields tl"
    ):
        tl.TreeOfThoughts(search=lambda state: [state.root])


def test_an_evaluator_class_that_returns_a_number_is_told_what_it_must_be():
    class Half(tl.evaluators.Value):
        kind = ""

        def score_thought(self, sampler, path, id):
            return 0.5

    with pytest.raises(
        TypeError, match=r"Half\.score_thought must be a generator that returns events: got 0\.5\."
    ):
        searched("beam", evaluate=Half())


@pytest.mark.parametrize("function", [lambda *given: 0.5, lambda task, path, weight=2: 0.5])
def test_a_function_that_accepts_task_and_path_is_accepted(function):
    assert tl.TreeOfThoughts(evaluate=function).evaluate.function.wrapped is function


def test_a_thought_at_the_depth_limit_cannot_be_picked():
    def search(state):
        yield tl.Pick((yield tl.Pick([state.root])))

    with pytest.raises(ValueError, match=r"'0\.0', which is complete or at the depth limit\. .* state\.open"):
        searched(search, stop=tl.Stop(depth=1))


@pytest.mark.parametrize("kind", ["mcts", "lats", "bg_mcts", "ab_mcts_a"])
def test_iterations_that_end_a_search_are_named_only_if_something_is_left(kind):
    def ended(iterations, **stop):
        search = {"kind": kind, "iterations": iterations}
        made = searched(search, stop=tl.Stop(depth=2, solved=None, **stop))[0]
        limited = made.stop_reason in ("limit:iterations", "limit:nodes")
        assert bool(tl.diagnose(made).of("cut_short")) == limited
        return made.stop_reason

    assert ended(2) == "limit:iterations"
    assert ended(100, nodes=4) == "limit:nodes"
    if kind in ("mcts", "lats"):  # the others sample a thought again and again
        assert ended(100) == "limit:depth"


@pytest.mark.parametrize("code", ["answered", "budget:calls", "0.77"])
def test_a_search_returns_no_other_code(code):
    def search(state):
        yield tl.Pick([state.root])
        return code

    with pytest.raises(ValueError, match=f"the id of a thought, .* or None: got '{code}'"):
        searched(search)


def test_an_empty_pick_ends_the_search():
    def search(state):
        yield tl.Pick([state.root])
        yield tl.Pick([])
        raise AssertionError("it was gone on from")

    assert searched(search)[0].stop_reason == "exhausted"


def test_it_may_make_calls_and_record_events_of_its_own():
    def reflecting(state):
        children = yield tl.Pick([state.root], 2)
        reply = yield state.call(state.root, "critique", "Which is better?")
        yield Note("reflected", state.root, {"said": reply.text})
        extra = yield Thought("0.7", "0", reply.text)
        assert state.tree[extra.id].text == reply.text
        yield from state.prune(children[1:], reply.text)

    def reply(call):
        return "the first" if call.purpose == "critique" else letters(call)

    made, model = searched(reflecting, Scripted(reply), temperature=0.25)
    (critique,) = [call for call in model.calls if call.purpose == "critique"]
    assert critique.temperature == 0.25
    assert made.tree["0.1"].reason == "the first"
    assert made.tree["0.7"].text == "the first"
    assert wait(made.replay()).identical


def test_what_it_yields_last_is_not_carried_out_once_the_task_is_solved():
    def search(state):
        yield tl.Pick([state.root])
        yield tl.Pick(["0.0"])

    made, _ = searched(
        search,
        Scripted(lambda call: "score: 1" if call.purpose == "value" else letters(call)),
        stop=tl.Stop(),
    )
    assert (made.stop_reason, len(made.tree)) == ("solved", 4)


# A thought may be expanded again.


def twice(state):
    yield tl.Pick([state.root], 2)
    yield tl.Pick([state.root], 3)


def test_samples_and_ids_continue_when_a_thought_is_expanded_again():
    made, model = searched(twice)
    assert texts(made) == {f"0.{k}": "abcde"[k] for k in range(5)}
    assert sorted(call.sample_index for call in model.calls if call.purpose == "sample") == [0, 1, 2, 3, 4]
    assert wait(made.replay()).identical


def test_retries_count_as_samples():
    def reply(call):
        return "" if call.purpose == "sample" and call.sample_index in (1, 3) else letters(call)

    made, _ = searched(twice, Scripted(reply), propose=tl.Sample(max_parse_retries=1))
    assert texts(made) == {"0.0": "a", "0.1": "c", "0.3": "e", "0.4": "f", "0.2": "g"}
    numbers = [event.id for event in made.events if isinstance(event, Thought)]
    assert len(numbers) == len(set(numbers))


def test_proposals_continue_too_and_what_an_earlier_child_says_is_a_duplicate():
    made, model = searched(twice, propose="propose")
    assert texts(made) == {"0.0": "a", "0.1": "b", "0.2": "b", "0.3": "c", "0.4": "d"}
    assert (made.tree["0.2"].state, made.tree["0.2"].reason) == ("duplicate", "repeats 0.1")
    assert [call.sample_index for call in model.calls if call.purpose == "propose"] == [0, 1]
    assert [call.prompt[0] for call in model.calls if call.purpose == "propose"] == ["2", "3"]


@pytest.mark.parametrize("evaluate", ["joint", "vote"])
def test_what_compares_siblings_takes_new_samples_for_a_thought_expanded_again(evaluate):
    same = Scripted(lambda call: "x" if call.purpose == "sample" else letters(call))

    def search(state):
        yield tl.Pick([state.root], 2)
        yield tl.Pick([state.root], 2)

    made, model = searched(search, same, evaluate=evaluate)
    judging = [call for call in model.calls if call.purpose == evaluate]
    assert [(call.node, call.sample_index) for call in judging] == [("0", 0), ("0", 1)]
    assert len({call.prompt for call in judging}) == 1
    assert all(made.tree[f"0.{k}"].score is not None for k in range(4))


def test_each_parent_may_get_a_number_of_its_own_and_a_pick_its_own_proposer():
    def search(state):
        first = yield tl.Pick([state.root], 2)
        yield tl.Pick(first, [1, 3])
        yield tl.Pick(["0.0"], proposer=tl.Propose(samples=2))

    made, model = searched(search)
    assert [len(made.tree[id].children) for id in ("0.0", "0.1")] == [1 + 3, 3]
    assert texts(made, "0.0") == {"0.0.0": "a", "0.0.1": "a", "0.0.2": "b", "0.0.3": "c"} | {}
    assert sum(call.purpose == "propose" for call in model.calls) == 2


def test_the_limit_on_thoughts_holds_for_every_pick():
    def greedy(state):
        while True:
            yield tl.Pick([state.root], 4)

    made, _ = searched(greedy, stop=tl.Stop(solved=None, nodes=7))
    assert (len(made.tree), made.stop_reason) == (7, "limit:nodes")


# Several parents.


def test_several_parents_give_one_child_and_the_links_are_recorded():
    def aggregate(state):
        first = yield tl.Pick([state.root], 3)
        merged = yield tl.Pick([("0.0", "0.2"), "0.1"], 1)
        assert [state.tree[id].source for id in merged] == [("0.2",), ()]
        assert first == ["0.0", "0.1", "0.2"]

    made, model = searched(aggregate)
    assert made.tree["0.0.0"].source == ("0.2",)
    assert ("0.2", "0.0.0", "source") in {
        (a, b, kind) for a, b, kind in made.graph().edges(data="kind") if kind == "source"
    }
    (asked,) = [call for call in model.calls if call.purpose == "sample" and call.node == "0.0"]
    assert asked.prompt.endswith("next after a")
    assert "1. c" in asked.prompt  # the other line of thought
    (alone,) = [call for call in model.calls if call.purpose == "sample" and call.node == "0.1"]
    assert "Another line" not in alone.prompt
    assert wait(made.replay()).identical


# What is left of the budget.


def spending(seen):
    """A search that expands as long as three calls of the budget are left."""

    def search(state):
        while True:
            left = yield tl.searches.BudgetLeft()
            seen.append(left)
            if left.calls is not None and left.calls < 3:
                return
            if not (yield tl.Pick([state.root], 1)):
                return

    return search


def test_a_search_knows_what_is_left_of_its_budget():
    seen = []
    made, model = searched(spending(seen), budget=tl.Budget(calls=9, usd=1.0))
    assert [left.calls for left in seen] == [9, 7, 5, 3, 1]
    assert {left.seconds for left in seen} == {left.tokens for left in seen} == {None}
    assert {left.usd for left in seen} == {1.0}
    assert len(model.calls) == made.usage.calls == len(made.calls_df()) == 8
    assert made.stop_reason == "exhausted"


def test_no_budget_is_no_limit():
    seen = []
    searched(spending(seen), stop=tl.Stop(solved=None, nodes=3))
    assert set(seen) == {tl.Budget()}


def test_the_innermost_and_the_outermost_cap_both_count():
    seen = []
    strategy = tl.TreeOfThoughts(search=spending(seen), budget=tl.Budget(calls=50), stop=tl.Stop(solved=None))
    run(strategy, TASK_OF_LETTERS, Scripted(letters), budget=tl.Budget(calls=6, tokens=10**6))
    assert [left.calls for left in seen] == [6, 4, 2]
    assert seen[0].tokens == 10**6 > seen[1].tokens > seen[2].tokens


def test_what_was_left_is_recorded_so_that_a_replay_goes_the_same_way(tmp_path):
    seen = []
    lab = tl.Lab(Scripted(letters), runs=tmp_path)
    strategy = tl.TreeOfThoughts(search=spending(seen), stop=tl.Stop(solved=None))
    made = wait(lab.run(strategy, TASK_OF_LETTERS, budget=tl.Budget(calls=7, seconds=500.0)))
    first, seen[:] = list(seen), []
    assert wait(made.replay()).identical
    assert seen == first
    assert all(0 < left.seconds <= 500 for left in first)
    again = wait(
        tl.Lab(Scripted(letters), runs=None).run(strategy, TASK_OF_LETTERS, budget=tl.Budget(calls=7))
    )
    assert again.tree == made.tree


# Evaluators that are functions.


async def by_letter(task, path):
    return (ord(path[-1]) - ord("a")) / 10


def test_an_async_evaluator_is_a_recorded_call_and_no_model_call():
    made, model = searched(lambda tree, frontier: [], evaluate=by_letter)
    assert [made.tree[f"0.{k}"].score for k in range(3)] == [0.0, 0.1, 0.2]
    assert made.tree["0.1"].by == "by_letter"
    assert {call.purpose for call in model.calls} == {"sample"}
    evaluated = [event for event in made.events if isinstance(event, tl.Call) and event.purpose == "evaluate"]
    assert [call.node for call in evaluated] == ["0.0", "0.1", "0.2"]
    assert json.loads(evaluated[2].prompt) == [["c"]]
    assert made.usage.calls == len(made.calls_df()) == 3
    assert list(made.tools_df()["tool"]) == ["by_letter"] * 3
    assert wait(made.replay()).identical


class Batch:
    """A batch evaluator that remembers what it was asked."""

    def __init__(self, result=None):
        self.asked = []
        self.result = result

    async def __call__(self, task, paths):
        self.asked.append([list(path) for path in paths])
        if self.result is not None:
            return self.result(paths)
        return [len(path) / 10 for path in paths]


def batch_of(batch):
    async def judged(task, paths):
        return await batch(task, paths)

    return judged


def test_a_batch_is_one_picks_children_in_the_order_of_their_ids():
    def search(state):
        first = yield tl.Pick([state.root], 2)
        yield tl.Pick(first[::-1], 2)

    batch = Batch()
    made, model = searched(search, evaluate=batch_of(batch))
    assert batch.asked == [[["a"], ["b"]], [["a", "a"], ["a", "b"], ["b", "a"], ["b", "b"]]]
    assert {node.score for node in made.tree if node.depth == 2} == {0.2}
    assert {call.purpose for call in model.calls} == {"sample"}
    assert sum(isinstance(e, tl.Call) and e.purpose == "evaluate" for e in made.events) == 2
    before = len(batch.asked)
    assert wait(made.replay()).identical
    assert len(batch.asked) == before  # the record answers


def test_a_plain_function_of_paths_is_a_batch_too():
    def halves(task, paths):
        return [0.5] * len(paths)

    strategy = tl.TreeOfThoughts(evaluate=halves)
    assert isinstance(strategy.evaluate, tl.evaluators.BatchEvaluator)
    assert strategy.max_calls(TASK) == 15
    made = run(strategy)
    assert made.usage.calls == 15
    assert {node.score for node in list(made.tree)[1:]} == {0.5}
    assert tl.part_of(json.loads(json.dumps(strategy.settings()))).settings() == strategy.settings()


def test_a_model_in_this_process_blocks_no_run_and_is_called_once_at_a_time():
    """As a PRM that is loaded here: a plain function, called for a batch of paths by two runs at once."""
    started, released = threading.Event(), threading.Event()
    under_way, most, threads, batches = [0], [0], set(), []

    def prm(task, paths):
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        threads.add(threading.current_thread())
        batches.append(len(paths))
        started.set()
        assert released.wait(30), "the event loop stands still"
        under_way[0] -= 1
        return [len("".join(path)) / 10 for path in paths]

    async def go():
        strategy = tl.TreeOfThoughts(propose=tl.Sample(count=3), evaluate=prm, stop=tl.Stop(depth=2))
        lab = tl.Lab(Scripted(letters), runs=None)
        runs = [asyncio.create_task(lab.run(strategy, TASK_OF_LETTERS)) for _ in range(2)]
        while not started.is_set():
            await asyncio.sleep(0.001)  # so the loop goes on until the function runs, and while it does
        released.set()
        return await asyncio.gather(*runs)

    one, other = wait(go())
    assert one.events == other.events
    assert {node.score for node in one.tree if node.depth} == {0.1, 0.2}
    assert most == [1]
    assert len(threads) == 1
    assert threading.main_thread() not in threads
    assert batches == [3, 3, 6, 6]
    assert wait(one.replay()).identical
    assert len(batches) == 4


def test_a_plain_callable_may_return_what_is_awaited():
    def judged(task, paths):
        return Batch()(task, paths)

    made, _ = searched(lambda tree, frontier: [], evaluate=judged)
    assert {made.tree[id].score for id in made.tree.root.children} == {0.1}


def test_a_batch_that_fails_costs_its_thoughts_and_not_the_run():
    def away(paths):
        raise ConnectionError("no route to the judge")

    made, _ = searched(lambda tree, frontier: frontier, evaluate=batch_of(Batch(away)))
    assert made.stop_reason == "error"
    assert {made.tree[f"0.{k}"].state for k in range(3)} == {"failed"}
    assert "no route to the judge" in made.tree["0.0"].reason
    assert made.failure == "ConnectionError: no route to the judge"
    assert "failed    ConnectionError: no route to the judge" in str(made)
    assert "ConnectionError: no route to the judge" in str(tl.diagnose(made))


def test_scores_that_are_no_list_are_an_error_that_names_the_evaluator():
    with pytest.raises(TypeError, match=r"judged' must return a list with one score per path: got 0\.5"):
        searched(lambda tree, frontier: [], evaluate=batch_of(Batch(lambda paths: 0.5)))


@pytest.mark.parametrize(
    ("scores", "error"),
    [
        (lambda paths: [0.5], "must return one score per path: got 1 for 3"),
        (lambda paths: [0.5, 7.0, 0.5], r"thought 0\.1, must return a score from 0 to 1: got 7"),
        (lambda paths: [0.5, float("nan"), 0.5], r"thought 0\.1, must return a number .*: got nan"),
    ],
)
def test_scores_that_cannot_be_are_errors_that_name_the_evaluator(scores, error):
    with pytest.raises(ValueError, match=error):
        searched(lambda tree, frontier: [], evaluate=batch_of(Batch(scores)))


def test_a_score_that_is_none_is_unread():
    made, _ = searched(lambda tree, frontier: [], evaluate=batch_of(Batch(lambda paths: [None, 0, 1])))
    assert [made.tree[f"0.{k}"].score for k in range(3)] == [None, 0.0, 1.0]
    assert made.tree["0.0"].unreadable


@pytest.mark.slow
def test_budget_and_timeout_hold_for_a_function_that_takes_its_time():
    async def slow(task, paths):
        await asyncio.sleep(60)

    capped, _ = searched(lambda tree, frontier: [], evaluate=slow, budget=tl.Budget(seconds=0.2))
    assert capped.stop_reason == "budget:seconds"
    assert capped.answer  # a thought that has no score yet
    lab = tl.Lab(Scripted(letters), runs=None, timeout=0.2)
    late = wait(lab.run(tl.TreeOfThoughts(evaluate=slow), TASK_OF_LETTERS))
    assert late.stop_reason == "error"
    assert late.tree["0.0"].reason.startswith("timeout")


@pytest.mark.slow
def test_a_timeout_holds_for_a_plain_function_that_takes_its_time():
    released = threading.Event()

    def slow(task, paths):
        released.wait(60)
        return [0.5] * len(paths)

    lab = tl.Lab(Scripted(letters), runs=None, timeout=0.2)
    late = wait(lab.run(tl.TreeOfThoughts(evaluate=slow), TASK_OF_LETTERS))
    released.set()
    assert late.stop_reason == "error"
    assert late.tree["0.0"].reason.startswith("timeout")


def test_calls_of_a_budget_are_those_of_a_model():
    made = run(tl.TreeOfThoughts(evaluate=by_letter_of_samples), TASK, budget=tl.Budget(calls=15))
    assert (made.usage.calls, made.stop_reason) == (15, "limit:depth")


async def by_letter_of_samples(task, path):
    return 0.5


# What a choice rests on.


def test_mcts_records_the_terms_of_each_choice_once():
    strategy = tl.TreeOfThoughts(search=tl.MCTS(exploration=0.5), stop=tl.Stop(solved=None, depth=2))
    made = run(strategy)
    picked = [event.data for event in made.events if isinstance(event, Note) and event.name == "tot.picked"]
    expanded = list(dict.fromkeys(node.parent for node in made.tree if node.parent not in (None, "0")))
    explained = [data for data in picked if "why" in data]
    assert [id for data in explained for id in data["parents"]] == expanded
    assert all(list(data["why"]) == data["parents"] for data in explained)
    first = next(iter(explained[0]["why"].values()))
    node = made.tree[expanded[0]]
    assert first["visits"] == 1
    assert first["value"] == pytest.approx(max(node.score, 0.0))
    assert first["exploration"] == pytest.approx(0.5 * (math.log(3) / 1) ** 0.5)
    siblings = [made.tree[id] for id in made.tree.root.children]
    assert node.score == max(sibling.score for sibling in siblings)


def test_a_search_of_ones_own_records_its_reasons():
    def search(state):
        yield tl.Pick([state.root])
        yield tl.Pick(["0.1"], why={"0.1": {"share": 0.7}})

    made, _ = searched(search)
    picked = [e.data for e in made.events if isinstance(e, Note) and e.name == "tot.picked"]
    assert picked == [{"parents": ["0"]}, {"parents": ["0.1"], "why": {"0.1": {"share": 0.7}}}]


# Settings.


def test_tree_of_thoughts_has_nine_fields_of_its_own_at_most():
    own = set(tl.TreeOfThoughts.model_fields) - set(tl.core.strategy.Prompting.model_fields)
    assert own >= {"propose", "evaluate", "search", "answer", "stop"}
    assert len(own) <= 9


def test_short_forms_are_the_values():
    short = tl.TreeOfThoughts(search="best_first", evaluate="vote", propose="propose", stop={"depth": 2})
    assert short == tl.TreeOfThoughts(
        search=tl.BestFirst(), evaluate=tl.Vote(), propose=tl.Propose(), stop=tl.Stop(depth=2)
    )
    with pytest.raises(ValueError, match="unknown kind 'value'"):
        tl.TreeOfThoughts(search="value")


def test_a_setting_is_changed_by_its_path():
    search = tl.TreeOfThoughts(search="mcts")
    assert search.with_({"search.width": 3, "stop.depth": 5}, merge=True) == tl.TreeOfThoughts(
        search=tl.MCTS(width=3), stop=tl.Stop(depth=5), merge=True
    )
    assert search.with_({"search.width": 3, "search": "dfs"}).search == tl.DepthFirst(width=3)
    around = tl.BestOf(strategy=tl.BestOf(strategy=search))
    assert around.with_({"strategy.strategy.search.exploration": 0.5}).strategy.strategy.search == tl.MCTS(
        exploration=0.5
    )
    assert search.search == tl.MCTS()
    capped = search.with_(budget=tl.Budget(calls=3)).with_({"budget.calls": 4})
    assert capped.budget == tl.Budget(calls=4)
    with pytest.raises(ValueError, match=r"search\.width"):
        search.with_({"search.width": 0})
    with pytest.raises(ValueError, match="MCTS has no setting 'widht'; did you mean 'width'"):
        search.with_({"search.widht": 2})
    assert search.with_({"budget.calls": 2}).budget == tl.Budget(calls=2)  # though it was None
    with pytest.raises(ValueError, match=r"no setting 'merge\.calls': merge of TreeOfThoughts is False"):
        search.with_({"merge.calls": 2})


def test_a_grid_takes_paths_and_skips_what_a_kind_lacks():
    made = tl.grid(
        tl.TreeOfThoughts,
        {"search": ["beam_search", "mcts"], "search.exploration": [0.5, 1.0], "evaluate.samples": [1, 3]},
    )
    made_of = [
        (one.search.kind, getattr(one.search, "exploration", None), one.evaluate.samples) for one in made
    ]
    assert made_of == [
        ("beam_search", None, 1),
        ("beam_search", None, 3),
        ("mcts", 0.5, 1),
        ("mcts", 0.5, 3),
        ("mcts", 1.0, 1),
        ("mcts", 1.0, 3),
    ]
    assert made.skipped == {"search.exploration": 2}
    assert tl.grid(tl.TreeOfThoughts, {"search.width": [1, 2]}).skipped == {}
    assert made + [tl.OneAnswer()] == [*made, tl.OneAnswer()]  # noqa: RUF005


def test_each_swept_path_is_a_column():
    grid = tl.grid(tl.TreeOfThoughts, {"search": ["beam_search", "mcts"], "search.exploration": [0.5, 1.0]})
    frame = wait(tl.Lab(Scripted(), runs=None).sweep(grid, TASK)).df()
    assert list(frame["search"]) == ["beam_search", "mcts", "mcts"]
    assert list(frame["search.exploration"].astype("Float64").fillna(-1)) == [-1, 0.5, 1.0]


def test_a_setting_that_no_version_has_is_refused_by_name():
    with pytest.raises(ValueError, match="beam_widht"):
        tl.part_of({"kind": "tree_of_thoughts", "beam_widht": 3})


# What a search shows and asks.


def test_the_context_of_a_pick_is_shown_in_its_prompts_alone():
    def search(state):
        first = yield tl.Pick([state.root], 1, context=["a lesson", "", "another"])
        yield tl.Pick(first, 1)

    _, model = searched(search)
    samples = [call for call in model.calls if call.purpose == "sample"]
    assert [("a lesson\n\nanother" in call.prompt) for call in samples] == [True, False]


def test_calls_of_the_search_itself_are_in_the_bound():
    class Asking(tl.searches.Search):
        kind = "tests/asking"

        def run(self, state):
            yield tl.Pick([state.root])
            for k in range(4):
                yield state.call(state.root, "critique", "Well?", k)

        def max_expansions(self, branch, depth):
            return 1

        def max_own_calls(self, branch, depth):
            return 4

    strategy = tl.TreeOfThoughts(search=Asking())
    assert run(strategy).usage.calls == strategy.max_calls(TASK) == 6 + 4


def test_joint_notes_how_it_read_scores_in_another_form_than_the_one_asked_for():
    def noted(reply):
        def play(call):
            return "1. alpha\n2. beta" if call.purpose == "propose" else reply

        settings = {"propose": tl.Propose(count=2), "evaluate": tl.evaluators.Joint()}
        made = run(
            tl.TreeOfThoughts(stop=tl.Stop(solved=None, depth=1), **settings), TASK_OF_LETTERS, Scripted(play)
        )
        why = [event.data["why"] for event in made.events if getattr(event, "name", "") == "joint.matched"]
        return {made.tree[id].text: made.tree[id].score for id in made.tree["0"].children}, why

    assert noted("[0.3, 0.6]") == ({"alpha": 0.3, "beta": 0.6}, [])
    scores, (why,) = noted('[{"id": 1, "score": 0.6}, {"id": 0, "score": 0.3}]')
    assert scores == {"alpha": 0.3, "beta": 0.6}
    assert "by the numbers" in why
