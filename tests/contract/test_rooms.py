"""Every test file lies in a room, and none imports another."""

import re

from support import ROOT, TESTS, for_each

ROOMS = {"contract", "search", *(path.parent.name for path in ROOT.glob("tot_lab/*/__init__.py"))}
LANES = {"slow", "nightly", "proof"}
FILES = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
IMPORT = re.compile(r"^\s*(?:from|import)\s+(?:[\w.]+\.)?test_\w+|\bimport\b[\w, ]*\btest_\w+", re.MULTILINE)


def test_every_file_lies_in_a_room_or_in_the_folder_of_a_lane_there():
    def lies_in_a_room(path):
        room, *lane = path.parts[:-1]
        assert room in ROOMS
        assert not lane or (len(lane) == 1 and lane[0] in LANES)

    for_each(FILES, lies_in_a_room)


def test_no_file_imports_another():
    """The code that a file gives to another process is part of its text."""

    def imports_no_test_file(path):
        assert IMPORT.findall((TESTS / path).read_text()) == []

    for_each(FILES, imports_no_test_file)
