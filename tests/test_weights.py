"""Weights: fetched by the real pip and the real hub client, from places of the tests' own."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import weights

from tot_lab.models.weights import KNOWN, Hub, Weights, Wheel, find, models_folder, pull, sha256_of

CONTENT = b"GGUF" + bytes(range(256)) * 20_000

THERE = {name: path for name in KNOWN if (path := weights(name)) is not None}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of weights."""
    monkeypatch.setenv("TOT_LAB_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def known(monkeypatch: pytest.MonkeyPatch, source: Wheel | Hub, content: bytes = CONTENT) -> str:
    """One more known name, for a small file."""
    entry = Weights(hashlib.sha256(content).hexdigest(), len(content), "MIT", source)
    monkeypatch.setitem(KNOWN, "tiny", entry)
    return "tiny"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*") if path.is_file() or ".part" in path.name)


# Out of a wheel.


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which pip, and only there, looks for packages; importing the one in it fails."""
    with zipfile.ZipFile(tmp_path / "tiny_model-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("tiny_model/__init__.py", "raise SystemExit('I was imported')")
        wheel.writestr("tiny_model/tiny.gguf", CONTENT)
        about = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: no-such-package\n"
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", about)
        wheel.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path


@pytest.mark.slow
def test_a_wheel_is_read_as_an_archive(
    monkeypatch: pytest.MonkeyPatch, registry: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = known(monkeypatch, Wheel("tiny-model==1.0", "tiny_model/tiny.gguf"))
    with pytest.raises(FileNotFoundError, match="tot-lab model pull tiny"):
        find(name)
    path = pull(name)
    assert path == find(name) == folder / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert files(folder) == ["tiny.gguf"]
    shown = capsys.readouterr()
    assert "downloading tiny" in shown.err
    assert "unpacking tiny: 100%" in shown.err
    assert shown.out == ""
    assert "tiny_model" not in sys.modules
    changed = path.stat().st_mtime_ns
    (registry / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert pull(name) == path
    assert path.stat().st_mtime_ns == changed
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_no_progress_is_shown_where_none_is_wanted(
    monkeypatch: pytest.MonkeyPatch, registry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = known(monkeypatch, Wheel("tiny-model==1.0", "tiny_model/tiny.gguf"))
    assert pull(name, tmp_path / "elsewhere", progress=False) == tmp_path / "elsewhere" / "tiny.gguf"
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_another_file_is_refused_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, registry: Path, folder: Path
) -> None:
    name = known(monkeypatch, Wheel("tiny-model==1.0", "tiny_model/tiny.gguf"), b"GGUF other")
    with pytest.raises(OSError, match="not the file known as 'tiny'"):
        pull(name, progress=False)
    assert files(folder) == []
    folder.joinpath("tiny.gguf").write_bytes(b"GGUF of somebody else")
    with pytest.raises(OSError, match=r"models/tiny\.gguf is not the file known as"):
        pull(name)
    assert folder.joinpath("tiny.gguf").read_bytes() == b"GGUF of somebody else"


@pytest.mark.slow
def test_what_pip_says_is_passed_on(monkeypatch: pytest.MonkeyPatch, registry: Path, folder: Path) -> None:
    name = known(monkeypatch, Wheel("tiny-model==2.0", "tiny_model/tiny.gguf"))
    with pytest.raises(OSError, match=r"tiny-model==2\.0 .*No matching distribution"):
        pull(name, progress=False)
    assert files(folder) == []


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown weights: got 'gpt-5'\. Use one of smollm2-135m, qwen"):
        pull("gpt-5")
    with pytest.raises(FileNotFoundError, match=r"/no/model\.gguf is neither a file nor"):
        find("/no/model.gguf")


# From the hub.


class Hubs(http.server.BaseHTTPRequestHandler):
    """What the hub's client asks a hub for, to fetch one file."""

    protocol_version = "HTTP/1.1"
    content = CONTENT
    asked: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        if self.path != "/Some/Where-GGUF/resolve/main/tiny-q4.gguf":
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.content
        start = int(self.headers.get("Range", "bytes=0-").partition("=")[2].partition("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", "1" * 40)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[start:])

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def hub(content: bytes = CONTENT) -> Iterator[tuple[str, list[str]]]:
    """A hub on loopback: its address, and what it was asked."""
    asked: list[str] = []
    handler = type("Handler", (Hubs,), {"content": content, "asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


SCRIPT = """
import json, sys
from tot_lab.models import weights
sha, repository, file, progress = json.loads(sys.argv[1])
weights.KNOWN["tiny"] = weights.Weights(sha, 1, "MIT", weights.Hub(repository, file))
for _ in range(2):
    print(weights.pull("tiny", progress=progress))
print([name for name in ("torch", "transformers") if name in sys.modules])
"""


def pulled(
    address: str, repository: str = "Some/Where-GGUF", before: str = "", progress: bool = True
) -> subprocess.CompletedProcess[str]:
    """What another process says that pulls from the hub at `address`, which is read on import."""
    asked = json.dumps([hashlib.sha256(CONTENT).hexdigest(), repository, "tiny-q4.gguf", progress])
    return subprocess.run(
        [sys.executable, "-c", before + SCRIPT, asked],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HF_ENDPOINT": address,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": os.environ["TOT_LAB_MODELS"] + "-home",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_hubs_own_client_fetches_the_file(folder: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with hub() as (address, asked):
        done = pulled(address)
    assert done.returncode == 0, done.stderr
    target = folder / "tiny.gguf"
    assert done.stdout.splitlines() == [str(target), str(target), "[]"]
    assert target.read_bytes() == CONTENT
    assert files(folder) == ["tiny.gguf"]
    assert "tiny-q4.gguf: 100%" in done.stderr
    assert sum(line.startswith("GET") and "resolve" in line for line in asked) == 1  # the second did nothing


@pytest.mark.slow
def test_the_hubs_progress_can_be_off(folder: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with hub() as (address, _):
        done = pulled(address, progress=False)
    assert done.returncode == 0
    assert "%" not in done.stderr


@pytest.mark.slow
def test_a_file_that_the_hub_changed_is_refused(folder: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with hub(CONTENT + b"more") as (address, _):
        done = pulled(address)
    assert "is not the file known as 'tiny'" in done.stderr
    assert files(folder) == []


@pytest.mark.slow
def test_a_hub_without_it_is_an_error(folder: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with hub() as (address, _):
        done = pulled(address, "Some/Body")
    assert "OSError: Some/Body/tiny-q4.gguf could not be downloaded from the model hub" in done.stderr
    assert files(folder) == []


@pytest.mark.slow
def test_without_the_hubs_client_it_says_what_to_install() -> None:
    done = pulled("http://127.0.0.1:1", before="import sys; sys.modules['huggingface_hub'] = None\n")
    assert "pip install 'tot-lab[local]'" in done.stderr
    assert "ModuleNotFoundError" in done.stderr


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


@pytest.mark.skipif(not THERE, reason="needs: tot-lab model pull smollm2-135m")
def test_known_sizes_are_those_of_the_files() -> None:
    for name, path in THERE.items():
        assert path.stat().st_size == KNOWN[name].size
