"""The mini crossword: a grid kept to the letter, forgiving reading, and the scores of the paper."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Scripted, run, wait

import tot_lab as tl
from tot_lab.domains.mini_crossword import NAMES, MiniCrossword, letters_of
from tot_lab.domains.mini_crossword.puzzles import puzzles

TASK = tl.domains.mini_crossword(3)
GAME = TASK.domain
assert isinstance(GAME, MiniCrossword)
ROWS = "thumb rural amino panic sneak"
WORDS = dict(zip(NAMES, puzzles()[2].words, strict=True))
FULL = [f"{name}. {WORDS[name]}" for name in NAMES[:5]]
CLUES = [f"clue {k}" for k in range(10)]


# Puzzles.


def test_the_puzzles_are_word_squares_of_ten_words_with_clues_of_their_own() -> None:
    known = puzzles()
    assert len(known) >= 20
    assert len({puzzle.rows for puzzle in known}) == len(known)
    for puzzle in known:
        assert len(set(puzzle.words)) == 10
        assert all(len(word) == 5 and word.isascii() and word.islower() for word in puzzle.words)
        assert len(puzzle.clues) == 10
        for word, clue in zip(puzzle.words, puzzle.clues, strict=True):
            assert word not in clue.lower()
    clues = [clue for puzzle in known for clue in puzzle.clues]
    assert len(set(clues)) == len(clues)


def test_the_words_down_are_written_down_as_they_cross() -> None:
    """The word before each clue in the file is the word that the grid has there."""
    text = files("tot_lab.domains.mini_crossword").joinpath("puzzles.txt").read_text("utf-8")
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    assert [tuple(line.partition(":")[0] for line in block) for block in blocks] == [
        puzzle.words for puzzle in puzzles()
    ]


def test_a_task_is_a_number_or_ten_clues() -> None:
    assert TASK.reference == ROWS
    assert TASK.question.splitlines()[6] == "v2. You, but not your dog"
    assert [task.id for task in tl.domains.mini_crossword_tasks(2)] == ["puzzle 1", "puzzle 2"]
    assert len(tl.domains.mini_crossword_tasks(24)) == 24
    own = tl.domains.mini_crossword(CLUES, answer="THUMB / rural / amino / panic / sneak")
    assert own.reference == ROWS
    assert own.question.splitlines()[5] == "v1. clue 5"
    assert tl.domains.mini_crossword(CLUES).reference is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (((0,), {}), "number from 1 to 24"),
        (((25,), {}), "number from 1 to 24"),
        (((True,), {}), "number from 1 to 24"),
        (((1,), {"answer": ROWS}), "your own clues"),
        ((("one clue",), {}), "ten clues"),
        ((([*CLUES, "more"],), {}), "ten clues.*got 11"),
        ((([*CLUES[:9], " "],), {}), "ten clues"),
        (((CLUES,), {"answer": "thumb rural"}), "five words of five letters"),
        (((CLUES,), {"answer": "_____ rural amino panic sneak"}), "five words of five letters"),
    ],
)
def test_what_is_no_puzzle_is_refused(arguments: Any, problem: str) -> None:
    positional, named = arguments
    with pytest.raises(ValueError, match=problem):
        tl.domains.mini_crossword(*positional, **named)


@pytest.mark.parametrize("count", [0, 25])
def test_a_count_that_is_not_there_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 24"):
        tl.domains.mini_crossword_tasks(count)


# Reading.


@pytest.mark.parametrize(
    "line",
    [
        "h1. thumb (certain)",
        "H1. THUMB (certain)",
        "- **h1.** thumb (**certain**) because it fits",
        "1. h1: thumb - certain",
        "h1. t h u m b (certain)",
        "h1. Short finger that a hitchhiker sticks out: thumb (certain)",
        "| h1 | thumb | certain |",
        "h1 → thumb (certain, as high as can be)",
        '{"clue": "h1", "word": "Thumb", "confidence": "certain"}',
        '```json\n{"words": [{"clue": "h1", "word": "thumb", "confidence": "certain"}]}\n```',
        "Let me think of fingers.\n\nh1. thumb (certain)",
    ],
)
def test_a_step_is_read_in_any_of_its_forms(line: str) -> None:
    step = "h1. thumb (grid: thumb _____ _____ _____ _____)"
    assert GAME.read_proposals(TASK, [], line) == [step]
    assert GAME.read_sample(TASK, [], line) == step
    assert GAME.read_sample(TASK, [], step) == step  # its own form reads back as itself


@pytest.mark.parametrize(
    "line",
    ["", "none", "h6. thumb (high)", "thumb (high)", "h1. short finger (high)", "h1.", "h12. thumb (high)",
     "h1. thümb (high)", "h0. plumb (medium)", '{"clue": "x9", "word": "thumb"}', '{"words": "thumb"}'],
)  # fmt: skip
def test_what_names_no_clue_and_word_is_no_step(line: str) -> None:
    assert GAME.read_proposals(TASK, [], line) == []
    assert GAME.dropped(TASK, [], line) == []


def test_proposals_go_by_confidence_summed_up() -> None:
    reply = "h1. thumb (low)\nh2. rural (high)\n" + 3 * "h3. amino (medium)\n" + "h4. panic"
    assert [step[:9] for step in GAME.read_proposals(TASK, [], reply)] == [
        "h3. amino",  # 0.2 three times is above 0.5
        "h2. rural",
        "h1. thumb",
        "h4. panic",
    ]


def test_confidence_is_summed_up_over_replies_too() -> None:
    replies = ["h1. thumb (high)\nh2. rural (low)", "none", "h2. rural (high)", "{}", "h2. panic (certain)"]
    assert [step[:9] for step in GAME.pool_proposals(TASK, [], replies)] == [
        "h2. panic",  # 1.0
        "h2. rural",  # 0.1 + 0.5
        "h1. thumb",  # 0.5
    ]
    for reply in replies:
        assert GAME.pool_proposals(TASK, [], [reply]) == GAME.read_proposals(TASK, [], reply)
    assert GAME.pool_proposals(TASK, ["what?"], replies) == []


def test_what_breaks_the_rules_is_dropped_and_said() -> None:
    path = ["h2. rural"]
    reply = "h1. thumbs (high)\nv1. apple (certain)\nh2. rural (certain)\nv1. traps (low)"
    assert GAME.read_proposals(TASK, path, reply) == ["v1. traps (grid: t____ rural a____ p____ s____)"]
    assert GAME.dropped(TASK, path, reply) == [
        ("h1. thumbs (high)", "'thumbs' does not have five letters"),
        ("v1. apple (certain)", "'apple' contradicts '_r___'"),
        ("h2. rural (certain)", "h2 is filled"),
    ]
    lost = ["h1. thumb", "v1. apple"]
    assert GAME.read_proposals(TASK, lost, reply) == []
    assert {reason for _, reason in GAME.dropped(TASK, lost, reply)} == {"unclear from the steps"}


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("h1: sure\nv1: maybe", 1.0),
        ("h1: sure\nv1: impossible", 0.0),
        ("h1: s c _ _ _ may be scarf, sure\n- **v1**: Impossible.", 0.0),
        ("v1: impossible? No:\nv1: maybe", 1.0),
        ("h1: sure or maybe\nh2: sure", None),
        ("h1: sure or maybe\nh2: impossible", 0.0),
        ("All in all:\nimpossible", 0.0),
        ("sure", 1.0),
        ("h1: no idea", None),
        ("v0: maybe\nh1: impossible", 0.0),
        ("", None),
    ],
)
def test_a_state_is_worth_its_worst_clue(reply: str, value: float | None) -> None:
    assert GAME.read_value(reply) == value


@pytest.mark.parametrize(
    "reply",
    [
        f"Answer: {ROWS}",
        "**Answer:** Thumb, Rural, Amino, Panic, Sneak",
        "I think of fingers first.\nAnswer:\nthumb\nrural\namino\npanic\nsneak",
        "T H U M B\nR U R A L\nA M I N O\nP A N I C\nS N E A K",
        "The rows:\n\nh1. thumb\nh2. rural\nh3. amino\nh4. panic\nh5. sneak",
        "1. thumb\n2. rural\n3. amino\n4. panic\n5. sneak",
    ],
)
def test_an_answer_is_read_in_any_of_its_forms(reply: str) -> None:
    assert GAME.read_answer(TASK, reply) == ROWS


@pytest.mark.parametrize("reply", ["", "Answer: thumb rural", "Answer: thumbs rural amino panic sneak", "no"])
def test_what_is_no_grid_is_no_answer(reply: str) -> None:
    assert GAME.read_answer(TASK, reply) is None


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(["h1", "v1", ".", ":", " ", "(", "high", "thumb", "grid:", "_", "a ", "\n", "sure"])
    )
)
def test_no_text_breaks_the_readers(parts: list[str]) -> None:
    text = "".join(parts)
    for step in GAME.read_proposals(TASK, [], text):
        assert GAME.complete(TASK, [step]) is False
    GAME.dropped(TASK, [], text)
    GAME.read_value(text)
    GAME.read_answer(TASK, text)
    assert 0 <= (GAME.grade(TASK, text) or 0.0) <= 1


# States.


def test_the_grid_grows_and_is_full_at_the_end() -> None:
    assert GAME.state(TASK, []) == "_____ _____ _____ _____ _____"
    assert GAME.state(TASK, ["v5. block"]) == "____b ____l ____o ____c ____k"
    assert GAME.state(TASK, FULL) == ROWS
    assert [GAME.complete(TASK, FULL[:k]) for k in range(6)] == [False] * 5 + [True]
    assert GAME.answer(TASK, FULL) == ROWS
    assert GAME.answer(TASK, FULL[:4]) is None
    assert GAME.state(TASK, FULL[::-1]) == GAME.state(TASK, [f"{n}. {WORDS[n]}" for n in NAMES[5:]]) == ROWS


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.permutations(NAMES), st.integers(0, 10))
def test_right_words_lead_on_and_a_wrong_one_does_not(order: list[str], count: int) -> None:
    path: list[str] = []
    for name in order[:count]:
        path += GAME.read_proposals(TASK, path, f"{name}. {WORDS[name]} (high)")  # nothing once it is filled
    assert GAME.solvable(TASK, path)
    assert len(set(path)) == len(path) <= 9
    open_clues = [
        name for name in NAMES if "_" in letters_of(str(GAME.state(TASK, path)).replace(" ", ""), name)
    ]
    for name in open_clues:
        there = letters_of(str(GAME.state(TASK, path)).replace(" ", ""), name)
        wrong = "".join("z" if letter == "_" else letter for letter in there)
        (step,) = GAME.read_proposals(TASK, path, f"{name}. {wrong}")
        assert GAME.solvable(TASK, [*path, step]) is False


def test_a_path_that_contradicts_itself_is_not_known() -> None:
    for path in (["h1. thumb", "v1. apple"], ["what?"], ["h1. thumbs"]):
        assert GAME.state(TASK, path) is None
        assert GAME.complete(TASK, path) is None
        assert GAME.solvable(TASK, path) is None
        assert GAME.answer(TASK, path) is None
        assert "unclear" in GAME.value_prompt(TASK, path)


def test_a_stated_answer_is_an_answer() -> None:
    assert GAME.complete(TASK, [f"Answer: {ROWS}"]) is True
    assert GAME.answer(TASK, [f"Answer: {ROWS}"]) == ROWS
    assert GAME.solvable(TASK, [f"Answer: {ROWS}"]) is True
    assert GAME.solvable(TASK, ["Answer: _____ rural amino panic sneak"]) is False
    assert "h1: t h u m b" in GAME.value_prompt(TASK, [f"Answer: {ROWS}"])


def test_without_a_solution_nothing_is_graded() -> None:
    own = tl.domains.mini_crossword(CLUES)
    assert tl.domains.mini_crossword_scores(own, ROWS) is None
    assert own.grade(ROWS) is None
    assert GAME.solvable(own, FULL) is None
    assert GAME.solvable(TASK.hidden(), FULL) is None


@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        (ROWS, (1.0, 1.0, 1.0)),
        ("THUMB RURAL AMINO PANIC SNEAK", (1.0, 1.0, 1.0)),
        ("thumb _____ _____ _____ _____", (0.1, 0.2, 0.0)),
        ("h1. thumb (grid: thumb rural _____ _____ _____)", (0.2, 0.4, 0.0)),
        ("thumb rural amino panic sneaz", (0.8, 0.96, 0.0)),
        ("nothing", (0.0, 0.0, 0.0)),
    ],
)
def test_words_letters_and_the_game(answer: str, scores: tuple[float, float, float]) -> None:
    assert tl.domains.mini_crossword_scores(TASK, answer) == pytest.approx(scores)
    assert TASK.grade(answer) == pytest.approx(scores[0])


def test_answers_are_the_same_by_their_grids() -> None:
    assert GAME.same(TASK, ROWS) == GAME.same(TASK, "Thumb, rural, amino, panic, sneak")
    assert GAME.same(TASK, ROWS) != GAME.same(TASK, "thumb _____ _____ _____ _____")
    assert GAME.same(TASK, "No") == GAME.same(TASK, " no ")


# Prompts.


def test_letters_stand_apart_and_only_clues_with_two_are_judged() -> None:
    prompt = GAME.value_prompt(TASK, ["h2. rural", "h3. amino"])
    assert "h1: _ _ _ _ _\nh2: r u r a l\nh3: _ _ _ _ _" in prompt  # the letters before the last word
    judged = prompt.rpartition("\n\n")[2]
    assert "h1: " not in judged
    assert "v4: _ a n _ _" in judged
    assert GAME.value_prompt(TASK, []).rpartition("\n\n")[2].count(": _ _ _ _ _") == 10


def test_a_clue_with_two_letters_is_a_part_and_shown_alone() -> None:
    for path, names in (
        ([], []),
        (["what?"], []),
        (["h2. rural"], ["h2"]),
        (["h2. rural", "v1. traps"], ["h2", "v1"]),
        (["h2. rural", "h3. amino"], ["h2", "h3", "v1", "v2", "v3", "v4", "v5"]),
        (FULL, list(NAMES)),
    ):
        prompts = GAME.part_prompts(TASK, path)
        assert [prompt.partition("Clue:\n")[2][:2] for prompt in prompts] == names
        assert len(prompts) <= GAME.max_parts(TASK) == 10
    one = GAME.part_prompts(TASK, ["h2. rural", "h3. amino"])[3]
    assert one.endswith("\n\nClue:\nv2. You, but not your dog\nLetters so far:\nv2: _ u m _ _")
    assert one in GAME.part_prompts(TASK, ["h2. rural", "h3. amino", "v5. block"])
    told = TASK.model_copy(update={"context": "an earlier lesson"})
    assert all("an earlier lesson" in prompt for prompt in GAME.part_prompts(told, FULL))


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("sure", 1.0),
        ("h1: human? maybe.\n**Impossible**", 0.0),
        ("v2: maybe", 1.0),
        ("sure or maybe", None),
        ("no idea", None),
    ],
)
def test_the_last_verdict_on_a_part_counts(reply: str, value: float | None) -> None:
    assert GAME.read_part(reply) == value


def test_a_full_grid_asks_for_nothing() -> None:
    assert "full" in GAME.sample_prompt(TASK, FULL).rpartition("\n\n")[2]
    assert "full" in GAME.propose_prompt(TASK, FULL, 3).rpartition("\n\n")[2]


@pytest.mark.slow
def test_a_schema_lists_the_clues_that_are_open() -> None:
    import jsonschema

    task = tl.domains.mini_crossword(3, structured=True)
    sample = task.domain.response_format("sample", task, FULL[:4])
    assert sample is not None
    assert sample["properties"]["clue"]["enum"] == ["h5", "v1", "v2", "v3", "v4", "v5"]
    propose = task.domain.response_format("propose", task, [])
    assert propose is not None
    reply = {"words": [{"clue": "h1", "word": "thumb", "confidence": "low"}]}
    jsonschema.validate(reply, propose)
    assert len(task.domain.read_proposals(task, [], json.dumps(reply))) == 1
    for kind, path in (("value", []), ("sample", FULL), ("sample", ["what?"])):
        assert task.domain.response_format(kind, task, path) is None
    assert GAME.response_format("propose", TASK, []) is None


# The search.


def test_the_search_of_the_paper() -> None:
    """Deepest first by the proposer's confidence in eight replies; each clue judged by itself; what is
    impossible is not entered; the first of the deepest grids is the answer."""
    replies = {
        (): "h1. thumb (high)\nh2. rurax (medium)\nh3. amino (low)\nh4. panic (low)",
        ("h1. thumb",): "v1. trays (high)\nv1. traps (medium)",
        ("h1. thumb", "v1. traps"): "v5. block (high)",
    }

    def reply(call: tl.Call) -> str:
        if call.purpose == "part":
            return "impossible" if "r u r a x" in call.prompt or "v1: t r a y s" in call.prompt else "maybe"
        if call.sample_index > 4:
            return "h5. sneak (certain)" if call.sample_index == 5 and call.node == "0" else "none"
        steps = [line[3:12] for line in call.prompt.split("\n") if "(grid:" in line]
        return replies.get(tuple(steps), "none")

    model = Scripted(reply)
    got = run(tl.presets.mini_crossword(), TASK, model)
    assert [node.text[:9] for node in got.tree][1:] == [
        "h1. thumb", "h2. rurax", "h5. sneak", "v1. trays", "v1. traps", "v5. block"
    ]  # fmt: skip
    pruned = {node.text[:9]: node.reason for node in got.tree if node.state == "pruned"}
    assert pruned == {"h2. rurax": "prune_below", "v1. trays": "prune_below"}
    assert got.answer == "v5. block (grid: thumb r___l a___o p___c s___k)"
    assert tl.domains.mini_crossword_scores(TASK, got.answer) == pytest.approx((0.3, 13 / 25, 0.0))
    asked = [call for call in model.calls if call.purpose == "propose"]
    assert len(asked) == 5 * 8  # the root, and each state that is not impossible
    judged = {
        call.prompt.partition("Clue:\n")[2][:2]
        for call in model.calls
        if (call.node, call.purpose) == ("0.0.1.0", "part")
    }
    assert judged == {"h1", "v1", "v5", "h2", "h3", "h4", "h5"}


@pytest.mark.slow
def test_the_preset_keeps_to_a_hundred_states() -> None:
    search = tl.presets.mini_crossword()
    assert (search.propose.count, search.stop.depth, search.stop.nodes) == (3, 10, 101)
    assert (search.search, search.answer) == (tl.DepthFirst(prune_below=0.5), tl.answers.Deepest())
    assert (search.propose.samples, search.evaluate) == (8, tl.evaluators.Parts())
    assert search.max_calls(TASK) == 101 * (8 + 3 * 10)
    got = run(search, TASK, tl.sim.SimMiniCrossword(noise=0, sight=0))
    assert len(got.tree) <= 101
    assert got.stop_reason == "limit:nodes"


def test_equal_grids_are_merged() -> None:
    words = "\n".join(f"{name}. {WORDS[name]} (certain)" for name in ("h1", "h2"))
    search = tl.TreeOfThoughts(
        propose="propose", search=tl.BeamSearch(width=None), stop=tl.Stop(depth=2), merge=True
    )
    got = run(search, TASK, Scripted(lambda call: words if call.purpose == "propose" else "sure"))
    (merged,) = [node for node in got.tree if node.state == "merged"]
    assert merged.text == "h1. thumb (grid: thumb rural _____ _____ _____)"


def test_a_search_by_its_defaults_answers_with_the_full_grid() -> None:
    search = tl.TreeOfThoughts(propose="propose", search="depth_first", stop=tl.Stop(depth=10, solved=1.0))
    lab = tl.Lab(tl.sim.SimMiniCrossword(skill=1, sight=1, noise=0), runs=None)
    got = wait(lab.run(search, TASK))
    assert (got.answer, got.correct, got.stop_reason) == (ROWS, True, "solved")  # type: ignore[attr-defined]
