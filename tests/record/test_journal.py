"""The journal: whole lines or none, finished after a kill, paid once, and never executed."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import TASK, TESTS, Scripted, answer_to, lines_of, mostly_nightly, resealed, shuffled, wait
from support.endpoint import scripted
from support.journals import SEARCH

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Ended, Note, Scored, Thought, payments
from tot_lab.record.journal import outline

PACKAGE = str(Path(tl.__file__).parent.parent)
ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join([PACKAGE, str(TESTS)])}


class Saying(tl.Strategy):
    """Yields what `say(task)` gives: a strategy for one test."""

    kind = "test_journal.saying"
    _say: object = None

    @classmethod
    def of(cls, say):
        made = cls()
        object.__setattr__(made, "_say", say)
        return made

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        return (yield from self._say(at))


@pytest.fixture
def whole(tmp_path):
    """A finished run and its journal."""
    return wait(tl.Lab(Scripted(), runs=tmp_path / "runs").run(SEARCH, TASK))


def test_the_outline_of_a_journal_is_its_header_and_its_end(whole):
    header, ended = outline(whole.path)
    assert (header, ended) == (
        whole.header,
        next(line.e for line in whole.lines if isinstance(line.e, Ended)),
    )
    text = whole.path.read_bytes()
    cut = text[: text.rindex(b'{"p"', 0, text.rindex(b'"type":"ended"'))]
    whole.path.write_bytes(cut)
    assert outline(whole.path) == (whole.header, None)
    whole.path.write_bytes(cut[:-9])  # a line that a kill cut off
    assert outline(whole.path) == (whole.header, None)
    for damaged in (b"", b"no journal\n", b"{}\n", text.replace(b'"type":"ended"', b'"type":"ended","x":')):
        whole.path.write_bytes(damaged)
        with pytest.raises(tl.errors.JournalError):
            outline(whole.path)


def test_a_thought_that_quotes_the_end_of_a_journal_does_not_end_it(tmp_path):
    recorder = tl.Recorder("quoting", path=tmp_path / "run.jsonl")
    recorder.thought('{"p":[0],"t":0.0,"e":{"type":"ended","stop":"answered","answer":"no"}}')
    recorder.flush()
    assert outline(tmp_path / "run.jsonl")[1] is None
    recorder.close()


def answered(path):
    """How many calls have their reply in the journal."""
    return sum(isinstance(line.e, Reply) for line in tl.load(path).lines)


# After a kill.

CHILD = """
import asyncio, sys
from support import *
import tot_lab as tl
from support.journals import SEARCH
lab = tl.Lab(Scripted(latency=lambda call: float(sys.argv[2])), runs=sys.argv[1])
asyncio.run(lab.run(SEARCH, TASK))
"""


@pytest.fixture(scope="module")
def never_killed():
    return wait(tl.Lab(Scripted(), runs=None).run(SEARCH, TASK))


def killed_at(folder, lines, latency):
    """The journal of a run that was killed (SIGKILL) once it had grown to so many lines."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder), str(latency)], env=ENVIRON)
    until = time.monotonic() + 20
    path = None
    while time.monotonic() < until and child.poll() is None:
        path = path or next(iter(folder.glob("*.jsonl")), None)
        if path is not None and path.read_bytes().count(b"\n") >= lines:
            break
        time.sleep(0.0005)
    child.kill()
    child.wait()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("share", mostly_nightly([0.05, 0.2, 0.4, 0.6, 0.7, 0.75], [0.05, 0.4, 0.75]))
def test_a_killed_run_loads_resumes_and_pays_nothing_twice(tmp_path, never_killed, share):
    """Each level of the search is two or three rounds of calls; it has three levels."""
    for latency in (0.01, 0.05, 0.25):  # a slow machine may miss the moment
        folder = tmp_path / str(latency)
        folder.mkdir()
        path = killed_at(folder, share * len(never_killed.lines), latency)
        if tl.load(path).stop_reason is None:
            break
    killed = tl.load(path)
    assert killed.stop_reason is None
    assert 0 < len(killed.events) < len(never_killed.events)
    assert {repr(event) for event in killed.events} < {repr(event) for event in never_killed.events}
    known = answered(path)
    model = Scripted()
    lab = tl.Lab(model, runs=tmp_path)
    resumed = wait(lab.resume(path))
    assert resumed.events == never_killed.events
    assert len(model.calls) + known == never_killed.usage.calls
    assert lab.last is resumed
    assert tl.load(path).events == never_killed.events
    assert wait(tl.load(path).replay()).identical
    assert lines_of(path)[0] == resealed(msgspec.json.encode(killed.header) + b"\n")


@pytest.mark.slow
def test_a_run_cut_off_at_any_byte_resumes_to_the_same_record(tmp_path, whole):
    data = whole.path.read_bytes()
    head = data.index(b"\n") + 1
    roll = random.Random(0)
    for size in [head, len(data) - 1, *(roll.randrange(head, len(data)) for _ in range(25))]:
        path = tmp_path / "cut.jsonl"
        path.write_bytes(data[:size])
        known = answered(path)
        model = Scripted(latency=shuffled(size, 0.001))
        resumed = wait(tl.Lab(model).resume(path))
        assert resumed.events == whole.events
        assert len(model.calls) + known == whole.usage.calls
        assert tl.load(path).events == whole.events


def test_resuming_twice_cut_off_in_between_is_fine(tmp_path, whole):
    lines = lines_of(whole.path)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines[:20]))
    wait(tl.Lab(Scripted(latency=shuffled(1))).resume(path))
    path.write_bytes(b"".join(lines_of(path)[:60]) + b'{"p":[1')
    assert wait(tl.Lab(Scripted(latency=shuffled(2))).resume(path)).events == whole.events
    assert tl.load(path).events == whole.events


def test_a_finished_run_is_only_loaded(whole):
    before = whole.path.read_bytes()
    model = Scripted()
    again = wait(tl.Lab(model).resume(whole.path))
    assert (again.events, model.calls) == (whole.events, [])
    assert whole.path.read_bytes() == before


@pytest.mark.slow
def test_a_cancelled_run_is_finished(tmp_path):
    async def main(after):
        lab = tl.Lab(Scripted(latency=lambda call: 0.01), runs=tmp_path)
        under_way = asyncio.ensure_future(lab.run(SEARCH, TASK))
        await asyncio.sleep(after)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        cancelled = lab.last
        known = sum(isinstance(line.e, Reply) and not line.e.error for line in cancelled.lines)
        model = Scripted()
        return cancelled, await tl.Lab(model).resume(cancelled.path), known + len(model.calls)

    free = wait(tl.Lab(Scripted(), runs=None).run(SEARCH, TASK))
    for after in (0.005, 0.02, 0.035):
        cancelled, resumed, calls = wait(main(after))
        assert cancelled.stop_reason == "cancelled"
        assert resumed.events == free.events
        assert calls == free.usage.calls
        assert tl.load(cancelled.path).events == free.events


def test_a_run_that_a_bug_ended_is_finished_by_the_mended_strategy(tmp_path):
    def say(broken):
        def thinking(at):
            replies = []
            for draw in range(4):
                replies.append((yield from tl.ask(Call(at, "ask", (tl.records.Message("user", "p"),), draw))))
                if broken and draw == 2:
                    raise ZeroDivisionError("a bug")
            return tl.Answer(f"{len(replies)} replies", "answered")

        return thinking

    lab = tl.Lab(first := Scripted(), runs=tmp_path)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        wait(lab.run(Saying.of(say(True)), TASK))
    assert (lab.last.stop_reason, lab.last.error) == ("error", "ZeroDivisionError: a bug")
    assert tl.load(lab.last.path).error == "ZeroDivisionError: a bug"
    model = Scripted()
    resumed = wait(tl.Lab(model).resume(lab.last.path, strategy=Saying.of(say(False))))
    assert (resumed.answer, resumed.stop_reason) == ("4 replies", "answered")
    assert (len(first.calls), len(model.calls)) == (3, 1)
    assert tl.load(lab.last.path).events == resumed.events


@pytest.mark.parametrize("kept", [12, 40, -1])
def test_a_changed_strategy_is_told_where_it_differs_and_harms_nothing(tmp_path, whole, kept):
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines_of(whole.path)[:kept]) + b'{"cut off')
    before = path.read_bytes()
    for changed in (
        tl.TreeOfThoughts(
            propose=tl.Sample(count=3, max_parse_retries=1),
            evaluate=tl.Value(samples=2, max_parse_retries=1),
            stop=tl.Stop(depth=3),
        ),
        tl.TreeOfThoughts(
            propose=tl.Sample(count=2),
            evaluate=tl.Value(samples=2, prompt="{problem} {candidate}?"),
            stop=tl.Stop(depth=3),
        ),
        tl.OneAnswer(),
        Saying.of(lambda at: iter(())),
    ):
        model = Scripted()
        with pytest.raises(
            tl.errors.Divergence, match=r"(?s)position \d.*(differs|lacks|made )|did not come again|goes on"
        ):
            wait(tl.Lab(model).resume(path, strategy=changed))
        assert path.read_bytes() == before
        assert model.calls == []
    assert wait(tl.Lab(Scripted()).resume(path)).events == whole.events


def test_a_cancelled_run_is_not_harmed_by_a_changed_strategy(tmp_path):
    async def main():
        lab = tl.Lab(Scripted(latency=lambda call: 0.002), runs=tmp_path)
        under_way = asyncio.ensure_future(lab.run(SEARCH, TASK))
        await asyncio.sleep(0.006)
        under_way.cancel()
        await asyncio.wait([under_way])
        return lab.last.path

    path = wait(main())
    before = path.read_bytes()
    with pytest.raises(tl.errors.Divergence):
        wait(tl.Lab(Scripted()).resume(path, strategy=tl.OneAnswer()))
    assert path.read_bytes() == before
    assert tl.load(path).stop_reason == "cancelled"


@pytest.mark.slow
def test_two_processes_cannot_write_one_run(tmp_path, whole):
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines_of(whole.path)[:30]))
    code = (
        "import asyncio, sys; import tot_lab as tl; from support import *\n"
        "def slow(call): return print('asked', flush=True) or 60\n"
        "asyncio.run(tl.Lab(Scripted(latency=slow)).resume(sys.argv[1]))"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], env=ENVIRON, stdout=subprocess.PIPE)
    try:
        other.stdout.readline()
        time.sleep(0.2)  # it is at work, and has written what it asked
        before = path.read_bytes()
        with pytest.raises(tl.errors.JournalError, match=r"cut\.jsonl: another process is writing this run"):
            wait(tl.Lab(Scripted()).resume(path))
        assert path.read_bytes() == before
        assert tl.load(path).stop_reason is None  # reading is free
    finally:
        other.kill()
        other.communicate()
    assert wait(tl.Lab(Scripted()).resume(path)).events == whole.events


def test_two_resumes_at_once_in_one_process_are_told_apart(tmp_path, whole):
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines_of(whole.path)[:30]))
    lab = tl.Lab(Scripted(latency=lambda call: 0.001))

    async def main():
        return await asyncio.gather(lab.resume(path), lab.resume(path), return_exceptions=True)

    first, second = wait(main())
    assert first.events == whole.events
    assert isinstance(second, tl.errors.JournalError)
    assert tl.load(path).events == whole.events


def test_effects_are_answered_from_the_journal_errors_and_refusals_too(tmp_path):
    def fails(call):
        return Reply(error="OSError: no route") if call.sample_index == 1 else answer_to(call)

    made = wait(tl.Lab(Scripted(fails), runs=tmp_path).run(SEARCH, TASK, budget=tl.Budget(calls=15)))
    lines = lines_of(made.path)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines[:-3]))
    model = Scripted()  # would not fail
    resumed = wait(tl.Lab(model).resume(path))
    assert resumed.events == made.events
    assert model.calls == []


# Damage.


def damaged(lines):
    """Name → (bytes of a file, what the error names)."""
    bad = {
        "half a line": b'{"p":[1],"t":0.1\n',
        "no JSON": b"hello\n",
        "junk": b"\xff\xfe\x00\n",
        "an array": b"[1]\n",
    }
    bad["unknown record"] = b'{"p":[1],"t":0.1,"e":{"type":"surprise"}}\n'
    bad["wrong type"] = b'{"p":["x"],"t":0.1,"e":{"type":"thought","id":"9","parent":null,"text":"x"}}\n'
    bad["a score that is text"] = b'{"p":[1],"t":0.1,"e":{"type":"scored","id":"0","score":"0.5"}}\n'
    bad["a bottomless note"] = (
        b'{"p":[1],"t":0.1,"e":{"type":"note","name":"x","at":"0","data":' + b'{"a":' * 50_000 + b"\n"
    )
    files = {
        name: (b"".join([*lines[:9], resealed(line), *lines[9:]]), "line 10: (?!the checksum)")
        for name, line in bad.items()
    }
    of_unknown = {
        "score": Scored("0.77", 0.5),
        "child": Thought("0.77.0", "0.77", "x"),
        "end": Ended("solved", "x", "0.77"),
        "ranking": Ended("solved", "x", "0", None, ("0.77",)),
    }
    for name, record in of_unknown.items():
        line = b'{"p":[9999],"t":0.1,"e":' + msgspec.json.encode(record) + b"}\n"
        files[f"{name} of unknown"] = (b"".join([*lines[:-1], resealed(line)]), f"line {len(lines)}: .*0.77")
    twice = b'{"p":[9999],"t":0.1,"e":' + msgspec.json.encode(Thought("0", None, "x")) + b"}\n"
    files["a thought twice"] = (b"".join([*lines, resealed(twice)]), f"line {len(lines) + 1}: .*twice")
    files["empty"] = (b"", "line 1: .*empty")
    files["no whole line"] = (b'{"tot_lab":1', "line 1: no complete header")
    files["binary"] = (bytes(range(256)) * 50, "line 1: no header")
    files["another format"] = (
        b'{"a": 1}\n{"b": 2}\n',
        "line 1: no header; expected a run's journal: .*tot_lab",
    )
    files["a list"] = (b"[]\n", "line 1: neither a journal nor")
    files["bottomless"] = (b"[" * 100_000 + b"\n", "line 1: neither a journal nor")
    newer = {**json.loads(lines[0]), "tot_lab": 99, "version": "9.9"}
    files["newer"] = (
        json.dumps(newer).encode() + b"\n" + b"{}\n",
        r"line 1: written by a newer tot_lab \(9\.9, schema 99\)",
    )
    files["older"] = (
        json.dumps({**newer, "tot_lab": 2}).encode() + b"\n" + b"{}\n",
        r"line 1: written by an earlier tot_lab \(9\.9, schema 2\); .* reads schemas 3 to 5",
    )
    return files


@pytest.mark.parametrize("name", list(damaged([b'{"tot_lab":1}\n'] * 12)))
def test_damage_is_an_error_that_names_file_and_line(tmp_path, whole, name):
    data, named = damaged(lines_of(whole.path))[name]
    path = tmp_path / "bad.jsonl"
    path.write_bytes(data)
    with pytest.raises(tl.errors.JournalError, match=rf"(?s)bad\.jsonl, {named}"):
        tl.load(path)


def test_damage_stops_a_resume_before_anything_is_asked_or_written(tmp_path, whole):
    lines = lines_of(whole.path)
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join([*lines[:5], b"hello\n", *lines[5:50]]))
    before = path.read_bytes()
    model = Scripted()
    with pytest.raises(tl.errors.JournalError, match=r"bad\.jsonl, line 6: "):
        wait(tl.Lab(model).resume(path))
    assert (model.calls, path.read_bytes()) == ([], before)


def test_a_partial_last_line_is_not_there(tmp_path, whole):
    lines = lines_of(whole.path)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines[:40]) + lines[40][:-1])
    assert tl.load(path).lines == whole.lines[:39]


def test_what_is_no_file_is_an_oserror(tmp_path):
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(OSError, match=str(path)):
            tl.load(path)
        with pytest.raises(OSError, match=str(path)):
            wait(tl.Lab(Scripted()).resume(path))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_bytes_at_all_load_or_are_refused_as_a_journal(tmp_path_factory, data):
    lines = lines_of(EXAMPLE.path)
    junk = data.draw(st.binary(max_size=40))
    at = data.draw(st.integers(0, sum(map(len, lines))))
    text = b"".join(lines)
    path = tmp_path_factory.mktemp("junk") / "junk.jsonl"
    path.write_bytes(text[:at] + junk + text[at + data.draw(st.integers(0, 40)) :])
    try:
        repr(tl.load(path).events)
    except tl.errors.JournalError as error:
        assert "junk.jsonl, line " in str(error)  # noqa: PT017


@pytest.fixture(scope="module", autouse=True)
def example(tmp_path_factory):
    global EXAMPLE  # noqa: PLW0603  hypothesis takes no function-scoped fixture
    EXAMPLE = wait(tl.Lab(Scripted(), runs=tmp_path_factory.mktemp("runs")).run(SEARCH, TASK))


# What replies may hold.


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply",
    [
        "a lone \ud800 surrogate",
        "\x00\x01\u2028\u0085\r\n tabs\t and é ✓ 🜁",
        "",
        "x" * 1_000_000,
        type("Text", (str,), {})("a str of one's own"),
        Reply("t", thinking="\udfff", model="\ud800", finish_reason="\ud800"),
        Reply(error="a lone \ud800"),
        Reply("nan", cost=float("nan"), logprobs=(tl.records.TokenLogprob("a", -1.0, {"b": -2.5}),)),
        Reply("inf", logprobs=(tl.records.TokenLogprob("a", float("-inf")),)),
        Reply("tokens", input_tokens="12"),
        Reply("tokens", input_tokens=1.5),
        Reply(None),
        Reply(7),
        Reply(text="r", logprobs="none"),
    ],
    ids=lambda reply: repr(reply)[:30],
)
def test_whatever_a_model_says_the_run_ends_and_its_file_loads(tmp_path, reply):
    made = wait(tl.Lab(Scripted(lambda call: reply), runs=tmp_path).run(tl.SelfConsistency(attempts=2), TASK))
    loaded = tl.load(made.path)
    assert loaded.events == made.events
    assert made.stop_reason in ("answered", "error")
    assert wait(loaded.replay()).identical
    made.save(tmp_path / "copy.jsonl")


@pytest.mark.parametrize("error", ["cancelled", "budget:calls", "limit:at_most"])
def test_a_model_cannot_pass_its_error_off_as_a_refusal(tmp_path, error):
    made = wait(tl.Lab(Scripted(lambda call: Reply(error=error)), runs=tmp_path).run(SEARCH, TASK))
    assert made.stop_reason == "error"
    assert made.usage.errors == made.usage.calls > 0
    assert wait(made.replay()).identical
    assert wait(tl.load(made.path).replay()).identical
    model = Scripted()  # that answers: the run goes on before the first call that failed
    assert wait(tl.Lab(model).resume(made.path)).stop_reason != "error"
    assert model.calls


@pytest.mark.parametrize(
    "data",
    [{"x": (1, 2)}, {"x": {1: "a"}}, {"x": float("nan")}, {"x": None}, {"x": [[], {}]}],
    ids=str,
)
def test_a_note_repeats_itself_as_a_file_holds_it(tmp_path, data):
    def say(at):
        yield Note("mine", at, data)
        reply = yield from tl.ask(Call(at, "ask", (tl.records.Message("user", "p"),)))
        return tl.Answer(reply.text, "answered")

    made = wait(tl.Lab(Scripted(), runs=tmp_path).run(Saying.of(say), TASK))
    assert wait(tl.load(made.path).replay(strategy=Saying.of(say))).identical
    made.path.write_bytes(b"".join(lines_of(made.path)[:4]))
    resumed = wait(tl.Lab(Scripted()).resume(made.path, strategy=Saying.of(say)))
    assert resumed.answer == made.answer


def test_what_no_file_can_hold_ends_the_run_by_name_and_spares_the_file(tmp_path):
    for spoilt in (Note("mine", "0", {"x": object()}), Thought("0.5", "0", "\ud800")):

        def say(at, spoilt=spoilt):
            yield Thought("0.1", at, "before")
            yield spoilt
            yield Thought("0.2", at, "after")
            return tl.Answer("x", "answered")

        lab = tl.Lab(Scripted(), runs=tmp_path)
        with pytest.raises(ValueError, match=f"{type(spoilt).__name__} cannot be written"):
            wait(lab.run(Saying.of(say), TASK))
        assert lab.last.stop_reason == "error"
        loaded = tl.load(lab.last.path)
        assert loaded.events == lab.last.events
        assert list(loaded.tree.nodes) == ["0", "0.1"]


# A full disk.


@pytest.fixture
def tiny(small_disk):
    return small_disk(64)


def test_a_full_disk_costs_the_file_not_the_run(tmp_path, tiny):
    model = Scripted(lambda call: answer_to(call) + "\n" + "because " * 300)
    free = wait(tl.Lab(model, runs=None).run(SEARCH, TASK))
    lab = tl.Lab(model, runs=tiny)
    message = r"No space left on device\. The run continues in memory only"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        made = wait(lab.run(SEARCH, TASK))
    assert len(caught) == 1
    assert made.events == free.events
    assert made.path is None
    (path,) = tiny.glob("*.jsonl")
    part = tl.load(path)
    assert 0 < len(part.lines) < len(made.lines)
    assert part.lines == made.lines[: len(part.lines)]
    assert path.read_bytes().endswith(b"\n")
    with pytest.raises(OSError, match="No space left"):
        made.save(tiny / "again.jsonl")
    assert sorted(tiny.iterdir()) == [path]  # nothing half-written is left
    assert tl.load(made.save(tmp_path / "elsewhere" / "run.jsonl")).events == free.events
    (tmp_path / "cut.jsonl").write_bytes(path.read_bytes())
    assert wait(tl.Lab(model).resume(tmp_path / "cut.jsonl")).events == free.events


def test_a_full_disk_where_warnings_are_errors_still_leaves_a_whole_file(tiny):
    lab = tl.Lab(Scripted(lambda call: "score: 0.5 " * 500), runs=tiny)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="No space left"):
            wait(lab.run(SEARCH, TASK))
    (path,) = tiny.glob("*.jsonl")
    assert len(tl.load(path).lines) > 0
    assert lab.last.stop_reason == "error"


def test_a_folder_that_cannot_be_written_is_an_error_before_anything_is_asked(tmp_path):
    (tmp_path / "runs").write_text("a file")
    model = Scripted()
    with pytest.raises(OSError, match="runs"):
        wait(tl.Lab(model, runs=tmp_path / "runs").run(SEARCH, TASK))
    assert model.calls == []


# Saving and loading.


def test_save_and_load_give_the_same_run(tmp_path, whole):
    path = whole.save(tmp_path / "new" / "folder" / "a.jsonl")
    loaded = tl.load(path)
    assert loaded.lines == whole.lines
    assert loaded.header == whole.header
    assert loaded.events == whole.events
    assert (loaded.strategy, loaded.task) == (whole.strategy, whole.task)
    assert (loaded.usage, loaded.answer, loaded.grade) == (whole.usage, whole.answer, whole.grade)
    assert path.read_bytes() == whole.path.read_bytes()
    assert loaded.save(tmp_path / "b.jsonl").read_bytes() == path.read_bytes()


def test_save_replaces_a_file_at_once_or_not_at_all(tmp_path, whole, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text("what was there")
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError("pulled out")))
    with pytest.raises(OSError, match="pulled out"):
        whole.save(path)
    assert path.read_text() == "what was there"
    assert {entry.name for entry in tmp_path.iterdir()} == {"runs", "a.jsonl"}
    monkeypatch.undo()
    whole.save(path)
    assert tl.load(path).events == whole.events


# What the header tells, and to whom.


class Peeks(tl.Strategy):
    kind = "test_journal.peeks"

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        return tl.Answer(repr(task.reference) + repr("26" in repr(task)), "answered")


def test_the_header_keeps_the_reference_which_no_strategy_sees(tmp_path):
    made = wait(tl.Lab(Scripted(), runs=tmp_path).run(Peeks(), TASK, budget=tl.Budget(calls=9), repeat=3))
    assert made.answer == "NoneFalse"
    head = json.loads(lines_of(made.path)[0])
    assert head["task"]["reference"] == 26
    assert head["task"]["domain"] == {"kind": "general", "grading": "number"}
    assert head["strategy"] == {"kind": "test_journal.peeks"}
    assert head["budget"] == {"calls": 9}
    assert head["repeat"] == 3
    assert head["tot_lab"] == 5
    assert head["version"] == tl.__version__
    loaded = tl.load(made.path)
    assert loaded.task == TASK
    assert wait(loaded.replay()).identical
    assert wait(tl.Lab(Scripted()).resume(made.path)).answer == "NoneFalse"


def test_a_reference_that_no_file_can_hold_is_refused_before_anything_is_made(tmp_path):
    task = tl.general("1/2 + 1/3?", answer=object())
    model = Scripted()
    with pytest.raises((TypeError, ValueError), match="object"):
        wait(tl.Lab(model, runs=tmp_path).run(SEARCH, task))
    assert model.calls == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_is_imported_or_executed_on_load(tmp_path):
    evil = "open('imported', 'w').close()\ndef judge(*a): open('executed', 'w').close(); return 0.5\n"
    (tmp_path / "evil_journal.py").write_text(evil)
    make = (
        "import asyncio; import tot_lab as tl; from support import *; from evil_journal import judge\n"
        "import os; os.remove('imported')\n"
        "task = tl.general('q', answer='a', grade=judge)\n"
        "strategy = tl.TreeOfThoughts(propose=tl.Sample(count=2), evaluate=judge, stop=tl.Stop(depth=1))\n"
        "run = asyncio.run(tl.Lab(Scripted(), runs=None).run(strategy, task)); run.save('run.jsonl')\n"
        "os.remove('executed')"
    )
    read = (
        "import asyncio, sys; import tot_lab as tl; from support import *\n"
        "run = tl.load('run.jsonl')\n"
        "run.tree, run.grade, run.correct, run.reachable, run.strategy, run.task\n"
        "repr(run); run.usage, run.candidates, run.solution_path, run.diagnostics\n"
        "for act in (run.replay, lambda: tl.Lab(Scripted(), runs=None).run(run.strategy, run.task)):\n"
        "    try: asyncio.run(act()); raise SystemExit('it ran')\n"
        "    except LookupError as error: assert 'judge' in str(error), error\n"
        "assert 'evil_journal' not in sys.modules"
    )
    environ = {**ENVIRON, "PYTHONPATH": os.pathsep.join([PACKAGE, str(TESTS), str(tmp_path)])}
    for code in (make, read):
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environ, check=True, timeout=30)
    assert not (tmp_path / "imported").exists()
    assert not (tmp_path / "executed").exists()


def test_settings_of_an_unknown_kind_load_and_say_so_when_they_are_needed(tmp_path, whole):
    lines = lines_of(whole.path)
    head = json.loads(lines[0])
    for kind in ("of_tomorrow", ["x"], None):
        head["strategy"]["kind"] = kind
        path = tmp_path / "a.jsonl"
        path.write_bytes(resealed(json.dumps(head).encode() + b"\n" + b"".join(lines[1:])))
        run = tl.load(path)
        assert len(run.tree) == len(whole.tree)
        with pytest.raises(
            (ValueError, LookupError), match=r"of_tomorrow|unknown kind|not made by a strategy"
        ):
            wait(run.replay())


# Replay.


def test_a_replay_repeats_the_record_without_a_model(whole):
    for run in (whole, tl.load(whole.path)):
        assert wait(run.replay()) == (True, len(whole.events), None)


def test_a_tampered_reply_shows_where_the_record_parts(tmp_path, whole):
    lines = [lines_of(whole.path)[0], *(msgspec.json.encode(line) + b"\n" for line in whole.lines)]
    index, call = next(
        (k, record["e"])
        for k, record in enumerate(map(json.loads, lines[1:]), 1)
        if record["e"]["type"] == "call" and record["e"]["kind"] == "sample"
    )
    place = json.loads(lines[index])["p"]
    for k, line in enumerate(lines[1:], 1):
        record = json.loads(line)
        if record["p"] == place and record["e"]["type"] == "reply":
            record["e"]["text"] = "something else"
            lines[k] = json.dumps(record).encode() + b"\n"
    path = tmp_path / "tampered.jsonl"
    path.write_bytes(resealed(b"".join(lines)))
    replay = wait(tl.load(path).replay())
    assert not replay.identical
    assert f"thought {call['at']}" in replay.divergence
    assert "something else" in replay.divergence


def test_a_tampered_score_shows_what_it_was_and_is(tmp_path, whole):
    lines = lines_of(whole.path)
    index = next(k for k, line in enumerate(lines) if b'"scored"' in line and b'"by":"value"' in line)
    record = json.loads(lines[index])
    record["e"]["score"] = 0.123
    lines[index] = json.dumps(record).encode() + b"\n"
    path = tmp_path / "tampered.jsonl"
    path.write_bytes(resealed(b"".join(lines)))
    replay = wait(tl.load(path).replay())
    assert f"thought {record['e']['id']}: Scored differs: score was 0.123" in replay.divergence


def test_a_replay_of_an_unfinished_run_says_so_and_ends(tmp_path, whole):
    lines = lines_of(whole.path)
    for kept in range(1, len(lines), 9):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(b"".join(lines[:kept]))
        replay = wait(tl.load(path).replay())
        assert not replay.identical
        assert "unfinished" in replay.divergence


def test_a_replay_of_a_record_with_more_than_the_run_says_so(tmp_path, whole):
    line = b'{"p":[5000],"t":0.1,"e":{"type":"note","name":"added","at":"0"}}\n'
    path = tmp_path / "more.jsonl"
    path.write_bytes(whole.path.read_bytes() + resealed(line))
    replay = wait(tl.load(path).replay())
    assert not replay.identical
    assert "added" in replay.divergence


def test_a_replay_of_a_run_that_a_bug_ended_meets_the_bug_again(tmp_path):
    def say(at):
        yield from tl.ask(Call(at, "ask", (tl.records.Message("user", "p"),)))
        raise ZeroDivisionError("a bug")

    lab = tl.Lab(Scripted(), runs=tmp_path)
    with pytest.raises(ZeroDivisionError):
        wait(lab.run(Saying.of(say), TASK))
    assert wait(lab.last.replay()).identical
    assert wait(tl.load(lab.last.path).replay(strategy=Saying.of(say))).identical


def test_signals_are_as_they_were():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# What was paid before.

PAYING_CHILD = """
import asyncio, sys
from support.endpoint import scripted
from support import TASK
import tot_lab as tl
from support.journals import SEARCH
lab = tl.Lab(scripted(seconds=0.05), runs=sys.argv[1], mode="off", spend=100.0)
work = lab.sweep([SEARCH], [TASK]) if sys.argv[2] == "sweep" else lab.run(SEARCH, TASK)
asyncio.run(work)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["run", "sweep"])
def test_a_cap_on_real_money_holds_over_a_kill(tmp_path, what):
    """A dollar a call, a kill after at least six calls, and then a cap that leaves four more."""
    child = subprocess.Popen([sys.executable, "-c", PAYING_CHILD, str(tmp_path), what], env=ENVIRON)
    until = time.monotonic() + 60
    paid = 0
    while time.monotonic() < until and child.poll() is None and paid < 6:
        path = next(tmp_path.rglob("*.jsonl"), None)
        paid = 0 if path is None else path.read_bytes().count(b'"reply"')
        time.sleep(0.0005)
    child.kill()
    child.wait()
    assert path is not None
    lines = tl.load(path).lines
    before = payments(lines)  # equal calls are paid once, and calls in flight may have been
    assert 0 < sum(line.paid or 0.0 for line in lines) <= before < 25
    cap = before + 4.0
    end = scripted()
    lab = tl.Lab(end, runs=tmp_path, mode="off", spend=cap)
    if what == "run":
        wait(lab.resume(path))
    else:
        wait(lab.sweep([SEARCH], [TASK]))
    assert len(end.requests) == 4
    assert lab.spent == cap


@pytest.mark.slow
def test_what_a_lab_paid_itself_is_counted_once(tmp_path):
    """Cancelled and resumed by the same lab: each request that was sent costs its dollar, and no more."""
    end = scripted(seconds=0.02)
    lab = tl.Lab(end, runs=tmp_path, mode="off", spend=1000.0)

    async def cut_and_resumed():
        running = asyncio.create_task(lab.run(SEARCH, TASK))
        while len(end.requests) < 9:
            await asyncio.sleep(0.005)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return await lab.resume(lab.last.path)

    assert wait(cut_and_resumed()).stop_reason == "limit:depth"
    assert lab.spent == len(end.requests)


def test_a_payment_that_cannot_be_true_moves_no_cap(tmp_path):
    """A journal may come from somebody else."""
    made = wait(tl.Lab(scripted(), runs=tmp_path, mode="off").run(SEARCH, TASK))
    for paid in (-1000.0, 1e308):
        lines = [msgspec.structs.replace(line, paid=paid if line.paid else line.paid) for line in made.lines]
        lab = tl.Lab(scripted(), runs=tmp_path, mode="off", spend=5.0)
        lab.runner.count_payments(made.header, lines)
        assert lab.spent == 0
