"""Files under a root: read whole or in part, and nothing else."""

import os
from pathlib import Path

import pytest
from errands import result

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
    told = result(tl.tools.ReadFile(root=str(root), most_bytes=1_000), {"path": path})
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
    with pytest.raises(ValueError, match="is no folder"):
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
