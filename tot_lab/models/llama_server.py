"""llama.cpp's HTTP server in a process of its own, on the loopback address; `local.py` starts it.

Rule: it lives as long as its standard input is open, so it never outlives the one who started it.
In a process of its own, since as a part of ours it would hold Python's lock while it loads, never
come back from being stopped while a request is open, and take all down with a failed assertion.
"""

from __future__ import annotations

import json
import os
import signal
import sys


def serve() -> None:
    """Read the settings, one line of JSON, from standard input; answer there with one line, the
    server's `address` or an `error`; stop at the end of input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted notebook keeps its model
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever llama.cpp prints goes to the log
    settings = json.loads(sys.stdin.readline())

    import xllamacpp  # noqa: PLC0415

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_ctx = settings["context_window"] * settings["slots"]
    params.n_parallel = settings["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.api_keys = [settings["key"]]  # other users of the machine reach the port too
    params.port = 0
    params.cache_ram_mib = 1024  # of prompts that may come again; 8 GiB otherwise
    params.ui = params.endpoint_slots = False
    params.verbosity = -1
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        answer = {"error": str(error)}
    else:
        answer = {"address": server.listening_address}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    while sys.stdin.readline():
        pass
    os._exit(0)


if __name__ == "__main__":
    serve()
