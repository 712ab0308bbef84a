"""llama.cpp's HTTP server in its own process, on the loopback address; `local` starts it.

It runs as long as its standard input is open, so that it never outlives its parent. Inside the parent it
would hold the global interpreter lock while loading, never return from a stop while a request is open, and
take the parent down with a failed assertion.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys


def serve() -> None:
    """Read the settings, one line of JSON, from standard input, and serve until the input ends.

    One line of JSON is written to standard output: the `address` of the server, or an `error`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted notebook cell must not stop the server
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of llama.cpp goes to the log
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
    if states := settings.get("states"):  # the folder in which states of slots can be saved
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
