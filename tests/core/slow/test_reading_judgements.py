"""Votes, scores and the scores of siblings: a statement beats a mention, and a name beats a position."""

import json

import pytest

from tot_lab.core.reading.judgements import judgements, match_all, match_once
from tot_lab.core.reading.scores import (
    plain_number,
    read_confidence,
    read_out_of_ten,
    read_score,
    read_scores,
    read_sibling_scores,
)
from tot_lab.core.reading.votes import read_choice


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("best: 2\n\nReason: choice 1 is vague.", 2),
        ("The best choice is 2, since choice 1 fails.", 2),
        ("Candidate 2 is the best; candidate 1 is the second best.", 2),
        ("Best: 2\nSecond best: 1", 2),
        ("The second-best choice is 1.\nThe best choice is 2.", 2),
        ("best: 2 (the next best is 1)", 2),
        ("best: 1\nOn reflection, best: 2", 2),
        ("best: 2\nbest: 1 or 3", 2),
        ("The best choice is not 1 but 2", 2),
        ("Of the 3 choices, the best is 2.", 2),
        ("Best:\n\n**2**", 2),
        ("<best>2</best>", 2),
        ("best：【２】", 2),
        ("The best choice is $\\boxed{\\text{Candidate 2}}$.", 2),
        ("best: #2<|im_end|>", 2),
        ("best: 1 or 2", None),
        ("best: (1) or (2)", None),
        ("best: 1 (or maybe 2)", None),
        ("best: 1, 2", None),
        ("best: not 1", None),
        ("best: 2?", None),
        ("Neither choice 1 nor choice 2 is the best.", None),
        ("If the cost counts, the best choice is 1.", None),
        ("In another case, the best choice would be 1.", None),
        ("Second best: 1", None),
        ("Which is the best:\n1. It is short.\n2. It is clear.", None),
        ("1.\nIt is short.\n2.\nIt is clear.", None),
        ("best: 4", None),
        ("My vote goes to choice 2, although choice 3 came close.", 2),
        ("The best of the 3 is clearly 2!", 2),
        ("The best choice, by far, is 2.", 2),
        ("Selected: 2", 2),
        ("I'm going with candidate 2.", 2),
        ("If I had to choose, I would pick 2.", 2),
        ("The first one is vague. The second one is the best.", 2),
        ("Candidate 2 is the clear winner.", 2),
        ("Best option: Option 2", 2),
        ("best:\n- 2", 2),
        ("best: ②", 2),
        ("best: 2, 1 is vague", 2),
        ("The answer is 2.", 2),
        ("Candidate 2.", 2),
        ("best: 2\nCandidate 1 is the best known.", 2),
        ("best: 2\nThe best so far was found, yet previous best: 1", 2),
        ("best: 3. 2 is the best for speed.", 3),
        ("So far the best is 1.", None),
        ("Initially I thought that the best is 1.", None),
        ("To decide the best: 1. is short", None),
        ("I doubt that candidate 1 is the best.", None),
        ("Candidate 1 or candidate 2 is the best.", None),
        ("best: 1, if the cost counts", None),
        ("best: 1, no wait, 2", None),
        ("best: 1 -> 2", None),
        ("best: 1; 2", None),
        ("best: 1 and also 2", None),
    ],
)
def test_a_vote_is_the_number_that_is_stated_as_best(text, choice):
    assert read_choice(text, 3) == (choice and choice - 1)


VOTES_FOR_2 = """
best: two|The best is **two**.|Best: option two
best proposal: 2|best solution: 2|best: no. 2|Most promising: 2|Winner: 2|My choice is 2|The selection: 2
Final pick: 2|Final vote: 2|**Choice: 2** (best of all)|Best overall: 2|Best of these: 2
The best of those choices is 2|The best of them is 2|best -> 2|The best choice is certainly 2
Overall, the best is 2|The best is definitely 2|The best is, I think, 2|The best choice, in my view, is 2
The best is in my opinion 2|The best isn't 1, it's 2|The best is not 1; it is 2|I'd pick 2|I'll select 2
I am voting for 2|I prefer 2|I recommend option 2|I will choose 2|I would go with 2
All in all, 2 is the best|Candidate 2 is my winner|Choice 2 is most promising|2 is best of all
2 is best among them|2 is best overall|2 is best but long|2 is best since 1 is vague
2 is best because 1 is vague|The best is not candidate 1 but candidate 2|Answer: 2|The option is 2
2 is best as it is short|2 is best followed by 1|2 is best by far|2 is the best for this task
2 is the best choice|The second choice is best|Best: the second candidate|The second option is best
best: the second thought|best: the second proposal|best: the second solution|best: 2, 1 has gaps
"""
NO_VOTES = """
best: one of the two
best: 1 to 3|best: 1 vs 2|best: 1 vs. 2|best: 1 or perhaps 2|best: 1 unless it fails|best: 1 so far
best: 1 as well as 2|Candidate 1 is the best at speed|Candidate 1 is the best?
It may be that the best is 1|best: 1 & 2|best: 1+2|best: 1 = 2|best: 1, no, 2|best: 1, sorry, 2
best: 1 (correction: 2)|best: 1 or rather 2|best: 1 – actually 2|Third best: 1|2nd best: 1
Previous best: 1|Earlier best: 1|Current best: 1|Never pick the best choice: 1
The best could be good; it could be that the best is 1|I might say the best is 1|To find the best: 1
To choose the best: 1|To determine the best: 1|Whether the best is 1|Unless it fails, the best is 1
Otherwise the best is 1|Many say the best is 1|Some say the best is 1|Maybe the best is 1
A score of 2 is the best|Perhaps, the best is 1|At first, the best is 1
"""


def rows(texts):
    return texts.strip().replace("\n", "|").split("|")


@pytest.mark.parametrize("text", rows(VOTES_FOR_2))
def test_each_wording_of_a_vote(text):
    assert read_choice(text, 3) == 1


ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
CARDINALS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.mark.parametrize("k", range(10))
def test_a_number_may_be_written_as_a_word(k):
    assert read_choice(f"The {ORDINALS[k]} option is the best.", 10) == k
    assert read_choice(f"best: {CARDINALS[k]}", 10) == k


@pytest.mark.parametrize("text", rows(NO_VOTES))
def test_each_hedge_of_a_vote(text):
    assert read_choice(text, 3) is None


NO_SCORES = """
score: 0.7 unless it fails|score: 0.7 when it holds|A score of 1 needs proof|A score of 1 requires proof
score: 1 in a hundred|A score of 0.9 would need a proof|score: 0.9 for clarity and 0.3 for depth
score: 0.7 to 0.8|score: 1 of every 10|score: 1 in five
"""


@pytest.mark.parametrize("text", rows(NO_SCORES))
def test_each_hedge_of_a_score(text):
    assert read_score(text) is None


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("score: ０．７", 0.7),
        ("Score (0-10): 7/10", 0.7),
        ("Score (0 to 100): 70%", 0.7),
        ("Score -> 0.7", 0.7),
        (
            "score: 0.7\nOld score: 0.3\nFormer score: 0.4\nMax score: 1\nMin score: 0",
            0.7,
        ),
        ("score: 0.7\nMaximum score: 1\nMinimum score: 0\nEarlier score: 0.2\nThe highest score is 0.9", 0.7),
        ("Ｓｃｏｒｅ：７／１０", 0.7),
        ("(0.7)", 0.7),
        ("「0.7」", 0.7),
        ("<score>\n0.7\n</score>", 0.7),
        ("score: $0.7$", 0.7),
        ("score: $\\frac{7}{10}$", 0.7),
        ("The score is \\boxed{\\mathbf{0.7}}.", 0.7),
        ("score: 70\\%", 0.7),
        ("## Score\n\n0.7", 0.7),
        ("Score (from 0 to 1): 0.7", 0.7),
        ("The score is not 0.3 but 0.7", 0.7),
        ("score: 0.3\nNo, that is too low.\nscore: 0.7", 0.7),
        ("score: 0.7\nPrevious score: 0.3", 0.7),
        ("Clarity score: 0.3\nOverall score: 0.7", 0.7),
        ("Clarity score: 0.3\nDetail score: 0.7", None),
        ("Clarity score: 0.3", 0.3),
        ("0.9\nClarity score: 0.3", 0.9),
        ("Clarity score: 0.3\nYour score: 0.7", 0.7),
        ("Clarity score: 0.3\nThis score: 0.7", 0.7),
        ("Clarity score: 0.3\nIts score is 0.7", 0.7),
        ("Clarity score: 0.3\nSo score: 0.7", 0.7),
        ("Clarity score: 0.3\nTotal score: 0.7", 0.7),
        ("score: 7 of 10", 0.7),
        ("score: 0·7", None),
        ("score: 0.4, no, 0.6", None),
        ("score: 0.7, no mistakes found", 0.7),
        ("score: 0'7", None),
        ("score: 1 in 10", None),
        ("score: 1 in every 10", None),
        ("score: 0.7, 0.8", None),
        ("score: (0.7) or (0.8)", None),
        ("The score is 0.7 if the first step holds.", None),
        ("Is the score 0.7?", None),
        ("score: < 0.7", None),
        ("Score\n1. The first step is sound.", None),
        ("Score - 0.7", 0.7),
        ("Rating: 0.7", 0.7),
        ("Score [0, 1]: 0.7", 0.7),
        ("score: 70 per cent", 0.7),
        ("score: ½", 0.5),
        ("score: 3⁄4", 0.75),
        ("score: 0.7\nTo get a score of 1, add a proof.", 0.7),
        ("score: 0.7\nIf it were proved, the score is 0.9.", 0.7),
        ("score: 0.7\nA score of 1 means certain.", 0.7),
        ("score: 0.7\n(The score is 1 only for proofs.)", 0.7),
        ("score: 1 in ten", None),
        ("score: 1 chance in 10", None),
        ("score: 1 out of every 10", None),
        ("score: 0‧7", None),
        ("score: 0;7", None),
        ("score: 0 7", None),
        ("score: (0.9 + 0.7) / 2 = 0.8", None),
        ("score: 0.9 × 0.5", None),
        ("score: 0.2 → 0.7", None),
        ("score: 0.5+", None),
        ("score: 0.65-ish", None),
        ("score: 0.9 for clarity, 0.3 for depth", None),
        ("score: 0.9 (clarity), 0.3 (depth)", None),
        ("A score of 0.7 might be fair.", None),
        ("I am not sure that the score is 0.7", None),
    ],
)
def test_a_score_is_read_in_any_dress_and_never_guessed(text, score):
    assert read_score(text) == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize(
    "key",
    rows("""
verdict|reason|why|comment|explanation|rationale|justification|note|feedback|remark|strengths|weaknesses
confidence|total|correctness|completeness|elegance|practicality
"""),
)
def test_a_remark_or_another_score_names_no_sibling(key):
    judged = [{"score": score, f"my_{key}": "gamma"} for score in (0.3, 0.6, 0.4)]
    assert read_scores(json.dumps(judged), ["alpha", "beta", "gamma"]) == [0.3, 0.6, 0.4]


@pytest.mark.parametrize("between", [" or ", ", or perhaps ", " or maybe ", " vs. ", " / "])
def test_two_arrays_are_no_reading(between):
    assert read_scores(f"[0.1, 0.2]{between}[0.3, 0.4]", ["a", "b"]) == [None, None]
    assert read_scores("[0.1, 0.2]\nBetter: [0.3, 0.4]", ["a", "b"]) == [0.3, 0.4]


def test_a_number_out_of_ten_may_be_dressed():
    assert {read_out_of_ten(text) for text in (8, "＄8", "**8**", "$8/10$", "（８）", "80%")} == {8}
    assert {read_out_of_ten(text) for text in ("8 in 10", "11", -1, "12/10", [8], None)} == {None}
    assert [plain_number(text) for text in (8, "**8**", "80", "8/10", "80%")] == [8, 8, 80, None, None]


def test_the_last_confidence_counts():
    assert read_confidence("Confidence: 0.3\nOn reflection, my confidence is 70%.") == 0.7
    assert read_confidence("I am confident: 0.7") is None


NAMES = ["alpha", "beta", "gamma"]
SCORES = {"alpha": 0.3, "beta": 0.6, "gamma": 0.4}
ORDER = ("gamma", "alpha", "beta")


def objects(form, key="candidate", score="score"):
    """Judgements in another order than the siblings, each of which names its sibling by `form`."""
    shown = []
    for name in ORDER:
        place = NAMES.index(name)
        written = form(name, place) if callable(form) else form.format(name=name, k=place + 1, zero=place)
        shown.append({key: written, score: SCORES[name]})
    return shown


@pytest.mark.parametrize("key", ["candidate", "name", "text", "which", "candidate_id", "x"])
@pytest.mark.parametrize(
    "form",
    [
        "{name}",
        "The {name}",
        "A {name}",
        "An {name}",
        "Use {name}",
        "#{k} {name}",
        "({k}) {name}",
        "(Option {k}) {name}",
        "{name} ({k})",
        "{name} [option {k}]",
        "Option {k} {name}",
        "### {k}. {name}",
        "**{name}**",
        "“{name}”",
        "{name} (fast)",
        "{name} approach",
        "Approach: {name}",
        "Candidate {k}: {name}",
        "{name} – rather long",
        "Candidate {k}",
        "candidate_{k}",
        "#{k}",
        "{zero}",
        "b{zero}",
        lambda name, place: f"{['1st', '2nd', '3rd'][place]} candidate",
        lambda name, place: place,
        lambda name, place: place + 1,
        lambda name, place: f"Option {'ABC'[place]}",
        lambda name, place: {"id": place + 1, "text": name},
    ],
)
def test_judgements_are_matched_by_what_names_the_siblings(key, form):
    judged = objects(form, key)
    wanted = [0.3, 0.6, 0.4]
    assert read_scores(json.dumps(judged), NAMES) == wanted
    assert read_scores(json.dumps({"evaluations": judged}), NAMES) == wanted
    assert read_scores("\n".join(map(json.dumps, judged)), NAMES) == wanted
    assert read_scores(json.dumps([{**one, "rank": k} for k, one in enumerate(judged, 1)]), NAMES) == wanted
    if isinstance(judged[0][key], str):
        assert read_scores(json.dumps({one[key]: one["score"] for one in judged}), NAMES) == wanted
        assert read_scores("\n".join(f"- {one[key]}: {one['score']}" for one in judged), NAMES) == wanted


@pytest.mark.parametrize(
    "score", rows("score|rating|value|grade|points|probability|likelihood|overall|average")
)
def test_a_score_stands_below_one_key(score):
    assert read_scores(json.dumps(objects("{name}", score=score)), NAMES) == [0.3, 0.6, 0.4]


@pytest.mark.parametrize(
    "label",
    rows("""
approach|option|branch|solution|candidate|idea|plan|method|strategy|proposal|answer|step|way|number|thought
choice|item|response|path|node|algorithm|no|id
"""),
)
def test_each_word_before_a_number(label):
    for between in (" ", ""):
        written = [{"x": f"{label.title()}{between}{k}"} for k in (3, 1, 2)]
        assert match_once(NAMES, written).places == [2, 0, 1]


@pytest.mark.parametrize(
    "key",
    [
        "ordinal",
        "stars",
        "votes",
        "level",
        "tier",
        "RANK",
        "rank",
        "order",
        "place",
        "position",
        "priority",
        "final_rank",
        "Rank",
        "ordering",
        "positions",
    ],
)
def test_a_rank_names_no_sibling_and_its_order_is_no_order_of_the_siblings(key):
    assert read_scores(json.dumps(objects("{k}", key)), NAMES) == [None] * 3
    assert read_scores(json.dumps(objects(lambda name, place: place + 1, key)), NAMES) == [None] * 3


@pytest.mark.parametrize(
    ("judged", "scores"),
    [
        (
            [
                {"name": "Zed 0", "score": 0.4},
                {"name": "Zed 1", "score": 0.3},
                {"name": "Zed 2", "score": 0.6},
            ],
            {},
        ),
        ([{"name": "gamma", "score": 0.4}, {"name": "Zed", "id": 1, "score": 0.3}], {"gamma": 0.4}),
        (
            [
                {"name": "gamma", "score": 0.4},
                {"name": "gamma", "score": 0.3},
                {"name": "beta", "score": 0.6},
            ],
            {"beta": 0.6},
        ),
        ([{"id": 0, "score": 0.4}, {"id": 3, "score": 0.3}, {"id": 1, "score": 0.6}], {}),
        (
            [
                {"name": "gamma", "better_than": "alpha", "score": 0.4},
                {"name": "beta", "better_than": "alpha", "score": 0.6},
            ],
            {"beta": 0.6, "gamma": 0.4},
        ),
        ({"gamma": {"name": "alpha", "score": 0.9}, "alpha": {"name": "gamma", "score": 0.2}}, {}),
        ({"candidates": list(ORDER), "scores": [0.4, 0.3, 0.6]}, {}),
        ({"ids": [3, 1, 2], "scores": [0.4, 0.3, 0.6]}, {}),
        ([{"gamma": 0.4}, {"beta": 0.6}], {"beta": 0.6, "gamma": 0.4}),
        ([["gamma", 0.4], ["beta", 0.6]], {"beta": 0.6, "gamma": 0.4}),
        ([0.3, 0.6], {}),
        ([{"id": 2, "score": 0.4}, {"id": 3, "score": 0.3}, {"id": 4, "score": 0.6}], {}),
        ([{"id": 3.0, "score": 0.4}, {"id": 1.0, "score": 0.3}, {"id": 2.0, "score": 0.6}], {}),
        (
            [
                {"thought": "Zed", "step": 1, "score": 0.4},
                {"thought": "Zod", "step": 2, "score": 0.3},
                {"thought": "Zad", "step": 3, "score": 0.6},
            ],
            {},
        ),
        (["3/10", "60%", "０．４"], SCORES),
        ([{"id": None, "score": 0.3}, {"id": "", "score": 0.6}, {"best": True, "score": 0.4}], SCORES),
        ({"name": "beta", "score": 0.6, "reasons": ["short", "clear"]}, {"beta": 0.6}),
        ([["gamma", 0.4, "long"], ["beta", 0.6, "short"]], {"beta": 0.6, "gamma": 0.4}),
        ({"scores": [["gamma", 0.4], ["beta", 0.6]]}, {"beta": 0.6, "gamma": 0.4}),
        ({"scores": {"gamma": 0.4, "beta": 0.6}, "sum": 1}, {"beta": 0.6, "gamma": 0.4}),
        ({"gamma": {"score": 0.4}}, {"gamma": 0.4}),
        ([[1, 0.3], [2, 0.6], [3, 0.4]], {}),
        ({"missing": [], "scores": [0.3, 0.6, 0.4]}, SCORES),
        (0.5, {}),
        ({"scores": 0.5}, {}),
        ([{"which": "gamma", "score": 0.4}, {"which": "zeta", "id": 1, "score": 0.3}], {"gamma": 0.4}),
        (
            [
                {"name": "gamma", "text": "alpha", "score": 0.4},
                {"name": "beta", "text": "beta", "score": 0.6},
            ],
            {"beta": 0.6},
        ),
        ([{"x": "alpha", "score": 0.3}, {"x": "Candidate 1", "score": 0.9}], {"alpha": 0.3}),
        ([{"id": 1, "step": 2, "score": 0.3}, {"id": 2, "step": 1, "score": 0.6}], {}),
        (
            [
                {"id": 3, "phase": 1, "score": 0.4},
                {"id": 1, "phase": "end", "score": 0.3},
                {"id": 2, "phase": "end", "score": 0.6},
            ],
            SCORES,
        ),
        ([{"score": 0.3, "reason": "gamma is better"}, {"score": 0.6}, {"score": 0.4}], SCORES),
        (
            [
                {"score": s, f"{key}s": "gamma"}
                for s, key in ((0.3, "note"), (0.6, "comment"), (0.4, "remark"))
            ],
            SCORES,
        ),
    ],
)
def test_what_does_not_fit_is_not_judged(judged, scores):
    assert read_scores(json.dumps(judged), NAMES) == [scores.get(name) for name in NAMES]


@pytest.mark.parametrize(
    "text",
    [
        "Candidate 3 (gamma): 0.4\nCandidate 1 (alpha): 0.3\nCandidate 2 (beta): 0.6",
        "1. gamma: 0.4\n2. alpha: 0.3\n3. beta: 0.6",
        "| name | score |\n|---|---|\n| gamma | 0.4 |\n| alpha | 0.3 |\n| beta | 0.6 |",
        "gamma: score 4/10 (too late), since it is long\nalpha – $0.3$\nbeta = **0.6**",
        "gamma: 0.4, alpha: 0.3, beta: 0.6",
        "Candidate 3\nScore: 0.4\n\nCandidate 1\nScore: 0.3\n\nCandidate 2\nScore: 0.6",
        "[1] is short.\ngamma: 0.9\nNo:\ngamma: 0.4\nalpha: 0.3\nbeta: 0.6",
        "1. **gamma**\n   - Clear.\n   - Beats alpha.\n   - Score: 0.4\n2. **alpha**\n   - Score: 0.3\n"
        "3. **beta**\n   - Score: 0.6",
        "(c) 0.4\n(a) 0.3\n(b) 0.6",
        "gamma gets 0.4\nalpha receives 0.3\nbeta gets 0.6",
        "Score of gamma: 0.4\nScore for alpha: 0.3\nscore(beta) = 0.6",
        "gamma scores 0.4, alpha scores 0.3 and beta scores 0.6.",
        "Rank 1: beta (0.6)\nRank 2: gamma (0.4)\nRank 3: alpha (0.3)",
        "<candidate_3>0.4</candidate_3>\n<candidate_1>0.3</candidate_1>\n<candidate_2>0.6</candidate_2>",
        "\\boxed{[0.3, 0.6, 0.4]}",
        "gamma\n\nIt is clear.\n\nIt is long.\n\nScore: 0.4\n\nalpha: 0.3\nbeta: 0.6",
    ],
)
def test_lines_name_their_siblings(text):
    assert read_scores(text, NAMES) == [0.3, 0.6, 0.4]


def test_names_may_hold_what_separates_scores():
    names = ["search and sort", "hash, then scan"]
    assert read_scores("hash, then scan: 0.4\nsearch and sort: 0.6", names) == [0.6, 0.4]
    names = ["search and sort", "hash and scan"]
    assert read_scores("hash and scan: 0.4, search and sort: 0.6", names) == [0.6, 0.4]


@pytest.mark.parametrize("key", ["name", "title", "label", "candidate"])
def test_a_name_that_does_not_fit_is_not_replaced_by_a_number(key):
    judged = [{key: name, "x": k, "score": 0.3} for k, name in enumerate(("zeta", "eta"), 1)]
    assert read_scores(json.dumps(judged), NAMES) == [None] * 3


def test_steps_with_operators_are_told_apart():
    steps = ["2 + 2 = 4 (left: 4 6)", "2 * 2 = 4 (left: 4 6)", "6 - 2 = 4 (left: 2 4)"]
    judged = [
        {"step": "6 - 2 = 4", "score": 0.1},
        {"step": "2*2=4", "score": 0.2},
        {"step": "2 / 2 = 4", "score": 0.3},
    ]
    assert read_scores(json.dumps(judged), steps) == [None, 0.2, 0.1]
    assert read_scores("2 * 2 = 4 (left: 4 6): 0.7\n2 + 2 = 4: 0.2", steps) == [0.2, 0.7, None]


@pytest.mark.parametrize(
    ("names", "written", "places"),
    [
        (
            ["Sort the array first, then scan it.", "Use two pointers"],
            ["Use two", "Sort the array first"],
            [1, 0],
        ),
        (["Sort the array", "Hash all"], ["Hash a…", "Sort the arr..."], [1, 0]),
        (["Plan 2: buy", "Plan 1: build"], ["Plan 2", "Plan 1"], [0, 1]),
        (["Step 3: go", "Step 3: stop"], ["Step 2", "Step 1"], [1, 0]),
        (["Turn left", "Turn right"], ["Turn", "Turn left"], [None, 0]),
        (
            ["Graph search", "Greedy heuristic"],
            ["Using greedy heuristic, slow", "Graph search, fast"],
            [1, 0],
        ),
        (
            ["Graph search", "Greedy heuristic"],
            ["Graph search, greedy heuristic", "not graph search"],
            [None, None],
        ),
        (["Sort the array", "Hash all"], ["Sort the arr", "Hash"], [None, None]),
        (["Turn left now", "Turn left later"], ["Turn left", "Turn left"], [None, None]),
        (["to and fro " * 100 + "slowly", "Turn left"], ["to and fro " * 99 + "to and"], [None]),
        (["phase-2 plan", "2-opt search"], ["2 opt search", "phase 2 plan"], [1, 0]),
        (["6 * 2 = 12", "2 + 2 = 4"], ["2 * 2 = 4 (6 * 2 = 12)"], [None]),
        (["2-opt", "Tabu"], ["Tabu", "Local search (2-opt)"], [1, 0]),
        (["a", "b", "c", "d"], ["4th option", "3rd option"], [3, 2]),
        (["go", "go", "stop"], ["stop", "go"], [2, None]),
        (["b", "b"], ["b"], [None]),
        (["Approach 1", "Approach 2"], ["2.", "1."], [1, 0]),
    ],
)
def test_a_sibling_is_named_by_the_beginning_of_its_name(names, written, places):
    assert match_once(names, [{"name": one} for one in written]).places == places


def test_what_was_repaired_is_said():
    def repairs(text):
        return read_sibling_scores(text, NAMES).repairs

    assert repairs("[0.3, 0.6, 0.4]") == repairs(json.dumps(objects("{name}"))) == repairs("nothing") == ""
    assert "repaired" in repairs("{'alpha': 0.3, 'beta': 0.6, 'gamma': 0.4}")
    assert "by the numbers" in repairs(json.dumps(objects("{zero}")))
    assert "by their order" in repairs(json.dumps([{"score": 0.3}, {"score": 0.6}, {"score": 0.4}]))
    assert repairs('{"zeta": 0.3}') == ""
    assert "Not judged: “beta”" in repairs('{"alpha": 0.3, "gamma": 0.4}')


def test_numbers_that_are_part_of_a_name_tell_siblings_apart():
    for names in (["3-tier cache", "2-tier cache"], ["Plan 3D print", "Plan 4D print"]):
        assert match_once(names, [{"name": name} for name in names[::-1]]) == ([1, 0], "")


@pytest.mark.parametrize(
    "names",
    [
        ("(b1) cache", "cache"),
        ("cache (b1)", "cache"),
        ("(approach 1) cache", "cache"),
        ("cache [approach 1]", "cache"),
        ("a) cache", "b) cache"),
        ("1.", "2."),
        ("1.", "alpha"),
        ("1", "2"),
        ("Approach A", "Approach B"),
        ("#1 cache", "#2 cache"),
        ("plan 3 cache", "plan 4 cache"),
    ],
)
def test_names_that_differ_in_their_numbers_alone_are_reported(names):
    match = match_once(names, [{"name": name} for name in names])
    assert match.places == [0, 1]
    assert "not distinct" in match.warning
    assert "not distinct" not in match_once(["Plan A", "Plan B"], [{"id": 2}, {"id": 1}]).warning


def test_a_long_text_names_only_itself_and_a_thousand_judgements_are_none():
    long = "to and fro " * 100
    assert match_all([long], [long, f"1. {long}"]) == [0, None]
    assert match_once(["a way"], [{"name": "a way"}, *[{}] * 1_000]).places == [None] * 1_001


def test_many_lost_names_are_counted():
    warning = match_once(["a way"], [{"name": f"lost {k}"} for k in range(25)]).warning
    assert "lost 19” and 5 more" in warning
    assert "more" not in match_once(["a way"], [{"name": "zeta"}]).warning


def test_matching_of_texts_alone():
    assert match_once([], []) == ([], "")
    assert match_once(["go", "go"], [{"x": "go", "y": "zeta"}, {"x": "go", "y": "eta"}]).places == [0, 1]
    assert match_all(["a way", "b way", "b way"], ["a way", "b way", "zeta"]) == [0, None, None]


def test_an_object_of_aspects_is_one_judgement():
    assert judgements({"beta": {"score": 8}}) == [({"": "beta"}, {"score": 8})]
    for aspects in ({"scores": {"correctness": 8}}, {"score": 8, "strengths": ["short", "clear"]}):
        one = {"name": "beta", **aspects}
        assert judgements(one) == [({"name ": "beta"}, one)]


def test_ids_are_those_of_the_siblings():
    written = [{"id": "b2"}, {"id": "b3"}, {"id": "b0"}]
    assert match_once(NAMES, written, ["b0", "b1", "b2"]).places == [2, None, 0]
    assert match_once(NAMES[1:], written[:1], ["b1", "b2"]).places == [1]
