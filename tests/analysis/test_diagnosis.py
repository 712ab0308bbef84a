"""Each finding has a run that shows it, and a near miss that does not; none claims what nobody knows."""

import json
import time
from fractions import Fraction as F

import pytest
from support import TASK, Scripted, answer_to, run, wait

import tot_lab as tl
from tot_lab.analysis.diagnosis import COLLAPSED, ENOUGH, FEW, Diagnosis, Finding, findings_of
from tot_lab.core.arithmetic import joined
from tot_lab.core.calls import Reply
from tot_lab.domains.game24 import step_line

HAND = tl.game24("4 5 6 10")
GOOD = "10 - 6 = 4 (left: 4 4 5)"


class Tree:
    """A search by hand: `Tree(task).thought(…)`, `.end(…)`, `.found`."""

    def __init__(self, task=None):
        self.recorder = tl.Recorder("by hand", task=task)
        self.root = self.recorder.thought(task.question if task else "the problem")

    def thought(self, text="a step", score=None, *, parent=None, samples=(), by="value", state=None):
        id = self.recorder.thought(text, parent or self.root)
        if score is not None or samples:
            self.recorder.score(id, score, samples=samples, by=by)
        if state:
            self.recorder.decide(id, state)
        return id

    def run(self, *answer, **ended):
        self.recorder.end(*answer, **ended)
        return self.recorder.run

    def found(self, kind, *answer, **ended):
        return findings_of(self.run(*answer, **ended)).of(kind)


def kinds(run):
    return {finding.kind for finding in findings_of(run)}


# The answer.


def test_a_right_answer_that_was_not_chosen():
    def tree():
        made = Tree(TASK)
        made.wrong, made.right = made.thought("Answer: 24"), made.thought("Answer: 26")
        return made

    made = tree()
    (finding,) = made.found("right_not_chosen", "24", node=made.wrong)
    assert finding == Finding(
        "right_not_chosen", "The answer has the grade 0, and 1 leaf holds a right one.", (made.right,)
    )
    assert tree().found("right_not_chosen", "26", node="0.1") == []
    assert tree().found("right_not_chosen")[0].text.startswith("There is no answer, and 1 leaf")
    made = tree()  # a right number on the way, which the search did not end with
    made.thought("Answer: 25", parent=made.right)
    assert made.found("right_not_chosen", "24", node=made.wrong) == []
    unknown = Tree(tl.general("How many?"))
    unknown.thought("Answer: 26")
    assert unknown.found("right_not_chosen", "24") == []


def test_a_good_thought_pruned_by_the_domains_own_reckoning():
    def tree(other):
        made = Tree(HAND)
        made.good = made.thought(GOOD, 0.1, state="pruned")
        made.other = made.thought(other, 0.9, state="kept")
        return made

    other = "5 * 4 = 20 (left: 6 10 20)"
    assert HAND.domain.solvable(HAND, [other])
    made = tree(other)
    (finding,) = made.found("good_pruned", "1 + 1", node=made.other)
    assert finding == Finding(
        "good_pruned", "1 pruned thought could still have led to a right answer.", (made.good,)
    )
    hopeless = "4 / 10 = 2/5 (left: 2/5 5 6)"
    assert not HAND.domain.solvable(HAND, [hopeless])
    made = tree(hopeless)
    (finding,) = made.found("good_pruned")
    assert finding.text.endswith("right answer, and none of those kept at depth 1 could.")
    made = tree(hopeless)
    assert made.found("good_pruned", "(10 - 6) * 5 + 4", node=made.other) == []  # it did no harm
    assert findings_of(tree(hopeless).recorder.run).of("good_pruned") == []  # it may yet come to one
    made = Tree(HAND)
    made.thought(hopeless, state="pruned")
    assert made.found("good_pruned") == []


def test_a_good_thought_pruned_by_ground_truth_or_by_marks():
    made = Tree(TASK)
    pruned, also = made.thought("Answer: 26", state="pruned"), made.thought("Answer: 24", state="pruned")
    (finding,) = made.found("good_pruned", "24")
    assert finding.nodes == (pruned,)
    made = Tree()
    pruned, also = made.thought("one", state="pruned"), made.thought("two", state="kept")
    made = made.run("two", node=also)
    assert findings_of(made).of("good_pruned") == []
    made.mark(also, "right")
    assert findings_of(made).of("good_pruned") == []
    made.mark(pruned, "right")
    (finding,) = findings_of(made).of("good_pruned")
    assert finding == Finding("good_pruned", "1 thought marked right, and pruned.", (pruned,))


def test_a_question_that_has_no_answer():
    for hand, says in (("1 1 1 1", 1), ("4 5 6 10", 0)):
        made = wait(tl.Lab("sim/game24", runs=None).run(tl.TreeOfThoughts(), tl.game24(hand)))
        assert len(findings_of(made).of("unsolvable")) == says


def test_an_answer_on_a_thought_that_is_marked_wrong():
    made = Tree()
    first = made.thought("one")
    last = made.thought("two", parent=first)
    beside = made.thought("three")
    made = made.run("two", node=last)
    made.mark(beside, "wrong")
    assert findings_of(made).of("marked_wrong") == []
    made.mark(first, "wrong")
    (finding,) = findings_of(made).of("marked_wrong")
    assert finding == Finding("marked_wrong", "The answer rests on 1 thought that is marked wrong.", (first,))


def test_a_search_that_a_budget_cut_short():
    search = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=3, solved=None))
    cut = run(search, budget=tl.Budget(calls=7))
    (finding,) = findings_of(cut).of("cut_short")
    assert finding.text.startswith("The search spent the budget of calls with ")
    assert finding.nodes
    assert all(not cut.tree[id].children and cut.tree[id].state != "pruned" for id in finding.nodes)
    assert findings_of(run(search)).of("cut_short") == []  # at limit:depth, as it should
    assert findings_of(run(search, budget=tl.Budget(calls=1000))).of("cut_short") == []
    capped = run(tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=3, nodes=4, solved=None)))
    assert capped.stop_reason == "limit:nodes"
    assert len(findings_of(capped).of("cut_short")) == 1


# Scores.


def test_scores_that_do_not_tell_good_from_hopeless():
    def tree(good, bad):
        made = Tree(HAND)
        steps = {True: [], False: []}
        for a in (4, 5, 6, 10):
            for op, b in [(op, b) for op in "+-*" for b in (4, 5, 6, 10) if b != a]:
                rest = [n for n in (4, 5, 6, 10) if n not in (a, b)]
                step = step_line(F(a), op, F(b), joined(F(a), op, F(b)), [F(n) for n in rest])
                steps[HAND.domain.solvable(HAND, [step])].append(step)
        for solvable, score in ((True, good), (False, bad)):
            for step in steps[solvable][:FEW]:
                made.thought(step, score)
        return made

    (finding,) = tree(0.2, 0.4).found("blind_scores")
    assert "score 0.2 on average, the 5 that could not 0.4" in finding.text
    assert "in 0% of pairs" in finding.text
    assert len(finding.nodes) == FEW
    assert "in 50% of pairs" in tree(0.4, 0.4).found("blind_scores")[0].text
    assert tree(0.5, 0.4).found("blind_scores") == []
    assert "blind_scores" not in kinds(run(tl.TreeOfThoughts()))  # nobody can tell


def test_marks_against_scores():
    made = Tree()
    ids = [made.thought(str(k), score) for k, score in enumerate((0.9, 0.5, 0.5, 0.1))]
    unscored = made.thought("no score")
    made = made.run()
    assert findings_of(made).of("marks") == []
    made.mark(ids[0], None, "only a note")
    assert findings_of(made).of("marks") == []
    made.mark(ids[1], "right")
    assert findings_of(made).of("marks")[0].text == "1 marked right (mean score 0.5) and 0 marked wrong."
    made.mark(ids[0], "right")
    made.mark(ids[2], "wrong")
    made.mark(ids[3], "wrong")
    made.mark(unscored, "wrong")
    (finding,) = findings_of(made).of("marks")
    assert finding.text == (
        "2 marked right (mean score 0.7) and 3 marked wrong (mean score 0.3); a right one scores above a "
        "wrong one in 88% of pairs (equal scores count half); 1 of them have no score."
    )
    assert finding.nodes == (*ids, unscored)


def test_scores_that_are_nearly_all_the_same():
    def tree(others, same=9, by="value"):
        made = Tree()
        for k, score in enumerate([0.7, 0.71, 0.705] * (same // 3) + others):
            made.thought(str(k), score, by=by)
        return made

    (finding,) = tree([0.2]).found("score_collapse")
    assert (
        finding.text == "9 of 10 thoughts got nearly the same score from the evaluator `value`: 0.7 to 0.71."
    )
    assert len(finding.nodes) == 9 == COLLAPSED * 10
    assert tree([0.2, 0.9]).found("score_collapse") == []
    assert tree([], same=6).found("score_collapse") == []
    assert tree([0.7] * (ENOUGH - 6), same=6).found("score_collapse")
    assert tree([0.2], by="vote").found("score_collapse") == []
    assert tree([0.2], by="domain").found("score_collapse") == []
    labels = Tree(HAND)  # impossible and likely are 0.05 apart, and are two verdicts
    for k in range(20):
        labels.thought(str(k), 0.05 if k % 2 else 0.00005)
    assert labels.found("score_collapse") == []


def test_an_evaluator_that_contradicts_itself():
    def tree(draws, by="value", task=None):
        made = Tree(task)
        made.thought("one", 0.5, samples=draws, by=by)
        made.thought("two", 0.5, samples=[0.5, 0.6], by=by)
        made.thought("three", 0.5, samples=[0.5], by=by)
        return made

    (finding,) = tree([0.2, 0.9, None]).found("contradiction")
    assert finding.text == (
        "The evaluator contradicts itself on 1 of 2 thoughts that it judged more than once: its samples lie "
        "up to 70% of the scale apart."
    )
    assert finding.nodes == ("0.0",)
    assert tree([0.2, 0.65]).found("contradiction") == []
    assert tree([0.2, None]).found("contradiction") == []
    assert tree([0.0, 1.0], by="vote").found("contradiction") == []
    assert tree([0.0, 1.0], by="parts").found("contradiction") == []
    assert tree([20.0, 0.001], task=HAND).found("contradiction")  # sure and impossible
    assert tree([1.0, 0.001], task=HAND).found("contradiction") == []  # likely and impossible


def test_equal_states_scored_differently():
    def tree(*scores, by=("value", "value")):
        made = Tree(HAND)
        made.thought("10 - 6 = 4 (left: 4 4 5)", scores[0], by=by[0])
        made.thought("10 - 6 = 4", scores[1], by=by[1])
        made.thought("6 - 5 = 1 (left: 1 4 10)", 0.0)
        return made

    (finding,) = tree(1.0, 0.05).found("equal_states")
    assert finding.text == "1 of 1 state that came up more than once got scores that differ by 0.5 or more."
    assert finding.nodes == ("0.1", "0.0")
    assert tree(1.0, 0.55).found("equal_states") == []
    assert tree(1.0, 0.05, by=("value", "joint")).found("equal_states") == []


def test_siblings_with_the_same_text_have_the_same_state_where_the_domain_has_none():
    made = Tree(TASK)
    first = made.thought("same", 1.0)
    made.thought("same\n", 0.0)
    made.thought("other", 0.5)
    (finding,) = made.found("equal_states")
    assert finding.nodes == ("0.1", "0.0")
    made = Tree(TASK)
    first = made.thought("first", 1.0)
    made.thought("same", 1.0)
    made.thought("same", 0.0, parent=first)
    assert made.found("equal_states") == []  # below another thought, the same words may mean another thing


def test_draws_that_never_differ():
    def tree(count, last=0.5):
        made = Tree()
        for k in range(count):
            made.thought(str(k), 0.5, samples=[0.5, 0.5, last if k == count - 1 else 0.5])
        return made

    (finding,) = tree(FEW).found("equal_draws")
    assert finding.text == (
        "All samples agree on each of the 5 thoughts that were judged more than once: 10 further samples "
        "gave no new information."
    )
    assert tree(FEW - 1).found("equal_draws") == []
    assert tree(FEW, last=0.51).found("equal_draws") == []


# What was lost on the way.


def test_failed_refused_and_cut_off_calls():
    made = Tree()
    step = made.thought()
    call = made.recorder.call
    call(step, "a", Reply("fine", finish_reason="stop"))
    assert findings_of(made.recorder.run) == ()
    call(step, "b", Reply(error="timeout: no reply within 3 s"), purpose="value")
    call(made.root, "c", Reply(error="timeout: no reply within 3 s"), purpose="value")
    call(step, "d", Reply(error="budget:calls"))
    call(step, "e", Reply("half a sent", finish_reason="length"))
    diagnosis = findings_of(made.run())
    assert diagnosis == (
        Finding("failed_calls", "2 of 4 calls failed: 2 × timeout.", (step, made.root)),
        Finding("refused_calls", "1 call was refused: 1 × budget of calls.", (step,)),
        Finding("cut_off", "1 of 4 replies ended at max_tokens: 1 × ask.", (step,)),
    )


def test_a_single_token_that_was_all_that_was_wanted_is_not_cut_off():
    def reply(call):
        made = answer_to(call)
        made = Reply(made) if isinstance(made, str) else made
        return Reply(made.text, finish_reason="length", logprobs=made.logprobs) if call.logprobs else made

    made = run(tl.TreeOfThoughts(evaluate="logprob"), model=Scripted(reply))
    assert made.diagnostics["cut_off_replies"] > 0
    assert "cut_off" not in kinds(made)


def test_what_could_not_be_read():
    def mute(call):
        return "???" if call.purpose == "value" and call.sample_index == 0 else answer_to(call)

    made = run(tl.TreeOfThoughts(propose="propose"), model=Scripted(mute))
    (finding,) = findings_of(made).of("unreadable_scores")
    judged = [node.id for node in made.tree if node.by == "value"]
    such = "such as '???': a score is from 0 to 1"
    assert finding.text == (
        f"The evaluation of {len(judged)} of {len(judged)} thoughts could not be read, {such}."
    )
    assert finding.nodes == tuple(judged)
    made = run(tl.TreeOfThoughts(evaluate=tl.Value(samples=2)), model=Scripted(mute))
    (finding,) = findings_of(made).of("unreadable_scores")
    partly = [node.id for node in made.tree if node.samples.count(None) == 1]
    assert finding.text.endswith(f"could not be read, of {len(partly)} in part, {such}.")
    assert set(partly) < set(finding.nodes)
    game = wait(tl.Lab(Scripted(lambda call: "banana"), runs=None).run(tl.TreeOfThoughts(), HAND))
    (finding,) = findings_of(game).of("unreadable_replies")
    assert finding == Finding(
        "unreadable_replies", "Nothing could be read from 3 replies: 3 × sample.", ("0",)
    )
    clear = run(
        tl.TreeOfThoughts(), model=Scripted(lambda call: "score: 0.5" if call.purpose == "value" else "a")
    )
    assert not kinds(clear) & {"unreadable_scores", "unreadable_replies"}


class Agent:
    """A model that says one thing after another; `(name, arguments)` is the call of a tool."""

    def __init__(self, *turns):
        self.turns = turns

    async def __call__(self, call):
        said = self.turns[sum(message.role == "assistant" for message in call.messages) % len(self.turns)]
        if isinstance(said, str):
            return said
        name, arguments = said
        return Reply(tool_calls=(tl.records.ToolCall("1", name, json.dumps(arguments)),))


DONE = ("final-answer", {"answer": "26"})


def calculating(expression):
    return "calculator", {"expression": expression}


def acting(*turns, strategy=None, task=TASK, tools=("calculator",), **options):
    lab = tl.Lab(Agent(*turns), runs=None, tools=tools, **options)
    return wait(lab.run(strategy or tl.ReAct(max_iterations=4), task))


def test_tools_that_failed():
    made = acting(calculating("1/0"), calculating("20+6"), ("calculator", {"sum": "1"}), DONE)
    (finding,) = findings_of(made).of("failed_tools")
    assert finding.text == (
        "2 of 3 tool calls failed: 1 × calculator, ZeroDivisionError, "
        "1 × calculator, the arguments do not fit."
    )
    assert [made.tree[id].text[:24] for id in finding.nodes] == [
        'calculator({"expression"',
        'calculator({"sum": "1"})',
    ]
    assert made.diagnostics["failed_tools"] == 2
    assert "failed_tools" not in kinds(acting(calculating("20+6"), DONE))
    capped = wait(
        tl.Lab(Agent(calculating("1")), runs=None, tools=["calculator"]).run(
            tl.ReAct(), TASK, budget=tl.Budget(calls=1)
        )
    )
    assert "failed_tools" not in kinds(capped)  # a budget refused the model, no tool failed


def test_tools_that_could_not_be_called():
    made = acting(("abacus", {}), ("python", {"code": "1"}), DONE, tools=["calculator"])
    (finding,) = findings_of(made).of("unavailable_tools")
    assert (
        finding.text == "The model asked 2 times for a tool that it could not call: 1 × abacus, 1 × python."
    )
    assert len(finding.nodes) == 2
    denied = tl.ReAct(max_iterations=2, effect_policy=tl.EffectPolicy(mode="deny_all"))
    made = acting(("python", {"code": "1"}), DONE, tools=["python"], strategy=denied)
    assert findings_of(made).of("unavailable_tools")[0].text.endswith("1 × python.")
    assert "unavailable_tools" not in kinds(acting(calculating("20+6"), DONE))


def test_the_same_call_again():
    made = acting(calculating("20+6"), ("calculator", {"expression": "20+6"}), calculating("20+7"), DONE)
    (finding,) = findings_of(made).of("repeated_calls")
    assert finding.text == (
        "1 of 3 tool calls had been made before on the same path, with the same result: 1 × calculator."
    )
    (again,) = finding.nodes
    assert made.tree[again].depth == 3
    assert "repeated_calls" not in kinds(acting(calculating("20+6"), calculating("26"), DONE))
    apart = acting(calculating("20+6"), DONE, strategy=tl.BestOf(strategy=tl.ReAct(), attempts=3))
    assert len(apart.tools_df()) == 3
    assert "repeated_calls" not in kinds(apart)  # each attempt is a path of its own
    ticks = iter(range(9))
    clock = tl.tool(name="clock")(lambda: next(ticks))
    assert "repeated_calls" not in kinds(acting(("clock", {}), ("clock", {}), DONE, tools=[clock]))


def test_tools_that_were_not_used():
    made = acting("Answer: 24", strategy=tl.ToolLoop())
    (finding,) = findings_of(made).of("unused_tools")
    assert finding == Finding("unused_tools", "No tool was called in 1 turn that offered calculator.", ("0",))
    assert "unused_tools" not in kinds(
        acting("Answer: 26", strategy=tl.ToolLoop())
    )  # it is right all the same
    assert "unused_tools" not in kinds(acting(calculating("12+12"), "Answer: 24", strategy=tl.ToolLoop()))
    assert "unused_tools" not in kinds(
        acting("Answer: 24", strategy=tl.ChainOfThought())
    )  # it has none to call


def test_a_loop_that_used_up_its_turns():
    made = acting(calculating("1"), calculating("2"), calculating("3"))
    assert made.stop_reason == "limit:iterations"
    (finding,) = findings_of(made).of("out_of_turns")
    assert finding == Finding(
        "out_of_turns", "1 loop used up all turns, and ended without an answer.", ("0",)
    )
    said = acting("Answer: 24", "Answer: 26")
    (finding,) = findings_of(said).of("out_of_turns")
    assert finding.text.endswith("ended with the last answer that could be read.")
    assert said.tree[finding.nodes[0]].text == "Answer: 26"
    nested = acting("Answer: 24", strategy=tl.BestOf(strategy=tl.ReAct(max_iterations=2), attempts=2))
    assert len(findings_of(nested).of("out_of_turns")[0].nodes) == 2
    assert "out_of_turns" not in kinds(
        acting(calculating("1"), calculating("2"), DONE)
    )  # in the last but one
    assert "out_of_turns" not in kinds(acting(calculating("1"), calculating("2"), calculating("3"), DONE))


def test_json_that_could_not_be_read_counts_once():
    class Asks(tl.Prompting):
        kind = ""

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            found = yield from tl.ask_json(self.call(at, "plan", task.question), list[int])
            return tl.Answer(str(found.value), "answered", at)

        def max_calls(self, task):
            return 3

    made = run(Asks(), model=Scripted(lambda call: "no JSON at all"))
    assert made.diagnostics["unreadable_replies"] == 1
    (finding,) = findings_of(made).of("unreadable_replies")
    assert finding == Finding("unreadable_replies", "Nothing could be read from 1 reply: 1 × plan.", ("0",))
    late = run(Asks(), model=Scripted(lambda call: "[26]" if len(call.messages) > 1 else "no JSON"))
    assert late.diagnostics["unreadable_replies"] == 0
    assert "unreadable_replies" not in kinds(late)  # the second try was read


def test_siblings_that_repeat_each_other():
    made = Tree()
    first = made.thought("one  step")
    made.thought("another")
    made.thought("one step", parent=first)  # a child is no sibling
    repeat = made.thought("one step")
    (finding,) = made.found("duplicates")
    assert finding == Finding("duplicates", "1 of 4 thoughts repeats a sibling's text.", (repeat,))
    assert Tree().found("duplicates") == []
    nested = run(tl.SelfConsistency(attempts=3))  # three roots that hold one question
    assert "duplicates" not in kinds(nested)


# As a whole.


def test_a_run_with_nothing_to_say_of_it():
    diagnosis = findings_of(Tree().recorder.run)
    assert diagnosis == ()
    assert repr(diagnosis) == "nothing found"
    assert diagnosis._repr_html_() == "<p>nothing found</p>"
    assert findings_of(tl.Recorder().run) == ()


def test_a_diagnosis_reads_as_text_and_as_html_and_is_escaped():
    found = Diagnosis(
        [
            Finding("kind_one", "<script>alert(1)</script>", tuple(f"0.{k}" for k in range(10))),
            Finding("b", "c"),
        ]
    )
    ids = "thoughts 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7 and 2 more"
    assert repr(found) == f"kind_one: <script>alert(1)</script> [{ids}]\nb: c"
    assert found._repr_html_() == (
        f"<ul><li><b>kind one</b> &lt;script&gt;alert(1)&lt;/script&gt; <code>{ids}</code></li>"
        "<li><b>b</b> c</li></ul>"
    )
    made = Tree()
    made.recorder.call(made.root, "x", Reply(error="<img src=x>: no"))
    assert "<img" not in findings_of(made.run())._repr_html_()


@pytest.mark.parametrize("hand", ["4 5 6 10", "1 1 1 1", "3 3 8 8"])
@pytest.mark.parametrize(
    "strategy",
    [
        tl.TreeOfThoughts(evaluate=tl.Value(samples=2)),
        tl.BestOf(strategy=tl.TreeOfThoughts(search=tl.BeamSearch(width=1)), attempts=2),
        tl.SelfConsistency(),
        tl.OneAnswer(),
    ],
)
def test_every_node_of_every_finding_is_in_the_tree(strategy, hand):
    made = wait(tl.Lab("sim/game24", runs=None).run(strategy, tl.game24(hand)))
    for finding in findings_of(made):
        assert finding.nodes
        assert all(id in made.tree for id in finding.nodes)
        assert finding.text.endswith(".")


@pytest.mark.slow
def test_the_steps_of_a_nested_search_do_not_hold_the_question():
    strategy = tl.BestOf(
        strategy=tl.TreeOfThoughts(propose=tl.Sample(count=6), search=tl.BeamSearch(width=6)), attempts=2
    )
    made = wait(tl.Lab("sim/game24", runs=None).run(strategy, HAND))
    assert made.correct
    assert made.steps(made.best.id) == [node.text for node in made.tree.path(made.best.id)[2:]]
    assert made.reachable == 1.0
    assert findings_of(made).of("right_not_chosen") == []


def test_a_run_whose_grader_is_not_in_its_file_is_diagnosed_without(tmp_path):
    task = tl.general("What?", answer="x", grade=lambda answer, reference: answer == reference)
    made = wait(tl.Lab(Scripted(), runs=tmp_path).run(tl.TreeOfThoughts(), task))
    assert {f.kind for f in findings_of(tl.load(made.path))} <= {f.kind for f in findings_of(made)}


def test_a_run_that_goes_on_is_diagnosed():
    whole = run(tl.TreeOfThoughts())
    for lines in (0, 1, 5, len(whole.lines) // 2):
        part = tl.Run(whole.header, whole.lines[:lines])
        assert isinstance(findings_of(part), Diagnosis)


@pytest.mark.nightly
def test_it_is_linear_in_the_run():
    def seconds(size):
        recorder = tl.Recorder()
        root = recorder.thought("root")
        for k in range(size):
            id = recorder.thought(f"step {k % 7}", root)
            recorder.score(id, (k % 100) / 100, samples=[0.1, 0.9])
        made = recorder.run
        made.tree  # noqa: B018
        began = time.process_time()
        findings_of(made)
        return time.process_time() - began

    small, large = min(seconds(2_000) for _ in range(3)), min(seconds(20_000) for _ in range(3))
    assert large < 30 * small
