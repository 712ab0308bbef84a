"""What a reply states as its choice, and what it only mentions."""

import pytest

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
     ("Answer: 2,5", None), ("We get 40/2 = 20, hence \\boxed{2}", "2"), ("Answer: 5", None)],
)  # fmt: skip
def test_labels_may_be_numbers(reply, label):
    assert stated_choice(reply, {str(k): f"{k * 10} cm" for k in range(1, 5)}) == label


def test_the_text_of_an_option_may_begin_with_a_negation():
    choices = {"A": "no change at all", "B": "cannot be computed", "C": "not stated in the passage"}
    assert stated_choice("I pick C not stated in the passage", choices) == "C"
    assert stated_choice("My pick is not C", choices) is None


def test_a_number_before_brackets_is_a_label():
    choices = {str(k): f"{k} parts" for k in range(1, 32)}
    assert stated_choice("The answer is 20 (that is, 20 parts) [(28) is too many].", choices) == "20"


@pytest.mark.parametrize(
    ("reply", "label"),
    [("Yes.", "yes"), ("No, it does not.", "no"), ("Answer: no", "no"), ("The answer is yes.", "yes"),
     ("Yes and no.", None), ("It is yes", "yes"), ("Answer: **No**", "no"), ("\\boxed{\\text{yes}}", "yes"),
     ("No doubt it is so. Answer: yes", "yes"), ("Not sure", None), ("Answer: yes/no", None),
     ("The answer is no longer clear", None), ("Answer: YES", "yes"), ("No one knows", None)],
)  # fmt: skip
def test_labels_may_be_words(reply, label):
    assert stated_choice(reply, {"yes": "", "no": ""}) == label


PLANETS = {"A": "Mercury", "B": "Venus", "C": "Earth", "D": "Mars"}
STATED_OR_TAKEN_BACK = [
    ("I initially thought the answer was B, but it is D.", "D"),
    ("A friend told me the answer is A. In fact it is D.", "D"),
    ("Answer: B. No wait, C.", "C"),
    ("Answer: B\n\nActually C.", "C"),
    ("Answer: A\nNo, that is wrong.", None),
    ("The answer is B. A common mistake is to choose C.", "B"),
    ("Answer: B is wrong.", None),
    ("B isn't right.\nAnswer: C", "C"),
    ("A is wrong so the answer is B.", "B"),
    ("B is wrong and C is correct.", "C"),
    ("All of A, B, C are false; hence D.", "D"),
    ("The incorrect option is C.", None),
    ("If the planet is hot, the answer is B. If it is cold, the answer is D.", None),
    ("If we leave the Sun out, there are two left, so the answer is B.", "B"),
    ("If we choose A, we get a contradiction. The answer is B.", "B"),
    ("B is correct if the sky is clear.", None),
    ("The answer is likely B, but it could be C.", None),
    ("The answer is B or, less likely, C.", None),
    ("The answer is B -- or C.", None),
    ("The answer is B plus C.", None),
    ("Answer: A; B", None),
    ("The answer is C; A, B and D are not inhabited.", "C"),
    ("Answer: B oder C", None),
    ("Answer: B et C", None),
    ("Perhaps the answer is A.", None),
    ("It is unlikely that the answer is A.", None),
    ("I refuse to choose B.", None),
    ("I doubt that the answer is A.", None),
    ("It's tempting to say the answer is A.", None),
    ("A is correct and D is correct.", None),
    ("Option A is correct. Option D is also correct.", None),
    ("A is partly correct, but the answer is D.", "D"),
    ("The statement in B is correct.", None),
    ("Earth is the correct answer.", "C"),
    ("(A) Mercury has no moon.\n(B) Venus neither.\n(C)", None),
    ("A) Mercury: no moon.\nB) Venus: none.\nC) Earth: one.\nD) Mars: two.\n\nC", "C"),
    ("| Option | Verdict |\n|---|---|\n| A | wrong |\n| B | right |", None),
    ("| Answer | C |", "C"),
    ("Verdict: C", "C"),
    ("I'd say C.", "C"),
    ("That leaves us with C.", "C"),
    ("I think I'd go for B.", "B"),
    ("The answer seems to be A.", "A"),
    ('{"final_answer": "B", "alternatives": ["A", "C"]}', "B"),
    ("<ans>C</ans>", "C"),
    ("[ANSWER]C[/ANSWER]", "C"),
    ("The answer is C [option D (Mars) is too cold]\n\nOption D goes too far.", "C"),
    ("Answer: \u27e8C\u27e9", "C"),
    ("Answer: \u3016C\u3017", "C"),
    ("Answer: ~~A~~ C", "C"),
    ("Answer: $\\Large\\text{C}$", "C"),
    ("Answer: $\\color{red}{C}$", "C"),
    ("\u7b54\u6848\u662fC\u3002", "C"),
    ("\u7b54\u6848\uff1aC", "C"),
    ("Die richtige Antwort lautet C.", "C"),
    ("La respuesta correcta es C.", "C"),
    ("Answer: Venus (B)", "B"),
    ("Answer: Venus (C)", None),
    ("Answer: Venus/B", "B"),
    ("Venus (option B)!", "B"),
    ("Runner-up: C\nAnswer: Option B is the only one that fits", "B"),
    ("Answer: B or C is right", None),
    ("Answer: not A but B", "B"),
    ("B is correct, so B is the answer.", "B"),
    ("Let us look at each option\nB is hot.", None),
    ("The answer is B. Wait, the answer is none of them.", None),
    ("The answer is a colour, but B is too.", None),
    ("The answer is B by definition.", "B"),
    ("I choose option A based on this.", "A"),
    ("Answer: c = 5", None),
    ("Answer: B, i.e. Venus", "B"),
    ("If a = 1, we get 2 solutions, so the answer is (D). If a = 2, we get 1, so the answer is (B).", None),
    ("If it is hot, then the answer is B. Otherwise, the answer is C.", None),
    ("If it is hot, then the answer is B. Otherwise, the answer is B too.", "B"),
    ("Answer: B; alternatively, C", None),
    ("Answer: Earth shine", None),
    ("The answer is Earth shine.", None),
    ("Answer: Earth (not Mars)", "C"),
    ("Answer: Earth only", "C"),
    ("He has plans: B", None),
    ("After some thought the answer is B.", "B"),
    ("I thought the answer is B.", None),
    ("Neither B nor C is right.", None),
    ("The answer is B. Alternatively, C.", None),
    ("| Answer | C |\n\n(A) is hot. (B) is hot.", "C"),
    ("The answer is A. No, the answer is Venus (C).", None),
    (r"We may write \boxed{B}", "B"),
    ("If it holds, we get one, so the answer is B, but it could be C.", None),
    ("The answer is B, but it could be hard to see.", "B"),
    ("The answer isn’t A but B.", "B"),
    ("Answer: A‐level", None),
    ("Answer: B、C", None),
    ("We look at all.\nB。", "B"),
    ("If this is so, the answer is B.", None),
    ("If it holds, the answer is B, that is, it is Venus.", None),
    ("We look at all.\n| Answer | C |\n| Reason | heat |", "C"),
    ("It is A or B.\nB", "B"),
    ("We look at all.\nB\nB", "B"),
    ("We look at all.\nA\nC", None),
    ("The answer is **b** by definition.", "B"),
    ("The opposite of B is correct.", None),
    ("The two are A and hence B.", None),
    ("We can go on unless the answer is B.", None),
    ("A: it is hot. B: it is hotter.", None),
    ("A: it is hot\nB: it is hotter", None),
    ("A: it is hot. (B) it is hotter", None),
    ("Answer: A; B\nBoth fit.", None),
    ("The answer is B. No, the answer is B | C", None),
    ("If a is not 1, there is one, so the answer is (C). If a is 1, there is no solution.", None),
    ("If a is 2, then the answer is (C). If you need more, ask.", "C"),
    ("If it is hot, the answer is B. If it is cold, the answer is B.", "B"),
    ("If it is hot, then the answer is B. Otherwise, there is no solution. So the answer is B.", "B"),
    (r"\boxed{\boxed{B}}", "B"),
    (r"So $\boxed B$.", "B"),
    (r"\boxed{B", None),
]


WORDS = [
    ("We look at all. The answer is {} C.",
     "then|clearly|therefore|thus|hence|so|definitely|probably|most likely|simply|indeed|just|surely"
     "|certainly|the correct answer|the right option|the best choice|the final answer|letter|label|number"
     "|candidate|statement|only", "C"),
    ("We look at all. The answer, {}, is C.", "therefore|then|thus|hence|however|so|of course", "C"),
    ("We look at all. The answer {} C.",
     "was|appears to be|seems to be|becomes|remains|letter is|number is|here is|would be|should be|must be"
     "|has to be|will be|that fits is|we find is|I find is|therefore is|to it is|for it is|of it is"
     "|which fits is", "C"),
    ("We look at all.\n{}\nC\nIt fits.", "My answer|The answer|Correct answer|Final answer|## Answer", "C"),
    ("We look at all. I {} C.",
     "choose|chose|pick|picked|select|selected|go with|go for|am going with|opt for|vote for", "C"),
    ("We look at all. {} C.",
     "That leaves me with|That leaves us with|That leaves|This must be|It has to be|Therefore,|So|Sorry,|Thus"
     "|Hence|Finally,|Actually|Correction:|In conclusion,|No, wait,|Wait,|I'd say|We conclude|I would answer",
     "C"),
    ("The answer is B. No, the answer is {}.",
     "either B or C|both B and C|none of them|neither|neither B nor C|no option here|no choice at all"
     "|no answer at all|A or B|A and B|B и C|B and also C|B or option C|B or choice C|B or letter C"
     "|B ou C|B или C|B und C|B y C|B or possibly C|B or maybe C|B or perhaps C|B or even C"
     "|B or alternatively C|B or, less likely, C",
     None),
    ("The answer is B, and C {} too hot.",
     "is|was|has|had|does|would|will|can|could|cannot|fails|seems|must|isn't", "B"),
    ("Answer: A {} it fits.",
     "because|since|as|for|due|given|while|whereas|unlike|not|so|but|instead of|rather than", "A"),
    ("Answer: Venus, {} C", "option|choice|letter", None),
    ("Answer: B, {} Earth", "namely|i.e.|that is|meaning", None),
    ("I choose {} A based on this.", "option|choice|letter|label|candidate", "A"),
    ("Answer: A {} the one.", "is|was|must be|seems|fits", "A"),
    ("{} the answer is B.",
     "I wonder if|It could be that|I do not think that|I never said|Nor do I think|I don't think"
     "|Some readers say|Many people think|Some say|Some feel|Many argue|Some believe", None),
    ("{} answer is B.",
     "A wrong|The wrong|The false|The worst|The third|The other|Another|An alternative|The next"
     "|The least likely|The incorrect", None),
    ("B is {} answer.",
     "the wrong|the worst|the second best|the third|the other|another|the next|the incorrect|a false"
     "|the least likely|hardly the", None),
    ("B is {} correct.", "hardly|not|never|far from|almost|nearly|partly|partially|less|least", None),
    ("We see that B {}.",
     "is correct|must be right|seems best|remains true|is the answer|is clearly right|is therefore right"
     "|is definitely correct|is the only correct answer|is the only right one", "B"),
    ("The option that {} is B.",
     "fails|looks wrong|seems incorrect|looks false|fits least|does not fit|I doubt|cannot fit", None),
    ("The answer {} be B.", "cannot|can't|could not|can not|shouldn't|must not|won't", None),
    ("The answer {} A but B.", "is not|isn't|cannot be|can't be|was not|will not be", "B"),
    ("The answer is not A{} B.", " but| but rather|, rather|; instead", "B"),
    ("The answer is B {} it rains.", "if|unless|provided|depending on whether|assuming|otherwise", None),
    ("The answer is B. {}",
     "That is wrong.|This was incorrect.|It is not right.|No, that is not correct.|Wait, that is wrong."
     "|Hmm, that is wrong.|Oops, that is wrong.|Sorry, that is wrong.|But that is wrong.|And that is wrong.",
     None),
    ("The answer is B, but it {} C.",
     "could be|might be|may be|could also be|may well be|might even be", None),
    ("Answer: B {}",
     "?|is not|was not|isn't|can not|can't be|could not|does not|is wrong|is incorrect|is false|is excluded",
     None),
    ("{} it holds, then the answer is B. Otherwise, the answer is C.", "If|Unless|But if|And if|So if", None),
    ("If it holds, the answer is B. {}, the answer is C.",
     "Otherwise|If not|In another case|In the other case|In other cases|Had it not been so", None),
    ("If it holds, we get one, {} the answer is B.", "so|then|therefore|thus|hence", "B"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "label"),
    [(reply.replace("{}", word), label) for reply, words, label in WORDS for word in words.split("|")],
)
def test_words_that_state_doubt_exclude_or_only_join(reply, label):
    assert stated_choice(reply, PLANETS) == label


@pytest.mark.parametrize(
    "word",
    [
        "longer",
        "doubt",
        "one",
        "way",
        "idea",
        "matter",
        "more",
        "less",
        "need",
        "reason",
        "choice",
        "option",
        "answer",
    ],
)
def test_no_before_a_word_is_no_verdict(word):
    assert stated_choice(f"Answer: no {word} about it", {"yes": "", "no": ""}) is None


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        (r"Answer: \textcolor{red}{B}", "B"),
        (r"Answer: \color{red}{B}", "B"),
        ("It is late.\n$\\left(B\\right)$", "B"),
        ("Answer: 'a 5'9 board'", "C"),
        ("Answer: _blue_", "B"),
        ("It is late.\n'blue'", "B"),
        ("It is late.\n_blue_", "B"),
        ("It is late.\n<blue>", "B"),
        ('<answer type="letter">B</answer>', "B"),
        ("It is late.\n<p>B</p>", "B"),
        ("It is late.\n<div>B</div>", "B"),
        ("It is late.\n<a 5'9 board>", "C"),
        ("Answer: <a 5'9 board> is it", "C"),
        (r"Answer: \emph{B}", "B"),
        (r"Answer: \underline{B}", "B"),
    ],
)
def test_decoration_of_a_choice_does_not_matter(reply, label):
    assert stated_choice(reply, {"A": "red", "B": "blue", "C": "a 5'9 board"}) == label


@pytest.mark.parametrize(("reply", "label"), STATED_OR_TAKEN_BACK)
def test_a_choice_that_is_taken_back_doubted_or_rejected_is_not_stated(reply, label):
    assert stated_choice(reply, PLANETS) == label


@pytest.mark.parametrize(
    ("reply", "choices", "label"),
    [
        ("Answer: aa", {"A": "AA", "B": "Aa", "C": "aa"}, "C"),
        ("Answer: aA", {"A": "AA", "B": "Aa", "C": "aa"}, None),
        ("Answer: x < 3", {"A": "x > 3", "B": "x < 3"}, "B"),
        ("Answer: a tree", {"a": "oak", "b": "elm"}, None),
        ("Answer: a", {"a": "oak", "b": "elm"}, "a"),
        ("Answer: (B)", {"(A)": "oak", "(B)": "elm"}, "(B)"),
        ("Answer: B (red)", {"A": "red", "B": "red"}, "B"),
        ("Answer: A", {"a": "oak", "A": "elm"}, "A"),
        ("Answer: It is what it is.", {"<": "smaller", ">": "larger"}, None),
        ("The best answer is no\n\nReason: it floats", {"yes": "", "no": ""}, "no"),
        ("Answer: Option X is the one", dict.fromkeys("IX", ""), "X"),
        ("Runner-up: I\nAnswer: Option X is the one", dict.fromkeys("IX", ""), "X"),
        ("Answer: B", {"A": "B", "B": "C", "C": "D"}, "B"),
        ('Answer: "l’été"', {"A": "l’été", "B": "la forêt"}, "A"),
        ("Answer: 5.5", {"A": "5", "B": "7"}, None),
        ("Answer: A-level", {"A": "oak", "B": "elm"}, None),
        ("Casino is right.", {"yes": "", "no": ""}, None),
        ("Answer: 3%", {"1": "red", "3": "blue"}, None),
        ("The answer is -1.", {"1": "red", "3": "blue"}, None),
        ("Answer: No. 3", {"1": "red", "3": "blue"}, "3"),
        ("Answer: neither", {"agree": "", "disagree": "", "neither": ""}, "neither"),
        ("It is not plausible.", {"plausible": "", "not plausible": ""}, "not plausible"),
        ("Answer: It is true that birds fly.", {"true": "", "false": ""}, None),
    ],
)
def test_labels_and_texts_of_other_kinds(reply, choices, label):
    assert stated_choice(reply, choices) == label


@pytest.mark.parametrize(
    "reply",
    ["Ans: C", "Choice: C", "Option: C", "Selection: C", "Reply: C", "Response: C", "Solution: C",
     "Verdict: C", "Pick: C",
     *(f"C{token}" for token in ("</s>", "<|im_end|>", "<eos>", "<end_of_turn>")),
     "答えは C", "정답: C", "答案为C", "الإجابة: C", "La réponse est C.", "La risposta è C.",
     "A resposta é C.", "Ответ: C", "Die Antwort ist C.", "La respuesta es C.", "The correct one is C.",
     "The right letter is C.",
     "The best statement is C.", "<choice>C</choice>", r"Answer: $\left(C\right)$", r"\boxed{\quad C}",
     r"\boxed{\rm C}", r"\boxed{10\,\text{m}~m}", "The answer which fits is C.", "The answer letter is C.",
     "The answer number is C.", "The answer here is C.", "The answer for this one is C.",
     "The answer of this task is C.", "The answer should be C.", "The answer will be C.",
     "The answer has to be C."],
)  # fmt: skip
def test_every_form_of_a_statement(reply):
    for before in ("", "We look at all.\n"):
        assert stated_choice(before + reply, {"A": "Mercury", "B": "Venus", "C": "10 m m"}) == "C"


@pytest.mark.parametrize(
    "reply",
    ["The option that fails is B.", "The option we can exclude is B.", "The option we eliminated is B.",
     "The option I reject is B.", "The answer to discard is B.", "The option that we rule out is B.",
     "The answer that we know to be wrong is B.", "The choice that fits least is B."],
)  # fmt: skip
def test_what_is_ruled_out_is_not_stated(reply):
    assert stated_choice(reply, PLANETS) is None


@pytest.mark.parametrize(
    "doubt",
    ["Nobody knows whether", "Unless it rains", "I wonder why", "Suppose", "Assume", "It might be that",
     "It may be that", "Students think", "People hold that", "They claim", "I was told that", "Maybe",
     "Possibly", "Many think", "Some argue", "Some believe", "Some feel", "I thought"],
)  # fmt: skip
def test_a_doubt_states_nothing(doubt):
    assert stated_choice(f"{doubt} the answer is B.", PLANETS) is None


@pytest.mark.slow
def test_a_long_reply_is_read_at_its_end_and_else_at_its_beginning():
    thoughts = "We look at each of them. " * 2_000
    assert stated_choice(f"{thoughts}The answer is B.", PLANETS) == "B"
    assert stated_choice(f"B. {thoughts}", PLANETS) == "B"
    assert stated_choice(f"{thoughts}The answer is B. {thoughts}", PLANETS) is None
    assert stated_choice(f"We see that {'B, ' * 10_000}all of this is hot", PLANETS) is None
