"""A real Redis for tests. Without redis-server on the PATH they are skipped by name, on CI they fail."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class RedisServer:
    """A redis-server in `folder`, on a port of its own, with further `options` of its configuration."""

    def __init__(self, folder: Path, **options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            if os.environ.get("CI"):
                pytest.fail("CI has no redis-server: .ci/run installs it")
            pytest.skip("needs redis-server on the PATH")
        self.port = free_port()
        self.password = options.get("requirepass", "")
        settings = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(folder), "appendonly": "yes"}
        settings |= {name.replace("_", "-"): value for name, value in options.items()}
        self._command = [
            program,
            *(word for name, value in settings.items() for word in (f"--{name}", value)),
        ]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError("redis-server did not start")

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
