"""Language agent tree search: against a second implementation of the paper, and what its prompts show."""

import math
from random import Random

import pytest
from support import TASK, Scripted, answer_to, run, wait
from support.by_hand import drive

import tot_lab as tl
from tot_lab.core.calls import Call
from tot_lab.core.records import Note


def naive(score, branch, depth, iterations, weight):
    """The trajectories of the paper's algorithm: the expanded thoughts, and the last of each path."""
    value, visits, children, finished = {}, {"0": 0}, {}, set()
    expanded, ends = [], []

    def over(id):
        return id in finished or (id in children and all(map(over, children[id])))

    for _ in range(iterations):
        if over("0"):
            break
        path = ["0"]
        visits["0"] += 1
        while path[-1].count(".") < depth:
            last = path[-1]
            if last not in children:
                expanded.append(last)
                children[last] = [f"{last}.{k}" for k in range(branch(last))]
                for child in children[last]:
                    value[child], visits[child] = score(child), 1
            best, chosen = -1.0, None
            for child in children[last]:
                uct = value[child] + weight * math.sqrt(math.log(visits[last]) / visits[child])
                if uct > best and not over(child):
                    best, chosen = uct, child
            visits[chosen] += 1
            path.append(chosen)
        for id in path[1:]:
            value[id] = (value[id] * (visits[id] - 1) + score(path[-1])) / visits[id]
        finished.add(path[-1])
        ends.append(path[-1])
    return expanded, ends


@pytest.mark.slow
def test_it_makes_the_trajectories_of_the_paper_on_500_random_trees():
    lengths = set()
    for seed in range(500):
        dice = Random(seed)
        depth, iterations = dice.randint(1, 5), dice.randint(1, 20)
        weight = dice.choice([0.0, 0.5, 1.0, 2.0])
        numbers = {}

        def score(id, dice=dice, numbers=numbers):
            return numbers.setdefault(id, dice.random() * 0.99)

        def branch(id, seed=seed):
            return Random(f"{seed} {id}").randint(1, 3)

        reflected = []
        search = tl.searches.LATS(exploration=weight, iterations=iterations, reflections=1000)
        made, _ = drive(
            search,
            score,
            branch=branch,
            depth=depth,
            reply=lambda call, reflected=reflected: reflected.append(call.node) or "hm",
        )
        expanded, ends = naive(score, branch, depth, iterations, weight)
        assert [pick.parents[0] for pick, _ in made] == expanded
        assert reflected == ends
        lengths.add(len(ends))
    assert len(lengths) > 15


def test_a_finished_child_does_not_take_the_value_of_its_sibling():
    """The published `evaluate_node` scores the unfinished children, and assigns the scores from the first
    child on. Here this would be the finished one, and the search would go to the worst child.
    """
    scores = {"0.0": 0.0, "0.1": 0.9, "0.2": 0.2}
    asked = [scores[id] for id in ("0.1", "0.2")]
    published = dict(zip(scores, [*asked, 0.0], strict=True))
    assert max(("0.1", "0.2"), key=published.__getitem__) == "0.1"
    assert published["0.1"] == 0.2
    assert published["0.0"] == 0.9
    search = tl.searches.LATS(iterations=1, exploration=0.0)
    made, _ = drive(search, lambda id: scores.get(id, 0.5), depth=2, closed={"0.0"}, reply=lambda call: "hm")
    second, _ = made[1]
    assert second.parents == ["0.1"]
    assert second.why == {"0.1": {"visits": 1, "value": 0.9, "exploration": 0.0}}


def test_a_mean_value_is_not_divided_by_the_visits_again():
    """The published `backpropagate` stores means, which its `uct` divides by the visits as if they were sums.
    Here this would leave the thought with the best rewards after two trajectories.
    """
    search = tl.searches.LATS(iterations=3, exploration=0.0)
    scores = {"0.0": 0.8, "0.1": 0.5}
    made, _ = drive(search, lambda id: scores.get(id, 0.9), branch=2, depth=3, reply=lambda call: "hm")
    assert [pick.parents[0] for pick, _ in made] == ["0", "0.0", "0.0.0", "0.0.1"]
    mean, visits = (0.8 + 0.9 + 0.9) / 3, 3
    assert made[3][0].why["0.0"]["value"] == pytest.approx(mean)
    assert mean / visits < scores["0.1"]


def test_a_reward_changes_the_values_on_its_trajectory_and_no_others():
    # 0.0 looks best, but its end is worthless. With one reward of 0 its value is 0.4, below that of 0.1.
    scores = {"0.0": 0.8, "0.1": 0.5, "0.2": 0.1, "0.0.0": 0.0, "0.0.1": 0.0, "0.0.2": 0.0}
    search = tl.searches.LATS(iterations=2, exploration=0.0)
    made, _ = drive(search, lambda id: scores.get(id, 0.3), depth=2, reply=lambda call: "hm")
    assert [pick.parents for pick, _ in made] == [["0"], ["0.0"], ["0.1"]]
    assert made[2][0].why["0.1"] == {"visits": 1, "value": 0.5, "exploration": 0.0}


def test_an_unreadable_score_counts_as_0_and_a_dead_end_as_a_reward_of_0():
    search = tl.searches.LATS(iterations=3, exploration=0.0, reflections=0)
    scores = {"0.0": None, "0.1": 0.4}
    made, _ = drive(
        search, lambda id: scores.get(id, 0.3), branch=lambda id: 0 if id == "0.1" else 2, depth=2
    )
    assert [pick.parents for pick, _ in made] == [["0"], ["0.1"], ["0.0"]]


def test_the_search_ends_when_all_paths_are_finished():
    search = tl.searches.LATS(iterations=1000)
    made, state = drive(search, lambda id: 0.5, depth=3, reply=lambda call: "hm")
    assert len(made) == 1 + 3 + 9
    assert len(state.tree) == 1 + 3 + 9 + 27


@pytest.mark.parametrize("number", [1, 9])
def test_a_changed_score_counts_as_if_the_evaluator_had_given_it(number):
    """The score of a thought, and the reward of a path that is finished: here the first, after 9 picks."""
    dice, scores, reflected = Random(7), {}, []

    def score(id):
        return scores.setdefault(id, dice.random() * 0.9)

    def terms(score, rescore=None):
        search = tl.searches.LATS(iterations=12, reflections=1)
        made, _ = drive(
            search, score, depth=3, rescore=rescore, reply=lambda call: reflected.append(call.node) or "hm"
        )
        return [(pick.parents[0], *dict(pick.why or {}).items()) for pick, _ in made]

    usual = terms(score)
    id = "0.2" if number == 1 else reflected[0]
    new = scores[id] + 0.001  # so little that the first picks are the same
    changed = terms(lambda other: new if other == id else score(other))
    rescored = terms(score, {number: {id: new}})
    assert [ids for ids, *_ in rescored] == [ids for ids, *_ in changed] == [ids for ids, *_ in usual]
    later = [values_in(run[number:]) for run in (rescored, changed, usual)]
    assert later[0] == pytest.approx(later[1], rel=1e-12)
    assert later[0] != pytest.approx(later[2], rel=1e-12)


def values_in(picks):
    return [terms["value"] for _, *choices in picks for _, terms in choices]


# Real runs.

SEARCH = tl.TreeOfThoughts(
    propose=tl.Sample(count=2),
    search=tl.searches.LATS(iterations=5, reflections=2),
    stop=tl.Stop(solved=None, depth=2),
)


def reflecting(call):
    return f"Lesson {call.node}." if call.purpose == "reflect" else answer_to(call)


def test_reflections_are_shown_in_all_later_prompts_of_thoughts_and_scores():
    made = run(SEARCH, model=Scripted(reflecting))
    known, asked = [], 0
    for event in made.events:
        if not isinstance(event, Call):
            continue
        if event.purpose == "reflect":
            asked += 1
            assert made.tree[event.node].depth == 2
            assert made.tree[event.node].text in event.prompt
            assert TASK.question in event.prompt
            known.append(f"Lesson {event.node}.")
        else:
            shown = "Reflections on them" in event.prompt
            assert shown == bool(known)
            assert all(lesson in event.prompt for lesson in known)
    assert asked == 2
    assert made.usage.calls <= SEARCH.max_calls(TASK)
    assert wait(made.replay()).identical


def test_a_success_needs_no_reflection():
    model = Scripted(lambda call: "score: 1" if call.purpose == "value" else answer_to(call))
    made = run(SEARCH, model=model)
    assert not [call for call in model.calls if call.purpose == "reflect"]
    assert made.score == 1.0


def test_a_failed_reflection_is_recorded_and_the_search_goes_on():
    def reply(call):
        if call.purpose == "reflect":
            raise ConnectionError("gone")
        return answer_to(call)

    made = run(SEARCH, model=Scripted(reply))
    failures = [e for e in made.events if isinstance(e, Note) and e.name == "call.failed"]
    assert [note.data["kind"] for note in failures] == ["reflect"] * 2
    assert len(made.tree) == 7
