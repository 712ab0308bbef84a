"""The answer by majority of a finished search."""

import json
from collections import Counter
from random import Random

import numpy as np
import pytest
from support import GOLDEN, Scripted, dice, run, wait
from support.letters import Letters
from support.reward_trees import candidates
from support.votes import chosen

import tot_lab as tl
from tot_lab.core.records import Ended, Thought
from tot_lab.core.tree import Tree

ITS_HUB = json.loads((GOLDEN / "its_hub.json").read_text())


def test_the_most_frequent_answer_wins_and_the_domain_says_what_is_the_same():
    rows = [("Rome", 0.9), ("PARIS", 0.2), ("paris", 0.3)]
    assert chosen(rows) == ("paris", "0.2")
    assert chosen(rows, weighted=True) == ("Rome", "0.0")


def test_of_equal_votes_the_best_score_wins():
    assert chosen([("a", 0.2), ("b", 0.9), ("a", 0.3), ("b", 0.1)]) == ("b", "0.1")


def test_an_unreadable_score_has_a_vote_of_no_weight():
    rows = [("a", None), ("a", None), ("b", 0.1)]
    assert chosen(rows) == ("a", "0.0")
    assert chosen(rows, weighted=True) == ("b", "0.2")


def test_if_no_score_is_above_0_each_vote_counts_the_same():
    for nothing in (None, 0.0):
        assert chosen([("b", 0.0), ("a", nothing), ("a", nothing)], weighted=True) == ("a", "0.1")


def test_only_the_best_share_votes():
    rows = [("a", 0.1), ("a", 0.2), ("a", 0.3), ("b", 0.8), ("b", 0.9), ("c", 1.0)]
    assert chosen(rows) == ("a", "0.2")
    assert chosen(rows, top=0.5) == ("b", "0.4")
    assert chosen(rows, top=0.5, weighted=True) == ("b", "0.4")
    assert chosen(rows, top=0.1) == ("c", "0.5")
    assert chosen([("a", None), ("a", None), ("b", 0.0)], top=0.9) == ("b", "0.2")
    assert chosen([("a", None), ("a", None), ("b", None)], top=0.5) == ("a", "0.0")


@pytest.mark.slow
@pytest.mark.parametrize("top", [0.1, 0.3, 0.5, 0.9])
def test_the_best_share_are_those_at_or_above_the_percentile(top):
    for seed in range(200):
        random = Random(seed)
        rows = [(random.choice("abcd"), random.random()) for _ in range(1 + seed % 12)]
        bar = np.percentile([score for _, score in rows], 100 * (1 - top))
        votes = Counter()
        for text, score in rows:
            votes[text] += score if score >= bar else 0
        text, _ = chosen(rows, weighted=True, top=top)
        assert votes[text] == pytest.approx(max(votes.values()))


def test_a_vote_of_nobody_is_refused():
    with pytest.raises(ValueError, match="top"):
        tl.answers.MajorityVote(top=0)


def test_what_the_search_pruned_has_no_vote():
    assert chosen([("a", 0.1), ("b", 0.9, "pruned"), ("b", 0.9, "pruned")]) == ("a", "0.0")


def test_without_a_finished_path_the_best_one_answers():
    assert chosen([("a", 0.1, "pruned"), ("b", 0.9, "pruned")]) == ("b", "0.1")
    assert chosen([]) == ("", None)


def test_an_incomplete_path_has_no_vote():
    task = tl.game24("4 5 6 10")
    tree = Tree()
    steps = ["10 - 4 = 6 (left: 5 6 6)", "5 * 6 = 30 (left: 6 30)", "30 - 6 = 24 (left: 24)"]
    tree.add(Thought("0", None, task.question))
    for depth, step in enumerate(steps, 1):
        tree.add(Thought("0" + ".0" * depth, "0" + ".0" * (depth - 1), step))
    tree.add(Thought("0.1", "0", steps[0]))
    tree.add(Thought("0.2", "0", steps[0]))
    nodes = list(tree)[1:]
    text, node = tl.answers.MajorityVote().choose(task, tree, nodes, tree.leaves()[::-1])
    assert node.id == "0.0.0.0"
    assert task.domain.grade(task, text) is not None


@pytest.mark.parametrize("weighted", [False, True])
def test_it_counts_as_a_naive_count_does(weighted):
    for seed in range(200):
        random = Random(seed)
        rows = [(random.choice("abcd"), random.random()) for _ in range(1 + seed % 9)]
        votes = Counter()
        for text, score in rows:
            votes[text] += score if weighted else 1
        text, _ = chosen(rows, weighted=weighted)
        assert votes[text] == pytest.approx(max(votes.values()))


def test_its_hub_chooses_the_same_answers():
    """Self-consistency, and best of N."""
    for seed, theirs in ITS_HUB["answers"].items():
        rows = candidates(int(seed))
        voted, _ = chosen(rows)
        assert theirs["votes"] == Counter(answer for answer, _ in rows)
        assert theirs["votes"][voted] == theirs["votes"][theirs["voted"]]
        if [*theirs["votes"].values()].count(max(theirs["votes"].values())) == 1:
            assert voted == theirs["voted"]  # it draws among equally frequent answers
        assert max(rows, key=lambda row: row[1])[0] == theirs["best"] == chosen(rows, tl.answers.Best())[0]


def test_a_search_answers_by_it():
    strategy = tl.TreeOfThoughts(
        answer=tl.answers.MajorityVote(), search="rebase", stop=tl.Stop(solved=None, depth=1)
    )
    made = run(strategy, model=Scripted(answers))
    assert made.answer == "26"


def answers(call):
    if call.purpose == "value":
        return "score: 0.9" if "Answer: 24" in call.prompt else "score: 0.4"
    return "Answer: 24" if call.sample_index == 0 else "Answer: 26"


# Copied particles.


class UpToADot(Letters):
    """A path is complete after a full stop. Its answer is its last step."""

    kind = "tests/vote_up_to_a_dot"

    def complete(self, task, path):
        return bool(path) and path[-1].endswith(".")


def particles_in(made):
    """How often the population at the end of each filter holds each thought, as recorded."""
    held = Counter()
    for event in made.events:
        if getattr(event, "name", "") == "tot.particles":
            held.update(event.data["copies"])
    return held


@pytest.mark.slow
@pytest.mark.parametrize(
    "search", [tl.searches.ParticleFilter(particles=6), tl.searches.ParticleGibbs(particles=4)]
)
def test_a_copied_particle_votes_as_often_as_it_was_drawn(search):
    """In some runs the answer is another one than if each thought had one vote."""
    task = tl.general("Which letter?").model_copy(update={"domain": UpToADot()})
    strategy = tl.TreeOfThoughts(
        search=search,
        answer="majority_vote",
        evaluate=lambda task, path: {"a": 0.4, "b": 0.5, "c": 0.6}[path[-1][0]],
        stop=tl.Stop(solved=None, depth=6),
    )
    letters = Scripted(lambda call: dice(call).choice("abc") + dice(call).choice([".", ".", "!"]))
    changed = 0
    for repeat in range(40):
        made = run(strategy, task, letters, repeat=repeat)
        held = particles_in(made)
        votes, single = Counter(), Counter()
        for id, copies in held.items():
            answer = made.tree[id].text
            votes[answer] += copies
            single[answer] += 1
        assert votes[made.answer] == max(votes.values())
        changed += single[made.answer] < max(single.values())
        (ended,) = (event for event in made.events if isinstance(event, Ended))
        assert len({*ended.ranked}) == len(ended.ranked)
        assert wait(made.replay()).identical
    assert changed > 0


def test_a_filter_that_is_stopped_gives_each_thought_one_vote():
    strategy = tl.TreeOfThoughts(
        search="particle_filter", answer="majority_vote", stop=tl.Stop(solved=None, depth=4)
    )
    made = run(strategy, budget=tl.Budget(calls=9))
    assert made.stop_reason == "budget:calls"
    assert not particles_in(made)
    assert made.answer
