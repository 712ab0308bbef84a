"""Plan–Execute–Reflect: dispatch, references, waves, recovery, reflection, and what a plan cut off does."""

import asyncio
import json
import re
from random import Random

import pytest
from support import mostly_nightly, wait
from support.contract import FIRST
from support.plans import GOOD, TASK, Planner, add, echo, plan, run, think, tool

import tot_lab as tl
from tot_lab.core.calls import Call, Reply, ToolCall
from tot_lab.testing import PROMISES, Trial

BAD = "UNSATISFIED: the doubling is missing.\nAnswer: 7"


def broken():
    """A tool that fails until it has been called so often, and what it was called with."""
    calls = []

    @tl.tool(retries=0)
    def fetch(url: str) -> str:
        """Fetches a page."""
        calls.append(url)
        if url == "bad":
            raise OSError("no route to bad")
        return f"page {url}"

    return fetch, calls


def part(instruction, *hints, **more):
    return {"type": "composite", "instruction": instruction, "toolHints": list(hints), **more}


def notes(made, name=""):
    return [
        event for event in made.events if isinstance(event, tl.Note) and event.name.startswith(f"plan.{name}")
    ]


def statuses(made):
    return [step.status for step in made.plans[0].steps]


# Dispatch and references.


def test_each_type_of_step_is_carried_out_in_its_own_way():
    model = Planner(
        plan=plan(
            tool("add", {"title": "Sum"}, a=3, b=4),
            tool("add", a="{{from_step:s1}}", b="{{from_step:s1}}"),
            think("Say what {{from_step:s2}} means.", dependsOn=["s2"]),
            part("Check {{from_step:s2}}.", "echo"),
        ),
        analysis="It is the double.",
        act=tl.Reply(tool_calls=(tl.records.ToolCall("a", "final-answer", '{"answer": "Answer: 14, yes"}'),)),
        review=GOOD,
    )
    made = run(model)
    assert model.kinds == ["plan", "analysis", "act", "review"]  # a tool_call asks no model
    assert made.tools_df()["result"].tolist() == ["7", "14"]
    assert (made.answer, made.stop_reason, made.grade) == ("14", "answered", 1.0)
    (analysis,), (act,) = model.asked("analysis"), model.asked("act")
    assert "Say what 14 means." in analysis.prompt
    assert "Check 14." in act.prompt
    assert TASK.question in act.prompt
    assert {offered["name"] for offered in act.tools} == {"echo", "final-answer"}
    assert statuses(made) == ["completed"] * 4
    assert [step.result for step in made.plans[0].steps] == ["7", "14", "It is the double.", "14, yes"]
    assert [made.tree[f"0.{k}"].depends for k in range(4)] == [(), ("0.0",), ("0.1",), ("0.1",)]
    assert made.tree["0.0"].text == 'Sum\nadd({"a": 3, "b": 4})'
    assert made.tree["0.1.0"].text == "add → 14"
    assert made.best.id == "0.4"
    assert made.best.source[:3] == ("0.0.0", "0.1.0", "0.2.0")
    assert made.best.source[3].startswith("0.3.0.")
    names = [note.name for note in notes(made)]
    assert names == [
        "plan.created",
        *["plan.step_started", "plan.step_completed"] * 4,
        "plan.reflected",
        "plan.ended",
    ]
    assert wait(made.replay()).identical


def test_a_summary_is_the_first_500_characters_and_a_reference_the_whole():
    model = Planner(
        plan=plan(
            tool("echo", text="x" * 700),
            tool("echo", text="<{{from_step:s1:summary}}>"),
            tool("echo", text="<{{from_step:s1}}>"),
        ),
        review=GOOD,
    )
    results = [step.result for step in run(model).plans[0].steps]
    assert results[1:] == [f"<{'x' * 500}>", f"<{'x' * 700}>"]


@pytest.mark.parametrize("reference", ["{{from_step:s2}}", "{{from_step:s9}}", "{{from_step:s3}}"])
def test_a_reference_that_cannot_hold_fails_the_step_and_reaches_no_tool(reference):
    """A plan with one is refused; a person can still write one into a step."""
    fetch, fetched = broken()
    model = Planner(
        plan=plan(tool("add", a=1, b=2), tool("fetch", url="a"), tool("add", a=1, b=1)),
        patch="no plan",
        review=GOOD,
    )
    lab = tl.Lab(model, runs=None, tools=[add, echo, fetch])
    whole = wait(lab.run(tl.PlanExecute(), TASK))
    assert fetched == ["a"]
    made = wait(lab.branch(whole, "0.1", content=f'fetch({{"url": "{reference}"}})'))
    assert fetched == ["a"]
    step = made.plans[0]["s2"]
    assert (step.status, step.retries) == ("failed", 0)
    assert re.match(r"s2: {{from_step:s\d}} names (the step itself|a step)", step.error)
    assert step.error in model.asked("patch")[0].prompt


def test_a_person_may_say_otherwise_what_a_step_does():
    model = Planner(
        plan=plan(tool("add", a=3, b=4), think("Say it.", dependsOn=["s1"])), analysis="ok", review=GOOD
    )
    lab = tl.Lab(model, runs=None, tools=[add, echo])
    whole = wait(lab.run(tl.PlanExecute(), TASK))
    other = wait(lab.branch(whole, "0.0", content='add({"a": 30, "b": 40})'))
    assert other.plans[0]["s1"].result == "70"
    result = wait(lab.branch(whole, "0.0.0", content="add → 71"))
    assert (result.plans[0]["s1"].result, result.usage.calls) == ("71", 3)
    assert "71" in next(e for e in result.events if isinstance(e, Call) and e.purpose == "analysis").prompt
    words = wait(lab.branch(whole, "0.0", content="Guess it."))
    assert (words.plans[0]["s1"].type, words.plans[0]["s1"].result) == ("analysis", "ok")


def test_a_composite_step_keeps_its_tools_when_a_person_words_it_otherwise():
    answer = tl.Reply(tool_calls=(tl.records.ToolCall("a", "final-answer", '{"answer": "14"}'),))
    model = Planner(plan=plan(part("Work it out.", "add")), act=answer, review=GOOD)
    lab = tl.Lab(model, runs=None, tools=[add, echo])
    made = wait(lab.branch(wait(lab.run(tl.PlanExecute(), TASK)), "0.0", content="Do it another way."))
    act = model.asked("act")[-1]
    assert (made.plans[0]["s1"].type, made.plans[0]["s1"].tool_hints) == ("composite", ("add",))
    assert "Do it another way." in act.prompt
    assert {offered["name"] for offered in act.tools} == {"add", "final-answer"}


@pytest.mark.slow
def test_an_unusable_plan_is_asked_for_again_with_the_reason_and_then_given_up():
    model = Planner(plan=[plan(), "No plan.", plan(think("a"))], analysis="ok", review=GOOD)
    made = run(model, tl.PlanExecute(plan_mode="dag"))
    assert (made.answer, model.kinds) == ("14", ["plan", "plan", "plan", "analysis", "review"])
    assert "there are 0 steps" in model.calls[1].prompt
    assert "there is no JSON in the reply" in model.calls[2].prompt
    hopeless = Planner(plan=plan(*[think("x")] * 1000))
    made = run(hopeless)
    assert (made.stop_reason, made.answer, made.usage.calls, made.plans) == ("limit:retries", "", 3, [])
    assert "there are 1000 steps; there must be 1 to 20" in hopeless.calls[1].prompt
    assert notes(made, "ended")[0].data == {"status": "failed", "stop": "limit:retries"}


def test_r4_an_unknown_tool_fails_its_step_alone_and_the_plan_is_not_asked_for_again():
    model = Planner(
        plan=plan(tool("drill", depth=3), tool("add", a=3, b=4), think("Say {{from_step:s2}}.")),
        patch=plan({**tool("add", a=7, b=7), "id": "s1"}),
        analysis="It is 14.",
        review=GOOD,
    )
    made = run(model, tl.PlanExecute(max_patches=0, max_refinements=0))
    assert model.kinds == ["plan", "analysis", "review"]
    assert statuses(made) == ["failed", "completed", "completed"]
    step = made.plans[0]["s1"]
    assert (step.error, step.retries) == ("s1: there is no tool 'drill'; there are add, echo", 0)
    assert step.error in model.asked("review")[0].prompt
    assert made.tools_df()["tool"].tolist() == ["add"]
    assert wait(made.replay()).identical
    patched = run(model)
    assert model.kinds[3:] == ["plan", "patch", "analysis", "review"]
    assert step.error in model.asked("patch")[0].prompt
    assert (statuses(patched), patched.plans[0]["s1"].result) == (["completed"] * 3, "14")


# Waves.


@pytest.mark.slow
def test_steps_of_a_wave_run_at_once_and_the_next_wave_waits():
    under_way, most = [0], [0]

    @tl.tool
    async def slow(name: str) -> str:
        """Takes a while."""
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0.05)
        under_way[0] -= 1
        return name

    steps = [tool("slow", name=name) for name in "abc"] + [tool("slow", name="{{from_step:s2}}")]
    seen = {}
    for name, strategy in {
        "dag": tl.PlanExecute(plan_mode="dag"),
        "linear": tl.PlanExecute(),
        "one by one": tl.PlanExecute(plan_mode="dag", parallel=False),
    }.items():
        most[0] = 0
        made = run(Planner(plan=plan(*steps), review=GOOD), strategy, tools=[slow])
        assert statuses(made) == ["completed"] * 4
        plan_ = made.plans[0]
        assert plan_["s4"].started_at >= plan_["s2"].completed_at
        seen[name] = most[0]
    assert seen == {"dag": 3, "linear": 1, "one by one": 1}


# Recovery.


def test_a_failed_try_is_made_again_with_the_error():
    model = Planner(plan=plan(think("Say it.")), analysis=["  ", "It is 14."], review=GOOD)
    made = run(model)
    first, second = model.asked("analysis")
    assert "the reply was empty" not in first.prompt
    assert "An earlier try failed: the reply was empty" in second.prompt
    step = made.plans[0]["s1"]
    assert (step.status, step.retries, step.error, step.result) == ("completed", 1, None, "It is 14.")


def failing(patch, **replies):
    """A plan whose second step fails, and whose third needs it."""
    fetch, fetched = broken()
    steps = [
        tool("fetch", url="a"),
        tool("fetch", url="bad"),
        think("Read {{from_step:s2}}.", dependsOn=["s2"]),
    ]
    given = {"plan": plan(*steps), "analysis": "read", "review": GOOD, "patch": patch, **replies}
    return Planner(**given), fetch, fetched


def test_a_patch_rewrites_what_failed_and_no_completed_step_runs_again():
    patch = plan({**tool("fetch", url="c"), "id": "s1"}, {**tool("fetch", url="b"), "id": "s2"})
    model, fetch, fetched = failing(patch)
    made = run(model, tools=[fetch])
    assert fetched == ["a", "bad", "bad", "b"]
    assert model.kinds == ["plan", "patch", "analysis", "review"]
    (asked,) = model.asked("patch")
    assert "s2 [failed]" in asked.prompt
    assert "no route to bad" in asked.prompt
    assert (made.plans[0].version, statuses(made)) == (2, ["completed"] * 3)
    assert (made.tree["0.1"].state, made.tree["0.3"].source) == ("failed", ("0.1",))
    assert made.plans[0]["s2"].node == "0.3"
    assert "page b" in model.asked("analysis")[0].prompt
    assert made.answer == "14"


def test_replanning_puts_other_steps_in_place_of_all_that_are_open():
    patch = plan(tool("fetch", url="b"), think("Read {{from_step:s4}} after {{from_step:s1}}."))
    model, fetch, fetched = failing(patch)
    made = run(model, tl.PlanExecute(patch_strategy="replan-remaining"), tools=[fetch])
    assert fetched == ["a", "bad", "bad", "b"]
    assert statuses(made) == ["completed", "failed", "skipped", "completed", "completed"]
    assert made.plans[0]["s5"].depends_on == ("s4", "s1")
    assert (made.tree["0.2"].state, made.tree["0.2"].reason) == ("pruned", "dropped by a patch")
    assert (made.answer, made.stop_reason, made.plans[0].status) == ("14", "answered", "completed")


def test_after_the_patch_the_step_is_failed_and_reflection_decides():
    again, well = (plan({**tool("fetch", url=url), "id": "s2"}) for url in ("bad", "b"))
    model, fetch, fetched = failing([again, well], review=[BAD, GOOD])
    made = run(model, tools=[fetch])
    # a patch at once, and as its step fails too the reflection, which asks for another
    assert model.kinds == ["plan", "patch", "review", "patch", "analysis", "review"]
    assert fetched == ["a", "bad", "bad", "bad", "bad", "b"]
    assert "s3 [skipped]" in model.asked("review")[0].prompt
    assert "the doubling is missing" in model.asked("patch")[1].prompt
    assert (statuses(made), made.plans[0].version) == (["completed"] * 3, 3)
    assert (made.tree["0.2"].state, made.tree["0.2"].reason) == ("kept", "open again")
    assert made.plans[0]["s3"].error is None


@pytest.mark.slow
def test_r7_r3_patches_and_refinements_have_limits_of_their_own():
    """Each failed step has its patch though nothing may be refined; and two patches take no refinement."""
    fetch, _ = broken()
    steps = [tool("fetch", url="bad"), tool("fetch", url="bad")]
    patches = [plan({**tool("fetch", url=url), "id": id}) for id, url in (("s1", "a"), ("s2", "b"))]
    model = Planner(plan=plan(*steps), patch=list(patches), analysis="ok", review=GOOD)
    made = run(model, tl.PlanExecute(max_refinements=0), tools=[fetch])
    assert model.kinds == ["plan", "patch", "patch", "review"]
    assert statuses(made) == ["completed"] * 2
    again = Planner(
        plan=plan(*steps),
        patch=list(patches),
        analysis="ok",
        review=[BAD, BAD, GOOD],
        augment=plan(think("x")),
    )
    made = run(again, tl.PlanExecute(max_patches=2, max_refinements=2), tools=[fetch])
    assert again.kinds.count("patch") == 2
    assert again.kinds.count("augment") == 2
    assert made.stop_reason == "answered"
    one = Planner(plan=plan(*steps), patch=list(patches), review=GOOD)
    run(one, tl.PlanExecute(max_patches=1), tools=[fetch])
    assert one.kinds.count("patch") == 1
    assert len({(call.node, call.purpose, call.sample_index, call.prompt) for call in again.calls}) == len(
        again.calls
    )


def test_r4_a_plan_with_wrong_references_is_carried_out_and_its_wrong_steps_are_patched():
    """The plan is taken at once: neither refused nor asked for again."""
    wrong = plan(
        {**tool("add", a=3, b=4), "id": "sum"},
        {**tool("echo", text="{{from_step:nowhere}}"), "id": "b"},
        think("Say {{from_step:sum}}.", id="c", dependsOn=["c"]),
    )
    model = Planner(
        plan=wrong,
        patch=plan({**tool("echo", text="{{from_step:s1}}"), "id": "s2"}),
        analysis="said",
        review=GOOD,
    )
    made = run(model)
    assert model.kinds.count("plan") == 1
    assert model.kinds.count("patch") >= 2
    step = made.plans[0]
    assert (step["s1"].result, step["s2"].result) == ("7", "7")
    assert (step["s3"].status, step["s3"].error) == ("failed", "s3: it depends on itself")
    assert made.answer == "14"


def test_r8_the_model_writes_the_arguments_of_missing_calls_once():
    model = Planner(
        plan=plan(tool("echo", text="moon"), think("Sum up {{from_step:s1}}.")),
        augment=plan(tool("echo", text="tides"), tool("echo", text="stars")),
        analysis="summed up",
        review=GOOD,
    )
    made = run(model, tl.PlanExecute(required_tools={"echo": 3}))
    assert model.kinds == ["plan", "augment", "analysis", "review"]
    assert "- echo: 2 more" in model.asked("augment")[0].prompt
    assert made.tools_df()["result"].tolist() == ["moon", "tides", "stars"]
    (analysis,) = model.asked("analysis")
    assert all(word in analysis.prompt for word in ("moon", "tides", "stars")), "it uses the added calls too"
    assert len(made.plans) == made.plans[0].version == 1


def test_r8_calls_may_use_the_items_that_an_analysis_lists():
    items = [tool("echo", text=f"{{{{from_step:s1:item:{k}}}}}") for k in (1, 2, 3)]
    model = Planner(
        plan=plan(think("List the cities.")), augment=plan(*items), analysis="Oslo, Rome, Kyiv", review=GOOD
    )
    made = run(model, tl.PlanExecute(required_tools={"echo": 3}))
    assert made.tools_df()["result"].tolist() == ["Oslo", "Rome", "Kyiv"]


@pytest.mark.parametrize("settings", [{"effects": ("files",)}, {}], ids=["files", "undeclared"])
def test_r8_a_tool_that_may_have_effects_is_called_only_as_a_model_chose(settings):
    deleted = []

    @tl.tool(**settings)
    def delete_file(path: str) -> str:
        """Deletes a file."""
        deleted.append(path)
        return "deleted"

    model = Planner(
        plan=plan(think("Which files are old?")),
        analysis="The old ones are those of May.",
        act=[
            Reply(tool_calls=(ToolCall("a", "delete-file", '{"path": "may.log"}'),)),
            Reply(tool_calls=(ToolCall("b", "final-answer", '{"answer": "deleted may.log"}'),)),
        ],
        review=GOOD,
    )
    made = run(model, tl.PlanExecute(required_tools={"delete-file": 1}), tools=[delete_file])
    assert deleted == ["may.log"]
    assert model.kinds == ["plan", "analysis", "act", "act", "review"]
    assert "The old ones are those of May." in model.asked("act")[0].prompt
    assert made.plans[0].steps[-1].tool_hints == ("delete-file",)


@pytest.mark.parametrize("augment", ["no steps", plan(tool("echo", text="one"))])
def test_r8_a_requirement_that_is_not_met_is_recorded(augment):
    model = Planner(plan=plan(think("Sum up.")), augment=augment, analysis="ok", review=GOOD)
    made = run(model, tl.PlanExecute(required_tools={"echo": 3}))
    (note,) = notes(made, "requirement_failed")
    missing = 2 if "one" in augment else 3
    assert (note.data["tool"], note.data["required"], note.data["missing"]) == ("echo", 3, missing)
    assert (made.status, made.stop_reason, made.answer) == ("partial", "limit:required_tools", "14")  # R16
    assert made.plans[0].status == "failed"


def test_r16_required_calls_that_were_made_allow_success():
    """Calls that failed were made too, and a composite step decides itself."""

    @tl.tool(effects=())
    def broken(text: str) -> str:
        """Fails."""
        raise RuntimeError("no")

    model = Planner(
        plan=plan(tool("broken", text="one"), tool("echo", text="two")),
        patch=plan(think("Go on.")),
        analysis="ok",
        review=GOOD,
    )
    required = {"broken": 1, "echo": 1}
    made = run(model, tl.PlanExecute(required_tools=required), tools=[broken, echo])
    assert (made.status, made.stop_reason) == ("completed", "answered")


@pytest.mark.nightly
def test_r8_each_argument_of_an_added_call_was_written_by_the_model():
    """In generated plans with required tools, each text that a tool receives stands in a reply."""

    @tl.tool(effects=("network",))
    def send(to: str) -> str:
        """Sends a message."""
        return f"sent to {to}"

    random = Random(0)
    words = [f"word{k}" for k in range(50)]
    for _ in range(200):
        steps = [
            random.choice([tool("echo", text=random.choice(words)), think(f"Think {{{{from_step:s{k}}}}}.")])
            if k
            else tool("echo", text=random.choice(words))
            for k in range(random.randint(1, 4))
        ]
        further = [tool("echo", text=random.choice(words)) for _ in range(random.randint(0, 6))]
        lists = "a list: " + ", ".join(random.sample(words, 3))
        acts = [
            Reply(tool_calls=(ToolCall("a", "send", json.dumps({"to": random.choice(words)})),)),
            Reply(tool_calls=(ToolCall("b", "final-answer", '{"answer": "sent"}'),)),
        ]
        mode = random.choice(["linear", "dag"])
        model = Planner(plan=plan(*steps), augment=plan(*further), analysis=lists, act=acts * 9, review=GOOD)
        quantities = {"echo": random.randint(1, 6), "send": random.randint(1, 3)}
        made = run(
            model,
            tl.PlanExecute(required_tools=quantities, plan_mode=mode),
            tools=[echo, send],
        )
        written = [step["toolArgs"]["text"] for step in (*steps, *further) if "toolArgs" in step]
        written += json.loads(acts[0].tool_calls[0].arguments).values()
        for arguments in made.tools_df()["arguments"]:
            assert {*json.loads(arguments).values()} <= {*written}
        planned = sum("toolArgs" in step for step in steps)
        calls = made.tools_df()["tool"].tolist().count("echo")
        assert calls == max(planned, min(quantities["echo"], planned + len(further)))


def test_r8_a_call_for_several_entities_is_one_call_each():
    model = Planner(
        plan=plan(tool("echo", text=["Oslo", "Rome"]), think("Compare {{from_step:s1}}.")),
        analysis="Rome is larger.",
        review=GOOD,
    )
    made = run(model)
    assert made.tools_df()["result"].tolist() == ["Oslo", "Rome"]
    (analysis,) = model.asked("analysis")
    assert "Compare Oslo\nRome." in analysis.prompt


def test_a_failure_that_cannot_be_patched_leaves_the_rest_to_the_reflection():
    model, fetch, fetched = failing("no plan", review=GOOD)
    made = run(model, tl.PlanExecute(max_patches=0, max_refinements=0), tools=[fetch])
    assert model.kinds == ["plan", "review"]
    assert statuses(made) == [
        "completed",
        "failed",
        "skipped",
    ]
    assert "{{from_step:s2}} names a step that is not completed (it is failed)" in made.plans[0]["s3"].error
    assert fetched == ["a", "bad", "bad"]
    assert made.stop_reason == "answered"


def test_a_step_that_only_depends_on_a_failed_one_is_skipped():
    fetch, _ = broken()
    steps = [tool("fetch", url="bad"), think("Go on.", dependsOn=["s1"]), think("Something else.")]
    model = Planner(plan=plan(*steps), analysis="done", review=GOOD)
    made = run(model, tl.PlanExecute(max_refinements=0, step_retries=0), tools=[fetch])
    assert statuses(made) == ["failed", "skipped", "completed"]
    assert made.plans[0]["s2"].error == "s2: it needs s1, not completed"
    assert made.tree["0.1"].state == "pruned"


# Reflection.


def test_an_unmet_goal_appends_steps_and_nothing_runs_twice():
    fetch, fetched = broken()
    more = [plan(tool("fetch", url="b"), think("After {{from_step:s1}}.")), plan(think("Once more."))]
    model = Planner(plan=plan(tool("fetch", url="a")), analysis="ok", augment=more, review=[BAD, BAD, GOOD])
    made = run(model, tools=[fetch])
    assert fetched == ["a", "b"]
    assert model.kinds == ["plan", "review", "augment", "analysis", "review", "augment", "analysis", "review"]
    assert "UNSATISFIED: the doubling is missing." in model.asked("augment")[0].prompt
    assert [step.id for step in made.plans[0].steps] == ["s1", "s2", "s3", "s4"]
    assert (made.plans[0].version, made.answer) == (3, "14")
    assert [note.data["satisfied"] for note in notes(made, "reflected")] == [False, False, True]


def test_refinements_come_to_an_end_with_what_was_said_last():
    model = Planner(plan=plan(think("a")), analysis="ok", augment=plan(think("b")), review=BAD)
    made = run(model)
    assert model.kinds.count("augment") == 2
    assert (made.stop_reason, made.answer, made.plans[0].status) == ("limit:refinements", "7", "failed")


@pytest.mark.parametrize(("depth", "tokens"), [("shallow", 1500), ("deep", 2500)])
def test_the_depth_of_reflection(depth, tokens):
    model = Planner(plan=plan(think("a")), analysis="ok", review=GOOD)
    run(model, tl.PlanExecute(reflection_depth=depth, max_tokens=77))
    (review,) = model.asked("review")
    assert (review.max_tokens, model.calls[0].max_tokens) == (tokens, 77)
    assert ("contradict" in review.prompt) == (depth == "deep")


def test_a_reflection_without_an_answer_is_followed_by_a_call_for_one():
    model = Planner(
        plan=plan(think("a")), analysis="ok", review="**SATISFIED:** done.", answer="So.\nAnswer: 14"
    )
    made = run(model)
    assert (model.kinds[-1], made.answer, made.stop_reason) == ("answer", "14", "answered")
    unsaid = run(
        Planner(plan=plan(think("a")), analysis="ok", review="Fine.", augment="none", answer="Answer: 1")
    )
    assert unsaid.stop_reason == "limit:retries"  # it never said SATISFIED, and no step could be added
    assert notes(unsaid, "reflected")[0].data["satisfied"] is False
    unreadable = [e.data for e in unsaid.events if isinstance(e, tl.Note) and e.name == "parse.unreadable"]
    assert unreadable == [{"kind": "review", "draw": 0}]


@pytest.mark.parametrize(
    ("verdict", "stop"),
    [
        ("**SATISFIED**: it adds up.", "answered"),
        ("satisfied: it adds up.", "answered"),
        ("SATISFIED", "answered"),
        ("SATISFIED. All steps are done.", "answered"),
        ("**Verdict:** SATISFIED", "answered"),
        ("I'm never SATISFIED: do it again.", "limit:refinements"),
        ("To be SATISFIED: add a definition of spin.", "limit:refinements"),
        ("UN-SATISFIED: no spin.", "limit:refinements"),
        ("SATISFIED: no. UNSATISFIED: yes.", "limit:refinements"),
        ("NOT SATISFIED: the doubling is missing.", "limit:refinements"),
        ("Dissatisfied: the doubling is missing.", "limit:refinements"),
    ],
)
def test_a_reflection_is_read_as_a_critique_is(verdict, stop):
    model = Planner(plan=plan(think("a")), analysis="ok", review=f"{verdict}\nAnswer: 14")
    made = run(model, tl.PlanExecute(max_refinements=0))
    assert (made.stop_reason, made.answer) == (stop, "14")


@pytest.mark.parametrize("verdict", ["SATISFIED", "SATISFIED. All is known.", "My verdict is SATISFIED."])
def test_r2_a_review_that_states_satisfied_runs_no_further_tool_call(verdict):
    fetch, fetched = broken()
    more = plan(tool("fetch", url="b"))
    model = Planner(plan=plan(tool("fetch", url="a")), augment=more, review=f"{verdict}\nAnswer: 14")
    made = run(model, tools=[fetch])
    assert (made.answer, made.stop_reason, fetched) == ("14", "answered", ["a"])
    assert model.kinds == ["plan", "review"]


def test_the_planner_is_shown_the_required_calls():
    model = Planner(plan=plan(*[tool("echo", text=word) for word in "abc"]), review=GOOD)
    run(model, tl.PlanExecute(required_tools={"echo": 3}))
    assert "TOOL CALL REQUIREMENTS\n- echo: 3 or more steps of the type tool_call" in model.calls[0].prompt
    assert model.kinds == ["plan", "review"]
    assert tl.PlanExecute(required_tools=["echo×3"]) == tl.PlanExecute(required_tools={"echo": 3})
    with pytest.raises(ValueError, match="expected a tool with a quantity, such as web-search×4: got"):
        tl.PlanExecute(required_tools=["three echoes"])
    with pytest.raises(ValueError, match="required_tools: 'drill'"):
        run(model, tl.PlanExecute(required_tools={"drill": 1}))


# Other strategies inside, and around.


def test_a_step_is_solved_by_a_tree_search_and_drawn_as_one_tree():
    player = tl.sim.SimGame24(skill=1.0) if "skill" in tl.sim.SimGame24.model_fields else tl.sim.SimGame24()
    steps = plan(part("Find an expression that makes 24."), think("Check {{from_step:s1}}."))

    async def model(call):
        if call.purpose in ("sample", "propose", "value"):
            return await player(call)
        said = {"plan": steps, "analysis": "It holds."}
        return said.get(call.purpose) or f"SATISFIED: found.\nAnswer: {found(call)}"

    def found(call):
        return re.search(r"result: (.*)", call.prompt)[1]

    task = tl.game24("4 5 6 10")
    search = tl.TreeOfThoughts(propose=tl.Propose(count=4), search=tl.BeamSearch(width=3))
    made = wait(tl.Lab(model, runs=None).run(tl.PlanExecute(strategy=search), task))
    assert (made.stop_reason, made.grade) == ("answered", 1.0)
    assert len(made.tree.roots) == 1
    inside = [node for node in made.tree if node.id.startswith("0.0.0.")]
    assert len(inside) > 10
    assert max(node.depth for node in inside) == 5
    assert made.plans[0]["s1"].tokens_used > 1000
    assert wait(made.replay()).identical


@pytest.mark.parametrize("mode", ["linear", "dag"])
def test_a_simulated_agent_plans_and_a_tree_search_solves_steps(mode):
    task = tl.domains.multi_hop_tasks(12)[-1]
    lab = tl.Lab(
        tl.sim.SimAgent(skill=1.0, unaided=1.0, noise=0.0), runs=None, tools=tl.domains.multi_hop_tools()
    )
    search = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=3))
    made = wait(lab.run(tl.PlanExecute(plan_mode=mode, strategy=search), task))
    assert (made.stop_reason, made.grade) == ("answered", 1.0)
    assert "composite" in {step.type for step in made.plans[0].steps}
    searched = [
        event for event in made.events if isinstance(event, tl.Note) and event.name == "tot.completed"
    ]
    assert {note.at for note in searched} == {
        f"{step.node}.0" for step in made.plans[0].steps if step.type == "composite"
    }
    assert len(made.tree.roots) == 1
    assert wait(made.replay()).identical


def test_a_step_is_planned_itself():
    inner = tl.PlanExecute(step_retries=0)
    model = Planner(
        plan=[plan(part("Work it out.", "add")), plan(tool("add", a=7, b=7), think("Look."))],
        analysis="14",
        review=GOOD,
    )
    made = run(model, tl.PlanExecute(strategy=inner))
    outer, nested = made.plans
    assert (outer.id, nested.id) == (f"{made.id}:0", f"{made.id}:0.0.0")
    assert (nested.goal, nested["s1"].result, outer["s1"].result) == ("Work it out.", "14", "14")
    assert (outer.status, nested.status) == ("completed", "completed")


def test_attempts_of_another_strategy_have_a_plan_each():
    model = Planner(plan=plan(tool("add", a=7, b=7)), review=GOOD)
    made = run(model, tl.SelfConsistency(strategy=tl.PlanExecute(), attempts=3))
    assert [plan.id.partition(":")[2] for plan in made.plans] == ["0.0", "0.1", "0.2"]
    assert made.answer == "14"


def test_the_tools_of_a_step_are_those_that_it_names():
    with pytest.raises(ValueError, match="tools must not be set"):
        tl.PlanExecute(strategy=tl.BestOf(strategy=tl.ReAct(tools=("add",))))
    with pytest.raises(ValueError, match="required_tools must not be set"):
        tl.PlanExecute(strategy=tl.Adaptive(strategies={"reactive": tl.ReAct(required_tools={"add": 1})}))
    with pytest.raises(ValueError, match="max_steps"):
        tl.PlanExecute(max_steps=0)
    only = tl.PlanExecute(tools=("echo",))
    model = Planner(plan=plan(tool("add", a=1, b=2), tool("echo", text="x")), patch="no", review=GOOD)
    made = run(model, only)
    assert made.plans[0]["s1"].error == "s1: there is no tool 'add'; there are echo"
    assert made.tools_df()["tool"].tolist() == ["echo"]


@pytest.mark.parametrize("mode", ["linear", "dag"])
def test_the_bound_holds_for_steps_that_are_other_kinds_of_task(mode):
    """The task itself is a simple one, for one call; its step is not."""
    chosen = {
        "reactive": tl.OneAnswer(),
        "tree-of-thought": tl.SelfConsistency(strategy=tl.OneAnswer(), attempts=9),
    }
    strategy = tl.PlanExecute(
        strategy=tl.Adaptive(strategies=chosen),
        plan_mode=mode,
        max_steps=2,
        max_refinements=0,
        step_retries=0,
    )
    poems = plan(*[part(f"Write a poem about {what}.") for what in ("rain", "snow")])
    model = Planner(plan=poems, answer="Answer: drip", review=GOOD)
    made = run(model, strategy)
    assert (model.kinds.count("answer"), len(model.calls)) == (18, 20)
    assert len(model.calls) <= strategy.max_calls(TASK)
    assert run(model, strategy, budget=tl.Budget(calls=20)).tree == made.tree


@pytest.mark.nightly
@pytest.mark.parametrize("promise", mostly_nightly(PROMISES, FIRST), ids=lambda promise: promise.__name__)
def test_waves_and_replanning_keep_the_contract(promise):
    promise(
        Trial(tl.PlanExecute(plan_mode="dag", patch_strategy="replan-remaining", required_tools={"legs": 2}))
    )


# Cut off.


def test_a_budget_ends_it_with_what_it_has():
    steps = plan(tool("add", a=7, b=7), think("one"), think("two"))
    for cap, kinds in ((0, []), (1, ["plan"]), (2, ["plan", "analysis"])):
        model = Planner(plan=steps, analysis="so far 14", review=GOOD)
        made = run(model, budget=tl.Budget(calls=cap))
        assert (model.kinds, made.stop_reason) == (kinds, "budget:calls")
        assert made.answer == {0: "", 1: "14", 2: "so far 14"}[cap]
        if cap:
            assert (made.plans[0].status, notes(made, "ended")[0].data["status"]) == (
                "abandoned",
                "abandoned",
            )


@pytest.mark.parametrize("mode", ["linear", "dag"])
def test_a_step_of_another_strategy_that_was_refused_is_not_tried_again(mode):
    steps = plan(*[part(f"Part {k}.") for k in range(20)])
    model = Planner(plan=steps, act="hm", review=GOOD)
    strategy = tl.PlanExecute(plan_mode=mode, step_retries=9, max_refinements=0)
    made = run(model, strategy, budget=tl.Budget(calls=1))
    assert (model.kinds, made.stop_reason, made.plans[0].status) == (["plan"], "budget:calls", "abandoned")
    assert {step.retries for step in made.plans[0].steps} == {0}


def test_a_step_of_another_strategy_that_was_cancelled_did_not_fail(tmp_path):
    acting = asyncio.Event()

    async def hangs(call):
        if call.purpose == "act":
            acting.set()
            await asyncio.sleep(60)
        return plan(part("Work it out."))

    async def cancelled():
        lab = tl.Lab(hangs, runs=tmp_path)
        running = asyncio.ensure_future(lab.run(tl.PlanExecute(), TASK))
        await acting.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return lab.last

    cut = wait(cancelled())
    step = cut.plans[0]["s1"]
    assert (cut.stop_reason, step.status, step.error) == ("cancelled", "in_progress", None)
    assert cut.tree[step.node].state != "failed"
    answer = tl.Reply(tool_calls=(tl.records.ToolCall("a", "final-answer", '{"answer": "14"}'),))
    made = wait(tl.Lab(Planner(act=answer, review=GOOD), runs=tmp_path).resume(cut.path))
    assert (made.answer, statuses(made)) == ("14", ["completed"])


@pytest.mark.slow
def test_cancelled_in_a_wave_and_gone_on_with(tmp_path):
    fetch, fetched = broken()
    steps = plan(tool("fetch", url="a"), think("wait"), tool("fetch", url="{{from_step:s1}}"))
    waiting = asyncio.Event()

    async def hangs(call):
        if call.purpose == "analysis":
            waiting.set()
            await asyncio.sleep(60)
        return steps

    async def cancelled():
        lab = tl.Lab(hangs, runs=tmp_path, tools=[fetch], plans=tmp_path / "plans.db")
        running = asyncio.ensure_future(lab.run(tl.PlanExecute(plan_mode="dag"), TASK))
        await waiting.wait()
        while fetched != ["a"]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return lab

    lab = wait(cancelled())
    (cut,) = lab.plans.all()
    assert (lab.last.stop_reason, cut.status, cut["s1"].status) == ("cancelled", "abandoned", "completed")
    model = Planner(analysis="waited", review=GOOD)
    again = tl.Lab(model, runs=tmp_path, tools=[fetch], plans=lab.plans)
    made = wait(again.resume(cut.journal))
    assert (made.answer, fetched, model.kinds) == ("14", ["a", "page a"], ["analysis", "review"])
    assert again.plans.all() == made.plans
    assert made.plans[0].status == "completed"


def test_a_model_that_fails_costs_the_step_and_a_failed_plan_ends_it():
    def fails(call):
        raise ConnectionError("no route")

    model = Planner(
        plan=plan(think("a"), think("b")), analysis=[fails, fails, "ok"], patch=fails, review=GOOD
    )
    made = run(model)
    assert statuses(made) == ["failed", "completed"]
    assert "ConnectionError: no route" in made.plans[0]["s1"].error
    assert run(Planner(plan=fails)).stop_reason == "error"
    lost = run(Planner(plan=plan(tool("add", a=7, b=7)), review=fails))
    assert (lost.stop_reason, lost.answer, lost.best.id) == ("error", "14", "0.0.0")


# A plan that was cut off, and retries that are counted once.


def cut(text, at):
    return Reply(text[: text.index(at)], finish_reason="length")


def test_r3_a_plan_cut_off_by_its_length_is_asked_for_again():
    """Its last steps are missing, and the last one that is there may lack the end of its arguments."""
    whole = plan(tool("echo", text="one"), tool("echo", text="two and three"), think("Put it together."))
    for end in ("and three", '}, {"type": "analysis"'):
        model = Planner(plan=[cut(whole, end), whole], analysis="It is 14.", review=GOOD)
        made = run(model)
        assert model.kinds == ["plan", "plan", "analysis", "review"]
        assert "the reply was cut off at its length limit" in model.asked("plan")[1].messages[-1].content
        (again,) = [e for e in made.events if isinstance(e, tl.Note) and e.name == "json.retried"]
        assert "cut off" in again.data["error"]
        assert made.tools_df()["result"].tolist() == ["one", "two and three"]


def test_r3_a_plan_that_is_always_cut_off_is_not_carried_out():
    whole = plan(tool("echo", text="one"), tool("echo", text="two"))
    model = Planner(plan=cut(whole, "wo"), review=GOOD)
    made = run(model)
    assert (made.stop_reason, model.kinds, len(made.tools_df())) == ("limit:retries", ["plan"] * 3, 0)
    (failed,) = [e for e in made.events if isinstance(e, tl.Note) and e.name == "json.failed"]
    assert "cut off" in failed.data["error"]


def test_a_whole_plan_before_the_limit_and_one_with_a_slip_are_taken():
    whole = plan(tool("echo", text="one"))
    for said in (
        Reply(f"{whole}\nAnd then I would", finish_reason="length"),
        Reply(whole[:-1], finish_reason="stop"),
    ):
        model = Planner(plan=said, review=GOOD)
        assert run(model).tools_df()["result"].tolist() == ["one"]
        assert model.kinds == ["plan", "review"]


@pytest.mark.parametrize(
    ("settings", "times"),
    [({}, 2), ({"step_retries": 0}, 1), ({"step_retries": 2}, 3), ({"tool_retries": 2}, 6)],
)
def test_r3_a_failing_tool_is_tried_once_and_once_for_each_retry_of_its_step(settings, times):
    tries = []

    @tl.tool(effects=("network",), retries=3, backoff=0.0)
    def fetch(url: str) -> str:
        """Fetches a page."""
        tries.append(url)
        raise OSError("no route")

    model = Planner(plan=plan(tool("fetch", url="a")), review=BAD, answer="Answer: 7", patch=plan(think("x")))
    made = run(model, tl.PlanExecute(max_patches=0, max_refinements=0, **settings), tools=[fetch])
    assert len(tries) == times
    (step,) = made.plans[0].steps
    assert (step.status, step.retries) == ("failed", settings.get("step_retries", 1))


def test_a_result_that_names_a_tool_does_not_request_it():
    """Only the plan can: the text of a page is put into the instruction, and is no request of anybody."""

    class Muse(tl.Tool):
        """Thinks."""

        kind = "tests/muse"
        name: str = "muse"
        description: str = "Thinks."

        @property
        def spec(self):
            return super().spec.model_copy(update={"used_when_named": True})

        def carry_out(self, arguments, context):
            return "thought"

    for page, instruction, used in (
        ("Please use muse.", "Read {{from_step:s1}}", 0),
        ("Nothing.", "Use muse on {{from_step:s1}}", 1),
    ):
        model = Planner(
            plan=plan(tool("echo", text=page), part(instruction, "muse")),
            act=Reply(tool_calls=(ToolCall("a", "final-answer", '{"answer": "Answer: 14"}'),)),
            review=GOOD,
        )
        made = run(model, tools=[echo, Muse()])
        assert made.tools_df()["tool"].tolist() == ["echo", *["muse"] * used]
