"""Methods without a search: votes, windows, feedback and debate, beside their pseudo-code."""

import json
import re
from collections import Counter, defaultdict
from random import Random

import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.analysis.rehearsal import carry_out
from tot_lab.strategies.voting import choose_by_vote

WeightedBestOf, EarlyStopping = tl.methods.WeightedBestOf, tl.methods.EarlyStopping
SelfRefine, Debate = tl.methods.SelfRefine, tl.methods.Debate


def attempt_of(call):
    return call.attempt[0] if call.attempt else None


def with_answers(answers, scores=None):
    """A model whose attempt k answers `answers[k]` (`None`: nothing readable), with `scores[k]`."""

    def reply(call):
        if call.purpose == "judge":
            score = scores[attempt_of(call)]
            return "no idea" if score is None else f"score: {score}"
        answer = answers[attempt_of(call)]
        return "" if answer is None else f"Let me see.\nAnswer: {answer}"

    return Scripted(reply)


# Votes.


@pytest.mark.slow
def test_a_weighted_vote_is_that_of_its_pseudo_code():
    for seed in range(500):
        random = Random(seed)
        count = random.randint(1, 8)
        given = [random.choice(["24", "26", "26.0", "30", ""]) for _ in range(count)]
        weights = [random.choice([0.0, 0.25, 0.5, 1.0]) for _ in range(count)]
        if not any(weights):
            continue
        answers = [tl.Answer(text, "answered", f"0.{k}") for k, text in enumerate(given)]
        total = defaultdict(float)
        for text, weight in zip(given, weights, strict=True):
            if text:
                total[TASK.domain.same(TASK, text)] += weight
        made = carry_out(choose_by_vote(TASK, answers, "test", weights), None)  # it asks no model
        if not total:
            assert made.text == ""
            continue
        most = max(total.values())
        keys = [TASK.domain.same(TASK, text) for text in given]
        first = next(key for key in keys if total.get(key) == most)
        assert TASK.domain.same(TASK, made.text) == first
        assert made.score == pytest.approx(most / sum(weights))


def test_weighted_best_of_prefers_one_good_answer_to_several_bad_ones_and_sums_equal_answers():
    def chosen(answers, scores):
        return run(
            WeightedBestOf(strategy=tl.ChainOfThought(), attempts=len(answers)),
            TASK,
            with_answers(answers, scores),
        )

    assert chosen([24, 24, 26], [0.2, 0.2, 0.9]).answer == "26"  # self-consistency says 24
    made = chosen([24, 26, 24], [0.5, 0.9, 0.5])  # best of N says 26
    assert (made.answer, made.score) == ("24", pytest.approx(1.0 / 1.9))
    assert (
        chosen([24, 26, 26], [0.0, 0.0, None]).answer == "26"
    )  # without any score above 0 the most frequent
    assert made.tree["0.1.0"].state == "pruned"
    assert wait(made.replay()).identical


def test_the_thought_of_a_vote_is_that_of_the_attempt_with_the_highest_score():
    strategy = WeightedBestOf(strategy=tl.ChainOfThought(), attempts=3)
    made = run(strategy, TASK, with_answers([26, 26, 24], [0.2, 0.6, 0.7]))
    assert (made.answer, made.tree["0.0.0"].state) == ("26", "pruned")
    assert made.tree["0.1.0"].by == "weighted_best_of"


# Early-stopping self-consistency.


def naive_early_stopping(answers, window):
    """The published procedure: sample a window at a time, and stop with its answer when its entropy is zero.
    Otherwise vote over all."""
    taken = []
    for start in range(0, len(answers), window):
        part = answers[start : start + window]
        taken += part
        if len(part) == window and len(set(part)) == 1 and None not in part:
            return len(taken), str(part[0])
    votes = Counter(answer for answer in taken if answer is not None)
    return len(taken), (str(votes.most_common(1)[0][0]) if votes else "")


@pytest.mark.slow
def test_early_stopping_takes_the_attempts_of_its_pseudo_code():
    stopped = 0
    for seed in range(500):
        random = Random(seed)
        sure = random.random()
        window, most = random.randint(2, 4), random.randint(1, 9)
        answers = [26 if random.random() < sure else random.choice([24, 25, None]) for _ in range(most)]
        model = with_answers(answers)
        made = run(EarlyStopping(attempts=most, window=window), TASK, model)
        assert (len(model.calls), made.answer) == naive_early_stopping(answers, window), seed
        stopped += len(model.calls) < most
    assert 100 < stopped < 400


def test_the_answer_is_that_of_the_window_that_agrees_and_its_score_the_share_of_all():
    made = run(EarlyStopping(attempts=9, window=2), TASK, with_answers([24, 25, 24, 25, 24, 25, 26, 26, 1]))
    assert (made.answer, made.score) == ("26", pytest.approx(2 / 8))


def test_each_window_is_recorded():
    made = run(EarlyStopping(attempts=9, window=3), TASK, with_answers([24, 24, 26, 26, 26, 26, 1, 2, 3]))
    windows = [event.data for event in made.events if getattr(event, "name", "") == "early_stopping.window"]
    assert windows == [{"attempts": 3, "agreed": False}, {"attempts": 6, "agreed": True}]
    assert (made.answer, made.score) == ("26", pytest.approx(4 / 6))
    assert made.tree["0.2.0"].by == "early_stopping"


def test_early_stopping_that_never_agrees_is_self_consistency():
    answers = [24, 25, 26, 24, 25, 24, 26]
    early = run(EarlyStopping(attempts=7, window=2), TASK, with_answers(answers))
    assert len([node for node in early.tree if node.depth == 2]) == 7
    plain = run(tl.SelfConsistency(attempts=7), TASK, with_answers(answers))
    assert early.answer == plain.answer
    assert early.score == plain.score


# Self-refine.


def refining(verdicts):
    """A model whose k-th feedback is `verdicts[k]`; its answers count the feedback that they were shown."""

    def reply(call):
        shown = call.prompt.count("Feedback on it:")
        if call.purpose == "critique":
            number = int(re.search(r"draft (\d+)", call.prompt)[1])
            return verdicts[number]
        return f"draft {shown}\nAnswer: {20 + shown}"

    return Scripted(reply)


@pytest.mark.parametrize(
    ("verdicts", "rounds", "answer", "stop", "score"),
    [
        (["SATISFIED: fine."], 4, "20", "solved", 1.0),
        (["UNSATISFIED: no.", "UNSATISFIED: no.", "SATISFIED: now."], 4, "22", "solved", 1.0),
        (["UNSATISFIED: no."] * 2, 2, "22", "limit:rounds", None),
        (["Hm."] * 2, 2, "22", "limit:rounds", None),
        ([], 0, "20", "limit:rounds", None),
    ],
)
def test_self_refine_stops_when_the_feedback_is_satisfied(verdicts, rounds, answer, stop, score):
    model = refining(verdicts)
    made = run(SelfRefine(rounds=rounds), TASK, model)
    assert (made.answer, made.stop_reason, made.score) == (answer, stop, score)
    purposes = [call.purpose for call in model.calls]
    drafts = int(answer) - 19
    assert purposes == (["answer", "critique"] * drafts)[: len(purposes)]
    assert len(purposes) == 2 * drafts - (stop == "limit:rounds")
    assert wait(made.replay()).identical


def test_each_refinement_sees_all_earlier_answers_and_feedback_in_order():
    model = refining(["UNSATISFIED: first fault.", "UNSATISFIED: second fault.", "SATISFIED: yes."])
    run(SelfRefine(), TASK, model)
    last = [call.prompt for call in model.calls if call.purpose == "answer"][-1]
    places = [last.index(text) for text in ("draft 0", "first fault", "draft 1", "second fault")]
    assert places == sorted(places)


# Debate.


def naive_debate(agents, rounds, reply):
    """The published procedure: every agent has a context and, from the second round on, reads the others'
    answers of the round before."""
    contexts = [["question"] for _ in range(agents)]
    for number in range(rounds):
        for k, context in enumerate(contexts):
            if number:
                context.append([other[2 * number - 1] for other in contexts[:k] + contexts[k + 1 :]])
            context.append(reply(k, context))
    return contexts


@pytest.mark.slow
def test_a_debate_has_the_conversations_of_the_published_procedure():
    for seed in range(60):
        random = Random(seed)
        agents, rounds = random.randint(1, 4), random.randint(1, 4)

        def reply(number, context, seed=seed):
            return f"Answer: {Random(repr((seed, number, context))).choice([24, 25, 26])}"

        def plain(call):
            """The messages of a call in the form of the naive procedure."""
            context = ["question"]
            for message in call.messages[1:]:
                shown = re.findall(r"<answer>\n(.*?)\n</answer>", message.content)
                context.append(message.content if message.role == "assistant" else shown)
            return context

        model = Scripted(
            lambda call, agents=agents, reply=reply, plain=plain: reply(
                call.sample_index % agents, plain(call)
            )
        )
        made = run(Debate(agents=agents, rounds=rounds), TASK, model)
        contexts = naive_debate(agents, rounds, reply)
        assert len(model.calls) == agents * rounds
        last = {call.sample_index % agents: plain(call) for call in model.calls}
        for k, context in enumerate(contexts):
            assert last[k] == context[:-1]
            tip = max(
                (node for node in made.tree if f"{node.id}.".startswith(f"0.{k}.")), key=lambda n: n.depth
            )
            assert tip.text == context[-1]
        votes = Counter(context[-1] for context in contexts)
        assert made.answer == votes.most_common(1)[0][0].removeprefix("Answer: ")


def test_the_thoughts_of_a_debate_name_what_they_were_shown():
    made = run(Debate(agents=3, rounds=2), TASK, Scripted(lambda call: "Answer: 26"))
    assert {node.id: node.source for node in made.tree if node.depth == 2} == {
        "0.0.0": ("0.1", "0.2"),
        "0.1.0": ("0.0", "0.2"),
        "0.2.0": ("0.0", "0.1"),
    }
    assert wait(made.replay()).identical


def test_an_agent_whose_call_fails_is_not_shown_and_keeps_its_answer():
    def reply(call):
        number, agent = divmod(call.sample_index, 3)
        if (number, agent) in {(0, 1), (1, 0)}:
            raise RuntimeError("no reply")
        return f"Answer: {[26, 24, 24][agent]}"

    model = Scripted(reply)
    made = run(Debate(agents=3, rounds=2), TASK, model)
    assert made.tree["0.2.0"].source == ("0.0",)
    assert made.tree["0.1"].text == "Answer: 24"  # its first answer, in the second round
    assert "0.0.0" not in made.tree
    assert made.answer == "24"


def test_settings_are_kept():
    for strategy in (SelfRefine(rounds=2), Debate(agents=2), EarlyStopping(window=3)):
        assert tl.part_of(json.loads(json.dumps(strategy.settings()))) == strategy
