"""No key of the environment is in anything that a run leaves behind, however the key is written there. Errors
come from real requests to a server on loopback and from functions of a user."""

import base64
import json
import warnings
from contextlib import suppress
from urllib.parse import quote, quote_plus

import httpx
import pytest
from support import wait
from support.endpoint import scripted
from support.providers import Fault, Providers, Said

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.models.openai_compatible import OpenAIServer
from tot_lab.models.stack import Failure
from tot_lab.views.report import report_html

PLAIN = "sk-proj-Ab3_dE5fG7hI9jK1"
AWKWARD = 'p/a+s=s"w\\o rd&é%0123456789'
TASK = tl.general("What is two and two?", answer=4, grade="number")

WRITTEN = {
    "plain": str,
    "url": lambda key: quote(key, safe=""),
    "url, lower case": lambda key: quote(key, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
    "url, as path": quote,
    "form": quote_plus,
    "httpx": lambda key: str(httpx.URL("http://h/", params={"key": key})),
    "httpx, in the text": lambda key: str(httpx.URL(f"http://h/?key={key}")),
    "json": json.dumps,
    "json with letters": lambda key: json.dumps(key, ensure_ascii=False),
    "json in json": lambda key: json.dumps({"body": json.dumps({"key": key})}),
    "json with slashes": lambda key: json.dumps(key).replace("/", r"\/"),
    "hex": lambda key: key.encode().hex(),
    "HEX": lambda key: key.encode().hex().upper(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of user:key": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "base64 of me:key:": lambda key: base64.b64encode(f"me:{key}:x".encode()).decode(),
    "base64 of you:key": lambda key: base64.b64encode(f"you:{key}".encode()).decode(),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(f"??>{key}".encode()).decode(),
}


@pytest.fixture(params=[PLAIN, AWKWARD], ids=["plain", "awkward"], autouse=True)
def key(request, monkeypatch):
    monkeypatch.setenv("SOME_SERVICE_API_KEY", request.param)
    return request.param


def _by_httpx(part):
    return str(httpx.URL(f"http://h/?k={part}")).partition("k=")[2]


def betrays(text, key):
    """Whether `text` holds twelve characters of `key` in a row, in one of the ways of writing them."""
    for write in (str, quote, quote_plus, _by_httpx, lambda part: part.encode().hex(), json.dumps):
        for begin in range(len(key) - 11):
            written = write(key[begin : begin + 12]).strip('"')
            if written in text or written.lower() in text or written.upper() in text:
                return True
    core = key.encode()
    for shift in range(3):  # the base64 of any longer text holds one of these
        whole = base64.b64encode(bytes(shift) + core).decode()[4:-4]
        if whole[:12] in text or whole.translate(str.maketrans("+/", "-_"))[:12] in text:
            return True
    return False


@pytest.mark.parametrize("name", WRITTEN)
def test_the_ways_of_writing_a_key_betray_it(name, key):
    """What the other tests rely on."""
    assert betrays(WRITTEN[name](key), key)


def left_behind(run, tmp_path):
    """Everything that `run` left: its journal, page, report, tables and words."""
    run.save_html(tmp_path / "run.html")
    report_html([run], tmp_path / "report.html")
    files = [*tmp_path.rglob("*.jsonl"), *tmp_path.rglob("*.html")]
    assert len(files) >= 3
    words = [run.failure, str(run), run._repr_html_(), run.nodes_df().to_csv(), str(run.error)]
    return "\n".join([*(file.read_text() for file in files), *map(str, words)])


@pytest.mark.slow
def test_the_url_of_an_httpx_error_is_recorded_without_its_key(key, tmp_path):
    with Providers(lambda asked: Fault(401, "no such key")) as server:

        async def model(call):
            async with httpx.AsyncClient() as client:
                answer = await client.post(f"{server.base('openai')}/x", params={"key": key})
                return answer.raise_for_status().text

        lab = tl.Lab(model, runs=tmp_path)
        run = wait(lab.run(tl.OneAnswer(), TASK))
        sweep = wait(lab.sweep({"one": tl.OneAnswer()}, [TASK], name="keys"))
        sweep.df().to_csv(tmp_path / "sweep.csv")
        assert len(server.asked) == 2
    assert "•••" in run.failure
    assert "HTTPStatusError" in run.failure
    assert not betrays(left_behind(run, tmp_path), key)
    assert "•••" in (tmp_path / "sweep.csv").read_text()
    assert not betrays((tmp_path / "sweep.csv").read_text(), key)


def fails(by, said):
    """A model and a strategy of which one fails with the error `said`."""

    async def raising(call):
        raise RuntimeError(said)

    async def streaming(call):
        yield "Answer"
        raise RuntimeError(said)

    async def replying(call):
        return Reply(error=said)

    async def answering(call):
        return "Answer: 4"

    def evaluate(task, path):
        raise RuntimeError(said)

    def refuse(call):
        raise Failure(said)

    model = {
        "function": raising,
        "stream": streaming,
        "error of a reply": replying,
        "endpoint": scripted(refuse),
        "error of an endpoint": scripted(lambda call: Reply(error=said)),
    }.get(by, answering)
    search = tl.BestOf(strategy=tl.OneAnswer(), attempts=2, evaluate=evaluate)
    return model, search if by == "evaluator" else tl.OneAnswer()


@pytest.mark.slow
@pytest.mark.parametrize(
    "by", ["function", "stream", "error of a reply", "endpoint", "error of an endpoint", "evaluator"]
)
def test_no_error_of_a_users_function_holds_a_key(by, key, tmp_path):
    ways = "\n".join(f"{name}: <{write(key)}>" for name, write in WRITTEN.items())
    model, strategy = fails(by, f"401 for {ways}")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        lab = tl.Lab(model, runs=tmp_path, mode="off")
        with suppress(RuntimeError):  # that of an evaluator ends the run, and is raised
            wait(lab.run(strategy, TASK))
    run = lab.last
    text = left_behind(run, tmp_path) + "\n".join(str(one.message) for one in warned)
    assert "401 for" in text
    assert not betrays(text, key)


@pytest.mark.slow
def test_a_reply_that_repeats_a_key_loses_it_and_nothing_else(key, tmp_path):
    """A proxy repeats the header of a request, and a model function passes it on."""
    ways = "\n".join(f"{name}: <{write(key)}>" for name, write in WRITTEN.items())
    with Providers(lambda asked: Said(f"Answer: 4\n{ways}\nsk-other-0123456789")) as server:
        served = OpenAIServer(model="m", base_url=server.base("openai"), api_key="sk-of-the-server-1")
        run = wait(tl.Lab(served, runs=tmp_path, mode="off").run(tl.OneAnswer(), TASK))
    text = left_behind(run, tmp_path)
    assert run.usage.errors == 0
    assert "Answer: 4" in text
    assert "sk-other-0123456789" in text
    assert not betrays(text, key)


@pytest.mark.parametrize("text", ["100% of 7%2F8 \\o/ a/b+c=d", "dXNlcjpwYXNz 0123456789abcdef", '%%%\\\\""'])
def test_an_error_without_a_key_is_recorded_as_it_is(text, tmp_path):
    async def model(call):
        raise RuntimeError(text)

    run = wait(tl.Lab(model, runs=tmp_path).run(tl.OneAnswer(), TASK))
    assert run.failure == f"RuntimeError: {text}"
