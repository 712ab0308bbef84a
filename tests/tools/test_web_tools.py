"""The web: pages as text, private addresses refused however they are written, and a search of one's own."""

import asyncio
import gzip
import socket
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pytest
from aiohttp import web
from support import wait
from support.errands import TASK, errand, lab_with, result, results

import tot_lab as tl
from tot_lab.core.parts import part_of
from tot_lab.tools.web import is_public


class Site(NamedTuple):
    url: str
    port: int
    seen: list


@pytest.fixture(scope="module")
def site():
    """A real server on this machine."""
    seen = []
    pages = {
        "/page": (
            "text/html",
            "<title>T</title><script>bad()</script><h1>A page</h1><p>Some <a href='/x'>words</a>.",
        ),
        "/plain": ("text/plain", "grüezi"),
        "/binary": ("image/png", "\x89PNG"),
        "/big": ("text/plain", "x" * 50_000),
        "/deep": ("text/html", "<div>" * 3_000 + "deep"),
    }

    once = gzip.compress(b"x" * 10_000_000)
    odd = {
        "/thrice": ({"content-type": "text/plain", "content-encoding": "gzip, gzip"}, gzip.compress(once)),
        "/once": ({"content-type": "text/plain", "content-encoding": "gzip"}, once),
        "/charset": ({"content-type": "text/plain; charset=punycode"}, b"aa-" + b"b9" * 300_000),
        "/comments": ({"content-type": "text/html"}, b"<!--" * 400_000),
        "/no-charset": ({"content-type": "text/plain; charset=rot13"}, b"abc"),
    }

    async def answer(request):
        seen.append((request.path, dict(request.headers)))
        if request.path in pages:
            kind, text = pages[request.path]
            response = web.Response(text=text, content_type=kind)
            response.enable_compression()
            return response
        if request.path == "/to":
            raise web.HTTPFound(request.query["url"])
        if request.path in odd:
            return web.Response(body=odd[request.path][1], headers=odd[request.path][0])
        if request.path == "/slow":
            await asyncio.sleep(30)
        if request.path == "/endless-redirect":
            stream = web.StreamResponse(status=302, headers={"location": "/plain"})
            await stream.prepare(request)
            with suppress(ConnectionError):
                while True:
                    await stream.write(b"x" * 100_000)
            return stream
        if request.path == "/endless":  # until nobody listens
            stream = web.StreamResponse(headers={"content-type": "text/plain"})
            await stream.prepare(request)
            with suppress(ConnectionError):
                for _ in range(10_000):
                    await stream.write(b"x" * 10_000)
            return stream
        raise web.HTTPNotFound

    loop, ready, found = asyncio.new_event_loop(), threading.Event(), {}

    async def serve():
        runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
        runner.app.router.add_get("/{rest:.*}", answer)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found["runner"], found["port"] = runner, runner.addresses[0][1]
        ready.set()

    def serving():
        loop.run_until_complete(serve())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(found["runner"].cleanup())
        loop.close()

    thread = threading.Thread(target=serving)
    thread.start()
    ready.wait(10)
    yield Site(f"http://127.0.0.1:{found['port']}", found["port"], seen)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def fetched(url, **more):
    return result(tl.tools.WebFetch(**{"retries": 0, "allow_private": True, **more}), {"url": url})


@pytest.mark.slow
def test_a_page_becomes_text(site):
    assert fetched(f"{site.url}/page").endswith("# A page\n\nSome [words](/x).")
    assert "bad()" not in fetched(f"{site.url}/page")
    assert fetched(f"{site.url}/plain") == "grüezi"
    assert fetched(f"{site.url}/to?url=/plain") == f"(from {site.url}/plain)\ngrüezi"
    assert "no text: image/png" in fetched(f"{site.url}/binary")
    assert fetched(f"{site.url}/none") == f"✗ RuntimeError: {site.url}/none answered with HTTP 404"
    assert fetched(f"{site.url}/big", max_bytes=1_000) == "x" * 1_000 + "\n… (cut at 1,000 bytes)"
    assert fetched(f"{site.url}/endless", max_bytes=1_000).endswith("(cut at 1,000 bytes)")
    assert fetched(f"{site.url}/slow", timeout=0.3) == "✗ no result within 0.3 s"
    assert "was redirected more than 1 times" in fetched(
        f"{site.url}/to?url=/to%3Furl=/plain", max_redirects=1
    )
    assert "deep" in fetched(f"{site.url}/deep")


@pytest.mark.nightly
def test_a_page_that_means_harm_is_an_error_and_holds_nobody_up(site):
    """Packed in packed, moved with a body without end, or written to keep a parser or a codec busy."""
    assert fetched(f"{site.url}/once", max_bytes=1_000) == "x" * 1_000 + "\n… (cut at 1,000 bytes)"
    assert fetched(f"{site.url}/thrice").endswith("is packed as gzip, gzip, which was not asked for")
    assert "'rot13' is not a text encoding" in fetched(f"{site.url}/no-charset")
    moved = fetched(f"{site.url}/endless-redirect", timeout=10)
    assert moved == f"(from {site.url}/plain)\ngrüezi"

    async def longest_pause(path):
        fetch, pauses = tl.tools.WebFetch(retries=0, allow_private=True, timeout=1), [0.0]
        run = asyncio.create_task(
            lab_with(fetch).run(errand(("web-fetch", {"url": f"{site.url}{path}"})), TASK)
        )
        while not run.done():
            began = time.monotonic()
            await asyncio.sleep(0.01)
            pauses.append(time.monotonic() - began)
        assert (await run).answer == "no result within 1 s"
        return max(pauses)

    for path in ("/charset", "/comments"):
        assert wait(longest_pause(path)) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_a_private_address_is_refused_however_it_is_written(site, host):
    before = len(site.seen)
    told = fetched(f"http://{host}:{site.port}/plain", allow_private=False)
    assert told.startswith("✗ ")
    assert "is no public address" in told or "gaierror" in told
    assert len(site.seen) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{port}/plain", "http://10.0.0.1/", "http://169.254.169.254/latest"]
)
def test_a_redirect_to_a_private_address_is_refused(site, target):
    where = target.format(port=site.port)
    told = fetched(f"{site.url}/to?url={where}", allow_private=("127.0.0.1/32",))
    assert told.startswith("✗ PermissionError: ")
    assert told.endswith("is no public address")
    assert fetched(f"{site.url}/plain", allow_private=("127.0.0.1/32",)) == "grüezi"


@pytest.mark.slow
def test_a_name_is_looked_up_once_so_it_cannot_change_its_meaning(site, monkeypatch):
    real, looked_up = socket.getaddrinfo, []

    def changing(host, port, *given, **more):
        if host == "changing.example":
            looked_up.append(host)
            host = "203.0.113.1" if len(looked_up) == 1 else "127.0.0.1"
        return real(host, port, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    before = len(site.seen)
    told = fetched(
        f"http://changing.example:{site.port}/plain", allow_private=("203.0.113.0/24",), timeout=0.5
    )
    assert told.startswith("✗ ")
    assert looked_up == ["changing.example"]
    assert len(site.seen) == before


@pytest.mark.slow
def test_only_http_and_no_proxy(site, monkeypatch):
    monkeypatch.setenv("http_proxy", site.url)
    for url in (
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1/",
        "//x",
        "nonsense",
        "http://",
    ):
        assert fetched(url).startswith("✗ "), url
    assert fetched(f"{site.url}/to?url=file:///etc/passwd").startswith("✗ ")
    before = len(site.seen)
    assert "is no public address" in fetched("http://10.1.2.3/", allow_private=False)
    assert len(site.seen) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.1", "127.0.0.1", "169.254.1.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fec0::1"),
        *("fc00::1", "ff02::1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1", "2001:db8::1"),
        "2001:0:7f00:1::",
        # IANA's registries, each block at both ends, and what Python's tables lack
        *("0.255.255.255", "10.255.255.255", "100.127.255.255", "127.255.255.255", "169.254.255.255"),
        *(
            "172.31.255.255",
            "192.0.0.0",
            "192.0.0.8",
            "192.0.0.9",
            "192.0.0.10",
            "192.0.0.170",
            "192.0.0.192",
        ),
        *("192.0.0.255", "192.0.2.255", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.255.255"),
        *("192.175.48.1", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.255", "239.255.255.255"),
        *("168.63.129.16", "169.254.169.254", "100.100.100.200"),  # metadata of Azure, AWS and Alibaba
        *("::7f00:1", "::808:808", "::ffff:192.0.0.192", "::ffff:168.63.129.16", "::ffff:169.254.169.254"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b::a83f:8110", "64:ff9b::c000:c0", "64:ff9b:1::808:808"),
        *("100::1", "100:0:0:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:1::1", "2001:2::1"),
        *("2001:3::1", "2001:4:112::1", "2001:10::1", "2001:20::1", "2001:30::1", "2001:1ff:ffff::1"),
        *(
            "2001:db8:ffff::1",
            "2002:808:808::1",
            "2002:a83f:8110::1",
            "2620:4f:8000::1",
            "3fff::1",
            "5f00::1",
        ),
        *("fdff::1", "fd00:ec2::254", "febf::1", "feff::1", "ff0e::1"),
    ],
)
def test_addresses_that_are_not_the_internets(address, monkeypatch):
    """Neither as they are nor where a name leads to them: no connection is even tried."""
    from ipaddress import ip_address

    import httpcore

    assert not is_public(ip_address(address))
    tried = []
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def leads_there(host, port, *given, **more):
        assert host == "pages.example"  # nothing else is looked up
        return [(family, socket.SOCK_STREAM, 6, "", (address, port, 0, 0)[: 4 if ":" in address else 2])]

    async def connect(self, host, *given, **more):
        tried.append(host)
        raise httpcore.ConnectError("no connections in this test")

    monkeypatch.setattr(socket, "getaddrinfo", leads_there)
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    told = fetched("http://pages.example/x", allow_private=False)
    assert told == f"✗ PermissionError: pages.example ({address}) is no public address"
    assert not tried


def test_addresses_that_are():
    from ipaddress import ip_address

    public = ("8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")
    public += (
        "192.0.1.1",
        "168.63.129.15",
        "168.63.129.17",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2003::1",
    )
    assert all(is_public(ip_address(address)) for address in public)


@pytest.mark.slow
def test_a_page_is_fetched_once_and_then_from_the_cache(site, tmp_path):
    lab = lab_with(tl.tools.WebFetch(allow_private=True), cache=tmp_path)
    call = ("web-fetch", {"url": f"{site.url}/plain"})
    first, before = results(lab, call), len(site.seen)
    assert results(lab.replaying(), call) == first == ["grüezi"]
    assert len(site.seen) == before


async def search(query: str, count: int):
    return [
        ("One", "https://a.example", query),
        {"title": "Two", "url": "https://b.example", "text": "2"},
    ] * count


async def broken_search(query: str, count: int):
    return [("only a title",)]


def test_a_search_is_the_users_own():
    told = result(tl.tools.WebSearch(provider=search, count=2), {"query": "tea"})
    assert told == "1. One\nhttps://a.example\ntea\n\n2. Two\nhttps://b.example\n2"
    assert "✗ " in result(tl.tools.WebSearch(provider=broken_search, backoff=0), {"query": "tea"})
    with pytest.raises(ValueError, match="provider"):
        tl.tools.WebSearch()


def test_what_is_built_in_declares_what_it_does(tmp_path):
    built_in = {
        "calculator": ((), True, tl.tools.Calculator()),
        "python": (("process",), False, tl.tools.Python()),
        "read-file": (("files",), False, tl.tools.ReadFile(root=tmp_path)),
        "list-files": (("files",), False, tl.tools.ListFiles(root=tmp_path)),
        "web-fetch": (("network",), True, tl.tools.WebFetch()),
        "web-search": (("network",), True, tl.tools.WebSearch(provider=search)),
    }
    for name, (effects, pure, tool) in built_in.items():
        assert (tool.name, tool.effects, tool.pure) == (name, effects, pure)
        assert part_of(tool.settings()).settings() == tool.settings()
        assert tool.description
        msgspec.json.encode(tool.settings())
