"""`tot-lab serve` and `tot-lab mcp`: offer searches to other programs.

`serve` starts a server with OpenAI's API, whose models are strategies. `mcp` offers searches and runs by the
Model Context Protocol: over HTTP, or through stdin and stdout, to which nothing else is then written.

A server listens only on this machine unless `--host` is given. If the environment variable `TOT_LAB_TOKEN`
is set, clients need its value as a token. If it is not set, and `--host` is not a loopback address, they need
a new token, which is printed once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tot_lab.apps.catalogue import Catalogue
from tot_lab.apps.cli.arguments import (
    InvalidArgument,
    add_cache,
    add_offers,
    add_tools,
    argument_errors,
    command,
    integer_from,
    parse_budget,
    parse_lab,
    parse_offers,
    parse_settings,
)
from tot_lab.core.task import Task
from tot_lab.domains.named import factory_of, problem_in
from tot_lab.models.cache import MODES

VARIABLE = "TOT_LAB_TOKEN"
"""The environment variable that holds the token."""

DEFAULT_HOST = "127.0.0.1"

_EXAMPLES = """
examples:
  tot-lab serve --model gpt-4.1-mini --as vote=self_consistency \\
      --as fast="tree_of_thoughts search.width=2"
  tot-lab serve --model sim/game24 --domain game24
  TOT_LAB_TOKEN=... tot-lab serve --model gpt-4.1-mini --host 0.0.0.0 --spend 5

A client names a strategy as its model: base_url=http://127.0.0.1:8400/v1 model=fast
"""


_MCP_EXAMPLES = """
examples:
  tot-lab mcp --model gpt-4.1-mini --budget calls=60 \\
      --as fast="tree_of_thoughts search.width=2"
  tot-lab mcp --model ollama/qwen3:8b --http 8401

A client starts the first form itself. Write the command into the client's settings.
"""


def add(commands: Any) -> None:
    """Add the commands `serve` and `mcp`."""
    parser = command(commands, "serve", "offer strategies as models of a server with OpenAI's API", _serve)
    parser.epilog = _EXAMPLES
    parser.usage = "tot-lab serve --model NAME [FIELD=VALUE ...] [--as NAME=STRATEGY] ..."
    _add_lab(parser, runs="runs/serve", at_once=256)
    parser.add_argument(
        "--port", type=integer_from(0), default=8400, help="port (default: 8400; 0: any free one)"
    )
    parser = command(commands, "mcp", "offer searches and runs to clients of the MCP protocol", _mcp)
    parser.epilog = _MCP_EXAMPLES
    parser.usage = "tot-lab mcp --model NAME [FIELD=VALUE ...] [--as NAME=STRATEGY] ..."
    _add_lab(parser, runs="runs/mcp", at_once=4)
    parser.add_argument(
        "--http", type=integer_from(0), metavar="PORT", help="serve over HTTP (default: stdin and stdout)"
    )


def _add_lab(parser: argparse.ArgumentParser, *, runs: str, at_once: int) -> None:
    """Add the options of a lab whose searches are offered to other programs, and the option `--host`."""
    parser.add_argument(
        "--model",
        required=True,
        nargs="+",
        metavar=("NAME", "FIELD=VALUE"),
        help="the model, as for tot-lab run",
    )
    add_offers(parser)
    parser.add_argument(
        "--domain",
        nargs="+",
        default=["general"],
        metavar=("DOMAIN", "FIELD=VALUE"),
        help="the domain of the questions (default: general; open_ended: the whole reply is the answer)",
    )
    add_tools(parser)
    parser.add_argument(
        "--budget", nargs="+", metavar="FIELD=VALUE", help="limits of each search, which a request can lower"
    )
    parser.add_argument("--spend", type=float, metavar="USD", help="limit on the money spent by all searches")
    parser.add_argument(
        "--at-once",
        type=integer_from(1),
        default=at_once,
        metavar="N",
        help=f"maximum number of concurrent searches; further ones are refused (default: {at_once})",
    )
    parser.add_argument("--mode", choices=MODES, default="auto", help="use of the cache, as for tot-lab run")
    add_cache(parser)
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path(runs),
        metavar="DIR",
        help=f"folder of the journals (default: {runs})",
    )
    parser.add_argument(
        "--host",
        default=DEFAULT_HOST,
        help="address to listen at (default: this machine alone). With another, clients need a token: "
        f"{VARIABLE}, or a new one",
    )


def _serve(args: argparse.Namespace) -> int:
    """Carry out `tot-lab serve`."""
    from tot_lab.apps.serve import Server, serve  # noqa: PLC0415  aiohttp takes time
    from tot_lab.apps.served_searches import Searches  # noqa: PLC0415

    catalogue = Catalogue(parse_offers(args.offers), parse_budget(args.budget))
    lab = parse_lab(args, args.runs)
    token, is_new = token_for(args.host)
    searches = Searches(lab, args.at_once)
    server = Server(searches, catalogue, parse_domain(args.domain), model=args.model[0], token=token)

    def announce(url: str) -> None:
        pages = f"{url}/" if token is None else f"{url}/?token=TOKEN"
        _announce(args, catalogue, [f"API       {url}/v1", f"runs      {pages}"], token if is_new else None)

    asyncio.run(serve(server, args.host, args.port, announce))
    print("stopped; journals are kept", flush=True)
    return 0


def _mcp(args: argparse.Namespace) -> int:
    """Carry out `tot-lab mcp`."""
    from tot_lab.apps.mcp_server import Searches, serve_http, server_of  # noqa: PLC0415

    if args.http is None and args.host != DEFAULT_HOST:
        raise InvalidArgument(
            f"--host needs --http: got --host {args.host}. Without --http, the server uses stdin and stdout."
        )
    catalogue = Catalogue(parse_offers(args.offers), parse_budget(args.budget))
    lab = parse_lab(args, args.runs)
    server = server_of(Searches(lab, catalogue, parse_domain(args.domain), args.at_once))
    if args.http is None:
        print(f"tot-lab: {_offer(args, catalogue)}; journals in {args.runs}/", file=sys.stderr)
        asyncio.run(server.run_stdio_async())
        return 0
    token, is_new = token_for(args.host)

    def announce(url: str) -> None:
        _announce(args, catalogue, [f"MCP       {url}"], token if is_new else None)

    family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    with socket.create_server((args.host, args.http), family=family) as listening:
        asyncio.run(serve_http(server, listening, token, announce))
    return 0


def _offer(args: argparse.Namespace, catalogue: Catalogue) -> str:
    return f"{', '.join(catalogue.offers)} with {args.model[0]}"


def _announce(args: argparse.Namespace, catalogue: Catalogue, places: list[str], new: str | None) -> None:
    token = [] if new is None else [f"token     {new}"]
    lines = [f"serving   {_offer(args, catalogue)}", *places, f"journals  {args.runs}/", *token]
    print("\n".join(lines), flush=True)


def parse_domain(words: Sequence[str]) -> Callable[[str], Task]:
    """Parse `DOMAIN FIELD=VALUE …` into a function that makes a task from the text of a question."""
    name, *rest = words
    with argument_errors(f"--domain {name}"):
        make = factory_of(name)
        settings = parse_settings(rest)
    return lambda text: make(problem_in(text, make), **settings)


def token_for(host: str) -> tuple[str | None, bool]:
    """Return the token that clients need at `host` (`None` if they need none), and whether it is new."""
    from tot_lab.apps.serve import is_loopback  # noqa: PLC0415  aiohttp takes time

    token = os.environ.get(VARIABLE) or None
    is_new = token is None and not is_loopback(host)
    return (secrets.token_urlsafe(32) if is_new else token), is_new
