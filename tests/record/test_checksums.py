"""Damage to a journal is an error that names the file and the line, whichever bit it changed."""

import json
import re
import zlib

import pytest
from support import GOLDEN, TASK, Scripted, answer_to, lines_of, resealed, wait

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.core.records import Ended
from tot_lab.runtime.runner import resumable

JOURNAL = GOLDEN / "journal-schema-4.jsonl"


def small(folder):
    """A finished run with every kind of record, in about 20 lines."""
    with tl.Recorder("a search", task=TASK, path=folder / "run.jsonl") as recorder:
        root = recorder.thought("the problem")
        step = recorder.thought("a step; “quoted”, 10", root)
        recorder.call(step, "how good?", Reply("0.7", input_tokens=10, output_tokens=2, cost=0.25))
        recorder.score(step, 0.7, samples=[0.7, None])
        recorder.note("a note", step, crc32="12345678", n=1)
        recorder.end("the answer", node=step)
    return recorder.path


def test_every_line_holds_the_checksum_of_its_text_and_is_still_json(tmp_path):
    run = wait(tl.Lab(Scripted(), runs=tmp_path).run(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), TASK))
    for path in (run.path, run.save(tmp_path / "saved.jsonl"), small(tmp_path)):
        for line in lines_of(path):
            assert list(json.loads(line))[-1] == "crc32"
            text, _, rest = line.rpartition(b',"crc32":"')
            assert rest == b'%08x"}\n' % zlib.crc32(text)


@pytest.mark.slow
def test_any_single_flip_of_a_bit_is_an_error_that_names_file_and_line(tmp_path):
    good = small(tmp_path).read_bytes()
    held = tl.load(tmp_path / "run.jsonl").lines
    bad = tmp_path / "bad.jsonl"
    fields = {k for k in range(len(good)) if b"}\n" in good[k : k + 21]}  # where the checksums stand
    for place in range(len(good)):
        number = good.count(b"\n", 0, place) + 1
        for bit in range(8) if place in fields else (place % 8,):
            data = bytearray(good)
            data[place] ^= 1 << bit
            bad.write_bytes(data)
            with pytest.raises(tl.errors.JournalError, match=rf"bad\.jsonl, line {number}: "):
                tl.load(bad)
    bad.write_bytes(good)
    assert tl.load(bad).lines == held


@pytest.mark.slow
def test_any_single_other_byte_in_its_place_is_too(tmp_path):
    """The header has a digit and names that another byte, not one bit away, could turn into old ones."""
    good = small(tmp_path).read_bytes()
    end = good.index(b"\n") + 1
    places = [good.index(b"1"), *range(end - 3, end), end - 10, end - 13, len(good) - 1]
    bad = tmp_path / "bad.jsonl"
    for place in places:
        for byte in range(256):
            if byte == good[place]:
                continue
            bad.write_bytes(good[:place] + bytes([byte]) + good[place + 1 :])
            with pytest.raises(tl.errors.JournalError, match=r"bad\.jsonl, line \d+: "):
                tl.load(bad)


@pytest.mark.slow
def test_a_flip_in_a_killed_run_never_loses_a_whole_line(tmp_path):
    """Its last line is half written, and the newline before it may be the byte that is damaged."""
    good = b"".join(lines_of(small(tmp_path))[:-1])
    for left in (b"", b'{"p":[9]', lines_of(tmp_path / "run.jsonl")[-1][:-1]):
        (tmp_path / "bad.jsonl").write_bytes(good + left)
        whole = tl.load(tmp_path / "bad.jsonl").lines
        assert len(whole) == good.count(b"\n") - 1
        for place in [*range(0, len(good), 9), len(good) - 1]:
            data = bytearray(good + left)
            data[place] ^= 1 << place % 8
            (tmp_path / "bad.jsonl").write_bytes(data)
            with pytest.raises(tl.errors.JournalError, match=r"bad\.jsonl, line \d+: "):
                tl.load(tmp_path / "bad.jsonl")


def test_a_damaged_run_is_not_resumed(tmp_path):
    whole = wait(tl.Lab(Scripted(), runs=tmp_path).run(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), TASK))
    lines = lines_of(whole.path)
    data = b"".join(lines[:20])
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(data[:-1] + b"\x0b")
    model = Scripted()
    with pytest.raises(tl.errors.JournalError, match=r"bad\.jsonl, line 20: "):
        wait(tl.Lab(model).resume(bad))
    assert model.calls == []
    assert bad.read_bytes() == data[:-1] + b"\x0b"


def test_what_a_resumed_run_appends_has_checksums_too(tmp_path):
    whole = wait(tl.Lab(Scripted(), runs=tmp_path).run(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), TASK))
    lines = lines_of(whole.path)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:20]) + lines[20][:-1])
    done = wait(tl.Lab(Scripted()).resume(cut))
    assert done.events == whole.events
    assert all(b',"crc32":"' in line for line in lines_of(cut))
    assert tl.load(cut).lines == done.lines


def test_an_old_journal_loads_and_says_that_it_is_unverified(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_bytes(re.sub(rb',"(checksum|crc32)":"\w+"', b"", JOURNAL.read_bytes()))
    old, new = tl.load(path), tl.load(small(tmp_path))
    assert (old.verified, new.verified) == (False, True)
    for shown in (repr(old), old._repr_html_()):
        assert "unverified: no checksums" in shown
    assert "unverified" not in repr(new) + new._repr_html_()
    copy = old.save(tmp_path / "copy.jsonl")
    assert copy.read_bytes() == path.read_bytes()  # a copy does not make its text certain
    assert not tl.load(copy).verified


def test_an_old_run_that_was_killed_goes_on_as_it_began(tmp_path):
    whole = wait(tl.Lab(Scripted(), runs=tmp_path).run(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), TASK))
    old = [{k: v for k, v in json.loads(line).items() if k != "crc32"} for line in lines_of(whole.path)]
    del old[0]["checksum"]
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in old[:20]))
    done = wait(tl.Lab(Scripted()).resume(cut))
    assert done.events == whole.events
    assert tl.load(cut).lines == done.lines
    assert not tl.load(cut).verified
    assert resumable(tl.load(cut).lines, asking=True) is None


def test_lines_without_a_checksum_in_a_file_that_has_them_are_damage(tmp_path):
    lines = lines_of(small(tmp_path))
    added = b'{"p":[99],"t":0.1,"e":{"type":"note","name":"added","at":"0"}}\n'
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join([*lines[:3], added, *lines[3:]]))
    with pytest.raises(tl.errors.JournalError, match=r"bad\.jsonl, line 4: the checksum is missing"):
        tl.load(path)


def test_a_sweep_names_the_damaged_journal_in_its_row_and_asks_nothing_again(tmp_path):
    def sweep(model):
        return wait(tl.Lab(model, runs=tmp_path).sweep(tl.OneAnswer(), [TASK], repeats=3))

    first = sweep(Scripted(answer_to))
    path = next((tmp_path / "sweep").glob("*.jsonl"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    model = Scripted(answer_to)
    rows = sweep(model).df()
    assert len(first.df()) == len(rows) == 3
    assert rows["error"].str.contains(f"{path.name}, line ").sum() == 1
    assert model.calls == []


def test_the_end_of_a_run_is_covered(tmp_path):
    lines = lines_of(small(tmp_path))
    assert isinstance(tl.load(tmp_path / "run.jsonl").lines[-1].e, Ended)
    told = json.loads(lines[-1])
    told["e"]["answer"] = "another"
    path = tmp_path / "changed.jsonl"
    path.write_bytes(b"".join([*lines[:-1], json.dumps(told).encode() + b"\n"]))
    with pytest.raises(tl.errors.JournalError, match=rf"changed\.jsonl, line {len(lines)}: "):
        tl.load(path)
    path.write_bytes(resealed(path.read_bytes()))
    assert tl.load(path).answer == "another"
