"""A server that answers each request to /v1/chat/completions at once, each with a number of its own.

    python quick_server.py        prints its base URL and serves until its input ends

It is written on `asyncio.Protocol`, so that the client and not the server is what a benchmark measures.
"""

import asyncio
import json
import sys
from itertools import count

BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1760000000,
        "model": "gpt-4.1-mini",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "A next step. " * 20 + "It has the number 00000000. score: 0.5",
                    "refusal": None,
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 221, "completion_tokens": 60, "total_tokens": 281},
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
BEFORE, AFTER = (HEAD % len(BODY) + BODY).split(b"00000000")


NUMBERS = count()


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
            self.data = self.data[end + 4 + length :]
            self.transport.write(b"%b%08d%b" % (BEFORE, next(NUMBERS), AFTER))


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Quick, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
