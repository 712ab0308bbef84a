"""A task's system prompt: it stands before every model call of a run, and all that makes one again agrees."""

import json

import pytest
from support import STRATEGIES, TASK, Scripted, mostly_nightly, wait
from support.contract import FIRST
from support.providers import FAMILIES, MODELS, Said

import tot_lab as tl
from tot_lab.core.calls import Message, Reply
from tot_lab.core.tools import TOOL
from tot_lab.models.keys import request_of
from tot_lab.testing import PROMISES, Trial, legs
from tot_lab.views.explorer.cell import cell
from tot_lab.views.explorer.recording import Recording

WORDS = "Count in eights. ✓"
TOLD = TASK.model_copy(update={"system_prompt": WORDS})
INNER = {"strategy": tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2))}
NEEDED = {
    tl.BestOf: INNER,
    tl.WithThinking: {"strategy": tl.ReAct(), "level": "low", "reflect_every": 2},
    tl.WithSynthesis: {"strategy": tl.ReAct(), "synthesis": "deep", "above": 0},
}
EVERY = [kind(**NEEDED.get(kind, {})) for kind in STRATEGIES]


def asked(made):
    return [call for call in made.events if isinstance(call, tl.Call) and call.purpose != TOOL]


@pytest.mark.parametrize("strategy", EVERY, ids=lambda made: made.kind)
def test_it_stands_first_in_each_model_call_of_any_strategy(strategy):
    made = Trial(strategy, TOLD).run()
    assert asked(made)
    for call in asked(made):
        first, *rest = call.messages
        assert first.role == "system"
        assert first.content == WORDS or first.content.startswith(f"{WORDS}\n\n")
        assert "system" not in {message.role for message in rest}
    for call in (call for call in made.events if isinstance(call, tl.Call) and call.purpose == TOOL):
        assert [message.role for message in call.messages] == ["user"]


def test_a_calls_own_system_prompt_follows_in_the_same_message():
    (call,) = asked(Trial(tl.WithThinking(strategy=tl.ChainOfThought(), level="high"), TOLD).run())
    first, last = call.messages
    assert first.content.startswith(f"{WORDS}\n\n## Thinking\n\n")
    assert last.role == "user"

    class Bare(tl.Prompting):
        """Asks with no message at all."""

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            reply = yield from tl.ask(tl.Call(at, "answer", ()))
            return tl.Answer(reply.text, "answered")

    (call,) = asked(Trial(Bare(), TOLD).run())
    assert call.messages == (Message("system", WORDS),)


@pytest.mark.parametrize("strategy", EVERY, ids=lambda made: made.kind)
def test_an_empty_one_changes_nothing_and_is_not_written(strategy):
    empty = TASK.model_copy(update={"system_prompt": ""})
    assert "system_prompt" not in TASK.settings()
    assert empty.settings() == TASK.settings()
    made = Trial(strategy, empty).run()
    assert "system_prompt" not in made.header.task
    wrapped = isinstance(strategy, tl.WithThinking)
    assert {call.messages[0].role for call in asked(made)} == {"system" if wrapped else "user"}


PROMISED = [
    tl.ReAct(),
    tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2)),
    tl.PlanExecute(),
    EVERY[-2],
]


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", PROMISED, ids=lambda made: made.kind)
@pytest.mark.parametrize("promise", mostly_nightly(PROMISES, FIRST), ids=lambda promise: promise.__name__)
def test_with_it_a_strategy_keeps_what_it_promises(promise, strategy):
    promise(Trial(strategy, TOLD))


@pytest.mark.slow
def test_record_replay_resume_and_estimate_agree(tmp_path):
    roles = {"evaluate": tl.Role(temperature=0.0)}

    def lab():
        return tl.Lab("sim/general", runs=tmp_path, cache=tmp_path / "calls", roles=roles)

    strategy = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2))
    made = wait(lab().run(strategy, TOLD))
    assert {call.temperature for call in asked(made) if call.purpose == "value"} == {0.0}
    loaded = tl.load(made.path)
    assert loaded.task == TOLD.model_copy(update={"tools": ()})
    assert wait(loaded.replay()).identical
    assert wait(made.replay()).identical  # out of the cache
    estimate = wait(lab().estimate(strategy, TOLD))
    assert (estimate.cached, estimate.whole) == (made.usage.calls, True)
    assert not wait(lab().estimate(strategy, TASK)).cached  # another question
    assert request_of(asked(made)[0], {}).key != request_of(asked(Trial(strategy).run())[0], {}).key
    lines = made.path.read_bytes().splitlines(keepends=True)
    for cut in range(1, len(lines), 5):
        path = tmp_path / f"cut-{cut}.jsonl"
        path.write_bytes(b"".join(lines[:cut]))
        assert wait(lab().resume(path)).events == made.events
    again = wait(lab().replaying().run(strategy, TOLD))
    assert again.events == made.events


def test_branches_counterfactuals_and_matched_cost_agree():
    strategy = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2))
    model = Scripted()
    lab = tl.Lab(model, runs=None)
    made = wait(lab.run(strategy, TOLD))
    would = tl.counterfactual(made, strategy)
    assert (would.whole, would.run.events) == (True, made.events)
    points = tl.stats.anytime_performance(made, at=[2, made.usage.calls])
    assert points["calls"].tolist() == [2, made.usage.calls]
    assert points["answer"].tolist()[-1] == made.answer
    before = len(model.calls)
    for branch in (
        wait(lab.branch(made, "0.0", content="Eight and eight.")),
        wait(lab.branch(made, "0.0", strategy=tl.OneAnswer())),
    ):
        assert all(call.messages[0] == Message("system", WORDS) for call in asked(branch))
    assert len(model.calls) > before


def test_a_sweep_knows_two_prompts_apart(tmp_path):
    sweep = wait(tl.Lab(Scripted(), runs=tmp_path).sweep(tl.OneAnswer(), [TASK, TOLD]))
    prompts = [run.calls_df()["prompt"][0] for run in sweep.runs()]
    assert [prompt.startswith(WORDS) for prompt in prompts] == [False, True]


def test_it_is_shown_like_any_message():
    made = Trial(tl.OneAnswer(), TOLD).run()
    recording = Recording()
    recording.extend(made.lines)
    (call,) = recording.details("0")["calls"]
    assert call["prompt"][0] == {"role": "system", "content": WORDS}
    assert made.calls_df()["prompt"][0].startswith(f"{WORDS}\n\n")


def test_a_question_takes_it_and_the_panels_code_writes_it():
    task = tl.general("How many?", system_prompt=WORDS)
    lab = tl.Lab("sim/general", runs=None)
    assert f'tl.general("How many?", system_prompt="{WORDS}")' in cell(lab, tl.OneAnswer(), task, None)
    hand = tl.game24("4 5 6 10").model_copy(update={"system_prompt": WORDS})
    assert f'system_prompt="{WORDS}"' in cell(lab, tl.OneAnswer(), hand, None)
    with pytest.raises(ValueError, match="system_prompt"):
        tl.general("How many?", system_prompt="\ud800")


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("sim/game24", tl.game24("4 5 6 10")),
        ("sim/agent", tl.domains.word_sums(2)),
        ("sim/agent", tl.domains.multi_hop(2)),
        ("sim/mini_crossword", tl.domains.mini_crossword(1)),
        ("sim/creative_writing", tl.domains.creative_writing(1)),
        ("sim/constrained", tl.domains.constrained(2)),
    ],
)
def test_simulated_models_know_the_problem_below_it(name, task):
    told = task.model_copy(update={"system_prompt": "You solve problems. Be terse."})
    lab = tl.Lab(name, runs=None)
    for strategy in (
        tl.TreeOfThoughts(propose=tl.Propose(count=2), stop=tl.Stop(depth=2)),
        tl.ChainOfThought(),
    ):
        plain, made = (wait(lab.run(strategy, one)) for one in (task, told))
        known = plain.diagnostics["unreadable_replies"] + plain.diagnostics["unreadable_thoughts"]
        assert made.diagnostics["unreadable_replies"] + made.diagnostics["unreadable_thoughts"] <= known + 2
        assert bool(made.answer) == bool(plain.answer)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_each_provider_is_sent_it(shared, family):
    shared.forget()
    shared.will(Said("Answer: 26"))
    model = tl.LiteLLM(model=MODELS[family], api_base=shared.base(family), api_key="sk-1")
    lab = tl.Lab(model, runs=None, mode="off")
    strategy = tl.WithThinking(strategy=tl.ChainOfThought(), level="low")
    made = wait(lab.run(strategy, TASK.model_copy(update={"system_prompt": "Count in eights."})))
    assert (made.answer, made.usage.errors) == ("26", 0)
    (request,) = [request.json for request in shared.asked if request.family == family]
    sent = json.dumps(request)
    assert sent.count("Count in eights.") == 1
    assert sent.index("Count in eights.") < sent.index("## Thinking") or family in ("anthropic", "gemini")
    roles = [message["role"] for message in request.get("messages", [])]
    assert roles.count("system") <= 1


def test_a_model_of_ones_own_is_given_it():
    def reply(call):
        return Reply(f"Answer: {call.messages[0].content}")

    made = wait(tl.Lab(Scripted(reply), runs=None, tools=[legs]).run(tl.OneAnswer(), TOLD))
    assert made.answer == WORDS
