"""No command sends a terminal a control character that comes from a model, a file or a name: all are shown as
escapes. Every command is a process of its own, and models are a server on loopback."""

import os
import re
import subprocess
import sys

import pytest
from support import ROOT, mostly_nightly, wait
from support.providers import Fault, Providers, Said

import tot_lab as tl

CONTROLS = [*range(0x20), 0x7F, *range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F)]
CONTROLS = [chr(code) for code in (*CONTROLS, *range(0x2066, 0x206A)) if chr(code) not in "\t\n"]
HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \x9b31m \x1b]52;c;Y2F0\x1b\\ \rover\x08 \u202egnp.exe\u2066"
)
NAME = "a\x1b[31m\u202e\x9b\x07.jsonl"


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in [*os.environ]:
        if name.startswith(("TOT_LAB_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(*words):
    """What `tot-lab` prints, of which stderr may begin a line again for a bar."""
    done = subprocess.run([sys.executable, "-m", "tot_lab", *words], capture_output=True, check=False)
    out, err = done.stdout.decode(), done.stderr.decode()
    text = out + re.sub(r"(^|\n)(\r[^\r\n]*)+", "", err) if "Game of 24" in err else out + err
    assert not [character for character in CONTROLS if character in text], text
    return text


def hostile_run(folder, name):
    async def model(call):
        return f"Answer: {HOSTILE}"

    lab = tl.Lab(model, runs=folder)
    run = wait(lab.run(tl.OneAnswer(), tl.general(f"Why {HOSTILE}?", answer=f"4{HOSTILE}", grade="exact")))
    return run.save(folder / name)


def test_run_and_think_show_what_a_model_says_with_escapes(place, monkeypatch):
    with Providers(lambda asked: Said(f"Answer: {HOSTILE}")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
        run = ("run", "one_answer", "--task", "general", "Why?", "answer=4", "grade=exact")
        text = shown(*run, "--model", "openai/m")
        assert r"\x1b]0;title\x07" in text
        assert r"\u202egnp.exe" in text
        text = shown("think", "Why?", "--model", "openai/m", "--budget", "calls=9", "--no-gather")
        assert "gnp.exe" in text
        assert server.calls


@pytest.mark.nightly
def test_errors_of_a_server_are_shown_with_escapes(place, monkeypatch):
    with Providers(lambda asked: Fault(400, f"no {HOSTILE}")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
        words = ("one_answer", "--task", "general", "Why?", "answer=4", "grade=exact", "--model", "openai/m")
        assert "failed with an error" in shown("run", *words)
        shown("sweep", *words, "--name", "errors", "--out", "table.csv")


@pytest.mark.nightly
def test_names_of_files_and_texts_in_them_are_shown_with_escapes(place):
    journal = hostile_run(place / "runs", NAME)
    (place / f"log{NAME}").write_text(HOSTILE)
    (place / "tasks.jsonl").write_text('{"q": "x", "a": "1"}\n')
    for words in (
        ("replay", str(journal)),
        ("replay", str(place / "runs")),
        ("replay", f"log{NAME}"),
        ("replay", HOSTILE.replace("/", "")),
        ("show", str(journal), "--no-open", "--out", f"p{NAME}.html"),
        ("show", f"log{NAME}", "--no-open"),
        ("export", str(journal), "--to", f"t{NAME}.csv"),
        ("export", str(journal), "--to", f"t{NAME}.nothing"),
        ("cache", "stats", "--cache", f"c{NAME}"),
        ("cache", "export", f"c{NAME}.gz", str(journal), "--cache", f"c{NAME}"),
        ("cache", "merge", f"c{NAME}"),
        ("notebooks", f"n{NAME}"),
        ("sweep", "one_answer", "--tasks", f"x{NAME}", "--model", "sim/general"),
        ("sweep", "one_answer", "--tasks", "tasks.jsonl", f"question={HOSTILE}", "--model", "sim/general"),
    ):
        assert r"\x1b" in shown(*words), words


@pytest.mark.parametrize(
    "words",
    mostly_nightly(
        [
            [HOSTILE],
            ["run", HOSTILE, "--task", "general", "x", "--model", "sim/general"],
            ["run", "one_answer", HOSTILE, "--task", "general", "x", "--model", "sim/general"],
            ["run", "one_answer", f"{HOSTILE}=1", "--task", "general", "x", "--model", "sim/general"],
            ["run", "one_answer", "--task", HOSTILE, "x", "--model", "sim/general"],
            ["run", "one_answer", "--task", "general", HOSTILE, "--model", "sim/general"],
            ["run", "one_answer", "--task", "general", "x", "--model", HOSTILE],
            ["run", "one_answer", "--task", "general", "x", "--tools", HOSTILE, "--model", "sim/general"],
            ["model", "pull", HOSTILE],
            ["cache", HOSTILE],
        ],
        [["cache", HOSTILE], ["run", "one_answer", "--task", "general", HOSTILE, "--model", "sim/general"]],
    ),
)
def test_arguments_are_shown_with_escapes(words, place):
    assert r"\x1b" in shown(*words)


@pytest.mark.nightly
def test_a_file_of_settings_is_shown_with_escapes(place):
    escapes = HOSTILE.encode("unicode_escape").decode().replace(r"\x", r"\u00")
    for text in (
        f'model = "{escapes}"\nmodle = 1',
        f'"{escapes}" = 1',
        f'tools = ["{escapes}"]',
        f"a = {HOSTILE}",
    ):
        (place / "tot_lab.toml").write_text(text)
        assert "tot-lab: " in shown("think", "Why?")


@pytest.mark.nightly
def test_a_demo_in_a_folder_with_a_hostile_name(place):
    assert r"\x1b" in shown("demo", f"d{NAME}")


def test_plain_text_is_shown_as_it_is(place):
    text = "Zwölf Ελληνικά עברית 中文 👩‍💻 a \\x1b"
    with Providers(lambda asked: Said(f"Answer: {text}")) as server:
        os.environ["OPENAI_BASE_URL"] = server.base("openai")
        try:
            assert text in shown("run", "one_answer", "--task", "general", text, "--model", "openai/m")
        finally:
            del os.environ["OPENAI_BASE_URL"]
