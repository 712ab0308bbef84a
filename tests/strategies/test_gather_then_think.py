"""Gather, then think: which category a task is of and who says so, what is gathered for it, and what of that
reaches the thinker."""

import json
import time

import pytest
from support import Scripted, answer_to, wait

import tot_lab as tl
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.core.tools import tokens_in
from tot_lab.strategies.categories import CATEGORIES, GENERAL, categorise, category_of, hits, read_category
from tot_lab.testing import Trial, bounds_its_calls

D13 = [
    *("code_analysis", "research", "planning", "comparison", "debugging", "ideation", "technical"),
    *("business", "writing", "reasoning", "strategy", "bug_hunting", "security_audit", "sysadmin"),
    *("cloud_infra", "project_management", "qa_testing", "devops", "data_analysis", "documentation"),
    *("database", "monitoring", "other"),
]
TOOL_HEAVY = [
    *("code_analysis", "debugging", "bug_hunting", "security_audit", "sysadmin", "cloud_infra", "qa_testing"),
    *("devops", "data_analysis", "documentation", "database", "monitoring"),
]
AMBIGUOUS = "Compare the plans."


# Classification.


def test_d13_the_categories_are_those_of_the_design_and_so_are_the_tool_heavy_ones():
    assert list(CATEGORIES) == D13
    assert [name for name, category in CATEGORIES.items() if category.tools_first] == TOOL_HEAVY
    assert GENERAL not in CATEGORIES
    assert not category_of(GENERAL).tools_first
    assert len({category.gather for category in map(category_of, [*CATEGORIES, GENERAL])}) == 24


@pytest.mark.slow
@pytest.mark.parametrize("name", D13)
def test_d13_each_category_is_known_by_its_own_keywords(name):
    """However they are written; one that is in another's set too would make both useless."""
    for keyword in CATEGORIES[name].keywords.split(", "):
        word = keyword.replace("*", "ing")
        for text in (f"Now {word}, please.", word.upper(), word.replace(" ", "\n"), f"({word})"):
            assert set(hits(text)) == {name}, text
            assert categorise(text).category == name


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Refactor the parser so that it reads in one pass.", "code_analysis"),
        ("Find out who first measured the speed of light.", "research"),
        ("Draw up a timetable for the move.", "planning"),
        ("What are the trade-offs of heat pumps?", "comparison"),
        ("Here is the traceback. What is wrong?", "debugging"),
        ("Give me ideas for a rainy afternoon.", "ideation"),
        ("Which algorithms sort in linear time?", "technical"),
        ("How many customers does a bakery need?", "business"),
        ("Two short stories about ferries.", "writing"),
        ("Who lies? Solve the riddles.", "reasoning"),
        ("Long-term, should we open a second shop?", "strategy"),
        ("Are there any bugs left in it?", "bug_hunting"),
        ("Are we open to SQL injection?", "security_audit"),
        ("Why is the disk space of this Linux box used up?", "sysadmin"),
        ("Write Terraform for three VPCs.", "cloud_infra"),
        ("Which user stories belong into the next sprint?", "project_management"),
        ("The test suites take too long.", "qa_testing"),
        ("Deployment takes an hour; what can be done?", "devops"),
        ("Which outliers are in these datasets?", "data_analysis"),
        ("The README is out of date.", "documentation"),
        ("Why does Postgres ignore my foreign keys?", "database"),
        ("Latencies rise every night; see the dashboards.", "monitoring"),
        ("What can I cook tonight?", "other"),
    ],
)
def test_d13_a_task_of_each_category(text, category):
    assert categorise(text).category == category
    assert categorise(text).by == "keywords"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "How many legs have three spiders and a duck?",
        AMBIGUOUS,
        "Debug the database.",
        "The planet, an idealist, civic pride, carpets, a sprinter and mockery.",  # no whole words
    ],
)
def test_words_that_speak_of_none_or_of_several_decide_nothing(text):
    assert categorise(text) is None


def test_the_longest_keyword_counts_alone():
    assert hits("a test plan") == {"qa_testing": "test plan"}
    assert hits("a business  plan and a plan") == {"business": "business plan", "planning": "plan"}


@pytest.mark.nightly
@pytest.mark.parametrize("word", ["plan ", "x", " ", "\n", "sql injection ", "{", '{"category": '])
def test_a_text_of_a_megabyte_is_classified_at_once(word):
    text = word * (1_000_000 // len(word))
    began = time.perf_counter()
    categorise(text)
    read_category(text)
    assert time.perf_counter() - began < 120  # a quadratic reader takes hours
    assert categorise(f"{'x ' * 5_000} riddle") is None  # it is not read to its end


@pytest.mark.parametrize(
    ("reply", "category"),
    [
        ('{"category": "debugging"}', "debugging"),
        ('Sure:\n```json\n{"category": "Data Analysis"}\n```', "data_analysis"),
        ('{"category": "qa-testing",}', "qa_testing"),
        ('"writing"', "writing"),
        ("code_analysis", "code_analysis"),
        ("It is no puzzle.\nSo: **Code analysis**.", "code_analysis"),
        ("<think>planning, or research?</think>strategy", "strategy"),
        ('{"category": "other"}', "other"),
        ('{"category": "general"}', None),
        ('{"category": "animals"}', None),
        ('{"category": "animals", "why": "no planning"}', None),
        ("planning or debugging", None),
        ("Category: planning, since it needs research", "planning"),
        ("planning\n\nThe dates need some research.", "planning"),
        ("It is not planning but bug-hunting.", "bug_hunting"),
        ('{"label": "CloudInfra", "why": "no planning"}', "cloud_infra"),
        ("{'category': 'Project Management'}", "project_management"),
        ("planning: steps\nresearch: what is known", None),
        ("That is another story.", None),
        ('{"category": null}', None),
        ("", None),
    ],
)
def test_a_label_is_read_leniently_and_never_guessed(reply, category):
    assert read_category(reply) == category


# A run.


@tl.tool(pure=True)
def look(place: str) -> str:
    """Looks at a place."""
    return {"shed": f"a spade, a rake{' and dust' * 1_000}, and the key K-17"}[place]


THINKING = tl.DeepThink(max_iterations=1, num_branches=2)
DEEP = ("branch", "develop", "converge")


def gathering(**more):
    return tl.GatherThenThink(**{"strategy": THINKING, "gatherer": tl.ReAct(max_iterations=4), **more})


def model(category='{"category": "planning"}', places=("shed",), notes="In the shed is a spade."):
    """Looks at `places` in one turn, then answers `notes`."""

    def reply(call):
        if call.purpose == "classify":
            return category() if callable(category) else category
        if call.purpose != "act":
            return answer_to(call)
        if places and not any(message.role == "tool" for message in call.messages):
            asked = [ToolCall(f"c{k}", "look", json.dumps({"place": one})) for k, one in enumerate(places)]
            return Reply(tool_calls=tuple(asked))
        return Reply(tool_calls=(ToolCall("z", "final-answer", json.dumps({"answer": notes})),))

    return Scripted(reply)


def made(question, scripted=None, *, context="", tools=(look,), budget=None, **settings):
    scripted = scripted or model()
    lab = tl.Lab(scripted, runs=None, tools=tools)
    run = wait(lab.run(gathering(**settings), tl.open_ended(question, context=context), budget=budget))
    return run, scripted.calls


def notes(run, name):
    return [event.data for event in run.events if isinstance(event, tl.Note) and event.name == name]


def kinds(calls):
    return [call.purpose for call in calls]


def deep(calls):
    """The prompts of the thinker."""
    return [call.prompt for call in calls if call.purpose in DEEP]


def test_d13_one_category_hit_costs_no_call():
    run, calls = made("Debug the lock of the shed.")
    assert "classify" not in kinds(calls)
    (told,) = notes(run, "think.classified")
    assert told == {"category": "debugging", "by": "keywords", "why": "it says 'Debug'"}
    assert run.stop_reason == "limit:iterations"
    assert run.answer


def test_d13_else_one_model_call_decides_and_is_never_offered_general():
    run, calls = made(AMBIGUOUS)
    assert kinds(calls)[:2] == ["classify", "act"]
    (call,) = [call for call in calls if call.purpose == "classify"]
    assert call.response_format["properties"]["category"]["enum"] == D13
    assert all(f"\n{name}: " in call.prompt for name in D13)
    assert GENERAL not in call.prompt
    assert AMBIGUOUS in call.prompt
    (told,) = notes(run, "think.classified")
    assert told == {
        "category": "planning",
        "by": "model",
        "why": "its words speak of comparison and planning",
    }


@pytest.mark.parametrize(
    "reply", ['{"category": "general"}', "animals", "", "planning or debugging", "[" * 9_000]
)
def test_d13_an_unknown_label_is_general(reply):
    run, calls = made(AMBIGUOUS, model(reply))
    assert kinds(calls).count("classify") == 1
    (told,) = notes(run, "think.classified")
    assert (told["category"], told["by"]) == (GENERAL, "default")
    assert notes(run, "parse.unreadable") == [{"kind": "classify", "draw": 0}]
    assert run.answer


def test_a_classifying_call_that_fails_is_general_and_is_not_made_again():
    def broken():
        raise ConnectionError("no route")

    run, calls = made(AMBIGUOUS, model(broken))
    assert kinds(calls).count("classify") == 1
    (told,) = notes(run, "think.classified")
    assert (told["category"], told["by"]) == (GENERAL, "default")
    assert "no route" in told["why"]
    assert run.answer


@pytest.mark.slow
@pytest.mark.parametrize("name", [*D13, GENERAL])
def test_d13_each_category_has_its_gather_prompt_and_the_tool_heavy_ones_demand_tools(name):
    run, calls = made(AMBIGUOUS, model(json.dumps({"category": name})))
    acts = [call.prompt for call in calls if call.purpose == "act"]
    assert acts
    for prompt in acts:
        assert category_of(name).gather in prompt
        assert ("Look with the tools before" in prompt) == (name in TOOL_HEAVY)
        assert ("If none can, call none" in prompt) == (name not in TOOL_HEAVY)
    (told,) = notes(run, "think.gathered")
    assert told["tools_first"] == (name in TOOL_HEAVY)


def test_d13_what_was_gathered_and_the_tools_own_words_are_the_thinkers_context():
    """After the context that the user gave; and the user's words reach the gatherer."""
    run, calls = made("Debug the lock.", context="The lock is red.")
    for call in calls:
        assert "Debug the lock." in call.prompt
        assert "The lock is red." in call.prompt
    assert deep(calls)
    for prompt in deep(calls):
        parts = [
            "The lock is red.",
            "<notes>\nIn the shed is a spade.\n</notes>",
            'look({"place": "shed"}) → a spade',
        ]
        places = [prompt.index(part) for part in parts]
        assert places == sorted(places)
        assert "more characters are not shown" in prompt  # of the long result
    (told,) = notes(run, "think.gathered")
    assert (told["tool_calls"], told["results"], told["stop"]) == (1, 1, "answered")
    assert [node.id for node in run.tree if node.parent == "0"] == ["0.0", "0.2"]
    assert not notes(run, "think.nothing_gathered")


@pytest.mark.parametrize("how", [{"tools": ()}, {"gather": False}])
def test_without_tools_nothing_is_gathered_and_no_call_is_spent_on_it(how):
    run, calls = made(AMBIGUOUS, **how)
    assert set(kinds(calls)) == {"branch", "develop", "converge"}
    (told,) = notes(run, "think.classified")
    assert (told["category"], told["by"]) == (GENERAL, "default")
    assert not notes(run, "think.gathered") + notes(run, "think.nothing_gathered")
    assert not any("What was gathered" in prompt for prompt in deep(calls))
    run, _ = made("Debug it.", **how)
    assert notes(run, "think.classified")[0]["category"] == "debugging"


def test_a_gatherer_that_fails_loses_nothing():
    def reply(call):
        if call.purpose == "act":
            raise ConnectionError("no route")
        return answer_to(call)

    run, calls = made("Debug the lock.", Scripted(reply))
    assert notes(run, "think.nothing_gathered")[0]["stop"] == "error"
    assert not notes(run, "think.gathered")
    assert run.answer
    plain, alone = made("Debug the lock.", Scripted(reply), gather=False)
    assert deep(calls) == deep(alone)
    assert run.answer == plain.answer


def test_a_gatherer_that_never_answers_still_leaves_what_its_tools_gave():
    def reply(call):
        return (
            Reply("Hm.", tool_calls=(ToolCall("a", "look", '{"place": "shed"}'),))
            if call.purpose == "act"
            else answer_to(call)
        )

    run, calls = made("Debug the lock.", Scripted(reply))
    assert notes(run, "think.gathered")[0]["stop"] == "limit:iterations"
    assert all("→ a spade" in prompt for prompt in deep(calls))


@pytest.mark.slow
def test_a_tool_that_fails_is_told_and_is_no_result():
    run, calls = made("Debug the lock.", model(places=("attic",), notes=""))
    assert all("→ failed: KeyError" in prompt for prompt in deep(calls))
    assert notes(run, "think.nothing_gathered")[0]["results"] == 0


@pytest.mark.parametrize(("cap", "made_then"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)])
def test_a_refusal_ends_it_wherever_it_comes(cap, made_then):
    run, calls = made(AMBIGUOUS, budget=tl.Budget(calls=cap))
    assert run.stop_reason == "budget:calls"
    assert len(calls) == made_then


def test_a_person_may_change_what_is_looked_for_and_what_was_seen():
    first, _ = made("Debug the lock.")
    lab = tl.Lab(again := model(), runs=None, tools=(look,))
    wait(lab.branch(first, "0.0", content="Look for the key alone."))
    assert all("Look for the key alone." in call.prompt for call in again.calls if call.purpose == "act")
    lab = tl.Lab(again := model(), runs=None, tools=(look,))
    seen = next(node.id for node in first.tree if node.text.startswith("look →"))
    wait(lab.branch(first, seen, content="look → nothing but a cat"))
    assert deep(again.calls)
    for prompt in deep(again.calls):
        assert 'look({"place": "shed"}) → nothing but a cat' in prompt
        assert "a spade, a rake" not in prompt


def test_what_is_told_fits_the_window_and_the_raw_output_goes_first():
    window = {"context_window": 400, "cap_ratio": 0.5}  # 200 tokens
    _, calls = made("Debug the lock.", model(notes="N" * 700), research=window)
    for prompt in deep(calls)[:1]:
        assert "N" * 700 in prompt
        assert "a spade" in prompt
        assert "…" in prompt
        told = prompt.partition("What was gathered for it.")[2].partition("</tool_output>")[0]
        assert tokens_in(told) < 200 + 80  # with what stands around it


def test_max_calls_is_a_true_bound():
    busy = gathering(gatherer=tl.ReAct(max_iterations=3))
    assert busy.max_calls(tl.general(AMBIGUOUS)) == 1 + 3 + 5 + THINKING.max_calls(tl.general("x"))
    assert busy.max_calls(tl.general("Debug it.")) == 3 + 5 + THINKING.max_calls(tl.general("x"))
    off = gathering(gatherer=tl.ReAct(max_iterations=3), research={"enabled": False})
    assert off.max_calls(tl.general("Debug it.")) == 3 + THINKING.max_calls(tl.general("x"))
    assert gathering(gather=False).max_calls(tl.general("x")) == THINKING.max_calls(tl.general("x"))
    for question in (AMBIGUOUS, "Debug it."):
        bounds_its_calls(Trial(off, tl.general(question)))

    class Endless(tl.Strategy):
        kind = ""

    assert gathering(gatherer=Endless()).max_calls(tl.general("x")) is None


def test_any_strategy_can_gather_and_any_can_think():
    run, _ = made("Debug the lock.", gatherer=tl.PlanExecute(), strategy=tl.OneAnswer())
    assert run.answer
    run, calls = made("Debug the lock.", gatherer=tl.ToolLoop(), strategy=tl.ChainOfThought())
    assert "a spade" in calls[-1].prompt
    run, _ = made("Debug the lock.", gatherer=tl.BestOf(strategy=tl.ReAct(max_iterations=2), attempts=2))
    assert run.answer


def test_its_settings():
    settings = gathering(research={"enabled": False, "context_window": 1_000}).settings()
    again = tl.part_of(json.loads(json.dumps(settings)))
    assert again.research == tl.records.ResearchDelegate(enabled=False, context_window=1_000)
    for wrong in ({"cap_ratio": 1.5}, {"context_window": 0}, {"max_pages": "many"}, {"enable": True}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            gathering(research=wrong)


# What the report says of it.


@tl.tool
def read_page(url: str) -> str:
    """Reads a page."""
    if url.endswith("/gone"):
        raise LookupError("no such page")
    return f"The page {url}"


def pages(*urls):
    """A model that reads some pages in one turn."""

    def reply(call):
        if call.purpose != "act":
            return '{"category": "planning"}' if call.purpose == "classify" else answer_to(call)
        if any(message.role == "tool" for message in call.messages):
            return Reply(tool_calls=(ToolCall("z", "final-answer", '{"answer": "Found."}'),))
        asked = [ToolCall(f"c{k}", "read-page", json.dumps({"url": url})) for k, url in enumerate(urls)]
        return Reply(tool_calls=tuple(asked))

    return Scripted(reply)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["report", "report_html"])
def test_d13_the_report_says_what_was_gathered_by_which_tools_and_from_where(form):
    urls = ["http://a.example/one", "http://a.example/gone"]
    run, _ = made(AMBIGUOUS, pages(*urls), tools=(read_page,), research={"enabled": False})
    thought = tl.deep_thought(run)
    text = getattr(thought, form)()
    for said in ("planning", "the model", "speak of comparison and planning", "read-page", *urls):
        assert said in text
    assert "no such page" in text
    assert "Nothing was gathered" not in text
    assert thought.gathering.category == "planning"
    assert thought.gathering.by == "model"
    assert [use.tool for use in thought.gathering.uses] == ["read-page", "read-page"]
    assert [bool(use.error) for use in thought.gathering.uses] == [False, True]
    assert thought.gathering.sources == ("http://a.example/one",), "what failed is no source"


@pytest.mark.parametrize(("more", "why"), [({"tools": ()}, "no tools"), ({"gather": False}, "turned off")])
def test_d13_the_report_says_so_when_nothing_was_gathered(more, why):
    run, _ = made("Debug the lock.", **more)
    thought = tl.deep_thought(run)
    assert why in thought.gathering.nothing
    for text in (thought.report(), thought.report_html(), str(thought)):
        assert "debugging" in text
        assert "othing" in text
        assert why in text


def test_d13_a_deep_think_alone_says_nothing_of_gathering():
    run = wait(tl.Lab(Scripted(), runs=None).run(THINKING, tl.open_ended("Why?")))
    assert tl.deep_thought(run).gathering is None
    assert "ather" not in tl.deep_thought(run).report()
