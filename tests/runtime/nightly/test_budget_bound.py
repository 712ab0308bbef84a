"""The bound that `Budget` states, for every way in which a call can be made and reported.

A server on loopback knows what each call really used. What it reports is that, nothing, or absurd. A limit is
never exceeded if everything that a call can use is known beforehand, and otherwise by at most (calls in
flight) x (largest use of one call).
"""

import asyncio
import json
import warnings
from collections import defaultdict
from itertools import product

import pytest
from aiohttp import web

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Note, Thought
from tot_lab.models import retries
from tot_lab.models.openai_compatible import VLLM
from tot_lab.models.reward_servers import VLLMScore

PROMPT, OUTPUT = 0.01, 0.1  # USD for a token
LIMITS = {"input_tokens": 250, "output_tokens": 40, "tokens": 320, "usd": 6.0}
LONGEST = 8
WAYS = ("plain", "samples", "streams", "lists", "retries")
ABSURD = {"prompt_tokens": -5, "completion_tokens": 10**30}


class Asks(tl.Strategy):
    """Makes `at_once` calls at the same time, `rounds` times."""

    kind = "test_budget_bound.asks"
    at_once: int = 1
    rounds: int = 1
    max_tokens: int | None = None
    is_group: bool = False
    is_reward: bool = False

    def call(self, at, k):
        text = "how many legs have three spiders" if self.is_group else f"how many legs have {k:05} spiders"
        messages = (Message("user", text),)
        if self.is_reward:
            messages = (Message("user", "how many legs?"), Message("assistant", text))
        return Call(at, "ask", messages, k if self.is_group else 0, max_tokens=self.max_tokens)

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        for turn in range(self.rounds):
            numbers = range(turn * self.at_once, (turn + 1) * self.at_once)
            yield from tl.gather([tl.ask(self.call(at, k)) for k in numbers], at_most=1)
        return tl.Answer("", "answered")


def tokens_of(text):
    return (len(text) + 3) // 4


class Server:
    """Answers in the way that the name of the model says, and keeps what each call used.

    `used` holds, by model, what each call used: (prompt tokens, reply tokens) of all of its tries. Every
    second request of a model whose name says `retries` fails after it was processed.
    """

    def __init__(self):
        self.used = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        self.seen = defaultdict(int)

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/score", self.score)
        app.router.add_get("/{path:.*}", self.page)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_):
        await self.runner.cleanup()

    async def page(self, request):
        return web.json_response({"data": []}, status=200 if request.path.endswith("models") else 404)

    def text(self, body, key, prompt):
        """Return a reply, and count what it used. It is as long as the prompt says."""
        k = self.seen[body["model"]] = self.seen[body["model"]] + 1
        size = 1 + k % (body.get("max_tokens") or 3 * LONGEST)
        size = 3 * LONGEST if body.get("max_tokens") is None and k % 7 == 0 else size
        used = self.used[body["model"]][key]
        used[0] += tokens_of(prompt)
        used[1] += size
        return "so, " * size

    def usage(self, body, prompts, output):
        reported = {"prompt_tokens": sum(map(tokens_of, prompts)), "completion_tokens": output}
        if "missing" in body["model"]:
            return {}
        return {"usage": ABSURD if "absurd" in body["model"] else reported}

    async def chat(self, request):
        body = await request.json()
        await asyncio.sleep(0.002)
        prompt, n = body["messages"][-1]["content"], body.get("n", 1)
        is_failed = "retries" in body["model"] and self.seen[body["model"]] % 2 == 0
        keys = [prompt] if n == 1 and "samples" not in body["model"] else [object() for _ in range(n)]
        texts = [self.text(body, key, prompt) for key in keys]
        usage = self.usage(body, [prompt], sum(len(text) // 4 for text in texts))
        finish = "error" if is_failed else "stop"
        if body.get("stream"):
            pieces = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
            pieces += [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]
            pieces += [{"choices": [], **usage}]
            lines = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
            return web.Response(text=f"{lines}data: [DONE]\n\n", content_type="text/event-stream")
        choices = [
            {"index": k, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
            for k, text in enumerate(texts)
        ]
        return web.json_response({"model": "m", "choices": choices, **usage})

    async def completions(self, request):
        body = await request.json()
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        texts = [self.text(body, prompt, prompt) for prompt in prompts]
        choices = [{"index": k, "text": text, "finish_reason": "length"} for k, text in enumerate(texts)]
        usage = self.usage(body, prompts, len(texts))
        return web.json_response({"model": "m", "choices": choices, **usage})

    async def score(self, request):
        body = await request.json()
        texts = body["text_2"] if isinstance(body["text_2"], list) else [body["text_2"]]
        for text in texts:
            self.used[body["model"]][text][0] += tokens_of(body["text_1"] + text)
        data = [{"index": k, "score": 0.5} for k, _ in enumerate(texts)]
        usage = self.usage(body, [body["text_1"] + text for text in texts], 0)
        return web.json_response({"data": data, **usage})


def in_flight(run):
    """Return the most calls that were sent and not answered at a time."""
    is_open, most = set(), 0
    for line in run.lines:
        if isinstance(line.e, Note) and line.e.name == "call.sent":
            is_open.add(tuple(line.e.data["call"]))
            most = max(most, len(is_open))
        elif isinstance(line.e, Reply):
            is_open.discard(line.p)
    return most


def amounts_of(used):
    prompt, output = used
    usd = prompt * PROMPT + output * OUTPUT
    return {"input_tokens": prompt, "output_tokens": output, "tokens": prompt + output, "usd": usd}


def model_of(server, name, way, has_price, max_tokens):
    price = (PROMPT * 1e6, OUTPUT * 1e6) if has_price else None
    settings = {"model": name, "base_url": server.url, "price": price, "concurrency": 256}
    if way == "lists" and max_tokens is None:
        return VLLMScore(**settings)
    return VLLM(**settings, chat=way != "lists")


async def exceeded(server, case):
    """Return what is wrong with a run of this case, or ""."""
    has_price, report, max_tokens, cap, at_once, way = case
    max_tokens = max_tokens and (1 if way == "lists" else LONGEST)
    name = f"{way} {report} {case}"
    is_reward = way == "lists" and max_tokens is None
    is_enforced = cap != "usd" or has_price
    strategy = Asks(
        at_once=at_once,
        rounds=-(-64 // at_once),
        max_tokens=max_tokens,
        is_group=way == "samples",
        is_reward=is_reward,
    )
    lab = tl.Lab(model_of(server, name, way, has_price, max_tokens), runs=None, mode="off")
    budget = tl.Budget(**{cap: LIMITS[cap]}, calls=None if is_enforced else 8)
    watch = (lambda lines: None) if way == "streams" else None
    run = await lab.run(strategy, tl.general("?"), budget=budget, watch=watch)
    calls = [amounts_of(used)[cap] for used in server.used.pop(name, {}).values()]
    if not calls:
        return f"{case}: no call was made"
    if not is_enforced or (is_reward and cap == "output_tokens"):
        return ""
    over = sum(calls) - LIMITS[cap]
    is_known = cap == "input_tokens" or max_tokens is not None or is_reward
    bound = 0.0 if is_known else in_flight(run) * max(calls)
    if over > bound + 1e-9:
        return f"{case}: {over:g} more than {LIMITS[cap]}, at most {bound:g}; {len(calls)} calls"
    if run.stop_reason not in (f"budget:{cap}", "error"):
        return f"{case}: {run.stop_reason}, {sum(calls):g} of {LIMITS[cap]}"
    return ""


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_making_and_reporting_calls_exceeds_the_stated_bound(way, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.001)
    reports = "reported", "missing", "absurd"
    cases = list(product((True, False), reports, (None, True), LIMITS, (1, 4, 64, 256), (way,)))

    async def walk():
        wrong, left = [], iter(cases)

        async def some():
            wrong.extend([found for case in left if (found := await exceeded(server, case))])

        async with Server() as server:
            await asyncio.gather(*(some() for _ in range(8)))
        return wrong

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrong = asyncio.run(walk())
    assert not wrong, "\n".join(wrong)
    unpriced = [one for one in caught if "limit on usd could not be enforced" in str(one.message)]
    # Absurd usage uses up the limit.
    unknown = [case for case in cases if not case[0] and case[1] != "absurd" and case[3] == "usd"]
    assert len(unpriced) == len(unknown) > 0
