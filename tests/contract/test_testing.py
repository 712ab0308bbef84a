"""The contract for anybody's own strategy: it passes a sound one, and each promise catches who breaks it."""

import asyncio
import random
import re
import subprocess
import sys
import time
from random import shuffle
from time import perf_counter

import numpy as np
import pytest
from support import ROOT, TASK

import tot_lab as tl
from tot_lab import testing
from tot_lab.core.calls import halts
from tot_lab.core.records import Note, Scored, Thought, parent_of
from tot_lab.core.registry import built_in
from tot_lab.domains.puzzles.base import PuzzleDomain
from tot_lab.testing import HOSTILE, PROMISES, Scripted, Trial, check_domain, check_strategy, legs


class Twice(tl.Prompting):
    """Ask twice and keep the longer answer: the recipe of the guide."""

    kind = "tests/twice"

    def think(self, task, at="0"):
        yield Thought(at, parent_of(at), task.question)
        prompt = self.prompt(task)
        replies = yield from tl.gather(
            [tl.ask(self.call(at, "answer", prompt, k)) for k in range(2)], at_most=1
        )
        return (yield from self.settle(task, at, replies))

    def prompt(self, task):
        return task.answer_prompt(False)

    def settle(self, task, at, replies):
        for reply in replies:
            if reply.error is not None and halts(reply.error):
                return tl.Answer("", reply.error)
        best = max(replies, key=lambda reply: len(reply.text))
        if best.error is not None:
            return tl.Answer("", "error")
        thought = yield from tl.emit(Thought(f"{at}.0", at, best.text))
        return tl.Answer(task.domain.read_answer(task, thought.text) or "", "answered", thought.id)

    def max_calls(self, task):
        return 2


@pytest.mark.slow
def test_a_sound_strategy_passes():
    check_strategy(Twice())
    check_strategy(
        Twice(), tl.game24("4 5 6 10"), model=lambda call: f"Answer: {call.sample_index}", tools=()
    )


class Shared(Twice):
    """Its branches share a list."""

    def think(self, task, at="0"):
        yield Thought(at, parent_of(at), task.question)
        came = []

        def branch(k):
            reply = yield from tl.ask(self.call(at, "answer", self.prompt(task), k))
            came.append(k)
            yield Note("mine.came", at, {"place": len(came), "branch": k})
            return reply

        return (yield from self.settle(task, at, (yield from tl.gather([branch(0), branch(1)], at_most=1))))


class Fixed(Twice):
    """Ignores that a repeat is another one, by asking nothing that changes."""

    def think(self, task, at="0"):
        yield Thought(at, parent_of(at), task.question)
        reply = yield from tl.ask(self.call(at, "answer", self.prompt(task)))
        return (yield from self.settle(task, at, [reply]))

    def max_calls(self, task):
        return 0


class Stray(Twice):
    """Its thoughts lie elsewhere."""

    def settle(self, task, at, replies):
        yield Thought("0.9", "0", "elsewhere")
        return (yield from super().settle(task, at, replies))


class Rootless(Twice):
    """Its root is not recorded first."""

    def think(self, task, at="0"):
        yield Thought(f"{at}0", None, "first")
        return (yield from super().think(task, at))


class Careless(Twice):
    """Answers whatever was replied."""

    def settle(self, task, at, replies):
        return tl.Answer("I know", "answered", at)
        yield


class Fragile(Twice):
    """Falls over a reply that is no number."""

    def settle(self, task, at, replies):
        good = [reply for reply in replies if reply.error is None]
        for reply in good:
            float(reply.text.split()[-1])
        return (yield from super().settle(task, at, replies))


class Inventive(Twice):
    """Makes a score up."""

    def settle(self, task, at, replies):
        answer = yield from super().settle(task, at, replies)
        if answer.node is not None:
            yield Scored(answer.node, 0.5, None, (None,), "value")
        return answer


class Forgetful(Twice):
    """Goes on with what it said, not with what was recorded."""

    def settle(self, task, at, replies):
        answer = yield from super().settle(task, at, replies)
        if answer.node is None:
            return answer
        text = max(replies, key=lambda reply: len(reply.text)).text
        reply = yield from tl.ask(self.call(answer.node, "answer", f"{self.prompt(task)} {text}"))
        return tl.Answer(answer.text, "answered", answer.node) if reply.error is None else answer

    def max_calls(self, task):
        return 3


class Own(Twice):
    """Asks in words of its own, without what was done before."""

    def prompt(self, task):
        return task.question


class PastTheTask(Twice):
    """Takes its prompt from the domain, which does not know the earlier steps."""

    def prompt(self, task):
        return task.domain.answer_prompt(task, False)


class Alone(Twice):
    """Has its own thought judged, without the earlier steps."""

    def settle(self, task, at, replies):
        answer = yield from super().settle(task, at, replies)
        if answer.text:
            task.domain.complete(task, [answer.text])
        return answer


class Wordy(Twice):
    """Ends in a word that nobody knows."""

    def settle(self, task, at, replies):
        answer = yield from super().settle(task, at, replies)
        return tl.Answer(answer.text, "done", answer.node) if answer.text else answer


class Clocked(Twice):
    """Another run is another record."""

    def think(self, task, at="0"):
        RUNS.append(1)
        answer = yield from super().think(task, at)
        yield Note("mine.runs", at, {"runs": len(RUNS)})
        return answer


RUNS: list[int] = []


# Searches, evaluators and answer rules that break a promise, each in a way that the other promises allow.


class ByArrival(tl.Value):
    """Its scores fall in the order in which the replies arrive."""

    kind = "tests/by_arrival"

    def score_thought(self, sampler, path, id):
        scored = yield from super().score_thought(sampler, path, id)
        ARRIVED.append(id)
        score = 1 / len(ARRIVED)
        return [*scored, *(yield from tl.gather([tl.emit(Scored(id, score, score, (score,), "value"))]))]


class Afresh(tl.BeamSearch):
    """A beam search that begins by forgetting what arrived before."""

    kind = "tests/afresh"

    def run(self, state):
        ARRIVED.clear()
        yield from super().run(state)


ARRIVED: list[str] = []


class OnItsClass(tl.BeamSearch):
    """Counts its rounds on its class. Each run begins afresh, so that one after another is fine."""

    kind = "tests/on_its_class"

    def run(self, state):
        ROUNDS[:] = [0]
        level = [state.root]
        while level and ROUNDS[0] < 2:
            children = yield tl.Pick(level)
            ROUNDS[0] += 1
            level = state.open((yield from state.keep_best(children, self.width)))


ROUNDS = [0]


class Stubborn(tl.BeamSearch):
    """Asks again and again when a call is refused."""

    kind = "tests/stubborn"

    def run(self, state):
        yield from super().run(state)
        sample = 0
        while (yield state.call(state.root, "critique", "Is this all?", sample)).error is not None:
            sample += 1

    def max_own_calls(self, branch, depth):
        return 1


class Learns(tl.BeamSearch):
    """Makes do with the best thought every second time, since the problem is known."""

    kind = "tests/learns"

    def run(self, state):
        RUNS.append(1)
        yield from tl.BeamSearch(width=1 + len(RUNS) % 2).run(state)


class Modest(tl.BeamSearch):
    """Its bound forgets that a level has `width` thoughts."""

    kind = "tests/modest"

    def max_expansions(self, branch, depth):
        return depth


def searched(search, **settings):
    return tl.TreeOfThoughts(search=search, stop=tl.Stop(solved=None, depth=2), **settings)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("strategy", "promise", "said"),
    [
        (Shared(), "records_the_same_for_any_latency", "record 4|record differs"),
        (Clocked(), "records_the_same_for_any_latency", "mine.runs"),
        (Fixed(), "bounds_its_calls", "made 1 calls, but max_calls is 0"),
        (Stray(), "runs_at_another_id", "are not below"),
        (Rootless(), "runs_at_another_id", "first thought at '0.3'"),
        (Clocked(), "keeps_its_budget", "under a cap of"),
        (searched(Afresh(), evaluate=ByArrival()), "records_the_same_for_any_latency", "another order"),
        (searched(OnItsClass()), "runs_beside_itself", "alone and beside 23 others"),
        (searched(Stubborn()), "keeps_its_budget", "raised"),
        (searched(Learns()), "replays_and_resumes_from_any_line", "does not replay"),
        (searched(Modest()), "bounds_its_calls", "but max_calls is"),
        (Careless(), "survives_a_model_that_fails", "stopped with 'answered'"),
        (Fragile(), "survives_any_reply", "with a model that replies .* it raised"),
        (Inventive(), "survives_any_reply", "no reply contained a score"),
        (Forgetful(), "continues_with_a_changed_thought", "lacks its text|the old text"),
        (Own(), "continues_another_strategy", "does not show the earlier step"),
        (PastTheTask(), "shows_a_domain_the_whole_path", r"Use task\.answer_prompt"),
        (Alone(), "shows_a_domain_the_whole_path", r"path of complete lacks .* Use task\.path"),
        (Wordy(), "ends_with_a_stop_code", "stop code: got 'done'"),
    ],
    ids=lambda value: value.kind if isinstance(value, tl.Strategy) else None,
)
def test_who_breaks_a_promise_is_told_which(strategy, promise, said):
    (found,) = [one for one in PROMISES if one.__name__ == promise]
    with pytest.raises(AssertionError, match=rf"^{type(strategy).__name__} {promise}: [\s\S]*({said})"):
        check_strategy(strategy, promises=[found])
    with pytest.raises(AssertionError, match=f"^{type(strategy).__name__} "):
        check_strategy(strategy)


def draws(ids):
    return random.sample(ids, 2)


def by_helper(state):
    level = [state.root]
    while level:
        level = draws(state.open((yield tl.Pick(level))))


def by_lambda(state):
    yield tl.Pick([state.root])
    key = lambda id: shuffle([id])  # noqa: E731
    yield tl.Pick(sorted(state.open(state.tree.nodes), key=key))


def by_import(state):
    import secrets

    yield tl.Pick([state.root][secrets.randbelow(1) :])


def until_late(state, limit=1e9):
    """It stops for the clock, which no trial sees."""
    level = [state.root]
    while level and perf_counter() < limit:
        level = state.open((yield tl.Pick(level)))


def at_noon(state):
    yield tl.Pick([state.root] if time.time() else [])


class Coin(tl.searches.Search):
    kind = "tests/coin"

    def run(self, state):
        yield tl.Pick([state.root] if np.random.random() >= 0 else [])


def tosses(task, path):
    return random.random()


@pytest.mark.parametrize(
    ("settings", "module"),
    [
        ({"search": by_helper}, "random"),
        ({"search": by_lambda}, "random"),
        ({"search": by_import}, "secrets"),
        ({"search": until_late}, "time"),
        ({"search": at_noon}, "time"),
        ({"search": Coin()}, "numpy.random"),
        ({"evaluate": tosses}, "random"),
    ],
)
def test_a_clock_or_random_numbers_are_named_before_a_trial(settings, module):
    strategy = tl.BestOf(strategy=tl.TreeOfThoughts(**settings))
    with pytest.raises(
        AssertionError, match=rf"line \d+ of test_testing\.py, '.*', uses {module}, .*random_numbers"
    ):
        check_strategy(strategy)


def by_state(state):
    random = yield state.random_numbers()
    time = state.open((yield tl.Pick([state.root])))
    yield tl.Pick(random.sample(time, 1))


async def recorded(task, path):
    return random.random()


@pytest.mark.parametrize("settings", [{"search": by_state}, {"evaluate": recorded}, {"search": "mcts"}])
def test_what_is_recorded_or_drawn_from_the_run_is_accepted(settings):
    check_strategy(tl.TreeOfThoughts(**settings), promises=[testing.uses_no_clock_and_no_random_numbers])


def in_a_set(state):
    level = [state.root]
    while level:
        level = list(set(state.open((yield tl.Pick(level)))))[:2]


@pytest.mark.slow
def test_the_order_of_a_set_is_found():
    with pytest.raises(AssertionError, match=r"runs_at_another_id: [\s\S]*the order of a set"):
        check_strategy(tl.TreeOfThoughts(search=in_a_set), promises=[testing.runs_at_another_id])


@pytest.mark.slow
def test_a_replay_that_differs_says_what_may_be_the_cause():
    drawn = [0, 1]

    def other(state):
        level = state.open((yield tl.Pick([state.root])))
        yield tl.Pick([level[drawn.pop()]])

    run = asyncio.run(
        tl.Lab("sim/game24", runs=None).run(tl.TreeOfThoughts(search=other), tl.game24("1 4 8 11"))
    )
    replay = asyncio.run(run.replay())
    assert not replay.identical
    for words in ("Note differs", "random, time or the order of a set", "state.random_numbers()"):
        assert words in replay.divergence


def test_a_setting_that_does_not_come_back_is_caught():
    class Loses(Twice):
        def settings(self):
            return {**super().settings(), "temperature": 1.0}

    with pytest.raises(AssertionError, match="keeps_its_settings"):
        check_strategy(Loses(), promises=[testing.keeps_its_settings])


@pytest.mark.slow
def test_one_that_never_ends_is_caught(monkeypatch):
    class Endless(Twice):
        def think(self, task, at="0"):
            yield Thought(at, parent_of(at), task.question)
            for k in range(10**9):
                yield from tl.ask(self.call(at, "answer", self.prompt(task), k))

    monkeypatch.setattr("tot_lab.testing.strategies.SECONDS", 0.3)
    with pytest.raises(AssertionError, match="it raised TimeoutError"):
        check_strategy(Endless(), promises=[testing.ends_with_a_stop_code])


def test_the_reference_is_not_there_to_be_seen():
    testing.never_sees_the_reference(Trial(Twice()))
    assert TASK.reference is not None


def test_every_promise_is_exported_and_says_what_it_is():
    assert len({promise.__name__ for promise in PROMISES}) == len(PROMISES) >= 19
    assert all((promise.__doc__ or "").strip().endswith(".") for promise in PROMISES)
    own = [
        one
        for name, one in vars(testing).items()
        if callable(one) and getattr(one, "__module__", "").startswith(testing.__name__)
    ]
    takes_a_trial = {one for one in own if list(getattr(one, "__annotations__", {}))[:1] == ["trial"]}
    assert {one for one in takes_a_trial if not one.__name__.startswith("_")} == set(PROMISES)


def test_hostile_replies_are_of_many_sorts():
    texts = [reply for reply in HOSTILE if isinstance(reply, str)]
    assert "" in texts
    assert any(len(text) > 50_000 for text in texts)
    assert any(reply.tool_calls for reply in HOSTILE if not isinstance(reply, str))


def test_the_scripted_model_counts_and_does_not_change_with_latency():
    model, slow = Scripted(), Scripted(latency=testing.shuffled(1))
    for one in (model, slow):
        testing.wait(tl.Lab(one, runs=None).run(tl.ReAct(), TASK))
    assert model.calls == slow.calls
    assert legs.spec.name == "legs"


def test_it_runs_in_a_notebook():
    async def cell():
        await asyncio.to_thread(check_strategy, Twice(), promises=PROMISES[:3])

    asyncio.run(cell())


@pytest.mark.slow
def test_it_needs_no_test_library():
    code = (
        "import sys; import tot_lab as tl; from tot_lab.testing import check_strategy; "
        "check_strategy(tl.OneAnswer()); "
        "assert not {'pytest', 'hypothesis', '_pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=120)


# Domains.


class Sums(tl.domains.General):
    """A sound domain, of which the others below break one rule each."""

    kind = "tests/sums"


class Blind(Sums):
    kind = "tests/blind"

    def value_prompt(self, task, path):
        return f"{task.question}\nHow good is step {len(path)}?"


class OnlyItsOwnSteps(Sums):
    kind = "tests/only_its_own_steps"

    def complete(self, task, path):
        return int(path[-1].split("=")[1]) == 4 if path else False


class Generous(Sums):
    kind = "tests/generous"

    def read_value(self, text):
        return 7.0


class OffByOne(Sums):
    kind = "tests/off_by_one"

    def read_vote(self, text, count):
        return count


class Unhashable(Sums):
    kind = "tests/unhashable"

    def state(self, task, path):
        return list(path)


class Counting(Sums):
    kind = "tests/counting"

    def steps(self, path):
        _COUNT.append(1)
        return str(len(_COUNT))


_COUNT = []


class Writing(Sums):
    kind = "tests/writing"

    def answer(self, task, path):
        task.data["last"] = path[-1:]
        return None


class Stingy(Sums):
    kind = "tests/stingy"

    def grade(self, task, answer):
        return 0.5


class TooManyParts(Sums):
    kind = "tests/too_many_parts"

    def max_parts(self, task):
        return 1

    def part_prompts(self, task, path):
        return [f"Is this right? {step}" for step in [*path, "and the rest"]]


def sum_of(domain):
    return tl.Task(domain=domain, question="2 + 2 = ?", reference="4")


class Taking(PuzzleDomain):
    """Take some of the numbers, until their sum is the target."""

    kind = "tests/taking"
    move_form = "A move is a number that is taken, such as `take 5`."

    def read_puzzle(self, text):
        numbers = tuple(map(int, re.findall(r"\d+", text)))
        return (numbers[:-1], numbers[-1]) if len(numbers) > 1 else None

    def start(self, puzzle):
        return ()

    def moves(self, puzzle, state):
        return [number for number in puzzle[0] if number not in state]

    def after(self, puzzle, state, move):
        return (*state, move)

    def solved(self, puzzle, state):
        return sum(state) == puzzle[1]

    def write(self, puzzle, move):
        return f"take {move}"

    def read_moves(self, puzzle, text):
        return [int(number) for number in re.findall(r"take (\d+)", text)]


class Grabbing(Taking):
    kind = "tests/grabbing"

    def write(self, puzzle, move):
        return f"grab {move}"


class Lenient(Taking):
    kind = "tests/lenient"

    def grade(self, task, answer):
        return 1.0 if "take" in answer else 0.0


def test_a_grade_that_accepts_unfinished_moves_is_found():
    task = tl.Task(domain=Lenient(), question="Numbers 3 5 7, target 12")
    with pytest.raises(AssertionError, match=r"the grade of 'take 5' is 1\.0, although its moves"):
        check_domain(task, ["take 5", "take 7"])


def test_a_puzzle_that_cannot_read_a_foreign_prompt_is_found():
    class Brittle(Taking):
        kind = "tests/brittle"

        def read_puzzle(self, text):
            return super().read_puzzle(text.split("Numbers ")[1])

    with pytest.raises(AssertionError, match=r"read_puzzle raises IndexError.*it must return None"):
        check_domain(tl.Task(domain=Brittle(), question="Numbers 3 5 7, target 12"), ["take 5", "take 7"])


def test_a_method_with_nearly_the_name_of_a_puzzle_is_named():
    class Misspelt(Taking):
        kind = "tests/misspelt_puzzle"

        def write_anwser(self, puzzle, position):
            return "none"

    with pytest.warns(UserWarning, match=r"Misspelt\.write_anwser\. Did you mean write_answer\?"):
        check_domain(tl.Task(domain=Misspelt(), question="Numbers 3 5 7, target 12"), ["take 5", "take 7"])


def test_a_puzzle_that_would_be_checked_on_nothing_is_refused():
    task = tl.Task(domain=Taking(), question="Numbers 3 5 7, target 12")
    check_domain(task, ["take 5", "take 7"])
    with pytest.warns(UserWarning, match="read_puzzle reads no puzzle from the question 'hello'"):
        check_domain(tl.Task(domain=Taking(), question="hello"))
    for wrong, steps, why in [
        (task, ["take 5", "take 99"], "step 2, 'take 99', states no legal move"),
        (
            tl.Task(domain=Grabbing(), question=task.question),
            [],
            r"reads \[\] from 'grab 3', the text that write made of",
        ),
    ]:
        with pytest.raises(AssertionError, match=why):
            check_domain(wrong, steps)


@pytest.mark.slow
def test_a_task_that_is_solved_in_two_steps_does_for_a_strategy():
    """A trial run ends at the solution, and no strategy continues from there."""
    domain = Taking()
    task = tl.Task(domain=domain, question="Numbers 3 5 7, target 12")

    def player(call):
        return f"take {random.Random(f'{call.prompt} {call.sample_index}').choice([3, 5, 7])}\n"

    strategy = tl.TreeOfThoughts(search="beam", stop=tl.Stop(depth=3))
    check_strategy(strategy, task, model=player, promises=[testing.continues_another_strategy])


@pytest.mark.slow
def test_a_domain_that_hides_the_step_from_its_judge_is_seen():
    assert all(seen.shows_step for seen in check_domain(sum_of(Sums(grading="number"))))
    blind = [seen for seen in check_domain(sum_of(Blind(grading="number"))) if not seen.shows_step]
    assert {seen.prompt for seen in blind} == {"value_prompt"}
    assert {"a whole reply", "a merged text", "an answer alone"} <= {seen.path for seen in blind}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "why"),
    [
        (OnlyItsOwnSteps, "complete on a whole reply raised IndexError"),
        (Generous, "read_value on the text '' gives 7.0, which is not a number from 0 to 1 or None"),
        (OffByOne, "read_vote .* gives 3, which is not a number below 3"),
        (Unhashable, "state on no step gives .*, which is not hashable"),
        (Counting, "steps on no step gives '1' and then '2'"),
        (Writing, "answer on no step changes the task"),
        (Stingy, "the grade of the reference '4' must be 1: got 0.5"),
        (TooManyParts, "part_prompts on a whole reply gives 2 prompts, more than max_parts=1"),
    ],
)
def test_a_domain_that_breaks_a_rule_is_named_with_the_path(domain, why):
    with pytest.raises(AssertionError, match=why):
        check_domain(sum_of(domain(grading="number")))


@pytest.mark.nightly
def test_every_domain_passes():
    wrong = []
    for name, domain in built_in("domains").items():
        examples = domain.example_tasks() or (lambda _: [tl.general("2 + 2 = ?", answer="4")])
        for task in examples(3):
            try:
                hidden = {seen.prompt for seen in check_domain(task) if not seen.shows_step}
            except AssertionError as broken:
                wrong.append(f"{name}: {broken}")
            else:
                wrong += [f"{name}: {prompt} hides a step" for prompt in hidden]
    assert not wrong


@pytest.mark.slow
def test_the_steps_of_a_task_are_tried_from_the_first_on():
    steps = ["10 - 4 = 6 (left: 5 6 6)", "5 * 6 = 30 (left: 6 30)", "30 - 6 = 24 (left: 24)"]
    paths = [seen.path for seen in check_domain(tl.game24("4 5 6 10"), steps)]
    assert {"the first 1 of 3 steps", "the first 2 of 3 steps", "all steps"} <= set(paths)
    for wrong in ("4 5 6 10", tl.OneAnswer()):
        with pytest.raises(TypeError, match="task must be a Task"):
            check_domain(wrong)
    with pytest.raises(TypeError, match="steps must be a list"):
        check_domain(tl.game24("4 5 6 10"), "10 - 4 = 6")


class Strict(tl.Domain):
    """Count to the number of the question. It reads only the digits 1 to 3 and has no `answer_prompt`."""

    kind = "tests/strict"

    def sample_prompt(self, task, path):
        return f"{task.question}: {self.steps(path)}. 1, 2 or 3?"

    def value_prompt(self, task, path):
        return f"{self.sample_prompt(task, path)} Is that good?"

    def read_sample(self, task, path, text):
        return text if text in ("1", "2", "3") and not self.complete(task, path) else None

    def complete(self, task, path):
        return sum(int(step) for step in path if step in ("1", "2", "3")) >= int(task.question)

    def answer(self, task, path):
        return "+".join(path) if self.complete(task, path) else None

    def grade(self, task, answer):
        return float(bool(self.complete(task, answer.split("+"))))


STRICT = tl.Task(domain=Strict(), question="5")


def digits(call):
    return "score: 0.5" if call.purpose == "value" else str(testing.dice(call).randint(1, 3))


class Deaf(tl.Prompting):
    """It continues with its own text of a step, and not with the one that a person has given."""

    kind = "tests/deaf"

    def think(self, task, at="0"):
        yield Thought(at, parent_of(at), task.question)
        path = []
        while not task.domain.complete(task, task.path(path)):
            prompt = task.domain.sample_prompt(task, task.path(path))
            reply = yield from tl.ask(self.call(at, "sample", prompt))
            if task.domain.read_sample(task, task.path(path), reply.text) is None:
                return tl.Answer("", reply.error or "exhausted")
            path.append(reply.text)
            yield Thought(at := f"{at}.0", parent_of(at), reply.text)
        return tl.Answer(task.domain.answer(task, task.path(path)), "answered", at)


CHANGED, WHOLE_PATH, CONTINUED = (
    testing.continues_with_a_changed_thought,
    testing.shows_a_domain_the_whole_path,
    testing.can_be_continued_by_another,
)


def test_a_strategy_is_checked_with_a_domain_that_reads_only_its_own_steps():
    promises = [CHANGED, WHOLE_PATH, CONTINUED]
    search = tl.TreeOfThoughts(search="best_first", stop=tl.Stop(depth=2))
    check_strategy(search, STRICT, model=digits, promises=promises)
    with pytest.raises(AssertionError, match=r"changed the thought '\d', but sample_prompt was given"):
        check_strategy(Deaf(), STRICT, model=digits, promises=[CHANGED])


def test_a_strategy_without_a_thought_is_not_passed():
    with pytest.raises(AssertionError, match=r"'tests/strict' could read no reply .* Pass model="):
        check_strategy(tl.TreeOfThoughts(), STRICT, promises=[CHANGED])


@pytest.mark.slow
def test_a_method_with_nearly_the_name_of_a_domain_is_named():
    class Misspelt(Strict):
        kind = "tests/misspelt"

        def sampel_prompt(self, task, path):
            return "1, 2 or 3?"

    with pytest.warns(UserWarning, match=r"Misspelt\.sampel_prompt\. Did you mean sample_prompt\?"):
        check_domain(tl.Task(domain=Misspelt(), question="5"), ["1"])
