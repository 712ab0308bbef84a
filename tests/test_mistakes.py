"""The mistakes a newcomer makes get an error that says what to do."""

import pytest
from pydantic import ValidationError
from support import TASK, Scripted, run, wait

import tot_lab as tl


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tl.TreeOfThoughts(beam=3), "no setting 'beam'; did you mean 'beam_width'"),
        (lambda: tl.SelfConsistency(n=5), "no setting 'n'"),
        (lambda: tl.TreeOfThoughts(traversal="bfs"), "known are beam, best_first, depth_first"),
        (lambda: tl.TreeOfThoughts(traversal=tl.Beam), r"is a class; give a value, such as Beam\(\)"),
        (lambda: tl.TreeOfThoughts(traversal="game24"), "unknown kind 'game24'"),
        (lambda: tl.BestOf(strategy=tl.OneAnswer), r"such as OneAnswer\(\)"),
    ],
)
def test_wrong_settings(make, says):
    with pytest.raises(ValidationError, match=says):
        make()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"strategy": tl.TreeOfThoughts}, r"strategy must be a Strategy such as tl.TreeOfThoughts\(\)"),
        ({"task": "What?"}, "task must be a Task such as tl.general"),
        ({"budget": 10}, r"budget must be a Budget such as tl.Budget\(calls=60\), not 10"),
        ({"repeat": -1}, "repeat must be 0 or more"),
    ],
)
def test_wrong_things_to_run(wrong, says):
    asked = {"strategy": tl.OneAnswer(), "task": TASK, **wrong}
    lab = tl.Lab(Scripted(), runs=None)
    with pytest.raises((TypeError, ValueError), match=says):
        wait(lab.run(asked.pop("strategy"), asked.pop("task"), **asked))
    assert lab.last is None


def test_wrong_models():
    with pytest.raises(ValueError, match=r"unknown simulated model 'sim/gaem24'; did you mean 'sim/game24'"):
        tl.Lab("sim/gaem24")
    with pytest.raises(
        ValueError, match=r"'qwen' is neither known \(smollm2-135m, .*\) nor the path of a .gguf"
    ):
        tl.Lab("local/qwen")
    with pytest.raises(ValueError, match="the model's name is empty"):
        tl.Lab(" ")
    with pytest.raises(TypeError, match="not the class SimGame24"):
        tl.Lab(tl.SimGame24)
    with pytest.raises(ValueError, match="timeout"):
        tl.Lab("sim/game24", timeout=0)


def test_a_failing_model_says_why_on_the_card():
    def no_route(call):
        raise ConnectionError("no route to host")

    for model, why in [
        (Scripted(no_route), "ConnectionError: no route to host"),
        (lambda call: "x", "must be async"),
    ]:
        failed = run(tl.OneAnswer(), model=model)
        assert why in repr(failed)
        assert why in failed._repr_html_()


def test_a_function_stands_for_a_traversal_and_must_return_ids():
    assert tl.TreeOfThoughts(traversal=lambda tree, frontier: frontier).traversal.kind == "function_traversal"
    for returned in (None, "0.1", 3):
        with pytest.raises(TypeError, match="must return a list of ids"):
            run(tl.TreeOfThoughts(traversal=lambda tree, frontier, returned=returned: returned))


def test_a_forgotten_await():
    coroutine = tl.Lab(Scripted(), runs=None).run(tl.OneAnswer(), TASK)
    with pytest.raises(TypeError, match=r"not coroutine; was `await` forgotten"):
        tl.plot_tree(coroutine)
    coroutine.close()


def test_a_stream_is_one_run():
    async def twice():
        stream = tl.Lab(Scripted(), runs=None).stream(tl.OneAnswer(), TASK)
        assert [event async for event in stream]
        with pytest.raises(RuntimeError, match=r"ask lab.stream for another"):
            [event async for event in stream]

    wait(twice())


def test_a_domain_that_cannot_says_what_it_lacks():
    class Half(tl.Domain):
        kind = "tests/half"

    task = tl.Task(domain=Half(), question="?")
    with pytest.raises(NotImplementedError, match="'tests/half' has no answer_prompt"):
        run(tl.OneAnswer(), task)


def test_a_part_shows_what_differs_from_its_defaults():
    assert repr(tl.TreeOfThoughts(beam_width=5)) == "TreeOfThoughts(beam_width=5)"
    assert repr(tl.Lab("sim/game24", runs=None)) == "Lab('sim/game24', runs=None)"
