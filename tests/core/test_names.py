"""Which of several known names a reply states: in JSON, labelled, alone on a line, or mentioned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tot_lab.core.reading.names import read_name

NAMES = {
    "tree-of-thought": "tree",
    "creative": "tree",
    "plan_execute": "plan",
    "ReAct": "react",
    "steps": "plan",
}


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        # any spelling
        ("tree-of-thought", "tree"),
        ("Tree of Thought", "tree"),
        ("TREE_OF_THOUGHTS", "tree"),
        ("treeOfThought.", "tree"),
        ("tree\u2011of\u2011thought", "tree"),
        ("ｃｒｅａｔｉｖｅ", "tree"),
        ("**ReAct**", "react"),
        ("`plan-execute`", "plan"),
        ("plan-and-execute", "plan"),
        ("Plan and Execute", "plan"),
        # JSON: the key that was asked for, or else the only name
        ('{"kind": "creative"}', "tree"),
        ('Sure:\n```json\n{"Kind": "Tree of thoughts"}\n```', "tree"),
        ('{"strategy": "react", "why": "creative work takes many steps"}', "react"),
        ('{"kind": "creative", "strategy": "react"}', "tree"),
        ('{"route": {"to": ["steps"]}}', "plan"),
        ("{'kind': 'react',}", "react"),
        ('"steps"', "plan"),
        ('{"route": "react", "why": "it takes many steps"}', "react"),
        ('{"route": ["react"], "why": "it takes many steps"}', "react"),
        ('For instance {"kind": "steps"}. Mine: {"kind": "react"}', "react"),
        ('{"kind": "steps, because one leads to the next"}', "plan"),
        # a statement beats a mention
        ("Kind: steps, because it is creative work", "plan"),
        ("Kind: steps\n\nIt is creative, but ReAct would do too.", "plan"),
        ("react\n\nNo creative work is asked for, and no plan_execute.", "react"),
        ("steps - the work is not creative", "plan"),
        ("It takes steps.\nSo it is creative.", "tree"),
        ("The task needs steps.\nKind: creative\nWait.\nKind: steps", "plan"),
        # negations and reasons
        ("It is not creative but has steps.", "plan"),
        ("Rather ReAct than tree-of-thought.", "react"),
        ("I take ReAct since nothing creative is asked for.", "react"),
        ("Because it has steps, plan-execute.", "plan"),
        ("<think>creative? no</think>steps", "plan"),
        ("steps\n\nThat is creative work.", "plan"),
        ("I would use steps.\nThat will do.", "plan"),
        ("Since it has no steps, it is creative.", "tree"),
        # two readings are none
        ("creative or steps", None),
        ("creative? steps?", None),
        ("creative? No. It takes steps.", None),
        ("Kind: creative / steps", None),
        ('{"kind": "creative | steps"}', None),
        ('{"a": "creative", "b": "steps"}', None),
        ("creative: many ways\nsteps: one after another", None),
        ("maybe creative", None),
        # none
        ("", None),
        ("I cannot say.", None),
        ("reaction, recreative, stepson", None),
        ("It is a reaction.", None),
        ('{"kind": "banana", "why": "creative"}', None),
        ('{"kind": null}', None),
        ("It is not creative.", None),
    ],
)
def test_a_name_is_read_as_it_was_stated(reply, meant):
    assert read_name(reply, NAMES, "kind") == meant


LABELS = ["Category", "Kind", "Strategy", "Type", "Class", "Answer", "Choice", "Approach"]
PLAN = [f"{label}: steps\nIt is creative." for label in LABELS]
PLAN += [f"The kind is{article} steps.\nIt is creative." for article in ("", " a", " an", " the")]
PLAN += [f"{it} steps.\nReAct follows." for it in ("It is", "It's", "This is", "That is")]
PLAN += [
    f"The {it} is{a} steps.\nReAct follows." for it in ("task", "question", "problem") for a in ("", " the")
]
PLAN += [f"{no} creative; it takes steps." for no in ("Not", "No", "Never", "Neither", "Nor", "It isn't")]
PLAN += [
    f"{no} creative; it takes steps." for no in ("Not a", "Not an", "Not the", "Instead of", "Other than")
]
REASONS = ["because", "since", "although", "though", "despite", "while", "whereas", "even if", "as it"]
PLAN += [f"Steps {reason} creative work is asked for" for reason in REASONS]
HEDGES = ["maybe", "perhaps", "possibly", "probably", "it could be", "it might be", "it may be", "either"]
NOTHING = [f"{hedge}{article} creative" for hedge in HEDGES for article in ("", " a")]
NOTHING += [f"Kind: creative{joined}steps" for joined in (" or ", " and ", ", ", " & ", " / ", " | ")]


@pytest.mark.parametrize(
    ("reply", "meant"), [*((one, "plan") for one in PLAN), *((one, None) for one in NOTHING)]
)
def test_each_word_of_a_rule(reply, meant):
    assert read_name(reply, NAMES, "kind") == meant


def test_names_that_mean_the_same_are_one_reading():
    assert read_name("creative, so tree-of-thought", NAMES, "kind") == "tree"
    assert read_name('["steps", "plan_execute"]', NAMES, "kind") == "plan"


@pytest.mark.slow
@given(st.text() | st.text(alphabet='{}[]":,creatvisp or\n', max_size=60))
def test_no_text_makes_it_raise(text):
    assert read_name(text, NAMES, "kind") in (*NAMES.values(), None)
