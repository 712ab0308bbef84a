"""Rollouts: the value of a thought is the mean reward of its sampled continuations."""

import pytest
from support import TASK, Scripted, dice, for_each, run, wait
from support.letters import Letters
from support.providers import Said
from support.reply_trees import ENDED, ReplyTree, begun, case
from support.step_searches import BOX, GREEDY, PublishedDVTS

import tot_lab as tl
from tot_lab.core.calls import Call, Reply, ToolCall
from tot_lab.core.records import Note
from tot_lab.models.openai_compatible import VLLM
from tot_lab.record.losses import losses_of
from tot_lab.testing import legs


class Words(Letters):
    """Letters up to a full stop, which completes a path. A path with `!` has a known reward."""

    kind = "tests/rollout_words"

    def complete(self, task, path):
        return bool(path) and path[-1] == "."

    def assess(self, task, path):
        return 0.25 if path and path[-1] == "!" else None


TASK_OF_WORDS = tl.general("Which words?").model_copy(update={"domain": Words()})


def rolled(replies, reward, count=2, **settings):
    """A run whose rollout number k below the thought `letter` replies with `replies[letter][k]`, in order."""

    def reply(call):
        if call.purpose == "sample":
            return "ab"[call.sample_index]
        letter = call.prompt.removeprefix("\nnext after ").split("/")[0]
        return replies[letter][call.attempt[-1]][call.sample_index]

    model = Scripted(reply)
    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=count),
        evaluate=tl.evaluators.Rollout(evaluate=reward, **settings),
        stop=tl.Stop(depth=1, solved=None),
    )
    return run(search, TASK_OF_WORDS, model), model


def test_the_score_is_the_mean_reward_of_the_paths_at_their_ends():
    ends = []

    def reward(task, path):
        ends.append("".join(path))
        return {"axy": 1.0, "a.": 0.5, "bzz": 0.0, "b.": 1.0}["".join(path)]

    made, model = rolled({"a": ["xy", "."], "b": ["zz", "."]}, reward, samples=2, depth=2)
    assert [made.tree[id].score for id in ("0.0", "0.1")] == [0.75, 0.5]
    assert made.tree["0.0"].samples == (1.0, 0.5)
    assert made.tree["0.0"].by == "rollout"
    assert sorted(ends) == ["a.", "axy", "b.", "bzz"]
    steps = [call for call in model.calls if call.purpose == "rollout"]
    assert len(steps) == 2 * (2 + 1)  # a path that is complete is not continued
    assert len(made.tree) == 3  # steps of rollouts are no thoughts
    assert wait(made.replay()).identical


def test_what_the_domain_knows_of_the_end_is_its_reward():
    made, _ = rolled({"a": ["x!"], "b": ["xx"]}, lambda task, path: 0.9, depth=2)
    assert [made.tree[id].score for id in ("0.0", "0.1")] == [0.25, 0.9]


def test_rollouts_to_one_path_share_its_evaluation_and_count_each():
    asked = []

    async def reward(task, path):
        asked.append("".join(path))
        return {"ax": 1.0, "ay": 0.0, "bx": 0.3}["".join(path)]

    made, _ = rolled({"a": ["x", "x", "y"], "b": ["x", "x", "x"]}, reward, samples=3, depth=1)
    assert made.tree["0.0"].score == pytest.approx(2 / 3)
    assert made.tree["0.0"].samples == (1.0, 1.0, 0.0)
    assert sorted(asked) == ["ax", "ay", "bx"]


def test_what_cannot_be_read_is_no_reward():
    made, _ = rolled({"a": [" ", "x"], "b": [" ", " "]}, lambda task, path: 0.5, samples=2, depth=1)
    assert made.tree["0.0"].samples == (None, 0.5)
    assert made.tree["0.0"].score == 0.5
    assert made.tree["0.1"].unreadable
    notes = [e.at for e in made.events if isinstance(e, Note) and e.name == "parse.unreadable"]
    assert sorted(notes) == ["0.0", "0.1", "0.1"]


def test_a_thought_none_of_whose_rollouts_was_answered_has_failed():
    def reply(call):
        if call.purpose == "rollout" and (call.node == "0.1" or call.attempt == (0,)):
            raise ConnectionError("gone")
        return "score: 0.5" if call.purpose == "value" else "ab"[call.sample_index]

    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=2),
        evaluate=tl.evaluators.Rollout(samples=2, depth=1),
        stop=tl.Stop(depth=1, solved=None),
    )
    made = run(search, TASK_OF_WORDS, Scripted(reply))
    assert (made.tree["0.0"].score, made.tree["0.0"].samples) == (0.5, (None, 0.5))
    assert made.tree["0.1"].state == "failed"


def test_a_model_scores_the_ends_and_all_calls_are_bounded_and_in_the_budget():
    search = tl.TreeOfThoughts(
        search=tl.MCTS(iterations=3),
        evaluate=tl.evaluators.Rollout(samples=2, depth=2),
        stop=tl.Stop(solved=None),
    )
    made = run(search)
    values = [e for e in made.events if isinstance(e, Call) and e.purpose == "value"]
    assert values
    assert all(call.prompt.count("step") >= 2 for call in values)
    assert made.usage.calls <= search.max_calls(TASK)
    assert run(search, budget=tl.Budget(calls=20)).usage.calls == 20


def test_an_evaluator_that_compares_thoughts_is_refused():
    with pytest.raises(ValueError, match="must score each thought by itself, as Value does: got 'vote'"):
        tl.evaluators.Rollout(evaluate="vote")


@pytest.mark.slow
def test_a_rerun_of_mcts_with_rollouts_takes_all_of_them_from_the_cache(tmp_path):
    search = tl.TreeOfThoughts(
        search=tl.MCTS(iterations=3),
        evaluate=tl.evaluators.Rollout(samples=2),
        stop=tl.Stop(solved=None),
    )
    labs = [tl.Lab("sim/game24", runs=None, cache=tmp_path) for _ in range(2)]
    runs = [wait(lab.run(search, tl.game24("4 5 6 10"))) for lab in labs]
    assert runs[0].tree == runs[1].tree
    first, again = (run.calls_df()["source"] for run in runs)
    assert "model" in set(first)
    assert set(again) == {"cache"}
    rollouts = runs[0].calls_df().query("purpose == 'rollout'")
    assert len(rollouts) > 10


@pytest.mark.slow
def test_the_score_is_an_unbiased_estimate_of_the_expected_reward():
    """Two steps of a fair coin each: three in four paths hold a head."""
    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=1),
        evaluate=tl.evaluators.Rollout(samples=2000, depth=2, evaluate=lambda task, path: float("H" in path)),
        stop=tl.Stop(depth=1, solved=None),
    )
    model = Scripted(lambda call: "start" if call.purpose == "sample" else dice(call).choice("HT"))
    made = run(search, TASK_OF_WORDS, model)
    assert abs(made.tree["0.0"].score - 3 / 4) < 3 * (3 / 4 * 1 / 4 / 2000) ** 0.5


def test_each_unreadable_reply_counts_once_in_its_role():
    def reply(call):
        if call.purpose == "sample":
            return "ab"[call.sample_index]
        if call.purpose == "rollout":
            return " " if call.attempt == (1,) else "x"
        return "hm" if call.prompt.endswith("a/x") else "score: 0.5"

    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=2),
        evaluate=tl.evaluators.Rollout(samples=2, depth=1),
        stop=tl.Stop(depth=1, solved=None),
    )
    made = run(search, TASK_OF_WORDS, Scripted(reply))
    losses = losses_of(made)
    assert (losses["propose"].calls, losses["propose"].unreadable) == (2 + 4, 2)
    assert (losses["evaluate"].calls, losses["evaluate"].unreadable) == (2, 1)


# Continuations are the run's own proposals.


def rollouts(made):
    return [event for event in made.events if isinstance(event, Call) and event.purpose == "rollout"]


def one_step(evaluate, model, **settings):
    """A run of two thoughts that are scored by `evaluate`."""
    strategy = tl.TreeOfThoughts(evaluate=evaluate, stop=tl.Stop(depth=1, solved=None), **settings)
    return wait(tl.Lab(model, runs=None, tools=[legs]).run(strategy, TASK))


OWN = [
    tl.Sample(count=2, prompt="Go on. {problem} {steps}", temperature=0.9),
    tl.Propose(count=2, prompt="Some of them. {problem} {steps}"),
    tl.proposers.Continue(count=2, separator="|", prefill="So: ", temperatures=(0.1, 0.2, 0.3)),
    tl.proposers.Continue(count=2, tag="## Step {n}:"),
    tl.proposers.Mixture(models=("one", "two"), temperatures=(0.3,)),
    tl.WithTools(proposer=tl.Sample(count=2)),
]


@pytest.mark.parametrize("propose", OWN, ids=lambda one: one.kind)
def test_a_continuation_asks_as_the_run_asks_for_children(propose):
    """The first call of a rollout is the one with which a search would expand the thought."""
    model = Scripted(lambda call: "1. one" if call.purpose == "propose" else "one")
    roles = {"one": model, "two": model}
    never = tl.evaluators.FunctionEvaluator(function=lambda task, path: 0.5)
    expanding = tl.TreeOfThoughts(
        propose=propose,
        evaluate=never,
        stop=tl.Stop(depth=2, solved=None),
        ends_at_answer=False,
    )
    lab = tl.Lab(model, runs=None, tools=[legs], roles=roles)
    expanded = wait(lab.run(expanding, TASK))
    below = [e for e in expanded.events if isinstance(e, Call) and e.node == "0.0" and e.purpose != "tool"]
    rolling = expanding.with_({"evaluate": tl.evaluators.Rollout(depth=1, evaluate=never), "stop.depth": 1})
    rolled_out = [call for call in rollouts(wait(lab.run(rolling, TASK))) if call.node == "0.0"]
    assert below
    assert rolled_out
    first, same = below[0], rolled_out[0]
    for name in ("messages", "model", "temperature", "max_tokens", "stop", "tools", "options"):
        assert getattr(same, name) == getattr(first, name), name


def test_a_temperature_holds_for_the_continuations_alone():
    made = one_step(
        tl.evaluators.Rollout(temperature=0.0, depth=1, evaluate=lambda task, path: 0.5),
        Scripted(),
        propose=tl.Sample(count=2, temperature=0.8),
    )
    assert {call.temperature for call in rollouts(made)} == {0.0}
    others = [e for e in made.events if isinstance(e, Call) and e.purpose == "sample"]
    assert {call.temperature for call in others} == {0.8}


def test_another_proposer_can_continue_the_thoughts():
    rollout = tl.evaluators.Rollout(propose=tl.proposers.Continue(), depth=1, evaluate=lambda task, path: 0.5)
    made = one_step(rollout, Scripted(), propose="propose")
    assert {call.messages[-1].role for call in rollouts(made)} == {"assistant"}


def test_a_continuation_can_use_tools():
    def reply(call):
        if call.purpose == "rollout" and call.messages[-1].role != "tool":
            return Reply(tool_calls=(ToolCall("1", "legs", '{"animal": "spider"}'),))
        return f"so {call.messages[-1].content}" if call.purpose == "rollout" else "one"

    seen = []
    made = one_step(
        tl.evaluators.Rollout(depth=1, evaluate=lambda task, path: seen.append(path[-1]) or 0.5),
        Scripted(reply),
        propose=tl.WithTools(proposer=tl.Sample(count=1)),
    )
    assert [e.purpose for e in made.events if isinstance(e, Call)] == ["sample", "rollout", "tool", "rollout"]
    assert seen == ["so 8"]


def test_to_the_end_is_one_call_that_no_separator_ends():
    """The rest of the solution comes whole, whatever the steps of the run are."""
    seen = []

    def reply(call):
        if call.purpose == "sample":
            return Reply(f"step {call.sample_index}", finish_reason="stop", ended=False)
        assert call.stop == ()
        rest = f"then {call.attempt[-1]}\n\nAnswer: {call.attempt[-1]}"
        return Reply(rest, finish_reason="stop", ended=True)

    def reward(task, path):
        seen.append([*path])
        return float(path[-1].endswith("1"))

    made = one_step(
        tl.evaluators.Rollout(samples=3, depth=None, evaluate=reward),
        Scripted(reply),
        propose=tl.proposers.Continue(count=2),
    )
    assert made.tree["0.0"].samples == (0.0, 1.0, 0.0)
    assert made.tree["0.0"].score == pytest.approx(1 / 3)
    assert seen[1] == ["step 0", "then 1\n\nAnswer: 1"]
    assert len(rollouts(made)) == 2 * 3
    assert wait(made.replay()).identical


def test_the_hard_estimation_asks_whether_any_continuation_is_right():
    settings = {"samples": 3, "depth": 1, "aggregate": "max"}
    made, _ = rolled(
        {"a": ["x", "y", "z"], "b": ["z", "z", "z"]}, lambda task, path: path[-1] == "y", **settings
    )
    assert [made.tree[id].score for id in ("0.0", "0.1")] == [1.0, 0.0]
    assert made.tree["0.0"].samples == (0.0, 1.0, 0.0)


def test_to_the_end_needs_a_proposer_that_can():
    to_the_end = tl.evaluators.Rollout(depth=None)
    for propose in ("sample", "propose", tl.WithTools(proposer=tl.Sample())):
        with pytest.raises(ValueError, match="depth=None needs a proposer that continues a reply"):
            tl.TreeOfThoughts(propose=propose, evaluate=to_the_end)
    with_tools = tl.WithTools(proposer=tl.proposers.Continue())
    assert tl.TreeOfThoughts(propose=with_tools, evaluate=to_the_end).max_calls(TASK)


def test_a_solution_that_the_model_has_ended_is_not_continued():
    """Nor one that states its answer. A step that is cut at the most tokens is."""
    texts = [("It is 4.", "stop", True), ("Answer: 4", "stop", False), ("Answer: 4", "length", None)]

    def reply(call):
        if call.purpose == "sample":
            text, finish, ended = texts[call.sample_index]
            return Reply(text, finish_reason=finish, ended=ended)
        return Reply("2", finish_reason="stop", ended=True)

    made = one_step(
        tl.evaluators.Rollout(samples=2, depth=None, evaluate=lambda task, path: 0.5),
        Scripted(reply),
        propose=tl.proposers.Continue(count=3),
    )
    assert {call.node for call in rollouts(made)} == {"0.2"}
    assert {node.score for node in made.tree if node.depth} == {0.5}


def test_steps_of_a_number_of_tokens_are_continued_within_the_text():
    seen = []

    def reply(call):
        return Reply("The su" if call.purpose == "sample" else "m is 4.", finish_reason="length")

    made = one_step(
        tl.evaluators.Rollout(depth=2, evaluate=lambda task, path: seen.append([*path]) or 0.5),
        Scripted(reply),
        propose=tl.proposers.Continue(count=1, tokens_per_step=2),
    )
    assert seen == [["The sum is 4.m is 4."]]
    assert [call.messages[-1].content for call in rollouts(made)] == ["The su", "The sum is 4."]


@pytest.mark.parametrize(
    "propose",
    [tl.Sample(count=2, max_parse_retries=2), tl.Propose(count=2, samples=2), tl.WithTools()],
    ids=lambda one: one.kind,
)
def test_the_calls_of_the_proposer_are_bounded(propose):
    strategy = tl.TreeOfThoughts(
        propose=propose,
        evaluate=tl.evaluators.Rollout(samples=2, depth=2, evaluate=lambda task, path: 0.5),
        stop=tl.Stop(depth=1, solved=None),
    )
    unread = Scripted(lambda call: "1. one" if call.purpose in ("sample", "propose") else " ")
    made = wait(tl.Lab(unread, runs=None, tools=[legs]).run(strategy, TASK))
    assert rollouts(made)
    assert made.usage.calls <= strategy.max_calls(TASK)
    refused = [e for e in made.events if isinstance(e, Reply) and e.error and e.error.startswith("limit:")]
    assert not refused


@pytest.mark.slow
def test_continuations_of_a_thought_are_one_request_if_the_server_takes_n(shared):
    shared.forget()
    rest = "Step 2: that is all of it.\n\nAnswer: 26"
    shared.will(Said("Step 1: count the legs.", output_tokens=6), Said((rest,) * 8, output_tokens=8 * 12))
    made = one_step(
        tl.evaluators.Rollout(samples=8, depth=None, evaluate=lambda task, path: 0.5),
        VLLM(model="rolls out", base_url=shared.base("openai"), api_key=""),
        propose=tl.proposers.Continue(count=1, separator="\n"),
    )
    assert [asked.n for asked in shared.calls] == [1, 8]
    assert len(rollouts(made)) == 8
    assert made.tree["0.0"].samples == (0.5,) * 8


# Published uses, on recorded trees.


def on_tree(tree, evaluate, search, depth):
    """A run on a recorded tree by steps that end at blank lines."""

    def reply(call):
        so_far = call.messages[-1].content if call.messages[-1].role == "assistant" else ""
        if call.stop:
            sample = GREEDY if call.temperature == 0 else call.sample_index
            text, end = tree.reply(so_far, sample)
        else:
            steps, end = tree.rest(so_far, f"rollout {call.attempt[-1]}")
            text = "\n\n".join(steps)
        return Reply(text, finish_reason="stop", ended=end == ENDED)

    strategy = tl.TreeOfThoughts(
        propose=tl.proposers.Continue(),
        evaluate=evaluate,
        search=search,
        stop=tl.Stop(solved=None, depth=depth),
    )
    return wait(tl.Lab(Scripted(reply), runs=None, mode="off").run(strategy, TASK))


def looks_ahead(number):
    """DVTS of search-and-learn with lookahead finds the same steps and scores."""
    one = case(number)
    tree = ReplyTree(number, one.tree.longest, one.tree.ends)

    async def reward(call):
        (path,) = (message.content for message in call.messages if message.role == "assistant")
        return str(tree.rewards(path.split("\n\n")))

    prm = tl.evaluators.RewardModel(
        model=reward, aggregate={"prod": "product"}.get(one.aggregate, one.aggregate), instruction=""
    )
    ahead = 1 + number % 3
    rollout = tl.evaluators.Rollout(depth=ahead, temperature=0.0, evaluate=prm)
    made = on_tree(tree, rollout, tl.searches.DVTS(subtrees=one.width, count=one.count), 7)
    published = PublishedDVTS(tree, 7, one.aggregate)
    published.lookahead = ahead
    published.run(one.width * one.count, one.count)
    assert not +published.differences
    levels = [
        sorted(begun(made.tree.texts(node.id)) for node in made.tree if node.depth == depth + 1)
        for depth in range(len(published.levels))
    ]
    assert levels == published.levels
    best = max((one.score for one in published.final), default=None)
    assert made.best.score == pytest.approx(best)


def labels(number):
    """The label of each step by Monte Carlo estimation is that of section 3.3 of Math-Shepherd."""
    tree = ReplyTree(number, 4, 0.2)
    gold = f"\\boxed{{{number % 4}}}"
    for aggregate, estimated in (("mean", lambda right: sum(right) / 5), ("max", max)):
        rollout = tl.evaluators.Rollout(
            samples=5, depth=None, aggregate=aggregate, evaluate=lambda task, path: float(gold in path[-1])
        )
        made = on_tree(tree, rollout, tl.BeamSearch(width=2), 3)
        assert len(made.tree) > 3
        for node in list(made.tree)[1:]:
            text, right = begun(made.tree.texts(node.id)), []
            for k in range(5):
                ends = BOX.search(text) is not None
                rest = text if ends else text + begun(tree.rest(text, f"rollout {k}")[0])
                right.append(float(gold in rest))
            assert node.score == pytest.approx(estimated(right))


@pytest.mark.parametrize("same", [looks_ahead, labels], ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    "trees", [range(4), pytest.param(range(200), marks=pytest.mark.proof)], ids=["few", "all"]
)
def test_on_recorded_trees_it_is_the_published_estimate(same, trees):
    for_each(trees, same)
