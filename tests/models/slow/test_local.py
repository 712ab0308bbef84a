"""A real model on this machine: structure only, never how good its replies are."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import TASK, TESTS, mostly_nightly, needs_smollm2, weights
from support.endpoint import CallObserver
from support.local import asked

import tot_lab as tl
from tot_lab.core.calls import Call, Need, Reply
from tot_lab.core.parts import part_of
from tot_lab.models import local, ready
from tot_lab.models.local import Local
from tot_lab.models.stack import Failure
from tot_lab.models.weights import KNOWN

NAME = "smollm2-135m"
WEIGHTS = weights(NAME)


def answers(model: Local, *calls: Call, observer: CallObserver | None = None) -> Sequence[Reply]:
    """The replies to calls made at the same time."""

    async def all_of() -> Sequence[Reply]:
        async with asyncio.timeout(60):
            made = [model.answer([call], observer or CallObserver()) for call in calls]
            return [reply for replies in await asyncio.gather(*made) for reply in replies]

    return asyncio.run(all_of())


@pytest.fixture(scope="module")
def model() -> Any:
    """One small model for all tests, and no server when they are over."""
    with warnings.catch_warnings(action="ignore"):
        gc.collect()  # what the tests of other files have left open
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOT_LAB_MODELS", str(WEIGHTS.parent))
        made = Local(weights=NAME)
        yield made
        asyncio.run(made.close())
    gc.collect()
    assert not any(server.holders or server.endpoint for server in local._SERVERS.values())


def server_of(model: Local) -> local._Server:
    return local._server_for(model)


# Replies.


@pytest.mark.nightly
@needs_smollm2
def test_a_reply_is_whole_and_costs_nothing(model: Local) -> None:
    (reply,) = answers(model, asked("Name three colours."))
    assert reply.text
    assert (reply.error, reply.cost, reply.model, reply.simulated) == (None, 0.0, f"local/{NAME}", False)
    assert reply.input_tokens is not None
    assert reply.input_tokens > 10
    assert 1 <= (reply.output_tokens or 0) <= 24
    assert reply.finish_reason in ("stop", "length")
    (cut,) = answers(model, asked("Count from one to a hundred in words.", max_tokens=2, seed=1))
    assert (cut.finish_reason, cut.output_tokens) == ("length", 2)


@pytest.mark.nightly
@needs_smollm2
def test_same_seed_same_text_whatever_came_before(model: Local) -> None:
    call = asked("Tell me a story about a fox and a crow.", seed=7, temperature=0.9)
    (first,) = answers(model, call)
    answers(model, asked("Tell me a story about a fox and a"), asked("Tell me of Paris."))
    for _ in range(3):
        again, *_ = answers(model, call, asked("Tell me a story about a fox."))
        assert again == first
    others = answers(
        model, *(asked(call.prompt, seed=7, temperature=0.9, sample_index=k) for k in range(1, 4))
    )
    assert len({first.text, *(reply.text for reply in others)}) > 2


@pytest.mark.nightly
@needs_smollm2
def test_draws_of_one_request_are_its_draws_alone(model: Local) -> None:
    draws = [asked("Tell me a story.", seed=7, temperature=0.9, sample_index=k) for k in range(3)]
    together = asyncio.run(model.answer(draws, CallObserver()))
    assert list(together) == list(answers(model, *draws))
    assert len({reply.text for reply in together}) == 3
    assert all(reply.output_tokens for reply in together)


@needs_smollm2
def test_labels_have_log_probabilities(model: Local) -> None:
    (reply,) = answers(model, asked("Is 2 + 2 = 4? Answer yes or no.", logprobs=10, max_tokens=1))
    (token,) = reply.logprobs
    assert token.token == reply.text
    assert len(token.top) == 10
    assert all(value <= 0 for value in token.top.values())
    assert {"yes", "no"} <= {label.strip().lower() for label in token.top}


@pytest.mark.nightly
@needs_smollm2
def test_a_schema_is_kept(model: Local) -> None:
    step = {"type": "object", "additionalProperties": False, "required": ["a", "op", "b"], "properties": {
        "a": {"enum": ["4", "5"]}, "op": {"enum": ["+", "-"]}, "b": {"enum": ["6", "10"]}}}  # fmt: skip
    replies = answers(
        model, *(asked("Choose a step.", response_format=step, seed=k, max_tokens=80) for k in range(3))
    )
    for reply in replies:
        pick = json.loads(reply.text)
        assert (pick["a"] in "45", pick["op"] in "+-", pick["b"] in ("6", "10")) == (True, True, True)
        assert len(pick) == 3


@needs_smollm2
def test_a_watched_reply_comes_in_pieces_and_is_the_same(model: Local) -> None:
    call = asked("Name three colours.", seed=3)
    observer = CallObserver(watched=True)
    (streamed,) = answers(model, call, observer=observer)
    assert len(observer.texts) > 2
    assert observer.texts[-1] == streamed.text
    assert streamed == answers(model, call)[0]


@needs_smollm2
def test_a_prompt_too_long_is_refused_and_not_cut(model: Local) -> None:
    start = time.monotonic()
    with pytest.raises(Failure, match=r"5\d\d\d tokens.*4096") as caught:
        answers(model, asked("word " * 5000))
    assert time.monotonic() - start < 20  # it was counted, not read: that takes half a minute
    assert (caught.value.status, caught.value.retry) == (400, False)


@pytest.mark.nightly
@needs_smollm2
def test_four_calls_at_once(model: Local) -> None:
    for slots in (1, 2):
        wide = Local(weights=NAME, slots=slots, context_window=512)
        replies = answers(wide, *(asked("Name a colour.", sample_index=k) for k in range(4)))
        assert [reply.error for reply in replies] == [None] * 4
        assert all(reply.text for reply in replies)
        with pytest.raises(Failure, match="512"):  # of each slot, not of all
            answers(wide, asked("word " * 520))
        asyncio.run(wide.close())


# The server.


@pytest.mark.nightly
@needs_smollm2
def test_equal_models_share_a_server_until_the_last_lets_go(model: Local) -> None:
    first, second = (Local(weights=NAME, context_window=256) for _ in range(2))
    answers(first, *(asked("Hello", max_tokens=1, sample_index=k) for k in range(4)))
    server = server_of(first)
    process = server._process
    answers(second, asked("Hello", max_tokens=1))
    assert server_of(second) is server
    assert server._process is process is not None
    asyncio.run(first.close())
    assert process.poll() is None
    assert answers(second, asked("Hello", max_tokens=1))
    del second
    gc.collect()
    assert process.poll() is not None
    assert answers(first, asked("Hello", max_tokens=1))  # it starts again
    asyncio.run(first.close())


@pytest.mark.nightly
@needs_smollm2
def test_a_server_that_died_may_be_tried_again(model: Local) -> None:
    frail = Local(weights=NAME, context_window=300)
    answers(frail, asked("Hello", max_tokens=1))
    process = server_of(frail)._process
    assert process is not None

    async def killed() -> None:
        busy = asyncio.ensure_future(
            frail.answer([asked("Hello", max_tokens=250, options={"ignore_eos": True})], CallObserver())
        )
        await asyncio.sleep(0.3)
        process.kill()
        process.wait()
        await busy

    with pytest.raises(Failure) as caught:
        asyncio.run(killed())
    assert caught.value.retry
    assert answers(frail, asked("Hello", max_tokens=1))[0].text
    asyncio.run(frail.close())


@needs_smollm2
def test_the_loop_goes_on_while_it_loads(model: Local) -> None:
    fresh = Local(weights=NAME, context_window=320)
    answers(model, asked("Hello", max_tokens=1))  # litellm is imported

    async def longest_share() -> float:
        starting = asyncio.ensure_future(fresh.answer([asked("Hello", max_tokens=1)], CallObserver()))
        longest, last = 0.0, (began := time.monotonic())
        while not starting.done():
            await asyncio.sleep(0.002)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        await starting
        return longest / (time.monotonic() - began)

    # While the server started, the loop was never held up for long.
    assert asyncio.run(longest_share()) < 0.5
    asyncio.run(fresh.close())


SCRIPT = f"""
import asyncio, sys
from support.endpoint import CallObserver
from support.local import asked
from tot_lab.models.local import Local, _server_for
model = Local(weights={NAME!r}, context_window=600)
asyncio.run(model.answer([asked("Hello", max_tokens=1)], CallObserver()))
print(_server_for(model)._process.pid, flush=True)
if sys.argv[1] == "busy":
    endless = asked("Hello", max_tokens=500, options={{"ignore_eos": True}})
    asyncio.run(asyncio.wait_for(model.answer([endless], CallObserver()), 60))
elif sys.argv[1] == "error":
    raise SystemExit(3)
"""


@pytest.mark.nightly
@needs_smollm2
@pytest.mark.parametrize("how", mostly_nightly(["end", "error", "busy"], ["end"]))
def test_it_is_gone_with_the_interpreter(how: str) -> None:
    """busy: killed, with a request open."""
    paths = os.pathsep.join([str(TESTS), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how],
        env={**os.environ, "PYTHONPATH": paths, "TOT_LAB_MODELS": str(WEIGHTS.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as user:
        assert user.stdout is not None
        assert user.stderr is not None
        server = int(user.stdout.readline())
        if how == "busy":
            time.sleep(0.5)
            user.kill()
        assert user.wait(30) == {"end": 0, "error": 3, "busy": -9}[how]
        assert user.stderr.read() == b""  # llama.cpp's log is kept out of notebooks
    deadline = time.monotonic() + 5
    while alive(server) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(server)


def alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@needs_smollm2
def test_nobody_else_may_use_it(model: Local) -> None:
    answers(model, asked("Hello", max_tokens=1))
    endpoint = server_of(model).endpoint
    assert endpoint is not None
    assert endpoint.api_key is not None
    key = endpoint.api_key.get_secret_value()
    assert len(key) > 30
    stranger = endpoint.model_copy(update={"api_key": type(endpoint.api_key)("guessed")})
    with pytest.raises(Failure) as caught:
        asyncio.run(stranger.answer([asked("Hello", max_tokens=1)], CallObserver()))
    assert caught.value.status == 401
    shown = repr(model) + repr(model.settings()) + repr(model.identity()) + repr(endpoint)
    assert key not in shown + model.address + str(caught.value)


# Which model it is.


def test_it_is_known_without_its_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOT_LAB_MODELS", str(tmp_path))
    model = Local(weights=NAME, threads=2, slots=3)
    assert model.identity() == Local(weights=NAME).identity()
    assert model.identity()["sha256"] == KNOWN[NAME].sha256
    assert model.identity() != Local(weights=NAME, context_window=100).identity()
    assert model.identity() != Local(weights="qwen2.5-coder-0.5b").identity()
    with pytest.raises(Failure, match=f"tot-lab model pull {NAME}"):
        answers(model, asked("Hello"))


def test_a_file_is_known_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"GGUF")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "own.gguf").write_bytes(b"GGUF")
    one, other = Local(weights=str(tmp_path / "own.gguf")), Local(weights=str(tmp_path / "b" / "own.gguf"))
    assert one.name == "local/own"
    assert one.identity() == other.identity()
    (tmp_path / "own.gguf").write_bytes(b"GGUF2")
    assert one.identity() != other.identity()
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        Local(weights="nothing-here.gguf").identity()


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    (tmp_path / "own.gguf").write_bytes(b"GGUF")
    with pytest.raises(Failure, match=r"could not load .*own\.gguf"):
        answers(Local(weights=str(tmp_path / "own.gguf")), asked("Hello"))


@pytest.mark.nightly
def test_a_server_that_never_gets_ready_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A llama.cpp that loads for ever: each start is a real process, and all who waited for it are told."""
    pytest.importorskip("xllamacpp")
    log = tmp_path / "log"
    (tmp_path / "xllamacpp.py").write_text(
        f"import time\nopen({str(log)!r}, 'a').write('begun\\n')\ntime.sleep(600)\n"
    )
    (tmp_path / "own.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(ready, "LOADING", 1.5)
    model = Local(weights=str(tmp_path / "own.gguf"))
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(Failure, match=r"own\.gguf: its server was not ready within 1\.5 s"):
            answers(model, *[asked(str(k)) for k in range(4)])
    assert log.read_text().count("begun") == 2, "those who waited started none anew"
    assert 3 <= time.monotonic() - began < 30
    monkeypatch.setattr(ready, "LOADING", 0.5)
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    lab = tl.Lab(Local(weights=str(tmp_path / "other.gguf")), runs=None, mode="off", timeout=60)
    made = asyncio.run(lab.run(tl.OneAnswer(), TASK))
    assert made.calls_df().error.str.contains("other").all()
    assert made.seconds < 60
    gc.collect()


def test_weights_that_are_not_the_known_ones_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("TOT_LAB_MODELS", str(tmp_path))
    (tmp_path / f"{NAME}.gguf").write_bytes(b"GGUF")
    with pytest.raises(Failure, match="not the file known as"):
        answers(Local(weights=NAME), asked("Hello"))


@needs_smollm2
def test_without_xllamacpp_it_says_what_to_install() -> None:
    """In an interpreter that sees neither the site packages nor xllamacpp among them."""
    hide = "import sys; sys.modules['xllamacpp'] = None; sys.argv[1] = 'end'\n"
    done = subprocess.run(
        [sys.executable, "-c", hide + SCRIPT, "end"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install 'tot-lab[local]'" in done.stderr


def test_settings() -> None:
    assert Local(weights=NAME, slots=3).concurrency == 3
    assert Local(weights=NAME, slots=3, concurrency=2).concurrency == 2
    assert repr(Local(weights=NAME)) == f"Local(weights='{NAME}')"
    model = Local(weights=NAME, slots=2, threads=2)
    assert part_of(json.loads(json.dumps(model.settings()))) == model
    assert Local(weights=NAME, context_window=100).need([asked("a"), asked("a", sample_index=1)]) == Need(
        200, 0.0
    )
    for bad in ({"slots": 0}, {"threads": 0}, {"context_window": 0}, {"weights": 3}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Local(**{"weights": NAME, **bad})
