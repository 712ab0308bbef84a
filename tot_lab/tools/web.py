"""Tools for the web: fetching pages, and searching with the user's own provider.

The IP address of each connection is checked, also after redirects. A host name is resolved once, and the
connection uses the address that was checked, so that the name cannot resolve to a public address for the
check and to a private one for the connection. Proxies in environment variables are not used.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeAlias

from pydantic import Field, TypeAdapter, field_validator

from tot_lab.core.extras import requires
from tot_lab.core.parts import UserFunction
from tot_lab.core.processes import end_async, kept
from tot_lab.core.tool import Arguments, Effects, Name, Tool, fitting, schema_of
from tot_lab.tools import pages

if TYPE_CHECKING:
    import httpcore
    import httpx

_NAT64 = ip_network("64:ff9b::/96")
_SPECIAL = tuple(
    ip_network(block)
    for block in (
        # IANA IPv4 Special-Purpose Address Registry, and multicast
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
        *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
        # IANA IPv6 Special-Purpose Address Registry, the retired site-local and compatible addresses, and
        # multicast; Teredo is in 2001::/23, 6to4 is 2002::/16
        *("::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2002::/16"),
        *("2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
        # Metadata services of cloud providers: Azure (whose address looks public), AWS and others
        *("168.63.129.16/32", "169.254.169.254/32"),
    )
)
"""Address blocks without public web pages.

They are listed because Python's `is_global` does not know some of them: 192.0.0.0/24 before 3.11.9 and
3.12.4, and Azure's address in all versions.
"""
_TEXT = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript")
# Only one encoding: nested encodings can expand a few bytes to gigabytes.
_PACKED = ("identity", "gzip", "deflate")


class _Page(Arguments):
    url: Annotated[str, Field(description="begins with http:// or https://")]


class _Query(Arguments):
    query: Annotated[str, Field(min_length=1, description="what to search for")]


class WebFetch(Tool):
    """Fetches a web page and returns its text. HTML is converted to Markdown, which keeps the links. Requires
    `pip install 'tot-lab[web]'`.
    """

    kind: ClassVar[str] = "web_fetch"
    name: Name = "web-fetch"
    description: str = "Fetches a web page and returns its text."
    parameters: dict[str, Any] = schema_of(_Page)
    pure: bool = True
    """The first result is cached like a model's reply, so that a rerun works offline and sees the same
    page.
    """

    effects: Effects = ("network",)
    allow_private: bool | Annotated[tuple[str, ...], Field(strict=False)] = False
    """Whether addresses that are not public may be reached, such as this machine and its network: `True`, or
    a tuple of networks (`10.1.0.0/16`).
    """

    max_bytes: Annotated[int, Field(ge=1)] = 2_000_000
    """Maximum bytes of a page. A larger page is truncated, and its text ends with a note."""

    max_redirects: Annotated[int, Field(ge=0)] = 5
    """Maximum number of redirects."""

    @field_validator("allow_private")
    @classmethod
    def _are_networks(cls, allowed: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
        for network in () if isinstance(allowed, bool) else allowed:
            ip_network(network)
        return allowed

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Awaitable[str]:
        return self._fetch(fitting(arguments, _Page).url)

    async def _fetch(self, url: str) -> str:
        async with _client(self.may_reach, self.timeout) as client:
            request = client.build_request("GET", url)
            for _ in range(self.max_redirects + 1):
                async with aclosing(await client.send(request, stream=True)) as response:
                    if response.next_request is None:
                        return await self._text_of(url, response)
                    # The body of a redirect is not read, since it may be endless.
                    request = response.next_request
        raise RuntimeError(f"{url} was redirected more than {self.max_redirects} times")

    async def _text_of(self, url: str, response: httpx.Response) -> str:
        if response.status_code >= 400:
            raise RuntimeError(f"{response.url} answered with HTTP {response.status_code}")
        kind = response.headers.get("content-type", "text/plain").lower()
        if not kind.startswith(_TEXT):
            raise RuntimeError(f"{response.url} is no text: {kind[:60]}")
        packed = response.headers.get("content-encoding", "identity").lower()
        if packed not in _PACKED:
            raise RuntimeError(f"{response.url} is packed as {packed[:60]}, which was not asked for")
        data = bytearray()
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > self.max_bytes:
                break
        page = bytes(data[: self.max_bytes])
        text = await readable(
            page, response.encoding or "utf-8", html="html" in kind, seconds=self.timeout + 5
        )
        moved = "" if str(response.url) == url else f"(from {response.url})\n"
        cut = f"\n… (cut at {self.max_bytes:,} bytes)" if len(data) > self.max_bytes else ""
        return f"{moved}{text}{cut}"

    def may_reach(self, address: str) -> bool:
        """Whether a connection to the IP address `address` is allowed."""
        if self.allow_private is True:
            return True
        ip = ip_address(address.partition("%")[0])
        networks = map(ip_network, self.allow_private or ())
        return is_public(ip) or any(ip in network for network in networks)


def is_public(ip: IPv4Address | IPv6Address) -> bool:
    """Whether `ip` is an address of the public internet.

    An address that Python's `ipaddress` or `_SPECIAL` lists as special is not public. For an IPv6 address
    that represents an IPv4 address (mapped, NAT64), the IPv4 address is checked instead.
    """
    if isinstance(ip, IPv6Address):
        translated = IPv4Address(int(ip) & 0xFFFF_FFFF) if ip in _NAT64 else ip.ipv4_mapped
        if translated is not None:
            return is_public(translated)
    special = any(ip in block for block in _SPECIAL)
    return not special and ip.is_global and not ip.is_multicast and not ip.is_reserved


async def readable(page: bytes, charset: str, *, html: bool, seconds: float) -> str:
    """Return the text of a page, with HTML converted to Markdown. A separate process converts it, and ends
    after `seconds` or if the call is cancelled.
    """
    if html and not (find_spec("bs4") and find_spec("markdownify")):
        raise _needs_extra()
    process = await asyncio.create_subprocess_exec(
        *kept([sys.executable, "-P", pages.__file__, charset, "html" if html else ""], wall=seconds),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        text, error = await process.communicate(page)
    finally:
        await end_async(process)
    if process.returncode != 0:
        raise RuntimeError(f"the page cannot be read: {error.decode(errors='replace')[-200:].strip()}")
    return text.decode()


def _needs_extra() -> ImportError:
    return ImportError(requires("WebFetch", "httpx, beautifulsoup4 and markdownify", "web"))


def _client(may_reach: Callable[[str], bool], timeout: float) -> httpx.AsyncClient:
    """Return a client that checks every connection."""
    try:
        import httpx  # noqa: PLC0415

        transport = _transport(_checked(may_reach))
    except ImportError:
        raise _needs_extra() from None
    return httpx.AsyncClient(
        transport=transport,
        timeout=timeout,
        trust_env=False,
        headers={
            "user-agent": "tot_lab",
            "accept": "text/html, text/*;q=0.9, application/json;q=0.9",
            "accept-encoding": "gzip",
        },
    )


def _checked(may_reach: Callable[[str], bool]) -> httpcore.AsyncNetworkBackend:
    """Return a network backend that only connects to allowed addresses."""
    import httpcore  # noqa: PLC0415

    class Checked(httpcore.AsyncNetworkBackend):
        def __init__(self) -> None:
            self.inner = httpcore.AnyIOBackend()

        async def connect_tcp(
            self, host: str, port: int, *given: Any, **more: Any
        ) -> httpcore.AsyncNetworkStream:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
            allowed = [address for address in addresses if may_reach(address)]
            if not allowed:
                raise PermissionError(f"{host} ({', '.join(addresses)}) is no public address")
            for address in allowed[:-1]:
                try:
                    return await self.inner.connect_tcp(address, port, *given, **more)
                except httpcore.ConnectError:
                    continue
            return await self.inner.connect_tcp(allowed[-1], port, *given, **more)

        async def connect_unix_socket(self, *given: Any, **more: Any) -> httpcore.AsyncNetworkStream:
            raise PermissionError("no sockets of this machine")

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    return Checked()


def _transport(backend: httpcore.AsyncNetworkBackend) -> httpx.AsyncBaseTransport:
    """Return a transport that sends httpx's requests through `backend`."""
    import httpcore  # noqa: PLC0415
    import httpx  # noqa: PLC0415

    class Body(httpx.AsyncByteStream):
        def __init__(self, response: httpcore.Response) -> None:
            self.response = response

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in self.response.aiter_stream():
                yield part

        async def aclose(self) -> None:
            await self.response.aclose()

    class Transport(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self.pool = httpcore.AsyncConnectionPool(network_backend=backend)

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            url = request.url
            if url.scheme not in ("http", "https"):
                raise ValueError(f"only http and https are fetched, not {str(url)[:80]}")
            response = await self.pool.handle_async_request(
                httpcore.Request(
                    request.method,
                    httpcore.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
                    headers=request.headers.raw,
                    extensions=request.extensions,
                )
            )
            return httpx.Response(response.status, headers=response.headers, stream=Body(response))

        async def aclose(self) -> None:
            await self.pool.aclose()

    return Transport()


class Found(NamedTuple):
    """A search result: its title, its URL and its text."""

    title: str
    url: str
    text: str


SearchProvider: TypeAlias = Callable[[str, int], Awaitable[Iterable[Found | tuple[str, str, str]]]]
"""A coroutine function that takes a query and the number of results, and returns the results."""

_FOUND = TypeAdapter(list[Found])


class WebSearch(Tool):
    """Searches the web with a search provider that you supply. tot_lab contains none."""

    kind: ClassVar[str] = "web_search"
    name: Name = "web-search"
    description: str = "Searches the web and returns titles, addresses and excerpts."
    parameters: dict[str, Any] = schema_of(_Query)
    pure: bool = True
    """The first result is cached like a model's reply, so that a rerun works offline."""

    effects: Effects = ("network",)
    provider: UserFunction
    """`async def search(query: str, count: int)`. It returns a list of results, each as a tuple
    `(title, url, text)` or as a dict with these keys.
    """

    count: Annotated[int, Field(ge=1)] = 5
    """Maximum number of results."""

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Awaitable[str]:
        return self._search(fitting(arguments, _Query).query)

    async def _search(self, query: str) -> str:
        found = _FOUND.validate_python(list(await self.provider(query, self.count)))[: self.count]
        lines = [f"{n}. {one.title}\n{one.url}\n{one.text}" for n, one in enumerate(found, 1)]
        return "\n\n".join(lines) or "nothing was found"
