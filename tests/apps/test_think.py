"""`tl.think`: both stages in one line, what it is told, and that a lacking model is said at once."""

import asyncio

import pandas
import pytest
from support import TASK, Scripted, wait
from support.providers import Fault, Providers, Said

import tot_lab as tl
from tot_lab.core.records import Line
from tot_lab.lab.context import MAX_CHARACTERS, format_value, join_context, read_files
from tot_lab.views.progress import Progress


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL", "TOT_LAB_MODEL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def lab(**settings):
    return tl.Lab("sim/general", runs=None, **settings)


def test_a_question_is_thought_through_in_one_line():
    run = wait(tl.think(" Which database? ", lab(), branches=2, iterations=1, context="We have SQLite."))
    assert run.task == tl.open_ended("Which database?", context="We have SQLite.")
    thinking = run.strategy.strategy
    assert (thinking.num_branches, thinking.max_iterations) == (2, 1)
    assert run.answer


def test_a_task_keeps_what_it_is():
    task = TASK.model_copy(update={"context": "its own"})
    run = wait(tl.think(task, lab(), preset="quick", context="more"))
    assert run.task.domain == TASK.domain
    assert run.task.context == "more\n\nits own"


def test_sizes_stand_on_top_of_a_preset():
    run = wait(tl.think("Why?", lab(), preset="maximum", iterations=1))
    assert run.strategy.strategy == tl.presets.deep_think_maximum().model_copy(update={"max_iterations": 1})
    with pytest.raises(ValueError, match="did you mean 'quick'"):
        wait(tl.think("Why?", lab(), preset="quik"))
    with pytest.raises(ValueError, match="question must not be empty"):
        wait(tl.think(" ", lab()))


def test_without_a_lab_the_settings_say_model_and_budget(tmp_path):
    (tmp_path / "tot_lab.toml").write_text('model = "sim/general"\n[budget]\ncalls = 3')
    run = wait(tl.think("Why?"))
    assert (run.model, run.stop_reason, run.usage.calls) == ("sim/general", "budget:calls", 3)
    assert run.path.parent.resolve() == (tmp_path / "here" / "runs").resolve()
    assert wait(tl.think("Why?", budget=tl.Budget(calls=2))).usage.calls == 2


@pytest.mark.parametrize(
    ("question", "given", "says"),
    [
        (None, {}, "question must be a string or a Task: got None"),
        (
            "Why?",
            {"lab": "sim/general"},
            "lab must be a Lab such as tl.Lab(\"sim/general\"): got 'sim/general'",
        ),
        ("Why?", {"memory": []}, r"memory must be a tl.SessionMemory: got \[\]"),
        (
            "Why?",
            {"research": False},
            "research must be a tl.records.ResearchDelegate or a dict of its settings: got False",
        ),
    ],
)
def test_what_is_of_the_wrong_kind_is_named(question, given, says):
    with pytest.raises(TypeError, match=says.replace('("sim/general")', r"\(.sim/general.\)")):
        wait(tl.think(question, **{"lab": lab(), **given}))


def test_research_is_set_as_for_the_strategy():
    def delegate(**given):
        return wait(tl.think("Why?", lab(), preset="quick", **given)).strategy.research

    assert delegate() == tl.records.ResearchDelegate()
    off = tl.records.ResearchDelegate(enabled=False, max_pages=2)
    assert delegate(research=off) == delegate(research={"enabled": False, "max_pages": 2}) == off


# No model (D8).


def test_nothing_configured_and_no_ollama_is_an_error_at_once(monkeypatch, tmp_path):
    """D8, D10."""
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(
        tl.errors.NoModel, match=r"No Ollama server answers at http://127.0.0.1:9.*tot_lab.toml"
    ):
        wait(tl.think("Why?"))
    assert not (tmp_path / "here" / "runs").exists()


def test_a_lacking_key_is_an_error_at_once(tmp_path, monkeypatch):
    """D8."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tl.errors.NoModel, match=r"No API key for openai/gpt-4.1-mini.*OPENAI_API_KEY") as got:
        wait(tl.think("Why?", tl.Lab("openai")))
    assert ".env" not in str(got.value)
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-x")
    with pytest.raises(tl.errors.NoModel, match=r"OPENAI_API_KEY\. The file \.env is not read"):
        wait(tl.think("Why?", tl.Lab("openai")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("olama/x", r"Unknown provider of olama/x \(did you mean 'ollama'\?\)"),
        ("gtp-4.1-mini", "did you mean 'gpt-4.1-mini'"),
        ("my-model", "prefix it to the name, as in ollama/qwen3:8b"),
    ],
)
def test_a_provider_that_nobody_knows_is_an_error_at_once(model, says):
    """D8."""
    with pytest.raises(tl.errors.NoModel, match=says):
        wait(tl.think("Why?", tl.Lab(model, runs=None)))


@pytest.mark.slow
def test_a_model_that_this_ollama_lacks_is_an_error_at_once(monkeypatch):
    """D8."""
    with Providers() as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", server.base("ollama"))
        server.pages["/api/tags"] = {"models": [{"name": "llama3.2:latest"}]}
        with pytest.raises(
            tl.errors.NoModel, match=r"does not have the model qwen3:8b: got llama3.2:latest.*ollama pull"
        ):
            wait(tl.think("Why?"))
        run = wait(tl.think("Why?", tl.Lab("ollama/llama3.2", runs=None), preset="quick"))
        assert run.answer


def test_weights_that_are_not_there_are_an_error_at_once(monkeypatch, tmp_path):
    """D8."""
    monkeypatch.setenv("TOT_LAB_MODELS", str(tmp_path))
    with pytest.raises(tl.errors.NoModel, match="tot-lab model pull smollm2-135m"):
        wait(tl.think("Why?", tl.Lab("local/smollm2-135m")))


@pytest.mark.slow
def test_what_the_cache_knows_needs_no_model(monkeypatch, tmp_path):
    with Providers(Said('{"branches": []}')) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
        model = tl.LiteLLM(model="openai", api_key="none")
        run = wait(tl.think("Why?", tl.Lab(model, runs=None), preset="quick"))
        asked = len(server.asked)
        assert run.usage.calls > 0
    again = wait(tl.think("Why?", tl.Lab(model, runs=None), preset="quick"))  # the server is gone
    assert (again.events, len(server.asked)) == (run.events, asked)
    with pytest.raises(tl.errors.NoModel, match="No server answers"):
        wait(tl.think("Why not?", tl.Lab(model, runs=None), preset="quick"))


@pytest.mark.slow
def test_a_server_that_answers_anything_is_there(monkeypatch):
    with Providers(Fault(500)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
        model = tl.LiteLLM(model="openai", api_key="none", retries=0)
        assert wait(tl.think("Why?", tl.Lab(model, runs=None))).stop_reason == "error"


@pytest.mark.slow
def test_a_server_that_only_does_not_answer_this_is_asked():
    """Only what is certain is said: it may be busy."""

    async def thought():
        async def close(reader, writer):
            writer.close()

        server = await asyncio.start_server(close, "127.0.0.1", 0)
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        model = tl.LiteLLM(model="openai", api_base=base, api_key="none", retries=0)
        async with server:
            return await tl.think("Why?", tl.Lab(model, runs=None))

    assert wait(thought()).stop_reason == "error"


# Memory (D13).


def test_a_later_thought_is_told_the_earlier_ones():
    """D13: kept in the session's memory for later turns."""
    memory = tl.SessionMemory()
    asked = []

    def reply(call):
        asked.append(call.prompt)
        return "not JSON"

    mine = tl.Lab(Scripted(reply), runs=None)
    first = wait(tl.think("Which database?", mine, preset="quick", memory=memory))
    asked.clear()
    second = wait(tl.think("How do we move to it?", mine, preset="quick", memory=memory, context="In May."))
    assert second.task.context.endswith("In May.")
    assert all("Which database?" in prompt and first.answer in prompt for prompt in asked)
    assert [one.run for one in memory.thoughts] == [first.id, second.id]


def test_a_thought_without_an_answer_is_not_remembered():
    memory = tl.SessionMemory()
    wait(tl.think("Why?", lab(), memory=memory, budget=tl.Budget(calls=0)))
    assert len(memory) == 0
    assert memory.context() == ""


def test_memory_is_bounded_and_says_what_was_cut():
    memory = tl.SessionMemory(most=1000)
    run = wait(tl.think("Why?", lab(), preset="quick"))
    for n in range(30):
        memory.add(run)
        memory.thoughts[-1] = memory.thoughts[-1]._replace(question=f"Question {n}?", answer=f"{n} " * 400)
    told = memory.context()
    assert len(told) < 1000 + 200
    assert "Question 29?" in told
    assert "Question 0?" not in told
    assert "older thoughts are left out" in told
    assert "more characters are not shown" in told
    assert memory.thoughts[0].answer == "0 " * 400  # nothing is lost
    with pytest.raises(ValueError, match="200"):
        tl.SessionMemory(most=10)


# What a person tells.


def test_values_of_a_notebook_are_told_by_their_text():
    table = pandas.DataFrame({"city": ["Oslo"], "rain": [3]})
    assert format_value("notes", "It rains.") == "--- notes ---\nIt rains."
    assert "Oslo,3" in format_value("table", table)
    run = wait(tl.think("Why?", lab(), preset="quick"))
    assert run.answer in format_value("run", run)
    assert format_value("numbers", [1, 2]) == "--- numbers ---\n[1, 2]"
    assert "10 more characters are not shown" in format_value("long", "x" * (MAX_CHARACTERS + 10))
    assert join_context("", "a", "", "b") == "a\n\nb"


def test_a_key_is_not_told(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "a-very-secret-key")
    assert "secret" not in format_value("settings", {"x": "a-very-secret-key"})


def test_files_below_the_folder_are_told(tmp_path):
    here = tmp_path / "here"
    (here / "src").mkdir()
    (here / "src" / "a.py").write_text("one")
    (here / "b.md").write_text("two")
    (here / ".env").write_text("SECRET=1")
    (here / "picture.png").write_bytes(b"\x89PNG\0\xff")
    (tmp_path / "outside.md").write_text("no")
    (here / "link.md").symlink_to(tmp_path / "outside.md")
    told = read_files(["src/*.py", "b.md", "**/a.py"])
    assert told == "--- src/a.py ---\none\n\n--- b.md ---\ntwo"
    assert "SECRET" not in read_files(["*b*", "src/*"])
    (here / "c.md").write_text("x" * 2 * MAX_CHARACTERS)
    assert len(read_files(["b.md", "c.md"])) < MAX_CHARACTERS
    cut = []
    assert "more characters are not shown" in read_files(["b.md", "c.md"], cut=cut)
    assert cut == [
        f"c.md was shortened: {MAX_CHARACTERS // 2:,} of {2 * MAX_CHARACTERS:,} characters are used"
    ]
    (here / "n[1].md").write_text("three")
    assert read_files(["n[1].md"]) == "--- n[1].md ---\nthree"
    for pattern, says in [
        ("../outside.md", "a pattern must be a relative path"),
        (str(tmp_path / "outside.md"), "a pattern must be a relative path"),
        ("link.md", "link.md"),
        ("picture.png", "binary file"),
        ("none.*", "none.*: no file matches"),
        ("src", "To take the files of a folder, write src/*"),
    ]:
        with pytest.raises((ValueError, OSError), match=says.replace("*", r"\*")):
            read_files([pattern])


# Progress.


def test_progress_tells_what_is_under_way_and_what_was_noted():
    progress = Progress("a model")
    seen = []

    def watch(lines):
        progress.take(lines)
        seen.append((progress.head, len(progress.rows())))

    wait(tl.think("Why <b>?", tl.Lab(Scripted(), runs=None), branches=9, iterations=1, watch=watch))
    assert any(head.startswith("branch …") for head, _ in seen)
    assert any(head.startswith("develop × 3 …") for head, _ in seen)
    assert any(head.startswith("converge …") for head, _ in seen)
    assert progress.head.startswith("done · ")
    assert progress.head.endswith(" · a model")
    assert "num_branches=9 is out of range: 5 is used" in str(progress)
    assert "<b>" not in progress._repr_mimebundle_()["text/html"]
    said = progress.new_lines()
    assert said[0] == "calling a model"
    assert sum(" develop: " in line for line in said) == 3
    assert progress.new_lines() == []


def test_progress_tells_what_was_gathered_and_what_was_left_out():
    progress = Progress("a model")
    for name, data in {
        "deep_think.left_out": {"given": 5, "used": 3},
        "deep_think.shortened": {
            **{"what": "converge", "text": "solution", "branch": "b1"},
            **{"shown": 8_000, "of": 12_011, "window": None},
        },
        "think.gathered": {"results": 1, "tool_calls": 2},
        "think.nothing_gathered": {},
        "research.cut": {"url": "http://x/a", "characters": 6_963},
        "research.left_out": {"urls": ["http://x/b"], "max_pages": 5},
        "research.failed": {"url": "http://x/c", "error": "it is gone"},
    }.items():
        progress.take([Line((0,), 0.0, tl.Note(name, "0", data))])
    assert [said.partition(" s  ")[2] for said in progress.new_lines()[1:]] == [
        "only the first 3 of 5 approaches are used",
        "converge is shown 8,000 of 12,011 characters of the solution of b1",
        "gathered: 1 of 2 tool calls returned results",
        "nothing was gathered",
        "http://x/a is truncated to its first 6,963 characters",
        "1 page not read: the limit is 5",
        "http://x/c could not be read: it is gone",
    ]


@pytest.mark.slow
def test_a_thought_can_be_cancelled():
    async def never(call):
        await asyncio.sleep(60)

    async def cancelled():
        mine = tl.Lab(never, runs=None)
        task = asyncio.ensure_future(tl.think("Why?", mine))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return mine.last

    assert asyncio.run(cancelled()).stop_reason == "cancelled"
