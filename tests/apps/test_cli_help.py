"""What a newcomer meets on the command line: the first words, help, colours, completion, missing extras."""

import asyncio
import os
import pty
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support import ROOT, run

import tot_lab as tl
from tot_lab.apps.cli import main
from tot_lab.apps.cli.arguments import InvalidArgument, parse_model
from tot_lab.apps.cli.help import part_names
from tot_lab.core.parameters import field_docs
from tot_lab.core.parts import REGISTRY
from tot_lab.core.registry import built_in
from tot_lab.models.weights import KNOWN

HAND = ("--task", "game24", "4 5 6 10", "--model", "sim/game24")
PLACES = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
ENV = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"PYTHONPATH": PLACES}


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """The command in this process, in a folder of its own: exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def ran(*words):
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return ran


def commands(here):
    """Every command by its words, with its help."""
    found, waiting = {}, [()]
    while waiting:
        words = waiting.pop()
        code, found[words], err = here(*words, "--help")
        assert (code, err) == (0, "")
        if words in ((), ("cache",), ("model",)):
            listed = re.findall(r"^ {2,4}([a-z]+) {2,}(\S.*)$", found[words], re.M)
            waiting += [(*words, name) for name, _ in listed]
        if words:
            assert re.search(r"^[A-Z].*\.$", found[words], re.M)  # what it does, in a sentence
    return found


@pytest.mark.slow
def test_without_arguments_three_things_to_try_are_shown_and_each_works(here):
    code, out, err = here()
    assert (code, err) == (0, "")
    shown = [re.split(" {3,}", line.strip())[0] for line in out.splitlines() if line.startswith("  tot-lab ")]
    assert len(shown) == 3
    shown.remove("tot-lab demo")  # tests/apps/slow/test_cli.py runs it
    for line in shown:
        code, out, err = here(*shlex.split(line)[1:])
        assert code == 0, (line, err)
        assert out


@pytest.mark.slow
def test_help_is_grouped_short_and_as_wide_as_the_terminal(here):
    known = commands(here)
    names = {words[0] for words in known if len(words) == 1}
    assert names == {
        *("demo", "notebooks", "run", "sweep", "think", "serve", "mcp", "replay", "show", "export"),
        *("cache", "model"),
    }
    assert {words for words in known if len(words) == 2} == {
        *(("cache", name) for name in ("stats", "verify", "export", "import", "merge", "prune")),
        *(("model", name) for name in ("list", "pull")),
    }
    groups = re.findall(r"^(\w[\w ]*):$", known[()], re.M)
    assert groups == [
        *("options", "first steps", "searches", "for other programs", "recorded runs", "this machine")
    ]
    groups = re.findall(r"^(\w[\w ]*):$", known[("run",)], re.M)
    assert groups == ["options", "what to run", "limits", "cache", "results", "examples"]
    for words, text in known.items():
        assert max(map(len, text.splitlines())) <= 80, words
        assert len(text.splitlines()) <= 100, words
    assert "max_iterations" not in known[("run",)]  # a setting of one strategy


@pytest.mark.slow
def test_names_are_never_broken(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    for command in ("run", "sweep"):
        words = re.split(r"[\s,|=]+", here(command, "--help")[1])
        for group in ("strategies", "proposers", "evaluators", "searches", "answers", "domains"):
            for name in built_in(group):
                assert name.startswith(("published/", "gym")) or name in words


@pytest.mark.slow
@pytest.mark.parametrize("words", [("run", "react", "--help"), ("sweep", "--help", "react")])
def test_the_settings_of_a_strategy_are_shown_on_request(words, here):
    code, out, err = here(*words)
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    docs = field_docs(tl.ReAct)
    for name in tl.ReAct.model_fields:
        assert f" {name}=" in text
        assert " ".join(docs[name].split()) in text
    assert "max_iterations=10" in text


@pytest.mark.nightly
def test_every_component_is_described(here):
    for group, names in part_names().items():
        for name in names:
            if group == "models" and name not in REGISTRY:
                continue  # local/NAME and names of litellm
            if group == "tools" and name == "multi_hop":
                continue  # the tools of a domain
            code, out, err = here("run", name, "--help")
            assert (code, err) == (0, ""), name
            assert len(out.splitlines()) > 1
            assert out.startswith(f"{name}\n")
    settings = here("run", "tree_of_thoughts", "--help")[1]
    assert "search.width=2" in settings
    assert "search=beam_search | depth_first | best_first | mcts" in settings
    assert "exploration=" in here("run", "mcts", "--help")[1]
    assert "--tools read_file root=… --allow files" in here("run", "read_file", "--help")[1]


def test_an_unknown_name_is_compared_with_the_known_ones(here):
    code, out, err = here("run", "reakt", "--help")
    assert (code, out) == (2, "")
    assert "'reakt'; did you mean 'react'?" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run one_answer --task game24 '4 5 6 10' --modle sim/game24", "--modle; did you mean .*--model"),
        (
            "run one_answer --width 5",
            "option --width; settings follow the strategy: .* search.width=5",
        ),
        ("replay --width=5 x.jsonl", "unknown option --width; see"),
        ("run tree_of_thoughts search.width = 5", "'=': expected FIELD=VALUE, without spaces around ="),
        ("run tree_of_thoughts search.width =5", "'=5': expected FIELD=VALUE, without spaces around ="),
        ("run one_answer --budget 60", "--budget must be FIELD=VALUE, such as calls=60: got '60'"),
        (
            "run tree_of_thoughts --model sim/game24 search.width=5",
            "model sim/game24 has no setting 'search.width'. Settings of the strategy come before --model",
        ),
    ],
)
def test_a_word_at_the_wrong_place(here, words, says):
    given = shlex.split(words)
    if given[0] == "run" and "--task" not in given:
        given += ["--task", "game24", "4 5 6 10"]
    if given[0] == "run" and not {"--model", "--modle"} & {*given}:
        given += ["--model", "sim/game24"]
    code, out, err = here(*given)
    assert (code, out) == (2, "")
    assert re.search(says, err)


# Colours.


def on_terminal(code: str, folder: Path, **env: str) -> str:
    """What a terminal shows of a program, which a fork of this process runs."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.pop("NO_COLOR", None)
        os.environ.update({"TERM": "xterm", **env})
        with open(1, "w", closefd=False) as sys.stdout, open(2, "w", closefd=False) as sys.stderr:
            try:
                exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})
            finally:
                sys.stdout.flush()
                os._exit(0)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the program has ended
            break
        shown += part
        if not part:
            break
    os.close(terminal)
    os.waitpid(child, 0)
    return shown.decode()


COLOURED = """
import asyncio, sys
import tot_lab as tl
from tot_lab.apps.cli.terminal import in_colour, run_in_colour
from tot_lab.views.figures.verdict import grade_words

async def answers(call): return said
async def fails(call): raise OSError("away")

task = tl.general("3 * 17?", answer=51, grade="number")
for said, model in (("Answer: 51", answers), ("Answer: 50", answers), ("", fails)):
    run = asyncio.run(tl.Lab(model, runs=None).run(tl.OneAnswer(), task))
    print(run_in_colour(run))
    print(in_colour(grade_words(run), run))
run = asyncio.run(tl.Lab(answers, runs=None).run(tl.OneAnswer(), tl.general("3 * 17?")))
print(run_in_colour(run))
"""


@pytest.mark.slow
def test_verdicts_are_coloured_on_a_terminal_only(tmp_path, capsys):
    shown = on_terminal(COLOURED, tmp_path)
    assert re.findall(r"\x1b\[(\d+)m([^\x1b,]*)[^\x1b]*\x1b\[0m", shown) == [
        *[("32", "✓ correct")] * 2,
        *[("31", "✗ wrong")] * 2,
        *[("33", "failed")] * 2,
    ]
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_terminal(COLOURED, tmp_path, **env)
        assert "\x1b" not in plain
        assert "✓ correct" in plain
    exec(COLOURED, {"__name__": "__main__"})
    piped = capsys.readouterr().out
    assert "\x1b" not in piped
    assert "✗ wrong" in piped


@pytest.mark.nightly
def test_run_and_demo_colour_their_verdicts(tmp_path):
    start = "import sys; from tot_lab.apps.cli import main; sys.exit(main(sys.argv[1:]))"
    begin = f"import sys; sys.argv[1:] = {['run', 'tree_of_thoughts', *HAND]!r}\n{start}"
    assert "\x1b[32m✓ correct\x1b[0m" in on_terminal(begin, tmp_path)
    shown = on_terminal(f"import sys; sys.argv[1:] = ['demo']\n{start}", tmp_path)
    assert len(re.findall(r"^\d+ \d+ \d+ \d+ .*\x1b\[3[12]m[✓✗]", shown, re.M)) == 20


# Models, pages, exports, extras.


def test_model_list_names_what_a_model_may_be(here, tmp_path, monkeypatch):
    monkeypatch.setenv("TOT_LAB_MODELS", str(tmp_path))
    (tmp_path / "smollm2-135m.gguf").write_bytes(b"weights")
    code, out, err = here("model", "list")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    for name in built_in("models"):
        assert not name.startswith("sim/") or name in rows
    assert "real model of a small formal language" in rows["tiny/numbers"]
    for name in KNOWN:
        state = "downloaded" if name == "smollm2-135m" else f"tot-lab model pull {name}"
        assert rows[f"local/{name}"].endswith(state)
        tl.Lab(f"local/{name}", runs=None)
    assert "OPENAI_API_KEY" in rows["gpt-4.1-mini"]


@pytest.mark.nightly
def test_show_without_a_browser_says_how_to_open_the_page(tmp_path):
    run(tl.OneAnswer()).save(tmp_path / "a.jsonl")
    words = [sys.executable, "-m", "tot_lab", "show", "a.jsonl", "--out", "a.html"]
    env = {**ENV, "PATH": str(tmp_path)}
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        env.pop(name, None)
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "a.html")
    assert "No browser was found. Open the page" in done.stderr
    quiet = subprocess.run(
        [*words, "--no-open"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert quiet.stderr == ""


@pytest.mark.slow
def test_an_export_of_nothing_is_an_error(here, tmp_path):
    run(tl.OneAnswer()).save(tmp_path / "a.jsonl")  # of a model whose calls are not cached
    assert here("run", "one_answer", *HAND, "--cache", "calls", "--out", "b.jsonl")[0] == 0
    code, out, err = here("cache", "export", "x.jsonl.gz", "a.jsonl", "--cache", "calls")
    assert (code, out) == (1, "")
    assert err.startswith("tot-lab: Nothing to export")
    assert not (tmp_path / "x.jsonl.gz").exists()
    code, out, err = here("cache", "export", "x.jsonl.gz", "b.jsonl", "--cache", "calls")
    assert code == 0, err
    assert (tmp_path / "x.jsonl.gz").exists()


def test_a_missing_extra_is_named_and_nothing_is_written(here, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what Python takes for a package that is not there
    code, _, err = here("sweep", "one_answer", *HAND, "--out", "a.parquet")
    assert code == 2
    assert "a.parquet requires pyarrow: pip install 'tot-lab[parquet]'" in err
    assert not list(tmp_path.iterdir())


def test_a_table_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    sweep = asyncio.run(tl.Lab("sim/game24", runs=None).sweep({"one": tl.OneAnswer()}, tl.game24_tasks(1)))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "a.parquet"
    with pytest.raises(
        ImportError, match=re.escape(f"{path} requires pyarrow: pip install 'tot-lab[parquet]'")
    ):
        sweep.save(path)
    assert not path.exists()


@pytest.mark.slow
def test_extras_have_one_spelling_everywhere():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [*ROOT.glob("tot_lab/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    spelled = 0
    for file in files:
        text = file.read_text()
        for found in re.finditer(r"tot-lab\[([^]]*)\]", text):
            spelled += 1
            assert text[found.start() - 13 : found.start()] == "pip install '", f"{file}: {found[0]}"
            assert found[1] == "{extra}" or {*found[1].split(",")} <= {*extras}, f"{file}: {found[0]}"
        for extra in re.findall(r"\brequires\((?:[^()]|\([^()]*\))*[\"'](\w+)[\"']\)", text):
            assert extra in extras, f"{file}: {extra}"
    assert spelled > 5


# Completion.


def completed(line: str, folder: Path) -> list[str]:
    """What the shell offers after Tab at the end of `line`. The command ends its process, here a fork."""
    answer = folder / "answer"
    env = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line.encode())),
        "COMP_TYPE": "9",
    }
    if (child := os.fork()) == 0:
        os.chdir(folder)
        os.environ.update(env)
        try:
            main([])
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return answer.read_text().split("\n")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tot-lab re", ["replay"]),
        ("tot-lab run tree_", ["tree_of_thoughts", "tree_then_act"]),
        ("tot-lab run tree_of_thoughts search.", ["search.width="]),
        ("tot-lab run tree_of_thoughts search=m", ["search=mcts", "search=mur"]),
        ("tot-lab sweep one_answer react max_it", ["max_iterations="]),
        ("tot-lab run react --mod", ["--mode", "--model"]),
        ("tot-lab run react --model sim/g", ["sim/game24", "sim/general"]),
        ("tot-lab run react --model sim/game24 sk", ["skill="]),
        ("tot-lab run react --task game", ["game24"]),
        ("tot-lab run react --tools read", ["read_file"]),
        ("tot-lab run react --budget us", ["usd="]),
        ("tot-lab model pull sm", ["smollm2-135m"]),
        ("tot-lab show my_", ["my_run.jsonl"]),
    ],
)
def test_words_are_completed(line, offered, tmp_path):
    (tmp_path / "my_run.jsonl").touch()
    assert sorted(completed(line, tmp_path)) == sorted(offered)


def test_a_price_is_given_with_the_model():
    words = ["vllm/m", "base_url=http://127.0.0.1:9/v1"]
    assert parse_model([*words, "price=0.15,0.6"]).price == (0.15, 0.6)
    assert parse_model([*words, "price=[0.15,0.6,0.1]"]).price == (0.15, 0.6, 0.1)
    with pytest.raises(InvalidArgument, match=r"price: expected USD per million tokens of \(prompt, reply\)"):
        parse_model([*words, "price=0.15"])
