"""The stepper: what a strategy yields, carried out by hand, without an event loop, a clock or a model."""

import random
from itertools import repeat

import msgspec
import pytest
from support import TASK

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.protocol import Acts, BudgetLeft, RandomNumbers, map_steps
from tot_lab.core.records import Note, Thought
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
    more.setdefault("respond", lambda request, branch, position: default_answer(request))
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


def test_requests_are_answered_at_once_and_only_some_have_a_place_in_the_record():
    requests = []

    def respond(request, branch, position):
        requests.append((type(request), branch, position))
        return tl.Budget(calls=7) if isinstance(request, BudgetLeft) else default_answer(request, 3)

    def part():
        numbers = yield RandomNumbers("a task")
        changing = yield Acts("0", 0, Tree(), str)
        left = yield BudgetLeft()
        yield Note("answered", "0", {"text": f"{numbers.random()} {changing} {left.calls}"})

    def thinking():
        yield Thought("0", None, "question")
        yield from tl.gather([part()])
        return done()

    stepper, recorded = begun(thinking(), respond=respond)
    assert not list(stepper.turn())
    assert stepper.result == done()
    expected = f"{default_answer(RandomNumbers('a task'), 3).random()} None 7"
    assert recorded[1:] == [((1, 0, 1), Note("answered", "0", {"text": expected}))]
    assert [(kind, position) for kind, _, position in requests] == [
        (RandomNumbers, ()),
        (Acts, ()),
        (BudgetLeft, (1, 0, 0)),
    ]
    assert {branch.prefix for _, branch, _ in requests} == {(1, 0)}


def test_random_numbers_differ_between_repeats():
    others = [default_answer(RandomNumbers("a task"), repeat).random() for repeat in range(5)]
    assert len({*others}) == 5


def driven(thinking):
    """The result of `thinking`, the calls that it made in the order of their positions, and its events."""
    stepper, recorded = begun(thinking)
    made = []
    while stepper.result is None:
        for branch, position, asked in [*stepper.turn()]:
            made.append((position, asked))
            stepper.answer(branch, Reply(f"{asked.purpose} {asked.attempt}"))
    return stepper.result, [asked for _, asked in sorted(made, key=lambda pair: pair[0])], recorded


def test_edited_steps_are_those_of_branches_and_budgets_too():
    heard = []

    def part(draw):
        yield Note("secret", "0")
        reply = yield from tl.ask(call(draw))
        heard.append((yield from tl.emit(Note("seen", "0", {"text": reply.text}))))
        return reply.text

    def thinking():
        yield Thought("0", None, "question")
        alone = yield from tl.with_budget(tl.Budget(calls=9), part(0))
        return done(" ".join([alone, *(yield from tl.gather([part(1), part(2)]))]))

    def edit(step):
        if isinstance(step, Note):
            return None if step.name == "secret" else msgspec.structs.replace(step, name="edited")
        return msgspec.structs.replace(step, purpose="judge")

    result, calls, recorded = driven(map_steps(edit, thinking(), (Call, Note)))
    assert result == done("judge () judge () judge ()")
    assert [(asked.purpose, asked.sample_index) for asked in calls] == [("judge", k) for k in range(3)]
    edited = Note("edited", "0", {"text": "judge ()"})
    assert [event for _, event in recorded] == [Thought("0", None, "question"), edited, edited, edited]
    assert heard == [edited] * 3, "a strategy continues with the step that was recorded"


def test_a_resampled_attempt_inside_another_has_both_numbers_and_draws_numbers_of_its_own():
    def part(draw):
        numbers = yield RandomNumbers("a task")
        yield from tl.ask(call(draw))
        return numbers.random()

    def thinking():
        yield Thought("0", None, "question")
        inner = [tl.resample(k, part(0)) for k in range(2)]
        drawn = yield from tl.gather([part(5), tl.resample(7, tl.gather(inner)), tl.resample(7, part(1))])
        return done(repr(drawn))

    result, calls, _ = driven(thinking())
    assert [asked.attempt for asked in calls] == [(), (7, 0), (7, 1), (7,)]
    seeds = ["", "7 0 ", "7 1 ", "7 "]
    own, first, second, other = (
        default_answer(RandomNumbers("a task", attempt=seed)).random() for seed in seeds
    )
    assert result == done(repr([own, [first, second], other]))


@pytest.mark.parametrize("wrapped", [lambda own: map_steps(str, own), lambda own: tl.resample(3, own)])
def test_a_wrapped_generator_is_closed_with_its_wrapper(wrapped):
    closed = []

    def own():
        try:
            yield Thought("0", None, "question")
        finally:
            closed.append(True)

    thinking = wrapped(own())
    next(thinking)
    thinking.close()
    assert closed == [True]


def test_all_generators_are_closed_if_the_run_ends_whatever_they_raise():
    closed = []

    def branch(number):
        try:
            yield from tl.ask(call(number))
        finally:
            closed.append(number)
            raise ZeroDivisionError("on closing")

    def thinking():
        try:
            yield Thought("0", None, "question")
            yield from tl.gather([branch(1), branch(2)])
        finally:
            closed.append("parent")

    stepper, _ = begun(thinking())
    assert len([*stepper.turn()]) == 2
    errors = [*stepper.close()]
    assert closed == [2, 1, "parent"]
    assert [type(error) for error in errors] == [ZeroDivisionError] * 2


@pytest.mark.parametrize(
    ("step", "recorded_each_time"),
    [
        (lambda number: Note("on", "0", {"number": number}), 1),
        (lambda number: BudgetLeft(sample_index=number), 0),
        (lambda number: RandomNumbers("a task"), 0),
    ],
)
def test_a_branch_that_goes_on_and_on_leaves_room_for_the_others(step, recorded_each_time):
    def long():
        for number in range(LONG + 1):
            yield step(number)

    def short():
        yield from tl.ask(call())

    def thinking():
        yield Thought("0", None, "question")
        yield from tl.gather([long(), short()])
        return done()

    stepper, recorded = begun(thinking())
    assert [position for _, position, _ in stepper.turn()] == [(1, 1, 0)]
    assert stepper.paused
    assert len(recorded) == 1 + recorded_each_time * LONG
    assert list(stepper.turn()) == []
    assert not stepper.paused
    assert len(recorded) == 1 + recorded_each_time * (LONG + 1)


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
