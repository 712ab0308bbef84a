"""Two servers with one served name: the cache never answers for other weights in silence."""

import asyncio
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import wait
from support.providers import Providers, Said

import tot_lab as tl
from tot_lab.lab.sharing import export_calls
from tot_lab.models import served_weights
from tot_lab.models.chat.about import listed_weights_in, weights_in
from tot_lab.models.openai_compatible import VLLM, OpenAICompatible

TASK = tl.open_ended("2 + 2?")
OTHER = "replies of other weights"
A, B = "/home/ann/one/checkpoint-500", "/home/ann/two/checkpoint-500"
LLAMA = {"model_path": A, "build_info": "b1", "model_ftype": "Q4_K", "chat_template": "{{ m }}"}


def listed(root, **more):
    return {"object": "list", "data": [{"id": "m", "root": root, **more}]}


@pytest.fixture
def two():
    with ExitStack() as held:
        servers = [held.enter_context(Providers(Said(text))) for text in "AB"]
        for server, root in zip(servers, (A, B), strict=True):
            server.pages["/v1/models"] = listed(root)
        yield servers


def ask(server, folder, *, warns=False, kind=VLLM, task=TASK, mode="auto", **more):
    """The run and how many replies the server gave, with a lab of its own."""
    before = len(server.calls)
    model = kind(model="m", base_url=server.base("openai"), api_key="", **more)
    lab = tl.Lab(model, cache=folder / "calls", runs=folder / "runs", mode=mode)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run = wait(lab.run(tl.OneAnswer(), task))
    texts = [str(one.message) for one in shown if OTHER in str(one.message)]
    assert len(texts) == warns, texts
    return run, len(server.calls) - before


def test_another_server_of_the_name_is_asked_and_both_keep_their_replies(two, tmp_path):
    one, other = two
    assert ask(one, tmp_path)[0].answer == "A"
    run, calls = ask(other, tmp_path, warns=True)
    assert (run.answer, calls) == ("B", 1)
    for server, text in ((one, "A"), (other, "B")):
        run, calls = ask(server, tmp_path, warns=True)
        assert (run.answer, calls) == (text, 0)


@pytest.mark.nightly
def test_new_prompts_by_turns_need_a_store_for_each_weights(two, tmp_path):
    for text in "34":
        for server, answer in zip(two, "AB", strict=True):
            run, calls = ask(server, tmp_path, task=tl.open_ended(text), warns=answer == "B")
            assert (run.answer, calls) == (answer, 1)
    assert len(list((tmp_path / "calls").glob("[0-9]*"))) == 2


def test_a_restart_with_other_weights_on_the_same_port_is_seen(tmp_path):
    with Providers(Said("A")) as server:
        server.pages["/v1/models"] = listed(A)
        assert ask(server, tmp_path)[0].answer == "A"
        port = int(server.url.rpartition(":")[2])
    with Providers(Said("B"), port=port) as server:
        server.pages["/v1/models"] = listed(B)
        run, calls = ask(server, tmp_path, warns=True)
        assert (run.answer, calls) == ("B", 1)


def test_one_lab_sees_a_restart_after_a_while(two, tmp_path, monkeypatch):
    server, _ = two
    lab = tl.Lab(VLLM(model="m", base_url=server.base("openai"), api_key=""), cache=tmp_path, runs=None)
    assert wait(lab.run(tl.OneAnswer(), TASK)).answer == "A"
    server.pages["/v1/models"], server.otherwise = listed(B), Said("B")
    monkeypatch.setattr(served_weights, "INTERVAL", 0.0)
    assert wait(lab.run(tl.OneAnswer(), TASK)).answer == "A"  # it was asked a moment ago
    lab = tl.Lab(lab.model, cache=tmp_path, runs=None)
    with pytest.warns(RuntimeWarning, match=OTHER):
        assert wait(lab.run(tl.OneAnswer(), TASK)).answer == "B"
    server.pages["/v1/models"], server.otherwise = listed("/c"), Said("C")
    assert wait(lab.run(tl.OneAnswer(), TASK)).answer == "C"


def test_without_a_server_the_replies_are_found_under_the_same_key(two, tmp_path):
    for mode in ("auto", "replay"):
        with Providers(Said("A")) as server:
            server.pages["/v1/models"] = listed(A)
            ask(server, tmp_path)
        assert ask(server, tmp_path, mode=mode)[0].answer == "A"
    one, other = two
    ask(other, tmp_path, warns=True)
    run, calls = ask(one, tmp_path, mode="replay", warns=True)  # no server tells which ones are meant
    assert (run.answer, calls, len(one.asked)) == ("B", 0, 0)


def test_each_run_is_exported_and_replayed_with_its_own_replies(two, tmp_path):
    runs = [ask(server, tmp_path, warns=server is two[1])[0] for server in two]
    cache = tl.Cache(tmp_path / "calls")
    for run in runs:
        assert wait(tl.load(run.path).replay(cache=cache)).identical
        export_calls(tmp_path / f"{run.answer}.jsonl.gz", [run], cache)
        exported = tmp_path / f"{run.answer}.jsonl.gz"
        lab = tl.Lab(VLLM(model="m"), runs=None, mode="replay", cache=exported)
        assert wait(lab.run(tl.OneAnswer(), TASK)).answer == run.answer


def test_entries_that_know_no_weights_are_found_with_any(two, tmp_path):
    with Providers(Said("old")) as server:  # it has no list of models
        assert ask(server, tmp_path)[1] == 1
        assert ask(server, tmp_path)[1] == 0
    for server in two:
        run, calls = ask(server, tmp_path)
        assert (run.answer, calls) == ("old", 0)


def test_a_server_that_cannot_say_is_no_other_one(two, tmp_path):
    one, other = two
    ask(one, tmp_path)
    for page in (None, {"data": [{"id": "m", "root": 5, "meta": 7}]}):
        other.pages["/v1/models"] = page
        assert ask(other, tmp_path)[1] == 0


def test_the_time_in_a_list_of_models_is_no_difference(two, tmp_path):
    one, _ = two
    times = iter(range(100))
    one.pages["/v1/models"] = lambda asked: listed(A, created=next(times))
    ask(one, tmp_path)
    assert ask(one, tmp_path)[1] == 0


def test_a_revision_says_which_weights_they_are(two, tmp_path):
    one, other = two
    ask(one, tmp_path, revision="r")
    assert ask(other, tmp_path, revision="r")[1] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"model_path": B},
        pytest.param({"build_info": "b2"}, marks=pytest.mark.nightly),
        pytest.param({"model_ftype": "Q8_0"}, marks=pytest.mark.nightly),
    ],
)
def test_llama_cpp_tells_its_file_and_build(two, tmp_path, change):
    for server, page in zip(two, (LLAMA, LLAMA | change), strict=True):
        server.pages.update({"/props": page, "/v1/models": {"data": []}})
    ask(two[0], tmp_path, kind=OpenAICompatible)
    assert ask(two[1], tmp_path, kind=OpenAICompatible, warns=True)[0].answer == "B"


def test_the_list_of_llama_cpp_tells_the_size_of_its_file():
    def page(size):
        return {"data": [{"id": "/x/a.gguf", "created": 1, "meta": {"n_params": 5, "size": size}}]}

    assert listed_weights_in(page(7), "m") == {"n_params": "5", "size": "7"}
    assert listed_weights_in(page(7), "m") != listed_weights_in(page(8), "m")
    assert listed_weights_in({"data": [*page(7)["data"], {"id": "n"}]}, "m") == {}


def test_another_version_of_vllm_is_no_difference():
    assert weights_in("/version", {"version": "0.11"}) == {}


def test_no_folder_of_a_server_is_stored(two, tmp_path):
    run, _ = ask(two[0], tmp_path)
    export_calls(tmp_path / "calls.jsonl.gz", [run], tl.Cache(tmp_path / "calls"))
    entry = next(tl.Cache(tmp_path / "calls.jsonl.gz").entries())[1]
    assert entry.weights["root"] == "checkpoint-500"
    assert "ann" not in str(entry.weights)
    for file in Path(tmp_path).rglob("*.db*"):
        assert b"/home/ann" not in file.read_bytes()


@pytest.mark.nightly
def test_a_server_that_hangs_is_one_that_cannot_say(two, tmp_path, monkeypatch):
    monkeypatch.setattr(served_weights, "PATIENCE", 0.05)
    one, other = two
    ask(one, tmp_path)
    other.pages["/v1/models"] = lambda asked: asyncio.sleep(5)
    assert ask(other, tmp_path)[1] == 0
