"""The mistakes a newcomer makes get an error that says what to do."""

import asyncio
import errno
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.testing import check_strategy, legs


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tl.TreeOfThoughts(serch="dfs"), "no setting 'serch'; did you mean 'search'"),
        (lambda: tl.SelfConsistency(n=5), "no setting 'n'"),
        (
            lambda: tl.TreeOfThoughts(search="ucs"),
            "known are a_star, .*beam, beam_search, best_first, bfs, .*depth_first, dfs",
        ),
        (
            lambda: tl.TreeOfThoughts(search=tl.BeamSearch),
            r"got the class BeamSearch\. Pass BeamSearch\(\)",
        ),
        (lambda: tl.TreeOfThoughts(search="game24"), "unknown kind 'game24'"),
        (lambda: tl.BestOf(strategy=tl.OneAnswer), r"Pass OneAnswer\(\)"),
        (
            lambda: tl.TreeOfThoughts(width=5),
            r"did you mean 'search.width', as in search=BeamSearch\(width=…\)\?",
        ),
        (
            lambda: tl.TreeOfThoughts(search=tl.MCTS()).with_(iteration=5),
            r"'search.iterations', as in search=MCTS\(iterations=…\)\?",
        ),
        (lambda: tl.Sample(count=3, max_tokens=9), r"Pass it as tl.TreeOfThoughts\(max_tokens=…\)"),
        (lambda: tl.Value(seed=1), r"Pass it as tl.TreeOfThoughts\(seed=…\)"),
        (lambda: tl.Budget(minutes=2), "no setting 'minutes'; did you mean 'seconds'"),
        (lambda: tl.ReAct(max_steps=5), "no setting 'max_steps'; did you mean 'max_iterations'"),
        (lambda: tl.ReAct(max_turns=5), "did you mean 'max_iterations'"),
        (lambda: tl.Reflexion(max_iterations=5), r"as in strategy=ReAct\(max_iterations=…\)"),
        (lambda: tl.TreeOfThoughts(max_steps=3), r"did you mean 'stop.depth', as in stop=Stop\(depth=…\)"),
        (lambda: tl.TreeOfThoughts(max_iterations=3), "did you mean 'stop.depth'"),
        (
            lambda: tl.TreeOfThoughts(search=tl.MCTS()).with_(max_iterations=3),
            r"'search.iterations', as in search=MCTS\(iterations=…\)\?",
        ),
        (
            lambda: tl.TreeOfThoughts(n_generate_sample=5),
            r"did you mean 'propose.count', as in propose=Sample\(count=…\)",
        ),
        (lambda: tl.TreeOfThoughts(top_p=0.9), r"did you mean tl.Lab\(…, roles=.* tl.Role\(options="),
        (lambda: tl.proposers.Continue(top_p=0.9), "no setting 'top_p'; did you mean 'options'"),
        (lambda: tl.ChainOfThought(max_steps=3), "no setting 'max_steps'; it has model"),
        (
            lambda: tl.TreeOfThoughts(breadth=5),
            r"Pass it as search=tl.BeamSearch\(width=…\), or as propose=tl.Sample\(count=…\)",
        ),
        (
            lambda: tl.OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1", temperature=0.2),
            r"Pass it as tl.TreeOfThoughts\(temperature=…\)",
        ),
        (
            lambda: tl.general("?", answer=2, grade=lambda answer: True),
            r"grade .* wrong arguments: got \(answer\)\.\nIt must be \(answer, reference\)",
        ),
        (lambda: tl.ReAct(tools="legs"), r"a list of names, such as \['calculator'\]: got 'legs'"),
        (lambda: tl.ReAct(tools=[legs]), r"Give the tools themselves to the lab: tl.Lab\("),
        (
            lambda: tl.TreeOfThoughts(propose=tl.WithTools(tools=legs)),
            r"Give the tools themselves to the lab: tl.Lab\(",
        ),
    ],
)
def test_wrong_settings(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tl.part_of("react"), r"""settings must be a dict such as {"kind": "react"}: got 'react'"""),
        (lambda: tl.part_of({"max_iterations": 3}), r"""settings must be a dict such as {"kind": "react"}"""),
        (lambda: tl.part_of({"kind": "raect"}), "unknown kind 'raect'; did you mean 'react'"),
        (lambda: tl.general(["one", "two"]), "question must be a string: got .*Use tl.tasks for a list"),
        (lambda: tl.domains.word_sums("3"), "got number='3'. Pass a number from 1 to 240"),
        (lambda: tl.domains.word_sums_tasks("3"), "count must be .*got '3'"),
        (lambda: tl.domains.multi_hop(2.5), "got number=2.5"),
        (lambda: tl.domains.multi_hop_tasks(None), "count must be .*got None"),
        (lambda: tl.game24_tasks("5"), "count must be from 1 to 1362.*got '5'"),
        (lambda: tl.domains.mini_crossword_tasks("5"), "count must be .*got '5'"),
        (lambda: tl.domains.creative_writing_tasks("5"), "count must be .*got '5'"),
        (lambda: tl.Session("sim/agent"), r"lab must be a Lab such as tl.Lab\(model\): got 'sim/agent'"),
        (lambda: tl.stats.routed([]), "routed expects a Run: got list"),
        (lambda: tl.diagnose("a.jsonl"), r"got str\. Load it first: diagnose\(tl.load\('a.jsonl'\)\)\."),
        (lambda: tl.Explorer(Path("a")), r"got \w*Path\. Load it first: tl.Explorer\(tl.load\('a'\)\)\."),
        (lambda: tl.lab("sim/game24"), r"tl.lab is a module and cannot be called; did you mean tl.Lab\?"),
        (lambda: tl.game24(4, 5, 6, 10), r'too many positional arguments\. Write tl.game24\("4 5 6 10"\)'),
        (lambda: tl.game24(45610), "four integers from 1 to 13.*got '45610'"),
        (lambda: tl.tasks("p.jsonl", "q", "a"), r'Write tl.tasks\(FILE, question="…", answer="…"\)'),
        (lambda: tl.general("Why?", 26), r'Write tl.general\("…", answer="…"\)'),
        (lambda: tl.general("Why?", awnser=26), r"'awnser'\. Did you mean answer=\?"),
        (lambda: tl.Explorer(3, tl.OneAnswer(), TASK), r"Write .*tl.Explorer\(lab.stream\(strategy, task\)"),
        (lambda: tl.tool("legs"), "a tool must be a typed function: got 'legs'"),
        (lambda: tl.tool(legs), "a tool must be a typed function: got FunctionTool"),
    ],
)
def test_wrong_arguments(make, says):
    with pytest.raises((TypeError, ValueError), match=says):
        make()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cache": True}, "cache must be a folder, a file, a tl.Cache or None: got True"),
        ({"cache_dir": "x"}, r"unexpected keyword argument 'cache_dir'\. Did you mean cache=\?"),
        ({"base_url": "http://one"}, r"'base_url'\. It belongs to a model, such as tl\.OpenAICompatible"),
        ({"concurrency": 4}, r"'concurrency'\. It belongs to a model"),
        ({"temperature": 0.5}, r"'temperature'\. It belongs to a strategy"),
        ({"tools": legs}, r"tools must be a list such as \[tl.tools.Calculator\(\)\]: got FunctionTool"),
        ({"tools": {"legs": legs}}, "tools must be a list"),
        ({"tools": None}, "tools must be a list"),
        ({"tools": [tl.tools.Calculator]}, r"got the class Calculator\. Pass Calculator\(\)"),
        ({"tools": [tl.ReAct()]}, r"a tool must be a typed function: got ReAct\(\)"),
        ({"tools": [tl.domains.multi_hop_tools()]}, "a tool must be a typed function: got .SearchDocuments"),
        ({"effect_policy": "deny_all"}, r"effect_policy must be a tl.EffectPolicy: got 'deny_all'"),
        ({"effect_policy": {"mode": "deny_all"}}, "effect_policy must be a tl.EffectPolicy: got"),
        ({"tool_context": "secret"}, "tool_context must be a dict: got 'secret'"),
        ({"timeout": "10"}, "timeout must be a positive number of seconds or None: got '10'"),
        ({"roles": ["evaluate"]}, r"roles must be a dict such as .*: got \['evaluate'\]"),
    ],
)
def test_a_lab_of_wrong_things(wrong, says):
    with pytest.raises((TypeError, ValueError), match=says):
        tl.Lab("sim/agent", runs=None, **wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"spend": 1}, r"'spend'\. It belongs to the lab: tl\.Lab\(…, spend=…\)\."),
        ({"temperature": 0.5}, r"'temperature'\. It belongs to a strategy"),
        ({"repeats": 2}, r"'repeats'\. It belongs to a sweep: lab\.sweep\(…, repeats=…\)\."),
        ({"calls": 60}, r"'calls'\. It belongs to the budget: budget=tl\.Budget\(calls=…\)\."),
        ({"max_calls": 60}, r"'max_calls'\. It belongs to the budget: budget=tl\.Budget\(calls=…\)\."),
        ({"max_tokens": 60}, r"'max_tokens'\. It belongs to a strategy"),
        ({"strategy": TASK, "task": tl.OneAnswer()}, r"got a Task and OneAnswer\(\)\. Swap the arguments"),
    ],
)
def test_a_run_with_wrong_arguments(wrong, says):
    for method in (tl.Lab.run, tl.Lab.estimate, tl.Lab.stream):
        with pytest.raises(TypeError, match=says):
            wait(method(tl.Lab(Scripted(), runs=None), **{"strategy": tl.OneAnswer(), "task": TASK, **wrong}))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"spend": 1}, r"'spend'\. It belongs to the lab: tl\.Lab\(…, spend=…\)\."),
        ({"strategies": 3}, r"strategies must be instances such as tl.TreeOfThoughts\(\): got 3"),
        ({"strategies": {"a": "raect"}}, "unknown kind 'raect'; did you mean 'react'"),
        ({"strategies": None}, "strategies must be instances .*: got None"),
        ({"strategies": TASK, "tasks": tl.OneAnswer()}, "strategies must be instances .*: got Task"),
        ({"tasks": "tasks.jsonl"}, r"tasks must be a list such as tl\.tasks\(FILE\).*: got 'tasks\.jsonl'"),
        ({"tasks": tl.game24_tasks}, r"tasks must be a list such as .*: got <function game24_tasks"),
        ({"repeat": 2}, r"'repeat'\. Did you mean repeats=\?"),
        ({"seconds": 9}, r"'seconds'\. It belongs to the budget: budget=tl\.Budget\(seconds=…\)\."),
        ({"at_once": "2"}, "at_once must be at least 1 or None: got '2'"),
        ({"repeats": "2"}, "repeats must be an integer of at least 1: got '2'"),
    ],
)
def test_a_sweep_of_wrong_things(wrong, says):
    asked = {"strategies": tl.OneAnswer(), "tasks": TASK, **wrong}
    with pytest.raises((TypeError, ValueError), match=says):
        wait(tl.Lab(Scripted(), runs=None).sweep(**asked))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tl.BeamSearch(5), "BeamSearch takes its settings by name. Pass BeamSearch(width=5)."),
        (lambda: tl.BestOf(5), "BestOf takes its settings by name. Pass BestOf(attempts=5)."),
        (lambda: tl.Sample(3), "Sample takes its settings by name. Pass Sample(count=3)."),
        (lambda: tl.Propose(4), "Propose takes its settings by name. Pass Propose(count=4)."),
        (lambda: tl.Value(3), "Value takes its settings by name. Pass Value(samples=3)."),
        (lambda: tl.ReAct(5), "ReAct takes its settings by name. Pass ReAct(max_iterations=5)."),
        (lambda: tl.Stop(1), "Stop takes its settings by name. Pass Stop(depth=1)."),
        (lambda: tl.OneAnswer(0.7), "OneAnswer takes its settings by name. Pass OneAnswer(temperature=0.7)."),
        (
            lambda: tl.ChainOfThought("x"),
            "ChainOfThought takes its settings by name. Pass ChainOfThought(model='x').",
        ),
        (
            lambda: tl.TreeOfThoughts("mcts", "vote"),
            "TreeOfThoughts takes its settings by name. Pass TreeOfThoughts(search='mcts', evaluate='vote').",
        ),
        (
            lambda: tl.domains.Game24("4 9 10 13"),
            "Game24 takes its settings by name: got '4 9 10 13', which they do not accept. It has "
            "structured. Did you mean the function game24('4 9 10 13')?",
        ),
        (
            lambda: tl.TreeOfThoughts(stop=3),
            "TreeOfThoughts.stop must be a valid dictionary or instance of Stop: got 3. "
            "Pass stop=Stop(depth=3).",
        ),
        (
            lambda: tl.TreeOfThoughts(answer=3),
            "TreeOfThoughts.answer must be a valid dictionary or instance of AnswerRule: got 3.",
        ),
        (
            lambda: tl.TreeOfThoughts({"search.width": 5}),
            "TreeOfThoughts takes its settings by name. Pass TreeOfThoughts(**{'search.width': 5}).",
        ),
        (lambda: tl.Budget(3), "Budget takes its settings by name. Pass Budget(calls=3)."),
        (
            lambda: tl.TreeOfThoughts(tl.BeamSearch()),
            "TreeOfThoughts takes its settings by name. Pass TreeOfThoughts(search=BeamSearch()).",
        ),
        (
            lambda: tl.TreeOfThoughts(search=tl.Propose()),
            "TreeOfThoughts.search: expected a Search: got Propose(), which is a Proposer. "
            "Pass it as propose=.",
        ),
        (lambda: tl.BeamSearch(width=0), "BeamSearch.width must be greater than or equal to 1: got 0."),
        (
            lambda: tl.TreeOfThoughts().with_({"search.width": 0}),
            "TreeOfThoughts.search.width must be greater than or equal to 1: got 0.",
        ),
        (lambda: tl.Task(question="?"), "Task.domain must be given."),
        (
            lambda: tl.OpenAICompatible("m", "http://127.0.0.1:9/v1"),
            "OpenAICompatible takes its settings by name. Pass OpenAICompatible(model=…, base_url=…).",
        ),
        (
            lambda: tl.SelfConsistency(5),
            "SelfConsistency takes its settings by name. Pass SelfConsistency(attempts=5).",
        ),
        (
            lambda: tl.Stop(max_depth=3),
            "Stop has no setting 'max_depth'; did you mean 'depth'? It has solved, depth, nodes, patience, "
            "min_improvement, min_depth, min_score.",
        ),
        (
            lambda: tl.TreeOfThoughts(model=3),
            "TreeOfThoughts.model must be a valid string or a valid dictionary or instance of Part: got 3.",
        ),
        (
            lambda: tl.TreeOfThoughts(budget=tl.Budget(calls=1), stop={"solved": "no", "depth": "no"}),
            "TreeOfThoughts.stop.solved must be a valid number: got 'no'. TreeOfThoughts.stop.depth must be "
            "a valid integer: got 'no'.",
        ),
        (lambda: tl.Local("q"), "Local takes its settings by name. Pass Local(weights='q')."),
        (
            lambda: tl.general("?", answer="4", grade="exakt"),
            "General.grading: unknown grade 'exakt'; did you mean 'exact'? Known are number, exact, grid, "
            "choice, regex, math, python, or a function (answer, reference).",
        ),
    ],
)
def test_the_whole_message_is_one_line(make, says):
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert str(caught.value) == says


def test_a_limit_that_no_budget_has():
    with pytest.raises(
        ValueError, match=r"^Budget has no setting 'call'; did you mean 'calls'\? It has [^\n]*\.$"
    ):
        tl.Budget(call=3)


@pytest.mark.parametrize("price", [1, "0.1,0.2", (1,), (1, 2, 3, 4), (-1, 2), ("a", "b"), {"in": 1}])
def test_a_price_that_is_none(price):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        tl.OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1", price=price)
    assert str(caught.value) == (
        "OpenAICompatible.price: expected USD per million tokens of (prompt, reply) or (prompt, reply, "
        f"cached prompt), such as (0.15, 0.6): got {price!r}."
    )


def test_no_message_holds_a_key():
    with pytest.raises(TypeError, match="by name") as given:
        tl.OpenAICompatible("m", "http://127.0.0.1:9/v1", "sk-secret-0123456789")
    assert "sk-secret" not in str(given.value)
    with pytest.raises(ValueError, match="context_window") as caught:
        tl.LiteLLM(model="m", context_window="sk-secret-0123456789")
    assert "sk-secret" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        (tl, "Beamsearch", "tl.BeamSearch"),
        (tl, "beam", "tl.BeamSearch"),
        (tl, "ToT", "tl.TreeOfThoughts"),
        (tl, "CoT", "tl.ChainOfThought"),
        (tl, "Treeofthoughts", "tl.TreeOfThoughts"),
        (tl, "Rebase", "tl.searches.REBASE"),
        (tl, "MCTSearch", "did you mean tl.MCTS?"),
        (tl, "BFS", "did you mean tl.searches.BreadthFirst?"),
        (tl, "DFS", "did you mean tl.DepthFirst?"),
        (tl, "Game24", "did you mean tl.game24? The class is tl.domains.Game24"),
        (tl, "Debate", "it is tl.methods.Debate"),
        (tl, "load_dataset", 'did you mean tl.tasks(FILE, format="gsm8k")?'),
        (tl, "read_jsonl", "did you mean tl.tasks("),
        (tl, "Anthropic", 'did you mean tl.Lab("anthropic/MODEL")?'),
        (tl.presets, "beam", "'beam_search'"),
        (tl.tools, "Calculater", "'Calculator'"),
    ],
)
def test_a_name_that_is_almost_right(owner, name, meant):
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    (line,) = str(caught.value).splitlines()
    assert meant in line


def test_attributes_that_are_almost_right():
    lab = tl.Lab(Scripted(), runs=None)
    sweep = wait(lab.sweep(tl.OneAnswer(), TASK))
    run = sweep.run(sweep.df().iloc[0])
    for owner, name, meant in [
        (run, "cost", "did you mean run.usage.cost?"),
        (run, "anwser", "did you mean run.answer?"),
        (run, "nodes", "did you mean run.nodes_df?"),
        (run, "df", "did you mean run.calls_df or run.events_df or run.nodes_df or run.steps_df"),
        (lab, "invoke", "did you mean lab.run?"),
        (lab, "Sweep", "did you mean lab.sweep?"),
        (sweep, "DF", "did you mean sweep.df?"),
    ]:
        with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}; {meant}")):
            getattr(owner, name)
    assert not hasattr(run, "_repr_json_")
    with pytest.raises(AttributeError, match=r"no 'run'\. Use await lab.run\(strategy, task\)"):
        tl.OneAnswer().run(TASK)
    with pytest.raises(AttributeError, match="no setting 'runs'"):
        tl.OneAnswer().runs  # noqa: B018
    with pytest.raises(TypeError, match=r"got Run\. Pass \[run\] for one run"):
        tl.stats.success_rates(run)
    for takes_a_run in (tl.diagnose, tl.figures.plot_scores, tl.figures.plot_tree):
        with pytest.raises(
            TypeError, match=r"got Sweep\. Pass one of its runs: sweep.run\(sweep.df\(\).iloc\[0\]\)"
        ):
            takes_a_run(sweep)
    with pytest.raises(ValueError, match=r"got 0\.1\. Ids are strings, such as '0\.1'"):
        wait(lab.branch(run, 0.1, score=1.0))


def test_a_number_of_numpy_is_a_number():
    beam = {"kind": "beam_search", "width": np.int64(3)}
    search = tl.TreeOfThoughts(search=beam, temperature=np.float32(0.5))
    assert search == tl.TreeOfThoughts(search=tl.BeamSearch(width=3), temperature=0.5)
    assert type(search.search.width) is int
    assert search.with_({"search.width": np.int64(4)}).search.width == 4
    assert tl.Budget(calls=np.int32(4), usd=np.float64(0.5)) == tl.Budget(calls=4, usd=0.5)
    assert tl.general("?", answer=2, grade=np.equal).domain.grading.name == "equal"  # no number
    with pytest.raises(ValueError, match=r"BeamSearch\.width must be"):
        tl.BeamSearch(width=np.array([3, 4]))


def test_an_interrupted_run_that_was_loaded_can_be_continued(tmp_path):
    made = wait(tl.Lab("sim/game24", runs=tmp_path).run(tl.TreeOfThoughts(), tl.game24("4 5 6 10")))
    own = tl.Recorder("my search", path=tmp_path / "own.jsonl")
    own.thought("the problem")
    own.close()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(made.path.read_bytes().splitlines(keepends=True)[:20]))
    assert "ended     unfinished; await lab.resume(run.path) continues it\n" in repr(tl.load(cut))
    assert "ended     unfinished\n" in repr(tl.load(own.path))


def test_a_folder_that_cannot_be_written_names_the_setting(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for runs in (tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(OSError, match=r"Pass the lab another folder as runs="):
            wait(tl.Lab(Scripted(), runs=runs).run(tl.OneAnswer(), TASK))

    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "runs")

    monkeypatch.setattr(Path, "mkdir", refused)  # root may write everywhere
    with pytest.raises(PermissionError, match=r"Permission denied\. Pass the lab another folder as runs="):
        wait(tl.Lab(Scripted(), runs=tmp_path / "none").run(tl.OneAnswer(), TASK))


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        (tl.TreeOfThoughts(), "width", r"did you mean 'search\.width', as in search=BeamSearch\(width=…\)\?"),
        (tl.BeamSearch(), "widht", "BeamSearch has no setting 'widht'; did you mean 'width'?"),
        (TASK, "answer", "did you mean 'reference'?"),
        (TASK, "prompt", "did you mean 'question'?"),
        (tl.TreeOfThoughts(), "tool_context", r"did you mean 'tl\.Lab\(tool_context=…\)'\?"),
    ],
)
def test_a_setting_that_is_almost_right(owner, name, meant):
    assert getattr(owner, name, "another") == "another"
    with pytest.raises(AttributeError, match=meant) as raised:
        getattr(owner, name)
    assert "\n" not in str(raised.value)


def test_names_of_other_libraries():
    made = run(tl.OneAnswer(), TASK, model=Scripted())
    for name, meant in (("text", "run.answer"), ("to_df", r"run.nodes_df\(\)")):
        with pytest.raises(AttributeError, match=f"did you mean {meant}?"):
            getattr(made, name)
    sweep = wait(tl.Lab(Scripted(), runs=None).sweep(tl.OneAnswer(), TASK))
    for name, meant in (("to_csv", r"sweep.save\('table.csv'\)"), ("results", r"sweep.df\(\)")):
        with pytest.raises(AttributeError, match=f"did you mean {meant}"):
            getattr(sweep, name)


def test_a_task_is_no_change_of_a_preset_and_a_run_no_file():
    with pytest.raises(TypeError, match=r"got Task\(.*A task goes to lab\.run\(strategy, task\)"):
        tl.presets.game24(TASK)
    with pytest.raises(TypeError, match=r"must be a file or a folder: got Run\. It is loaded already"):
        tl.load(run(tl.OneAnswer(), TASK, model=Scripted()))


def test_a_part_says_where_state_goes():
    class Counting(tl.searches.Search):
        kind = "counting_for_mistakes"
        width: int = 3

        def run(self, state):
            self.seen = set()
            yield tl.Pick([state.root])

    @dataclass(frozen=True)
    class Frozen:
        def __call__(self, state):
            self.seen = set()
            yield tl.Pick([state.root])

    with pytest.raises(AttributeError, match=r"Counting cannot be changed: got .*'seen'\. Keep what changes"):
        run(tl.TreeOfThoughts(search=Counting()), TASK, model=Scripted())
    with pytest.raises(AttributeError, match=r"'width'\. Make a copy: \.with_\(width=…\)"):
        Counting().width = 4
    sweep = wait(tl.Lab(Scripted(), runs=None).sweep(tl.TreeOfThoughts(search=Frozen()), TASK))
    assert "cannot assign to field 'seen'. Keep what changes" in sweep.df().error[0]


def test_an_entry_point_in_an_unknown_group_is_named(tmp_path, monkeypatch):
    about = tmp_path / "acme_wrong-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-wrong\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tot_lab.search]\nacme_wrong = acme_wrong:Search\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"acme-wrong 1\.0 offers it in 'tot_lab\.search'\. Known groups"):
        tl.TreeOfThoughts(search="acme_wrong")


def test_integers_of_numpy_are_integers():
    lab = tl.Lab(Scripted(), runs=None)
    sweep = wait(lab.sweep(tl.OneAnswer(), TASK, np.int64(2), at_once=np.int64(1)))
    assert len(sweep.rows) == 2
    again = wait(lab.run(tl.OneAnswer(), TASK, repeat=np.int64(1)))
    assert type(again.header.repeat) is int
    with pytest.raises(ValueError, match="at_once must be at least 1"):
        wait(lab.sweep(tl.OneAnswer(), TASK, at_once=1.5))


def test_an_attribute_error_inside_a_property_is_not_hidden():
    class Odd(tl.Run):
        @property
        def twice(self):
            return self.header.no_such_field

    run = wait(tl.Lab(Scripted(), runs=None).run(tl.OneAnswer(), TASK))
    with pytest.raises(AttributeError, match="no_such_field"):
        Odd(run.header, run.lines).twice  # noqa: B018


def test_a_file_that_is_no_run(tmp_path):
    (tmp_path / "x.txt").write_text("hello\n")
    (tmp_path / "first_run.jsonl").write_text("{}\n")
    with pytest.raises(
        tl.errors.JournalError, match=r"^[^\n]*x.txt: no importer recognises this file\. [^\n]*$"
    ):
        tl.load(tmp_path / "x.txt")
    with pytest.raises(
        FileNotFoundError, match=r"no file .*first_rum.jsonl. Did you mean .*first_run.jsonl\?"
    ):
        tl.load(tmp_path / "first_rum.jsonl")


def test_a_file_of_tasks_is_no_run(tmp_path):
    for name, text in {
        "a.jsonl": '{"question": "1+1?", "answer": 2}\n{"question": "1+2?", "answer": 3}\n',
        "a.json": '[\n  {"question": "1+1?", "answer": 2}\n]',
    }.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(tl.errors.JournalError) as caught:
            tl.load(tmp_path / name)
        assert str(caught.value) == (
            f"{tmp_path / name}: this file holds tasks, not runs: got 'question', 'answer' in its first row. "
            "tl.tasks reads tasks."
        )
    (tmp_path / "b.jsonl").write_text('{"questions": 1}\n')
    with pytest.raises(tl.errors.JournalError, match="No importer recognises the file"):
        tl.load(tmp_path / "b.jsonl")


def test_a_record_is_not_saved_under_the_name_of_another_kind_of_file(tmp_path):
    made = run(tl.OneAnswer(), TASK, model=Scripted())
    for name, meant in (
        ("x.html", r"run\.save_html"),
        ("tree.PNG", r"run\.save_figure"),
        ("y.csv", r"run\.nodes_df\(\)\.to_csv"),
    ):
        with pytest.raises(ValueError, match=rf"run\.save writes \.jsonl: got .*{name}'\. Write {meant}"):
            made.save(tmp_path / name)
        assert not (tmp_path / name).exists()
    for name in ("run", "gpt-4.1", "run.jsonl"):
        assert tl.load(made.save(tmp_path / name)).lines == made.lines


def test_a_row_that_no_sweep_has_is_named():
    sweep = wait(tl.Lab(Scripted(), runs=None).sweep(tl.OneAnswer(), TASK))
    assert sweep.run(sweep.df().iloc[0]).stop_reason == "answered"
    with pytest.raises(
        LookupError, match=r"row must be a row such as df\(\).iloc\[0\] or the run_id of one: got 0"
    ):
        sweep.run(0)


def test_a_run_is_resumed_by_its_file(tmp_path):
    lab = tl.Lab(Scripted(), runs=tmp_path)
    made = wait(lab.run(tl.OneAnswer(), TASK))
    with pytest.raises(
        TypeError, match=r"path must be the journal of a run: got a Run. Pass its path, .*\.jsonl"
    ):
        wait(lab.resume(made))


def test_wrong_lessons_and_plans(tmp_path):
    with pytest.raises(TypeError, match=r'task must be a Task such as tl.general.*: got "What'):
        tl.Lessons(tmp_path / "lessons.db").recall("What's that?")
    with pytest.raises(
        ValueError, match="status must be active, completed, failed, abandoned or None: got 'activ'"
    ):
        tl.PlanStore(tmp_path / "plans.db").all("activ")
    with pytest.raises(sqlite3.DatabaseError, match=r"test_mistakes.py: plans cannot be kept here: .*not a"):
        tl.PlanStore(__file__)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"strategy": tl.OneAnswer}, r"strategy must be a Strategy such as tl.OneAnswer\(\)"),
        ({"task": "What?"}, "task must be a Task .*: got 'What"),
        ({"model": "sim/agent"}, "model must be a function"),
        ({"model": tl.sim.SimAgent()}, "model must be a function .* not async"),
        ({"model": Scripted().__call__}, "model must be a function .* not async"),
        ({"tools": legs}, "tools must be a list"),
    ],
)
def test_the_contract_of_no_strategy(wrong, says):
    with pytest.raises(TypeError, match=says):
        check_strategy(**{"strategy": tl.OneAnswer(), **wrong})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"strategy": tl.TreeOfThoughts}, r"strategy must be a Strategy such as tl.TreeOfThoughts\(\)"),
        ({"task": "What?"}, "task must be a Task such as tl.general"),
        ({"task": [TASK]}, "task must be a Task .*Use lab.sweep for several tasks"),
        ({"budget": 10}, r"budget must be a Budget such as tl.Budget\(calls=60\): got 10"),
        ({"repeat": -1}, "repeat must be an integer of at least 0"),
        ({"repeat": "1"}, "repeat must be an integer of at least 0: got '1'"),
    ],
)
def test_wrong_things_to_run(wrong, says):
    asked = {"strategy": tl.OneAnswer(), "task": TASK, **wrong}
    lab = tl.Lab(Scripted(), runs=None)
    with pytest.raises((TypeError, ValueError), match=says):
        wait(lab.run(asked.pop("strategy"), asked.pop("task"), **asked))
    assert lab.last is None


def test_wrong_models():
    with pytest.raises(ValueError, match=r"unknown simulated model 'sim/gaem24'; did you mean 'sim/game24'"):
        tl.Lab("sim/gaem24")
    with pytest.raises(
        ValueError, match=r"weights must be one of smollm2-135m, .*, or the path of a .gguf file: got 'qwen'"
    ):
        tl.Lab("local/qwen")
    with pytest.raises(
        ValueError, match=r"got 'game24', which is a domain\. Its simulated model is 'sim/game24'\."
    ):
        tl.Lab("game24")
    with pytest.raises(ValueError, match=r"got an address\. Pass tl\.OpenAICompatible\(") as given:
        tl.Lab("http://me:secret@localhost:8000/v1")
    assert "secret" not in str(given.value)
    with pytest.raises(ValueError, match="got 'react', which is a strategy"):
        tl.Lab("react")
    with pytest.raises(ValueError, match="The name of the model must not be empty"):
        tl.Lab(" ")
    with pytest.raises(TypeError, match="got the class SimGame24"):
        tl.Lab(tl.sim.SimGame24)
    with pytest.raises(ValueError, match="timeout"):
        tl.Lab("sim/game24", timeout=0)
    with pytest.raises(ValueError, match="unknown simulated model 'sim'; known are sim/game24, "):
        tl.Lab("sim")
    with pytest.raises(ValueError, match=r"'vllm' is only the prefix of model names\. Pass 'vllm/NAME'"):
        tl.Lab("vllm")
    for url in ("http://localhost:1/v1/chat/completions", "http://localhost:1/v1/completions/"):
        with pytest.raises(ValueError, match="base_url must be the URL before /chat/completions"):
            tl.OpenAICompatible(model="m", base_url=url)

    async def two(prompt, temperature):
        return "4"

    with pytest.raises(ValueError, match=r"got \(prompt, temperature\)\.\nIt must be async \(call\)"):
        tl.Lab(two)


def test_a_cache_in_a_file_that_is_no_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"cache must be a folder: got the file .*notes.txt\."):
        tl.Lab("sim/game24", cache=tmp_path / "notes.txt")


def test_a_failing_model_says_why_on_the_card():
    def no_route(call):
        raise ConnectionError("no route to host")

    for model, why in [
        (Scripted(no_route), "ConnectionError: no route to host"),
        (lambda call: "x", "must be async"),
    ]:
        failed = run(tl.OneAnswer(), model=model)
        assert why in repr(failed)
        assert why in failed._repr_html_()


def test_a_function_stands_for_a_search_and_must_return_ids():
    assert tl.TreeOfThoughts(search=lambda tree, frontier: frontier).search.kind == "function_search"
    for returned in (None, "0.1", 3):
        with pytest.raises(TypeError, match="must return a list of ids"):
            run(tl.TreeOfThoughts(search=lambda tree, frontier, returned=returned: returned))


def test_a_forgotten_await():
    coroutine = tl.Lab(Scripted(), runs=None).run(tl.OneAnswer(), TASK)
    with pytest.raises(TypeError, match=r"got coroutine\. Was `await` forgotten\?"):
        tl.figures.plot_tree(coroutine)
    coroutine.close()


def test_a_stream_is_one_run():
    async def twice():
        stream = tl.Lab(Scripted(), runs=None).stream(tl.OneAnswer(), TASK)
        assert [event async for event in stream]
        with pytest.raises(RuntimeError, match=r"Call lab.stream\(...\) again"):
            [event async for event in stream]

    wait(twice())


def test_a_domain_that_cannot_says_what_it_lacks():
    class Half(tl.Domain):
        kind = "tests/half"

    task = tl.Task(domain=Half(), question="?")
    with pytest.raises(
        NotImplementedError, match=r"'tests/half' has no answer_prompt\(self, task, reasoning\)\."
    ):
        run(tl.OneAnswer(), task)


def test_a_prompt_that_is_no_text_is_told_of():
    class Silent(tl.Domain):
        kind = "tests/silent"

        def answer_prompt(self, task, reasoning):
            task.question.upper()  # the `return` was forgotten

    with pytest.raises(TypeError, match=r"^Silent\.answer_prompt must return str: got None\.$"):
        run(tl.OneAnswer(), tl.Task(domain=Silent(), question="?"))


class Digits(tl.Domain):
    """A domain whose methods return what a test says."""

    kind = "tests/digits"

    def sample_prompt(self, task, path):
        return RETURNED.get("sample_prompt", "next?")

    def propose_prompt(self, task, path, count):
        return "next?"

    def value_prompt(self, task, path):
        return "score?"

    def read_sample(self, task, path, text):
        return RETURNED.get("read_sample", text)

    def read_proposals(self, task, path, text):
        return RETURNED.get("read_proposals", [text])

    def read_value(self, text):
        return RETURNED.get("read_value", 0.5)

    def complete(self, task, path):
        return len(path) == 2

    def answer(self, task, path):
        return RETURNED.get("answer", path[-1])


RETURNED = {}


class Inheriting(Digits):
    kind = "tests/inheriting"


@pytest.mark.parametrize("domain", [Digits, Inheriting])
@pytest.mark.parametrize(
    ("method", "value", "wanted"),
    [
        ("sample_prompt", None, "str"),
        ("read_sample", 7, "str | None"),
        ("read_proposals", [7], "list[str]"),
        ("read_proposals", "77", "list[str]"),
        ("read_value", "0.5", "float | None"),
        ("answer", ["7"], "str | None"),
    ],
)
def test_a_method_of_a_domain_that_returns_something_else_is_named(
    domain, method, value, wanted, monkeypatch
):
    propose = tl.Propose() if method == "read_proposals" else tl.Sample()
    task = tl.Task(domain=domain(), question="?")
    assert run(tl.TreeOfThoughts(propose=propose), task).answer
    monkeypatch.setitem(RETURNED, method, value)
    says = f"{domain.__name__}.{method} must return {wanted}: got {value!r}."
    with pytest.raises(TypeError, match=f"^{re.escape(says)}$"):
        run(tl.TreeOfThoughts(propose=propose), task)


@pytest.mark.parametrize(
    ("method", "value"),
    [("read_sample", None), ("read_proposals", ()), ("read_value", True), ("answer", None)],
)
def test_a_method_of_a_domain_may_find_nothing(method, value, monkeypatch):
    monkeypatch.setitem(RETURNED, method, value)
    propose = tl.Propose() if method == "read_proposals" else tl.Sample()
    run(tl.TreeOfThoughts(propose=propose), tl.Task(domain=Digits(), question="?"))


def test_a_part_shows_what_differs_from_its_defaults():
    assert (
        repr(tl.TreeOfThoughts(search=tl.BeamSearch(width=5))) == "TreeOfThoughts(search=BeamSearch(width=5))"
    )
    assert str(tl.ReAct()) == f"{tl.ReAct()}" == "ReAct()"
    assert repr(tl.Lab("sim/game24", runs=None)) == "Lab('sim/game24', runs=None)"


def test_the_explorer_of_something_else_names_its_type():
    with pytest.raises(TypeError, match=r"got list_iterator\. A sweep is accepted too"):
        tl.Explorer(iter([]))
    never = asyncio.sleep(0)
    with pytest.raises(TypeError, match=r"got coroutine\. Was `await` forgotten\?"):
        tl.Explorer(never)
    never.close()


def test_a_search_that_picks_scores_is_told_to_pick_ids():
    def picking(state):
        children = yield tl.Pick(["0"])
        yield tl.Pick([state.tree[id].score for id in children])

    with pytest.raises(TypeError, match=r"picking' must pick ids of thoughts: got [\d.e-]+\."):
        run(tl.TreeOfThoughts(search=picking), tl.game24("4 5 6 10"), tl.sim.SimGame24())


@pytest.mark.parametrize("method", ["prune", "keep_best"])
def test_a_helper_of_a_search_without_yield_from_says_so(method):
    def forgetting(state):
        children = yield tl.Pick(["0"])
        getattr(state, method)(children, 2)

    with pytest.warns(RuntimeWarning, match=rf"state\.{method}\(…\) did nothing\. Write `yield from state\."):
        run(tl.TreeOfThoughts(search=forgetting), tl.game24("4 5 6 10"), tl.sim.SimGame24())
