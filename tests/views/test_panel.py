"""The panel: what is set in its controls is what runs, and what its code says."""

import ast
import asyncio
import functools
import inspect
import subprocess
import sys
import threading

import pytest
from ipywidgets.widgets.widget import _instances
from support import ANSWERS, EVALUATORS, PROPOSERS, ROOT, SEARCHES, STRATEGIES, mostly_nightly, wait

import tot_lab as tl
from tot_lab.domains.named import domain_names
from tot_lab.views.explorer.cell import cell
from tot_lab.views.explorer.forms import SHOWN, Form, Mistake, field_descriptions, form_classes
from tot_lab.views.explorer.panel import panel

HANDS = tl.game24_tasks(24)
EASIEST = HANDS[0].question
WRAPPERS = (tl.BestOf, tl.WithThinking, tl.WithSynthesis)
DEFAULTS = {kind: kind(strategy=tl.ChainOfThought()) for kind in WRAPPERS}


def seen(widget):
    """All that a person sees of `widget`, from top to bottom."""
    if widget.layout.display != "none":
        yield widget
        for child in getattr(widget, "children", ()):
            yield from seen(child)


def control(shown, name):
    """The last control of that name: of nested forms, the inner one."""
    return [widget for widget in seen(shown) if getattr(widget, "description", "") == name][-1]


def unlimited(shown, name):
    """The box `none` of that control."""
    return next(widget for widget in seen(shown) if getattr(widget, "tooltip", "") == f"{name}: none")


def said(shown):
    """All its texts."""
    return "\n".join(widget.value for widget in seen(shown) if type(widget).__name__ == "HTML")


def open_all(shown):
    for button in [widget for widget in seen(shown) if type(widget).__name__ == "ToggleButton"]:
        button.value = True


async def until(true):
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError


async def run_of(shown):
    """Press Run, and wait for the run."""
    before = shown.run
    control(shown, "Run").click()
    await until(lambda: shown.run is not before)
    return shown.run


async def run_by(code, **names):
    """What the cell leaves as `run`, executed as a notebook does."""
    compiled = compile(code, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(compiled, names)
    if inspect.isawaitable(made):
        await made
    return names["run"]


def lab(**settings):
    return tl.Lab("sim/game24", runs=None, **settings)


# Forms.


# What holds several has no control.
CODE_ONLY = {
    "transform_result",
    "tools",
    "required_tools",
    "max_calls_per_tool",
    "strategies",
    "routes",
    "prior_critiques",
    "models",
    "temperatures",
    "options",
    "operations",
}


@functools.cache
def form_of(kind):
    """The form of a class, for tests that change nothing in it: to make one takes most of their time."""
    return Form(kind, lambda: None)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [*form_classes(), tl.Budget], ids=lambda kind: kind.__name__)
def test_a_form_begins_with_the_defaults(kind):
    form = form_of(kind)
    assert form.value() == (DEFAULTS.get(kind) or kind())
    assert [control.name for control in form.controls] == [
        name for name in field_descriptions(kind) if name not in CODE_ONLY
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [*form_classes(), tl.Budget], ids=lambda kind: kind.__name__)
def test_every_field_says_what_it_means(kind):
    described = field_descriptions(kind)
    assert set(described) == set(kind.model_fields)
    assert all(described.values())
    for control in form_of(kind).controls:
        assert control.widget.tooltip.startswith(described[control.name])


@pytest.mark.slow
def test_meanings_are_the_docstrings_sentences():
    said = field_descriptions(tl.TreeOfThoughts)
    assert said["temperature"] == "Sampling temperature. `None` means the model's default."
    assert said["stop"] == "When the search ends."
    assert field_descriptions(tl.Stop)["depth"] == "The most steps of a path below the root."
    assert field_descriptions(tl.Stop)["min_score"].startswith("A thought with a lower score is pruned.")
    assert field_descriptions(tl.ReAct)["max_iterations"]
    assert list(said)[:SHOWN] == [
        "propose", "evaluate", "search", "answer", "stop", "merge", "parallel", "budget",
        "ends_at_answer", "model",
    ]  # fmt: skip


class ASearchThatHasQuiteALongName(tl.OneAnswer):
    kind = "long_name_for_the_panel"


@pytest.mark.nightly
def test_what_can_be_chosen_is_never_cut():
    """At half an em a letter, and 3 em for the arrow and the margins."""
    long = tl.BestOf(strategy=ASearchThatHasQuiteALongName())
    forms = [*map(form_of, form_classes()), Form(tl.BestOf, lambda: None, long)]
    boxes = [control.widget for form in forms for control in form.controls]
    lists = [box for box in boxes if type(box).__name__ == "Dropdown"]
    assert "ASearchThatHasQuiteALongName" in lists[-2].options
    for box in lists:
        width, label = (
            float(size.removesuffix("em")) for size in (box.layout.width, box.style.description_width)
        )
        assert width - label - 3 >= 0.5 * max(map(len, box.options)), box.options


@pytest.mark.slow
def test_controls_are_of_the_fields_types_and_ranges():
    controls = {control.name: control for control in Form(tl.TreeOfThoughts, lambda: None).controls}
    kinds = {name: type(control.widget).__name__ for name, control in controls.items()}
    assert kinds["merge"] == "Checkbox"
    for name, known in (
        ("propose", PROPOSERS), ("evaluate", EVALUATORS), ("search", SEARCHES), ("answer", ANSWERS),
        ("stop", [tl.Stop]),
    ):  # fmt: skip
        assert controls[name].widget.options == tuple(kind.__name__ for kind in known)
    assert controls["budget"].widget.options == ("none", "Budget")
    assert kinds["temperature"] == "FloatText"
    assert (
        controls["temperature"].widget.tooltip
        == "Sampling temperature. `None` means the model's default. (0 to 2)"
    )
    inside = {control.name: control for name in ("propose", "search", "stop", "answer")
              for control in controls[name].form.controls}  # fmt: skip
    assert type(inside["width"].widget).__name__ == "IntText"
    assert type(inside["prompt"].widget).__name__ == "Textarea"
    assert inside["top_k"].widget.tooltip == "The most leaves listed in the result, best first. (1 or more)"
    optional = {name for name, control in {**controls, **inside}.items() if control.none is not None}
    assert {"width", "nodes", "solved", "seed"} <= optional
    assert "depth" not in optional


def test_a_field_that_only_code_can_set_is_named():
    class Picky(tl.Strategy):
        """One with a table.

        table: what it looks up. depth: how far.
        """

        table: dict[str, int] = {}
        depth: int = 2

    form = Form(Picky, lambda: None)
    open_all(form.box)
    form.update()
    assert [control.name for control in form.controls] == ["depth"]
    assert "<dt>set in code only</dt><dd>table</dd>" in said(form.box)


def test_a_form_keeps_what_it_has_no_control_for():
    async def model(call):
        return ""

    for start in (tl.OneAnswer(model=model, seed=3), tl.ChainOfThought(model=tl.sim.SimGame24())):
        assert Form(type(start), lambda: None, start).value() == start


@pytest.mark.slow
def test_mistakes_stand_beside_their_controls():
    form = Form(tl.TreeOfThoughts, lambda: None)
    open_all(form.box)
    form.update()
    (propose,) = [control.form for control in form.controls if control.name == "propose"]
    (prompt,) = [control for control in propose.controls if control.name == "prompt"]
    control(form.box, "width").value = 0
    control(form.box, "depth").value = 1001
    prompt.none.value = False
    prompt.widget.value = "next step after {steps}?"
    with pytest.raises(Mistake) as mistake:
        form.value()
    assert sorted(mistake.value.fields) == ["propose.prompt", "search.width", "stop.depth"]
    assert prompt.error.startswith("the template must contain {problem}")
    for text in ("must be at least 1", "must be at most 1000", "the template must contain {problem}"):
        assert text in said(form.box)
    control(form.box, "width").value = 1
    control(form.box, "depth").value = 4
    prompt.widget.value = "{problem}\nnext step?"
    assert form.value() == tl.TreeOfThoughts(
        propose=tl.Sample(prompt="{problem}\nnext step?"),
        search=tl.BeamSearch(width=1),
        stop=tl.Stop(depth=4),
    )
    assert "must" not in said(form.box).split("<dl>")[0]


# The panel and its code.


def opened(then, *arguments, **options):
    """What `then` does with a panel; everything of it is gone afterwards."""
    before = set(_instances)

    async def used():
        shown = panel(*arguments, **options)
        try:
            return await then(shown)
        finally:
            shown.close()
            assert set(_instances) == before

    return wait(used())


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind",
    mostly_nightly(STRATEGIES, [tl.TreeOfThoughts, tl.BestOf, tl.ReAct, tl.DeepThink, tl.PlanExecute]),
    ids=lambda kind: kind.__name__,
)
def test_the_code_makes_the_run_of_the_panel(kind):
    async def used(shown):
        control(shown, "strategy").value = kind.__name__
        run = await run_of(shown)
        again = await run_by(shown.code)
        # The player of Game of 24 cannot write Deep Think's forms, which ends it.
        assert run.stop_reason not in (None, *([] if "Think" in kind.__name__ else ["error"]))
        assert again.events == run.events
        assert again.header.strategy == run.header.strategy
        assert again.header.model == run.header.model
        assert again.header.task == run.header.task

    opened(used, lab())


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    mostly_nightly(SEARCHES, [tl.MCTS]),
    ids=lambda kind: kind.__name__,
)
def test_the_code_makes_the_run_of_the_panel_with_any_search(kind):
    async def used(shown):
        control(shown, "search").value = kind.__name__
        unlimited(shown, "nodes").value = False
        control(shown, "nodes").value = 20
        unlimited(shown, "calls").value = False
        control(shown, "calls").value = 40
        run = await run_of(shown)
        assert (await run_by(shown.code)).events == run.events
        assert run.header.budget == {"calls": 40}

    opened(used, lab())


@pytest.mark.slow
def test_the_code_holds_what_differs_from_the_defaults():
    async def used(shown):
        assert shown.code == (
            "import tot_lab as tl\n\n"
            'lab = tl.Lab("sim/game24", runs=None)\n'
            f'run = await lab.run(tl.TreeOfThoughts(), tl.game24("{EASIEST}"))'
        )
        control(shown, "width").value = 3
        assert "    tl.TreeOfThoughts(search=tl.BeamSearch(width=3)),\n" in shown.code
        unlimited(shown, "width").value = True
        assert control(shown, "width").disabled
        control(shown, "search").value = "MCTS"
        unlimited(shown, "iterations").value = False
        control(shown, "iterations").value = 7
        control(shown, "propose").value = "Propose"
        unlimited(shown, "seconds").value = False
        control(shown, "seconds").value = 30.0
        assert shown.code.endswith(
            "run = await lab.run(\n"
            "    tl.TreeOfThoughts(propose=tl.Propose(), search=tl.MCTS(iterations=7)),\n"
            f'    tl.game24("{EASIEST}"),\n'
            "    budget=tl.Budget(seconds=30.0),\n"
            ")"
        )

    opened(used, lab())


@pytest.mark.slow
def test_a_strategy_that_wraps_another_has_its_form_inside():
    async def used(shown):
        control(shown, "strategy").value = "BestOf"
        assert "tl.BestOf(strategy=tl.ChainOfThought())" in shown.code
        control(shown, "attempts").value = 2
        control(shown, "strategy").value = "TreeOfThoughts"
        control(shown, "width").value = 1
        assert "tl.TreeOfThoughts(search=tl.BeamSearch(width=1)), attempts=2)" in shown.code
        control(shown, "width").value = 0
        assert "invalid: strategy.search.width" in said(shown)
        assert "must be at least 1" in said(shown)
        assert control(shown, "Run").disabled
        control(shown, "width").value = 1
        control(shown, "strategy").value = "OneAnswer"
        control(shown, "strategy").value = "TreeOfThoughts"  # what was set there is still there
        run = await run_of(shown)
        assert run.strategy == tl.BestOf(
            strategy=tl.TreeOfThoughts(search=tl.BeamSearch(width=1)), attempts=2
        )
        assert (await run_by(shown.code)).events == run.events

    opened(used, lab())


@pytest.mark.slow
def test_what_the_domain_has_no_prompt_for_is_not_run():
    async def used(shown):
        control(shown, "evaluate").value = "Parts"
        assert "has no max_parts" in said(shown)
        assert control(shown, "Run").disabled
        control(shown, "evaluate").value = "Value"
        assert "at most 30 calls" in said(shown)
        assert not control(shown, "Run").disabled

    opened(used, lab())


@pytest.mark.slow
def test_what_cannot_run_is_not_run():
    async def used(shown):
        control(shown, "depth").value = 0
        unlimited(shown, "calls").value = False
        control(shown, "calls").value = -1
        assert control(shown, "Run").disabled
        assert "invalid: stop.depth, calls" in said(shown)
        assert shown.code == "# Invalid settings: stop.depth, calls"
        control(shown, "Run").click()
        assert shown.explorer is None
        control(shown, "depth").value = 1
        control(shown, "calls").value = 0
        assert not control(shown, "Run").disabled
        assert (await run_of(shown)).stop_reason == "budget:calls"

    opened(used, lab())


# Tasks.


OWN = [
    tl.general("What is 6 × 7?", answer=42, grade="number"),
    tl.general('"Quoted", 2 \\ 1\nlines', context="It's known."),
    tl.game24("1 1 4 6", structured=True),
    tl.open_ended("Write a poem.", context="It rains."),
    tl.Task(domain=tl.domains.General(), question="one of a file", id="7", data={"level": [1, None, 0.5]}),
    tl.Task(domain=tl.domains.General(), question="one of a branch", steps=("a first step",)),
]


@pytest.mark.nightly
@pytest.mark.parametrize("which", range(len(OWN)))
def test_tasks_of_ones_own(which):
    async def used(shown):
        control(shown, "problem").value = which
        control(shown, "strategy").value = "OneAnswer"
        run = await run_of(shown)
        again = await run_by(shown.code)
        assert run.task == again.task == OWN[which]
        assert again.events == run.events

    opened(used, lab(), OWN)


@pytest.mark.nightly
def test_a_task_that_holds_a_function_keeps_its_name_in_the_code():
    tasks = [OWN[0], tl.general("Which?", answer="b", grade=lambda answer, reference: answer == reference)]

    async def used(shown):
        control(shown, "problem").value = 1
        control(shown, "strategy").value = "OneAnswer"
        assert "# `tasks[1]` is a task that was passed to the panel" in shown.code
        run = await run_of(shown)
        assert (await run_by(shown.code, tasks=tasks)).events == run.events

    opened(used, lab(), tasks)


@pytest.mark.slow
def test_an_example_of_a_domain_or_a_problem_that_is_typed():
    async def used(shown):
        listed = [label for label, _ in control(shown, "problem").options]
        assert listed == [*(f"{k}. {task.question}" for k, task in enumerate(HANDS, 1)), "another problem"]
        control(shown, "problem").value = 3
        assert f'tl.game24("{HANDS[3].question}")' in shown.code
        control(shown, "problem").value = -1
        assert control(shown, "Run").disabled
        assert "invalid: task" in said(shown)
        assert "four integers from 1 to 13" in control(shown, "another problem").placeholder
        control(shown, "another problem").value = "1, 2, 3, 4"
        assert 'tl.game24("1 2 3 4")' in shown.code
        control(shown, "task").value = "general"
        assert control(shown, "problem").value == "1, 2, 3, 4"
        control(shown, "problem").value = " "
        assert "question must not be empty" in said(shown)
        assert control(shown, "Run").disabled
        control(shown, "problem").value = "Is <b>1</b> prime?"
        assert 'tl.general("Is <b>1</b> prime?")' in shown.code
        control(shown, "task").value = "open_ended"
        assert 'tl.open_ended("Is <b>1</b> prime?")' in shown.code
        control(shown, "task").value = "mini_crossword"
        control(shown, "problem").value = -1
        control(shown, "another problem").value = "25"
        assert "from 1 to 24" in said(shown)
        control(shown, "another problem").value = "3"
        run = await run_of(shown)
        assert run.task == tl.domains.mini_crossword(3)

    opened(used, lab())


@pytest.mark.slow
def test_every_domain_is_offered_with_its_examples():
    async def used(shown):
        control(shown, "strategy").value = "OneAnswer"
        offered = dict(control(shown, "task").options)
        assert [*offered] == domain_names()
        for name in offered:
            control(shown, "task").value = name
            examples = tl.part_of({"kind": name}).example_tasks()
            if examples is None:
                control(shown, "problem").value = "Why?"
            else:
                assert len(control(shown, "problem").options) > 12
            run = await run_of(shown)
            assert run.task.domain.kind == name
            assert examples is None or run.task == examples(1)[0]
            assert (await run_by(shown.code)).events == run.events

    opened(used, lab())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("model", "domain"),
    [("sim/general", "general"), ("sim/constrained", "constrained"), ("sim/agent", "game24")],
)
def test_the_first_task_is_one_that_the_model_plays(model, domain):
    async def used(shown):
        assert control(shown, "task").value == domain

    opened(used, tl.Lab(model, runs=None))


# Labs.


LABS = {
    "name": lambda folder: tl.Lab("sim/game24"),
    "settings": lambda folder: tl.Lab(
        tl.sim.SimGame24(skill=0.5, seed=3), runs=folder, timeout=None, spend=1.5
    ),
    "roles": lambda folder: tl.Lab(
        "sim/game24",
        runs=None,
        roles={"evaluate": tl.Role(temperature=0.0), "propose": {"model": "sim/game24", "max_tokens": 90}},
    ),
    "cache": lambda folder: tl.Lab("sim/game24", runs=None, cache=folder / "calls", mode="refresh"),
    "tools": lambda folder: tl.Lab(
        "sim/agent",
        runs=None,
        tools=[tl.tools.Calculator(), *tl.domains.multi_hop_tools(), tl.tools.Python(memory=512)],
        effect_policy=tl.EffectPolicy(allow={"process"}, deny={"network"}),
        plans=folder / "plans.db",
    ),
    "remote": lambda folder: tl.Lab("gpt-4.1-mini"),
    "server": lambda folder: tl.Lab(
        tl.LiteLLM(model="openai/x", api_base="http://127.0.0.1:1/v1", price=(1, 2))
    ),
    "own server": lambda folder: tl.Settings(provider="openai", base_url="http://127.0.0.1:1/v1").lab(),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", LABS)
def test_the_code_makes_the_lab_too(name, tmp_path):
    given = LABS[name](tmp_path)

    async def used(shown):
        names = {}
        exec(shown.code.partition("run = ")[0], names)
        made = names["lab"]
        assert made.gateway.settings == given.gateway.settings
        assert made.gateway.roles == given.gateway.roles
        assert (made.runs, made.timeout, made.spent) == (given.runs, given.timeout, given.spent)
        assert made.gateway.mode == given.gateway.mode
        assert made.gateway.spend_limiter.cap == given.gateway.spend_limiter.cap
        assert made.gateway.given_cache == (given.gateway.given_cache and str(given.gateway.given_cache))
        assert made.gateway.toolbox.tools == given.gateway.toolbox.tools
        assert made.gateway.toolbox.policy == given.gateway.toolbox.policy
        assert repr(made.plans) == repr(given.plans)

    opened(used, given)


@pytest.mark.slow
def test_the_code_of_a_lab_with_tools_makes_the_same_run(tmp_path):
    lab, task = LABS["tools"](tmp_path), tl.domains.multi_hop_tasks(1)[0]
    strategy = tl.PlanExecute(strategy=tl.Reflexion(prior_critiques=["Look twice."]))
    code = cell(lab, strategy, task, tl.Budget(calls=40))
    assert 'tools=["calculator", "multi_hop", tl.tools.Python(memory=512)]' in code
    assert "prior_critiques=" in code
    run = wait(lab.run(strategy, task, budget=tl.Budget(calls=40)))
    again = wait(run_by(code))
    assert again.events == run.events
    assert len(run.tools_df())
    changed = {"id", "started"}
    assert [
        name
        for name in run.header.__struct_fields__
        if name not in changed and getattr(run.header, name) != getattr(again.header, name)
    ] == []
    assert [plan.id for plan in lab.plans.all()] == [f"{run.id}:0", f"{again.id}:0"]


def test_what_only_the_notebook_has_is_named_in_the_code(tmp_path):
    for lab, why in (
        (tl.Lab("sim/agent", tools=tl.tools.document_tools({"a": "b"})), "documents of your own"),
        (tl.Lab("sim/agent", tools=["calculator"], tool_context={"key": "sk-secret"}), "a tool_context"),
    ):
        code = cell(lab, tl.ReAct(), tl.general("Why?"), None)
        assert f"# `lab` is the lab that was passed to the panel, since it contains {why}." in code
        assert "sk-secret" not in code


@pytest.mark.slow
def test_no_key_is_written():
    async def used(shown):
        assert "sk-secret" not in shown.code
        assert "# The panel's lab has an API key, which is not included here." in shown.code

    opened(used, tl.Lab(tl.LiteLLM(model="openai/x", api_key="sk-secret"), runs=None))


@pytest.mark.slow
def test_a_model_of_ones_own_keeps_the_name_of_the_lab():
    async def model(call):
        return "Answer: <script>alert(1)</script>$x$"

    async def used(shown):
        control(shown, "strategy").value = "OneAnswer"
        control(shown, "task").value = "general"
        control(shown, "problem").value = "Why?"
        assert (
            "# `lab` is the lab that was passed to the panel, since it contains a function of your own."
            in shown.code
        )
        run = await run_of(shown)
        await until(lambda: "answered" in said(shown))
        assert "&lt;script&gt;alert(1)&lt;/script&gt;$x$" in said(shown)
        assert "<script>" not in said(shown)
        assert (await run_by(shown.code, lab=given)).events == run.events

    given = tl.Lab(model, runs=None)
    opened(used, given)


# Runs.


@pytest.mark.slow
def test_progress_is_said():
    async def used(shown):
        assert "at most 30 calls" in said(shown)
        run = await run_of(shown)
        await until(lambda: run.stop_reason in said(shown))
        asked, thoughts = run.usage.calls, len(run.tree)
        assert f"{asked} of at most 30 calls · {thoughts} thoughts" in said(shown)
        assert f"{run.usage.input_tokens:,} tokens in, {run.usage.output_tokens:,} out" in said(shown)
        assert "cost $0, paid $0" in said(shown)
        bar = next(widget for widget in seen(shown) if type(widget).__name__ == "IntProgress")
        assert (bar.value, bar.max) == (asked, 30)
        assert shown.explorer.run is run

    opened(used, lab())


def slow_lab():
    return tl.Lab(tl.sim.SimGame24(latency=0.2), runs=None)


@pytest.mark.slow
def test_one_run_at_a_time_and_it_can_be_stopped():
    async def used(shown):
        control(shown, "Run").click()
        first = shown.explorer
        await until(lambda: " of at most 30" in said(shown))
        assert control(shown, "Run").disabled
        control(shown, "Run").click()
        assert shown.explorer is first
        assert "A run is in progress" in said(shown)
        control(shown, "depth").value = 2  # for the next one
        assert control(shown, "Run").disabled
        assert shown.run is None
        control(shown, "Stop").click()
        await until(lambda: shown.run is not None)
        assert shown.run.stop_reason == "cancelled"
        assert shown.run is given.last
        assert not control(shown, "Run").disabled
        assert control(shown, "Stop").disabled
        second = await run_of(shown)
        assert second.stop_reason != "cancelled"
        assert shown.explorer is not first

    given = slow_lab()
    opened(used, given)


@pytest.mark.slow
def test_closing_stops_the_run():
    async def closed():
        shown = panel(given)
        control(shown, "Run").click()
        await asyncio.sleep(0.3)
        shown.close()
        await until(lambda: shown.run is not None)
        assert given.last.stop_reason == "cancelled"

    given = slow_lab()
    wait(closed())


@pytest.mark.slow
def test_what_ends_a_run_with_an_error_is_said(tmp_path):
    async def used(shown):
        run = await run_of(shown)
        assert run.stop_reason == "error"
        await until(lambda: "CacheMiss" in said(shown))
        assert not control(shown, "Run").disabled

    tl.Cache(tmp_path / "calls")
    opened(used, lab(cache=tmp_path / "calls", mode="replay"))


@pytest.mark.slow
def test_a_lab_that_cannot_begin_says_why(tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")

    async def used(shown):
        control(shown, "Run").click()
        assert "FileExistsError" in said(shown)
        assert not control(shown, "Run").disabled

    opened(used, tl.Lab("sim/game24", runs=tmp_path / "runs"))


@pytest.mark.slow
def test_what_another_thread_brings_is_done_on_the_loop():
    async def used(shown):
        def pressed():
            control(shown, "width").value = 3
            control(shown, "Run").click()

        code = shown.code
        thread = threading.Thread(target=pressed)
        thread.start()
        thread.join()
        assert shown.code == code
        assert shown.explorer is None
        await until(lambda: shown.run is not None)
        assert "search=tl.BeamSearch(width=3)" in shown.code
        assert shown.run.strategy.search.width == 3

    opened(used, lab())


def test_what_is_no_lab_or_task_is_refused():
    async def refused():
        with pytest.raises(TypeError, match="lab must be a Lab"):
            panel("sim/game24")
        with pytest.raises(TypeError, match="tasks must contain tasks"):
            panel(lab(), ["4 5 6 10"])

    wait(refused())
    with pytest.raises(RuntimeError, match="Use it in a notebook"):
        panel(lab())


@pytest.mark.slow
def test_importing_tot_lab_imports_no_widgets():
    code = "import sys, tot_lab; print([m for m in ('ipywidgets', 'anywidget') if m in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
