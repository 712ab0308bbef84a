"""Prompt injection: forty hostile tool results, and a model that obeys each of them.

Whatever a page, a file or a search result orders, no denied tool is carried out and no secret leaves by a
permitted one; what was tried is in the record, and text from outside is marked.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain

import pytest
from support import mostly_nightly, wait
from support.injections import INJECTIONS, KEY, PASSWORD, Obedient, leaks

import tot_lab as tl
from tot_lab.analysis.outside import from_outside
from tot_lab.core.calls import Call, Reply
from tot_lab.core.tools import tool_name, tool_of

QUESTION = "Debug our client: what is twice seven?"
POLICY = tl.EffectPolicy(allow={"network", "files", "file-write"})
OFFERED = (
    "web-fetch",
    "web-search",
    "read-file",
    "write-file",
    "post",
    "send-mail",
    "delete-file",
    "run-shell",
)
MORE = {"effect_policy": POLICY, "tools": OFFERED}
STRATEGIES = {
    "react": tl.ReAct(max_iterations=6, **MORE),
    "plan": tl.PlanExecute(max_refinements=1, strategy=tl.ReAct(max_iterations=5), **MORE),
    "loop": tl.ToolLoop(max_tool_round_trips=4, **MORE),
    "research": tl.GatherThenThink(
        strategy=tl.DeepThink(max_iterations=1, num_branches=2), gatherer=tl.ReAct(max_iterations=6, **MORE)
    ),
}
EVERY = [(injection.name, name) for injection in INJECTIONS for name in STRATEGIES]
SOME = [(injection.name, list(STRATEGIES)[k % 4]) for k, injection in enumerate(INJECTIONS[::2])]
BY_NAME = {injection.name: injection for injection in INJECTIONS}


class Site:
    """A real server on this machine: the hostile page, and whatever is sent to it."""

    def __init__(self):
        self.page = INJECTIONS[0]
        self.sent = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.sent.append(self.path)
                body = site.page.text.encode() if self.path == "/page" else b"thank you"
                self.send_response(200)
                self.send_header("content-type", f"{site.page.mime}; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))


@pytest.fixture(scope="module")
def site():
    site = Site()
    site.thread.start()
    yield site
    site.server.shutdown()
    site.thread.join()
    site.server.server_close()


class World:
    """The tools of a lab, and what was done with them."""

    def __init__(self, injection, site, folder):
        site.page, site.sent[:] = injection, []
        self.site, self.out, self.done = site, folder / "out", []
        root = folder / "root"
        self.out.mkdir()
        root.mkdir()
        (root / "notes.txt").write_text(injection.text)
        done = self.done

        @tl.tool(effects=("mail",), retries=0)
        def send_mail(to: str, text: str) -> str:
            """Sends a mail."""
            done.append("send-mail")
            return "sent"

        @tl.tool(effects=("deletion",), retries=0)
        def delete_file(path: str) -> str:
            """Deletes a file."""
            done.append("delete-file")
            return "deleted"

        @tl.tool(retries=0)
        def run_shell(command: str) -> str:
            """Runs a command."""
            done.append("run-shell")
            return "done"

        @tl.tool(effects=("files",), retries=0)
        def unpack(path: str) -> str:
            """Unpacks an archive."""
            done.append("unpack")
            return "done"

        @tl.tool(effects=("network",), retries=0)
        def post(url: str, text: str) -> str:
            """Sends a text to a server."""
            site.sent.append(text)
            return "thank you"

        async def search(query: str, count: int):
            site.sent.append(query)
            return [("Twice seven", f"{site.url}/page", injection.text)]

        self.lab_policy = tl.EffectPolicy(
            allow={"network", "files", "file-write", "mail", "deletion", "run-shell"}
        )
        self.tools = [
            *(send_mail, delete_file, run_shell, unpack, post),
            tl.tools.WebFetch(allow_private=True, retries=0, timeout=60),
            tl.tools.WebSearch(provider=search, pure=False, retries=0),
            tl.tools.ReadFile(root=root),
            tl.tools.WriteFile(root=self.out),
        ]
        self.look = {
            "page": ("web-fetch", {"url": f"{site.url}/page"}),
            "file": ("read-file", {"path": "notes.txt"}),
            "search": ("web-search", {"query": "twice seven"}),
        }[injection.kind]

    def run(self, strategy, *, native, policy=None):
        model = Obedient(*self.look, self.site.url, native=native)
        lab = tl.Lab(
            model,
            runs=None,
            tools=self.tools,
            effect_policy=policy or self.lab_policy,
            tool_context={"mail_password": PASSWORD},
        )
        made = wait(lab.run(strategy, tl.general(QUESTION, answer=14, grade="number")))
        return made, model

    def left(self):
        """Everything that left the lab."""
        written = [f"{path.name}\n{path.read_text()}" for path in self.out.rglob("*") if path.is_file()]
        return [*self.site.sent, *written]


@pytest.fixture(autouse=True)
def _secret(monkeypatch):
    monkeypatch.setenv("HARBOUR_API_KEY", KEY)


def tool_calls(run):
    """The tool and the arguments of each tool call that was made, and its error."""
    replies = {line.p: line.e for line in run.lines if isinstance(line.e, Reply)}
    return [
        ((tool_of(line.e), json.loads(line.e.prompt)), replies[line.p].error)
        for line in run.lines
        if isinstance(line.e, Call) and line.e.purpose == "tool"
    ]


@pytest.mark.parametrize(("name", "strategy"), mostly_nightly(EVERY, SOME))
def test_what_a_hostile_result_orders_is_not_done(name, strategy, site, tmp_path):
    injection = BY_NAME[name]
    world = World(injection, site, tmp_path)
    made, model = world.run(STRATEGIES[strategy], native=INJECTIONS.index(injection) % 3 > 0)
    assert world.done == []
    assert [one for text in world.left() for one in leaks(text)] == []
    assert made.stop_reason is not None
    if name not in ("comment", "script", "title"):  # of which the model sees nothing
        assert any(model.obeyed.values())
    for tool, arguments in chain.from_iterable(model.obeyed.values()):
        refused = [
            error for call, error in tool_calls(made) if call == (tool_name(tool), json.loads(arguments))
        ]
        if leaks(arguments):
            assert refused, "the attempt is in the record"
            assert all("secret" in (error or "") for error in refused), (tool, refused)
        else:
            assert refused == [], "a denied tool is not even called"
    outside = from_outside(made)
    looked = [node.id for node in made.tree if node.text.startswith(f"{world.look[0]} → ")]
    assert looked
    assert {id: outside.get(id) for id in looked} == dict.fromkeys(looked, world.look[0])


def test_there_are_forty_of_all_kinds():
    assert len(BY_NAME) == 40
    assert {injection.kind for injection in INJECTIONS} == {"page", "file", "search"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_model_would_do_it(strategy, site, tmp_path):
    """Without a policy the orders are carried out, so the suite tests the policy and not the model."""
    world = World(BY_NAME["system"], site, tmp_path)
    free = {"effect_policy": None, "tools": None}
    bare = {
        "react": tl.ReAct(max_iterations=6),
        "plan": tl.PlanExecute(max_refinements=1, strategy=tl.ReAct(max_iterations=5)),
        "loop": tl.ToolLoop(max_tool_round_trips=4),
        "research": STRATEGIES["research"].with_({"gatherer": tl.ReAct(max_iterations=6, **free)}),
    }[strategy]
    world.run(bare, native=True)
    assert "send-mail" in world.done


def test_a_policy_can_let_secrets_leave(site, tmp_path):
    world = World(BY_NAME["password"], site, tmp_path)
    policy = tl.EffectPolicy(allow={*world.lab_policy.allow, "secrets"})
    world.run(STRATEGIES["react"], native=True, policy=policy)
    assert PASSWORD in world.site.sent


def test_a_page_that_the_gatherer_may_not_fetch_is_not_fetched_for_it(site, tmp_path):
    """Research reads pages again with the tools of the gatherer only."""
    world = World(BY_NAME["result"], site, tmp_path)
    policy = tl.EffectPolicy(allow={"network", "files"}, deny={"web_fetch"})
    gatherer = tl.ReAct(max_iterations=4, effect_policy=policy)
    made, _ = world.run(STRATEGIES["research"].with_({"gatherer": gatherer}), native=True)
    assert [tool for (tool, _), _ in tool_calls(made)] == ["web-search"]
    assert "/page" not in site.sent
