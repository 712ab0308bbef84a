"""What a reply states as its choice, and what it only mentions."""

import pytest
from support.cases import shared_cases

from tot_lab.core.reading.choices import stated_choice

COLOURS = {"A": "red", "B": "blue", "C": "green", "D": "yellow"}
CASES = [
    ("The best answer is option C.", "C"),
    ("I would go with (D).", "D"),
    ("Therefore, the correct choice is **C**.", "C"),
    ("After elimination, only D remains. Final answer: D", "D"),
    ("A is wrong, B is wrong, so the answer must be C.", "C"),
    ("Answer: Not A. It is B.", "B"),
    ("Answer: 「B」", "B"),
    ("**Answer:** „B“", "B"),
    ("Answer: «B»", "B"),
    ("Answer: ‹B›", "B"),
    ("answer is (b)", "B"),
    ("The answer is $\\mathrm{C}$.<|im_end|>", "C"),
    ("The answer is C</s>", "C"),
    ("The answer is\n\n**C**", "C"),
    ("Answer:\nC", "C"),
    ("### Answer\nC", "C"),
    ('{"answer": "C"}', "C"),
    ("Answer: we first need to find the colour. Blue looks", None),
    ("Answer: Let me think. Option B", None),
    ("The answer is either A or B.", None),
    ("I am torn between A and B.", None),
    ("It could be B.", None),
    ("The answer might be B.", None),
    ("Is the answer B?", None),
    ("If the answer is B, then", None),
    ("Answer: A, because B is wrong", "A"),
    ("Answer: A because blue is cold", "A"),
    ("Answer: A is right", "A"),
    ("Answer: A red one", "A"),
    ("Answer: A blue one", None),
    ("Answer: I think it is blue", "B"),
    ("I choose A.", "A"),
    ("We select C since it fits.", "C"),
    ("The answer is (C): green", "C"),
    ("The answer is C, not D.", "C"),
    ("The answer is not D. It is C.", "C"),
    ("Answer: B or maybe C", None),
    ("Answer: B/C", None),
    ("Answer: B & C", None),
    ("Answer: B, C", None),
    ("Answer: both B and C", None),
    ("Answer: (B), since (C) fails", "B"),
    ("Answer: green", "C"),
    ("Answer: Green.", "C"),
    ("The answer is green, as blue is cold", "C"),
    ("Answer: red or blue", None),
    ("(A) red (B) blue (C) green (D) yellow", None),
    ("A) red\nB) blue\nC) green\nD) yellow", None),
    ("Answer: B (green)", None),
    ("The answer is B. No wait, the answer is C.", "C"),
    ("Answer: B\n\nExplanation: C is green, D is yellow.", "B"),
    ("We get \\boxed{B}. (Not C.)", "B"),
    ("\\boxed{7}", None),
    ("Ｂ", "B"),
    ("（Ｂ）", "B"),
    ("Answer: Ｂ", "B"),
    ("答案 B", None),
    ("The correct answer is: B: blue", "B"),
    ("B is the correct answer.", "B"),
    ("Option B (blue) is the best choice.", "B"),
    ("So B is correct because A is wrong", "B"),
    ("The answer is option (B)", "B"),
    ("The answer isn't B but C", "C"),
    ("The answer is B — C is too hot", "B"),
    ("The answer is B; C is too hot", "B"),
    ("The answer is B, C is too hot", "B"),
    ("The answer is B and C is too hot", "B"),
    ("The answer is B, and not C", "B"),
    ("The answer is B rather than C", "B"),
    ('Answer: "B"', "B"),
    ("Answer: `B`", "B"),
    ("Answer: [B]", "B"),
    ("Answer: {B}", "B"),
    ("Answer: B!", "B"),
    ("Answer: $\\boxed{\\text{(B)}}$", "B"),
    ("<answer>(B) blue</answer>", "B"),
    ("<answer>\nB\n</answer>", "B"),
    ("<final_answer>B</final_answer>", "B"),
    ("Answer: None of these", None),
    ("The answer is", None),
    ("The correct answer is option", None),
    ("Thus the answer is B<|eot_id|>", "B"),
    ("Answer: B blue because C is green", "B"),
    ("ANSWER = B", "B"),
    ("Answer - B", "B"),
    ("My final answer: B", "B"),
    ("The answer to the question is B.", "B"),
    ("The answer that fits best is B.", "B"),
    ("My choice would be B.", "B"),
    ("I'd pick B", "B"),
    ("I'll go with B.", "B"),
    ("It's B.", "B"),
    ("Hence B.", "B"),
    ("Hence, (B) blue.", "B"),
    ("In conclusion, B.", "B"),
    ("This is why the answer is B.", "B"),
    ("It repeats many times and the answer is B.", "B"),
    ("That will not help either -- the answer is B.", "B"),
    ("Some say that the answer is B.", None),
    ("The answer is B. blue\nIf not for the sky, the answer might be A.", "B"),
    ("Step 1 gives \\boxed{A}.\n**Correct Answer:** __‘B’__", "B"),
    ("Answer: Option (B) is the one that fits best\nSecond choice: Option A", "B"),
]


@pytest.mark.parametrize("case", shared_cases("choice"))
def test_the_recorded_cases_are_read_as_a_careful_reader_does(case):
    assert stated_choice(case["reply"], case["setting"]["choices"]) == case["expected"]


@pytest.mark.parametrize(("reply", "label"), CASES)
def test_a_statement_beats_a_mention(reply, label):
    assert stated_choice(reply, COLOURS) == label


@pytest.mark.parametrize(
    ("reply", "label"),
    [("Answer: I is the one", "I"), ("Answer: I think", None), ("Answer: I", "I"), ("The answer is I.", "I"),
     ("I", "I"), ("I am not sure", None), ("Answer: A", "A"), ("Answer: A good fit", None),
     ("Answer: option A instead of B", "A"), ("Answer: A<br>, unlike B.", "A"), ("Option A fits", None)],
)  # fmt: skip
def test_words_of_one_letter_are_labels_only_where_they_can_be(reply, label):
    assert stated_choice(reply, {"A": "", "I": "", "B": ""}) == label


@pytest.mark.parametrize(
    ("reply", "label"),
    [("Answer: 2", "2"), ("The answer is 20 cm", "2"), ("Answer: 2. 20 cm", "2"), ("Answer: option 3", "3"),
     ("3 + 1 = 4, so the answer is 2", "2"), ("Answer: 2 or 3", None), ("2", "2"), ("Answer: 2.5", None),
     ("We get 40/2 = 20, hence \\boxed{2}", "2"), ("Answer: 5", None)],
)  # fmt: skip
def test_labels_may_be_numbers(reply, label):
    assert stated_choice(reply, {str(k): f"{k * 10} cm" for k in range(1, 5)}) == label


@pytest.mark.parametrize(
    ("reply", "label"),
    [("Yes.", "yes"), ("No, it does not.", "no"), ("Answer: no", "no"), ("The answer is yes.", "yes"),
     ("Yes and no.", None), ("It is yes", "yes"), ("Answer: **No**", "no"), ("\\boxed{\\text{yes}}", "yes"),
     ("No doubt it is so. Answer: yes", "yes"), ("Not sure", None), ("Answer: yes/no", None),
     ("The answer is no longer clear", None), ("Answer: YES", "yes"), ("No one knows", None)],
)  # fmt: skip
def test_labels_may_be_words(reply, label):
    assert stated_choice(reply, {"yes": "", "no": ""}) == label
