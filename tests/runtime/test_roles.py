"""Which model answers a call: the strategy's own, that of a role, or the lab's.

Whatever `Lab(model)` accepts, a strategy's `model` and a lab's roles accept too.
"""

import asyncio

import pytest

import tot_lab as tl

TASK = tl.general("Is a tomato a fruit?", answer="yes", grade="exact")


def wait(thinking):
    return asyncio.run(thinking)


async def lab_model(call):
    return "the lab's model"


async def yes(call):
    return "yes"


async def no(call):
    return "no"


def closure(text):
    async def model(call):
        return text

    return model


class Player(tl.Part):
    """A model with a setting."""

    kind = "roles_player"
    text: str

    async def __call__(self, call):
        return self.text


class Debate(tl.Strategy):
    """Two models argue in turn, and a third one decides. Only public names are used."""

    kind = "roles_debate"
    rounds: int = 2

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        spoken = []
        for turn in range(self.rounds):
            for side in ("pro", "con"):
                prompt = "\n".join([task.question, *spoken, f"Argue {side}."])
                message = tl.records.Message("user", prompt)
                reply = yield tl.Call(at, "argue", (message,), turn, model=side)
                spoken.append(f"{side}: {reply.text}")
        message = tl.records.Message("user", "\n".join([task.question, *spoken, "Who is right?"]))
        reply = yield tl.Call(at, "answer", (message,))
        return tl.Answer(reply.text.split()[-1], stop_reason="answered")


def test_a_debate_of_two_models():
    async def arguing(call):
        return "it has seeds"

    async def judge(call):
        assert "pro: it has seeds\ncon: no" in call.messages[-1].content
        return "The answer is yes"

    lab = tl.Lab(judge, roles={"pro": arguing, "con": tl.Role(model=no, temperature=0.2)}, runs=None)
    run = wait(lab.run(Debate(), TASK))
    assert (run.answer, run.correct) == ("yes", True)
    calls = [event for event in run.events if isinstance(event, tl.Call)]
    assert [call.temperature for call in calls] == [None, 0.2, None, 0.2, None]
    assert wait(run.replay()).identical


@pytest.mark.parametrize("model", [yes, Player(text="yes"), closure("yes")])
def test_a_strategy_and_a_role_accept_what_a_lab_accepts(model, tmp_path):
    lab = tl.Lab(lab_model, roles={"second": model}, runs=tmp_path)
    assert wait(tl.Lab(model, runs=None).run(tl.OneAnswer(), TASK)).answer == "yes"
    for strategy in (tl.OneAnswer(model=model), tl.OneAnswer(model="second")):
        run = wait(lab.run(strategy, TASK))
        assert run.answer == "yes"
        loaded = tl.load(run.path)
        assert wait(loaded.replay()).identical
        assert loaded.header.strategy == strategy.settings()
    assert wait(lab.run(tl.OneAnswer(), TASK)).answer == "the lab's model"


def test_each_part_of_a_strategy_may_have_its_own_model():
    both = tl.SelfConsistency(strategy=tl.ChainOfThought(model=Player(text="Answer: no")), attempts=3)
    assert wait(tl.Lab(yes, runs=None).run(both, TASK)).answer == "no"


def test_models_are_swept_like_any_other_setting():
    settings = tl.grid(tl.OneAnswer(), model=[Player(text="yes"), Player(text="no"), None])
    sweep = wait(tl.Lab(lab_model, runs=None).sweep(settings, [TASK]))
    assert [run.answer for run in sweep.runs()] == ["yes", "no", "the lab's model"]


def test_a_purpose_is_a_role_too():
    lab = tl.Lab(lab_model, roles={"answer": no}, runs=None)
    assert wait(lab.run(tl.OneAnswer(), TASK)).answer == "no"
    assert wait(lab.run(tl.OneAnswer(model=yes), TASK)).answer == "yes"  # the strategy's model comes first


class Rated(tl.Prompting):
    """Answers with a rating by a rubric."""

    kind = "rated_by_rubric"

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        reply = yield from tl.ask(self.call(at, "evaluate:rubric", task.question))
        return tl.Answer(reply.text, "answered", at)


def test_a_purpose_of_ones_own_may_name_its_role():
    for roles, answer in (
        ({"evaluate": no}, "no"),
        ({"evaluate": no, "evaluate:rubric": yes}, "yes"),
        ({"propose": no}, "the lab's model"),
    ):
        assert wait(tl.Lab(lab_model, roles=roles, runs=None).run(Rated(), TASK)).answer == answer


def test_a_misspelt_role_is_refused():
    with pytest.raises(ValueError, match="unknown role 'evalute'; did you mean 'evaluate'"):
        tl.Lab(lab_model, roles={"evalute": yes})


def test_what_is_not_a_model_is_refused_before_the_run():
    lab = tl.Lab(lab_model, runs=None)
    with pytest.raises(TypeError, match=r"model must be a name.*General"):
        wait(lab.run(tl.OneAnswer(model=tl.domains.General()), TASK))
    with pytest.raises(ValueError, match="model"):
        tl.OneAnswer(model=3)
    assert lab.last is None


def test_functions_that_look_alike_are_not_confused():
    two = tl.BestOf(strategy=tl.OneAnswer(model=closure("yes")), attempts=2, model=closure("1.0"))
    with pytest.raises(ValueError, match=r"Two different functions .*have the same source"):
        wait(tl.Lab(lab_model, runs=None).run(two, TASK))


def test_a_function_whose_source_does_not_identify_it_is_not_cached(tmp_path):
    for roles, strategy in (
        ({"second": closure("yes")}, tl.OneAnswer()),
        ({}, tl.OneAnswer(model=closure("yes"))),
    ):
        with pytest.raises(ValueError, match="cannot be cached"):
            wait(tl.Lab(yes, roles=roles, cache=tmp_path / "cache", runs=tmp_path).run(strategy, TASK))
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_loaded_strategy_needs_its_function_again(tmp_path):
    run = wait(tl.Lab(lab_model, runs=tmp_path).run(tl.OneAnswer(model=yes), TASK))
    strategy = tl.load(run.path).strategy
    with pytest.raises(LookupError, match=r"test_roles\.yes"):
        wait(tl.Lab(lab_model, runs=None).run(strategy, TASK))


def test_the_key_of_a_strategys_model_is_not_recorded(tmp_path):
    key = "sk-" + "k" * 40
    model = tl.LiteLLM(model="openai/x", api_base="http://127.0.0.1:9", api_key=key, retries=0)
    run = wait(tl.Lab(lab_model, runs=tmp_path, mode="off").run(tl.OneAnswer(model=model), TASK))
    assert run.stop_reason == "error"
    assert key not in run.path.read_text() + repr(run) + repr(run.strategy)
