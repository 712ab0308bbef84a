"""Every option of the designs works in its preset by its own name, and the docstring says what it is here."""

import re

import pytest
from support import TASK

import tot_lab as tl

POLICY = tl.EffectPolicy(mode="deny_all")

BEAM = {
    "branch_factor": (4, "propose.count"),
    "max_depth": (5, "stop.depth"),
    "beam_width": (7, "search.width"),
    "solved_threshold": (0.9, "stop.solved"),
    "min_score": (0.25, "stop.min_score"),
    "parallel": (False, "parallel"),
    "proposer_prompt": ("P {problem}", "propose.prompt"),
    "evaluator_prompt": ("E {problem} {candidate}", "evaluate.prompt"),
}

MACHINE = {
    "model": ("sim/general", "model"),
    "branching_factor": (4, "propose.count"),
    "max_depth": (5, "stop.depth"),
    "traversal_strategy": ("dfs", "search", tl.DepthFirst()),
    "beam_width": (7, "search.width"),
    "generation_prompt": ("P {problem}", "propose.prompt"),
    "evaluation_prompt": ("E {problem} {candidates}", "evaluate.prompt"),
    "max_parse_retries": (3, "propose.max_parse_retries"),
    "top_k": (9, "answer.top_k"),
    "min_depth": (3, "stop.min_depth"),
    "max_nodes": (50, "stop.nodes"),
    "max_duration_ms": (1500, "budget.seconds", 1.5),
    "early_success_threshold": (0.8, "stop.solved"),
    "convergence_window": (4, "stop.patience", 3),
    "min_score_improvement": (0.1, "stop.min_improvement"),
    "tools": (["calculator"], "propose.tools", ("calculator",)),
    "tool_timeout_ms": (15_000, "propose.tool_timeout", 15.0),
    "tool_max_retries": (2, "propose.tool_retries"),
    "tool_retry_backoff_ms": (200, "propose.tool_backoff", 0.2),
    "max_tool_round_trips": (5, "propose.max_round_trips"),
    "effect_policy": (POLICY, "propose.effect_policy"),
    "strategy_effect_policy": (POLICY, "propose.effect_policy"),
}

DEEP_THINK = {
    "max_iterations": (2, "max_iterations"),
    "num_branches": (4, "num_branches"),
    "beam_width": (1, "beam_width"),
    "temperature": (0.2, "temperature"),
    "model": ("sim/general", "model"),
}

PRESETS = {
    tl.presets.beam_search: BEAM,
    tl.presets.state_machine: MACHINE,
    tl.presets.deep_think_quick: DEEP_THINK,
    tl.presets.deep_think_balanced: DEEP_THINK,
    tl.presets.deep_think_thorough: DEEP_THINK,
    tl.presets.deep_think_maximum: DEEP_THINK,
}
OPTIONS = [
    (preset, name, option[0], option[1], option[-1] if len(option) > 2 else option[0])
    for preset, options in PRESETS.items()
    for name, option in options.items()
]

AGENTS = {
    tl.ReAct: {"maxIterations": (5, "max_iterations")},
    tl.Reflexion: {
        "maxRetries": (1, "max_retries"),
        "selfCritiqueDepth": ("shallow", "critique_depth"),
        "kernelMaxIterations": (2, "strategy.max_iterations"),
        "priorCritiques": (["Check."], "prior_critiques"),
    },
    tl.PlanExecute: {
        "maxRefinements": (1, "max_refinements"),
        "reflectionDepth": ("shallow", "reflection_depth"),
        "stepRetries": (3, "step_retries"),
        "stepKernelMaxIterations": (2, "strategy.max_iterations"),
        "planMode": ("dag", "plan_mode"),
        "patchStrategy": ("replan-remaining", "patch_strategy"),
    },
    tl.TreeThenAct: {
        "breadth": (2, "propose.count"),
        "depth": (2, "max_depth"),
        "pruningThreshold": (0.4, "min_score"),
    },
}


def at(part, path):
    for name in path.split("."):
        part = getattr(part, name)
    return part


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def listed(preset):
    """The names in its docstring, with what it says of each."""
    return dict(re.findall(r"^ {8}(\w+): (.+)$", preset.__doc__, re.MULTILINE))


@pytest.mark.parametrize(("preset", "name", "value", "path", "here"), OPTIONS)
def test_an_option_of_a_source_works_in_its_preset_and_stands_in_its_docstring(
    preset, name, value, path, here
):
    assert path in listed(preset)[name]
    made = preset(**{name: value})
    assert at(made, path) == here
    assert made == preset(**{camel(name): value}) == preset({name: value})
    assert made.settings().keys() == preset().settings().keys()  # the name itself is not recorded


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.__name__)
def test_a_docstring_lists_no_other_names(preset):
    elsewhere = {name for name, path in listed(preset).items() if path.startswith("tl.")}
    assert listed(preset).keys() - elsewhere == PRESETS[preset].keys()
    for name in elsewhere:
        with pytest.raises(ValueError, match=f"^{name} is not a setting of .*Pass it as tl\\."):
            preset(**{name: "x"})


@pytest.mark.parametrize("kind", AGENTS)
def test_the_agents_take_the_names_of_their_source(kind):
    for name, (value, path) in AGENTS[kind].items():
        made = kind(**{name: value})
        assert at(made, path) == value != at(kind(), path)
        assert kind().with_(**{name: value}) == made


def test_options_together_and_across_designs():
    made = tl.presets.state_machine(
        traversal_strategy="bfs", beamWidth=2, tools=["calculator"], branching_factor=5, max_parse_retries=0
    )
    assert made.search == tl.searches.BreadthFirst(width=2)
    assert made.propose == tl.WithTools(proposer=tl.Propose(count=5), tools=["calculator"])
    assert made.evaluate == tl.evaluators.Joint(max_parse_retries=0)
    assert tl.presets.beam_search(branching_factor=2, pruning_threshold=0.4, depth=1) == (
        tl.presets.beam_search({"propose.count": 2, "stop.min_score": 0.4, "stop.depth": 1})
    )
    assert tl.presets.state_machine(convergence_window=1).stop.patience is None
    assert tl.TreeOfThoughts(branchingFactor=2, budget={"calls": 9}, max_duration_ms=500).budget == (
        tl.Budget(calls=9, seconds=0.5)
    )
    assert [one.stop.patience for one in tl.grid(tl.presets.state_machine(), convergence_window=[1, 3])] == [
        None,
        2,
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"convergence_window": 0}, r"convergence_window must be an integer of at least 1: got 0"),
        ({"max_duration_ms": "1 s"}, r"max_duration_ms must be a number of milliseconds: got '1 s'"),
        ({"max_duration_ms": 0}, r"max_duration_ms must be positive, or None for no limit: got 0"),
        ({"branching_factor": 0}, r"propose\.count"),
        (
            {"branching_factor": 4, "propose": tl.Propose(count=5)},
            r"propose\.count was given twice: got 5 and 4",
        ),
        ({"traversal_strategy": "ucs"}, "unknown kind 'ucs'"),
        ({"max_depth": 2, "stop.depth": 3}, r"max_depth is another name of stop\.depth: got both"),
        ({"branching_facto": 3}, r"no setting 'branching_facto'; did you mean 'propose\.count'"),
        ({"patience": 3}, r"no setting 'patience'; did you mean 'stop\.patience'"),
        ({"batch": 3}, r"no setting 'batch'; did you mean 'search\.batch'"),
        ({"prompt": "x"}, r"did you mean 'propose\.prompt', as in .* or 'evaluate\.prompt', as in"),
    ],
)
def test_a_wrong_option_says_what_is_right(given, says):
    with pytest.raises(ValueError, match=says):
        tl.presets.state_machine(given)


@pytest.mark.parametrize("name", tl.presets.__all__)
def test_a_preset_says_as_many_calls_as_max_calls(name):
    preset = getattr(tl.presets, name)
    tasks = {
        "game24": tl.game24("4 9 10 13"),
        "mini_crossword": tl.domains.mini_crossword(1),
        "creative_writing": tl.domains.creative_writing(1),
    }
    said = re.search(r"([\d,]+)\s+calls\b", preset.__doc__)[1]
    assert int(said.replace(",", "")) == preset().max_calls(tasks.get(name, TASK))
