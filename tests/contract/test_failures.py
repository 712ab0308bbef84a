"""What goes wrong in a first hour is named at once, with the way out: a missing key, a server that does not
answer, a mistake in one's own function, an empty cache."""

import asyncio
import threading
import time

import pandas
import pytest
from support import wait
from support.browser import offline_pages
from support.providers import Providers, Said

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.core.registry import built_in, names
from tot_lab.views.explorer.sweep_page import save_html
from tot_lab.views.report import report_html

TASK = tl.general("What is two and two?", answer=4, grade="number")
NOWHERE = "http://127.0.0.1:9/v1"  # nothing listens on the port `discard`


@pytest.fixture
def keyless(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai/gpt-4.1-mini", "OPENAI_API_KEY"),
        ("anthropic/claude-haiku-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-flash", "GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_is_named_before_the_first_request(keyless, tmp_path, name, variable):
    with pytest.warns(UserWarning, match=variable):
        run = wait(tl.Lab(name, runs=None, cache=tmp_path).run(tl.OneAnswer(), TASK))
    assert run.failure == f"No API key for {name}. Set the environment variable {variable}."
    assert run.correct is None
    assert not [line for line in run.lines if getattr(line.e, "name", "") == "call.sent"]


@pytest.mark.slow
def test_a_key_that_is_set_later_is_found(keyless, monkeypatch, tmp_path):
    with Providers(lambda asked: Said("Answer: 4")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
        lab = tl.Lab(tl.LiteLLM(model="openai/gpt-4.1-mini", api_base=NOWHERE), runs=None, cache=tmp_path)
        assert NOWHERE in wait(lab.run(tl.OneAnswer(), TASK)).failure
        lab = tl.Lab(
            tl.LiteLLM(model="openai/gpt-4.1-mini", api_base=server.base("openai")), runs=None, cache=tmp_path
        )
        assert wait(lab.run(tl.OneAnswer(), TASK)).correct is True


@pytest.mark.slow
def test_cached_replies_need_no_key_and_no_server(keyless, tmp_path):
    with Providers(lambda asked: Said("Answer: 4")) as server:
        model = tl.LiteLLM(model="openai/gpt-4.1-mini", api_base=server.base("openai"))
        first = wait(tl.Lab(model, runs=None, cache=tmp_path).run(tl.OneAnswer(), TASK))
    again = wait(tl.Lab(model, runs=None, cache=tmp_path).run(tl.OneAnswer(), TASK))  # the server is gone
    assert (again.answer, again.correct) == (first.answer, True)


def test_a_server_that_does_not_answer_is_named_without_retries(tmp_path):
    model = tl.LiteLLM(model="hosted_vllm/small", api_base=NOWHERE, retries=8)
    lab = tl.Lab(model, runs=None, cache=tmp_path)
    wait(lab.run(tl.OneAnswer(), TASK))  # imports litellm
    began = time.monotonic()
    run = wait(lab.run(tl.OneAnswer(), TASK))
    assert run.failure == (
        f"No server answers at {NOWHERE} for hosted_vllm/small. Start it, or set api_base of the model."
    )
    assert time.monotonic() - began < 30  # eight retries take at least a minute


@pytest.mark.slow
def test_concurrent_first_calls_share_one_check(tmp_path):
    with Providers(lambda asked: Said("Answer: 4")) as server:
        model = tl.LiteLLM(model="openai/gpt-4.1-mini", api_base=server.base("openai"), api_key="none")
        lab = tl.Lab(model, runs=None, mode="off")
        wait(lab.run(tl.SelfConsistency(attempts=8), TASK))
        wait(lab.run(tl.OneAnswer(), TASK))
        assert [asked.path for asked in server.asked if not asked.family] == ["/v1/models"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:No API key")
def test_a_sweep_names_its_first_error_and_how_many_runs_share_it(keyless, tmp_path):
    lab = tl.Lab("openai/gpt-4.1-mini", runs=tmp_path, cache=tmp_path / "calls")
    tasks = [tl.general(f"What is {n} and 2?", answer=n + 2, grade="number") for n in range(3)]
    sweep = wait(lab.sweep(tl.baselines(2), tasks))
    said = "12 of 12 runs failed, without a grade, all with: No API key for openai/gpt-4.1-mini."
    assert said in repr(sweep)
    assert said in sweep._repr_html_()
    with pytest.warns(UserWarning, match="failed"):
        assert tl.stats.success_rates(sweep)["rate"].isna().all()


def test_a_mistake_in_a_model_function_shows_its_line_and_not_its_text():
    async def model(call):
        header = {"key": "sk-not-to-be-shown-anywhere"}
        return headers["key"] + header["key"], "sk-not-to-be-shown-anywhere"  # noqa: F821

    line = model.__code__.co_firstlineno + 2
    with pytest.warns(RuntimeWarning, match=f"NameError: .*headers.* \\(line {line} of model\\)") as warned:
        run = wait(tl.Lab(model, runs=None).run(tl.SelfConsistency(attempts=3), TASK))
    assert len(warned) == 1
    assert run.failure == f"NameError: name 'headers' is not defined (line {line} of model)"
    assert "sk-not" not in repr(run) + str(run.lines)


def test_a_mistake_in_a_model_object_shows_its_line_too():
    class Mine:
        async def __call__(self, call):
            return headers  # noqa: F821

    line = Mine.__call__.__code__.co_firstlineno + 1
    with pytest.warns(RuntimeWarning, match=f"NameError: .*headers.* \\(line {line} of __call__\\)"):
        run = wait(tl.Lab(Mine(), runs=None).run(tl.OneAnswer(), TASK))
    assert run.failure == f"NameError: name 'headers' is not defined (line {line} of __call__)"


def test_an_error_of_a_library_is_not_called_a_mistake_of_the_function():
    async def model(call):
        raise ConnectionError("no server there")

    run = wait(tl.Lab(model, runs=None).run(tl.OneAnswer(), TASK))
    assert run.failure == "ConnectionError: no server there"


@pytest.mark.parametrize(
    ("task", "player"),
    [
        (tl.game24("4 9 10 13"), "sim/game24"),
        (tl.domains.mini_crossword(1), "sim/mini_crossword"),
        (tl.domains.multi_hop(1), "sim/agent"),
        (TASK, "sim/general"),
    ],
)
def test_a_cache_miss_names_a_simulated_model_that_knows_the_task(tmp_path, task, player):
    lab = tl.Lab("openai/gpt-4.1-mini", runs=None, mode="replay", cache=tmp_path)
    with pytest.raises(tl.errors.CacheMiss, match=rf'tl\.Lab\("{player}"\)'):
        wait(lab.run(tl.OneAnswer(), task))


def test_the_player_of_every_domain_exists_and_understands_its_prompts():
    for kind, domain in built_in("domains").items():
        assert domain.player in names("models"), kind
        examples = domain.example_tasks()
        if examples is None:
            continue
        run = wait(tl.Lab(domain.player, runs=None).run(tl.OneAnswer(), examples(1)[0]))
        assert run.answer, kind
        assert "do not understand" not in str(run.lines), kind


@pytest.mark.slow
def test_a_server_that_stops_answering_is_a_warning_at_the_first_retry(tmp_path):
    server = Providers(lambda asked: Said("Answer: 4"))
    with server:
        model = tl.LiteLLM(
            model="openai/gpt-4.1-mini", api_base=server.base("openai"), api_key="none", retries=2
        )
        lab = tl.Lab(model, runs=None, mode="off")
        assert wait(lab.run(tl.OneAnswer(), TASK)).correct is True

    async def later():
        return await asyncio.wait_for(lab.run(tl.OneAnswer(), TASK), 60)

    with pytest.warns(RuntimeWarning, match=r"no answer from .*The next of 2 retries follows in") as warned:
        run = wait(later())
    assert len(warned) == 1
    assert "no answer from" in run.failure


# What is failed, and what is wrong.


def broken_after(count):
    """A model that answers `count` calls, all wrongly, and then breaks down."""
    asked = []

    async def model(call):
        asked.append(call)
        if len(asked) > count:
            raise ConnectionError("no server there")
        return "Answer: 5"

    return model


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_budget_that_only_failed_calls_used_up_judges_nothing(calls):
    search = tl.TreeOfThoughts(propose=tl.Sample(count=3))
    run = wait(tl.Lab(broken_after(0), runs=None).run(search, TASK, budget=tl.Budget(calls=calls)))
    assert (run.answer, run.correct) == ("", None)
    assert run.failure == "ConnectionError: no server there"
    assert "failed" in repr(run)
    points = tl.stats.anytime_performance(wait(tl.Lab(broken_after(0), runs=None).run(search, TASK)))
    assert points["correct"].isna().all()


def test_an_answer_is_judged_though_some_calls_failed():
    run = wait(tl.Lab(broken_after(3), runs=None).run(tl.SelfConsistency(attempts=5), TASK))
    assert (run.usage.errors, run.usage.calls) == (2, 5)
    assert (run.answer, run.correct, run.failure) == ("5", False, None)
    assert "✗ wrong" in repr(run)
    assert "2 failed" in repr(run)


def test_a_budget_that_answered_calls_used_up_leaves_no_answer_and_that_is_wrong():
    run = wait(tl.Lab(broken_after(9), runs=None).run(tl.OneAnswer(), TASK, budget=tl.Budget(calls=0)))
    assert (run.correct, run.failure) == (False, None)


@pytest.mark.slow
def test_runs_that_the_spending_limit_stopped_are_failed_until_they_are_finished(tmp_path):
    async def model(call):
        return Reply("Answer: 4", cost=0.01, input_tokens=1, output_tokens=1)

    tasks = [tl.general(f"What is {n} and {4 - n}?", answer=4, grade="number") for n in range(3)]

    def swept(spend):
        lab = tl.Lab(model, runs=tmp_path, spend=spend)
        return wait(lab.sweep({"one": tl.OneAnswer()}, tasks, name="s", at_once=1))

    poor = swept(0.02)
    assert [None if pandas.isna(one) else one for one in poor.df().correct].count(False) == 0
    (row,) = tl.stats.success_rates(poor).itertuples()
    assert (row.runs, row.errors, row.rate) == (poor.df().correct.notna().sum(), 3 - row.runs, 1.0)
    assert row.errors > 0
    assert "spending limit" in repr(poor)
    stopped = next(run for run in map(tl.load, (tmp_path / "s").glob("*.jsonl")) if run.failure)
    assert "spending limit" in stopped.failure
    assert "✗" not in repr(stopped)
    rich = swept(1.0)
    assert list(rich.df().correct) == [True] * 3
    assert "failed" not in repr(rich)


def test_a_cancelled_run_is_not_wrong():
    called = threading.Event()

    async def model(call):
        called.set()
        await asyncio.sleep(60)

    lab = tl.Lab(model, runs=None)

    async def cancelled():
        running = asyncio.create_task(lab.run(tl.OneAnswer(), TASK))
        while not called.is_set():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    wait(cancelled())
    run = lab.last
    assert (run.stop_reason, run.grade, run.failure) == ("cancelled", None, None)
    assert "✗" not in repr(run)
    (row,) = tl.stats.success_rates([run]).itertuples()
    assert (row.runs, row.errors, row.ungraded) == (0, 0, 1)


def test_statistics_count_failed_runs_apart_whether_from_a_sweep_or_a_list():
    runs = [wait(tl.Lab(broken_after(n), runs=None).run(tl.OneAnswer(), TASK)) for n in (0, 1)]
    with pytest.warns(UserWarning, match="failed"):
        (row,) = tl.stats.success_rates(runs).itertuples()
    assert (row.runs, row.solved, row.errors, row.ungraded) == (1, 0, 1, 0)


@pytest.mark.slow
def test_a_report_counts_failed_runs_apart(tmp_path):
    runs = [wait(tl.Lab(broken_after(n), runs=None).run(tl.OneAnswer(), TASK)) for n in (0, 0, 1)]
    page = report_html(runs, tmp_path / "report.html").read_text()
    assert "<p>3 runs · 0 of 1 correct (0%) · 2 failed · " in page


@pytest.mark.nightly
def test_the_page_of_a_sweep_marks_and_counts_failed_runs(tmp_path, chrome):
    runs = [wait(tl.Lab(broken_after(n), runs=None).run(tl.OneAnswer(), TASK)) for n in (0, 0, 1)]
    with offline_pages(chrome) as open_file:
        page = open_file(save_html(runs, tmp_path / "sweep.html"))
        page.get_by_text("3 runs · 0 right · 1 wrong · 2 failed").wait_for()
        signs = page.locator("button.tl-run")
        assert sorted(text[0] for text in signs.all_text_contents()) == ["!", "!", "✗"]
        assert "failed: ConnectionError: no server there" in signs.filter(has_text="!").first.get_attribute(
            "title"
        )
        page.get_by_role("button", name="wrong ›").click()
        assert page.locator("button.tl-run[aria-current]").text_content().startswith("✗")
