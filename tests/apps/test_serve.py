"""The server of `tot-lab serve`, asked over HTTP without an SDK."""

import asyncio
import json
from collections import Counter

import aiohttp
import pytest
from support import Scripted, wait
from support.serving import served
from support.shell import tot_lab

import tot_lab as tl

ONE = {"one": tl.OneAnswer()}
SEARCH = {
    "fast": tl.TreeOfThoughts(
        propose=tl.Sample(count=2), search=tl.BeamSearch(width=1), stop=tl.Stop(depth=2)
    )
}


async def thinker(call):
    """Propose a step for each sample, and prefer the second one."""
    text = f"score: 0.{call.messages[-1].content.count('1') % 9}" if call.purpose == "value" else ""
    return tl.Reply(text or f"Step {call.sample_index}.", input_tokens=7, output_tokens=2, cost=0.01)


async def echo(call):
    """Answer with the number of the repeat."""
    return tl.Reply(f"Answer: {call.repeat}", input_tokens=7, output_tokens=2, cost=0.01)


class Gate:
    """A model that answers the first `free` calls at once, and the others after `open`."""

    def __init__(self, free=0):
        self.free, self.calls, self.cancelled = free, 0, 0
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()

    async def __call__(self, call):
        self.calls += 1
        if self.calls > self.free and not self.opened.is_set():
            self.reached.set()
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return "score: 0.5" if call.purpose == "value" else f"Answer: {self.calls}"


def in_loop(test):
    """Run an async test."""

    def run(tmp_path):
        wait(asyncio.wait_for(test(tmp_path / "runs"), 20))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


# Replies.


@in_loop
async def test_a_reply_is_the_answer_of_a_recorded_search(runs):
    async with served(thinker, SEARCH, runs) as api:
        got = await api.ask("Reach 5.", "fast", max_tokens=9, temperature=0.3, seed=4, stop="zzz")
        run = api.journal(got.run)
        body = got.json
        assert got.answer == run.answer != ""
        assert body["object"] == "chat.completion"
        assert body["model"] == "fast"
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["prompt_tokens"] == run.usage.input_tokens
        assert body["usage"]["completion_tokens"] == run.usage.output_tokens
        assert body["usage"]["total_tokens"] == run.usage.input_tokens + run.usage.output_tokens
        thoughts = body["choices"][0]["message"]["reasoning_content"]
        for node in run.nodes_df().itertuples():
            assert node.id == "0" or f"[{node.id}] {node.text}\n" in thoughts
        about = body["tot_lab"]
        assert (about["run"], about["status"], about["calls"]) == (run.id, run.status, run.usage.calls)
        assert about["repeat"] == run.header.repeat == 4  # the seed
        assert about["ignored"] == ["max_tokens", "temperature"]
        record = {"model": "fast", "max_tokens": 9, "temperature": 0.3, "seed": 4, "stop": "zzz"}
        assert run.task.data["request"] == record
        calls = [event for event in run.events if isinstance(event, tl.Call)]
        assert all(call.max_tokens is None and call.temperature is None for call in calls)
        page = await api.get(about["url"].removeprefix(api.url))
        assert page.status == 200
        assert "tot-lab-explorer" in page.text


@in_loop
async def test_a_stream_is_the_same_search_piece_by_piece(runs):
    async with served(thinker, SEARCH, runs) as api:
        whole = (await api.ask("Reach 5.", "fast", seed=1)).json
        options = {"include_usage": True}
        got = await api.ask("Reach 5.", "fast", seed=1, stream=True, stream_options=options)
        assert got.headers["Content-Type"] == "text/event-stream"
        *chunks, usage, done = got.events
        assert done == "[DONE]"
        assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
        assert {chunk["id"] for chunk in [*chunks, usage]} == {f"chatcmpl-{got.run}"}
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert deltas[0] == {"role": "assistant", "content": ""}
        kinds = ["".join(delta) for delta in deltas[1:]]
        assert kinds == [*["reasoning_content"] * (len(kinds) - 2), "content", ""]
        pieces = [delta.get("reasoning_content", "") for delta in deltas]
        message = whole["choices"][0]["message"]
        assert sorted("".join(pieces).splitlines()) == sorted(message["reasoning_content"].splitlines())
        assert deltas[-2]["content"] == message["content"]
        ends = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        assert ends == [*[None] * (len(ends) - 1), "stop"]
        assert chunks[-1]["tot_lab"]["run"] == got.run
        without = await api.ask("Reach 5.", "fast", seed=1, stream=True)
        assert not any("usage" in chunk for chunk in without.events[:-1])


@in_loop
async def test_usage_that_the_model_does_not_report_is_unknown_and_not_zero(runs):
    async with served(Gate(free=9), ONE, runs) as api:
        assert (await api.ask()).json["usage"] is None


@in_loop
async def test_thoughts_are_sent_while_the_search_is_under_way(runs):
    gate = Gate(free=2)  # both proposals of the first level; the first score waits
    async with served(gate, SEARCH, runs) as api:
        body = {"model": "fast", "stream": True, "messages": [{"role": "user", "content": "Q?"}]}
        async with api.session.post(f"{api.url}/v1/chat/completions", json=body) as response:
            read = b""
            while b"reasoning_content" not in read:
                read += await response.content.readany()
            assert gate.calls > 2
            assert b'"content":"Answer' not in read
            gate.opened.set()
            rest = await response.text()
        assert rest.rstrip().endswith("[DONE]")


@in_loop
async def test_a_stream_without_thoughts_stays_open(runs):
    gate = Gate()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tot_lab.apps.serve.PAUSE", 0.02)
        async with served(gate, ONE, runs) as api:
            asking = asyncio.create_task(api.ask(stream=True))
            await gate.reached.wait()
            await asyncio.sleep(0.2)
            gate.opened.set()
            got = await asking
            assert ": thinking\n\n" in got.text
            assert got.events[-3]["choices"][0]["delta"]["content"] == "1"
            roles = [event["choices"][0]["delta"].get("role") for event in got.events[:-1]]
            assert roles == ["assistant", None, None, None]  # one thought, the answer, the end


@in_loop
async def test_stop_shortens_the_answer_and_not_the_record(runs):
    async def model(call):
        return "Answer: one, two END three"

    async with served(model, {"one": tl.OneAnswer()}, runs) as api:
        got = await api.ask(stop=["END", ","])
        assert got.answer == "one"
        assert api.journal(got.run).answer == "one, two END three"
        got = await api.ask(stop="END", stream=True)
        assert [e["choices"][0]["delta"].get("content") for e in got.events[:-1]][-2] == "one, two "
        assert (await api.ask(stop=[])).answer == "one, two END three"


@in_loop
async def test_a_conversation_becomes_a_task(runs):
    asked = []

    async def model(call):
        asked.append(call)
        return "Answer: 6"

    async with served(model, ONE, runs) as api:
        messages = [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": "1 + 2?"}],
            },
            {"role": "assistant", "content": "It is 3."},
            {"role": "developer", "content": "In digits."},
            {"role": "user", "content": "And twice that?"},
        ]
        got = await api.post({"model": "one", "messages": messages})
        assert got.answer == "6"
        run = api.journal(got.run)
        assert run.question == "And twice that?"
        assert run.task.system_prompt == "Be brief.\n\nIn digits."
        assert [m.role for m in asked[0].messages] == ["system", "user"]
        assert asked[0].messages[0].content == "Be brief.\n\nIn digits."
        prompt = asked[0].messages[1].content
        assert "And twice that?" in prompt
        assert "User: What is\n1 + 2?\n\nAssistant: It is 3." in prompt


# What a request may ask for.

REFUSED = {
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "functions": [{"name": "f"}],
    "tool_choice": "required",
    "response_format": {"type": "json_object"},
    "n": 2,
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"1": 5},
    "modalities": ["text", "audio"],
    "base_url": "http://elsewhere",
    "prompt": "Q?",
}
WRONG = {
    "messages": [[], "Q?", [{"role": "user"}], [{"role": "assistant", "content": "A"}], [{"role": "tool"}]],
    "stream": ["yes"],
    "stop": ["", [""], 5],
    "seed": [-1, 1.5, "1"],
    "model": [5],
    "stream_options": [True, {"other": True}],
    "tot_lab": [5, {"model": "x"}, {"strategy": "react"}],
    "tot_lab.settings": [5, {"model": "x"}, {"nothing": 1}, {"temperature": 9}],
    "tot_lab.budget": [5, {"calls": 101}, {"nothing": 1}, {"calls": "9"}],
}


@in_loop
async def test_what_a_search_cannot_do_is_an_error_that_names_it(runs):
    async with served(echo, ONE, runs, budget=tl.Budget(calls=100)) as api:
        for name, value in REFUSED.items():
            got = await api.ask(**{name: value})
            assert (got.status, got.error["param"]) == (400, name), name
            assert name in got.error["message"]
            assert got.error["type"] == "invalid_request_error"
        for name, values in WRONG.items():
            for value in values:
                path = name.split(".")
                fields = {path[0]: {path[1]: value} if path[1:] else value}
                got = await api.post(
                    {"model": "one", "messages": [{"role": "user", "content": "Q?"}], **fields}
                )
                assert got.status in (400, 404), (name, value)
                assert (got.error["param"] or "").startswith(path[0]) or path[0] in got.error["message"]
        image = {"type": "image_url", "image_url": {"url": "data:"}}
        calls = {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}
        for messages in ([{"role": "user", "content": [image]}], [calls, {"role": "user", "content": "Q?"}]):
            got = await api.post({"model": "one", "messages": messages})
            assert (got.status, got.error["param"].partition("[")[0]) == (400, "messages")
        assert not list(runs.glob("*.jsonl"))  # no search was begun


@in_loop
async def test_values_that_change_nothing_are_accepted(runs):
    async with served(echo, ONE, runs) as api:
        same = {"n": 1, "tools": [], "response_format": {"type": "text"}, "logprobs": False, "stream": False}
        none = dict.fromkeys(
            ["stop", "seed", "tool_choice", "stream_options", "tot_lab", "max_tokens", "user"]
        )
        got = await api.ask(**same, **none)
        assert got.answer == "0"
        assert got.json["tot_lab"]["ignored"] == []


@in_loop
async def test_settings_and_a_lower_budget_reach_the_search(runs):
    async with served(Scripted(), SEARCH, runs, budget=tl.Budget(calls=50, tokens=10**6)) as api:
        own = {"settings": {"search.width": 2, "stop.depth": 1}, "budget": {"calls": 6}}
        run = api.journal((await api.ask("Reach 5.", "fast", tot_lab=own)).run)
        assert (run.strategy.search.width, run.strategy.stop.depth) == (2, 1)
        assert run.header.budget == {"calls": 6, "tokens": 10**6}
        plain = api.journal((await api.ask("Reach 5.", "fast")).run)
        assert plain.strategy == SEARCH["fast"]
        assert plain.header.budget == {"calls": 50, "tokens": 10**6}


@in_loop
async def test_names_are_models(runs):
    async with served(echo, {**ONE, "two": tl.ChainOfThought()}, runs) as api:
        listed = (await api.get("/v1/models")).json
        assert [model["id"] for model in listed["data"]] == ["one", "two"]
        assert {model["object"] for model in listed["data"]} == {"model"}
        assert (await api.get("/v1/models/two")).json == listed["data"][1]
        assert (await api.get("/v1/two/models")).json["data"] == listed["data"][1:]
        for got in (await api.ask(model="three"), await api.get("/v1/models/three"), await api.ask(model="")):
            assert (got.status, got.error["code"]) == (404, "model_not_found")
        unnamed = {"messages": [{"role": "user", "content": "Q?"}]}
        assert (await api.post(unnamed)).status == 404
        for model in ({}, {"model": "two"}, {"model": "the-model"}):
            got = await api.post({**unnamed, **model}, "/v1/two/chat/completions")
            assert got.json["model"] == "two"
            assert api.journal(got.run).strategy == tl.ChainOfThought()
        for model in ("one", "gpt-4.1"):
            got = await api.post({**unnamed, "model": model}, "/v1/two/chat/completions")
            assert (got.status, got.error["param"]) == (404, "model")
        assert (await api.post(unnamed, "/v1/three/chat/completions")).status == 404


@in_loop
async def test_what_a_simulated_model_wrote_says_so(runs):
    async with served("sim/game24", ONE, runs, make=tl.game24) as api:
        assert (await api.ask("4 9 10 13")).json["tot_lab"]["simulated"] is True
        assert "simulated model" in (await api.get("/")).text
    async with served(thinker, SEARCH, runs.parent / "others") as api:
        assert (await api.ask("Reach 5.", "fast")).json["tot_lab"]["simulated"] is False
        assert "simulated" not in (await api.get("/")).text


@in_loop
async def test_a_question_that_the_domain_refuses_is_the_clients_error(runs):
    async with served("sim/game24", ONE, runs, make=tl.game24) as api:
        got = await api.ask("4 5 six")
        assert (got.status, got.error["param"]) == (400, "messages")
        assert (await api.ask("4 5 6 10")).status in (200, 502)


# Repeats and retries.


@in_loop
async def test_equal_requests_are_repeats(runs):
    async with served(echo, ONE, runs) as api:
        assert [(await api.ask()).answer for _ in range(3)] == ["0", "1", "2"]
        assert (await api.ask("Another?")).answer == "0"
        assert (await api.ask(temperature=0.5)).answer == "0"
        assert (await api.ask(seed=1)).answer == (await api.ask(seed=1)).answer == "1"
        assert (await api.ask()).answer == "3"  # a seed does not count
        at_once = await asyncio.gather(*(api.ask("At once?") for _ in range(5)))
        assert sorted(got.answer for got in at_once) == ["0", "1", "2", "3", "4"]


@in_loop
async def test_a_client_that_leaves_ends_its_search(runs):
    for stream in (False, True):
        gate = Gate(free=2)
        async with served(gate, SEARCH, runs / str(stream)) as api:
            asking = asyncio.create_task(api.ask(model="fast", stream=stream))
            await gate.reached.wait()
            waiting = gate.calls
            asking.cancel()
            await asyncio.wait([asking])
            for _ in range(200):
                if gate.cancelled == waiting - 2:
                    break
                await asyncio.sleep(0.01)
            assert gate.cancelled == waiting - 2
            (run,) = api.journals()
            assert run.stop_reason == "cancelled"
            assert run.tree["0.0"].text  # what was found is kept
            assert gate.calls == waiting


@in_loop
async def test_a_retry_joins_the_search_that_is_under_way(runs):
    gate = Gate()
    async with served(gate, ONE, runs) as api:
        first = asyncio.create_task(api.ask())
        await gate.reached.wait()
        second = asyncio.create_task(api.ask(retry=1))
        third = asyncio.create_task(api.ask(retry=2, stream=True))
        other = asyncio.create_task(api.ask("Another?", retry=1))
        await asyncio.sleep(0.1)
        first.cancel()  # the others still wait
        await asyncio.sleep(0.1)
        assert gate.cancelled == 0
        gate.opened.set()
        got, streamed, different = await asyncio.gather(second, third, other)
        assert got.run == streamed.run != different.run
        assert got.answer == streamed.events[-3]["choices"][0]["delta"]["content"]
        assert gate.calls == 2
        assert len(api.journals()) == 2


@in_loop
async def test_a_retry_resumes_the_search_that_its_client_left(runs):
    for stream in (False, True):
        gate = Gate(free=2)
        async with served(gate, SEARCH, runs / str(stream)) as api:
            asking = asyncio.create_task(api.ask(model="fast"))
            await gate.reached.wait()
            asking.cancel()
            while gate.cancelled < 2:
                await asyncio.sleep(0.01)
            gate.opened.set()
            got = await api.ask(model="fast", retry=1, stream=stream)
            assert got.status == 200, got.text
            (run,) = api.journals()
            assert got.run == run.id
            assert run.status == "completed"
            assert gate.calls == run.usage.calls + 2  # only the calls without a reply were made again
            if stream:
                text = "".join(e["choices"][0]["delta"].get("reasoning_content", "") for e in got.events[:-1])
                assert Counter(text.splitlines())[f"[0.0] {run.tree['0.0'].text}"] == 1
            again = await api.ask(model="fast", retry=1)  # everything was answered: a new search
            assert again.run != got.run


@in_loop
async def test_a_retry_that_comes_before_the_first_search_has_ended_waits_for_its_end(runs):
    gate = Gate(free=2)
    async with served(gate, SEARCH, runs) as api:
        asking = asyncio.create_task(api.ask(model="fast"))
        await gate.reached.wait()
        asking.cancel()
        retry = asyncio.create_task(api.ask(model="fast", retry=1))
        await asyncio.sleep(0.1)
        gate.opened.set()
        got = await retry
        (run,) = api.journals()
        assert (got.status, got.run, run.status) == (200, run.id, "completed")


@in_loop
async def test_a_finished_run_that_was_not_received_answers_the_retry(runs):
    gate = Gate()
    async with served(gate, ONE, runs) as api:
        asking = asyncio.create_task(api.ask())
        await gate.reached.wait()
        asking.cancel()
        gate.opened.set()  # the search may end before the server sees that the client has left
        await asyncio.sleep(0.1)
        got = await api.ask(retry=1)
        assert got.run == api.journals()[0].id
        assert len(api.journals()) == 1


@in_loop
async def test_a_request_that_was_refused_never_joins_the_search_of_another(runs):
    gate = Gate()
    async with served(gate, ONE, runs, at_once=1) as api:
        first = asyncio.create_task(api.ask())
        await gate.reached.wait()
        refused = await api.ask()
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert int(refused.headers["Retry-After"]) > 0
        assert (await api.ask(retry=1)).status == 429  # it still has no place
        gate.opened.set()
        got = await first
        own = await api.ask(retry=2)
        assert own.run != got.run
        assert {run.header.repeat for run in api.journals()} == {0, 1}


@in_loop
async def test_two_clients_that_left_each_get_a_run_of_their_own(runs):
    gate = Gate()
    async with served(gate, ONE, runs) as api:
        asking = [asyncio.create_task(api.ask()) for _ in range(2)]
        while gate.calls < 2:
            await asyncio.sleep(0.01)
        for one in asking:
            one.cancel()
        while gate.cancelled < 2:
            await asyncio.sleep(0.01)
        gate.opened.set()
        got = await asyncio.gather(*(api.ask(retry=1) for _ in range(2)))
        assert len({one.run for one in got}) == 2
        assert {run.header.repeat for run in api.journals()} == {0, 1}
        assert len(api.journals()) == 2


@in_loop
async def test_an_interrupted_run_is_resumed_by_a_retry_to_the_next_server(runs):
    gate = Gate(free=2)
    async with served(gate, SEARCH, runs, grace=0.0) as api:
        asking = asyncio.create_task(api.ask(model="fast"))
        await gate.reached.wait()
    stopped = await asking
    assert stopped.status == 503
    assert "Retry-After" in stopped.headers
    async with served(gate, SEARCH, runs) as api:
        gate.opened.set()
        got = await api.ask(model="fast", retry=1)
        assert got.run == api.journals()[0].id
        assert len(api.journals()) == 1
    changed = {"fast": SEARCH["fast"].with_({"search.width": 2})}
    async with served(Gate(free=99), changed, runs) as api:  # another strategy under the name
        assert (await api.ask(model="fast", retry=1)).run != got.run


# Failures.


@in_loop
async def test_a_failed_search_is_no_answer_and_a_retry_continues_it(runs):
    calls = 0

    async def fails_once(call):
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("the provider is down")
        return "Answer: 5"

    async with served(fails_once, ONE, runs) as api:
        failed = await api.ask()
        assert (failed.status, failed.error["type"]) == (502, "server_error")
        assert "the provider is down" in failed.error["message"]
        got = await api.ask(retry=1)
        assert got.answer == "5"
        assert got.run == failed.run
        assert len(api.journals()) == 1


@in_loop
async def test_an_empty_answer_is_an_error(runs):
    async def silent(call):
        return ""

    async with served(silent, ONE, runs) as api:
        got = await api.ask()
        assert got.status == 502
        assert got.headers["x-should-retry"] == "false"
        streamed = await api.ask(stream=True)
        assert streamed.status == 502 or ("error" in streamed.events[-1] and "[DONE]" not in streamed.events)


@in_loop
async def test_a_budget_ends_a_search_with_its_best_answer_or_an_error(runs):
    async with served(Gate(free=10**6), SEARCH, runs) as api:
        got = await api.ask(model="fast", tot_lab={"budget": {"calls": 3}})
        assert got.json["choices"][0]["finish_reason"] == "length"
        assert got.json["tot_lab"]["stop_reason"] == "budget:calls"
        assert got.json["tot_lab"]["status"] == "partial"
        none = await api.ask(model="fast", tot_lab={"budget": {"calls": 0}})
        assert (none.status, none.error["code"]) == (400, "budget:calls")
        streamed = await api.ask(model="fast", tot_lab={"budget": {"calls": 0}}, stream=True)
        assert streamed.status == 400  # nothing was sent before


@in_loop
async def test_the_spending_limit_is_a_429_that_is_not_retried(runs):
    async with served(echo, ONE, runs, spend=0.025) as api:
        statuses = [(await api.ask(seed=number)).status for number in range(4)]
        assert statuses == [200, 200, 429, 429]
        got = await api.ask()
        assert got.error["code"] == "insufficient_quota"
        assert got.headers["x-should-retry"] == "false"


@in_loop
async def test_an_error_after_the_stream_began_is_an_event_and_no_clean_end(runs):
    calls = 0

    async def model(call):
        nonlocal calls
        calls += 1
        if calls > 2:
            raise RuntimeError("the provider is down")
        return "A step."

    async with served(model, SEARCH, runs) as api:
        got = await api.ask(model="fast", stream=True)
        assert got.status == 200
        assert "reasoning_content" in got.text
        assert "event: error" in got.text
        assert got.events[-1]["error"]["message"]
        assert "[DONE]" not in got.events
        assert not any(e.get("choices") and e["choices"][0]["finish_reason"] for e in got.events)


@in_loop
async def test_a_bug_of_a_strategy_is_a_500_that_is_not_retried(runs):
    class Broken(tl.Strategy):
        kind = "tests/broken_for_serve"

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            raise ZeroDivisionError("a bug")

    async with served(echo, {"one": Broken()}, runs) as api:
        got = await api.ask()
        assert (got.status, got.headers["x-should-retry"]) == (500, "false")
        assert "ZeroDivisionError" in got.error["message"]
        assert (await api.get("/v1/models")).status == 200  # the server goes on


# Access.


@in_loop
async def test_other_sites_cannot_reach_a_server_without_a_token(runs):
    async with served(echo, ONE, runs) as api:
        body = {"model": "one", "messages": [{"role": "user", "content": "Q?"}]}
        port = api.url.rpartition(":")[2]
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1.evil.example",
            "169.254.1.1",
            "[",
            "",
        ):
            assert (await api.post(body, Host=host)).status in (400, 403), host
            assert (await api.get("/", headers={"Host": host})).status in (400, 403), host
        for host in ("localhost", f"127.0.0.1:{port}", f"[::1]:{port}", f"LOCALHOST:{port}"):
            assert (await api.post(body, Host=host)).status == 200, host
        for origin in (
            "http://evil.example",
            "null",
            "https://localhost:1",
            f"http://127.0.0.1.evil.example:{port}",
        ):
            assert (await api.post(body, Origin=origin)).status == 403, origin
        assert (await api.post(body, Origin=api.url)).status == 200
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            assert (await api.post(body, Content_Type=kind)).status == 415, kind
        preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        async with api.session.options(f"{api.url}/v1/chat/completions", headers=preflight) as response:
            assert response.status >= 400
            assert not any(name.lower().startswith("access-control") for name in response.headers)


@in_loop
async def test_a_token_guards_everything(runs):
    async with served(echo, ONE, runs, token="the-token") as api:
        body = {"model": "one", "messages": [{"role": "user", "content": "Q?"}]}
        for header in (
            "",
            "Bearer",
            "Bearer wrong",
            "Bearer the-toke",
            "Basic the-token",
            "Bearer the-token2",
            "Bearer ü",
        ):
            got = await api.post(body, Authorization=header)
            assert (got.status, got.error["code"]) == (401, "invalid_api_key"), header
            assert "the-token" not in got.text
        got = await api.post(body, Authorization="Bearer the-token", Host="other.example")
        assert got.status == 200
        pages = ("/", f"/runs/{got.run}", "/v1/models", "/runs/00000000", "/nothing")
        for path in pages:
            assert (await api.get(path)).status == 401, path
            assert (await api.get(f"{path}?token=wrong")).status == 401, path
        entered = await api.get("/?token=the-token")
        assert (entered.status, entered.headers["Location"]) == (302, "/")
        cookie = entered.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "the-token" not in cookie
        assert [(await api.get(path)).status for path in pages] == [200, 200, 401, 404, 401]
        assert (await api.post(body)).status == 401  # the cookie opens pages alone
        assert (await api.get("//evil.example/?token=the-token")).status == 401


@in_loop
async def test_keys_never_reach_a_client(runs):
    key = "sk-of-the-server-0123456789"

    async def model(call):
        raise RuntimeError(f"401: invalid key {key}")

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPENAI_API_KEY", key)
        async with served(model, ONE, runs) as api:
            for stream in (False, True):
                got = await api.ask(stream=stream)
                assert got.status == 502
                assert key not in got.text
                assert "invalid key" in got.text
            assert key not in (await api.get("/")).text


@in_loop
async def test_large_and_broken_bodies_are_refused(runs):
    async with served(echo, ONE, runs) as api:
        large = {"model": "one", "messages": [{"role": "user", "content": "x" * (9 * 2**20)}]}
        assert (await api.post(large)).status == 413
        for body in (
            b"",
            b"{",
            b"[]",
            b"5",
            b"\xff",
            b"[" * 10**5,
            b'{"messages": NaN}',
            b'{"a": "\\ud800"}',
        ):
            got = await api.post(body)
            assert (got.status, got.error["type"]) == (400, "invalid_request_error"), body[:20]
        for path in ("/nothing", "/v1", "/runs/../../etc/passwd", "/runs/%2e%2e%2fx", "/runs/abc"):
            got = await api.get(path)
            assert (got.status, "error" in got.json) == (404, True)
        assert (await api.get("/v1/chat/completions")).status == 405


# Pages.


@in_loop
async def test_text_of_models_is_escaped_on_the_pages(runs):
    attack = "<script>alert(1)</script><img src=x onerror=alert(1)>"

    async def model(call):
        return f"Answer: {attack}"

    async with served(model, ONE, runs) as api:
        got = await api.ask(attack)
        assert got.answer == attack
        for path in ("/", f"/runs/{got.run}"):
            page = await api.get(path)
            assert page.status == 200
            assert page.headers["Content-Type"].startswith("text/html")
            assert page.headers["X-Frame-Options"] == "DENY"
            assert "<script>alert" not in page.text
            assert "<img src=x" not in page.text
            assert "Content-Security-Policy" in page.text
        listed = (await api.get("/")).text
        assert f'href="/runs/{got.run}"' in listed
        assert "&lt;script&gt;alert(1)" in listed


@in_loop
async def test_the_list_shows_every_kind_of_run(runs):
    gate = Gate()
    async with served(gate, ONE, runs) as api:
        asking = asyncio.create_task(api.ask("Under way?"))
        await gate.reached.wait()
        (runs / "broken.jsonl").write_text("no journal\n")
        listed = (await api.get("/")).text
        assert "Under way?" in listed
        assert "not finished" in listed
        assert "damaged" in listed
        (run,) = runs.glob("2*.jsonl")
        assert (await api.get(f"/runs/{run.stem[-8:]}")).status == 200
        gate.opened.set()
        await asking
        assert "not finished" not in (await api.get("/")).text


# The command.


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--as", "fast"), "--as 'fast'"),
        (("--as", "fast=nothing"), "Unknown strategy 'nothing'"),
        (("--as", "fast=tree_of_thoughts search.width=0"), "search.width"),
        (("--domain", "nothing"), "--domain nothing"),
        (("--budget", "runs=1"), "Unknown setting: got 'runs'"),
        (("--at-once", "0"), "at least 1"),
        (("--tools", "nothing"), "--tools"),
    ],
)
def test_an_invalid_argument_is_one_line_before_anything_is_served(words, says, tmp_path):
    done = tot_lab("serve", "--model", "sim/general", *words, folder=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


# The end.


@in_loop
async def test_a_server_that_stops_finishes_what_it_can(runs):
    gate = Gate()
    async with served(gate, ONE, runs, grace=5.0) as api:
        asking = asyncio.create_task(api.ask())
        await gate.reached.wait()
        asyncio.get_running_loop().call_later(0.3, gate.opened.set)
    got = await asking
    assert got.answer == "1"
    with pytest.raises(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(api.url):
            pass


@in_loop
async def test_a_stream_that_the_end_of_the_server_cuts_off_is_an_error(runs):
    gate = Gate(free=2)
    async with served(gate, SEARCH, runs, grace=0.1) as api:
        asking = asyncio.create_task(api.ask(model="fast", stream=True))
        await gate.reached.wait()
        await asyncio.sleep(0.1)
    got = await asking
    assert got.events[-1]["error"]["type"] == "server_error"
    assert "[DONE]" not in got.events
    assert tl.load(next(runs.glob("*.jsonl"))).stop_reason == "cancelled"
    assert json.dumps(got.events)
