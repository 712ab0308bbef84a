"""A journal holds each text once, and a reader of the record does not notice."""

import json
import random

import msgspec
import pytest
from support import GOLDEN, TASK, Scripted, lines_of, resealed, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Decided, Line, Note, Thought
from tot_lab.record.journal import Header, Texts, header_text, lines_text, parse_journal

VOTE = tl.SelfConsistency(attempts=20)


def answer(call):
    return f"It is a long way to {call.attempt}.\nAnswer: 26"


@pytest.fixture
def made(tmp_path):
    return wait(tl.Lab(Scripted(answer), runs=tmp_path / "runs").run(VOTE, TASK))


def test_a_shared_prompt_and_a_thought_that_is_a_reply_are_written_once(made):
    data = made.path.read_bytes()
    assert data.count(b"Think step by step") == 1
    assert [data.count(b"a long way to (%d,)" % k) for k in range(1, 20)] == [1] * 19
    assert data.count(b"another attempt was chosen") == 1
    loaded = tl.load(made.path)
    assert loaded.lines == made.lines
    assert loaded.calls_df().equals(made.calls_df())
    assert wait(loaded.replay()).identical


def test_a_part_of_a_journal_has_the_texts_of_the_whole(made, tmp_path):
    lines = lines_of(made.path)
    path = tmp_path / "cut.jsonl"
    for kept in range(1, len(lines), 7):
        path.write_bytes(b"".join(lines[:kept]))
        assert tl.load(path).lines == made.lines[: kept - 1]
        resumed = wait(tl.Lab(Scripted(answer)).resume(path))
        assert resumed.events == made.events == tl.load(path).events


def test_any_records_in_any_batches_are_read_as_they_were():
    """Few texts and positions, so that all kinds of repetition occur, within a batch and over several."""
    roll = random.Random(0)
    texts = ["", "a", "b"]
    header = Header.now()
    for _ in range(300):
        lines = []
        for _ in range(roll.randrange(1, 14)):
            place = roll.choice([(), (0, roll.randrange(4)), (roll.randrange(4),)])
            text = roll.choice(texts)
            messages = tuple(Message("user", roll.choice(texts)) for _ in range(roll.randrange(3)))
            record = roll.choice(
                [
                    Call("0", "ask", messages),
                    Reply(text),
                    Thought("0", None, text),
                    Decided("0", "pruned", text),
                    Note("n", "0", {"like": 1}),
                ]
            )
            lines.append(Line(place, 0.5, record, roll.choice([None, 0.25])))
        data, left = header_text(header), list(lines)
        continued, before = data, Texts()
        while left:
            size = roll.randrange(1, 6)
            data += lines_text(header, left[:size])
            continued += lines_text(header, left[:size], before)
            left = left[size:]
        assert parse_journal(data, "a journal")[1] == lines
        assert continued == header_text(header) + lines_text(header, lines), "in any parts, the same bytes"


def test_a_journal_is_the_same_however_its_writes_were_bundled(made, tmp_path):
    """Written line by line, and stopped and continued, beside records that cannot be written."""
    whole = made.save(tmp_path / "whole.jsonl").read_bytes()
    path = tmp_path / "parts.jsonl"
    half = len(made.lines) // 2
    recorder = tl.Recorder(header=made.header, path=path)
    for line in made.lines[:half]:
        recorder.lines.append(line)
        recorder.flush()
    again = next(line for line in made.lines if isinstance(line.e, Call))
    recorder.lines += [again, Line((), 0.0, Note("bad", "0", {"it": object()}))]
    with pytest.raises(ValueError, match="Note cannot be written"):
        recorder.flush()
    recorder.close()
    assert tl.load(path).lines == [*made.lines[:half], again]
    size = len(path.read_bytes())
    kept = len(b"".join(lines_of(path)[: half + 1]))
    recorder = tl.Recorder.resuming(path, made.header, made.lines[:half], kept, size)
    for line in made.lines[:half]:
        recorder.record(line.p, line.e) if line.p else None
    for line in made.lines[half:]:
        recorder.lines.append(line)
        recorder.flush()
    recorder.close()
    assert path.read_bytes() == whole


def test_a_text_that_the_file_lacks_is_an_error_that_names_the_line(made, tmp_path):
    lines = lines_of(made.path)
    path = tmp_path / "bad.jsonl"
    first = next(k for k, line in enumerate(lines) if b"Think step by step" in line)
    for place, line in (
        (first, json.loads(lines[first]) | {"like": 1}),
        (first, {"p": [], "t": 0.1, "e": {"type": "note", "name": "n", "at": "0"}, "like": 1}),
        (
            3,
            {
                "p": [9, 9],
                "t": 0.1,
                "e": {"type": "thought", "id": "0.7", "parent": "0", "text": ""},
                "like": 2,
            },
        ),
        (3, {"p": [], "t": 0.1, "e": {"type": "thought", "id": "0.7", "parent": "0", "text": ""}, "like": 2}),
        (
            3,
            {
                "p": [9, 9],
                "t": 0.1,
                "e": {"type": "thought", "id": "0.7", "parent": "0", "text": ""},
                "like": 3,
            },
        ),
    ):
        bad = [*lines[:place], json.dumps(line).encode() + b"\n", *lines[place + 1 :]]
        path.write_bytes(resealed(b"".join(bad)))
        with pytest.raises(tl.errors.JournalError, match=rf"bad\.jsonl, line {place + 1}: "):
            tl.load(path)


def test_a_journal_of_schema_4_is_continued_in_its_format(tmp_path):
    golden = lines_of(GOLDEN / "journal-schema-4.jsonl")
    path = tmp_path / "old.jsonl"
    path.write_bytes(b"".join(golden[:40]))
    resumed = wait(tl.Lab("sim/game24").resume(path))
    assert b'"like"' not in path.read_bytes()
    assert resumed.events == tl.load(GOLDEN / "journal-schema-4.jsonl").events == tl.load(path).events
    saved = resumed.save(tmp_path / "saved.jsonl")
    assert b'"like"' not in saved.read_bytes()


def test_a_journal_that_repeats_its_texts_is_read_too(made, tmp_path):
    path = tmp_path / "plain.jsonl"
    plain = [msgspec.json.encode(line) + b"\n" for line in made.lines]
    path.write_bytes(lines_of(made.path)[0] + resealed(b"".join(plain)))
    assert tl.load(path).lines == made.lines
