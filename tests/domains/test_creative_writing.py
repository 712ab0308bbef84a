"""Creative writing: a plan and then a passage, endings counted word for word, coherence from 1 to 10."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Scripted, run

import tot_lab as tl
from tot_lab.domains.creative_writing import CreativeWriting
from tot_lab.domains.creative_writing.closing_sentences import closing_sentences

ENDS = ["The cat's gone.", 'He said "no".', "It rained.", "All was well."]
TASK = tl.domains.creative_writing(ENDS)
WRITING = TASK.domain
assert isinstance(WRITING, CreativeWriting)
PASSAGE = "\n\n".join(f"Something happens. {end}" for end in ENDS)


# Tasks.


def test_the_sentences_are_four_to_a_task_and_all_different() -> None:
    known = closing_sentences()
    assert len(known) == 20
    assert all(len(sentences) == 4 for sentences in known)
    every = [sentence for sentences in known for sentence in sentences]
    assert len(set(every)) == 80
    assert all(sentence[0].isupper() and sentence[-1] == "." for sentence in every)


def test_a_task_is_a_number_or_four_sentences() -> None:
    assert TASK.question == '1. The cat\'s gone.\n2. He said "no".\n3. It rained.\n4. All was well.'
    first = tl.domains.creative_writing(1)
    assert first.data["sentences"] == list(closing_sentences()[0])
    assert [task.id for task in tl.domains.creative_writing_tasks(2)] == ["sentences 1", "sentences 2"]
    assert len(tl.domains.creative_writing_tasks(20)) == 20


@pytest.mark.parametrize("sentences", [0, 21, True, "One.", ENDS[:3], [*ENDS, "Five."], [*ENDS[:3], " "]])
def test_what_is_no_task_is_refused(sentences: Any) -> None:
    with pytest.raises(ValueError, match=r"1 to 20|must be four texts"):
        tl.domains.creative_writing(sentences)
    if sentences in (0, 21):
        with pytest.raises(ValueError, match="1 to 20"):
            tl.domains.creative_writing_tasks(sentences)


# The grade.


@pytest.mark.parametrize(
    ("passage", "grade"),
    [
        (PASSAGE, 1.0),
        (PASSAGE.replace("\n\n", "\n"), 1.0),  # a line a paragraph
        (PASSAGE.replace("\n\n", "\n \t\n\n"), 1.0),
        (PASSAGE.replace("cat's", "cat’s").replace('"no"', "“no”"), 1.0),
        (PASSAGE.replace("It rained.", "It\n  rained."), 1.0),
        (PASSAGE.replace("It rained.", "it rained."), 0.75),  # word for word
        (PASSAGE.replace("It rained.", "It rained!"), 0.75),
        (PASSAGE.replace(" It rained.", "It rained."), 1.0),
        (PASSAGE.replace("happens. It rained.", "happens to It rained. Again."), 0.75),
        (PASSAGE + "\n\nAnd so on.", 0.8),
        ("\n\n".join(PASSAGE.split("\n\n")[:2]), 0.5),
        ("\n\n".join(reversed(PASSAGE.split("\n\n"))), 0.0),  # in order
        (PASSAGE.replace("The cat's gone.", "Breathe cat's gone."), 0.75),
        (" ".join(ENDS), 0.0),
        ("", 0.0),
    ],
)
def test_endings_are_counted_word_for_word(passage: str, grade: float) -> None:
    assert TASK.grade(passage) == grade


def test_a_sentence_must_begin_where_a_word_begins() -> None:
    task = tl.domains.creative_writing(["Men go.", "Two.", "Three.", "Four."])
    assert task.grade("WoMen go.\n\nTwo.\n\nThree.\n\nFour.") == 0.75
    assert task.grade("(Men go.\n\nTwo.\n\nThree.\n\nFour.") == 1.0


def test_without_sentences_nothing_is_graded() -> None:
    own = tl.Task(domain=CreativeWriting(), question="Write.")
    assert own.grade(PASSAGE) is None
    assert WRITING.solvable(own, ["a plan", PASSAGE]) is None


# Reading.


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("1. A\n2. B", "1. A\n2. B"),
        ("Plan:\n1. A\n2. B", "1. A\n2. B"),
        ("Here you are.\n\n**Plan:**\n1. A\n\nPassage:\nOnce.", "1. A"),
        ("## Plan\n1. A", "1. A"),
        ("plan: A\nB", "A\nB"),
        ("Passage:\nOnce.", None),
        (" \n", None),
    ],
)
def test_a_plan_is_read_without_what_is_around_it(text: str, plan: str | None) -> None:
    assert WRITING.read_sample(TASK, [], text) == plan


@pytest.mark.parametrize(
    ("text", "passage"),
    [
        ("Once.\n\nTwice.", "Once.\n\nTwice."),
        ("Passage:\nOnce.\n\nTwice.", "Once.\n\nTwice."),
        ("Plan:\n1. A\n\nPassage:\n\nOnce.", "Once."),
        ("Plan:\n1. A", None),
        ("", None),
    ],
)
def test_a_passage_is_read_without_what_is_around_it(text: str, passage: str | None) -> None:
    assert WRITING.read_sample(TASK, ["1. A"], text) == passage


def test_several_are_read_under_their_headings() -> None:
    assert WRITING.read_proposals(TASK, [], "Two of them.\nPlan 1:\nA\nB\n\nPlan 2: C\nPassage 1:\nX") == [
        "A\nB",
        "C",
    ]
    assert WRITING.read_proposals(TASK, ["A"], "Passage 1:\nX\n\nY\n\n**Passage 2:**\nZ") == ["X\n\nY", "Z"]
    assert WRITING.read_proposals(TASK, [], "A alone") == ["A alone"]
    assert WRITING.read_proposals(TASK, [], " ") == []
    assert WRITING.read_proposals(TASK, ["A", PASSAGE], "Passage 1:\nX") == []
    assert WRITING.read_sample(TASK, ["A", PASSAGE], "none") is None


def test_an_answer_is_the_passage() -> None:
    assert WRITING.read_answer(TASK, f"Plan:\n1. A\n\nPassage:\n{PASSAGE}") == PASSAGE
    assert WRITING.read_answer(TASK, f"Answer:\n{PASSAGE}") == PASSAGE
    assert WRITING.read_answer(TASK, PASSAGE) == PASSAGE
    assert WRITING.read_answer(TASK, " ") is None


@pytest.mark.parametrize(
    ("reply", "coherence"),
    [
        ("It hangs together.\nscore: 7/10", 7.0),
        ("score: 10", 10.0),
        ("**Score: 8.5 / 10**", 8.5),
        ("The score is 6 out of 10.", 6.0),
        ("score: 3/10 at first\nscore: 9/10", 9.0),
        ("score: 1", 1.0),
        ("score: 0/10", None),
        ("score: 11", None),
        ("score: 7/100", None),
        ("score: 70%", None),
        ("score: 6-8", None),
        ("score: 0.7", None),
        ("good", None),
    ],
)
def test_coherence_is_read_from_one_to_ten(reply: str, coherence: float | None) -> None:
    assert WRITING.read_coherence(reply) == coherence
    assert WRITING.read_value(reply) == (None if coherence is None else coherence / 10)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["plan", "passage", " 2", ":", "\n", "score", "7/10", " ", "**", "Once.", "#"]))
)
def test_no_text_breaks_the_readers(parts: list[str]) -> None:
    text = "".join(parts)
    for path in ([], ["1. A"]):
        assert WRITING.read_sample(TASK, path, text) != ""
        assert all(WRITING.read_proposals(TASK, path, text))
    assert 0 <= (TASK.grade(text) or 0.0) <= 1
    assert 1 <= (WRITING.read_coherence(text) or 1.0) <= 10


# States and prompts.


def test_a_path_is_a_plan_and_a_passage() -> None:
    assert [WRITING.complete(TASK, path) for path in ([], ["A"], ["A", PASSAGE])] == [False, False, True]
    assert WRITING.answer(TASK, ["A"]) is None
    assert WRITING.answer(TASK, ["A", PASSAGE]) == PASSAGE
    assert WRITING.solvable(TASK, ["A"]) is None
    assert WRITING.solvable(TASK, ["A", PASSAGE]) is True
    assert WRITING.solvable(TASK, ["A", "Nothing."]) is False
    assert WRITING.answer(TASK, [f"Answer: {PASSAGE}"]) == PASSAGE


def test_prompts_ask_for_what_comes_next() -> None:
    assert "plan" in WRITING.sample_prompt(TASK, []).rpartition("\n\n")[2]
    assert "write the passage" in WRITING.sample_prompt(TASK, ["A"]).rpartition("\n\n")[2]
    assert "word none" in WRITING.propose_prompt(TASK, ["A", PASSAGE], 3)
    assert "3 different plans" in WRITING.propose_prompt(TASK, [], 3)
    assert "3 different passages" in WRITING.propose_prompt(TASK, ["A"], 3)
    assert WRITING.value_prompt(TASK, ["A"]).count("Plan:") == 1
    assert "Passage:\nAnswer: X" in WRITING.value_prompt(TASK, ["Answer: X"])  # what `BestOf` asks
    shown = WRITING.vote_prompt(TASK, [["A", "X"], ["A", "Y"]])
    assert shown.count("Plan:\nA") == 1  # all follow it
    assert shown.count("Passage:") == 2
    assert WRITING.vote_prompt(TASK, [["A", "X"], ["B", "Y"]]).count("Plan:") == 2


# The search.


def test_the_search_of_the_paper() -> None:
    """Five plans, five votes; five passages of the plan with the most, five votes."""

    def reply(call: tl.Call) -> str:
        if call.purpose == "vote":
            return f"best: {[2, 3, 2, 1, 2][call.sample_index]}"
        return f"passage {call.sample_index}" if "Plan:" in call.prompt else f"scheme {call.sample_index}"

    model = Scripted(reply)
    search = tl.presets.creative_writing()
    got = run(search, TASK, model)
    assert len(model.calls) == search.max_calls(TASK) == 20
    assert got.answer == "passage 1"
    assert got.steps(got.best.id) == ["scheme 1", "passage 1"]
    assert got.score == 0.6
    assert all("scheme 1" in call.prompt for call in model.calls if call.node.startswith("0.1"))
