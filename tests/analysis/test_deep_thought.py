"""What is shown of Deep Think: the fold over its records, the report, the figure, and the tree."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support import Scripted, run, wait
from support.deep_think_replies import CONFIDENCES, SCORES, SOLUTION, TASK, play

import tot_lab as tl
from tot_lab.analysis.deep_thought import Clamped
from tot_lab.core.calls import Reply
from tot_lab.strategies.deep_think import ASSUMED
from tot_lab.views.explorer.recording import Recording
from tot_lab.views.figures.confidence import confidence_info
from tot_lab.views.figures.tree import tree_info

HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(1)>\n\n# Title\n\n```\n$x$ \x00\u2028"


def deep(model=play, strategy=None, task=TASK, **options):
    return run(strategy or tl.DeepThink(), task, model=Scripted(model), **options)


@pytest.fixture(scope="module")
def made():
    return deep()


@pytest.fixture(scope="module")
def analysis(made):
    return tl.deep_thought(made)


def without(kind, reply, *, draw=None):
    """The player, but for its replies to the calls of one kind."""
    return lambda call: reply if call.purpose == kind and draw in (None, call.sample_index) else play(call)


# The fold.


def test_d12_d16_what_a_run_came_to(made, analysis):
    assert [result.iteration for result in analysis.iterations] == [1, 2, 3]
    assert [result.confidence for result in analysis.iterations] == CONFIDENCES
    for result, scores in zip(analysis.iterations, SCORES, strict=True):
        assert [branch.score for branch in result.branches] == sorted(scores, reverse=True)
        assert {branch.id for branch in result.branches} == {"b0", "b1", "b2"}
    first = analysis.iterations[0].branches[0]
    assert (first.name, first.score, first.solution_node) == ("History table", 8.5, "0.1.0")
    assert (analysis.answer_iteration, analysis.node) == (2, made.best.id)
    assert analysis.answer == made.answer == f"{SOLUTION}\n\nThat is version 2."
    assert (analysis.task, analysis.stop, analysis.branches_explored) == (TASK.question, "converged", 9)
    assert analysis.seconds == made.seconds
    assert (analysis.unfinished, analysis.failed, analysis.clamped, analysis.fallbacks) == ((), "", (), ())
    assert (analysis.number, analysis.total, analysis.model_note) == (1, 1, "")


def test_a_loaded_run_has_the_same_analysis(made, analysis, tmp_path):
    assert tl.deep_thought(tl.load(made.save(tmp_path / "a.jsonl"))) == analysis


def test_what_was_clamped_is_said():
    analysis = tl.deep_thought(deep(strategy=tl.DeepThink(max_iterations=1, num_branches=1, beam_width=9)))
    assert analysis.clamped == (Clamped("num_branches", 1, 2), Clamped("beam_width", 9, 2))
    assert "*Clamped:* `num_branches` 1 → 2, `beam_width` 9 → 2" in analysis.report()


def test_no_deep_think():
    with pytest.raises(ValueError, match="no Deep Think in this run of one_answer"):
        tl.deep_thought(run(tl.OneAnswer()))
    with pytest.raises(TypeError, match="deep_thought expects a Run"):
        tl.deep_thought("a run")


class Twice(tl.Strategy):
    """Deep Think twice, and an answer of its own, or that of the second."""

    kind = "test/twice"
    own: bool = True

    def think(self, task, at="0"):
        yield tl.Thought(at, tl.records.parent_of(at), task.question)
        one = tl.DeepThink(max_iterations=1)
        other = task.model_copy(update={"question": "And in ten years?"})
        answers = yield from tl.gather([one.think(task, f"{at}.0"), one.think(other, f"{at}.1")])
        if not self.own:
            return answers[1]
        yield tl.Thought(f"{at}.2", at, "an answer of its own")
        return tl.Answer("an answer of its own", "answered", f"{at}.2")


def test_of_several_the_one_that_gave_the_answer_or_else_the_first():
    second = tl.deep_thought(deep(strategy=Twice(own=False)))
    assert (second.number, second.total, second.task) == (2, 2, "And in ten years?")
    assert second.node.startswith("0.1.")
    assert second.stop == "limit:iterations"
    first = tl.deep_thought(deep(strategy=Twice()))
    assert (first.number, first.task) == (1, TASK.question)
    assert first.stop == "limit:iterations", "its own, not that of the run"
    assert first.report().startswith("# Deep Think 1 of 2 — ")
    assert len(first.iterations) == 1


def test_inside_reflexion_it_is_the_attempt_that_was_chosen():
    def model(call):
        if call.purpose == "critique":
            return (
                "SATISFIED: it holds." if call.node.startswith("0.1.") else "UNSATISFIED: what does it cost?"
            )
        return play(call)

    made = deep(model, tl.Reflexion(strategy=tl.DeepThink(max_iterations=2)))
    analysis = tl.deep_thought(made)
    assert (analysis.number, analysis.total, analysis.node) == (2, 2, made.best.id)
    assert analysis.stop == "limit:iterations"
    assert made.stop_reason == "solved"
    assert analysis.task == TASK.question


def test_gone_on_with_from_a_thought_of_another_run():
    begun = run(tl.TreeOfThoughts(search=tl.BeamSearch(width=1), stop=tl.Stop(depth=1)), TASK)
    lab = tl.Lab(Scripted(play), runs=None)
    analysis = tl.deep_thought(wait(lab.branch(begun, "0.0", strategy=tl.DeepThink(max_iterations=1))))
    assert analysis.task == TASK.question, "and not the thought that it began at"
    assert analysis.answer_iteration == 1


@pytest.mark.nightly
def test_cut_off_anywhere_it_is_analysed_as_far_as_it_goes(made):
    reports = set()
    for length in range(1, len(made.lines)):
        part = tl.Run(made.header, made.lines[:length])
        if not any(isinstance(line.e, tl.Call) for line in part.lines):
            with pytest.raises(ValueError, match="no Deep Think"):
                tl.deep_thought(part)
            continue
        analysis = tl.deep_thought(part)
        developed = {
            line.e.node for line in part.lines if isinstance(line.e, tl.Call) and line.e.purpose == "develop"
        }
        assert analysis.branches_explored == len(developed)
        assert analysis.stop is None or analysis.node is not None
        assert ("· not finished\n" in analysis.report()) == bool(analysis.unfinished)
        reports.add(len(analysis.iterations))
        repr(analysis), analysis.report_html(), tl.figures.plot_confidence(part), tl.diagnose(part)
    assert reports == {0, 1, 2, 3}


def test_a_branch_that_failed_is_said():
    def model(call):
        failed = call.purpose == "develop" and "Snapshots" in call.prompt
        return tl.Reply(error="down: <b>no</b>") if failed else play(call)

    analysis = tl.deep_thought(deep(model, tl.DeepThink(max_iterations=1)))
    assert "- ✗ Snapshots: failed, down: \\<b>no\\</b>" in analysis.report()
    assert "3 branches explored (1 failed)" in analysis.report()


def test_approaches_beyond_those_asked_for_are_said_to_be_left_out():
    analysis = tl.deep_thought(deep(strategy=tl.DeepThink(num_branches=2)))
    assert analysis.left_out == ((1, 3, 2), (2, 3, 2), (3, 3, 2))
    assert analysis.report().count("Of 3 approaches the first 2 were taken.") == 3


def test_an_iteration_that_came_to_nothing_is_said():
    analysis = tl.deep_thought(deep(without("converge", tl.Reply(error="down: no"), draw=1)))
    assert (len(analysis.iterations), analysis.answer_iteration, analysis.stop) == (1, 1, "limit:errors")
    assert analysis.unfinished[0].name == "History table with reasons"
    assert all(branch.solution.endswith("100 GB.") for branch in analysis.unfinished)
    assert analysis.failed == "converge: down: no"
    assert "not finished: converge: down: no" in repr(analysis)
    assert analysis.branches_explored == 6
    report = analysis.report()
    assert "## Iteration 2 · not finished" in report
    assert "*Failed:* converge: down: no" in report
    assert "*From iteration 1, the only one.*" in report
    first = tl.deep_thought(deep(without("converge", "")))
    assert [one.from_branch for one in first.iterations] == ["b0"] * 3
    assert first.answer.endswith("100 GB.")
    assert first.report().count("stands in its place. the reply was empty") == 3
    lost = tl.deep_thought(deep(without("converge", tl.Reply(error="down: no"))))
    assert (lost.iterations, lost.answer_iteration) == ((), None)
    assert lost.answer.endswith("100 GB.")
    assert "No iteration was finished" in lost.report()
    none = tl.deep_thought(deep(without("branch", tl.Reply(error="down: no"))))
    assert (none.answer, none.node, none.branches_explored, none.stop) == ("", None, 0, "error")
    assert "*Failed:* branch: down: no" in none.report()
    assert "*There is none.*" in none.report()


def test_what_was_assumed_is_said():
    analysis = tl.deep_thought(
        deep(lambda call: f"Let us think about {call.purpose}.", tl.DeepThink(max_iterations=2))
    )
    assert [(one.what, one.iteration) for one in analysis.fallbacks] == [
        (what, 1) for what in ("branch", "develop", "converge")
    ]
    assert all(one.error for one in analysis.fallbacks)
    assert analysis.answer_iteration == 1
    report = analysis.report()
    assert f"confidence {ASSUMED}/10, assumed" in report
    assert "The approaches could not be read; their text became one." in report
    assert "The synthesis could not be read: its text is the solution, and no approach was judged." in report
    assert analysis.answer == "Let us think about converge."
    assert "Its confidence is assumed and decides nothing." in report
    assert "**[no score]** **Direct approach** — Let us think about develop. *(not in the form" in report
    assert "*From iteration 1, the last one: no confidence could be read.*" in report
    assert "★" not in report, "nobody judged"


# The report.


def test_d11_the_report_line_by_line(analysis):
    lines = analysis.report().splitlines()
    headings = [line for line in lines if line.startswith("#") or line.startswith("---")]
    assert headings == [
        "# Deep Think — Tree-of-Thought Analysis",
        "## Iteration 1 · confidence 6.5/10",
        "## Iteration 2 · confidence 9.0/10",
        "## Iteration 3 · confidence 8.0/10",
        "---",
        "## Final Solution (confidence: 9.0/10)",
        "---",
    ]
    assert lines[2:5] == [
        "**Task:**",
        "",
        "> How should a team of four store the history of every order of a web shop?",
    ]
    first = lines[lines.index(headings[1]) + 2 : lines.index(headings[2]) - 1]
    assert first == [
        "Approaches explored (3):",
        "",
        "- **[8.5/10]** **History table** ★ — Grows fast, and *who* made a change is lost.",
        "- **[7.0/10]** **Event sourcing** — Sound, but more than `four` people can look after.",
        "- **[4.2/10]** Snapshots — Sound, but more than `four` people can look after.",
        "",
        "**Reflection:**",
        "",
        "- Pattern: All of them write on each change.",
        "- Mistake: Event sourcing forgets who made the change.",
        "- Missed by all: How long the history must be kept.",
        "",
        "**Next focus:** How it grows over 1 years.",
    ]
    final = lines[lines.index(headings[5]) + 2 :]
    assert final[0] == "*From iteration 2 of 3, the most confident.*"
    assert "That is version 2." in final
    assert "That is version 1." not in final
    assert "Who made a change is a column now, and partitions keep the table small." in final
    assert "- From **Outbox**: the whole row as JSON" in final
    assert [line for line in final[final.index("**Key insights:**") :] if line.startswith("- ")] == [
        "- One row for each change is enough.",
        *(f"- Iteration {k} says so too." for k in (1, 2, 3)),
    ]
    assert re.fullmatch(
        r"\*3 iterations, 9 branches explored, \d+\.\ds elapsed · stopped: converged · Scripted\*", lines[-1]
    )


def test_without_a_verdict_an_excerpt_stands_there():
    def model(call):
        if call.purpose != "converge":
            return play(call)
        reply = json.loads(play(call))
        for judged in reply["evaluations"]:
            del judged["verdict"]
        return json.dumps(reply)

    report = tl.deep_thought(deep(model, tl.DeepThink(max_iterations=1))).report()
    said = "History table Decision Keep a **history table**, filled by a trigger: Consequences what cost"
    assert f"- **[8.5/10]** **History table** ★ — {said}" in report


def test_d11_what_is_one_line_stands_behind_its_label():
    def model(call):
        if call.purpose != "converge":
            return play(call)
        return json.dumps({**json.loads(play(call)), "reflection": "All of them forget the auditors."})

    analysis = tl.deep_thought(deep(model, tl.DeepThink(max_iterations=1), tl.open_ended("Where to?")))
    lines = analysis.report().splitlines()
    assert lines[2] == "**Task:** Where to?"
    assert "**Reflection:** All of them forget the auditors." in lines
    assert analysis.iterations[0].reflection_summary == "All of them forget the auditors."
    assert analysis.iterations[0].insights == ()
    assert "**Key insights:**" not in lines


def test_a_simulated_model_is_labelled():
    analysis = tl.deep_thought(run(tl.DeepThink(max_iterations=1), model="sim/general"))
    assert analysis.report().startswith("# Deep Think — Tree-of-Thought Analysis *simulated model*\n")
    assert "<em>simulated model</em>" in analysis.report_html()
    assert "simulated model" in repr(analysis).splitlines()[0]


def test_its_repr_is_a_few_lines(analysis):
    lines = repr(analysis).splitlines()
    assert len(lines) == 7
    assert all(len(line) < 130 for line in lines)
    assert lines[3] == "  2         confidence 9.0/10, best approach: History table with reasons ← answer"


class Elements(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], set(), ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}
        self.text += " "

    def handle_endtag(self, tag):
        self.text += " "

    def handle_data(self, data):
        self.text += data


def test_the_panel_says_what_the_report_says(analysis):
    panel = Elements(analysis._repr_html_())
    assert panel.tags.count("details") == 3
    assert analysis._repr_html_().count("<details open>") == 1, "that of the iteration that answered"
    assert {"table", "pre", "blockquote"} <= {*panel.tags}
    report = Elements(MarkdownIt("commonmark").enable("table").render(analysis.report()))
    assert panel.text.rpartition("}")[2].split() == report.text.split()


def hostile(text):
    def model(call):
        def spoilt(value):
            if isinstance(value, dict):
                return {key: value if key == "name" else spoilt(value) for key, value in value.items()}
            if isinstance(value, list):
                return [spoilt(part) for part in value]
            return text if isinstance(value, str) else value

        return json.dumps(spoilt(json.loads(play(call).removeprefix("```json\n").removesuffix("\n```"))))

    return deep(model, tl.DeepThink(max_iterations=1), tl.open_ended(text))


TEXTS = st.text("#=-`~<>![]()*_\\|:.1a \n&", min_size=1, max_size=40).filter(str.strip)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.one_of(TEXTS, st.just(HOSTILE)))
def test_no_text_breaks_the_report(text):
    analysis = tl.deep_thought(hostile(text))
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(analysis.report())
    heads = [tokens[k + 1].content for k, token in enumerate(tokens) if token.type == "heading_open"]
    ours = ["Deep Think", "Iteration 1 ·", "Final Solution ("]
    assert [head.startswith(our) for head, our in zip(heads, ours, strict=True)] == [True] * 3, heads
    inside = [part for token in tokens for part in [token, *(token.children or [])]]
    assert not {"html_block", "html_inline", "image"} & {token.type for token in inside}
    assert tokens[-2].content.startswith("*1 iteration, 3 branches explored")
    assert tokens[-2].level == 1, "the closing line is outside of all that came before"
    panel = Elements(analysis.report_html())
    allowed = {"div", "style", "details", "summary", "p", "ul", "ol", "li", "strong", "em", "code", "pre"}
    allowed |= {"blockquote", "table", "thead", "tbody", "tr", "th", "td", "hr", "br", "a", "s"}
    assert {*panel.tags} <= allowed
    assert panel.attributes <= {"class", "open", "href", "start", "title", "style"}


def test_the_definition_of_a_link_breaks_no_report():
    analysis = tl.deep_thought(hostile("[1]:"))
    assert "Final Solution" in analysis.report()
    assert "Final Solution" in analysis.report_html()


@pytest.mark.parametrize("text", ["\t# H", "\t<b>x</b>", "\t![a](http://x/y.png)"])
def test_code_behind_a_tab_stays_code_in_a_quotation(text):
    analysis = tl.deep_thought(hostile(text))
    tokens = MarkdownIt("commonmark", {"html": True}).parse(analysis.report())
    assert tokens[7].type == "code_block", "the task, quoted below its label"


@pytest.mark.nightly
def test_a_reply_of_a_megabyte_is_shown():
    analysis = tl.deep_thought(deep(lambda call: "[" * 1_000_000, tl.DeepThink(max_iterations=1)))
    assert "[" * 1_000_000 in analysis.report()
    assert len(analysis.report()) < 1_100_000, "and only once"
    assert "[" * 1_000_000 in analysis.report_html()


# The figure.


def test_confidence_by_iteration(made):
    info = confidence_info(made)
    assert info.iteration.tolist() == [1, 2, 3]
    assert info.confidence.tolist() == CONFIDENCES
    assert info.answered.tolist() == [False, True, False]
    assert not info.assumed.any()
    assert info.score.tolist() == [score for scores in SCORES for score in sorted(scores, reverse=True)]
    assert info.kept.tolist() == [True, True, False] * 3
    assert np.ceil(info.place).tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert info.names[0] == "History table"
    assert info.unscored == 0
    figure = tl.figures.plot_confidence(made)
    shown = {trace.name: len(trace.x) for trace in figure.data if trace.showlegend}
    assert shown == {"branch, kept": 6, "branch, pruned": 3, "confidence": 2, "confidence of the answer": 1}
    (star,) = [trace for trace in figure.data if trace.marker.symbol == "star"]
    assert (list(star.x), list(star.y)) == ([2], [9.0])
    assert "7 of 10" in figure.data[0].hovertext[1]


def test_an_assumed_confidence_is_drawn_apart():
    made = deep(without("converge", "A history table it is.", draw=1))
    info = confidence_info(made)
    assert info.assumed.tolist() == [False, True, False]
    assert info.answered.tolist() == [False, False, True]
    assert info.unscored == 3
    figure = tl.figures.plot_confidence(made)
    (hollow,) = [trace for trace in figure.data if trace.marker.symbol == "diamond-open"]
    assert (list(hollow.x), list(hollow.y), hollow.showlegend) == ([2], [ASSUMED], True)
    (line,) = [trace for trace in figure.data if trace.mode == "lines"]
    assert np.isnan(line.y[1])
    assert "3 of 9 branches have no score" in figure.layout.title.subtitle.text


@pytest.mark.slow
def test_the_figure_in_the_dark_and_with_any_text(made):
    for dark, paper in ((False, "#ffffff"), (True, "#111418")):
        figure = tl.figures.plot_confidence(made, dark=dark)
        assert figure.layout.template.layout.paper_bgcolor == paper
        assert all("(" in axis.title.text for axis in (figure.layout.xaxis, figure.layout.yaxis))
    figure = json.loads(tl.figures.plot_confidence(hostile(HOSTILE)).to_json())
    del figure["layout"]["template"]
    assert "<script" not in json.dumps(figure)
    nothing = tl.figures.plot_confidence(deep(without("converge", Reply(error="down"))))
    assert nothing.layout.annotations[0].text == "no iteration has a synthesis"
    assert (
        "simulated model"
        in tl.figures.plot_confidence(run(tl.DeepThink(), model="sim/general")).layout.title.subtitle.text
    )
    with pytest.raises(ValueError, match="no Deep Think"):
        tl.figures.plot_confidence(run(tl.OneAnswer()))


# As a tree.


def test_a_synthesis_is_a_thought_of_several_parents(made, analysis):
    for result in analysis.iterations:
        best, second, last = result.branches
        parents = {(a, kind) for a, _, kind in made.graph().in_edges(result.node, data="kind")}
        assert parents == {(best.solution_node, "child"), (second.solution_node, "source")}
        assert [made.tree[branch.solution_node].state for branch in (best, second, last)] == [
            "kept",
            "kept",
            "pruned",
        ]
    info = tree_info(made)
    arcs = {(info.ids[start], info.ids[end], kind) for start, end, kind in info.links}
    assert arcs == {
        (result.branches[1].solution_node, result.node, "source") for result in analysis.iterations
    }
    assert [
        info.shape[info.ids.index(result.branches[2].solution_node)] for result in analysis.iterations
    ] == ["pruned"] * 3
    assert info.shape[info.ids.index(analysis.node)] == "answer"
    ids = list(made.tree.nodes)
    sources = json.loads(Recording(made.lines).chunk())["sources"]
    assert {(ids[source], ids[thought]) for thought, source in sources} == {arc[:2] for arc in arcs}


@pytest.mark.slow
def test_a_page_and_a_diagnosis_of_it(made, tmp_path):
    page = tl.figures.report_html([made], tmp_path / "a.html").read_text()
    assert "deep_think" in page
    assert list(tl.diagnose(made)) == []


def test_iterations_that_were_used_up_are_no_fault():
    made = deep(strategy=tl.DeepThink(max_iterations=2))
    assert made.stop_reason == "limit:iterations"
    assert tl.diagnose(made).of("out_of_turns") == []


def test_a_diagnosis_says_that_all_confidence_was_assumed():
    made = deep(without("converge", "A history table it is."))
    (finding,) = tl.diagnose(made).of("assumed_confidence")
    assert finding.nodes == tuple(result.node for result in tl.deep_thought(made).iterations)
    assert (
        finding.text
        == "Deep Think gave the answer of its last iteration: no confidence could be read in 3 iterations."
    )
    assert tl.diagnose(deep(without("converge", "A table.", draw=1))).of("assumed_confidence") == []


class ThinksFirst(tl.Strategy):
    """Answers whatever Deep Think comes to."""

    kind = "test_deep_thought.thinks_first"

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        yield from tl.DeepThink().think(task, f"{at}.0")
        return tl.Answer("mine", "answered")


def test_how_it_ended_is_its_own_also_inside_another():
    made = deep(without("develop", Reply(error="boom")), ThinksFirst())
    analysis = tl.deep_thought(made)
    assert (analysis.stop, analysis.node, analysis.answer_iteration) == ("error", None, None)
    assert made.stop_reason == "answered"
