"""What is special to a provider: a user's own `Endpoint` can say all of it, without litellm."""

from typing import Any, ClassVar

import pytest
from pydantic import PrivateAttr
from support import TASK, wait
from support.endpoint import ScriptedEndpoint, scripted

import tot_lab as tl
from tot_lab.core.calls import Need
from tot_lab.models.stack import Failure, ServerFacts


class Own(ScriptedEndpoint):
    """A server that reports 9,000 tokens and answers prompts of at most 1,000 unless it is configured."""

    kind: ClassVar[str] = "test_own_endpoint.own"
    base_url: str = "http://one"
    hosted: bool = False
    truncates: bool = True
    reported: int | None = 9_000

    @property
    def is_hosted(self) -> bool:
        return self.hosted

    @property
    def uses_reported_window(self) -> bool:
        return not self.truncates

    def window(self) -> int | None:
        return 1_000

    async def server_facts(self) -> ServerFacts:
        return ServerFacts((self.label, "other"), self.reported, None)

    async def problem(self) -> str | None:
        return "The key has expired. Renew it" if self.hosted else None

    def cached_prefix(self, call: Any) -> str | None:
        text = call.messages[-1].content
        return text.partition("\n")[0]


def test_a_check_reports_what_the_server_does(tmp_path):
    lab = tl.Lab(Own(), runs=None, cache=tmp_path)
    found = wait(lab.check())
    assert found.context_window == 9_000
    advice = "prompts of more than 1000 tokens are refused, but the model accepts 9000. Set context_window"
    assert advice in found.problems
    assert lab.gateway.window == 1_000
    lab = tl.Lab(Own(truncates=False), runs=None, cache=tmp_path)
    assert advice not in wait(lab.check()).problems
    assert lab.gateway.window == 9_000
    lab = tl.Lab(Own(truncates=False, reported=None), runs=None, cache=tmp_path)
    assert wait(lab.check()).context_window == 1_000


@pytest.mark.parametrize("hosted", [False, True])
def test_a_providers_service_is_not_put_to_the_test(tmp_path, hosted):
    model = Own(hosted=hosted, seconds=0.01)
    found = wait(tl.Lab(model, runs=None, cache=tmp_path).check())
    assert (found.slots is None) == hosted
    assert (model.max_at_once == 1) == hosted


class Unreachable(Own):
    kind: ClassVar[str] = "test_own_endpoint.unreachable"

    async def server_facts(self) -> ServerFacts:
        raise Failure("Name or service not known", connection_failed=True)


@pytest.mark.parametrize(
    ("hosted", "problem"),
    [
        (True, "The key has expired. Renew it"),
        (False, "Name or service not known. Start the server, or correct its address (scripted)"),
    ],
)
def test_a_service_that_cannot_be_reached_is_explained_by_its_endpoint(tmp_path, hosted, problem):
    found = wait(tl.Lab(Unreachable(hosted=hosted), runs=None, cache=tmp_path).check())
    assert not found.reachable
    assert found.problems[0].startswith(problem.partition(" (")[0])


@pytest.mark.slow
def test_calls_with_the_same_beginning_wait_for_the_first(tmp_path):
    class Cached(tl.Strategy):
        kind = "test_own_endpoint.cached"
        beginnings: tuple[str, ...]

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            calls = [
                tl.Call(at, "answer", (tl.records.Message("user", f"{beginning}\n{k}"),), k)
                for k, beginning in enumerate(self.beginnings)
            ]
            replies = yield from tl.gather([tl.ask(call) for call in calls], at_most=1)
            return tl.Answer(replies[0].text, "answered")

    def most_at_once(*beginnings: str) -> int:
        model = Own(seconds=0.05, concurrency=8)
        wait(tl.Lab(model, runs=None, mode="off").run(Cached(beginnings=beginnings), TASK))
        assert len(model.requests) == len(beginnings)
        return model.max_at_once

    assert most_at_once("a", "b", "c", "d") == 4
    assert most_at_once("a", "a") == 1
    assert most_at_once("a", "a", "a", "a") == 3  # once the first has its reply


class Priced(ScriptedEndpoint):
    """An endpoint whose prices must be loaded."""

    kind: ClassVar[str] = "test_own_endpoint.priced"
    _loaded: list[str] = PrivateAttr(default_factory=list)

    @property
    def is_ready(self) -> bool:
        return "all" in self._loaded

    async def ready(self) -> None:
        self._loaded.append("all")

    async def load_prices(self) -> None:
        self._loaded.append("prices")

    def need(self, calls: Any) -> Need:
        assert self._loaded, "it was asked for prices before they were loaded"
        return super().need(calls)


class Reward(Own):
    kind: ClassVar[str] = "test_own_endpoint.reward"
    generates = False


def test_a_model_that_answers_no_prompts_cannot_be_checked():
    with pytest.raises(TypeError, match="Only a model that answers prompts can be checked"):
        wait(tl.Lab(Reward(), runs=None).check())


def test_a_replay_loads_the_prices_alone(tmp_path):
    model = Priced()
    lab = tl.Lab(model, runs=None, cache=tmp_path)
    strategy, budget = tl.SelfConsistency(attempts=4), tl.Budget(usd=2.0)
    first = wait(lab.run(strategy, TASK, budget=budget))
    assert first.stop_reason == "budget:usd"
    assert set(model._loaded) == {"all"}
    model._loaded.clear()
    again = wait(lab.replaying().run(strategy, TASK, budget=budget))
    assert set(model._loaded) == {"prices"}
    assert again.events == first.events


def test_an_endpoint_takes_settings_by_name():
    model = Own(label="mine").configured(base_url="http://two", reported=5)
    assert (type(model), model.label, model.base_url, model.reported) == (Own, "mine", "http://two", 5)
    with pytest.raises(ValueError, match="revision"):
        model.configured(revision="main")
    assert scripted().configured() == scripted()
