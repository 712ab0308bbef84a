"""A reward model is asked like any model: behind the cache, in the budget, recorded."""

import json
from collections import Counter
from typing import ClassVar

import pytest
from support import TASK, Scripted, answer_to, run, wait
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.core.purposes import role_of
from tot_lab.record.losses import losses_of

STOP = tl.Stop(solved=None, depth=2)


def steps_of(call):
    """The steps that a reward call shows."""
    (shown,) = (message.content for message in call.messages if message.role == "assistant")
    return shown.split("\n\n")


async def by_step(call):
    """0.9 for a step, and 0.5 for each after it."""
    return json.dumps([0.9, *[0.5] * (len(steps_of(call)) - 1)])


def searched(reply, **settings):
    """A run whose reward calls get `reply`, a text or a function of the call."""

    def model(call):
        if call.purpose != "reward":
            return answer_to(call)
        return reply(call) if callable(reply) else reply

    evaluate = tl.evaluators.RewardModel(**settings)
    return run(tl.TreeOfThoughts(evaluate=evaluate, stop=STOP), model=Scripted(model))


def rewarded(made):
    return [event for event in made.events if isinstance(event, tl.Call) and event.purpose == "reward"]


def test_the_call_shows_problem_steps_and_instruction():
    made = searched("0.5")
    call = rewarded(made)[-1]
    path = [node.text for node in made.tree.path(call.node)[1:]]
    assert [message.role for message in call.messages] == ["user", "assistant", "user"]
    assert call.messages[0].content == TASK.question, "without the generator's instructions"
    assert len(path) == 2
    assert steps_of(call) == path
    assert call.messages[2].content == tl.evaluators.RewardModel().instruction
    assert role_of(call.purpose) == "evaluate"


def test_a_model_that_is_trained_to_reward_gets_the_conversation_alone():
    call = rewarded(searched("0.5", instruction=""))[0]
    assert [message.role for message in call.messages] == ["user", "assistant"]


def test_the_problem_can_be_stated_in_another_way():
    (user, *_) = rewarded(searched("0.5", prompt="Problem: {problem}"))[0].messages
    assert (user.role, user.content) == ("user", f"Problem: {TASK.question}")
    with_context = TASK.model_copy(update={"context": "A duck has two legs."})
    evaluate = tl.evaluators.RewardModel(model=by_step)
    made = run(tl.TreeOfThoughts(evaluate=evaluate, stop=STOP), with_context)
    assert "A duck has two legs." in rewarded(made)[0].messages[0].content


def test_a_system_message_is_its_own():
    system, user, *_ = rewarded(searched("0.5", system="You are a verifier."))[0].messages
    assert (system.role, system.content) == ("system", "You are a verifier.")
    assert user.content == TASK.question


INSTRUCTED = TASK.model_copy(update={"system_prompt": "Count {problem} in eights."})


@pytest.mark.parametrize(
    ("settings", "system"),
    [
        ({}, None),
        ({"system": "Be exact."}, "Be exact."),
        ({"system": "{system_prompt}"}, INSTRUCTED.system_prompt),
        ({"system": "Asked was: {system_prompt}"}, f"Asked was: {INSTRUCTED.system_prompt}"),
    ],
)
def test_the_instructions_of_the_generator_are_shown_only_on_request(settings, system):
    evaluate = tl.evaluators.RewardModel(model=by_step, **settings)
    inner = tl.TreeOfThoughts(evaluate=evaluate, stop=STOP)
    for strategy in (inner, tl.WithThinking(strategy=inner, level="high")):
        made = run(strategy, INSTRUCTED)
        assert rewarded(made)
        for call in rewarded(made):
            shown = [message.content for message in call.messages if message.role == "system"]
            assert shown == ([] if system is None else [system])
        others = [
            event for event in made.events if isinstance(event, tl.Call) and event not in rewarded(made)
        ]
        assert others
        assert all(call.messages[0].content.startswith(INSTRUCTED.system_prompt) for call in others)
        assert wait(made.replay()).identical


def test_a_prompt_without_the_problem_is_an_error():
    for prompt in ("Judge.", "Judge {steps}"):
        with pytest.raises(
            ValueError, match=rf"prompt must contain \{{problem\}}: got '{prompt}'\. .* `system`"
        ):
            tl.evaluators.RewardModel(prompt=prompt)


SOLUTION = "Step 1: A spider has eight legs.\n\nThree have 24.\nStep 2: A duck has two.\n\n \nAnswer: 26"


@pytest.mark.parametrize(
    ("split", "steps"),
    [
        ({}, ["Step 1: A spider has eight legs.", "Three have 24.\nStep 2: A duck has two.", "Answer: 26"]),
        (
            {"split": None},
            ["Step 1: A spider has eight legs.\nThree have 24.\nStep 2: A duck has two.\nAnswer: 26"],
        ),
        (
            {"split": r"\n(?=Step \d+:)"},
            [
                "Step 1: A spider has eight legs.\nThree have 24.",
                "Step 2: A duck has two.\nAnswer: 26",
            ],
        ),
        ({"split": r"\n\n|\n"}, [line for line in SOLUTION.split("\n") if line.strip()]),
    ],
    ids=["paragraphs", "thoughts", "pattern", "separators"],
)
def test_a_whole_solution_is_rewarded_by_its_steps(split, steps):
    def model(call):
        if call.purpose != "reward":
            return SOLUTION
        return json.dumps([0.5] * len(steps_of(call)))

    evaluate = tl.evaluators.RewardModel(aggregate="product", **split)
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=1), evaluate=evaluate, stop=tl.Stop(solved=None, depth=1)
    )
    made = run(strategy, model=Scripted(model))
    assert steps_of(rewarded(made)[0]) == steps
    assert made.tree["0.0"].score == 0.5 ** len(steps)


@pytest.mark.parametrize("split", ["(", "(a)|b"])
def test_a_bad_pattern_is_an_error(split):
    with pytest.raises(ValueError, match="split must"):
        tl.evaluators.RewardModel(split=split)


@pytest.mark.parametrize(
    ("aggregate", "score"), [("last", 0.4), ("min", 0.2), ("product", 0.08), ("mean", 1.6 / 3)]
)
def test_step_rewards_become_one_score(aggregate, score):
    task = TASK.model_copy(update={"steps": ("one", "two")})
    evaluate = tl.evaluators.RewardModel(model=three, aggregate=aggregate)
    made = run(tl.TreeOfThoughts(evaluate=evaluate, stop=tl.Stop(solved=None, depth=1)), task)
    node = made.tree["0.0"]
    assert node.score == pytest.approx(score)
    assert node.samples == (1.0, 0.2, 0.4)
    assert node.by == "reward_model"


async def three(call):
    assert len(steps_of(call)) == 3  # the earlier steps too
    return "[1.0, 0.2, 0.4]"


@pytest.mark.parametrize("reply", ["0.7", "score: 0.7", "7/10", "Reward: it is good.\nscore: 70%"])
def test_an_outcome_reward_is_the_score_whatever_the_aggregate(reply):
    made = searched(reply, aggregate="product")
    assert {node.score for node in made.tree if node.by == "reward_model"} == {0.7}


@pytest.mark.parametrize("reply", ["-2.31", "good", "", "[0.5, 0.5, 0.5]", "[0.5, 1.5]", "[0.5, null]", "[]"])
def test_anything_else_is_unreadable(reply):
    """A logit, a list of another length, a list with a hole."""
    made = searched(lambda call: reply if len(steps_of(call)) == 2 else "0.5")
    nodes = [node for node in made.tree if node.depth == 2]
    assert nodes
    assert all(node.score is None and node.unreadable for node in nodes)
    counted = losses_of(made)["evaluate"]
    assert counted.unreadable == len(nodes)


def test_a_failed_call_costs_its_thought():
    def broken(call):
        raise ConnectionError("no route")

    made = searched(broken)
    assert {node.state for node in made.tree if node.depth} == {"failed"}
    assert made.stop_reason == "error"


def test_a_function_a_role_and_a_name_are_models():
    for evaluate, lab in [
        (tl.evaluators.RewardModel(model=by_step), tl.Lab(Scripted(), runs=None)),
        (tl.evaluators.RewardModel(model="prm"), tl.Lab(Scripted(), roles={"prm": by_step}, runs=None)),
        (tl.evaluators.RewardModel(), tl.Lab(Scripted(), roles={"evaluate": by_step}, runs=None)),
        (tl.evaluators.RewardModel(), tl.Lab(Scripted(), roles={"reward": by_step}, runs=None)),
    ]:
        made = wait(lab.run(tl.TreeOfThoughts(evaluate=evaluate, stop=STOP), TASK))
        assert {node.depth: node.score for node in made.tree if node.depth} == {1: 0.9, 2: 0.5}
        assert wait(made.replay()).identical


class Counted(tl.Part):
    """A model that counts its calls in `made`."""

    kind = "tests/counted"
    made: ClassVar[Counter] = Counter()

    async def __call__(self, call):
        self.made[call.purpose] += 1
        return "0.5" if call.purpose == "reward" else answer_to(call)


def test_it_is_in_the_budget_and_behind_the_cache(tmp_path):
    strategy = tl.TreeOfThoughts(evaluate=tl.evaluators.RewardModel(model=Counted()), stop=STOP)
    lab = tl.Lab(Counted(), runs=None, cache=tmp_path / "cache")
    made = wait(lab.run(strategy, TASK))
    paid = Counted.made.copy()
    assert paid["reward"] == len({call.prompt for call in rewarded(made)})
    assert len(rewarded(made)) < made.usage.calls <= strategy.max_calls(TASK)
    assert wait(lab.run(strategy, TASK)).events == made.events
    assert Counted.made == paid
    capped = wait(lab.run(strategy, TASK, budget=tl.Budget(calls=4)))
    assert (capped.usage.calls, capped.stop_reason) == (4, "budget:calls")


def test_particles_can_be_weighed_by_a_reward_model():
    strategy = tl.TreeOfThoughts(
        search="particle_filter", evaluate=tl.evaluators.RewardModel(model=by_step), stop=STOP
    )
    made = run(strategy)
    assert len([node for node in made.tree if node.depth == 2]) == 4
    assert tl.part_of(json.loads(json.dumps(strategy.settings()))).evaluate.aggregate == "last"


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [True, False])
def test_all_children_of_a_pick_are_rewarded_at_the_same_time(parallel):
    """Through the whole stack, so that a server can batch them. Cache, limits and budget see each call."""
    model = scripted(
        lambda call: "0.5" if call.purpose == "reward" else f"step {call.sample_index}", seconds=0.1
    )
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=5),
        evaluate=tl.evaluators.RewardModel(model=model),
        search=tl.BeamSearch(width=2),
        parallel=parallel,
        stop=STOP,
    )
    made = wait(
        tl.Lab(Scripted(lambda call: f"step {call.node} {call.sample_index}"), runs=None).run(strategy, TASK)
    )
    assert len(model.requests) == 5 + 2 * 5 == len(rewarded(made))
    assert model.max_at_once == (10 if parallel else 1)


def test_of_steps_that_end_anywhere_the_paragraphs_are_rewarded():
    """Steps of a number of tokens: the reward model gets the reply as it was written, not a step per call."""
    pieces = ["The su", "m is 5.\n\nDou", "bled, 10.\n", "\nAnswer: 10"]

    def reply(call):
        begun = call.messages[-1].content if call.messages[-1].role == "assistant" else ""
        piece = pieces[next(k for k in range(len(pieces)) if "".join(pieces[:k]) == begun)]
        return tl.Reply(piece, finish_reason="stop" if piece == pieces[-1] else "length")

    strategy = tl.TreeOfThoughts(
        propose=tl.proposers.Continue(count=1, tokens_per_step=2),
        evaluate=tl.evaluators.RewardModel(model=by_step, aggregate="mean"),
        stop=tl.Stop(solved=None, depth=4),
    )
    made = run(strategy, tl.general("Double the sum of 2 and 3.", answer=10), Scripted(reply))
    seen = [steps_of(call) for call in rewarded(made)]
    assert seen == [
        ["The su"],
        ["The sum is 5.", "Dou"],
        ["The sum is 5.", "Doubled, 10."],
        ["The sum is 5.", "Doubled, 10.", "Answer: 10"],
    ]
    assert made.tree["0.0.0.0.0"].samples == (0.9, 0.5, 0.5)
    assert made.tree["0.0.0.0.0"].score == pytest.approx(1.9 / 3)
