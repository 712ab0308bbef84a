"""An evaluator's measures are those of a hand, of scipy, and of models whose skill is known; a failure is
blamed on who had it, and on nobody where nobody knows."""

import math
import re
from types import SimpleNamespace

import msgspec
import numpy as np
import pandas as pd
import pytest
from support import TASK, Scripted, run

import tot_lab as tl
from tot_lab.analysis import judging
from tot_lab.analysis.blame import BLAMES
from tot_lab.analysis.judging import EvaluatorDiagnosis, bins_of, judge_evaluator
from tot_lab.record.losses import is_loss_column

HAND = tl.game24("4 5 6 10")
GOOD = "10 - 6 = 4 (left: 4 4 5)"
GOOD_TOO = "5 * 4 = 20 (left: 6 10 20)"
BAD = "4 / 10 = 2/5 (left: 2/5 5 6)"
ODD = "think of a number"


class Tree:
    """A search by hand; `of(task)` says what is known of it."""

    def __init__(self, task=HAND):
        self.recorder = tl.Recorder("by hand", task=task)
        self.root = self.recorder.thought(task.question if task else "the problem")

    def thought(self, text, score=None, *, parent=None, samples=(), by="value", state=None, other=None):
        id = self.recorder.thought(text, parent or self.root)
        if score is not None or samples:
            self.recorder.score(id, score, samples=samples, by=by)
        if state:
            self.recorder.decide(id, state, other=other)
        return id

    def run(self, *answer, **ended):
        self.recorder.end(*answer, **ended)
        return self.recorder.run


def labelled(pairs):
    """A run whose thoughts have these scores, and can or cannot lead to a right answer."""
    tree = Tree()
    for score, solvable in pairs:
        tree.thought(GOOD if solvable else BAD, score)
    return tree.run("1 + 1")


PAIRS = [(0.9, True), (0.8, True), (0.8, False), (0.3, True), (0.25, False), (0.1, False), (0.1, False)]


def test_the_texts_are_what_they_are_called():
    assert [HAND.domain.solvable(HAND, [text]) for text in (GOOD, GOOD_TOO, BAD, ODD)] == [
        True,
        True,
        False,
        None,
    ]


def test_measures_by_hand():
    m = judge_evaluator(labelled(PAIRS)).measures
    assert (m["thoughts"], m["read"], m["labelled"]) == (7, 7, 7)
    assert m["solvable"] == pytest.approx(3 / 7)
    # Of 3 × 4 pairs 0.9 wins 4, 0.8 wins 3 and draws 1, 0.3 wins 3.
    assert m["auc"] == pytest.approx((4 + 3.5 + 3) / 12)
    assert m["auc_within"] == m["auc"]  # one run, one depth
    squares = [0.01, 0.04, 0.64, 0.49, 0.0625, 0.01, 0.01]
    assert m["brier"] == pytest.approx(sum(squares) / 7)
    # Bins: 0.1 twice (0 solvable), 0.25, 0.3, 0.8 twice (1), 0.9.
    gaps = 2 * 0.1 + 0.25 + 0.7 + 2 * 0.3 + 0.1
    assert m["calibration_error"] == pytest.approx(gaps / 7)


@pytest.mark.slow
def test_measures_are_scipys():
    from scipy.stats import mannwhitneyu, spearmanr

    roll = np.random.default_rng(1)
    pairs = [(round(float(roll.random()), 1), bool(roll.random() < 0.4)) for _ in range(200)]
    m = judge_evaluator(labelled(pairs)).measures
    ones, others = ([score for score, good in pairs if good is kind] for kind in (True, False))
    assert m["auc"] == pytest.approx(mannwhitneyu(ones, others).statistic / (len(ones) * len(others)))
    assert m["spearman"] == pytest.approx(spearmanr(*zip(*pairs, strict=True)).statistic)


def test_the_curve():
    found = judge_evaluator(labelled([*PAIRS, (1.0, True), (0.0, False)]))
    curve = found.calibration(10)
    assert curve["thoughts"].tolist() == [1, 2, 1, 1, 0, 0, 0, 0, 2, 2]  # 1.0 belongs to the last bin
    assert curve["solvable"].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 1, 2]
    assert curve["share"][8] == 0.5
    assert curve["score"][9] == pytest.approx(0.95)
    assert curve.loc[4, ["score", "share", "lower", "upper"]].isna().all()
    z, n, p = 1.959964, 1, 0.5  # Wilson (1927); two thoughts of one task are one sample
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert curve["lower"][8] == pytest.approx(middle - half, abs=1e-5)
    assert curve["upper"][8] == pytest.approx(middle + half, abs=1e-5)
    assert found.calibration(1)["thoughts"].tolist() == [9]


# Intervals.


def diagnosed(score, good, task, run=None):
    """A diagnosis of thoughts with these scores and labels, of these tasks."""
    head = {"setting": "s", "task": pd.Categorical([f"task {k}" for k in task])}
    head["run_id"] = [f"run {k}" for k in (task if run is None else run)]
    thoughts = pd.DataFrame({**head, "depth": 1, "by": "value", "score": pd.array(score, "Float64")})
    thoughts["solvable"] = pd.array(np.asarray(good, dtype=bool), "boolean")
    thoughts["samples"], thoughts["unreadable_samples"] = 1, 0
    nothing = judge_evaluator([])
    return EvaluatorDiagnosis(
        thoughts, nothing.siblings.astype({"task": thoughts["task"].dtype}), nothing.runs, False
    )


def world(random, tasks, *, calibrated=False, thoughts=8):
    """Tasks of which some are easy and some are overrated: their thoughts are no samples of their own."""
    task = np.repeat(np.arange(tasks), random.poisson(thoughts, tasks) + 1)
    if calibrated:
        score = random.random(len(task))
        return score, random.random(len(task)) < score, task
    odds = (random.normal(0, 1, tasks)[task] + random.normal(0, 1, len(task))) * 1.0
    good = random.random(len(task)) < 1 / (1 + np.exp(-odds))
    odds += random.normal(0, 0.5, tasks)[task] + random.normal(0, 1, len(task))
    return np.round(1 / (1 + np.exp(-odds)), 2), good, task


def measured(score, good, task):
    """AUC, the same within tasks, rank correlation, Brier score and calibration error, by other means."""

    from scipy.stats import mannwhitneyu, spearmanr

    won = pairs = 0.0
    for k in np.unique(task):
        ones, others = (score[(task == k) & (good == kind)] for kind in (True, False))
        if len(ones) and len(others):
            won += mannwhitneyu(ones, others).statistic
            pairs += len(ones) * len(others)
    place = np.minimum((score * 10 + 1e-9).astype(int), 9)
    gaps = [abs(score[place == k].mean() - good[place == k].mean()) * (place == k).mean() for k in set(place)]
    ones, others = score[good], score[~good]
    return {
        "auc": mannwhitneyu(ones, others).statistic / (len(ones) * len(others)),
        "auc_within": won / pairs,
        "spearman": spearmanr(score, good).statistic,
        "brier": np.mean((score - good) ** 2),
        "calibration_error": sum(gaps),
    }


@pytest.mark.nightly
def test_intervals_are_those_of_whole_tasks_drawn_anew(monkeypatch):
    """Each draw is laid out thought by thought and measured by scipy."""

    from scipy.stats import norm, t

    monkeypatch.setattr(judging, "RESAMPLES", 200)
    score, good, task = world(np.random.default_rng(3), 12)
    found = diagnosed(score, good, task)
    rows = [np.flatnonzero(task == int(name)) for name in sorted(map(str, range(12)))]
    drawn = []
    for counts in np.random.default_rng(24).multinomial(12, np.full(12, 1 / 12), 200):
        chosen = [rows[k] for k, count in enumerate(counts) for _ in range(count)]
        apart = np.concatenate([np.full(len(some), k) for k, some in enumerate(chosen)])
        some = np.concatenate(chosen)
        drawn.append(measured(score[some], good[some], apart))
    both = sum(len(set(good[some])) == 2 for some in rows)
    whole = measured(score, good, task)
    for name, value in whole.items():
        count = both if name == "auc_within" else 12  # tasks that tell of it
        outside = norm.cdf(t.ppf(0.025, count - 1) * math.sqrt(count / (count - 1)))
        low, high = np.quantile([some[name] for some in drawn], [outside, 1 - outside])
        if name == "calibration_error":
            low, high = 2 * value - high, 2 * value - low
            low = low if found.intervals.loc[name, "low"] else 0.0  # tested below
        assert found.measures[name] == pytest.approx(value), name
        assert found.intervals.loc[name].tolist() == pytest.approx([max(low, 0.0), high]), name
    assert found.by("by").loc["value", "auc_low"] == found.intervals.loc["auc", "low"]


@pytest.mark.slow
def test_with_one_thought_a_task_they_are_the_usual_ones():
    from scipy.stats import bootstrap, spearmanr

    random = np.random.default_rng(5)
    good = random.random(300) < 0.4
    score = np.clip(np.round(0.4 + 0.2 * good + random.normal(0, 0.2, 300), 2), 0, 1)
    found = diagnosed(score, good, range(300))
    # DeLong, DeLong & Clarke-Pearson (1988): the variance from each thought's own share of pairs won.
    above = np.sign(score[good][:, None] - score[~good][None, :]) / 2 + 0.5
    error = math.sqrt(
        above.mean(axis=1).var(ddof=1) / above.shape[0] + above.mean(axis=0).var(ddof=1) / above.shape[1]
    )
    middle = above.mean()
    ends = [middle - 1.96 * error, middle + 1.96 * error]
    assert found.intervals.loc["auc"].tolist() == pytest.approx(ends, abs=0.005)
    pairs = (score, good.astype(float))
    drawn = bootstrap(pairs, lambda a, b: spearmanr(a, b).statistic, paired=True, vectorized=False,
                      n_resamples=999, method="percentile", rng=np.random.default_rng(1))  # fmt: skip
    assert found.intervals.loc["spearman"].tolist() == pytest.approx(drawn.confidence_interval, abs=0.02)
    error = ((score - good) ** 2).std(ddof=1) / math.sqrt(300)
    ends = [found.measures["brier"] - 1.96 * error, found.measures["brier"] + 1.96 * error]
    assert found.intervals.loc["brier"].tolist() == pytest.approx(ends, abs=0.005)


@pytest.mark.slow
def test_the_same_thought_again_tells_nothing_new():
    score, good, task = world(np.random.default_rng(4), 20)
    once = diagnosed(score, good, task).intervals
    again = diagnosed(*(np.tile(values, 3) for values in (score, good, task))).intervals
    pd.testing.assert_frame_equal(again, once)
    order = np.random.default_rng(0).permutation(len(score))
    pd.testing.assert_frame_equal(diagnosed(score[order], good[order], task[order]).intervals, once)


@pytest.mark.slow
def test_too_little_has_no_interval():
    score, good, task = world(np.random.default_rng(4), 4)
    assert diagnosed(score, good, task).intervals.isna().all(axis=None)  # of four tasks
    assert "1 tasks are too few (a measure needs at least 5" in repr(judge_evaluator(labelled(PAIRS)))
    rare = diagnosed([0.9] + [0.1] * 29, [True] + [False] * 29, range(30)).intervals
    assert rare.loc[["auc", "spearman"]].isna().all(axis=None)  # one draw in three has no solvable thought
    assert rare.loc["solvable"].notna().all()
    certain = diagnosed([0.9, 0.1] * 10, [True, False] * 10, np.repeat(range(10), 2)).intervals
    assert certain.loc[["auc", "solvable", "unreadable"]].isna().all(axis=None)  # all tasks agree
    assert judge_evaluator([]).intervals.isna().all(axis=None)


@pytest.mark.proof
@pytest.mark.parametrize("calibrated", [False, True])
def test_the_intervals_cover(calibrated):
    truth = diagnosed(*world(np.random.default_rng(0), 8000, calibrated=calibrated)).measures
    random, covered = np.random.default_rng(1), dict.fromkeys(("auc", "spearman", "calibration_error"), 0)
    for _ in range(100):
        ends = diagnosed(*world(random, 12, calibrated=calibrated)).intervals
        for name in covered:
            covered[name] += ends.loc[name, "low"] <= truth[name] <= ends.loc[name, "high"]
    assert min(covered.values()) >= 86, covered  # 95 less four standard errors of the simulation


def test_a_score_between_two_bins_belongs_to_the_upper_one():
    for bins in (10, 100, 7):
        edges = np.arange(bins) / bins
        assert bins_of(edges, bins).tolist() == list(range(bins))
    assert bins_of(np.array([0.0, 0.999, 1.0]), 10).tolist() == [0, 9, 9]


@pytest.mark.slow
def test_what_labels_do_not_allow_is_not_known():
    for pairs in ([], [(0.5, True)], [(0.5, False), (0.7, False)]):
        m = judge_evaluator(labelled(pairs)).measures
        assert math.isnan(m["auc"])
        assert math.isnan(m["auc_within"])
        assert math.isnan(m["spearman"])
        assert math.isnan(m["brier"]) is (not pairs)
    equal = judge_evaluator(labelled([(0.5, True), (0.5, False)])).measures
    assert equal["auc"] == 0.5
    assert math.isnan(equal["spearman"])


def test_pooled_runs_may_rank_where_no_run_does():
    """Easy tasks score high: over both runs the scores seem to know something, within none they do."""
    easy = labelled([(0.9, True), (0.9, True), (0.9, False)])
    hard = labelled([(0.1, True), (0.1, False), (0.1, False)])
    m = judge_evaluator([easy, hard]).measures
    assert m["auc"] == pytest.approx((2 * (2 + 0.5) + 1) / 9)
    assert m["auc_within"] == 0.5


@pytest.mark.slow
def test_an_ungradable_thought_is_no_wrong_one():
    tree = Tree()
    tree.thought(GOOD, 0.9)
    tree.thought(ODD, 0.1)
    found = judge_evaluator(tree.run("1 + 1"))
    assert found.thoughts["solvable"].tolist() == [True, pd.NA]
    m = found.measures
    assert (m["thoughts"], m["labelled"], m["solvable"]) == (2, 1, 1.0)
    assert math.isnan(m["auc"])
    assert "1 of 2 with a score (domain 1), 100% of them solvable" in repr(found)


@pytest.mark.slow
def test_unread_collapse_and_diversity():
    tree = Tree()
    first = tree.thought(GOOD, 0.5, samples=(0.5, None))
    tree.thought("6 * 4 = 24 (left: 5 10 24)", 0.5, samples=(0.5, 0.5))
    tree.thought("4 * 6 = 24 (left: 5 10 24)", 0.7, samples=(0.7, 0.7))
    tree.thought(BAD, None, samples=(None, None))
    tree.thought(BAD, state="duplicate")
    tree.thought("4 + 4 = 8 (left: 5 8)", 0.2, parent=first)  # an only child
    found = judge_evaluator(tree.run("1 + 1"))
    m = found.measures
    assert (m["thoughts"], m["read"]) == (5, 4)
    assert m["unreadable"] == 1 / 5
    assert m["unreadable_samples"] == 3 / 8  # of the only child no draw is recorded
    assert m["collapse"] == 1 / 3
    assert m["distinct_texts"] == 4 / 5
    assert m["distinct_states"] == 3 / 5  # 6 * 4 and 4 * 6 leave the same numbers
    assert found.siblings["siblings"].tolist() == [5]
    assert found.by("depth").loc[1, "thoughts"] == 4


@pytest.mark.slow
def test_who_is_no_evaluator_is_not_judged():
    tree = Tree()
    tree.thought(GOOD, 0.9)
    tree.thought(BAD, 0.2, by="domain")
    tree.thought(GOOD_TOO)
    tree.thought(BAD, 0.3, by="my_function")
    found = judge_evaluator(tree.run("1 + 1"))
    assert found.thoughts["by"].tolist() == ["value", "my_function"]
    assert found.by("by").index.tolist() == ["my_function", "value"]


@pytest.mark.slow
def test_by():
    found = judge_evaluator([labelled(PAIRS), labelled([(0.1, True), (0.9, False)])])
    assert sorted(found.by("run_id")["auc"]) == [0.0, pytest.approx(10.5 / 12)]
    assert found.by("depth").loc[1, "auc"] == found.measures["auc"]
    with pytest.raises(ValueError, match=r"by must be one of run_id, setting, task, depth, by: got 'score'"):
        found.by("score")


# Labels.


class Whole(tl.domains.General):
    """Knows when an answer is complete, and not what else can be solved."""

    kind = "whole, for a test"

    def complete(self, task, path):
        return bool(path) and path[-1].startswith("Answer")


def test_the_answer_of_a_complete_path_is_its_label():
    tree = Tree(TASK.model_copy(update={"domain": Whole(**TASK.domain.model_dump())}))
    for text, score in (("Answer: 26", 0.9), ("Answer: 24", 0.3), ("a step", 0.5)):
        tree.thought(text, score)
    assert judge_evaluator(tree.run("24")).thoughts["solvable"].tolist() == [True, False, pd.NA]


APPLES = "Ann has 3 apples and buys 5. How many has she?"


def word_problem(**graded):
    tree = Tree(tl.general(APPLES, **graded))
    tree.thought("3 + 5 = 8\nAnswer: 8", 0.9)
    tree.thought("So the answer is 9.", 0.4)
    tree.thought("3 + 5 = 8, to be checked", 0.5)  # mentions the right number and states no answer
    tree.thought("#### 8", by="root")  # nobody judged it
    return tree.run("8")


def test_a_stated_answer_of_a_graded_text_task_is_a_label():
    found = judge_evaluator(word_problem(answer=8, grade="number"))
    assert found.thoughts["solvable"].tolist() == [True, False, pd.NA]
    assert found.thoughts["known_by"].tolist()[:2] == ["grade", "grade"]
    assert found.measures["auc"] == 1.0
    assert "2 of 3 with a score (grade 2), 50% of them solvable" in repr(found)
    assert found.why_unlabelled == ""


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (word_problem(answer=8), "answers are not graded. Pass answer= and grade="),
        (word_problem(), "answers are not graded. Pass answer= and grade="),
        (Tree(None).run("8"), "no evaluator judged a thought"),
    ],
)
def test_without_a_label_the_table_says_why(made, why):
    assert why in repr(judge_evaluator(made))


def test_unfinished_thoughts_alone_have_no_label():
    tree = Tree(tl.general(APPLES, answer=8, grade="number"))
    tree.thought("3 + 5 = 8, to be checked", 0.5)
    assert "0 of 1 with a score: no judged thought states an answer" in repr(judge_evaluator(tree.run("9")))


@pytest.mark.slow
def test_a_persons_marks_are_labels_where_nothing_else_is_known():
    tree = Tree(tl.general("How many?"))
    right, wrong, open_ = (tree.thought(text, score) for text, score in (("a", 0.8), ("b", 0.4), ("c", 0.6)))
    made = tree.run("b", node=wrong)
    made.mark(right, "right")
    made.mark(wrong, "wrong")
    made.mark(open_, None, "hm")
    found = judge_evaluator(made)
    assert found.thoughts["solvable"].tolist() == [True, False, pd.NA]
    assert found.thoughts["known_by"].tolist()[:2] == ["mark", "mark"]
    assert found.measures["auc"] == 1.0
    known = labelled([(0.9, True)])
    known.mark("0.0", "wrong")  # the domain knows better
    assert judge_evaluator(known).thoughts["solvable"].tolist() == [True]


# Blame.


def blame_of(run):
    found = judge_evaluator(run)
    (row,) = found.runs.itertuples()
    if isinstance(row.blame, str):
        assert found.blame.loc["all", row.blame] == 1
        return row.blame, row.depth, row.nodes
    assert found.blame.loc["all", list(BLAMES)].sum() == 0
    return None


def test_a_right_run_has_no_blame():
    tree = Tree()
    tree.thought(GOOD, 0.1, state="pruned")
    assert blame_of(tree.run("(10 - 6) * 5 + 4")) is None


def test_a_right_answer_that_was_not_chosen_is_the_answerers():
    tree = Tree(TASK)
    wrong, right = tree.thought("Answer: 24"), tree.thought("Answer: 26", state="pruned")
    assert blame_of(tree.run("24", node=wrong)) == ("answerer", 1, right)


def test_a_right_answer_that_an_evaluator_pruned_is_its_fault():
    tree = Tree(TASK)
    wrong, right = tree.thought("Answer: 24", 0.9), tree.thought("Answer: 26", 0.1, state="pruned")
    assert blame_of(tree.run("24", node=wrong)) == ("evaluator", 1, right)
    tree = Tree(TASK)
    wrong, right = tree.thought("Answer: 24", 0.9), tree.thought("Answer: 26", 0.9, state="kept")
    tree.thought("Answer: 26", 0.1, state="pruned")
    assert blame_of(tree.run("24", node=wrong)) == ("evaluator", 1, right), "it scored both the same"
    tree = Tree(TASK)
    wrong, right = tree.thought("Answer: 24", 0.8), tree.thought("Answer: 26", 0.9, state="kept")
    assert blame_of(tree.run("24", node=wrong)) == ("answerer", 1, right)


def test_a_good_thought_that_was_pruned_is_the_evaluators():
    tree = Tree()
    good = tree.thought(GOOD, 0.1, state="pruned")
    tree.thought(BAD, 0.9, state="kept")
    assert blame_of(tree.run("1 + 1")) == ("evaluator", 1, good)


def test_the_table_and_the_sentence_blame_the_same():
    tree = Tree()
    good = tree.thought(GOOD, 0.5, state="pruned")
    tree.thought(BAD, 0.5, state="kept")
    run = tree.run("1 + 1")
    assert blame_of(run) == ("search", 1, good)
    assert tl.diagnose(run)[0].text.startswith("Search: ")
    tree = Tree()
    tree.thought(GOOD, 0.9, state="kept")  # never expanded
    wrong = tree.thought(BAD, 1.0, state="kept")
    tree.recorder.score(wrong, 1.0, by="person")
    run = tree.run("1 + 1", node=wrong, stop="solved")
    assert blame_of(run) == ("person", 1, wrong)
    assert tl.diagnose(run)[0].text.startswith("Person: ")
    wrong = Tree(TASK)
    given, right = wrong.thought("Answer: 24", 0.9), wrong.thought("Answer: 26", 0.5, state="kept")
    run = wrong.run("24", node=given)
    assert blame_of(run) == ("evaluator", 1, right)
    assert tl.diagnose(run)[0].text.startswith("Evaluator: ")


def test_good_thoughts_beyond_the_beam_are_not_the_evaluators():
    """It kept a good one; that nothing good was made of it is the proposer's."""
    tree = Tree()
    kept = tree.thought(GOOD, 0.9, state="kept")
    tree.thought(GOOD_TOO, 0.8, state="pruned")
    hopeless = tree.thought("4 + 4 = 8 (left: 5 8)", 0.7, parent=kept, state="kept")
    assert not HAND.domain.solvable(HAND, [GOOD, "4 + 4 = 8 (left: 5 8)"])
    assert blame_of(tree.run("1 + 1", node=hopeless)) == ("proposer", 2, kept)


def test_a_good_thought_that_was_never_proposed_is_the_proposers():
    tree = Tree()
    tree.thought(BAD, 0.9, state="kept")
    assert blame_of(tree.run("1 + 1")) == ("proposer", 1, "0")


def test_a_call_that_brought_nothing_to_read_is_the_proposers_and_one_that_failed_is_nobodys():
    for reply, whose in ((tl.Reply("none"), "proposer"), (tl.Reply(error="down: no"), "cut short")):
        tree = Tree()
        tree.recorder.call(tree.root, "begin", tl.Reply(GOOD), purpose="propose")
        kept = tree.thought(GOOD, 0.9, state="kept")
        tree.recorder.call(kept, "go on", reply, purpose="propose")
        assert blame_of(tree.run()) == (whose, 2, kept)


def test_a_good_thought_that_was_never_expanded_was_cut_short():
    tree = Tree()
    kept = tree.thought(GOOD, 0.9, state="kept")
    tree.thought(BAD, 0.4, state="pruned")
    assert blame_of(tree.run(stop="budget:calls")) == ("cut short", 2, kept)


def test_a_wrong_thought_taken_for_the_solution_is_the_evaluators():
    tree = Tree()
    tree.thought(GOOD, 0.9, state="kept")
    wrong = tree.thought(BAD, 1.0, state="kept")
    assert blame_of(tree.run("1 + 1", node=wrong, stop="solved")) == ("evaluator", 1, wrong)


def test_what_cannot_be_solved_is_nobodys():
    hopeless = tl.game24("1 1 1 1")
    tree = Tree(hopeless)
    tree.thought("1 + 1 = 2 (left: 1 1 2)", 0.9, state="kept")
    assert blame_of(tree.run("1 + 1"))[0] == "unsolvable"


def test_where_a_child_cannot_be_graded_nobody_knows():
    tree = Tree()
    tree.thought(BAD, 0.9, state="kept")
    tree.thought(ODD, 0.2, state="pruned")
    assert blame_of(tree.run("1 + 1")) == ("unknown", 1, "0")
    unknown = Tree(TASK)  # its domain cannot tell
    unknown.thought("a step", 0.9, state="pruned")
    assert blame_of(unknown.run("24"))[0] == "unknown"


@pytest.mark.parametrize(("state", "whose"), [("pruned", "evaluator"), ("kept", "cut short")])
def test_a_merged_state_fares_as_the_one_it_was_merged_with(state, whose):
    tree = Tree()
    one = tree.thought(GOOD, 0.9, state="kept")
    first = tree.thought("4 * 5 = 20 (left: 4 20)", 0.1, parent=one, state=state)
    other = tree.thought(GOOD_TOO, 0.9, state="kept")
    tree.thought("10 - 6 = 4 (left: 4 20)", 0.1, parent=other, state="merged", other=first)
    depth = 2 if state == "pruned" else 3
    assert blame_of(tree.run("1 + 1")) == (whose, depth, first)


@pytest.mark.slow
def test_marks_can_blame_where_there_is_no_ground_truth():
    tree = Tree(tl.general("How many?"))
    good, wrong = tree.thought("a", 0.1, state="pruned"), tree.thought("b", 0.9, state="kept")
    made = tree.run("b", node=wrong)
    assert blame_of(made) is None  # nobody knows whether it failed
    assert judge_evaluator(made).blame.loc["all", "not known"] == 1
    made.mark(wrong, "wrong")
    made.mark(good, "right")
    assert blame_of(made) == ("evaluator", 1, good)
    made.mark(wrong, "right")
    assert blame_of(made) is None


def test_an_unfinished_run_has_not_failed():
    tree = Tree()
    tree.thought(GOOD, 0.1, state="pruned")
    found = judge_evaluator(tree.recorder.run)
    assert found.runs["failed"].isna().all()
    assert found.blame.loc["all", "not known"] == 1


# Simulated models of known skill.

HANDS = [tl.game24(hand) for hand in ("1 1 4 6", "4 5 6 10", "1 2 3 4", "3 3 8 8", "2 5 8 11", "6 6 6 6")]
SEARCH = tl.TreeOfThoughts(propose=tl.Propose(count=5), stop=tl.Stop(depth=3))


def judged(strategy=SEARCH, **skill):
    return judge_evaluator([run(strategy, task, model=tl.sim.SimGame24(**skill)) for task in HANDS])


@pytest.mark.slow
def test_a_better_evaluator_has_better_measures():
    found = [judged(noise=noise).measures for noise in (0.0, 0.15, 0.5)]
    assert found[0]["auc"] == found[0]["auc_within"] == 1.0
    for measure, sign in (("auc", 1), ("auc_within", 1), ("spearman", 1), ("brier", -1)):
        values = [sign * m[measure] for m in found]
        assert values == sorted(values, reverse=True), measure
        assert values[0] > values[2]
    assert abs(found[2]["auc"] - 0.5) < 0.12


@pytest.mark.slow
def test_a_garbled_model_is_unread_as_often():
    m = judged(garble=0.3).measures
    assert 0.2 < m["unreadable"] < 0.4
    assert m["unreadable"] == m["unreadable_samples"]


@pytest.mark.slow
def test_a_proposer_made_to_never_propose_well_is_found():
    bad = judged(skill=0.0, noise=0.0).blame.loc["all"]
    assert bad["failed"] == bad["proposer"] == len(HANDS)
    misled = judged(skill=0.9, noise=0.5).blame.loc["all"]
    assert misled["evaluator"] > misled["failed"] / 2 > misled["proposer"]


@pytest.mark.slow
def test_baselines_have_no_evaluator_and_still_a_blame():
    found = judged(tl.OneAnswer(), skill=0.2)
    assert len(found.thoughts) == 0
    total = found.blame.loc["all"]
    assert total["failed"] == total["proposer"] > 0
    several = judged(tl.SelfConsistency(attempts=9), skill=0.3).blame.loc["all"]
    assert several["failed"] == several["proposer"] + several["answerer"]
    assert several["answerer"] > 0


@pytest.mark.nightly
def test_every_failure_has_one_blame():
    for options in [{"search": name} for name in ("depth_first", "best_first", "mcts")] + [{"merge": True}]:
        runs = judged(tl.TreeOfThoughts(**options)).runs
        assert (runs["blame"].notna() == runs["failed"]).all()
        assert set(runs["failed"]) <= {True, False}


# What it takes and shows.


@pytest.mark.slow
def test_a_sweep_is_read_run_by_run():
    runs = {"a": labelled(PAIRS), "b": labelled([(0.1, True), (0.9, False)])}
    frame = pd.DataFrame(
        {
            "run_id": ["a", "b", "c"],
            "setting": pd.Categorical(["x", "y", "y"], ["x", "y"]),
            "task": pd.Categorical(["4 5 6 10"] * 3),
            "repeat": 0,
            "stop_reason": pd.Categorical(["solved", "solved", None]),  # the last could not begin
            "error": [None, None, "TypeError: no"],
        }
    )
    found = judge_evaluator(SimpleNamespace(df=lambda: frame, run=runs.__getitem__))
    assert found.runs["run_id"].tolist() == ["a", "b"]
    assert found.by("setting")["auc"].to_dict() == {"x": pytest.approx(10.5 / 12), "y": 0.0}
    assert found.blame["runs"].to_dict() == {"x": 1, "y": 1, "all": 2}


def test_runs_are_called_as_a_sweep_calls_them():
    made = [run(tl.TreeOfThoughts(search=tl.BeamSearch(width=b))) for b in (1, 2)] + [labelled(PAIRS)]
    elsewhere = msgspec.structs.replace(made[0].header, strategy={"kind": "of a module that is not here"})
    made.append(tl.Run(elsewhere, made[0].lines))
    settings = ["TreeOfThoughts search.width=1", "TreeOfThoughts search.width=2", "by hand"]
    settings.append("of a module that is not here")
    assert judge_evaluator(made).runs["setting"].tolist() == settings


@pytest.mark.slow
def test_its_words():
    text = repr(judged(noise=0.2))
    assert "simulated model" in text
    assert "AUC" in text
    assert re.search(r"AUC +0\.\d\d \(0\.\d\d to [01]\.\d\d\); chance 0\.50", text)
    assert "95%, from whole tasks drawn anew; 6 tasks" in text
    hostile = Tree()
    hostile.thought(GOOD, 0.5, by="<script>")
    found = judge_evaluator(hostile.run("1 + 1"))
    assert "<script>" in repr(found)
    assert "<script>" not in found._repr_html_()
    empty = judge_evaluator([])
    assert "unknown" in repr(empty)
    assert empty.by("depth").empty


@pytest.mark.parametrize("wrong", [3, "a run", [3], None])
def test_it_takes_runs(wrong):
    with pytest.raises(TypeError, match="judge_evaluator expects a sweep, a run or several runs"):
        judge_evaluator(wrong)


def test_the_tables_say_what_they_hold():
    found = judge_evaluator(run(tl.TreeOfThoughts(evaluate=tl.Value(samples=2)), model=Scripted()))
    assert {name: str(kind) for name, kind in found.thoughts.dtypes.items()} == {
        **{"run_id": "string", "setting": "category", "task": "category", "node": "string"},
        **{"depth": "Int64", "by": "category", "score": "Float64", "solvable": "boolean"},
        **{"known_by": "category", "state": "category", "samples": "Int64", "unreadable_samples": "Int64"},
    }
    for frame in (found.thoughts, found.siblings, found.runs):
        for column in frame.columns:
            assert is_loss_column(column) or column in (type(found).__doc__ or "")


def test_an_error_of_a_domain_names_the_thought():
    class Strict(tl.domains.Game24):
        kind = "strict_for_this_test"

        def solvable(self, task, path):
            raise ValueError("no such state")

    game = tl.game24("4 5 6 10")
    made = run(tl.TreeOfThoughts(), game.model_copy(update={"domain": Strict()}))
    with pytest.raises(ValueError, match="no such state") as failed:
        tl.stats.judge_evaluator(made)
    (note,) = failed.value.__notes__
    assert note == f"The domain raised this for thought 0 of run {made.id}. It must accept any text."
