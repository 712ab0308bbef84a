"""Weights: downloaded by the real client of the hub, from a hub on loopback."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support import needs_smollm2, weights

from tot_lab.models.weights import KNOWN, Weights, find, models_folder, pull, sha256_of

CONTENT = hashlib.shake_128(b"weights").digest(24_000_000)  # the client writes 10 MB at a time
REVISION = "0123456789abcdef0123456789abcdef01234567"
TINY = Weights("somebody/tiny", "folder/tiny.gguf", REVISION, hashlib.sha256(CONTENT).hexdigest(), 1, "MIT")
PAGE = f"/{TINY.repository}/resolve/{REVISION}/{TINY.file}"


WEIGHTS = weights("smollm2-135m")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of weights."""
    monkeypatch.setenv("TOT_LAB_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


class Hub(http.server.ThreadingHTTPServer):
    """A hub with one file."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.content = CONTENT
        self.halfway: Callable[[], object] = bool
        """What happens when half of what was asked for was sent."""
        self.asked: list[tuple[str, str, str]] = []
        """Method, range and authorization of each request."""


class _Page(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.server.asked.append((self.command, asked, self.headers.get("Authorization", "")))
        if self.path != PAGE:
            self.send_error(404)
            return
        content = self.server.content
        start = int(re.findall(r"\d+", asked)[0]) if asked and self.command == "GET" else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()
        if self.command == "GET":
            half = (start + len(content)) // 2
            self.wfile.write(content[start:half])
            self.wfile.flush()
            self.server.halfway()
            self.wfile.write(content[half:])

    def log_message(self, *args: object) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


SCRIPT = f"""
import sys
sys.path[:0] = sys.argv[1:]
from tot_lab.models.weights import KNOWN, Weights, pull
KNOWN["tiny"] = Weights(*{tuple(TINY)!r})
print(pull("tiny"))
"""


def pulling(hub: Hub) -> subprocess.Popen[str]:
    """A process that pulls: the client of the hub takes its address when it is imported."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *sys.path],
        env={
            **os.environ,
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_TOKEN": "hf_a-secret",
            "HF_HUB_DISABLE_XET": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def pulled(hub: Hub) -> tuple[int, str, str]:
    process = pulling(hub)
    out, shown = process.communicate(timeout=60)
    return process.returncode, out, shown


@pytest.mark.slow
def test_the_file_is_kept_under_its_name_and_no_token_is_sent(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, shown = pulled(hub)
    assert (status, out) == (0, f"{folder / 'tiny.gguf'}\n"), shown
    assert (folder / "tiny.gguf").read_bytes() == CONTENT
    assert [authorization for *_, authorization in hub.asked if authorization] == []
    monkeypatch.setitem(KNOWN, "tiny", TINY)
    asked = len(hub.asked)
    assert pull("tiny") == find("tiny") == folder / "tiny.gguf"
    assert len(hub.asked) == asked


@pytest.mark.nightly
def test_a_download_goes_on_where_the_connection_broke(hub: Hub, folder: Path) -> None:
    def breaks() -> None:
        hub.halfway = bool
        raise ConnectionError("gone")

    hub.halfway = breaks
    status, _, shown = pulled(hub)
    assert status == 0, shown
    assert (folder / "tiny.gguf").read_bytes() == CONTENT
    assert [asked for method, asked, _ in hub.asked if method == "GET"][-1].startswith("bytes=1")


@pytest.mark.nightly
def test_another_file_is_refused_and_the_right_one_taken_later(hub: Hub, folder: Path) -> None:
    hub.content = b"GGUF of somebody else"
    status, _, shown = pulled(hub)
    assert status == 1
    assert "tiny.gguf is not the file known as 'tiny' and is not used" in shown
    assert not [*folder.rglob("*.gguf")]
    hub.content = CONTENT
    assert pulled(hub)[0] == 0
    assert (folder / "tiny.gguf").read_bytes() == CONTENT


@pytest.mark.nightly
def test_two_downloads_at_once_are_right(hub: Hub, folder: Path) -> None:
    both = [pulling(hub) for _ in range(2)]
    shown = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], shown
    assert (folder / "tiny.gguf").read_bytes() == CONTENT


@pytest.mark.nightly
def test_a_hub_out_of_reach_is_said_with_what_to_do(hub: Hub, folder: Path) -> None:
    hub.shutdown()
    hub.server_close()
    status, _, shown = pulled(hub)
    last = shown.strip().splitlines()[-1]
    assert status == 1
    assert last.startswith("OSError: tiny could not be downloaded from somebody/tiny: ")
    assert last.endswith(f"save folder/tiny.gguf from there as {folder / 'tiny.gguf'}.")


def test_another_file_of_that_name_is_not_replaced(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(KNOWN, "tiny", TINY)
    folder.mkdir()
    folder.joinpath("tiny.gguf").write_bytes(b"GGUF of somebody else")
    with pytest.raises(OSError, match=r"models/tiny\.gguf is not the file known as"):
        pull("tiny")
    assert folder.joinpath("tiny.gguf").read_bytes() == b"GGUF of somebody else"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown weights: got 'gpt-5'\. Use one of smollm2-135m, qwen"):
        pull("gpt-5")
    with pytest.raises(FileNotFoundError, match=r"/no/model\.gguf is neither a file nor"):
        find("/no/model.gguf")
    with pytest.raises(FileNotFoundError, match="tot-lab model pull smollm2-135m"):
        find("smollm2-135m")


# Hashes and places.


def test_a_hash_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(b"one")
    assert sha256_of(path) == hashlib.sha256(b"one").hexdigest()
    (memory,) = (models_folder() / "sha256").iterdir()
    memory.write_text("0" * 64)
    assert sha256_of(path) == "0" * 64  # it was not read again
    memory.write_text("half of i")
    assert sha256_of(path) == hashlib.sha256(b"one").hexdigest()
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert sha256_of(path) == hashlib.sha256(b"two").hexdigest()


def test_where_weights_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert models_folder() == tmp_path / "models"
    monkeypatch.delenv("TOT_LAB_MODELS")
    for platform, variable, expected in (
        ("linux", "XDG_DATA_HOME", tmp_path / "tot_lab" / "models"),
        ("linux", None, Path.home() / ".local" / "share" / "tot_lab" / "models"),
        ("darwin", None, Path.home() / "Library" / "Application Support" / "tot_lab" / "models"),
        ("win32", "LOCALAPPDATA", tmp_path / "tot_lab" / "models"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        if variable is not None:
            monkeypatch.setenv(variable, str(tmp_path))
        assert models_folder() == expected


@pytest.mark.slow
@needs_smollm2
def test_what_is_known_of_a_file_is_true() -> None:
    path = WEIGHTS
    assert path is not None
    assert path.stat().st_size == KNOWN["smollm2-135m"].size
    assert sha256_of(path) == KNOWN["smollm2-135m"].sha256
