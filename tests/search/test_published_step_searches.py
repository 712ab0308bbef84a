"""Step searches against the published ones, on 200 recorded trees of replies.

its-hub itself runs in an environment of its own. search-and-learn needs vLLM, so its searches are second
implementations, and so are those of its-hub that are given the random numbers of a run here.

Each search here asks for the same samples at each depth as the published one, finds the same candidates and
gives the same answer. It differs on purpose in these points, which `COUNTED` counts:

- A step that ends at `max_tokens` is open here. search-and-learn counts it as the end, and its_hub if a box
  is in it.
- The last line of a step tells whether it states an answer. search-and-learn's beam goes on after an answer
  if the model does. Its DVTS and its_hub end a path at any box, also at that of a partial result.
- A reply without text is no step. It ends the path if the model ended the reply, or if that is unknown.
- At the last level, search-and-learn completes all candidates without a separator.
- its_hub draws its particles once more when all are finished, and its answer may be unfinished.

search-and-learn's beam runs with `sort_completed` and without `filter_duplicates`. Without the former, only
the first N finished paths are candidates for its answer, which is another one on 28 trees. In its_hub's beam,
finished paths compete with copies of their own. `PRMBeam` sets them aside, so that beam is a search function
here.
"""

import json
import subprocess
from collections import Counter
from random import Random
from typing import NamedTuple

import pytest
from support import GOLDEN, Scripted, for_each, mostly_nightly, wait
from support.its_hub import python_with_its_hub
from support.providers import Raw
from support.reply_trees import CUT, ENDED, SEPARATED, SEPARATOR, begun, case
from support.step_searches import ItsHubBeam, ItsHubParticles, PublishedBeam, PublishedDVTS

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.protocol import RandomNumbers
from tot_lab.models.openai_compatible import VLLM
from tot_lab.runtime.stepper import default_answer

TASK = tl.general("How many legs have three spiders and a duck?", answer=2, grade="number")


def competing(width, copies):
    """The beam of its_hub as a search function: ended candidates compete with copies of their own."""

    def search(state):
        pool = yield tl.Pick([state.root], copies)
        while pool:
            best = state.ranked(pool)[:width]
            yield from state.prune([id for id in dict.fromkeys(pool) if id not in best], "beam")
            ended = [id for id in best if id in state.closed]
            going_on = state.open(best)
            if not going_on:
                return
            pool = ended * copies + (yield tl.Pick(going_on, copies))

    return search


class Pair(NamedTuple):
    """A published search, and the same one here.

    Attributes:
        published: `(case, **options)` runs the second implementation.
        search: `(case)` makes the search of tot_lab.
        tells: Whether the server tells the end of the sequence from a separator.
    """

    published: object
    search: object
    tells: bool


def random_numbers():
    """Those that a run of `TASK` gets."""
    return default_answer(RandomNumbers(f"general: {TASK.question}", "search"))


PAIRS = {
    "search-and-learn's beam": Pair(
        lambda c, **options: PublishedBeam(c.tree, c.depth, c.aggregate, **options).run(
            c.width * c.count, c.count
        ),
        lambda c: tl.searches.PRMBeam(width=c.width, count=c.count),
        True,
    ),
    "search-and-learn's DVTS": Pair(
        lambda c, **options: PublishedDVTS(c.tree, c.depth, c.aggregate, **options).run(
            c.width * c.count, c.count
        ),
        lambda c: tl.searches.DVTS(subtrees=c.width, count=c.count),
        True,
    ),
    "its_hub's beam": Pair(
        lambda c, **options: ItsHubBeam(c.tree, c.depth, c.aggregate, **options).run(c.width, c.count),
        lambda c: competing(c.width, c.count),
        False,
    ),
    "its_hub's particles": Pair(
        lambda c, **options: ItsHubParticles(c.tree, c.depth, c.aggregate, **options).run(
            c.width * c.count, random_numbers()
        ),
        lambda c: tl.searches.ParticleFilter(particles=c.width * c.count),
        False,
    ),
}


def so_far(call):
    return call.messages[-1].content if call.messages[-1].role == "assistant" else ""


class Searched:
    """A run on a recorded tree, in the terms of `StepSearch`."""

    def __init__(self, case, search, tells=True, model=None):
        def reply(call):
            text, end = case.tree.reply(so_far(call), call.sample_index)
            return Reply(
                text, finish_reason="length" if end == CUT else "stop", ended=end == ENDED if tells else None
            )

        async def reward(call):
            path = next(message.content for message in call.messages if message.role == "assistant")
            return json.dumps(case.tree.rewards(path.split(SEPARATOR)))

        aggregate = {"prod": "product"}.get(case.aggregate, case.aggregate)
        strategy = tl.TreeOfThoughts(
            propose=tl.proposers.Continue(),
            evaluate=tl.evaluators.RewardModel(model=reward, aggregate=aggregate),
            search=search,
            stop=tl.Stop(solved=None, depth=case.depth),
            parallel=model is None,
        )
        self.run = wait(tl.Lab(model or Scripted(reply), runs=None, mode="off").run(strategy, TASK))
        calls = [event for event in self.run.events if isinstance(event, Call) and event.purpose == "sample"]
        depths = range(max(call.node.count(".") for call in calls) + 1)
        self.asked = [
            sorted((so_far(call), call.sample_index) for call in calls if call.node.count(".") == depth)
            for depth in depths
        ]
        self.levels = [
            sorted(self.text(node.id) for node in self.run.tree if node.depth == depth + 1)
            for depth in depths
        ]
        self.answer = self.text(self.run.best.id) if self.run.best else None

    def text(self, id):
        return begun(filter(None, self.run.tree.texts(id)))


def same_but_for(differences, name, number):
    """Compare the search `name` on a tree with the published one. Returns how their answers compare."""
    pair, one = PAIRS[name], case(number)
    here, published = pair.published(one, here=True), pair.published(one, here=False)
    made = Searched(one, pair.search(one), pair.tells)
    levels = here.determined
    assert made.asked[:levels] == here.samples.levels[:levels]
    assert made.levels[:levels] == here.levels[:levels]
    found = +here.differences
    differences.update(found.keys() or ["none"])
    if not found:
        assert published.samples.levels[:levels] == made.asked[:levels]
        assert published.levels[:levels] == made.levels[:levels]
    if levels <= len(here.levels):
        return "equal scores"
    if here.answers:
        assert made.answer in here.answers
        assert made.run.answer_state == "finished"
    if not published.answer.finished:
        return "unfinished"
    if made.answer in published.answers:
        return "the same"
    if not found:
        assert here.answer.score > published.answer.score  # the last draw has lost the best particle
        return "lost"
    return "differs"


COUNTED = {
    "search-and-learn's beam": (
        {"the same": 143, "equal scores": 29, "differs": 22, "unfinished": 6},
        {
            "none": 134,
            "a step that is cut": 44,
            "an answer before the end": 33,
            "a step that is only a separator": 25,
            "open candidates at the last level": 24,
            "an empty first step": 17,
        },
    ),
    "search-and-learn's DVTS": (
        {"the same": 166, "differs": 18, "unfinished": 16},
        {
            "none": 147,
            "a step that is cut": 24,
            "a step that is only a separator": 19,
            "an empty first step": 17,
            "open candidates at the last level": 15,
            "a partial result in a box": 14,
        },
    ),
    "its_hub's beam": (
        {"the same": 146, "equal scores": 25, "unfinished": 16, "differs": 13},
        {
            "none": 157,
            "an empty step ends a path": 31,
            "a step that is cut": 16,
            "a partial result in a box": 13,
            "an empty first step": 4,
        },
    ),
    "its_hub's particles": (
        {"the same": 163, "differs": 20, "unfinished": 15, "lost": 2},
        {
            "none": 151,
            "an empty step ends a path": 32,
            "a step that is cut": 24,
            "a partial result in a box": 20,
            "an empty first step": 17,
        },
    ),
}
"""Of 200 trees: how the answers compare, and on how many trees a search comes to each difference.

"equal scores" are trees on which the steps depend on the order of candidates with equal scores, which the
sources leave open. They are compared up to that choice. "lost" is the best particle, by the last draw.
"""


FEW = [*range(1, 14), 18, 45, 60, 65, 125, 130, 144]
"""Trees that come to every point above, and to two rare ones: steps that do not divide among the candidates
of a beam, and an answer that is cut before the model ends its reply."""


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    "trees",
    [pytest.param(FEW, marks=pytest.mark.slow), pytest.param(range(200), marks=pytest.mark.proof)],
    ids=len,
)
def test_a_step_search_is_the_published_one(name, trees):
    differences, outcomes = Counter(), Counter()
    for_each(trees, lambda number: outcomes.update([same_but_for(differences, name, number)]))
    if trees is FEW:
        assert differences.keys() == COUNTED[name][1].keys()
    else:
        assert (outcomes, differences) == COUNTED[name]


class Server:
    """Continues the replies of a tree as vLLM does, and numbers the samples of each request."""

    def __init__(self, tree, tells):
        self.tree, self.tells, self.used = tree, tells, Counter()

    def __call__(self, asked):
        assert asked.json["stop"] == [SEPARATOR]
        last = asked.json["messages"][-1]
        text = last["content"] if last["role"] == "assistant" else ""
        assert asked.json.get("continue_final_message", False) == bool(text)
        choices = []
        for index in range(asked.n):
            reply, end = self.tree.reply(text, self.used[text])
            self.used[text] += 1
            choice = {"index": index, "message": {"role": "assistant", "content": reply}}
            choice["finish_reason"] = "length" if end == CUT else "stop"
            if self.tells:
                choice["stop_reason"] = SEPARATOR if end == SEPARATED else None
            choices.append(choice)
        return Raw(json.dumps({"model": "m", "choices": choices}))


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_nightly(PAIRS, [*PAIRS][:1]))
def test_it_is_the_same_against_a_server(name, shared):
    pair, odd = PAIRS[name], [number for number in range(60) if case(number).tree.odd][:6]
    for number in odd:
        one = case(number)
        shared.otherwise = Server(one.tree, pair.tells)
        model = VLLM(model="m", base_url=shared.base("openai"), retries=0, concurrency=1)
        served = Searched(one, pair.search(one), model=model)
        made = Searched(one, pair.search(one), pair.tells)
        assert (served.asked, served.levels, served.answer) == (made.asked, made.levels, made.answer)


@pytest.mark.proof
def test_the_second_implementations_of_its_hub_do_what_the_package_does(tmp_path):
    """On all trees, with the last reward of each path."""
    script = [python_with_its_hub(tmp_path), GOLDEN / "replies_with_its_hub.py", "200"]
    printed = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    theirs = [json.loads(line) for line in printed.splitlines()]
    assert len(theirs) == 200
    for number, (beam, particles) in enumerate(theirs):
        one, options = case(number), {"here": False, "by_thought": False}
        for (asked, answer), search in (
            (beam, ItsHubBeam(one.tree, one.depth, **options).run(one.width, one.count)),
            (
                particles,
                ItsHubParticles(one.tree, one.depth, **options).run(one.width * one.count, Random(number)),
            ),
        ):
            assert search.samples.levels == [[(text, sample) for text, sample in level] for level in asked]
            assert SEPARATOR.join(search.answer.steps) == answer
