"""What a critique states: SATISFIED as its verdict, a negation or a condition of it, or nothing (R2)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tot_lab.core.reading.verdicts import read_verdict, without_verdict

YES = [
    "SATISFIED",
    "SATISFIED\nAnswer: 5",
    "SATISFIED. All steps are done.\nAnswer: 5",
    "SATISFIED! Great work.",
    "SATISFIED with the answer.",
    "satisfied: it adds up.",
    "✅ SATISFIED — all steps hold",
    "1. SATISFIED",
    "> SATISFIED: ok",
    "(SATISFIED) fine",
    "ＳＡＴＩＳＦＩＥＤ：it holds",
    r"\boxed{SATISFIED}",
    "<verdict>SATISFIED</verdict>",
    "SATISFIED<|im_end|>",
    '{"verdict": "SATISFIED", "why": "it holds"}',
    '{"why": "it holds", "satisfied": true}',
    "Satisfied? Yes.",
    "## Verdict\n\n**SATISFIED**\n\nAll good",
    "Final verdict: SATISFIED",
    "I am satisfied with this answer.",
    "All requirements are SATISFIED.",
    "The goal is satisfied.",
    # what negates something else
    "SATISFIED: no errors remain",
    "SATISFIED: nothing needs to change.",
    "No faults found: SATISFIED",
    "There are no errors, so I'm SATISFIED.",
    "I could not find any errors, SATISFIED.",
    "Nothing is missing and I am SATISFIED.",
    "SATISFIED - not a single mistake",
    "SATISFIED: not only is it right, it is short.",
    "SATISFIED without reservations.",
    "I have no doubt that I am SATISFIED.",
    "I had doubts at first, but now I am SATISFIED.",
    "Not bad, SATISFIED.",
    # mentions behind the verdict
    "SATISFIED: the earlier UNSATISFIED points are mended",
    "SATISFIED: the constraint was not satisfied at first, but now it is",
    "SATISFIED: when x = 3 the sum is 7",
    "SATISFIED\n\nAnswer: the formula is UNSATISFIED",
    "UNSATISFIED: the first draft.\nOn reflection it holds.\nSATISFIED: all is right.",
    "<think>I'm not SATISFIED yet</think>SATISFIED",
    r"\textbf{SATISFIED}",
    "SATISFIED because each step holds.",
    "SATISFIED since nothing is missing.",
    "I would say SATISFIED.",
    "The requirements are SATISFIED.",
    "Even though it is short, I am SATISFIED.",
    "NOT SATISFIED at first.\nAfter a second look: SATISFIED",
]
NO = [
    "You want me SATISFIED: show the sum first",
    "UNSATISFIED",
    "UN-SATISFIED: no spin.",
    "un\u2011satisfied: no spin.",
    "NOT_SATISFIED",
    "Not yet SATISFIED: add the unit",
    "Final verdict: **NOT SATISFIED**",
    "Dissatisfied.",
    '{"verdict": "UNSATISFIED"}',
    '{"why": "the unit", "satisfied": false}',
    "SATISFIED? No.",
    "SATISFIED? Only if spin is defined.",
    "SATISFIED: not yet",
    "SATISFIED I am not: define spin",
    "Without a definition I am not SATISFIED.",
    "It is too early to say SATISFIED.",
    "I would have said SATISFIED, with a definition.",
    "I'm never SATISFIED: rewrite it.",
    "I am no longer SATISFIED.",
    "SATISFIED: no\nAdd a unit.",
    "I am not, however, SATISFIED.",
    "I can't mark this as SATISFIED yet.",
    "Hardly SATISFIED: there is no unit",
    "Far from SATISFIED.",
    "None of the criteria are SATISFIED.",
    "Nobody could be SATISFIED with this: redo it",
    "Partially SATISFIED: mend the unit",
    "Almost SATISFIED: only the unit is missing",
    "The goal is not satisfied.",
    # conditions
    "To be SATISFIED: add a definition of spin.",
    "For me to be fully SATISFIED: add a unit",
    "I would be SATISFIED if the unit were there.",
    "I won't be SATISFIED until it rhymes.",
    "SATISFIED if you add the unit.",
    "SATISFIED, provided the unit is added.",
    "Once the unit is added, SATISFIED.",
    "Before I am SATISFIED: add a unit",
    # mentions behind the verdict
    "UNSATISFIED: the claim that the condition is SATISFIED is wrong.",
    "Verdict (SATISFIED/UNSATISFIED): UNSATISFIED",
    "Begin with SATISFIED or UNSATISFIED.\nUNSATISFIED: there is no unit",
    "SATISFIED at first glance.\nUNSATISFIED: the sum is wrong.",
    "SATISFIED with step 1. Step 2 is wrong: NOT SATISFIED.",
    "Nowhere near SATISFIED.",
    "I am anything but SATISFIED.",
    "I am by no means SATISFIED.",
    "What would get me SATISFIED: add the unit.",
    "Make me SATISFIED: add the unit.",
    "SATISFIED — NOT!",
    "SATISFIED (no)",
    '{"satisfied": 0}',
    '{"satisfied": null}',
    "SATISFIED: not applicable",
    "Fix step 2. Then I am SATISFIED.",
    "Had step 2 been right, SATISFIED.",
    "Few requirements are SATISFIED.",
]
NOTHING = [
    "SATISFIED is what I am not",
    "",
    "Fine.",
    "It is satisfied by 3",
    "The triangle inequality is satisfied, but the area is wrong.",
    "Satisfied customers are many.",
    "SATISFIED?",
    "SATISFIED or UNSATISFIED",
    "SATISFIED or not? Hard to say.",
    "Neither SATISFIED nor UNSATISFIED.",
    "Maybe SATISFIED.",
    "I am not UNSATISFIED.",
    "I am satisfied with the form, but not with the sum.",
    "SATISFIED, but add a unit.",
    "I cannot get any satisfaction.",
    "Reply with SATISFIED or a critique.",
    "I am satisfied that the answer is wrong.",
    "SATISFIED would be premature.",
    "SATISFIED requires a proof of step 2.",
    "Your SATISFIED is premature.",
    "The answer claims SATISFIED without proof.",
    "I withhold SATISFIED.",
    "Requirement 1 is SATISFIED.",
    "SATISFIED 50%",
    "SATISFIED — wait, no: step 2 is wrong.",
    "I am probably SATISFIED.",
]


# The words of each rule, one reply for each.
YES += (
    """
The verdict is SATISFIED|Final decision is SATISFIED|My judgement is SATISFIED|My judgment is satisfied
My review is satisfied|Our sum holds so satisfied|The assessment is satisfied|The conclusion is satisfied
We are satisfied|I feel satisfied|We're satisfied|The criteria are satisfied|I am fully satisfied
It is long, but SATISFIED|It is short and satisfied|I’m satisfied|SATISFIED = true|SATISFIED - yes
It adds up, hence SATISFIED|It adds up hence SATISFIED|It adds up thus SATISFIED
It adds up therefore SATISFIED|Step 3 holds - SATISFIED|All hold => SATISFIED
The task is, in my view, SATISFIED|I am, overall, SATISFIED|This is a SATISFIED|All SATISFIED
I now am SATISFIED|My critique is SATISFIED|I'd say SATISFIED|Fully SATISFIED|Quite SATISFIED|Very satisfied
The result of my review is SATISFIED|Overall SATISFIED|My rating is SATISFIED|The status is SATISFIED
I am not only SATISFIED, I am impressed|I am not merely SATISFIED, I am impressed
I am not just SATISFIED, I am impressed|Without doubt I am SATISFIED|Without any doubt, I am SATISFIED
Without any doubt I am SATISFIED|I remain satisfied|The task is satisfied|The request is satisfied
The critic is satisfied|The reviewer is satisfied|The task is now satisfied|We are very satisfied
The task is still satisfied|The criteria are fully satisfied|Satisfied? True|Satisfied and done
Satisfied as each step holds|Satisfied now
""".strip()
    .replace("\n", "|")
    .split("|")
)
NO += (
    """
Never SATISFIED|Neither answer is SATISFIED|It would have to be SATISFIED|I cannot say SATISFIED
Barely SATISFIED|I doubt it is SATISFIED|Not fully SATISFIED|We aren't SATISFIED|It could be SATISFIED
It should be SATISFIED|It might be SATISFIED|It will be SATISFIED|It can be SATISFIED|I'd be SATISFIED
Then SATISFIED|If it rhymes, SATISFIED|Unless it fails, SATISFIED|Until it rhymes, I am SATISFIED
When it rhymes, I am SATISFIED|Should it rhyme, I am SATISFIED|SATISFIED: not fully|SATISFIED: hardly
SATISFIED unless it fails|SATISFIED once it rhymes|SATISFIED except for the unit
SATISFIED, only the unit is missing|SATISFIED assuming it rhymes|SATISFIED, mostly|SATISFIED, partly
SATISFIED, partially|SATISFIED, nearly|SATISFIED, almost|SATISFIED with one reservation
SATISFIED with caveats|SATISFIED when it rhymes|SATISFIED after a proof|SATISFIED until it fails
SATISFIED it is not|Nonsatisfied.|Nobody is SATISFIED|Almost SATISFIED|I would be SATISFIED
It can really be SATISFIED|The criteria aren't satisfied|I am not satisfied|I am no longer satisfied
UNSATISFIED by the sum|SATISFIED: false|I could never, in good conscience, say SATISFIED|Not satisfied
Not fully satisfied|No one is SATISFIED|In no way am I SATISFIED|Nor am I SATISFIED
Some requirements are SATISFIED|Most criteria are SATISFIED|Make us SATISFIED: add a unit
Then we are SATISFIED|Then we're SATISFIED|It may be SATISFIED|It shall be SATISFIED|It must be SATISFIED
I'll be SATISFIED|I could become SATISFIED|To get SATISFIED: add a unit|To feel SATISFIED: add a unit
But if it rhymes, SATISFIED|And once it rhymes, SATISFIED|Only when it rhymes, SATISFIED
The task isn't satisfied|The goal is not yet satisfied|The goal is never satisfied
The goal is not quite satisfied|SATISFIED: none|SATISFIED: n/a|SATISFIED: not quite|SATISFIED: not at all
SATISFIED? Only when it rhymes|SATISFIED? Only once it rhymes|SATISFIED on the condition that it rhymes
SATISFIED as soon as it rhymes|SATISFIED, in part|SATISFIED we are not
NOT SATISFIED by the sum. Is the bound SATISFIED? Yes|I am scarcely SATISFIED|I am nearly SATISFIED
I am mostly SATISFIED|I am partly SATISFIED|I am largely SATISFIED|Whenever it rhymes, SATISFIED
Provided it rhymes, SATISFIED|Assuming it rhymes, SATISFIED|Were it right, SATISFIED
As soon as it rhymes, SATISFIED|As long as it rhymes, SATISFIED|Before we go on, SATISFIED
SATISFIED, pending a unit|SATISFIED, subject to a proof|SATISFIED, apart from the unit
SATISFIED, on condition that it rhymes|SATISFIED, as long as it rhymes
""".strip()
    .replace("\n", "|")
    .split("|")
)
NOTHING += (
    """
Perhaps SATISFIED|Possibly SATISFIED|SATISFIED though it is long|SATISFIED although it is long
Maybe I am SATISFIED|Perhaps I am SATISFIED|Presumably I am SATISFIED|SATISFIED. Hmm, step 2 is wrong
SATISFIED. No, step 2 is wrong|SATISFIED, however step 2 needs a unit|SATISFIED vs UNSATISFIED
This run SATISFIED every test|I would not say NOT SATISFIED|SATISFIED nor UNSATISFIED
SATISFIED — actually step 2 is wrong|UNSATISFIED?|The inequality is not satisfied by 3|UNSATISFIEDNESS
XSATISFIED|I am maybe SATISFIED|I am perhaps SATISFIED|I am possibly SATISFIED|SATISFIED, though it is long
SATISFIED, although it is long|SATISFIED/UNSATISFIED|Unsatisfied customers are many
Unsatisfiedness is no word|I am satisfied that it is wrong
""".strip()
    .replace("\n", "|")
    .split("|")
)


@pytest.mark.parametrize(
    ("critique", "satisfied"),
    [*((text, True) for text in YES), *((text, False) for text in NO), *((text, None) for text in NOTHING)],
)
def test_r2_a_verdict_is_read_as_it_was_meant(critique, satisfied):
    assert read_verdict(critique) is satisfied


@pytest.mark.parametrize("decoration", ["{}", "**{}**", "`{}`", "__{}__", "[{}]", "“{}”", "### {}", "- *{}*"])
@pytest.mark.parametrize("end", ["", ".", ":", ": the sum is right", "\n\nThe sum is right.", " — well done"])
@pytest.mark.parametrize(
    ("stated", "satisfied"),
    [("SATISFIED", True), ("UNSATISFIED", False), ("NOT SATISFIED", False), ("Verdict: SATISFIED", True)],
)
def test_r2_decoration_and_reasons_do_not_matter(decoration, end, stated, satisfied):
    assert read_verdict(decoration.format(stated) + end) is satisfied


def test_what_is_left_without_the_line_of_the_verdict():
    assert without_verdict("SATISFIED. All is done.\nAnswer: 5") == "Answer: 5"
    assert without_verdict("Answer: 5\n**Verdict:** NOT SATISFIED") == "Answer: 5"
    assert without_verdict("Each condition is SATISFIED by 3.\nAnswer: 3").startswith("Each condition")


@pytest.mark.slow
@given(st.text(alphabet="SATISFIEDun not,.:?\n\"'", max_size=60) | st.text())
def test_no_text_makes_it_raise(text):
    assert read_verdict(text) in (True, False, None)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["SATISFIED ", "satisfied or ", "not SATISFIED, ", "un", "I am not, ", "\n"])
def test_a_megabyte_is_read_in_a_second(word):
    text = word * (1_000_000 // len(word))
    began = time.process_time()
    read_verdict(text)
    assert time.process_time() - began < 1
