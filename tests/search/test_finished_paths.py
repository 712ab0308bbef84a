"""Where the path of a step search on text ends, and which path is the answer."""

import json
from random import Random

import pytest
from support import Scripted, for_each, wait

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.core.records import Decided, Note

Continue = tl.proposers.Continue
QUESTION = "Take the sum of {} and {}, and double it."
SEARCHES = [
    tl.BeamSearch(width=4),
    tl.searches.PRMBeam(width=2, count=4),
    tl.searches.DVTS(subtrees=2, count=4),
    tl.searches.REBASE(width=8),
    tl.searches.ParticleFilter(particles=8),
]


def begun(call):
    """The reply so far."""
    return call.messages[-1].content if call.messages[-1].role == "assistant" else ""


def ended(text, ends, tells=True, reason="stop"):
    return Reply(text, finish_reason=reason, ended=ends if tells else None)


def solving(answer, tells=True):
    """A model that works out two numbers of the question in four steps, and errs in three of ten.

    It goes on after its answer if it is asked to, and states a partial sum in a box.
    """

    def reply(call):
        *_, a, b = [
            int(word) for word in call.messages[0].content.split("double")[0].split() if word.isdigit()
        ]
        steps = begun(call).split("\n\n")[:-1]
        random = Random(repr((call.prompt, call.sample_index)))
        slip = random.random() < 0.3
        if not steps:
            return ended(f"First \\boxed{{{a + b + slip}}} is the sum.", False, tells)
        before = int("".join(filter(str.isdigit, steps[-1])) or 0)
        if len(steps) == 1:
            return ended(f"Answer: we first need to double {before}.", False, tells)
        if len(steps) == 2:
            return ended(f"Doubled, that gives {2 * before + 2 * slip}.", False, tells)
        return ended(answer(before) if len(steps) == 3 else "Now let us check it.", len(steps) == 3, tells)

    return reply


def rewarded(task, path):
    """Reward of a right path."""
    *_, a, b = [int(word) for word in task.question.split("double")[0].split() if word.isdigit()]
    numbers = [int("".join(filter(str.isdigit, step)) or 0) for step in path[:3]]
    right = [a + b, a + b, 2 * (a + b)][: len(numbers)]
    return 1.0 if numbers == right else 0.1


def rows(form):
    """Rows of a published format, and how a solution in that format ends."""
    numbers = [(11 * k + 2, 5 * k + 3) for k in range(1, 4)]
    asked = [(QUESTION.format(f" {a} ", f" {b} ").replace("  ", " "), 2 * (a + b)) for a, b in numbers]
    if form == "gsm8k":
        return [{"question": q, "answer": f"So #### {n}"} for q, n in asked], "#### {}"
    if form == "math500":
        return [{"problem": q, "answer": str(n)} for q, n in asked], "Thus it is $\\boxed{{{}}}$."
    if form == "aime":
        return [{"problem": q, "answer": n} for q, n in asked], "**Final Answer**\n\\boxed{{{}}}"
    if form == "bbh":
        return [{"input": q, "target": str(n)} for q, n in asked], "So the answer is {}."
    if form == "arc":
        kept = [
            {
                "id": str(n),
                "question": q,
                "choices": {"label": ["A", "B"], "text": [str(n), str(n + 2)]},
                "answerKey": "A",
            }
            for q, n in asked
        ]
        return kept, "Answer: {}"
    return [{"question": q, "answer": str(n)} for q, n in asked], "Answer: {}"


def tasks_of(form, tmp_path):
    made, answer = rows(form)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    given = {"format": form} if form != "own" else {"answer": "answer", "grade": "number"}
    return tl.tasks(path, **given), answer.format


class FourSteps(tl.domains.General):
    """The domain that a user would write for `solving`."""

    kind = "tests/four_steps"

    def complete(self, task, path):
        return len(path) >= 4

    def answer(self, task, path):
        return self.read_answer(task, path[-1]) if self.complete(task, path) else None


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gsm8k", "math500", "aime", "arc", "bbh", "own"])
def test_a_graded_format_needs_no_domain_for_any_search(form, tmp_path):
    tasks, answer = tasks_of(form, tmp_path)

    def check(case):
        search, tells = case
        strategy = tl.TreeOfThoughts(
            propose=Continue(count=4), evaluate=rewarded, search=search, stop=tl.Stop(depth=6)
        )
        for task in tasks:
            model = Scripted(solving(answer, tells))
            made = wait(tl.Lab(model, runs=None).run(strategy, task))
            domain = FourSteps(grading=task.domain.grading)
            by_hand = wait(tl.Lab(model, runs=None).run(strategy, task.model_copy(update={"domain": domain})))
            assert (made.answer, made.correct) == (by_hand.answer, by_hand.correct)
            assert (made.best.depth, made.answer_state) == (4, "finished")
            assert len(made.tree) == len(by_hand.tree)
            right.append(made.correct)
            assert not any(made.tree[id].children for id in complete(made))

    right = []
    for_each([(search, tells) for search in SEARCHES for tells in (True, False)], check)
    assert sum(right) >= 0.9 * len(right)


def complete(made):
    return [e.id for e in made.events if isinstance(e, Decided) and e.what == "complete"]


# How the model ended.

TASK = tl.general("How many legs have three spiders and a duck?", answer=26, grade="number")


def stepping(replies, propose=None, task=TASK, evaluate=lambda task, path: 0.5, model=None, **settings):
    """A search whose model gives `replies` by depth, or is `model`."""

    def reply(call):
        given = replies[min(len([m for m in begun(call).split("\n\n") if m]), len(replies) - 1)]
        return given if isinstance(given, Reply) else Reply(given, finish_reason="stop")

    model = Scripted(model or reply)
    settings = {"search": tl.BeamSearch(width=1), "stop": tl.Stop(depth=4), **settings}
    strategy = tl.TreeOfThoughts(propose=propose or Continue(count=1), evaluate=evaluate, **settings)
    return wait(tl.Lab(model, runs=None).run(strategy, task)), model.calls, strategy


def test_the_end_of_the_reply_ends_a_path():
    made, calls, _ = stepping([ended("24 and 2", False), ended("are 26.", True)])
    assert (made.answer, made.answer_state, len(calls)) == ("are 26.", "finished", 2)
    assert wait(made.replay()).identical


@pytest.mark.parametrize(
    "last",
    [
        Reply("are 26.", finish_reason="stop"),  # unknown who ended it
        Reply("are 26.", finish_reason="length", ended=True),
        Reply("are 26.", finish_reason="content_filter", ended=True),
        Reply("are 26.\n\nAnd so on", finish_reason="stop", ended=True),  # the stop text was ignored
    ],
)
def test_no_other_end_of_a_reply_ends_a_path(last):
    made, calls, _ = stepping([ended("24 and 2", False), last])
    assert (len(calls), made.stop_reason) == (4, "limit:depth")
    assert made.answer_state in ("unfinished", "cut")


def test_it_counts_for_continued_replies_alone():
    made, calls, _ = stepping([ended("24 and 2 are 26.", True)], tl.Sample(count=1))
    assert (len(calls), made.answer_state) == (4, "unfinished")


def test_an_empty_continuation_ends_a_path_and_is_no_step():
    made, calls, _ = stepping(["24 and 2", "are 26.", ""])
    assert (made.answer, made.answer_state, len(calls)) == ("are 26.", "finished", 3)
    assert made.tree.texts(made.best.id) == ["24 and 2", "are 26."]
    stopped, _, _ = stepping(["24 and 2", ended("", False)])  # a stop text at once
    assert stopped.answer_state == "unfinished"


def test_an_empty_continuation_after_a_cut_answer_is_no_step_either():
    made, _, _ = stepping(["24 and 2", Reply("Answer: 26", finish_reason="length"), ""])
    assert (made.answer, made.answer_state) == ("26", "finished")
    assert made.tree.texts(made.best.id) == ["24 and 2", "Answer: 26"]


def test_an_own_complete_decides_alone():
    class Open(tl.domains.General):
        kind = "tests/open"

        def complete(self, task, path):
            return None

    task = TASK.model_copy(update={"domain": Open(grading="number")})
    made, calls, _ = stepping([ended("Answer: 26", True)], task=task)
    assert (len(calls), made.answer_state) == (4, None)


def test_a_step_that_is_cut_is_marked_and_open():
    made, calls, _ = stepping([Reply("Answer: 2", finish_reason="length"), "6", "Answer: 26"])
    assert (made.answer, len(calls)) == ("26", 3)
    assert [e.at for e in made.events if isinstance(e, Note) and e.name == "step.cut"] == ["0.0"]
    cut, _, _ = stepping([Reply("Answer: 2", finish_reason="length")])
    assert cut.answer_state == "cut"
    assert "cut off at max_tokens" in repr(cut)


# The answer.


@pytest.mark.parametrize(
    "rule", ["best_path", "best", "best_leaf", "deepest", "majority_vote", "first_complete"]
)
def test_an_unfinished_path_is_no_answer_beside_a_finished_one(rule):
    def reply(call):
        return Reply("Answer: 26" if call.sample_index == 1 and not begun(call) else "Answer: we first see 4")

    strategy = tl.TreeOfThoughts(
        propose=Continue(count=2),
        evaluate=lambda task, path: 0.1 if path[-1] == "Answer: 26" else 0.9,
        search=tl.BeamSearch(width=1),
        answer=rule,
    )
    made = wait(tl.Lab(Scripted(reply), runs=None).run(strategy, TASK))
    assert (made.answer, made.answer_state) == ("26", "finished")
    assert wait(made.replay()).identical


def test_the_presets_of_the_designs_expand_every_path():
    def reply(call):
        return "Answer: 26" if call.purpose == "sample" else "score: 0.5"

    model = Scripted(reply)
    made = wait(tl.Lab(model, runs=None).run(tl.presets.beam_search(), TASK))
    assert (len(model.calls), made.answer_state) == (30, None)


@pytest.mark.parametrize("end", ["so Answer: 26", "they are 26"])
def test_the_best_path_is_completed_if_none_is_finished(end):
    def reply(call):
        return Reply("24 and 2", finish_reason="stop") if call.stop else Reply(end, finish_reason="stop")

    propose = Continue(count=2, finish=True)
    model = Scripted(reply)
    strategy = tl.TreeOfThoughts(propose=propose, evaluate=lambda task, path: len(path) / 10)
    made = wait(tl.Lab(model, runs=None).run(strategy, TASK))
    plain = strategy.with_(propose=Continue(count=2))
    assert strategy.max_calls(TASK) == plain.max_calls(TASK) + 1 == len(model.calls)
    assert (made.best.text, made.best.depth, made.answer_state) == (end, 4, "finished")
    assert begun(model.calls[-1]) == "24 and 2\n\n" * 3
    assert wait(made.replay()).identical


def test_the_best_path_is_completed_from_its_end():
    """Also if the scores of earlier steps, or of a pruned one, are higher."""

    def reply(call):
        if not call.stop:
            return Reply("so Answer: 26", finish_reason="stop")
        return Reply("a" if call.sample_index == 0 else "pruned", finish_reason="stop")

    def falling(task, path):
        return (0.8 if path[-1] == "a" else 0.7) / len(path)

    made, _, _ = stepping([], Continue(count=2, finish=True), model=reply, evaluate=falling)
    assert made.tree.texts(made.best.id) == ["a"] * 4 + ["so Answer: 26"]


def test_an_answer_below_the_least_score_is_finished_and_gives_way_to_another():
    stop = tl.Stop(depth=3, min_score=0.2)
    propose = Continue(count=2, finish=True)
    made, calls, _ = stepping(["Answer: 26"], propose, evaluate=lambda task, path: 0.1, stop=stop)
    assert (made.answer, made.answer_state, len(calls)) == ("26", "finished", 2)

    def reply(call):
        return Reply(
            "Answer: 7" if call.sample_index == 0 and not begun(call) else "so", finish_reason="stop"
        )

    def low(task, path):
        return 0.1 if path[-1] == "Answer: 7" else 0.5

    made, calls, _ = stepping([], Continue(count=2), model=reply, evaluate=low, stop=stop)
    assert (made.answer, made.answer_state) == ("7", "finished")  # nothing else is finished
    assert not made.tree["0.0"].children


@pytest.mark.parametrize(
    "outer",
    [
        lambda inner: tl.proposers.Mixture(temperatures=(0.1, 0.9), proposer=inner),
        lambda inner: tl.proposers.WithTools(proposer=inner),
        lambda inner: tl.proposers.WithTools(
            proposer=tl.proposers.Mixture(temperatures=(0.1, 0.9), proposer=inner)
        ),
    ],
)
def test_a_proposer_around_continue_completes_the_best_path_too(outer):
    def reply(call):
        return Reply("24 and 2" if call.stop else "so Answer: 26", finish_reason="stop")

    made, calls, strategy = stepping([], outer(Continue(count=2, finish=True)), model=reply)
    plain = strategy.with_(propose=outer(Continue(count=2)))
    assert (made.correct, made.answer_state) == (True, "finished")
    assert len(calls) == 2 * 4 + 1
    assert strategy.max_calls(TASK) > plain.max_calls(TASK) >= len(calls) - 1
    assert wait(made.replay()).identical


def test_another_answer_rule_keeps_a_run_unfinished():
    cut = Reply("are", finish_reason="length")
    made, _, _ = stepping(["24 and 2", "x", "y", cut], evaluate=lambda task, path: 1 / (1 + len(path)))
    assert (made.best.depth, made.answer_state) == (1, "unfinished")
    deepest = made.with_answer(tl.answers.Deepest())
    assert (deepest.best.depth, deepest.answer_state) == (4, "cut")
    assert deepest.with_answer(tl.answers.BestPath()).answer_state == "unfinished"


def test_a_run_without_a_finished_path_says_so():
    made, _, _ = stepping(["24 and 2"])
    assert made.answer_state == "unfinished"
    assert "unfinished" in repr(made)
    assert "states no answer" in tl.diagnose(made).of("unfinished_answer")[0].text


# The settings of Continue.


def test_a_separator_that_never_occurs_is_a_finding():
    made, _, _ = stepping([ended("24 and 2\nare 26", True)])
    (finding,) = tl.diagnose(made).of("separator_unseen")
    assert repr("\n\n") in finding.text
    for replies in (["24", "and 2"], [ended("24", False), ended("26", True)]):
        assert not tl.diagnose(stepping(replies)[0]).of("separator_unseen")


def test_several_separators_end_a_step():
    _, calls, _ = stepping(["24 and 2", "Answer: 26"], Continue(count=1, separator=("\n\n", "\n---\n")))
    assert calls[0].stop == ("\n\n", "\n---\n")
    assert begun(calls[1]) == "24 and 2\n\n"
    one, _, _ = stepping(["one\n---\ntwo\n\nthree"], Continue(count=1, separator=["\n\n", "\n---\n"]))
    assert one.tree["0.0"].text == "one"


def test_step_tags_and_an_opening():
    propose = Continue(count=1, tag="## Step {n}:", prefill="Let us think.\n\n")
    _, calls, _ = stepping([" 24 and 2\n\n"], propose, stop=tl.Stop(depth=2))
    assert [call.stop for call in calls] == [("## Step 2:",), ("## Step 3:",)]
    assert begun(calls[0]) == "Let us think.\n\n## Step 1:"
    assert begun(calls[1]) == "Let us think.\n\n## Step 1: 24 and 2\n\n## Step 2:"


def test_steps_of_a_number_of_tokens_are_joined_as_they_are():
    cut = [Reply(text, finish_reason="length") for text in ("24 an", "d 2 are")]
    replies = [*cut, "\nAnswer: 26"]

    def reply(call):
        return replies[{"": 0, "24 an": 1}.get(begun(call), 2)]

    model = Scripted(reply)
    strategy = tl.TreeOfThoughts(
        propose=Continue(count=1, tokens_per_step=3), evaluate=lambda task, path: 0.5, stop=tl.Stop(depth=4)
    )
    made = wait(tl.Lab(model, runs=None).run(strategy, TASK))
    assert [begun(call) for call in model.calls] == ["", "24 an", "24 and 2 are"]
    assert {(call.max_tokens, call.stop) for call in model.calls} == {(3, ())}
    assert (made.answer, made.answer_state) == ("26", "finished")
    assert not [e for e in made.events if isinstance(e, Note) and e.name == "step.cut"]


@pytest.mark.parametrize("parts", [["24 and 2.\nAnswer: 2", "6 legs"], ["24", "\n\n", "Ans", "wer: 26 legs"]])
def test_a_step_of_a_number_of_tokens_is_open_whatever_it_says(parts, tmp_path):
    """It may end within the number of an answer, and it may be a line break. The whole text is read."""

    def reply(call):
        done = next(k for k in range(len(parts)) if begun(call) == "".join(parts[:k]))
        return Reply(parts[done], finish_reason="length" if done < len(parts) - 1 else "stop")

    judged = []
    strategy = tl.TreeOfThoughts(
        propose=Continue(count=1, tokens_per_step=3, temperatures=(0.9, 0.7, 0.5, 0.3)),
        evaluate=lambda task, path: judged.append("".join(path)) or 0.5,
        stop=tl.Stop(depth=4),
    )
    model = Scripted(reply)
    made = wait(tl.Lab(model, runs=tmp_path).run(strategy, TASK))
    assert judged == ["".join(parts[: k + 1]) for k in range(len(parts))]
    assert [call.temperature for call in model.calls] == [0.9, 0.7, 0.5, 0.3][: len(parts)]
    for run in (made, tl.load(tmp_path)[0]):
        node = "0" + ".0" * len(parts)
        assert [thought.text for thought in run.tree.path(node)][1:] == parts
        assert run.tree.texts(node) == run.steps(node) == ["".join(parts)]
        assert (run.answer, run.answer_state, run.kept_answers) == ("26 legs", "finished", ["26 legs"])


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 7, 50])
@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.kind)
def test_how_many_tokens_a_step_has_does_not_change_the_answer(search, tokens):
    text = "There are 24 and 2 legs.\n\nSo it is \\boxed{26}."

    def reply(call):
        rest = text[len(begun(call)) :]
        return Reply(rest[:tokens], finish_reason="length" if len(rest) > tokens else "stop")

    strategy = tl.TreeOfThoughts(
        search=search,
        propose=Continue(count=4, tokens_per_step=tokens),
        evaluate=lambda task, path: 0.5,
        stop=tl.Stop(depth=60),
    )
    made = wait(tl.Lab(Scripted(reply), runs=None).run(strategy, TASK))
    assert (made.answer, made.answer_state) == ("26", "finished")


def test_the_temperature_may_depend_on_the_depth():
    _, calls, _ = stepping(["24 and 2"], Continue(count=1, temperatures=(0.9, 0.3)))
    assert [call.temperature for call in calls] == [0.9, 0.3, 0.3, 0.3]


@pytest.mark.parametrize(
    "settings", [{"tag": "## Step"}, {"tag": "{n}.", "tokens_per_step": 3}, {"separator": ()}]
)
def test_settings_that_cannot_be_meant_are_refused(settings):
    with pytest.raises(ValueError, match=r"tag|separator"):
        Continue(**settings)


def test_success_rates_and_the_scaling_figure_show_finished_and_unfinished():
    tasks = [TASK, TASK.model_copy(update={"question": "And two spiders?"})]

    def reply(call):
        return Reply("Answer: 26" if "duck" in call.prompt else "Let us see.", finish_reason="stop")

    strategy = tl.TreeOfThoughts(propose=Continue(count=1), evaluate=lambda task, path: 0.5)
    sweep = wait(tl.Lab(Scripted(reply), runs=None).sweep([strategy], tasks))
    rates = tl.stats.success_rates(sweep.df()).iloc[0]
    assert (rates["finished"], rates["cut"], rates["unfinished"]) == (1, 0, 1)
    assert "1 finished, 1 unfinished" in tl.figures.plot_scaling(sweep).data[0].hovertext[0]
