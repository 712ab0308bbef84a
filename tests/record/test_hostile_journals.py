"""A stranger's journal: what cannot be right is an error that names file and line, and the rest is shown."""

import json
import random
import re

import pytest
from support import GOLDEN, TASK, Scripted, lines_of, resealed, wait

import tot_lab as tl
from tot_lab.views.explorer.recording import Recording, about_of
from tot_lab.views.report import report_html, tree_svg

JOURNAL = GOLDEN / "journal-schema-4.jsonl"
ODD = [
    None,
    True,
    -1,
    10**30,
    1e308,
    -1e308,
    0.5,
    "x",
    "\ud800",
    "",
    [],
    [5],
    ["x"],
    {},
    {"x": 5},
    {"kind": 5},
]


def shown(run, folder):
    """Everything that shows a run."""
    repr(run), run._repr_html_(), tree_svg(run), about_of(run)
    _ = run.usage, run.diagnostics, run.plans, run.candidates, run.solution_path, run.marks, run.parent
    for frame in (run.nodes_df, run.calls_df, run.tools_df, run.steps_df, run.events_df):
        frame()
    recording = Recording(run.lines)
    recording.chunk(), list(recording.texts()), [recording.details(id) for id in run.tree.nodes]
    run.graph(), tl.figures.plot_tree(run), tl.figures.plot_timeline(run)
    run.save_html(folder / "page.html")
    report_html([run], folder / "report.html")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = wait(
        tl.Lab(Scripted(), runs=folder).run(
            tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2)),
            TASK,
            budget=tl.Budget(calls=100),
        )
    )
    return lines_of(wait(tl.Lab(Scripted(), runs=folder).branch(made, "0.0", content="a")).path)


@pytest.mark.parametrize(
    ("of", "change"),
    [
        ("reply", {"t": 1e308}),
        ("reply", {"t": -0.5}),
        ("reply", {"t": float("nan")}),
        ("reply", {"t": float("inf")}),
        ("reply", {"t": "1"}),
        ("scored", {"score": 1.5}),
        ("scored", {"score": -0.1}),
        ("scored", {"score": float("nan")}),
        ("scored", {"id": 5}),
        ("scored", {"draws": [float("inf")]}),
        ("ended", {"score": 40}),
        ("ended", {"ranked": "0"}),
        ("thought", {"text": None}),
        ("decided", {"what": "believed"}),
        ("note", {"data": []}),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else value,
)
def test_what_cannot_be_right_names_file_and_line(tmp_path, good, of, change):
    lines = list(good)
    number = max(k for k, line in enumerate(lines) if json.loads(line).get("e", {}).get("type") == of)
    told = json.loads(lines[number])
    for name, value in change.items():
        (told if name == "t" else told["e"])[name] = value
    lines[number] = resealed(json.dumps(told).encode())
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join(lines))
    with pytest.raises(tl.errors.JournalError, match=rf"bad\.jsonl, line {number + 1}: "):
        tl.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"started": "yesterday"},
        {"started": 5},
        {"task": {"question": 5, "domain": {"kind": "general"}}},
        {"task": {"question": "q"}},
        {"task": {"question": "q", "domain": "general"}},
        {"task": []},
        {"strategy": "beam"},
        {"model": None},
        {"budget": [1]},
        {"repeat": "0"},
        {"roles": {"judge": 5}},
        {"branched": {"run": "x"}},
        {"branched": {"run": 5, "node": "0"}},
        {"unknown": ["colours"]},
        {"tools": {"search": "x"}},
        {"checksum": "md5"},
        {"tot_lab": "1"},
        {"tot_lab": 0},
        {"tot_lab": -3},
    ],
    ids=json.dumps,
)
def test_a_damaged_header_names_file_and_line(tmp_path, good, change):
    head = json.loads(good[0]) | change
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join([resealed(json.dumps(head).encode()), *good[1:]]))
    with pytest.raises(tl.errors.JournalError, match=r"bad\.jsonl, line 1: "):
        tl.load(path)


def places(value, path=()):
    """The way to each value inside `value`."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


@pytest.mark.nightly
@pytest.mark.parametrize("share", [0.1, pytest.param(1, marks=pytest.mark.nightly)])
def test_whatever_stands_in_a_field_is_shown_or_is_an_error_that_names_the_line(tmp_path, good, share):
    dice = random.Random(16)
    told = [json.loads(line) for line in good]
    every = [(number, path) for number, one in enumerate(told) for path in places(one) if path]
    head = [(number, path) for number, path in every if number == 0 and path[0] != "crc32"]
    path = tmp_path / "odd.jsonl"
    refused = 0
    for number, way in [*dice.sample(head, int(40 * share)), *dice.sample(every, int(60 * share))]:
        changed = json.loads(good[number])
        held = changed
        for key in way[:-1]:
            held = held[key]
        held[way[-1]] = dice.choice(ODD)
        path.write_bytes(
            b"".join([*good[:number], resealed(json.dumps(changed).encode()), *good[number + 1 :]])
        )
        try:
            run = tl.load(path)
        except tl.errors.JournalError as error:
            refused += f"{path}, line " in str(error)
            assert f"{path}, line " in str(error)  # noqa: PT017  whether there is an error is left open
            continue
        try:
            shown(run, tmp_path)
        except Exception as error:
            pytest.fail(f"line {number + 1}, {way} = {held[way[-1]]!r}: {type(error).__name__}: {error}")
    assert refused > 20 * share


# A pattern that never ends. The fastest way to fail these tests is not to come back from them.

HARMLESS = tl.general("How many?", answer="none", grade="regex")
REFERENCE = b'"reference":"(a|a)*$"'
ANSWER = "a" * 40 + "b"
PATIENCE = 0.3  # seconds of a test for a pattern
STOPPED = f"took longer than {PATIENCE} s and was stopped|no result within"  # a process may also start late


class Endless(Scripted):
    """Answers so that the pattern takes 2 ** 40 steps."""

    def __init__(self):
        super().__init__(lambda call: f"Answer: {ANSWER}")


@pytest.fixture
def endless(tmp_path):
    """A run whose journal holds such a pattern, as a stranger sends it."""
    made = wait(tl.Lab(Endless(), runs=tmp_path).run(tl.TreeOfThoughts(stop=tl.Stop(depth=1)), HARMLESS))
    made.path.write_bytes(resealed(made.path.read_bytes().replace(b'"reference":"none"', REFERENCE)))
    return tl.load(made.path)


@pytest.mark.slow
def test_showing_a_loaded_run_never_matches_its_pattern(tmp_path, endless):
    shown(endless, tmp_path)
    for text in (repr(endless), endless._repr_html_(), (tmp_path / "report.html").read_text()):
        assert "not graded yet: access run.grade to grade it" in text
    totals = (tmp_path / "report.html").read_text().partition("</h1><p>")[2].partition("</p>")[0]
    assert "calls" in totals
    assert "%" not in totals, "no rate of success"
    assert endless.waits_for_grading


@pytest.mark.slow
def test_the_command_line_shows_and_exports_it(tmp_path, endless):
    from tot_lab.apps.cli import main

    for words in (
        ["show", str(endless.path), "--no-open", "--out", str(tmp_path / "a.html")],
        ["export", str(endless.path), "--to", str(tmp_path / "b.html")],
        ["export", str(endless.path), "--to", str(tmp_path / "c.csv")],
        ["export", str(endless.path), "--to", str(tmp_path / "d.svg")],
    ):
        assert main(words) in (0, None)


@pytest.mark.slow
def test_asked_for_it_ends_and_says_why_there_is_no_grade(monkeypatch, endless):
    monkeypatch.setattr("tot_lab.record.run.GRADING", PATIENCE)
    with pytest.warns(RuntimeWarning, match=rf"run \w+ is not graded: the pattern .*(?:{STOPPED})"):
        assert endless.grade is None
    assert endless.correct is None
    assert re.search(STOPPED, endless.ungraded)
    assert "not graded: the pattern" in repr(endless)
    assert endless.reachable is None  # known by now: nothing is tried, or warned of, again
    assert "right_not_chosen" not in [finding.kind for finding in tl.diagnose(endless)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:More than 5%")  # its judge cannot be read
def test_whatever_asks_for_grades_ends(monkeypatch, endless):
    monkeypatch.setattr("tot_lab.record.run.GRADING", PATIENCE)
    for ask in (
        lambda run: run.reachable,
        tl.diagnose,
        tl.stats.judge_evaluator,
        lambda run: tl.stats.success_rates([run]),
    ):
        with pytest.warns(RuntimeWarning, match=STOPPED):
            ask(tl.load(endless.path))


def test_a_pattern_that_ends_gives_its_grade_when_it_is_asked_for(tmp_path):
    for pattern, right in ((r"^4\s*2$", True), ("seven", False)):
        task = tl.general("How many?", answer=pattern, grade="regex")
        made = wait(tl.Lab(Scripted(lambda call: "Answer: 42"), runs=tmp_path).run(tl.OneAnswer(), task))
        assert made.correct is right  # the person's own task, in the same process
        assert ("✓ correct" if right else "✗ wrong") in repr(made)
        run = tl.load(made.path)
        assert "not graded yet" in repr(run)
        assert run.correct is right
        assert run.reachable == float(right)
        assert ("✓ correct" if right else "✗ wrong") in repr(run)


def test_a_pattern_that_is_none_is_said_to_be(tmp_path):
    made = wait(tl.Lab(Endless(), runs=tmp_path).run(tl.OneAnswer(), HARMLESS))
    path = tmp_path / "bad.jsonl"
    path.write_bytes(resealed(made.path.read_bytes().replace(b'"none"', b'"(a|a(*$"')))
    run = tl.load(path)
    with pytest.warns(RuntimeWarning, match="cannot be matched: .*nothing to repeat"):
        assert run.grade is None


def test_grading_that_always_ends_soon_is_done_when_a_run_is_shown(tmp_path):
    for grade in ("number", "exact"):
        task = tl.general("How many?", answer="42", grade=grade)
        made = wait(tl.Lab(Scripted(lambda call: "Answer: 42"), runs=tmp_path).run(tl.OneAnswer(), task))
        assert "✓ correct" in repr(tl.load(made.path))
    assert "✓ correct" in repr(tl.load(JOURNAL))


def test_a_run_that_was_resumed_from_such_a_file_is_not_graded_either(tmp_path, endless):
    lines = lines_of(endless.path)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:5]))
    done = wait(tl.Lab(Endless()).resume(cut))
    assert done.stop_reason is not None
    assert "not graded yet" in repr(done)
    assert "not graded yet" in repr(wait(tl.Lab(Endless()).resume(cut)))
