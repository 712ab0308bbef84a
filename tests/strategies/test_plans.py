"""A plan as data: what makes it sound, references, quantities; and plans in SQLite as they run, also when the
process is killed in the middle of one."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import wait

import tot_lab as tl
from tot_lab.core.tools import ToolSpec, read_quantities
from tot_lab.strategies.plans import (
    PlanDraft,
    PlanStep,
    StepDraft,
    filled_in,
    further_calls,
    inserted,
    items_in,
    missing_calls,
    planned,
    rewritten,
)

SEARCH = ToolSpec(
    name="web-search",
    description="Searches.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
ADD = ToolSpec(
    name="add",
    description="Adds.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)
TOOLS = {spec.name: spec for spec in (SEARCH, ADD)}


def draft(*steps):
    return PlanDraft.model_validate({"steps": list(steps)})


def think(instruction="think", **more):
    return {"type": "analysis", "instruction": instruction, **more}


def call(name="add", args=None, **more):
    return {"type": "tool_call", "toolName": name, "toolArgs": args or {}, **more}


def steps_of(*steps, before=(), mode="dag", most=20):
    return planned(draft(*steps), before, TOOLS, mode, most)


# What makes a plan sound.


def test_ids_seq_and_status_are_added_to_what_a_model_writes():
    one, two = steps_of(
        call("web_search", {"query": "x", "more": [1, {"deep": "{{from_step:s2}}"}]}),
        think("look", title="Look", dependsOn=None, toolHints=None, status="completed", result="made up"),
    )
    assert (one.id, one.seq, one.status, one.tool_name, one.depends_on) == (
        "s1",
        1,
        "pending",
        "web-search",
        ("s2",),
    )
    assert (two.id, two.seq, two.status, two.result, two.retries) == ("s2", 2, "pending", None, 0)
    assert set(one.content()) == {
        *(
            "id",
            "seq",
            "title",
            "instruction",
            "type",
            "toolName",
            "toolArgs",
            "toolHints",
            "dependsOn",
            "node",
        )
    }
    with pytest.raises(ValueError, match="step 2: type"):
        draft(think(), {"instruction": "what kind?"})
    assert len(PlanDraft.model_validate([think()]).steps) == 1


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([], "there are 0 steps"),
        ([think()] * 1000, "there are 1000 steps"),
        ([call(args={"a": float("inf")})], "s1: toolArgs holds a number"),
        ([think("\ud800")], "s1: it cannot be written"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_by_the_step(steps, why):
    with pytest.raises(ValueError, match=why):
        steps_of(*steps)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (call(None), "s2: a tool_call needs a toolName"),
        ({"type": "composite", "instruction": "do", "toolHints": ["drill"]}, "s2: there is no tool 'drill'"),
        (think("  "), "s2: it has no instruction"),
        (think(dependsOn=["s2"]), "s2: it depends on itself"),
        (think("use {{from_step:s2}}"), "s2: it depends on itself"),
        (call(instruction="use {{ from_step : s2 }}"), "s2: it depends on itself"),
        (think(toolArgs={"a": "{{from_step:s9}}"}), "s2: it depends on 's9'"),
        (think(dependsOn=["s7"]), "s2: it depends on 's7'"),
        (call(args={"a": [["{{from_step:s9}}"]]}), "s2: it depends on 's9'"),
        (call(args={"a": "{{from_step:s1:whole}}"}), "s2: {{from_step:s1:whole}} is malformed; write"),
        (think(dependsOn=["twice"]), "s2: it depends on 'twice', the name of several steps"),
    ],
)
def test_r4_r6_a_wrong_reference_costs_its_step_and_never_the_plan(step, why):
    made = steps_of(think(), step, think(id="twice"), think("of {{from_step:s1}}", id="twice"))
    assert [bool(one.error) for one in made] == [False, True, False, False]
    assert made[1].error.startswith(why)
    assert made[3].depends_on == ("s1",)


def test_r4_an_unknown_tool_costs_its_step_and_never_the_plan():
    made = steps_of(think(), call("telescope"), call("web_search", {"query": "x"}))
    why = "s2: there is no tool 'telescope'; there are add, web-search"
    assert [step.error for step in made] == [None, why, None]
    assert [step.error for step in planned(draft(call("add")), (), {}, "linear", 20)] == [
        "s1: there is no tool 'add'; there are none"
    ]
    failed = [made[0], made[1].changed(status="failed"), made[2]]
    again = rewritten(draft(call("microscope", id="s2")), failed, TOOLS, "dag", 20)
    assert again[1].error == "s2: there is no tool 'microscope'; there are add, web-search"


def test_r4_r6_a_circle_costs_one_of_its_steps():
    made = steps_of(think(dependsOn=["s2"]), think(dependsOn=["s3"]), think(dependsOn=["s1"]), think())
    (wrong,) = [step for step in made if step.error]
    assert re.fullmatch(r"s\d: it depends on itself, by s\d → s\d → s\d → s\d", wrong.error)


def test_r4_ids_may_be_numbers_one_name_alone_or_null():
    one, two, three = steps_of(
        think(id=1, title=None), think(id=None, dependsOn="1"), think("of {{from_step:2}}", dependsOn=[1])
    )
    assert (one.id, two.depends_on, three.depends_on) == ("s1", ("s1",), ("s1", "s2"))
    assert not any(step.error for step in (one, two, three))


@pytest.mark.parametrize(
    ("result", "items"),
    [
        ('["AAPL", "MSFT", 3]', ["AAPL", "MSFT", "3"]),
        ("The companies:\n1. AAPL\n2. MSFT", ["AAPL", "MSFT"]),
        ("- AAPL\n* MSFT", ["AAPL", "MSFT"]),
        ("AAPL\nMSFT", ["AAPL", "MSFT"]),
        ("AAPL, MSFT, TSLA.", ["AAPL", "MSFT", "TSLA"]),
        ("They are: AAPL, MSFT", ["AAPL", "MSFT"]),
        ("AAPL", ["AAPL"]),
    ],
)
def test_r8_the_items_that_a_result_lists(result, items):
    assert items_in(result) == items


def test_r8_an_item_that_is_not_there_fails_its_step():
    one = PlanStep(id="s1", seq=1, type="analysis", status="completed", result="AAPL, MSFT")
    two = PlanStep(id="s2", seq=2, type="tool_call")
    assert filled_in("{{from_step:s1:item:2}}", two, {"s1": one, "s2": two}) == "MSFT"
    with pytest.raises(ValueError, match="names item 3, but there are only 2"):
        filled_in("{{from_step:s1:item:3}}", two, {"s1": one, "s2": two})


def test_r4_ids_that_a_model_writes_are_renumbered_with_what_refers_to_them():
    made = steps_of(
        think(id="look"),
        call(args={"a": "{{from_step:look:summary}}"}, id="count"),
        think("{{from_step:count}} of {{ from_step:look }}", dependsOn=["look"], id="7"),
    )
    assert [step.id for step in made] == ["s1", "s2", "s3"]
    assert not any(step.error for step in made)
    assert made[1].tool_args == {"a": "{{from_step:s1:summary}}"}
    assert made[2].instruction == "{{from_step:s2}} of {{from_step:s1}}"
    assert made[2].depends_on == ("s1", "s2")
    swapped = steps_of(think("of {{from_step:s1}}", id="s2"), think(id="s1"))
    assert (swapped[0].instruction, swapped[0].depends_on) == ("of {{from_step:s2}}", ("s2",))
    before = [made[0].changed(status="completed", result="r")]
    again = steps_of(think(id="s1"), think(dependsOn=["s1"]), before=before)
    assert [step.id for step in again] == ["s1", "s2", "s3"]
    assert "the name of several steps" in again[2].error, "never a guess which s1 is meant"


def test_r5_a_composite_step_has_the_tools_of_its_hints_and_no_others():
    """Hints that are left out are those of the schema's default, `[]`."""
    assert StepDraft.model_json_schema()["properties"]["toolHints"]["default"] == []
    some = {"type": "composite", "instruction": "do it"}
    for written, hints in (
        (some, ()),
        ({**some, "toolHints": None}, ()),
        ({**some, "toolHints": []}, ()),
        ({**some, "toolHints": ["web_search"]}, ("web-search",)),
        (think(), ()),
    ):
        assert steps_of(written)[0].tool_hints == hints


def test_r8_entities_are_one_call_each_and_who_needs_them_needs_all():
    made = steps_of(
        call("web-search", {"query": ["Oslo", "Rome"]}, id="cities"),
        call("add", {"a": [1, 2]}),
        think("Compare {{from_step:cities}}.", dependsOn=["s2"]),
    )
    assert [step.tool_args for step in made[:4]] == [{"query": "Oslo"}, {"query": "Rome"}, {"a": 1}, {"a": 2}]
    assert made[4].instruction == "Compare {{from_step:s1}}\n{{from_step:s2}}."
    assert set(made[4].depends_on) == {"s1", "s2", "s3", "s4"}
    with pytest.raises(ValueError, match="there are 21 steps"):
        steps_of(call("web-search", {"query": ["x"] * 21}))


def test_a_step_waits_for_what_its_instruction_refers_to_whatever_its_type():
    _, two, three = steps_of(think(), call(instruction="of {{from_step:s1}}"), think("{{from_step:s2}}"))
    assert (two.depends_on, three.depends_on) == (("s1",), ("s2",))


def test_a_linear_plan_refers_backwards_only():
    forward = steps_of(think(dependsOn=["s2"]), think(), mode="linear")
    assert [step.error for step in forward] == ["s1: it depends on s2, which comes after it", None]
    assert steps_of(think(dependsOn=["s2"]), think(), mode="dag")[0].depends_on == ("s2",)


def test_a_patch_rewrites_failed_and_pending_steps_only():
    done, failed, pending = steps_of(think(), think(), think(dependsOn=["s2"]))
    steps = [
        done.changed(status="completed", result="r"),
        failed.changed(status="failed", error="e"),
        pending,
    ]

    def patched(*written):
        return rewritten(draft(*written), steps, TOOLS, "linear", 20)

    made = patched(think("anew", id="s2"))
    assert [step.status for step in made] == ["completed", "pending", "pending"]
    assert (made[0], made[1].instruction, made[2]) == (steps[0], "anew", pending)
    for wrong in ([think("anew", id="s9")], [think("anew")]):
        assert patched(*wrong) == made, "it can only stand for the one that failed"
    with pytest.raises(ValueError, match="s1: it is completed and cannot be rewritten"):
        patched(think("anew", id="s1"))
    assert patched(think("no", id="s1"), think("anew", id="s2"))[:2] == made[:2]
    assert patched(think("anew", id="s2"), think("no", id="s2")) == made
    left = patched(think("later", id="s3"))
    assert [step.status for step in left] == ["completed", "failed", "pending"]


def test_a_patch_without_a_step_that_can_be_written_anew_is_refused():
    (done,) = steps_of(think())
    steps = [done.changed(status="completed", result="r")]
    for written, why in (
        (think(id="s1"), "s1: it is completed and cannot be rewritten"),
        (think(id="s9"), "s9: the plan has no such step"),
        (think(), "a step without an id"),
    ):
        with pytest.raises(ValueError, match=why):
            rewritten(draft(written), steps, TOOLS, "linear", 20)


# References.


def test_references_are_filled_in_wherever_they_stand():
    one = PlanStep(id="s1", seq=1, type="analysis", status="completed", result="r" * 600)
    two = PlanStep(id="s2", seq=2, type="tool_call")
    value = {"a": ["{{from_step:s1}}", {"b": "<{{ from_step: s1 : summary }}>"}], "c": 7, "d": "plain {{x}}"}
    assert filled_in(value, two, {"s1": one, "s2": two}) == {
        "a": ["r" * 600, {"b": f"<{'r' * 500}>"}],
        "c": 7,
        "d": "plain {{x}}",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{from_step:s2}}", "s2: {{from_step:s2}} names the step itself"),
        ("{{from_step:s1:summary}}", r"s2: .* is not completed \(it is failed\)"),
        ("{{from_step:s8}}", "s2: .* the plan does not have"),
    ],
)
def test_a_reference_to_what_is_not_there_says_so(text, why):
    failed = PlanStep(id="s1", seq=1, type="analysis", status="failed")
    own = PlanStep(id="s2", seq=2, type="analysis")
    with pytest.raises(ValueError, match=why):
        filled_in([text], own, {"s1": failed, "s2": own})


@pytest.mark.slow
@given(st.text(alphabet="{}s1: xé") | st.text().map("{{{{from_step:s1}}}} {}".format))
def test_any_text_can_be_looked_through_for_references(text):
    one = PlanStep(id="s1", seq=1, type="analysis", status="completed", result="8")
    two = PlanStep(id="s2", seq=2, type="analysis")
    assert filled_in(text, two, {"s1": one, "s2": two}) == text.replace("{{from_step:s1}}", "8")


# Quantities.


def test_quantities_are_read():
    wanted = read_quantities(["web-search×4", "add x2", "calc*3", "fetch", "fetch"])
    assert wanted == {"web-search": 4, "add": 2, "calc": 3, "fetch": 2}
    for bad in ("", "×4", "add×0", "add×many"):
        with pytest.raises(ValueError, match="expected a tool with a quantity, such as web-search×4: got"):
            read_quantities([bad])


def searches(*queries, before=(), **more):
    return further_calls(
        draft(*[call("web-search", {"query": query}, **more) for query in queries]),
        before,
        {"web-search": 2},
        TOOLS,
        "linear",
        20,
    )


def test_missing_calls_are_those_of_tool_call_steps():
    there = steps_of(call("web-search", {"query": "moon"}), call(), think())
    assert missing_calls(there, {"web-search": 4, "add": 1}) == {"web-search": 3}
    hinted = steps_of({"type": "composite", "instruction": "search", "toolHints": ["web-search"]})
    assert missing_calls(hinted, {"web-search": 1}) == {"web-search": 1}


def test_of_a_draft_of_further_calls_only_the_missing_ones_are_taken():
    there = steps_of(call("web-search", {"query": "moon"}))
    assert [step.tool_args["query"] for step in searches("a", "b", "c", before=there)] == ["a", "b"]
    with pytest.raises(ValueError, match="no step is a tool_call of web-search"):
        further_calls(draft(think(), call("add", {"a": 1})), there, {"web-search": 2}, TOOLS, "linear", 20)


def test_steps_that_use_the_results_of_a_tool_use_the_added_ones_too():
    there = steps_of(
        call("web-search", {"query": "moon"}),
        think("Compare {{from_step:s1}}."),
        call("add", {"a": 1}),
        think("Sum up {{from_step:s2:summary}}."),
        think("List {{from_step:s1}}."),
        mode="linear",
    )
    made = inserted(there, searches("tides", "stars", before=there))
    assert [step.id for step in made] == [f"s{k}" for k in range(1, 8)] == [f"s{step.seq}" for step in made]
    assert [step.tool_args.get("query") for step in made[:3]] == ["moon", "tides", "stars"]
    assert {step.instruction: step.depends_on for step in made if step.type == "analysis"} == {
        "Compare {{from_step:s1}}.": ("s1", "s2", "s3"),
        "Sum up {{from_step:s4:summary}}.": ("s4",),
        "List {{from_step:s1}}.": ("s1", "s2", "s3"),
    }


def test_an_added_call_comes_after_the_steps_that_it_uses():
    there = steps_of(
        call("web-search", {"query": "moon"}),
        think("Which moons? {{from_step:s1}}"),
        think("Compare {{from_step:s1}}."),
        mode="linear",
    )
    made = inserted(there, searches("{{from_step:s2:item:1}}", before=there))
    assert [step.type for step in made] == ["tool_call", "analysis", "tool_call", "analysis"]
    assert made[2].tool_args == {"query": "{{from_step:s2:item:1}}"}
    assert [step.depends_on for step in made] == [(), ("s1",), ("s2",), ("s1", "s3")]


def test_an_added_call_never_waits_for_a_step_that_waits_for_it():
    """In a dag, a step may stand before the steps that it needs."""
    there = steps_of(
        think("Which moons? {{from_step:s3}}"),
        call("web-search", {"query": "moon"}),
        think("List {{from_step:s2}}."),
    )
    made = inserted(there, searches("{{from_step:s1}}", before=there))
    needs = {step.id: {*step.depends_on} for step in made}
    list(TopologicalSorter(needs).static_order())  # raises CycleError
    assert [step.type for step in made] == ["analysis", "tool_call", "analysis", "tool_call"]


# In SQLite, as it runs.

TASK = tl.general("What do the parts come to?", answer=6, grade="number")
PLAN = {
    "steps": [call("note", {"part": k}) for k in (1, 2, 3)]
    + [think("Add them.", dependsOn=["s1", "s2", "s3"])]
}
SAID = {"plan": json.dumps(PLAN), "analysis": "They come to 6.", "review": "SATISFIED: yes\nAnswer: 6"}


async def model(call):
    return tl.Reply(SAID[call.purpose], input_tokens=100, output_tokens=10, cost=0.5)


@tl.tool
def note(part: int) -> str:
    """Notes a part."""
    return f"part {part}"


def test_a_plan_is_the_same_from_the_record_and_from_the_database(tmp_path):
    lab = tl.Lab(model, runs=tmp_path, tools=[note], plans=tmp_path / "plans.db")
    run = wait(lab.run(tl.PlanExecute(plan_mode="dag"), TASK))
    (plan,) = tl.PlanStore(tmp_path / "plans.db").all()
    assert plan == run.plans[0] == tl.load(run.path).plans[0]
    assert (plan.id, plan.goal, plan.mode, plan.status, plan.version) == (
        f"{run.id}:0",
        TASK.question,
        "dag",
        "completed",
        1,
    )
    assert (plan.tokens, plan.cost) == (330, 1.5)
    assert [(step.status, step.result, step.tokens_used) for step in plan.steps] == [
        *(("completed", f"part {k}", 0) for k in (1, 2, 3)),
        ("completed", "They come to 6.", 110),
    ]
    for step in plan.steps:
        assert plan.created_at <= step.started_at <= step.completed_at <= plan.completed_at <= run.seconds
        assert run.tree[step.node].depends == tuple(plan[id].node for id in step.depends_on)
    assert plan.journal == str(run.path)
    assert json.loads(plan.model_dump_json(by_alias=True))["steps"][0]["toolArgs"] == {"part": 1}
    alone = wait(tl.Lab(model, runs=None, tools=[note]).run(tl.PlanExecute(plan_mode="dag"), TASK))
    assert [step.result for step in alone.plans[0].steps] == [step.result for step in plan.steps]


def test_each_change_of_a_status_is_in_the_database_when_it_happens(tmp_path):
    store = tl.PlanStore(tmp_path / "plans.db")
    seen = []

    @tl.tool
    def look(part: int) -> str:
        """Looks at the database from within a step."""
        (plan,) = tl.PlanStore(store.path).all("active")
        seen.append([step.status for step in plan.steps])
        return "seen"

    async def planning(call):
        steps = [{"type": "tool_call", "toolName": "look", "toolArgs": {"part": k}} for k in (1, 2)]
        return json.dumps({"steps": steps}) if call.purpose == "plan" else SAID[call.purpose]

    lab = tl.Lab(planning, runs=None, tools=[look], plans=store)
    run = wait(lab.run(tl.PlanExecute(), TASK))
    assert seen == [["in_progress", "pending"], ["completed", "in_progress"]]
    assert store.all("active") == []
    assert store.all() == run.plans


def test_r9_a_plan_whose_run_file_is_gone_is_a_clear_error(tmp_path):
    lab = tl.Lab(model, runs=tmp_path, tools=[note], plans=tmp_path / "plans.db")
    run = wait(lab.run(tl.PlanExecute(), TASK))
    (plan,) = tl.PlanStore(tmp_path / "plans.db").all()
    run.path.unlink()
    with pytest.raises(FileNotFoundError) as gone:
        wait(lab.resume(plan.journal))
    assert plan.journal in str(gone.value)
    assert "there is no such file" in str(gone.value)
    in_memory = wait(tl.Lab(model, runs=None, tools=[note]).run(tl.PlanExecute(), TASK)).plans[0]
    with pytest.raises(ValueError, match="A run of a lab with runs=None has no journal"):
        wait(lab.resume(in_memory.journal))


def test_a_database_that_cannot_be_written_costs_no_run(tmp_path):
    store = tl.PlanStore(tmp_path / "plans.db")
    with sqlite3.connect(store.path) as database:
        database.execute("DROP TABLE plans")
    database.close()
    lab = tl.Lab(model, runs=None, tools=[note], plans=store)
    with pytest.warns(RuntimeWarning, match="plans are no longer written"):
        run = wait(lab.run(tl.PlanExecute(), TASK))
    assert run.answer == "6"
    (tmp_path / "other.db").write_text("no database, but long enough to be looked at " * 9)
    with pytest.raises(sqlite3.DatabaseError):
        tl.PlanStore(tmp_path / "other.db")


def test_another_programs_database_and_a_newer_one_are_refused_and_left_as_they_are(tmp_path):
    tables = {
        "recipes.db": "CREATE TABLE recipes (name)",
        "likewise.db": "CREATE TABLE plans (id TEXT PRIMARY KEY, name TEXT)",
        "beside.db": "CREATE TABLE IF NOT EXISTS t (x); CREATE VIEW steps AS SELECT x FROM t",
        "marked.db": "PRAGMA application_id = 5",
        "versioned.db": "PRAGMA user_version = 3",
    }
    for name, made in tables.items():
        database = sqlite3.connect(tmp_path / name)
        database.executescript(made)
        database.close()
    tl.Lessons(tmp_path / "lessons.db")
    for name in (*tables, "lessons.db"):
        path = tmp_path / name
        before = path.read_bytes()
        with pytest.raises(sqlite3.DatabaseError, match=rf"{name}: .*this database does not hold plans"):
            tl.PlanStore(path)
        assert path.read_bytes() == before
        assert not list(tmp_path.glob("*-wal"))
    tl.PlanStore(tmp_path / "plans.db")
    with pytest.raises(tl.errors.LessonsError, match="does not hold lessons"):
        tl.Lessons(tmp_path / "plans.db")
    with sqlite3.connect(tmp_path / "plans.db") as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(sqlite3.DatabaseError, match="newer version"):
        tl.PlanStore(tmp_path / "plans.db")


def test_a_database_of_plans_of_an_earlier_version_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "plans.db"
    tl.PlanStore(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 1")
    database.close()
    before = path.read_bytes()
    with pytest.raises(sqlite3.DatabaseError, match=r"plans\.db: .*older version.*journals.*hold the plans"):
        tl.PlanStore(path)
    assert path.read_bytes() == before


def test_plans_keep_their_order_while_they_change(tmp_path):
    store = tl.PlanStore(tmp_path / "plans.db")
    lab = tl.Lab(model, runs=None, tools=[note], plans=store)
    runs = [wait(lab.run(tl.PlanExecute(), TASK)) for _ in range(3)]
    assert store.all() == [plan for run in runs for plan in run.plans]
    assert store.all("active") == []


def test_notes_of_others_by_such_a_name_do_no_harm():
    with tl.Recorder("own") as recorder:
        root = recorder.thought("problem")
        recorder.note("plan.created", root, steps="none")
        recorder.note("plan.step_completed", root, step="s1")
        recorder.note("plan.ended", root)
    assert recorder.run.plans == []


KILLED = """
import asyncio, json, sys, time
from pathlib import Path
import tot_lab as tl

folder = Path(sys.argv[1])

@tl.tool(effects=("files",), retries=0, timeout=60)
def append(part: int) -> str:
    "Appends a part to a file."
    if part == 3 and not (folder / "go").exists():
        (folder / "hanging").touch()
        time.sleep(50)
    with (folder / "effects").open("a") as file:
        file.write(f"{part}\\n")
    return f"part {part}"

STEPS = [{"type": "tool_call", "toolName": "append", "toolArgs": {"part": k}} for k in (1, 2, 3)]
STEPS += [
    {"type": "tool_call", "toolName": "append", "toolArgs": {"part": 4}, "dependsOn": ["s1", "s2"]},
    {"type": "tool_call", "toolName": "append", "toolArgs": {"part": 5}, "dependsOn": ["s3", "s4"]},
]
SAID = {"plan": json.dumps({"steps": STEPS}), "review": "SATISFIED: yes\\nAnswer: 6"}

async def model(call):
    with (folder / "asked").open("a") as file:
        file.write(call.purpose + "\\n")
    return SAID[call.purpose]

async def main():
    lab = tl.Lab(model, runs=folder / "runs", tools=[append], plans=folder / "plans.db")
    if len(sys.argv) > 2:
        (plan,) = lab.plans.all("active")
        run = await lab.resume(plan.journal)
    else:
        run = await lab.run(tl.PlanExecute(plan_mode="dag"), tl.general("What?"))
    print(run.answer)

asyncio.run(main())
"""


@pytest.mark.nightly
def test_killed_in_a_wave_and_gone_on_with_no_completed_step_runs_again(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    store = tmp_path / "plans.db"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            plans = tl.PlanStore(store).all() if (tmp_path / "hanging").exists() else []
            if plans and [step.status for step in plans[0].steps[:2]] == ["completed"] * 2:
                break
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    (plan,) = tl.PlanStore(store).all("active")
    assert [step.status for step in plan.steps] == [
        "completed",
        "completed",
        "in_progress",
        "pending",
        "pending",
    ]
    assert sorted((tmp_path / "effects").read_text().split()) == ["1", "2"]
    (tmp_path / "go").touch()
    again = subprocess.run([*command, "again"], capture_output=True, text=True, timeout=60, check=True)
    assert again.stdout.strip() == "6"
    effects = (tmp_path / "effects").read_text().split()
    assert sorted(effects) == ["1", "2", "3", "4", "5"]
    assert effects[-2:] == ["4", "5"]
    assert (tmp_path / "asked").read_text().split() == ["plan", "review"]
    (done,) = tl.PlanStore(store).all()
    assert (done.id, done.status) == (plan.id, "completed")
    assert [step.result for step in done.steps] == [f"part {k}" for k in (1, 2, 3, 4, 5)]
    assert done.steps[0] == plan.steps[0]
    run = tl.load(Path(done.journal))
    assert run.plans == [done]
    assert wait(run.replay()).identical


# One query at a time.


@pytest.mark.slow
def test_a_session_answers_busy_to_a_second_query_and_loses_nothing_of_the_first():
    async def both():
        going = asyncio.Event()

        async def slow(call):
            going.set()
            await asyncio.sleep(0.05)
            return "Answer: 6"

        session = tl.Session(tl.Lab(slow, runs=None))
        first = asyncio.ensure_future(session.ask(tl.OneAnswer(), TASK))
        await going.wait()
        assert session.busy
        with pytest.raises(tl.errors.Busy, match=r"^busy: .*What do the parts come to"):
            await session.ask(tl.OneAnswer(), TASK)
        run = await first
        alone = await session.lab.run(tl.OneAnswer(), TASK)
        third = await session.ask(tl.OneAnswer(), TASK)
        two = await asyncio.gather(*(session.lab.run(tl.OneAnswer(), TASK) for _ in range(2)))
        return run, alone, third, session.busy, *two

    run, alone, third, busy, *two = wait(both())
    assert run.events == alone.events == two[0].events == two[1].events
    assert run.question in third.task.context  # a later turn knows the earlier ones
    assert not busy


def test_a_session_is_free_again_after_a_cancel_and_a_bug():
    class Broken(tl.Strategy):
        kind = "tests/broken_query"

        def think(self, task, at="0"):
            yield tl.Thought(at, None, "x")
            raise KeyError("bug")

    async def ask():
        session = tl.Session(tl.Lab(lambda call: asyncio.sleep(60), runs=None))
        with pytest.raises(KeyError):
            await session.ask(Broken(), TASK)
        assert not session.busy
        running = asyncio.ensure_future(session.ask(tl.OneAnswer(), TASK))
        await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not session.busy
        assert session.lab.last.stop_reason == "cancelled"

    wait(ask())
