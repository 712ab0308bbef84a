"""The stepper: what a strategy yields, carried out by hand, without an event loop, a clock or a model."""

import random
from itertools import repeat

import pytest
from support import TASK

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Note, Thought
from tot_lab.core.thinking import Acts, BudgetLeft, RandomNumbers
from tot_lab.core.tree import Tree
from tot_lab.runtime.budget import Scope
from tot_lab.runtime.stepper import LONG, Stepper, default_answer

ROOT = Scope(None, None, 0.0)


class Unlimited:
    """Scopes without limits. `at_once` is the most branches that start together."""

    def __init__(self, at_once=None):
        self.at_once = at_once

    def of_part(self, scope, step):
        return Scope(scope, step.budget, 0.0)

    def of_branches(self, scope, step):
        count = len(step.branches)
        return repeat(scope), min(count, self.at_once or count)


def begun(thinking, at_once=None, **more):
    """A stepper of `thinking`, and the list of its recorded events with their positions."""
    recorded = []
    record = lambda position, event: recorded.append((position, event))  # noqa: E731
    return Stepper(thinking, record, Unlimited(at_once), ROOT, **more), recorded


def call(draw=0, node="0"):
    return Call(node, "answer", (Message("user", "p"),), draw)


def done(text="done"):
    return tl.Answer(text, "answered")


def test_it_is_driven_with_next_and_answer():
    def thinking():
        yield Thought("0", None, "question")
        reply = yield from tl.ask(call())
        yield Note("seen", "0", {"text": reply.text})
        return done(reply.text)

    stepper, recorded = begun(thinking())
    branch, position, asked = next(stepper.turn())
    assert (position, asked) == ((1,), call())
    assert next(stepper.turn(), None) is None  # it waits
    stepper.answer(branch, Reply("fine"))
    assert list(stepper.turn()) == []
    assert stepper.result == done("fine")
    assert recorded == [((0,), Thought("0", None, "question")), ((2,), Note("seen", "0", {"text": "fine"}))]
    assert stepper.end == (3,)


def tree_of_calls(depth, width):
    """A nest of branches, each of which asks and notes what it got."""

    def level(path):
        if len(path) == depth:
            reply = yield from tl.ask(call(int("".join(map(str, path)), width)))
            yield Note("leaf", "0", {"path": list(path), "text": reply.text})
            return [reply.text]
        parts = yield from tl.gather([level((*path, k)) for k in range(width)])
        return [text for part in parts for text in part]

    def thinking():
        yield Thought("0", None, "question")
        return done(" ".join((yield from level(()))))

    return thinking()


@pytest.mark.parametrize("at_once", [None, 1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_positions_and_results_do_not_depend_on_the_order_of_replies(seed, at_once):
    def driven(order):
        stepper, recorded = begun(tree_of_calls(3, 3), at_once)
        waiting = []
        while stepper.result is None:
            waiting += stepper.turn()
            if waiting:
                branch, position, asked = waiting.pop(order(len(waiting)))
                recorded.append((position, asked))
                stepper.answer(branch, Reply(f"{asked.sample_index}"))
        return stepper.result, stepper.end, sorted(recorded, key=lambda pair: pair[0])

    dice = random.Random(seed)
    assert driven(dice.randrange) == driven(lambda count: 0)


def test_a_reply_lets_its_own_branch_continue_and_no_other():
    def branch(k):
        for draw in range(2):
            yield from tl.ask(call(10 * k + draw))

    def thinking():
        yield Thought("0", None, "question")
        yield from tl.gather([branch(0), branch(1)])
        return done()

    stepper, _ = begun(thinking())
    (first, _, _), _ = stepper.turn()
    stepper.answer(first, Reply("a"))
    ((again, position, asked),) = stepper.turn()
    assert again is first
    assert (position, asked.sample_index) == ((1, 0, 1), 1)


def test_without_anybody_who_limits_or_steers_requests_have_their_defaults():
    def thinking():
        yield Thought("0", None, "question")
        numbers = yield RandomNumbers("a task")
        acts = yield Acts("0", 0, Tree(), lambda id: f"{id}.0")
        left = yield BudgetLeft()
        return done(f"{numbers.random()} {acts} {left.calls}")

    stepper, recorded = begun(thinking(), repeat=3)
    ((branch, position, asked),) = stepper.turn()
    assert (position, asked) == ((1,), BudgetLeft())  # only this one has a place in the record
    stepper.resume(branch, tl.Budget(calls=7))
    assert not list(stepper.turn())
    assert stepper.result.text == f"{default_answer(RandomNumbers('a task'), 3).random()} [] 7"
    others = [default_answer(RandomNumbers("a task"), repeat).random() for repeat in range(5)]
    assert len({*others}) == 5
    assert len(recorded) == 1


def test_a_generator_may_answer_a_request_with_steps_of_its_own():
    def answering(request):
        yield Note("asked", request.at, {})
        reply = yield from tl.ask(call(5))
        yield Note("got", request.at, {"text": reply.text})
        return [reply.text]

    def thinking():
        yield Thought("0", None, "question")
        acts = yield Acts("0", 0, Tree(), str)
        yield Note("acts", "0", {"acts": acts})
        return done()

    stepper, recorded = begun(thinking(), respond=lambda it: answering(it) if isinstance(it, Acts) else None)
    ((branch, position, asked),) = stepper.turn()
    assert (position, asked) == ((2,), call(5))
    stepper.answer(branch, Reply("yes"))
    assert not list(stepper.turn())
    assert [(position, event.name) for position, event in recorded[1:]] == [
        ((1,), "asked"),
        ((3,), "got"),
        ((4,), "acts"),
    ]
    assert recorded[-1][1].data == {"acts": ["yes"]}


def test_both_generators_are_closed_if_the_run_ends_while_a_request_is_answered():
    closed = []

    def answering(request):
        try:
            yield from tl.ask(call(5))
        finally:
            closed.append("answering")

    def thinking():
        try:
            yield Thought("0", None, "question")
            yield Acts("0", 0, Tree(), str)
        finally:
            closed.append("thinking")
            raise ZeroDivisionError("on closing")

    stepper, _ = begun(thinking(), respond=answering)
    assert len([*stepper.turn()]) == 1
    errors = [*stepper.close()]
    assert closed == ["answering", "thinking"]
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_a_branch_that_goes_on_and_on_leaves_room_for_the_others():
    def long():
        for number in range(LONG + 1):
            yield Note("on", "0", {"number": number})

    def short():
        yield from tl.ask(call())

    def thinking():
        yield Thought("0", None, "question")
        yield from tl.gather([long(), short()])
        return done()

    stepper, recorded = begun(thinking())
    assert [position for _, position, _ in stepper.turn()] == [(1, 1, 0)]
    assert stepper.paused
    assert len(recorded) == 1 + LONG
    assert list(stepper.turn()) == []
    assert len(recorded) == 2 + LONG


def test_refusals_in_a_row_use_up_its_patience():
    def thinking():
        yield Thought("0", None, "question")
        for draw in range(1000):
            yield from tl.ask(call(draw))
        return done()

    stepper, _ = begun(thinking())
    refused = []

    def refuse_all():
        while True:
            for branch, *_ in stepper.turn():
                stepper.refuse(branch, Reply(error="budget:calls"), "budget:calls")
                refused.append(branch)

    with pytest.raises(RuntimeError, match=r"kept making calls after 100 refusals \(budget:calls\)"):
        refuse_all()
    assert len(refused) == 100


def test_a_whole_strategy_needs_nothing_but_replies():
    search = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2, solved=None))
    stepper, recorded = begun(search.think(TASK.hidden()))
    calls = 0
    while stepper.result is None:
        for branch, _, asked in stepper.turn():
            calls += 1
            reply = f"step {calls}" if asked.purpose == "sample" else "score: 0.5"
            stepper.answer(branch, Reply(reply))
    assert calls == search.max_calls(TASK) == 12
    assert stepper.result.stop_reason == "limit:depth"
    assert len(Tree.of([event for _, event in recorded])) == 7
