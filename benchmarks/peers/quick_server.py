"""A server that answers each request to /v1/chat/completions at once, each with a number of its own.

    python quick_server.py [groups]        prints its base URL and serves until its input ends

It gives one choice whatever the request says, or with `groups` as many as the field `n` says.

It is written on `asyncio.Protocol`, so that the client and not the server is what a benchmark measures.
"""

import asyncio
import json
import re
import sys
from functools import cache
from itertools import count

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
GROUPS = "groups" in sys.argv
NUMBERS = count()
N = re.compile(rb'"n": ?(\d+)')


@cache
def response(n: int) -> bytes:
    """A response with `n` choices, in which the number of each is still to be filled in."""
    text = "A next step. " * 20 + "It has the number 00000000. score: 0.5"
    choices = [
        {
            "index": k,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
        for k in range(n)
    ]
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1760000000,
            "model": "gpt-4.1-mini",
            "choices": choices,
            "usage": {"prompt_tokens": 221, "completion_tokens": 60 * n, "total_tokens": 221 + 60 * n},
        }
    ).encode()
    return (HEAD % len(body) + body).replace(b"00000000", b"%08d")


class Quick(asyncio.Protocol):
    """Answers once the announced length of a request has arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            length = 0
            for line in self.data[:end].split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if len(self.data) < end + 4 + length:
                return
            asked = GROUPS and N.search(self.data, end, end + 4 + length)
            n = int(asked[1]) if asked else 1
            self.data = self.data[end + 4 + length :]
            self.transport.write(response(n) % tuple(next(NUMBERS) for _ in range(n)))


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Quick, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
