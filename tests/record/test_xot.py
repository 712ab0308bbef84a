"""The logs of Everything of Thoughts as runs, and the rules of their puzzles.

The logs themselves are read where they lie beside the project; small ones of the same form are made here.
"""

import json
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from support import ROOT, wait

import tot_lab as tl
from tot_lab.domains.published_puzzles import (
    CUBE_MOVES,
    SOLVED_CUBE,
    PublishedCube,
    published_cube,
    published_npuzzle,
)
from tot_lab.strategies.search import Propose

RECORDS = ROOT.parent / "shared" / "data" / "xot"

# Small logs. The hand is 1 2 3 4.

ADD, TIMES, LESS = "1 + 2 = 3 (left: 3 3 4)", "2 * 4 = 8 (left: 1 3 8)", "3 - 1 = 2 (left: 2 2 4)"
RIGHT = "Answer: 2 * 4 * 3 * 1 = 24"
WRONG = "Answer: 1 + 2 + 3 + 4 = 24"


def level(step, ys, new_ys, kept, **judged):
    return {"step": step, "x": "[1 2 3 4]", "ys": ys, "new_ys": new_ys, **judged, "select_new_ys": kept}


def entry(idx, *levels, answers):
    end = {"step": len(levels), "x": "[1 2 3 4]", "thoughts": levels[-1]["select_new_ys"], "answer": answers}
    infos = [{"r": 0, "revised": None} for _ in answers]  # the authors' verdicts, which are not used
    return {"steps": [*levels, end], "idx": idx, "ys": answers, "infos": infos}


FIRST = level(
    0,
    [""],
    [f"{ADD}\n", f"{TIMES}\n", f"{LESS}\n"],
    [f"{TIMES}\n", f"{ADD}\n"],
    values=[1.0, 20.0, 0.001],
)
SECOND = level(
    1,
    [f"{TIMES}\n", f"{ADD}\n"],
    [f"{TIMES}\n3 * 8 = 24 (left: 1 24)\n", f"{ADD}\n3 + 3 = 6 (left: 4 6)\n"],
    [f"{ADD}\n3 + 3 = 6 (left: 4 6)\n", f"{TIMES}\n3 * 8 = 24 (left: 1 24)\n"],
    values=[1.0, 20.0],
)
TOT = [entry(0, FIRST, SECOND, answers=[f"{WRONG}\n", f"{RIGHT}\n"])]
GOT = [
    entry(
        0,
        {**{k: v for k, v in FIRST.items() if k != "values"}, "select": [2, 1]},
        answers=[f"{WRONG}\n", f"{WRONG}\n"],
    )
]


def with_puzzle(x):
    return json.loads(json.dumps(TOT).replace("[1 2 3 4]", x))


def flat(*replies, r=0):
    return [{"idx": 0, "ys": list(replies), "infos": [{"r": r, "revised": None} for _ in replies]}]


@pytest.fixture
def load(tmp_path):
    def load(log, name="gpt-4_0.0_tot_propose1_value1_greedy2_start0_end1_laststep1.json"):
        path = tmp_path / name
        path.write_text(json.dumps(log))
        return tl.load(path)

    return load


def test_a_search_becomes_thoughts_values_and_decisions(load):
    (run,) = load(TOT)
    tree = run.tree
    texts = [(id, node.text) for id, node in tree.nodes.items()]
    assert texts[:4] == [("0", "1 2 3 4"), ("0.0", ADD), ("0.1", TIMES), ("0.2", LESS)]
    assert dict(texts[4:]) == {
        "0.1.0": "3 * 8 = 24 (left: 1 24)",
        "0.0.0": "3 + 3 = 6 (left: 4 6)",
        "0.0.0.0": WRONG,
        "0.1.0.0": RIGHT,
    }
    assert [(tree[id].state, tree[id].raw) for id in ("0.0", "0.1", "0.2")] == [
        ("kept", 1.0),
        ("kept", 20.0),
        ("pruned", 0.001),
    ]
    assert run.name == "published ToT b=2, Game of 24, gpt-4"
    assert run.header.unknown == ("prompts", "times", "calls")
    assert set(run.calls_df().model) == {"gpt-4"}


def test_success_is_that_of_the_answers_and_not_of_the_verdicts_in_the_log(load):
    (run,) = load(TOT)
    assert (run.answer, run.correct, run.any_of_kept) == ("1 + 2 + 3 + 4", False, True)
    assert run.kept_answers == ["1 + 2 + 3 + 4", "2 * 4 * 3 * 1"]
    (row,) = tl.stats.success_rates([run]).itertuples()
    assert (row.solved, row.first_answer, row.any_of_kept) == (0, 0, 1)
    (wrong,) = load(GOT)
    assert (wrong.correct, wrong.any_of_kept) == (False, None)  # both answers are the same


def test_another_answer_rule_answers_a_recorded_run(load):
    (run,) = load([entry(0, FIRST, answers=[f"{WRONG}\n", f"{RIGHT}\n"])])
    last = run.with_answer(tl.answers.Deepest())
    assert (last.answer, last.correct) == ("1 + 2 + 3 + 4", False)
    three = load(flat(WRONG, RIGHT, RIGHT), "gpt-4_0.0_cot_sample3_multi0_start0_end1.json")[0]
    assert (three.answer, three.correct, three.any_of_kept) == ("1 + 2 + 3 + 4", False, True)
    vote = three.with_answer(tl.answers.MajorityVote())
    assert (vote.answer, vote.correct) == ("2 * 4 * 3 * 1", True)
    assert vote.id != three.id
    assert vote.name == "published CoT ×3, Game of 24, gpt-4, majority_vote (counterfactual)"
    assert len(tl.stats.success_rates([three, vote])) == 2


def test_the_selection_of_a_graph_of_thoughts_has_no_scores(load):
    (run,) = load(GOT)
    assert run.name == "published GoT b=2, Game of 24, gpt-4"
    assert {node.score for node in run.tree} == {None}
    assert [run.tree[id].state for id in ("0.0", "0.1", "0.2")] == ["kept", "kept", "pruned"]


def test_a_graph_of_thoughts_that_selects_nothing_keeps_the_paths(load):
    first = {**{k: v for k, v in FIRST.items() if k != "values"}, "select": [2, 1]}
    second = level(
        1,
        first["select_new_ys"],
        [f"{TIMES}\n3 * 8 = 24 (left: 1 24)\n"],
        first["select_new_ys"][:1],
        select=[],
    )
    (run,) = load([entry(0, first, second, answers=[f"{RIGHT}\n"])])
    assert run.correct
    assert run.tree[run.best.parent].text == TIMES


def test_a_value_of_zero_is_unreadable_and_a_repeated_path_a_duplicate(load):
    log = level(0, [""], [f"{ADD}\n", f"{TIMES}\n", f"{ADD}\n"], [f"{TIMES}\n"], values=[0, 1.0, 0])
    (run,) = load([entry(0, log, answers=[f"{RIGHT}\n"])])
    assert [(node.state, node.unreadable) for node in list(run.tree)[1:4]] == [
        ("pruned", True),
        ("kept", False),
        ("duplicate", False),
    ]


def test_single_answers_get_their_puzzles_from_the_tree_log_beside_them(load):
    load(TOT)
    (run,) = load(flat(RIGHT, r=0), "gpt-4_0.0_io_sample1_multi0_start0_end1.json")
    assert (run.name, run.question, run.correct) == ("published IO, Game of 24, gpt-4", "1 2 3 4", True)
    (run,) = load([{**flat(RIGHT)[0], "model_call": 9}], "other_start0_end1.json")
    assert run.name == "published answers, Game of 24"


def test_the_tree_log_of_the_same_range_names_the_puzzle(load):
    other = with_puzzle("[2 3 4 6]")
    load(TOT)
    load(other, "gpt-4_0.0_tot_propose1_value1_greedy1_start0_end9_laststep1.json")
    assert load(flat(RIGHT), "gpt-4_0.0_io_sample1_multi0_start0_end1.json")[0].question == "1 2 3 4"
    with pytest.warns(UserWarning, match="1 of 1 answers cannot be graded"):  # two puzzles have the number
        (run,) = load(flat(RIGHT), "io.json")
    assert run.correct is None


def test_single_answers_alone_are_read_without_a_grade(load):
    with pytest.warns(UserWarning, match="Put the log of a tree search"):
        (run,) = load(flat(RIGHT), "gpt-4_0.0_io_sample1_multi0_start0_end1.json")
    assert (run.correct, run.question) == (None, "puzzle 0 of a log that does not hold it")
    assert list(run.calls_df().reply) == [RIGHT]


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("gpt-35-turbo-16k_0.0_io_sample1_multi0_start0_end1", "IO, Game of 24, gpt-35-turbo-16k"),
        ("gpt-4_0.7_cot_sample1_multi1_start5_end9", "CoT, Game of 24, gpt-4, temperature 0.7, multi1"),
        ("gpt-4_0.0_xot_multi0_revised1_start0_end1_laststep1", "XoT, Game of 24, gpt-4"),
        (
            "gpt-4_0.0_xot_multi0_revised0_reviseTimes1_start0_end1_laststep0",
            "XoT, Game of 24, gpt-4, revised0, laststep0",
        ),
        (
            "gpt-4_0.0_xot_multi0_revised1_reviseTimes3_start0_end1_laststep1",
            "XoT, Game of 24, gpt-4, reviseTimes3",
        ),
    ],
)
def test_a_run_is_named_after_the_settings_that_differ_between_logs(load, stem, name):
    load(TOT)
    log = [{**flat(RIGHT)[0], "model_call": 3, "model_call_phase1": 2, "model_call_phase2": 1}]
    for revised in (None, False, 2):
        log[0]["infos"] = [{"r": 1, "revised": revised}]
        (run,) = load(log, f"{stem}.json")
        assert (run.name, run.correct) == (f"published {name}", True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer:\n(1 + 3) * (2 + 4) = 24", "(1 + 3) * (2 + 4)"),
        ("Steps:\n1 + 3 = 4 (left: 2 4 4)\n(1 + 3) * (2 + 4) = 24", "(1 + 3) * (2 + 4)"),
        ("1 + 2 = 3 (left: 3 3 4)", ""),
        ("1 2 3 4", ""),
        ("I cannot.", ""),
    ],
)
def test_an_answer_needs_no_heading_on_its_line(load, text, answer):
    load(TOT)
    (run,) = load(flat(text), "gpt-4_0.0_io_sample1_multi0_start0_end1.json")
    assert (run.answer, run.correct) == (answer, bool(answer))


@pytest.mark.parametrize(
    ("text", "grades"),
    [
        ("Answer 1:\n1 + 2 = 3\nAnswer 2:\n(1 + 3) * (2 + 4) = 24", [0.0, 1.0]),
        ("Answer 1: 1 + 2 = 3\nAnswer 2: (1 + 3) * (2 + 4) = 24", [0.0, 1.0]),
        (f"[Solution]\nSteps:\n{ADD}\n{RIGHT}\n[Solution]\n{WRONG}", [1.0, 0.0]),
    ],
)
def test_several_solutions_in_one_reply_are_several_answers(load, text, grades):
    load(TOT)
    log = [{**flat(text)[0], "infos": [{"r": {"r0": {"r": 1}, "r1": {"r": 1}}}]}]
    (run,) = load(log, "gpt-4_0.0_io_sample1_multi1_start0_end1.json")
    assert run.grades(run.kept_answers) == grades
    assert (run.correct, run.any_of_kept) == (grades[0] == 1.0, True)
    (single,) = load(flat(text), "gpt-4_0.0_io_sample1_multi0_start0_end1.json")
    assert single.any_of_kept is None
    assert single.correct == (grades[-1] == 1.0)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ([TOT[0], {"steps": 3, "ys": []}], r"entry 1: .*\$\.steps"),
        ([entry(0, {**FIRST, "values": [1.0]}, answers=[])], "entry 0: step 0 has 3 candidates and 1 values"),
        (
            [entry(0, {**FIRST, "values": [0.4005, 1, 1]}, answers=["a", "b"])],
            "0.4005 is no sum of the values",
        ),
        ([entry(0, {**FIRST, "ys": ["x\n"]}, answers=["a", "b"])], "entry 0: step 0: .* continues none"),
        (
            [entry(0, {**FIRST, "select_new_ys": ["x\n"]}, answers=["a"])],
            "entry 0: step 0: .*x.* never proposed",
        ),
        ([entry(0, FIRST, answers=["a"])], "entry 0: step 1 has 2 thoughts and 1 answers"),
        (
            with_puzzle("[1 2 3]"),
            "entry 0: a puzzle must have 4, 9 or 24",
        ),
        (with_puzzle("[1 2 3 99]"), "entry 0: a hand must be four"),
    ],
)
def test_a_damaged_log_is_named_with_its_entry(load, log, said):
    with pytest.raises(tl.errors.JournalError, match=rf"(?s)greedy2_start0_end1_laststep1\.json.*{said}"):
        load(log)


@pytest.mark.parametrize("strategy", [tl.OneAnswer(), tl.TreeOfThoughts()])
@pytest.mark.parametrize("puzzle", ["[3 1 2 6 4 5 7 0 8]", str([*SOLVED_CUBE]).replace(",", "")])
def test_a_search_whose_prompts_no_log_answers_lacks_its_first_call(load, puzzle, strategy):
    (run,) = load(with_puzzle(puzzle))
    would = tl.counterfactual(run, strategy)
    assert would.solved is None
    assert would.first_lack.purpose in ("sample", "answer")


@pytest.mark.slow
def test_recorded_runs_and_runs_of_this_project_are_compared_on_one_puzzle(load):
    own = wait(tl.Lab(tl.sim.SimGame24(skill=1.0)).run(tl.OneAnswer(), tl.game24("1 2 3 4")))
    (row,) = tl.stats.compare_all([own, *load(TOT)]).itertuples()
    assert (row.b, row.tasks, row.a_only) == ("published ToT b=2, Game of 24, gpt-4", 1, int(own.correct))


def test_another_beam_on_the_recorded_replies(load):
    (run,) = load(TOT)
    strategy = tl.TreeOfThoughts(
        propose=Propose(count=3),
        evaluate=tl.Value(samples=1),
        search=tl.BeamSearch(width=2),
        stop=tl.Stop(depth=2, solved=None),
    )
    would = tl.counterfactual(run, strategy)
    assert would.whole
    kept = [node.text for node in would.run.tree if node.depth == 1 and node.state == "kept"]
    assert kept == [ADD, TIMES]
    with_width_3 = strategy.model_copy(update={"search": tl.BeamSearch(width=3)})
    assert not tl.counterfactual(run, with_width_3).whole  # the log has no children of the third


def test_the_evaluator_of_a_log_is_judged(load):
    (run,) = load(TOT)
    thoughts = tl.stats.judge_evaluator([run]).thoughts
    assert dict(zip(thoughts.node, thoughts.solvable, strict=True))["0.1"]


# The 8-puzzle.


@pytest.mark.parametrize(
    ("moves", "grade"),
    [
        ("Left, Up, Up", 1.0),
        ("Left Up Up", 1.0),
        ("Left, Up", 0.0),
        ("Left, Up, Up, Right, Left", 1.0),
        ("Down, Left, Up, Up", 0.0),  # there is no row below, and an illegal move is not skipped
        ("Left, Up, Up, Finished", 0.0),
        ("", 0.0),
    ],
)
def test_every_move_of_the_empty_square_must_be_legal(moves, grade):
    assert published_npuzzle("[3 1 2 6 4 5 7 0 8]").grade(moves) == grade


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (["Left", "[Moves]:\nUp, Up"], "Up, Up"),
        (["1. Moves: Left, Up"], "Left, Up"),
        (["1. Moves:\nLeft, Up"], "Left, Up"),
        (["[Solution 1]:\nLeft, Up\n[Solution 2]: Up, Up"], "Up, Up"),
        (["[Solution 1]:\nMove: Left\n1. Moves: Up, Up\n[Solution 2]:\nFinished."], "Up, Up"),
        (["Left, Up"], "Left, Up"),
        (["Left", "Up, Up"], "Up, Up"),
        (["Left, then Up"], None),
        (["Left", "Up", "Up"], "Left Up Up"),
        (["Left", "Up"], None),
        (["I do not know"], None),
    ],
)
def test_the_answer_of_a_path_of_moves(path, answer):
    task = published_npuzzle("3 1 2 6 4 5 7 0 8")
    assert task.domain.answer(task, path) == answer


def test_a_puzzle_is_solvable_within_the_moves_that_are_left():
    task = published_npuzzle("3 1 2 6 4 5 7 0 8", limit=4)  # three moves away
    solvable = task.domain.solvable
    assert solvable(task, [])
    assert solvable(task, ["Left"])
    assert not solvable(task, ["Right"])  # four moves away, three left
    assert not solvable(task, ["Down"])
    assert solvable(task, ["[Moves]: Left, Up, Up"])
    assert not solvable(task, ["[Moves]: Left, Up"])


@pytest.mark.parametrize("numbers", ["1 2 3", "1 1 2 3 4 5 6 7 8", "1 2 3 4 5 6 7 8 9"])
def test_an_8_puzzle_holds_each_number_once(numbers):
    with pytest.raises(ValueError, match="An 8-puzzle must contain"):
        published_npuzzle(numbers)


# The cube. Identities of the group are the authority: a wrong sticker breaks at least one of them.


def turned(moves, state=SOLVED_CUBE):
    cube = PublishedCube()
    for move in moves.split():
        state = cube.after(state, move)
        assert state is not None
    return state


@pytest.mark.parametrize(
    ("moves", "times"),
    [
        *((move, 4) for move in "URFDLBxyz"),
        *((f"{move} {move}'", 1) for move in "URFDLBxyz"),
        *((f"{move} {move} {move}2", 1) for move in "URFDLBxyz"),
        ("R U R' U'", 6),
        ("U D'", 4),
        ("R L R' L'", 1),  # opposite faces commute
        ("R U' R U R U R U' R' U' R2", 3),  # a three-cycle of edges, of which a 2x2 has none
        ("R U R' D R U' R' D'", 3),  # a three-cycle of corners
        ("x y x' z'", 1),
        ("R L' x'", 1),  # turning two opposite faces alike turns the 2x2 cube
    ],
)
def test_the_cube_obeys_the_identities_of_its_group(moves, times):
    scrambled = turned("R U2 F' D L B2")
    assert turned(" ".join([moves] * times), scrambled) == scrambled


def test_a_clockwise_turn_of_the_upper_face_takes_front_stickers_to_the_left():
    state = turned("U")
    names = dict(zip("URFDLB", range(6), strict=True))
    assert state[16:20] == (names["F"], names["F"], names["L"], names["L"])
    state = turned("R")
    assert state[0:4] == (names["U"], names["F"], names["U"], names["F"])


def test_there_are_27_moves_and_each_is_a_permutation():
    assert len(CUBE_MOVES) == 27
    assert all(sorted(places) == list(range(24)) for places in CUBE_MOVES.values())


def test_a_cube_is_solved_however_it_is_held():
    task = published_cube(" ".join(map(str, turned("F R U2 x y2"))))
    assert task.grade("y2 x' U2 R' F'") == 1.0
    assert task.grade("y2 x' U2 R'") == 0.0
    assert task.grade("y2 x' U2 R' F' and done") == 0.0


@pytest.mark.parametrize("moves", ["R", "F R U2", "U R2 F' R", "D L B'", "x R U F2 y"])
def test_the_distance_of_a_cube_counts_turns_of_any_face(moves):
    turns = [move for move in moves.split() if move[0] not in "xyz"]
    state = turned(moves)
    cube = PublishedCube()
    assert cube.solvable_within(state, len(turns))
    assert not cube.solvable_within(state, len(turns) - 1)


def test_longer_distances_of_a_cube_are_found_from_both_ends():
    state, cube = turned("R U F R2 U' F"), PublishedCube()
    near = [cube.solvable_within(state, moves) for moves in range(8)]
    assert near[6]
    assert near[7]
    assert all(after or not before for before, after in pairwise(near))
    assert not any(near[:4])


def test_the_answer_of_a_cube_may_have_several_lines():
    task = published_cube(" ".join(map(str, turned("F R"))))
    assert task.domain.answer(task, ["R'\nF'\n"]) == "R'\nF'"
    assert task.domain.answer(task, ["1. Restoration Moves:\nR' F'"]) == "R' F'"
    assert task.domain.answer(task, ["[Restoration Moves]:\nR'\nF'\n"]) == "R'\nF'"
    assert task.grade("R'\nF'") == 1.0


# Files of unknown formats.


def test_an_unknown_file_is_refused_with_what_each_importer_expects(tmp_path):
    for name, text in {"a.json": '{"hello": 1}\n', "c.json": "[1, 2]\n"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(tl.errors.JournalError, match=re.escape(str(tmp_path / name))) as raised:
            tl.load(tmp_path / name)
        said = str(raised.value)
        assert "No importer recognises the file: journal expects a first line" in said
        assert "xot expects a JSON list of entries" in said
        assert "princeton_tot expects" in said
        assert said.endswith("tl.read_nodes makes a run of a table of nodes.")


def test_a_reply_has_the_position_of_its_call_and_every_other_record_its_own(tmp_path):
    """A level of 3,000 candidates has more than 9,000 records."""
    texts = [f"1 + 2 = 3 (left: 3 3 4) {k}\n" for k in range(3000)]
    wide = level(0, [""], texts, texts[:2], values=[1.0] * 3000)
    (tmp_path / "a.json").write_text(json.dumps([entry(0, wide, answers=[WRONG, RIGHT])]))
    [run] = tl.load(tmp_path / "a.json")
    assert len(run.lines) > 9000
    for number, line in enumerate(run.lines):
        assert line.p == (number - isinstance(line.e, tl.Reply),)
    again = tl.load(run.save(tmp_path / "a.jsonl"))
    assert again.lines == run.lines


# The logs themselves.


@pytest.mark.proof
@pytest.mark.skipif(not RECORDS.is_dir(), reason=f"the published logs are not at {RECORDS}")
def test_the_published_numbers():
    command = [sys.executable, str(ROOT / "benchmarks" / "published_xot.py"), str(RECORDS)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    rows = [line.split() for line in printed.splitlines() if "/gpt-4" in line]
    method = re.compile("_(io|cot|tot|got|xot)_")
    found = {(row[0].split("/")[0], method.search(row[0])[1], *row[1:4]) for row in rows}
    assert found == {
        ("game24", "tot", "137", "47", "47"),
        ("game24", "tot", "137", "83", "75"),
        ("game24", "got", "137", "18", "11"),
        ("game24", "cot", "137", "6", "6"),
        ("game24", "io", "137", "14", "14"),
        ("game24", "xot", "137", "102", "102"),
        ("npuzzle", "tot", "119", "4", "4"),
        ("cube", "tot", "183", "21", "21"),
    }
    for row in rows:
        if len(row) > 4:
            equal, decidable = row[4].rstrip(",").split("/")
            assert equal == decidable
