"""The spans of a run: which there are, below which, with which names, and what they do not hold."""

import json
from collections import Counter

import msgspec
import pytest
from support import ROOT, SETTINGS, STRATEGIES, TASK, Scripted, for_each, run, wait
from support.otlp import otlp_of, spans_of

import tot_lab as tl
from tot_lab.analysis.frames import judgement_of
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.core.tools import asks_no_model
from tot_lab.interop.spans import LONGEST, RunSpans
from tot_lab.testing import legs

KNOWN = [line.split()[1] for line in (ROOT / "tests/data/logs/conventions.txt").read_text().splitlines()]
SEARCH = tl.TreeOfThoughts(merge=True, search=tl.BeamSearch(width=3))


def kind_of(span):
    return span.name.partition(" ")[0]


def game(strategy=SEARCH, **options):
    return run(strategy, tl.game24("4 9 10 13"), "sim/game24", **options)


def by_id(spans):
    found = {span.id: span for span in spans}
    assert len(found) == len(spans)
    return found


def test_every_thought_and_call_of_every_strategy_is_a_span_below_its_thought():
    def check(kind):
        strategy = kind(**SETTINGS.get(kind, {}))
        made = wait(tl.Lab(Scripted(), runs=None, tools=[legs]).run(strategy, TASK))
        spans = spans_of(made)
        known = by_id(spans)
        (top,) = [span for span in spans if span.parent is None]
        assert top.name == f"invoke_agent {made.name}"
        assert all(span.parent in known for span in spans if span is not top)
        thoughts = {span.attributes["tot_lab.thought"]: span for span in spans if kind_of(span) == "thought"}
        assert {*thoughts} == {node.id for node in made.tree}
        for node in made.tree:
            above = top if node.parent is None else thoughts[node.parent]
            assert thoughts[node.id].parent == above.id
            assert thoughts[node.id].attributes["output.value"] == node.text
            assert thoughts[node.id].attributes["tot_lab.state"] == node.state
            assert thoughts[node.id].attributes["tot_lab.score"] == judgement_of(node).score
        calls = Counter(
            (e.node, "execute_tool" if asks_no_model(e) else "chat")
            for e in made.events
            if isinstance(e, tl.Call)
        )
        assert calls == Counter(
            (span.attributes["tot_lab.thought"], kind_of(span))
            for span in spans
            if kind_of(span) in ("chat", "execute_tool")
        )
        assert sum(calls.values()) + len(made.tree) + 1 == len(spans)
        for span in spans:
            if span.parent == top.id or span is top or kind_of(span) == "thought":
                continue
            assert known[span.parent].attributes["tot_lab.thought"] == span.attributes["tot_lab.thought"]

    for_each(STRATEGIES, check)


def test_tokens_costs_and_times_add_up():
    made = game()
    spans = spans_of(made)
    calls = [span.attributes for span in spans if kind_of(span) == "chat"]
    for names, total in (
        (("gen_ai.usage.input_tokens", "llm.token_count.prompt"), made.usage.input_tokens),
        (("gen_ai.usage.output_tokens", "llm.token_count.completion"), made.usage.output_tokens),
        (("llm.cost.total",), made.usage.cost),
    ):
        for name in names:
            assert sum(held[name] for held in calls) == total
    assert not any("token" in name for span in spans if kind_of(span) != "chat" for name in span.attributes)
    top = spans[-1]
    known = by_id(spans)
    for span in spans:
        assert top.start <= span.start <= span.end <= top.end
        if span.parent is not None:  # a thought lasts until all below it has ended
            assert known[span.parent].end >= span.end
    assert (top.end - top.start) / 1e9 == pytest.approx(made.seconds, abs=1e-3)


def test_merged_and_combined_thoughts_are_links():
    made = game()
    merged = {node.id: node.merged for node in made.tree if node.merged}
    assert merged
    spans = spans_of(made)
    names = {span.id: span.attributes.get("tot_lab.thought") for span in spans if kind_of(span) == "thought"}
    assert merged == {
        span.attributes["tot_lab.thought"]: names[id]
        for span in spans
        for id, held in span.links
        if held == {"tot_lab.link": "merged"}
    }
    recorder = tl.Recorder("by hand")
    root = recorder.thought("q")
    a, b = recorder.thought("a", root), recorder.thought("b", root)
    recorder.thought("c", root, source=[a, b], depends=[a])
    *_, last, _ = spans_of(recorder.run)
    assert [held["tot_lab.link"] for _, held in last.links] == ["source", "source", "depends"]


def test_names_of_attributes_are_those_of_the_conventions():
    made = wait(tl.Lab(Scripted(), runs=None, tools=[legs]).run(tl.ReAct(), TASK))
    graph = game()
    parts = {"0", "message", "message_content", "tool_call", "tool", "function"}
    for span in [*spans_of(made), *spans_of(graph)]:
        for name in span.attributes:
            if name.startswith("tot_lab."):
                continue
            whole, *rest = [known for known in KNOWN if name == known or name.startswith(f"{known}.")] or [""]
            assert whole, name
            longest = max([whole, *rest], key=len)
            for part in name.removeprefix(longest).split(".")[1:]:
                assert part in parts or part.isdigit() or any(part in known for known in KNOWN), name


def test_the_same_run_has_the_same_ids_and_another_has_others(tmp_path):
    lab = tl.Lab("sim/game24", runs=tmp_path)
    made = wait(lab.run(SEARCH, tl.game24("4 9 10 13")))
    assert spans_of(tl.load(made.path)) == spans_of(made)
    ids = {span.id for span in spans_of(made)}
    assert {*map(len, ids)} == {8}
    header = msgspec.structs.replace(made.header, id="00000000")
    later = msgspec.structs.replace(made.header, started="2026-01-01T00:00:00+00:00")
    for other in (header, later):  # the runs of a sweep have the same ids in each folder
        again = tl.Run(other, made.lines)
        assert not ids & {span.id for span in spans_of(again)}
        assert RunSpans(other, ()).trace != RunSpans(made.header, ()).trace


def test_a_resumed_run_has_the_spans_of_the_whole_run(tmp_path):
    lab = tl.Lab("sim/game24", runs=tmp_path)
    whole = wait(lab.run(SEARCH, tl.game24("4 9 10 13")))
    lines = whole.path.read_bytes().splitlines(keepends=True)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    begun = {span.id: span for span in spans_of(tl.load(path))}
    again = spans_of(wait(lab.resume(path)))
    assert {span.id for span in again} == {span.id for span in spans_of(whole)}
    assert begun.keys() < {span.id for span in again}


def test_a_call_without_a_reply_is_an_error(tmp_path):
    lab = tl.Lab("sim/game24", runs=tmp_path)
    whole = wait(lab.run(SEARCH, tl.game24("4 9 10 13")))
    kept = whole.lines[: [isinstance(line.e, Reply) for line in whole.lines].index(True)]
    spans = spans_of(tl.Run(whole.header, kept))
    assert len(spans) == len(kept) - sum(not isinstance(line.e, tl.Call | tl.Thought) for line in kept) + 1
    assert {span.error for span in spans if kind_of(span) == "chat"} == {"no reply was recorded"}


def test_failures_are_errors_of_their_spans():
    made = run(tl.TreeOfThoughts(), model=Scripted(lambda call: Reply(error="RateLimit: too many")))
    spans = spans_of(made)
    assert spans[-1].error is not None
    assert spans[-1].attributes["tot_lab.stop_reason"] == "error"
    calls = [span for span in spans if kind_of(span) == "chat"]
    assert {span.error for span in calls} == {"RateLimit: too many"}
    assert {span.attributes["error.type"] for span in calls} == {"RateLimit"}
    assert not any("output.value" in span.attributes for span in calls)
    assert all(span.error is span.attributes.get("error.type") is None for span in spans_of(game()))


def test_scores_and_the_grade_are_evaluations():
    made = game()
    fold = RunSpans(made.header, ())
    spans = [span for line in made.lines for span in fold.take(line)]
    scored = [e for e in made.events if isinstance(e, tl.records.Scored) and e.by != "root"]
    assert made.tree.root.score is not None  # of the search, which evaluates no question
    assert len(fold.scores) == len(scored) + 1
    *_, grade = fold.scores
    assert (grade.name, grade.score, grade.span, grade.by_model) == (
        *("correctness", made.grade),
        *(spans[-1].id, False),
    )
    names = {span.id: span.attributes["tot_lab.thought"] for span in spans if kind_of(span) == "thought"}
    assert sorted((names[s.span], s.name, s.score) for s in fold.scores[:-1]) == sorted(
        (e.id, e.by or "value", e.score) for e in scored
    )
    events = [event.attributes for span in spans for event in span.events]
    assert [held["gen_ai.evaluation.score.value"] for held in events] == [s.score for s in fold.scores]


def test_a_score_that_could_not_be_read_is_no_number():
    recorder = tl.Recorder("by hand")
    root = recorder.thought("q")
    recorder.score(root, None)
    recorder.score(root, 0.5, by="mine")
    fold = RunSpans(recorder.header, ())
    for line in recorder.run.lines:
        assert not [*fold.take(line)]
    assert len([*fold.finish()]) == 2
    assert [(s.name, s.score, s.label, s.number, s.by_model) for s in fold.scores] == [
        ("value", None, "unreadable", 0, True),
        ("mine", 0.5, "scored", 1, False),
    ]


@pytest.mark.parametrize("secret", ["sk-proj-Ab3_dE5fG7hI9jK1", 'p/a+s=s"w\\o rd&é%0123456789'])
def test_no_secret_is_in_a_span(secret):
    recorder = tl.Recorder(f"name {secret}", task=tl.general(f"question {secret}", context=secret))
    root = recorder.thought(f"root {secret}")
    wanted = (ToolCall(secret, secret, json.dumps({"key": secret})),)
    reply = Reply(f"reply {secret}", thinking=secret, tool_calls=wanted, raw_text=secret, model=secret)
    recorder.call(root, f"prompt {secret}", reply)
    recorder.call(root, json.dumps({"prompt": secret}), Reply(error=f"Error: {secret}"))
    recorder.call(root, secret, Reply(secret, tool=secret), purpose="tool")
    recorder.score(root, 0.5, by=secret)
    recorder.decide(root, "kept", secret)
    recorder.note("noted", root, **{secret: [{"deep": {secret: secret}}]})
    recorder.end(f"answer {secret}", node=root)
    run = recorder.run
    fold = RunSpans(run.header, (secret,), run)
    spans = [span for line in run.lines for span in fold.take(line)]
    text = json.dumps([span._replace(id="", parent="", links=()) for span in spans]) + str(fold.scores)
    for written in (secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret)[1:-1])[1:-1]):
        assert written not in text
    assert "reply •••" in json.dumps([span.attributes for span in spans], ensure_ascii=False)


def test_a_long_text_is_cut_and_says_so():
    text = "é" * (LONGEST + 1234)
    recorder = tl.Recorder("by hand")
    root = recorder.thought(text)
    recorder.call(root, text, text)
    recorder.note("mine", root, text=[text])
    recorder.end("x" * LONGEST)
    spans = spans_of(recorder.run)
    call, thought, top = (span.attributes for span in spans)
    end = "… [1,234 more characters were cut]"
    for name in ("input.value", "output.value", "llm.input_messages.0.message.content"):
        assert call[name] == "é" * LONGEST + end
    assert thought["output.value"].endswith(end)
    assert top["output.value"] == "x" * LONGEST
    (message,) = json.loads(call["gen_ai.input.messages"])
    assert message["parts"][0]["content"].endswith(end)
    for span in spans:
        for line in span.attributes["tot_lab.lines"].split("\n"):
            assert json.loads(line)
    assert all(len(str(value)) < 3 * LONGEST for span in spans for value in span.attributes.values())


def test_models_of_roles_and_their_providers_are_named():
    recorder = tl.Recorder("by hand")
    header = msgspec.structs.replace(
        recorder.header,
        model={"kind": "litellm", "model": "openai/gpt-4.1-mini"},
        roles={
            "judge": {"model": {"kind": "litellm", "model": "gemini/gemini-2.5-pro"}},
            "own": {"temperature": 0.5},
            "text": {"model": "claude-sonnet-4-5"},
        },
    )
    recorder = tl.Recorder(header=header)
    root = recorder.thought("q")
    found = {}
    for model in (None, "judge", "own", "text", "xai/grok-4"):
        made = tl.Call(root, "ask", (), model=model)
        recorder._record(made, Reply("r", model="gpt-4.1-mini-2025-04-14"))
    for span, model in zip(spans_of(recorder.run), (None, "judge", "own", "text", "other"), strict=False):
        held = span.attributes
        found[model] = (span.name, held["gen_ai.request.model"], held["gen_ai.provider.name"])
        assert held["gen_ai.response.model"] == held["llm.model_name"] == "gpt-4.1-mini-2025-04-14"
    assert found == {
        None: ("chat openai/gpt-4.1-mini", "openai/gpt-4.1-mini", "openai"),
        "judge": ("chat gemini/gemini-2.5-pro", "gemini/gemini-2.5-pro", "gcp.gemini"),
        "own": ("chat openai/gpt-4.1-mini", "openai/gpt-4.1-mini", "openai"),
        "text": ("chat claude-sonnet-4-5", "claude-sonnet-4-5", None),
        "other": ("chat xai/grok-4", "xai/grok-4", "x_ai"),
    }


def test_a_log_without_times_and_an_empty_run_have_spans():
    rows = [{"id": "a", "parent": None, "text": "q"}, {"id": "b", "parent": "a", "text": "t"}]
    spans = spans_of(tl.read_nodes(rows))
    assert [span.name for span in spans][:2] == ["thought 0", "thought 0.0"]
    assert [span.name for span in spans_of(tl.Recorder("empty").run)] == ["invoke_agent empty"]


def test_a_domain_that_cannot_grade_costs_only_the_grade():
    class Broken(tl.domains.General):
        kind = "tests/broken_grade"

        def grade(self, task, answer):
            raise ZeroDivisionError

    made = run(tl.OneAnswer(), TASK.model_copy(update={"domain": Broken()}))
    with pytest.raises(ZeroDivisionError):
        made.grade  # noqa: B018
    assert spans_of(made)[-1].events == []
    assert json.dumps(otlp_of(made))
