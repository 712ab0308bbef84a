"""The published Princeton logs as runs: what they say is there, what they do not say is unknown.

The logs themselves are read where they lie beside the project; small ones of the same form are made here.
"""

import json
from html import escape

import pytest
from support import ROOT, wait
from support import run as made
from support.published import FIRST, GAME24, HAND

import tot_lab as tl
from tot_lab.core.records import Note, Scored
from tot_lab.domains import MiniCrossword, mini_crossword_scores
from tot_lab.domains.published import log_path, log_state
from tot_lab.record.published import verdicts
from tot_lab.record.search_notes import notes_of
from tot_lab.views.explorer.recording import Recording
from tot_lab.views.figures import figures_of

RECORDS = ROOT.parent / "shared" / "data" / "princeton_tot"
needs_records = pytest.mark.skipif(not RECORDS.is_dir(), reason=f"the published records are not at {RECORDS}")
LOGS = {
    "game24": "game24_bfs_gpt4_even.json",
    "crossword": "crosswords_dfs_gpt4_even.json",
    "writing": "writing_vote_gpt4_first20.json",
}
each_log = pytest.mark.parametrize("name", LOGS)


@pytest.fixture(scope="module")
def logs():
    return {name: tl.load(RECORDS / file) for name, file in LOGS.items()}


def raw(name):
    return json.loads((RECORDS / LOGS[name]).read_text())


def noted(run, name):
    return {event.at: event.data for event in run.events if isinstance(event, Note) and event.name == name}


# Small logs of the same form.

CROSSWORD = [
    [
        {
            "total_step": k,
            "env_step": len(actions),
            "actions": actions,
            "info": {"r_letter": letters, "r_word": words},
            "count": {"sure": 1, "maybe": 0, "impossible": impossible},
        }
        for k, (actions, letters, words, impossible) in enumerate(
            [
                (["h1. abcde"], 0.2, 0.1, 0),
                (["h1. abcde", "v1. axxxx"], 0.2, 0.1, 1),
                (["h1. abcde", "h2. fghij"], 0.4, 0.2, 0),
            ]
        )
    ]
]


@pytest.fixture
def small(tmp_path):
    def load(log, name="log.json"):
        path = tmp_path / name
        path.write_text(json.dumps(log))
        return tl.load(path)

    return load


def test_a_log_of_many_tasks_is_a_list_of_runs_and_a_journal_is_a_run(small, tmp_path):
    (made,) = small(GAME24)
    assert isinstance(made, tl.Run)
    assert isinstance(tl.load(made.save(tmp_path / "one.jsonl")), tl.Run)


def test_a_step_becomes_thoughts_scores_and_decisions(small):
    (run,) = small(GAME24)
    tree = run.tree
    assert list(tree.nodes) == ["0", "0.0", "0.1", "0.2", "0.1.0", "0.1.1"]
    assert [tree[id].text for id in ("0", "0.0", "0.1.0")] == [HAND, FIRST[0], "2 * 12 = 24 (left: 1 24)"]
    assert tree["0.1"].samples == (20.0, 1.0, 0.001)
    assert (tree["0.1"].raw, tree["0.1"].score) == (21.001, 21.001 / 60)
    assert tree["0.0"].samples == (0.001, 0.001, None)
    assert tree["0.1.1"].unreadable
    assert tree["0.1.1"].samples == (None, None, None)
    assert [tree[id].state for id in ("0.0", "0.1", "0.2", "0.1.0", "0.1.1")] == [
        "pruned",
        "kept",
        "duplicate",
        "answer",
        "pruned",
    ]
    assert (run.stop_reason, run.best.id, [node.id for node in run.candidates]) == (
        "limit:depth",
        "0.1.0",
        ["0.1.0"],
    )
    assert (run.answer, run.correct) == ("", False)
    assert noted(run, "published.entry")["0"] == {
        "idx": 7,
        "infos": [{"r": 0}],
        "usage_so_far": {"cost": 1.25},
    }


def test_of_the_calls_only_the_proposals_are_known(small):
    (run,) = small(GAME24)
    calls = run.calls_df()
    assert list(calls.purpose) == ["propose", "propose"]
    assert list(calls.node) == ["0", "0.1"]
    assert calls.reply[0] == "\n".join([FIRST[0], FIRST[1], FIRST[0]])
    for column in ("prompt", "input_tokens", "output_tokens", "cost", "paid", "asked", "seconds", "source"):
        assert calls[column].isna().all(), column
    assert run.usage == (2, 0, None, None, None, None)
    assert run.seconds != run.seconds  # NaN
    assert run.events_df().seconds.isna().all()
    nodes = run.nodes_df()
    for column in ("calls", "input_tokens", "output_tokens", "cost", "paid"):
        assert nodes[column].isna().all(), column
    assert "at least 2" in repr(run)
    assert "time unknown" in repr(run)


def test_a_crossword_is_a_tree_of_words(small):
    (run,) = small(CROSSWORD)
    tree = run.tree
    assert list(tree.nodes) == ["0", "0.0", "0.0.0", "0.0.1"]
    assert [tree[id].state for id in ("0.0", "0.0.0", "0.0.1")] == ["kept", "answer", "kept"]
    assert [tree[id].score for id in ("0.0", "0.0.0", "0.0.1")] == [1.0, 0.0, 1.0]
    assert run.answer == "abcde x____ x____ x____ x____"  # the first of the deepest
    assert (run.grade, run.reachable) == (0.1, 0.2)
    assert run.stop_reason == "exhausted"
    assert noted(run, "published.right")["0.0.1"] == {"r_letter": 0.4, "r_word": 0.2}
    assert run.calls_df().reply.isna().all()
    assert run.usage == (2, 0, None, None, None, None)
    assert run.task.domain.solvable(run.task, ["h1. abcde"]) is None


def test_a_search_that_did_not_prune_pruned_nothing(small):
    states = [*CROSSWORD[0], {**CROSSWORD[0][1], "actions": ["h1. abcde", "v1. axxxx", "h2. xyzab"]}]
    (run,) = small([states])
    assert {node.state for node in run.tree if node.parent} == {"kept", "answer"}


def test_the_same_entry_is_the_same_run(small):
    first, again = small(GAME24, "a.json"), small([*GAME24, GAME24[0] | {"idx": 8}], "b.json")
    assert first[0].id == again[0].id != again[1].id


@pytest.mark.parametrize("log", [GAME24, CROSSWORD], ids=["game24", "crossword"])
def test_it_comes_back_from_a_file_of_its_own(small, tmp_path, log):
    (run,) = small(log)
    back = tl.load(run.save(tmp_path / "run.jsonl"))
    assert (back.header, back.events, back.grade) == (run.header, run.events, run.grade)
    assert back.calls_df().equals(run.calls_df())
    assert repr(back) == repr(run)


def changed(**fields):
    entry = json.loads(json.dumps(GAME24[0]))
    entry["steps"][0].update(fields)
    return [GAME24[0], entry]


def voted(*values):
    step = {"x": "A b. C d. E f. G h.", "ys": [""], "new_ys": ["p", "q"], "select_new_ys": ["p"]}
    return [{"steps": [{**step, "values": values}], "ys": ["p"]}]


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ([GAME24[0], {"idx": 1, "ys": ["an answer"]}], r"entry 1.*steps"),
        ([GAME24[0], {"steps": [], "ys": []}], "entry 1: the entry has no steps"),
        (changed(values=["high", 1, 2]), r"entry 1.*\$\.steps\[0\]\.values\[0\]"),
        (changed(values=[1.0]), "entry 1: step 0 has 3 candidates and 1 values"),
        (changed(values=[0.4005, 1, 1]), "entry 1.*0.4005 is no sum of the values"),
        (changed(ys=["from nowhere\n"]), "entry 1: step 0: .* continues none of the paths"),
        (
            changed(select_new_ys=["something else\n"]),
            "entry 1: step 0: .*something else.* was never proposed",
        ),
        (changed(select_new_ys=[""]), "entry 1: step 0: the path '' was never proposed"),
        ([CROSSWORD[0][1:]], "entry 0: state 0: the words .*axxxx.* continue no earlier state"),
        ([[CROSSWORD[0][0], CROSSWORD[0][0]]], "entry 0: state 1"),
        ([[{**CROSSWORD[0][0], "actions": ["h9. xyzab"]}]], "entry 0: state 0: .* fit no grid"),
        ([3], "entry 0: not an entry of a published log"),
        (changed(values=[1e308, 1, 1]), r"entry 1.*1e\+308 is the sum of more than 100 values"),
        (changed(values=[2e10, 1, 1]), "entry 1.*20000000000.0 is the sum of more than 100 values"),
        (changed(x="5 5 5 5"), "entry 1: step 1 is about another problem: got '1 2 3 4'"),
        (voted(1e12, 1), r"entry 0.*at most 100 votes are accepted: got 1e\+12"),
        (voted(-1, 2), "entry 0.*whole numbers of at least 0"),
        (voted(0.5, 2), "entry 0.*whole numbers of at least 0"),
        (
            [[{**CROSSWORD[0][0], "info": {"r_letter": 0.2, "r_word": 5}}]],
            r"entry 0.*<= 1.0 - at `\$\[0\].info.r_word`",
        ),
    ],
)
def test_a_damaged_log_is_named_with_its_entry(small, tmp_path, log, said):
    with pytest.raises(tl.errors.JournalError, match=rf"log\.json, {said}"):
        small(log)


def test_a_file_that_is_cut_off_says_so(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(GAME24)[:-20])
    with pytest.raises(tl.errors.JournalError, match=r"log\.json, line 1: .*nor a published log: "):
        tl.load(path)
    with pytest.raises(OSError, match="missing"):
        tl.load(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("total", "read"),
    [
        (0, []),
        (60.0, [20.0, 20.0, 20.0]),
        (21.001, [20.0, 1.0, 0.001]),
        (0.003, [0.001] * 3),
        (2.001, [1.0, 1.0, 0.001]),
        (40.0, [20.0, 20.0]),
    ],
)
def test_a_sum_is_taken_apart_into_its_verdicts(total, read):
    assert list(verdicts(total)) == read


# The logs.


@needs_records
def test_every_entry_is_a_run(logs):
    assert {name: len(runs) for name, runs in logs.items()} == {"game24": 50, "crossword": 10, "writing": 20}
    assert all(run.stop_reason for runs in logs.values() for run in runs)


@pytest.mark.nightly
@needs_records
@each_log
def test_every_picture_of_a_run_works_on_it(logs, name, tmp_path):
    run = logs[name][0]
    for plot in figures_of("run"):
        json.loads(plot(run).to_json())
    assert len(run.nodes_df()) == len(run.tree) == len(run.graph())
    assert len(run.events_df()) == len(run.lines)
    assert escape(run.question[:20]) in run._repr_html_()
    assert run.answer[:20] in repr(run)
    assert tl.diagnose(run) == tl.diagnose(run)
    assert tl.figures.report_html(logs[name][:2], tmp_path / "report.html").stat().st_size > 1000
    assert run.save_html(tmp_path / "run.html").stat().st_size > 1000
    told = Recording(run.lines)
    assert json.loads(told.chunk())["ended"]["stop"] == run.stop_reason
    assert told.details("0.0")["text"] == run.tree["0.0"].text
    explorer = tl.Explorer(run)
    explorer.selected = ["0.0"]
    assert list(explorer.selected.frame.id) == ["0.0"]


@needs_records
def test_game24_is_told_to_the_letter(logs):
    for run, entry in zip(logs["game24"], raw("game24"), strict=True):
        depth = 0
        levels = [note.data["kept"] for note in notes_of(run) if note.name == "tot.pruned"]
        for depth, step in enumerate(entry["steps"], 1):
            nodes = [node for node in run.tree if node.depth == depth]
            told = sorted((log_path(run.steps(node.id)), node.raw or 0) for node in nodes)
            assert told == sorted(zip(step["new_ys"], step["values"], strict=True))
            assert [log_path(run.steps(id)) for id in levels[depth - 1]] == step["select_new_ys"]
            assert {node.id for node in nodes if node.state in ("kept", "answer")} == set(levels[depth - 1])
        assert depth == len(levels) == 4
        grades = [run.task.domain.grade(run.task, run.task.domain.answer(run.task, run.steps(node.id)) or "")
                  for node in run.candidates]  # fmt: skip
        assert grades == [info["r"] for info in entry["infos"]]


@needs_records
def test_the_draws_of_game24_add_up_to_what_was_recorded(logs):
    scored = [event for run in logs["game24"] for event in run.events if isinstance(event, Scored)]
    assert len(scored) > 4000
    for event in scored:
        read = [draw for draw in event.samples if draw is not None]
        assert len(event.samples) == 3
        assert (event.raw is None and not read) or abs(sum(read) - event.raw) < 1e-9


@needs_records
def test_what_the_domain_makes_of_a_crossword_is_what_the_log_says(logs):
    """Where the log came to the solution, every grid is graded anew."""
    checked = 0
    for run in logs["crossword"]:
        domain = run.task.domain
        solution = next((grid for grid, share in run.task.reference.items() if share == 1.0), None)
        task = tl.Task(domain=MiniCrossword(), question=run.question, reference=solution)
        for at, right in noted(run, "published.right").items():
            grid = domain.answer(run.task, run.steps(at))
            assert run.task.grade(grid) == right["r_word"]
            if solution is not None:
                scores = mini_crossword_scores(task, grid)
                assert scores.words == pytest.approx(right["r_word"])
                assert scores.letters == pytest.approx(right["r_letter"])
                agrees = all(a in (b, "_") for a, b in zip(grid, solution, strict=True))
                assert domain.solvable(run.task, run.steps(at)) == agrees
                checked += 1
    assert checked == 400


@needs_records
def test_the_votes_of_writing_are_those_of_the_log(logs):
    for run, entry in zip(logs["writing"], raw("writing"), strict=True):
        for depth, step in enumerate(entry["steps"], 1):
            nodes = [node for node in run.tree if node.depth == depth]
            assert [node.raw for node in nodes] == step["values"]
            assert [node.score for node in nodes] == [votes / 5 for votes in step["values"]]
            assert all(node.samples.count(1.0) == node.raw and len(node.samples) == 5 for node in nodes)
        whole = run.calls_df().reply[5:].tolist()
        assert [entry["steps"][1]["ys"][0] + text for text in whole] == entry["steps"][1]["new_ys"]
        assert run.answer in entry["ys"][0]
    graded = [run.grade for run in logs["writing"] if run.grade is not None]
    assert len(graded) == 19  # the sentences of one cannot be told apart


@needs_records
@each_log
def test_no_model_call_of_a_log_can_be_taken_for_another_s(logs, name):
    """It holds no prompt, so it is no source of answers but for its own task."""
    run = logs[name][0]
    assert run.strategy is None
    with pytest.raises(LookupError, match="not made by a strategy"):
        wait(run.replay())


@pytest.mark.parametrize("log", [GAME24, CROSSWORD], ids=["game24", "crossword"])
@pytest.mark.parametrize("unit", ["calls", "tokens", "cost"])
def test_a_log_has_no_points_and_no_cost_and_says_what_it_lacks(small, log, unit):
    """Of its calls the evaluations are missing, so a count of what is there would be none of calls."""
    runs = small(log)
    lacks = rf"Run {runs[0].id} \(published ToT-.FS.*not made by a strategy.*Its prompts.*calls"
    for asked in (
        lambda: tl.stats.anytime_performance(runs, unit=unit),
        lambda: tl.stats.at_matched_cost(runs, 10, unit=unit),
    ):
        with pytest.raises(LookupError, match=lacks):
            asked()
    with pytest.raises(ValueError, match=rf"got 1 rows, 1 with a grade and 0 with '{unit}'\. A published"):
        tl.stats.pareto_frontier(runs, unit=unit)
    assert tl.stats.success_rates(runs)["runs"].item() == 1


def test_standing_is_what_the_value_prompt_showed():
    assert log_state(HAND, [FIRST[0]]) == "3 3 4"
    assert log_state(HAND, [*FIRST, "Answer: (1 + 2) * 4 = 12"]) == f"{HAND} | (1 + 2) * 4 = 12"


def test_several_runs_are_a_table():
    runs = [made(tl.OneAnswer(), repeat=k) for k in range(3)] + [made(tl.ChainOfThought())]
    rates = tl.stats.success_rates(runs)
    assert rates.setting.tolist() == ["OneAnswer", "ChainOfThought"]
    assert rates.runs.tolist() == [3, 1]
    assert tl.stats.compare(runs, "OneAnswer", "ChainOfThought").tasks == 1
    assert tl.figures.plot_pareto(runs).data
    with pytest.raises(TypeError, match="await"):
        tl.stats.success_rates(3)
    with pytest.raises(TypeError, match="several runs"):
        tl.stats.success_rates([3])
