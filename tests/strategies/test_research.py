"""The research delegate: the pages of a documentation site on this machine are read again, whole, and what
they specify reaches the thinker letter by letter."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest
from support import ROOT, Scripted, wait
from support.providers import Providers, Said

import tot_lab as tl
from tot_lab.analysis.rehearsal import carry_out
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.core.tools import ToolSpec, characters_within, tokens_in
from tot_lab.models.lite_llm.loading import load_litellm
from tot_lab.models.model_table import window_in_table
from tot_lab.strategies.research import (
    ToolUse,
    agent_used_web_tools,
    altered,
    extract_fetched_urls,
    fetcher,
    quotations,
)
from tot_lab.testing import HOSTILE, answer_to, check_strategy

ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
SCHEMA = """{
  "order_ref": "string, 12 characters",
  "line_items": [{"sku_code": "string", "qty": "integer, 1 to 999"}],
  "ship_before": "RFC 3339"
}"""
PROSE = "<p>Orders have been taken since the harbour was built, and much could be told of it.</p>" * 80
PAGES = {
    "/orders": f"<h1>Orders</h1>{PROSE}<h2>Body</h2><pre><code>{SCHEMA}</code></pre>"
    "<p>At most <code>max_line_items</code> = 40 of them; see /etc/harbour/orders.toml.</p>",
    "/retries": f"<h1>Retries</h1>{PROSE}<p>The field retry_after_ms is a number; backoff_factor is 1.5.</p>",
    "/long": f"<h1>Long</h1>{PROSE * 10}<p>The field too_far_down is a number.</p>",
    "/empty": "",
}
EXACT = ['"order_ref": "string, 12 characters"', '"sku_code"', "max_line_items", "/etc/harbour/orders.toml"]


class Site(NamedTuple):
    url: str
    seen: list


@pytest.fixture
def site():
    """A real server on this machine. What is below /once is there for its first visitor alone."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.removeprefix("/once")
            there = path in PAGES and not (self.path != path and self.path in seen)
            seen.append(self.path)
            body = PAGES.get(path, "").encode()
            self.send_response(200 if there else 500)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Site(f"http://127.0.0.1:{server.server_port}", seen)
    server.shutdown()
    thread.join()
    server.server_close()


WEB = tl.tools.WebFetch(allow_private=True, retries=0)
THINKING = tl.DeepThink(max_iterations=1, num_branches=2)
STAGES = {
    "branch": {"branches": [{"name": "by header", "strategy": "s"}, {"name": "by body", "strategy": "s"}]},
    "develop": {"solution": "Send less.", "confidence": 7},
    "converge": {"synthesis": "Send less.", "confidence": 7},
}


def copied(call):
    """An honest model: all that stands in code, and each line that speaks of a field or a file."""
    page = call.prompt.partition("<page>\n")[2].rpartition("\n</page>")[0]
    code = page.split("```")[1::2]
    lines = [line for line in page.splitlines() if "field" in line or "/etc/" in line]
    return "\n".join([*(f"```{block}```" for block in code), *lines]) or "NOTHING"


def model(*urls, extract=copied, tool="web-fetch", argument="url"):
    """Calls a tool for each of `urls` in one turn, then has read enough."""

    def reply(call):
        if call.purpose == "extract":
            return extract(call)
        if call.purpose in STAGES:
            return json.dumps(STAGES[call.purpose])
        if len(call.messages) == 1:
            asked = [ToolCall(f"c{k}", tool, json.dumps({argument: url})) for k, url in enumerate(urls)]
            return Reply(tool_calls=tuple(asked))
        return Reply(tool_calls=(ToolCall("z", "final-answer", '{"answer": "The docs are read."}'),))

    return Scripted(reply)


def strategy(**research):
    return tl.GatherThenThink(strategy=THINKING, gatherer=tl.ReAct(max_iterations=3), research=research)


QUESTION = "Debug our client: the harbour refuses its orders."


def made(scripted, *, tools=(WEB,), question=QUESTION, **research):
    lab = tl.Lab(scripted, runs=None, tools=tools)
    run = wait(lab.run(strategy(**research), tl.open_ended(question)))
    assert run.answer
    return run


def notes(run, name):
    return [event.data for event in run.events if isinstance(event, tl.Note) and event.name == name]


def asked(scripted, *kinds):
    return [call.prompt for call in scripted.calls if call.purpose in kinds]


def deep(scripted):
    prompts = asked(scripted, "branch", "develop", "converge")
    assert len(prompts) == 4
    return prompts


def tool_calls(run):
    return [
        (event.node, json.loads(event.prompt)["url"])
        for event in run.events
        if isinstance(event, tl.Call) and event.purpose == "tool"
    ]


@pytest.mark.slow
def test_d15_schemas_and_field_names_reach_the_thinker_where_cut_output_had_lost_them(site):
    urls = [f"{site.url}/orders", f"{site.url}/retries"]
    run = made(scripted := model(*urls))
    for prompt in asked(scripted, "act"):  # the gatherer never saw them
        assert not any(name in prompt for name in (*EXACT, "retry_after_ms"))
    for prompt in deep(scripted):
        assert SCHEMA in prompt
        assert all(name.replace("_", r"\_") in prompt or name in prompt for name in EXACT)
        assert r"retry\_after\_ms is a number; backoff\_factor is 1.5" in prompt  # Markdown's way to write it
        research, raw = prompt.index("<research_context>"), prompt.index("<tool_output>")
        assert research < prompt.index(SCHEMA) < raw
    assert not notes(run, "research.altered")
    assert sorted(site.seen) == ["/orders", "/orders", "/retries", "/retries"]  # really again
    assert tool_calls(run) == [("0.0.0", urls[0]), ("0.0.0", urls[1]), ("0.1", urls[0]), ("0.1", urls[1])]
    made(without := model(*urls), enabled=False)
    assert asked(without, "extract") == []
    for prompt in deep(without):
        assert "<research_context>" not in prompt
        assert not any(name in prompt for name in (SCHEMA, *EXACT, "retry"))


@pytest.mark.slow
def test_d15_the_record_shows_page_and_extract_and_replays(site, tmp_path):
    lab = tl.Lab(model(f"{site.url}/orders"), runs=tmp_path, tools=(WEB,))
    run = wait(lab.run(strategy(), tl.open_ended(QUESTION)))
    assert run.tree["0.1"].text == f"Pages to read whole:\n{site.url}/orders"
    assert SCHEMA in run.tree["0.1.0"].text
    assert SCHEMA in run.tree["0.1.0.0"].text
    assert notes(run, "research.done") == [{"pages": 1, "read": 1}]
    assert wait(tl.load(run.path).replay()).identical


@pytest.mark.slow
def test_d15_each_page_once_and_so_many_at_most(site):
    urls = [f"{site.url}/orders#body", f"{site.url}/orders", f"{site.url}/retries", f"{site.url}/gone"]
    run = made(scripted := model(*urls))
    assert len(asked(scripted, "extract")) == 2
    assert [url for at, url in tool_calls(run) if at == "0.1"] == urls[1:3]  # what failed was not fetched
    run = made(scripted := model(*urls), max_pages=1)
    assert len(asked(scripted, "extract")) == 1
    assert notes(run, "research.left_out") == [{"max_pages": 1, "urls": [f"{site.url}/retries"]}]
    assert all(f"Not read, because there were more than 1: {site.url}/retries" in p for p in deep(scripted))


@pytest.mark.slow
def test_d15_a_page_that_fails_is_said_and_passed_over(site):
    gone, there = f"{site.url}/once/orders", f"{site.url}/retries"
    fetch = WEB.model_copy(update={"pure": False})
    run = made(scripted := model(gone, there), tools=(fetch,))
    (failed,) = notes(run, "research.failed")
    assert failed["url"] == gone
    assert "HTTP 500" in failed["error"]
    for prompt in deep(scripted):
        assert f"{gone} could not be read: RuntimeError" in prompt
        assert r"retry\_after\_ms" in prompt
    assert notes(run, "research.done") == [{"pages": 2, "read": 1}]
    run = made(model(f"{site.url}/empty"))
    assert notes(run, "research.failed")[0]["error"] == "the page is empty"


@pytest.mark.slow
def test_d15_a_page_beyond_the_share_of_the_window_is_cut_and_that_is_said(site):
    run = made(scripted := model(f"{site.url}/long"), context_window=2_000, cap_ratio=0.5)
    (cut,) = notes(run, "research.cut")
    read = cut.pop("characters")
    assert cut == {"url": f"{site.url}/long", "tokens": 1_000}
    (prompt,) = asked(scripted, "extract")
    assert prompt.endswith("</page>"), "what differs between pages stands last"
    page = prompt.partition("<page>\n")[2].rpartition("\n</page>")[0]
    assert page == run.tree["0.1.0"].text
    assert page.endswith("\n… (the page goes on)")
    page = page.removesuffix("\n… (the page goes on)")
    assert len(page) == read
    assert 990 < tokens_in(page) <= 1_000
    run = made(model(f"{site.url}/long"), context_window=40_000)  # beyond the tool's own cap, of 20,000
    assert run.tree["0.1.0.0"].text.startswith("The field too")
    assert not notes(run, "research.cut")
    run = made(scripted := model(f"{site.url}/long", extract=lambda call: "words"), context_window=2_000)
    (cut,) = notes(run, "research.cut")
    said = f"Only the first {cut['characters']:,} characters of this page were read."
    assert all(said in prompt for prompt in deep(scripted))


@pytest.mark.nightly
def test_d15_the_window_is_that_of_the_setting_the_model_or_the_table_and_what_is_assumed_is_said(
    site, monkeypatch
):
    """A page of 1,800 tokens, in four labs on a real server: only the window differs."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    table = window_in_table("openai/gpt-4", "openai")
    assert table == 8192 == load_litellm().model_cost["gpt-4"]["max_input_tokens"]
    scripted = model(f"{site.url}/long")

    def answer(asked):
        reply = scripted.reply(tl.Call("0", kind_of(asked), messages_of(asked)))
        reply = Reply(reply) if isinstance(reply, str) else reply
        tools = tuple((tool.name, json.loads(tool.arguments)) for tool in reply.tool_calls)
        return Said(reply.text or None, tools=tools)

    with Providers(answer) as server:
        server.pages["/v1/models"] = {"data": [{"id": "unheard-of", "max_model_len": 4_000}]}
        base = server.base("openai")
        given = {"research": {"cap_ratio": 0.1}, "preset": "quick"}

        def thought(name, check=False, **settings):
            lab = tl.Lab(
                tl.LiteLLM(model=f"openai/{name}", api_base=base, **settings),
                **{"runs": None, "mode": "off", "tools": [WEB]},
            )
            if check:
                wait(lab.check())
            run = wait(tl.think(QUESTION, lab, **given))
            (cut,) = notes(run, "research.cut")
            return run, cut["tokens"]

        for window, settings in (
            (table, {"name": "gpt-4"}),
            (2_500, {"name": "gpt-4", "context_window": 2_500}),
            (2_500, {"name": "unheard-of", "context_window": 2_500}),
            (4_000, {"name": "unheard-of", "check": True}),
        ):
            run, tokens = thought(**settings)
            assert tokens == window // 10, settings
            assert run.task.context_window == window
            assert not notes(run, "research.window")
            assert "assumed" not in tl.deep_thought(run).report()
        run, tokens = thought("unheard-of")
        assert tokens == 819
        assert notes(run, "research.window") == [{"assumed": 8192}]
        assert "context window unknown: 8,192 tokens assumed" in tl.deep_thought(run).report()
        assert wait(run.replay()).identical
    ollama = tl.Lab("ollama/qwen3:8b", tools=[WEB])
    assert ollama.gateway.window == 4096  # of any model it keeps so many, unless it is told otherwise
    assert tl.Lab(tl.LiteLLM(model="ollama/x", context_window=9), tools=[WEB]).gateway.window == 9
    assert tl.Lab("anthropic/claude-haiku-4-5").gateway.window == 200_000


def messages_of(asked):
    return tuple(
        tl.records.Message(turn["role"], turn.get("content") or "") for turn in asked.json["messages"]
    )


def kind_of(asked):
    text = " ".join(str(turn.get("content")) for turn in asked.json["messages"])
    for kind, words in (
        ("extract", "Copy out what on this page"),
        ("branch", '"branches"'),
        ("converge", '"synthesis"'),
        ("act", "final-answer"),
    ):
        if words in text:
            return kind
    return "develop"


@pytest.mark.slow
def test_the_window_of_a_table_needs_no_litellm():
    code = (
        "import sys, tot_lab as tl; print(tl.Lab('gpt-4.1-mini', tools=['web_fetch']).gateway.window, "
        "'litellm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENV, capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.split() == ["1047576", "False"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "An order holds at most forty items, and every further one is refused by the harbour office. " * 100,
        json.dumps([{"order_ref": f"A{k:05}", "qty": k * 37, "ok": True} for k in range(300)]),
        "\n".join(f"| {k} | {k * 7} | {k % 3} |" for k in range(300)),
        "a{color:#fff;margin:0 1px 2px 3px;}\n" * 200,
        "每个订单最多包含四十个项目，超过的部分会被拒绝。" * 200,
        "В заказе не более сорока позиций. " * 200,
        "🚢📦🧭" * 300,
    ],
)
def test_what_fits_a_cap_of_tokens_fits_it_by_a_real_tokenizer(text):
    """Within 15 %, which is the share that no page fills; 4 characters a token are wrong by 75 % for JSON."""
    count = load_litellm().token_counter
    for name in ("gpt-4", "gpt-4o"):
        cut = text[: characters_within(text, 500)]
        assert 500 / 3 < count(model=name, text=cut) < 500 / 0.85
    assert characters_within(text, tokens_in(text)) == len(text)
    assert characters_within(text, 0) == 0


@pytest.mark.slow
def test_d15_what_was_not_copied_letter_by_letter_is_marked(site):
    def careless(call):
        return (
            'The body:\n```json\n"order_ref": "string, 10 characters"\n```\nand `sku_code`, and `max_items`.'
        )

    run = made(scripted := model(f"{site.url}/orders", extract=careless))
    wrong = ['"order_ref": "string, 10 characters"', "max_items"]
    assert notes(run, "research.altered") == [{"url": f"{site.url}/orders", "altered": wrong}]
    for prompt in deep(scripted):
        assert f"do not rely on them: `{wrong[0]}`, `{wrong[1]}`)" in prompt


@pytest.mark.nightly
@pytest.mark.parametrize("reply", ["NOTHING", "nothing", "", "<think>so", ConnectionError("no route")])
def test_an_extract_that_holds_nothing_or_fails_costs_its_page_alone(site, reply):
    def extract(call):
        if "retry" in call.prompt:
            return "`backoff_factor` is 1.5"
        if isinstance(reply, Exception):
            raise reply
        return reply

    run = made(scripted := model(f"{site.url}/orders", f"{site.url}/retries", extract=extract))
    assert all("`backoff_factor` is 1.5" in prompt for prompt in deep(scripted))
    empty = reply in ("NOTHING", "nothing")
    assert len(notes(run, "research.failed")) == (not empty)
    assert all((f"{site.url}/orders says nothing of use" in prompt) == empty for prompt in deep(scripted))


@pytest.mark.nightly
def test_an_extract_of_a_megabyte_is_bounded_and_checked_at_once(site):
    began = time.perf_counter()
    many = " ".join(f"`x{k}`" for k in range(150_000))
    run = made(scripted := model(f"{site.url}/orders", extract=lambda call: many))
    assert all(len(prompt) < 60_000 for prompt in deep(scripted))
    assert len(run.tree["0.1.0.0"].text) < 28_000
    assert len(notes(run, "research.altered")[0]["altered"]) == 1_000
    for text in ("`" * 1_000_000, "'" * 1_000_000, "`x\n" * 300_000, "```\n" * 250_000, "\\" * 1_000_000):
        altered(text, "page")
    altered(many[:28_000], "the quick brown fox " * 35_000)
    assert time.perf_counter() - began < 120


@pytest.mark.slow
def test_after_a_refusal_no_page_is_fetched(site):
    lab = tl.Lab(scripted := model(f"{site.url}/orders"), runs=None, tools=(WEB,))
    run = wait(lab.run(strategy(), tl.open_ended(QUESTION), budget=tl.Budget(calls=1)))
    assert run.stop_reason == "budget:calls"
    assert len(scripted.calls) == 1
    assert site.seen == ["/orders"]


def test_the_page_is_copied_by_the_model_that_gathered(site):
    """As a sub-agent with the same model, whatever the thinker's is."""
    again = tl.GatherThenThink(
        strategy=THINKING, gatherer=tl.ReAct(max_iterations=3, model="reader"), model="sorter"
    )
    scripted = model(f"{site.url}/orders")
    thinking = again.think(tl.open_ended(QUESTION).model_copy(update={"tools": (WEB.spec,)}))
    calls = drive(
        thinking,
        lambda call: Reply("page", tool="web-fetch") if call.purpose == "tool" else scripted.reply(call),
    )
    assert {call.model for call in calls if call.purpose == "act"} == {"reader"}
    assert {call.model for call in calls if call.purpose == "extract"} == {"reader"}
    assert {call.model for call in calls if call.purpose == "develop"} == {None}


def drive(thinking, reply):
    """The calls that a strategy makes, driven by hand."""
    calls = []

    def answer(call):
        calls.append(call)
        got = reply(call)
        return Reply(got) if isinstance(got, str) else got

    carry_out(thinking, answer)
    return calls


@pytest.mark.slow
def test_a_person_may_say_which_pages_are_read_and_what_was_copied(site):
    lab = tl.Lab(model(f"{site.url}/orders"), runs=None, tools=(WEB,))
    run = wait(lab.run(strategy(), tl.open_ended(QUESTION)))
    lab = tl.Lab(scripted := model(), runs=None, tools=(WEB,))
    wait(lab.branch(run, "0.1", content=f"Better: {site.url}/retries."))
    assert all(r"retry\_after\_ms" in prompt and SCHEMA not in prompt for prompt in deep(scripted))
    lab = tl.Lab(scripted := model(), runs=None, tools=(WEB,))
    made_up = wait(lab.branch(run, "0.1.0.0", content="`max_line_items` is `forty`"))
    assert all("`max_line_items` is `forty`" in prompt for prompt in deep(scripted))
    assert notes(made_up, "research.altered")[0]["altered"] == ["forty"]


DOCS = {"u": "A page. The field `legs_of` counts. " * 3}


@tl.tool(effects=("network",), pure=True)
def web_fetch(url: str) -> str:
    """Fetches a page."""
    return f"{url}: {DOCS['u']}"


@pytest.mark.slow
@pytest.mark.parametrize("reply", HOSTILE, ids=repr)
def test_any_extract_is_survived(reply):
    scripted = model("https://docs.example/a", extract=lambda call: reply)
    run = made(scripted, tools=(web_fetch,))
    assert len(asked(scripted, "extract")) == 1
    assert all("<research_context>" in prompt for prompt in deep(scripted))
    assert wait(run.replay()).identical


@pytest.mark.nightly
def test_it_keeps_the_whole_contract_when_pages_are_read():
    """Also changed by a person anywhere, refused anywhere, cancelled, resumed and nested."""

    def reply(call):
        if call.purpose == "act" and len(call.messages) == 1:
            urls = ["https://docs.example/a", "https://docs.example/b"]
            asked = [ToolCall(f"c{k}", "web-fetch", json.dumps({"url": url})) for k, url in enumerate(urls)]
            return Reply("Let me look.", tool_calls=tuple(asked))
        return answer_to(call)

    checked = tl.GatherThenThink(
        strategy=tl.OneAnswer(), gatherer=tl.ReAct(max_iterations=2), research={"max_pages": 2}
    )
    check_strategy(checked, model=reply, tools=(web_fetch,))


# What counts as the web, and which pages were fetched.


def spec(name, *arguments, effects=("network",), required=None):
    properties = {argument: {"type": "string"} for argument in arguments}
    needed = list(arguments) if required is None else required
    schema = {"type": "object", "properties": properties, "required": needed}
    return ToolSpec(name=name, description="", parameters=schema, effects=effects)


FETCH, SEARCH, PLAIN = spec("web-fetch", "url"), spec("web-search", "query"), spec("sum", "url", effects=())
TOOLS = (PLAIN, SEARCH, FETCH)


def use(tool, arguments, text="some text", error=None):
    return ToolUse("0.0.0", tool, arguments, text, error)


FOUND = use("web-search", '{"query": "q"}', "1. A\nhttps://a.example/x.\n(see https://b.example/y?z=1)")


@pytest.mark.parametrize(
    ("uses", "web", "urls"),
    [
        ([], False, []),
        ([use("sum", '{"url": "https://a.example/"}')], False, []),  # it has no effect
        ([use("web-fetch", '{"url": "https://a.example/"}', error="HTTP 500")], False, []),
        ([use("gone", '{"url": "https://a.example/"}')], False, []),
        ([use("web-fetch", '{"url": "https://a.example/"}')], True, ["https://a.example/"]),
        ([use("web-fetch", '{"url": " https://a.example/x#part "}')] * 2, True, ["https://a.example/x"]),
        ([FOUND], True, ["https://a.example/x", "https://b.example/y?z=1"]),
        ([FOUND, use("web-fetch", '{"url": "http://c.example"}')], True, ["http://c.example"]),
        ([use("web-fetch", '{"url": "ftp://c.example"}'), use("web-fetch", '{"url": 7}')], True, []),
        ([use("web-fetch", "no json")], True, []),
        ([use("web-fetch", '["https://a.example"]')], True, []),
    ],
)
def test_d15_which_addresses_were_fetched(uses, web, urls):
    assert agent_used_web_tools(TOOLS, uses) == web
    assert extract_fetched_urls(TOOLS, uses) == urls


def test_pages_are_fetched_by_a_tool_that_does_nothing_else():
    post = spec("post", "url", effects=("network", "write"))
    page = spec("read-page", "url", "depth", required=["url"])
    assert fetcher((post, SEARCH, PLAIN)) is None
    assert fetcher((page, post)) == page
    assert fetcher((spec("picture", "url", "size"), page)) == page
    assert fetcher((page, FETCH)) == FETCH


def test_where_no_tool_can_fetch_a_page_that_is_said():
    @tl.tool(effects=("network",))
    def web_search(query: str) -> str:
        """Searches."""
        return "https://a.example/x"

    run = made(model("orders", tool="web-search", argument="query"), tools=(web_search,))
    assert notes(run, "research.skipped") == [{"why": "no tool can fetch a page by its address"}]
    assert [node.id for node in run.tree if node.parent == "0"] == ["0.0", "0.2"]


# What is quoted.

PAGE = r"""# Limits
The field max\_tokens is at most 4096, and "stop_after" a list; POST /v1/orders takes `dry_run`.
```json
{
    "retry_after":   300,
    "mode": "fast"
}
```"""


@pytest.mark.parametrize(
    ("extract", "wrong"),
    [
        ('`max_tokens` and `dry_run`, "stop_after"', []),
        ("`max_token`", ["max_token"]),  # a part of a word is not the word
        ('```json\n{\n  "retry_after": 300,\n  "mode": "fast"\n}\n```', []),  # white space apart
        ('```\n"retry_after": 30\n```', ['"retry_after": 30']),
        ('```\n"mode": "slow"', ['"mode": "slow"']),  # never closed
        ("the “stop_before” list, and 'dry_runs'", ["stop_before", "dry_runs"]),
        ("`POST /v1/orders`, `GET /v1/orders`", ["GET /v1/orders"]),
        ("``dry_run`` and `Dry_Run`", ["Dry_Run"]),
        ("It isn't quoted, and that's that; \"a whole sentence in quotes\".", []),
        ("```\n...\n}\n```", []),  # nothing in it that could be wrong
        ("`gone` `gone`", ["gone"]),
        ("", []),
    ],
)
def test_d15_a_quotation_is_looked_for_on_its_page(extract, wrong):
    assert altered(extract, PAGE) == wrong


def test_what_counts_as_a_quotation():
    text = "Take `a b`, 'c', \"d\".\n~~~\nx = 'e'  # `f`\n~~~\nThen ``g``."
    assert quotations(text) == ["a b", "c", "d", "x = 'e'  # `f`", "g"]
