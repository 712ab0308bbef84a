"""Parts: settings go to JSON and come back equal; nothing is guessed, imported or run on the way."""

import json
import subprocess
import sys
from typing import ClassVar

import pytest
from support import AXES, DOMAINS, STRATEGIES

import tot_lab as tl
from tot_lab.core.parts import REGISTRY, Part, UserFunction, needs_functions, part_of
from tot_lab.core.registry import built_in
from tot_lab.domains.gym import Gym
from tot_lab.models.chat.served import ServedModel
from tot_lab.models.tiny.endpoint import Tiny
from tot_lab.strategies.acting import ToolLimits

MODELS = list(dict.fromkeys(built_in("models").values()))

NEEDED = {
    tl.BestOf: {"strategy": tl.OneAnswer()},
    tl.WithThinking: {"strategy": tl.OneAnswer()},
    tl.WithSynthesis: {"strategy": tl.OneAnswer()},
    tl.LiteLLM: {"model": "gpt-4.1-mini"},
    Gym: {"family": "countdown"},
    tl.Local: {"weights": "smollm2-135m"},
    Tiny: {"weights": "numbers"},
    **{kind: {"model": "qwen3"} for kind in MODELS if issubclass(kind, tl.OpenAICompatible)},
}
NEEDED |= {kind: {"model": "m"} for kind in MODELS if issubclass(kind, ServedModel)}
MADE = [kind(**NEEDED.get(kind, {})) for kind in (*STRATEGIES, *AXES, *DOMAINS, *MODELS)]
MADE += [
    tl.TreeOfThoughts(
        search=tl.BestFirst(batch=3, width=2), budget=tl.Budget(calls=7, usd=0.5), model="m", temperature=0.3
    ),
    tl.TreeOfThoughts(
        propose=tl.Sample(prompt="{problem} é ✓"), search=tl.DepthFirst(prune_below=0.25, width=2)
    ),
    tl.TreeOfThoughts(search=tl.MCTS(iterations=4, width=2), stop=tl.Stop(solved=None, min_score=0.1)),
    tl.BestOf(
        strategy=tl.SelfConsistency(strategy=tl.TreeOfThoughts(search=tl.MCTS(width=2)), attempts=2),
        attempts=3,
    ),
    tl.domains.General(grading="regex"),
    tl.presets.beam_search(),
    tl.presets.state_machine(),
    tl.presets.game24(),
    tl.presets.mini_crossword(),
    tl.presets.creative_writing(),
]


@pytest.fixture
def kinds():
    """Lets a test register kinds of its own, and forgets them."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.mark.parametrize("part", MADE, ids=lambda part: part.kind)
def test_settings_come_back_from_json_equal(part):
    text = json.dumps(part.settings(), allow_nan=False)
    again = part_of(json.loads(text))
    assert again == part
    assert type(again) is type(part)
    assert again.settings() == part.settings()
    shown = {name for name, field in type(part).model_fields.items() if not field.exclude}
    unset = {name for name in ToolLimits.model_fields if getattr(part, name, "") is None}
    assert set(part.settings()) == {"kind", *shown} - unset
    assert set(type(part).model_fields) - shown <= {"api_key"}  # a secret, and nothing else


def test_nested_parts_are_written_whole():
    settings = tl.BestOf(strategy=tl.TreeOfThoughts(search=tl.BestFirst(batch=2, width=2))).settings()
    assert settings["strategy"]["search"] == {"kind": "best_first", "batch": 2, "width": 2}


def test_kinds_are_distinct():
    kinds = [part.kind for part in (*STRATEGIES, *AXES, *DOMAINS, *MODELS)]
    assert len(set(kinds)) == len(kinds)
    assert all(REGISTRY[kind.kind] is kind for kind in (*STRATEGIES, *AXES, *DOMAINS, *MODELS))


@pytest.mark.parametrize("part", MADE, ids=lambda part: part.kind)
def test_a_part_is_frozen(part):
    for name in type(part).model_fields:
        with pytest.raises(AttributeError, match=f"cannot be changed: got a value for {name!r}"):
            setattr(part, name, None)


@pytest.mark.parametrize("part", MADE, ids=lambda part: part.kind)
def test_an_unknown_field_is_refused_by_name(part):
    with pytest.raises(ValueError, match="beam_widht"):
        part_of({**part.settings(), "beam_widht": 3})


@pytest.mark.parametrize("kind", ["no_such", "", None, 3, ["tree_of_thoughts"], {}])
def test_an_unknown_kind_is_refused_with_those_known(kind):
    with pytest.raises(ValueError, match=r"unknown kind .*tree_of_thoughts"):
        part_of({"kind": kind})


def test_settings_without_a_kind_are_refused():
    with pytest.raises(ValueError, match="settings must be a dict such as"):
        part_of({"propose": "sample"})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "tree_of_thoughts", "propose": {"kind": "sample", "count": 0}}, "propose.*count"),
        ({"kind": "tree_of_thoughts", "propose": {"kind": "sample", "count": "many"}}, "propose.*count"),
        ({"kind": "tree_of_thoughts", "stop": {"depth": 1001}}, "stop.*depth"),
        ({"kind": "tree_of_thoughts", "stop": {"min_score": float("nan")}}, "stop.*min_score"),
        ({"kind": "tree_of_thoughts", "temperature": -1}, "temperature"),
        ({"kind": "tree_of_thoughts", "propose": "guess"}, "propose.*guess"),
        (
            {"kind": "tree_of_thoughts", "evaluate": {"kind": "value", "prompt": "{steps}"}},
            "evaluate.*prompt",
        ),
        ({"kind": "tree_of_thoughts", "search": {"kind": "best_first", "batch": 0}}, "search.*batch"),
        ({"kind": "tree_of_thoughts", "search": "no_such"}, "no_such"),
        ({"kind": "tree_of_thoughts", "search": {"kind": "one_answer"}}, "one_answer"),
        ({"kind": "tree_of_thoughts", "budget": {"calls": -1}}, "budget.calls"),
        ({"kind": "best_of"}, "strategy"),
        ({"kind": "best_of", "strategy": {"kind": "beam"}}, "beam"),
        ({"kind": "mcts", "exploration": float("inf")}, "exploration"),
        ({"kind": "general", "grading": "taste"}, "grading"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(settings, named):
    with pytest.raises(ValueError, match=f"(?s){named}"):
        part_of(settings)


def test_a_kind_of_another_module_is_taken(kinds):
    with pytest.raises(
        TypeError, match=r"kind 'beam' .* is taken by tot_lab\.strategies\.search\.beam_search\.BeamSearch"
    ):

        class Beam(Part):
            pass


def test_a_class_defined_again_in_its_module_replaces_itself(kinds):
    # A notebook cell that is run twice does this.
    for default in (1, 2):

        class Mine(Part):
            number: int = default

    assert part_of({"kind": "mine"}).number == 2


def test_bases_are_no_kinds(kinds):
    class _Hidden(Part):
        pass

    class Base(Part):
        kind: ClassVar[str] = ""

    assert "hidden" not in REGISTRY
    assert "_hidden" not in REGISTRY
    assert "" not in REGISTRY


def test_a_kind_without_settings_may_be_given_by_name():
    assert tl.TreeOfThoughts(search="mcts").search == tl.MCTS()


# A person's own functions.


def judge(task, path):
    return 0.5


def test_a_function_is_recorded_by_module_name_and_source():
    evaluator = tl.TreeOfThoughts(evaluate=judge).settings()["evaluate"]
    assert evaluator["kind"] == "function_evaluator"
    settings = evaluator["function"]
    assert settings["kind"] == "function"
    assert (settings["module"], settings["name"]) == (__name__, "judge")
    assert len(settings["source_sha256"]) == 64
    assert evaluator != tl.TreeOfThoughts(evaluate=lambda task, path: 0.5).settings()["evaluate"]


def test_functions_are_told_apart_by_their_own_text_and_plain_defaults():
    def same(one, other):
        return UserFunction.of(one).source_sha256 == UserFunction.of(other).source_sha256

    # fmt: off
    _, blind, perfect, both = "é", lambda task, path: 0.5, lambda task, path: float(bool(path)), (
        lambda task, path: [
            0.5], lambda task, path: [
            0.25])
    a, b = (lambda task, path: task), (lambda path, task: task)
    # fmt: on
    assert not same(blind, perfect)
    assert not same(*both), "they differ in their second line"
    assert not same(a, b), "they differ in the order of their parameters"
    assert not same(*[lambda task, path, w=w: w for w in (0.5, 1.0)])
    assert same(*[lambda task, path, w=w: w for w in (0.5, 0.5)])
    again = lambda task, path: 0.5  # noqa: E731
    assert same(blind, again), "what stands beside a lambda is not of it"


@pytest.mark.parametrize(
    "function", [len, dict.get, judge, str.upper], ids=["builtin", "method", "own", "slot"]
)
def test_a_function_with_or_without_source_is_a_setting(function):
    settings = UserFunction.of(function).settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings["name"]


def test_a_callable_object_is_a_setting():
    class Judge:
        def __call__(self, task, path):
            return 0.25

    made = tl.TreeOfThoughts(evaluate=Judge())
    assert made.evaluate.function.name.endswith("Judge")
    assert made.evaluate.function(None, []) == 0.25


def test_a_function_from_a_file_is_not_imported_and_says_so_when_called():
    loaded = part_of(json.loads(json.dumps(tl.TreeOfThoughts(evaluate=judge).settings())))
    assert not loaded.evaluate.function.callable
    assert needs_functions(loaded) == [f"{__name__}.judge"]
    with pytest.raises(LookupError, match=rf"'judge' of '{__name__}'.*pass the function again"):
        loaded.evaluate.function(None, [])
    assert loaded.settings() == tl.TreeOfThoughts(evaluate=judge).settings()


def test_functions_are_found_however_deep_they_lie():
    inner = tl.TreeOfThoughts(
        search=tl.searches.FunctionSearch(function=lambda tree, frontier: frontier[:1], width=2)
    )
    made = tl.BestOf(strategy=tl.SelfConsistency(strategy=inner), evaluate=judge)
    assert needs_functions(made) == []
    assert isinstance(inner.search, tl.searches.FunctionSearch)
    loaded = part_of(json.loads(json.dumps(made.settings())))
    assert len(needs_functions(loaded)) == 2


@pytest.mark.slow
def test_reading_settings_imports_nothing(tmp_path):
    (tmp_path / "evil_part.py").write_text("open('imported', 'w').close()\ndef judge(task, path): return 1\n")
    settings = {
        "kind": "tree_of_thoughts",
        "evaluate": {"kind": "function", "module": "evil_part", "name": "judge"},
    }
    code = (
        "import json, sys; from tot_lab import part_of; "
        f"part = part_of(json.loads({json.dumps(settings)!r})); "
        "assert not part.evaluate.function.callable; assert 'evil_part' not in sys.modules"
    )
    package = str(__import__("pathlib").Path(tl.__file__).parent.parent)
    environ = {"PYTHONPATH": f"{tmp_path}:{package}", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environ, check=True, timeout=30)
    assert not (tmp_path / "imported").exists()


def test_t8_presets_take_overrides():
    assert tl.presets.beam_search({"stop.depth": 4}).stop.depth == 4
    with pytest.raises(ValueError, match=r"stop\.depth"):
        tl.presets.beam_search({"stop.depth": 0})
    with pytest.raises(ValueError, match="max_dept"):
        tl.presets.beam_search(max_dept=4)


def test_t8_settings_have_a_validated_copy():
    search = tl.TreeOfThoughts()
    assert search.with_({"stop.depth": 4}) == tl.TreeOfThoughts(stop=tl.Stop(depth=4))
    with pytest.raises(ValueError, match=r"stop\.depth"):
        search.with_({"stop.depth": 0})


@pytest.mark.parametrize("update", [{"stop.depth": 0}, {"max_dept": 4}])
def test_t8_an_unvalidated_copy_of_settings_is_refused(update):
    with pytest.raises(ValueError, match=next(iter(update))):
        tl.TreeOfThoughts().model_copy(update=update)


@pytest.mark.parametrize(("name", "search"), [("bfs", "breadth_first"), ("dfs", "depth_first")])
def test_m1_the_designs_names_of_searches_are_accepted(name, search):
    assert tl.TreeOfThoughts(search=name) == tl.TreeOfThoughts(search=search)


def test_r12_the_designs_names_of_settings_are_accepted():
    """They are names of settings that exist, which alone are recorded."""
    then_act, reflexion = tl.TreeThenAct, tl.Reflexion
    for made, same in [
        (then_act(breadth=2), then_act(propose=tl.Propose(count=2))),
        (then_act(breadth=2, propose="sample"), then_act(propose=tl.Sample(count=2))),
        (
            then_act(breadth=2, propose={"kind": "propose", "samples": 3}),
            then_act(propose=tl.Propose(count=2, samples=3)),
        ),
        (then_act(depth=2, pruning_threshold=0.4), then_act(max_depth=2, min_score=0.4)),
        (then_act(depth=2).with_(depth=4, breadth=1), then_act(max_depth=4, propose=tl.Propose(count=1))),
        (reflexion(kernel_max_iterations=2), reflexion(strategy=tl.ReAct(max_iterations=2))),
        (
            reflexion(strategy=tl.ReAct(parallel=False), kernel_max_iterations=2),
            reflexion(strategy=tl.ReAct(parallel=False, max_iterations=2)),
        ),
        (
            tl.PlanExecute(step_kernel_max_iterations=2),
            tl.PlanExecute(strategy=tl.ReAct(max_iterations=2)),
        ),
        (reflexion().with_(kernel_max_iterations=7), reflexion(strategy=tl.ReAct(max_iterations=7))),
        (reflexion(self_critique_depth="shallow"), reflexion(critique_depth="shallow")),
        (
            part_of({"kind": "tree-of-thought", "breadth": 2, "max_depth": 4}),
            then_act(breadth=2, max_depth=4),
        ),
    ]:
        assert made == same
        assert made.settings() == same.settings()
    assert tl.grid(then_act(depth=2), breadth=[1, 2], depth=[3]) == [
        then_act(breadth=count, depth=3) for count in (1, 2)
    ]


def test_r12_a_name_of_a_setting_that_is_not_there_is_refused():
    for kind, settings, why in [
        (tl.Reflexion, {"strategy": tl.OneAnswer(), "kernel_max_iterations": 2}, "OneAnswer has no setting"),
        # Deep Think has iterations too, but of another kind.
        (tl.Reflexion, {"strategy": tl.DeepThink(), "kernel_max_iterations": 2}, "DeepThink has no setting"),
        (tl.Reflexion, {"kernel_max_iterations": 0}, "greater than or equal to 1"),
        (tl.TreeThenAct, {"breadth": 0}, "greater than or equal to 1"),
        (tl.TreeThenAct, {"depth": 2, "max_depth": 2}, "depth is another name of max_depth"),
        (tl.TreeOfThoughts, {"kernel_max_iterations": 2}, "no setting 'kernel_max_iterations'"),
        (tl.PlanExecute, {"kernel_max_iterations": 2}, "no setting 'kernel_max_iterations'"),
    ]:
        with pytest.raises(ValueError, match=why):
            kind(**settings)


def test_tools_keep_the_names_of_version_0_1_0_in_cache_keys():
    """Recorded results would not be found under other keys."""
    assert tl.tools.Calculator().identity()["most_characters"] == 20_000
    assert tl.tools.Python().identity()["written"] == 10
