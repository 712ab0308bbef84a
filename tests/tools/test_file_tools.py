"""Files under a root: read whole or in part, written where that is allowed, and nothing else."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errands import result

import tot_lab as tl


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "a.md").write_text("one\ntwo\nthree\n")
    (root / "data.bin").write_bytes(bytes(range(256)))
    (root / "huge.txt").write_text("x" * 2_000)
    (tmp_path / "secret.txt").write_text("secret")
    (root / "out").symlink_to(tmp_path / "secret.txt")
    (root / "outside").symlink_to(tmp_path)
    (root / "inside").symlink_to(root / "notes")
    (root / "circle").symlink_to(root / "circle")
    os.mkfifo(root / "pipe")
    return root


def test_files_under_the_root_are_read_whole_or_in_part(root):
    read = tl.tools.ReadFile(root=root)
    assert read.effects == ("files",)
    assert result(read, {"path": "notes/a.md"}) == "one\ntwo\nthree\n"
    assert result(read, {"path": "inside/a.md", "first_line": 2, "last_line": 2}) == "two\n"
    assert result(read, {"path": "./notes/../notes/a.md", "first_line": 3}) == "three\n"
    assert "notes/a.md has 3 lines" in result(read, {"path": "notes/a.md", "first_line": 4})
    assert "first_line: Input should be greater" in result(read, {"path": "notes/a.md", "first_line": 0})


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret.txt", "lies outside the files that may be read"),
        ("notes/../../secret.txt", "lies outside"),
        ("out", "lies outside"),
        ("outside/secret.txt", "lies outside"),
        ("/etc/passwd", "must be a path below the root"),
        ("\0", "must be a path below the root"),
        ("..\\secret.txt", "must be a path below the root"),
        ("~/.ssh/id_rsa", "No such file"),
        ("notes", "is no plain file"),
        ("", "is no plain file"),
        (".", "is no plain file"),
        ("pipe", "is no plain file"),
        ("circle", "leads nowhere"),
        ("nowhere.md", "No such file"),
        ("notes/a.md/b", "Not a directory"),
        ("x" * 5_000, "File name too long"),
        ("data.bin", "is no text: a binary file of 256 bytes"),
        ("huge.txt", "has 2,000 bytes; 1,000 are the most"),
    ],
)
def test_nothing_else_can_be_read(root, path, why):
    told = result(tl.tools.ReadFile(root=str(root), max_bytes=1_000), {"path": path})
    assert told.startswith("✗ ")
    assert why in told
    assert str(root.parent) not in told  # nor where the root is


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs: /dev/zero")
def test_a_device_is_no_file():
    assert "is no plain file" in result(tl.tools.ReadFile(root="/dev"), {"path": "zero"})


def test_a_link_that_is_put_there_meanwhile_leads_nowhere(root, monkeypatch):
    resolve = Path.resolve

    def late(path, **more):
        found = resolve(path, **more)
        if found.name == "a.md":
            (root / "notes").rename(root / "other")
            (root / "notes").symlink_to(root.parent)
            (root.parent / "a.md").write_text("secret")
        return found

    monkeypatch.setattr(Path, "resolve", late)
    assert (
        result(tl.tools.ReadFile(root=root), {"path": "notes/a.md"})
        == "✗ FileNotFoundError: notes/a.md: Not a directory"
    )


@pytest.mark.slow
def test_files_are_listed(root):
    listing = tl.tools.ListFiles(root=root)
    assert result(listing, {}).splitlines() == [
        "circle (a link)",
        "data.bin (256 bytes)",
        "huge.txt (2,000 bytes)",
        "inside (a link)",
        "out (a link)",
        "outside (a link)",
        "pipe (no plain file)",
        "notes/a.md (14 bytes)",
    ]
    assert result(listing, {"pattern": "*.md"}) == "notes/a.md (14 bytes)"
    assert result(listing, {"pattern": "../*"}) == "no file matches '../*'"
    for k in range(1_001):
        (root / f"{k}.txt").touch()
    assert result(listing, {"pattern": "*.txt"}).endswith("… (more than 1,000; give a narrower pattern)")
    with pytest.raises(ValueError, match="root must be a folder"):
        tl.tools.ReadFile(root=root / "data.bin")


def test_a_file_that_is_deleted_meanwhile_is_not_listed(root, monkeypatch):
    lstat = os.lstat

    def late(name, **more):
        if name == "huge.txt":
            (root / name).unlink(missing_ok=True)
        return lstat(name, **more)

    monkeypatch.setattr(os, "lstat", late)
    assert result(tl.tools.ListFiles(root=root), {"pattern": "*.[bt]*"}) == "data.bin (256 bytes)"


def test_lines_are_counted_as_editors_count(root):
    (root / "page.txt").write_text("one\x0c\u2028still one\ntwo\n")
    assert result(tl.tools.ReadFile(root=root), {"path": "page.txt", "first_line": 2}) == "two\n"


# S6: writing.

ALLOWED = {"effect_policy": tl.EffectPolicy(allow={"file-write"})}


def written(root, path, content="new", **settings):
    return result(tl.tools.WriteFile(root=root, **settings), {"path": path, "content": content}, **ALLOWED)


def listing(folder):
    """Every file and folder below, hidden ones too, with what is in the plain files."""
    found = {}
    for path in sorted(folder.rglob("*")):
        plain = path.is_file() and not path.is_symlink()
        found[path.relative_to(folder).as_posix()] = path.read_bytes() if plain else None
    return found


def test_s6_a_new_file_is_written_below_the_root(root):
    assert written(root, "notes/today/b.md", "grün\n") == "wrote notes/today/b.md (6 bytes)"
    assert (root / "notes" / "today" / "b.md").read_bytes() == b"gr\xc3\xbcn\n"
    assert written(root, "c.md", "") == "wrote c.md (0 bytes)"
    assert not [path for path in root.rglob("*") if path.name.startswith(".")]  # nothing is left behind


def test_s6_it_is_denied_unless_it_is_allowed(root):
    tool = tl.tools.WriteFile(root=root)
    assert tool.name == "write-file"
    assert tool.effects == ("file-write",)  # leave to read files is none to write them
    for policy in (None, tl.EffectPolicy(), tl.EffectPolicy(allow={"files"})):
        with pytest.raises(ValueError, match=r"'write-file' .*does not allow file-write"):
            result(tool, {"path": "b.md", "content": "x"}, effect_policy=policy)
    assert not (root / "b.md").exists()
    for policy in (tl.EffectPolicy(allow={"write-file"}), tl.EffectPolicy(mode="allow_all")):
        said = result(tool, {"path": f"{policy.mode}.md", "content": "x"}, effect_policy=policy)
        assert said == f"wrote {policy.mode}.md (1 bytes)"
    denied = tl.EffectPolicy(mode="allow_all", deny={"file-write"})
    with pytest.raises(ValueError, match=r"'write-file' .*denies file-write"):
        result(tool, {"path": "d.md", "content": "x"}, effect_policy=denied)


def test_s6_it_goes_by_both_names():
    for name in ("write_file", "write-file", "file-write", "file_write"):
        with pytest.raises(ValueError, match="requires settings: root="):
            tl.tools.tools_named(name)
    (made,) = tl.tools.tools_named("file-write", {"root": "."})
    assert made == tl.tools.WriteFile(root=".")
    assert made.spec.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../new.md", "must be a path below the root"),
        ("notes/../../new.md", "must be a path below the root"),
        ("notes/../b.md", "must be a path below the root"),
        ("/tmp/new.md", "must be a path below the root"),
        ("\0", "must be a path below the root"),
        ("..\\new.md", "must be a path below the root"),
        ("", "must be a path below the root"),
        (".", "must be a path below the root"),
        ("..", "must be a path below the root"),
        (".git/hooks/pre-commit", "no part of it may begin with a dot"),
        ("out", "File exists"),
        ("outside/new.md", "Not a directory"),
        ("outside/deeper/new.md", "Not a directory"),
        ("inside/b.md", "Not a directory"),  # links inside are not followed either
        ("circle", "File exists"),
        ("circle/b.md", "Not a directory"),
        ("notes", "File exists"),
        ("pipe", "File exists"),
        ("notes/a.md", "File exists"),
        ("notes/a.md/b", "Not a directory"),
        ("x" * 5_000, "File name too long"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_s6_nothing_else_can_be_written(root, path, why, overwrite):
    before = listing(root.parent)
    said = written(root, path, overwrite=overwrite)
    if overwrite and path == "notes/a.md":
        assert said == "wrote notes/a.md (3 bytes)"
        assert (root / "notes" / "a.md").read_text() == "new"
        return
    assert said.startswith("✗ ")
    assert (why if not (overwrite and why == "File exists") else "is no plain file") in said
    assert str(root.parent) not in said
    assert listing(root.parent) == before


def test_s6_too_much_is_refused_before_anything_is_written(root):
    before = listing(root)
    said = written(root, "deep/b.md", "ü" * 6, max_bytes=11)
    assert said == "✗ ValueError: deep/b.md: got 12 bytes. At most 11 can be written."
    assert listing(root) == before
    assert written(root, "b.md", "ü" * 6, max_bytes=12) == "wrote b.md (12 bytes)"


@pytest.mark.parametrize("overwrite", [False, True])
def test_s6_a_link_that_is_put_there_meanwhile_leads_nowhere(root, monkeypatch, overwrite):
    """The folder is exchanged for a link after it was opened, and the file for one just before it is put
    in place: neither is followed."""
    (root.parent / "a.md").write_text("secret")
    synced = os.fsync

    def late(file):
        synced(file)
        (root / "notes" / "a.md").unlink()
        (root / "notes" / "a.md").symlink_to(root.parent / "a.md")
        (root / "notes").rename(root / "other")
        (root / "notes").symlink_to(root.parent)

    monkeypatch.setattr(os, "fsync", late)
    said = written(root, "notes/a.md", overwrite=overwrite)
    assert (root.parent / "a.md").read_text() == "secret"
    if overwrite:
        assert (root / "other" / "a.md").read_text() == "new"
        assert not (root / "other" / "a.md").is_symlink()
    else:
        assert "File exists" in said


KILLED = """
import os, sys
import tot_lab as tl
os.fsync = lambda file: os.kill(os.getpid(), 9)
tl.tools.WriteFile(root=sys.argv[1], overwrite=True).carry_out({"path": "a.md", "content": "x" * 9_000}, {})
"""


@pytest.mark.slow
def test_s6_killed_while_it_writes_the_old_text_stands(tmp_path):
    (tmp_path / "a.md").write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a.md").read_text() == "old"


def test_s6_of_many_that_write_one_name_a_single_one_does(root):
    def write(k):
        try:
            tl.tools.WriteFile(root=root).carry_out({"path": "one.md", "content": f"{k}" * 9_000}, {})
        except FileExistsError:
            return None
        return k

    with ThreadPoolExecutor(8) as pool:
        wrote = [k for k in pool.map(write, range(8)) if k is not None]
    assert len(wrote) == 1
    assert (root / "one.md").read_text() == f"{wrote[0]}" * 9_000


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="a.b/\\~$ \0\n:*", max_size=12), st.booleans())
def test_s6_no_path_leads_outside(path, overwrite):
    with TemporaryDirectory() as folder:
        home = Path(folder, "root")
        (home / "a").mkdir(parents=True)
        (home / "b").symlink_to(Path(folder))
        tool = tl.tools.WriteFile(root=home, overwrite=overwrite)
        with suppress(OSError, ValueError):
            tool.carry_out({"path": path, "content": "x"}, {})
        assert list(Path(folder).iterdir()) == [home]
        assert (home / "b").is_symlink()
