"""llama.cpp's HTTP server in its own process, on the loopback address; `local` starts it.

The process ends when its standard input is closed, so that it never outlives its parent. The server does not
run inside the parent, because xllamacpp holds the global interpreter lock while it loads, does not return
from `stop` while a request is open, and ends the whole process if an assertion fails.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys


def serve() -> None:
    """Read the settings, one line of JSON, from standard input, and serve until the input ends.

    Writes one line of JSON to standard output: `{"address": URL}` once the server listens, or
    `{"error": MESSAGE}` if the weights cannot be loaded.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted notebook cell must not stop the server
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what llama.cpp prints goes to stderr, which is a log file
    settings = json.loads(sys.stdin.readline())

    import xllamacpp  # noqa: PLC0415

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_ctx = settings["context_window"] * settings["slots"]
    params.n_parallel = settings["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.api_keys = [settings["key"]]  # other users of the machine can reach the port
    params.port = 0
    params.cache_ram_mib = 1024  # prompt cache, which is 8 GiB by default
    params.ui = params.endpoint_slots = False
    if states := settings.get("states"):  # folder for the saved states of slots
        params.slot_save_path = states + os.sep
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
    if states:
        shutil.rmtree(states, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    serve()
