"""A server that fails every 20th request, in one of five ways, and counts what it was asked.

    python failing_server.py      prints its base URL and serves until its input ends,
                                  then prints a line of JSON with its counts

A request is recognised by the number after `#` in its text, and its reply repeats it. The failures
are 429 with Retry-After, 500, a connection that is reset, a reply after 2 s, and a reply that is cut in the
middle.
"""

import asyncio
import json
import re
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count, cycle

PLAIN = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SLOW = 2.0
ASKED: Counter[str] = Counter()
ANSWERED: Counter[str] = Counter()
FAILED: Counter[str] = Counter()
NUMBERS = count(1)
WAYS: Iterator[str] = cycle(("429", "500", "reset", "slow", "cut"))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(content: str | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {} if content is None else {"content": content}, "finish_reason": finish}
    return chunk(b"data: " + json.dumps({"model": "m", "choices": [choice]}).encode() + b"\n\n")


def response(text: str, stream: bool) -> bytes:
    if stream:
        words = [event(f"{word} ") for word in text.split()]
        return STREAM + b"".join([*words, event(None, "stop"), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"])
    message = {"role": "assistant", "content": text}
    page = {
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 221, "completion_tokens": 60},
    }
    body = json.dumps(page).encode()
    return PLAIN % (b"200 OK", len(body), b"", body)


class Failing(asyncio.Protocol):
    """Answers once the announced length of a request has arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            length = re.search(rb"content-length: *(\d+)", self.data[:end], re.IGNORECASE)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self.data) < size:
                return
            body, self.data = self.data[end + 4 : size], self.data[size:]
            if body:
                self.answer(json.loads(body))
            else:  # the list of its models
                self.transport.write(PLAIN % (b"404 Not Found", 2, b"", b"{}"))

    def answer(self, asked: dict[str, object]) -> None:
        found = re.search(r"#(\d+)", json.dumps(asked["messages"]))
        name = found[1] if found else "?"
        ASKED[name] += 1
        good = response(
            f"A next step. It answers #{name} and no other. " + "It is long. " * 20, "stream" in asked
        )
        if next(NUMBERS) % 20:
            ANSWERED[name] += 1
            self.transport.write(good)
            return
        way = next(WAYS)
        FAILED[way] += 1
        if way == "429":
            self.transport.write(PLAIN % (b"429 Too Many Requests", 2, b"Retry-After: 1\r\n", b"{}"))
        elif way == "500":
            self.transport.write(PLAIN % (b"500 Internal Server Error", 2, b"", b"{}"))
        elif way == "reset":
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        elif way == "slow":
            ANSWERED[name] += 1
            asyncio.get_running_loop().call_later(SLOW, self.transport.write, good)
        else:
            self.transport.write(good[: len(good) // 2])
            self.transport.close()


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Failing, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    more = sum(number > 1 for number in ANSWERED.values())
    counts = {"asked": sum(ASKED.values()), "texts": len(ASKED), "answered_twice": more, "failed": FAILED}
    print(json.dumps(counts), flush=True)


asyncio.run(main())
