"""`tot-lab mcp`: offer searches and runs to programs that speak the Model Context Protocol.

It speaks through stdin and stdout, which then hold nothing else, or over HTTP. There it listens on this
machine alone unless another host is given, for which clients need a token, as for `tot-lab serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from typing import Any

from tot_lab.apps.catalogue import Catalogue
from tot_lab.apps.cli.arguments import (
    InvalidArgument,
    command,
    integer_from,
    parse_budget,
    parse_lab,
    parse_offers,
)
from tot_lab.apps.cli.serving import DEFAULT_HOST, add_lab, parse_domain, token_for

_EXAMPLES = """
examples:
  tot-lab mcp --model gpt-4.1-mini --budget calls=60 \\
      --as fast="tree_of_thoughts search.width=2"
  tot-lab mcp --model ollama/qwen3:8b --http 8401

A client starts the first form itself: its settings hold the words.
"""


def add(commands: Any) -> None:
    """Add the command `mcp`."""
    parser = command(commands, "mcp", "offer searches and runs to clients of the MCP protocol", _mcp)
    parser.epilog = _EXAMPLES
    parser.usage = "tot-lab mcp --model NAME [FIELD=VALUE ...] [--as NAME=STRATEGY] ..."
    add_lab(parser, runs="runs/mcp", at_once=4)
    parser.add_argument(
        "--http", type=integer_from(0), metavar="PORT", help="serve over HTTP (default: stdin and stdout)"
    )


def _mcp(args: argparse.Namespace) -> int:
    """Carry out `tot-lab mcp`."""
    from tot_lab.apps.mcp_server import Searches, serve_http, server_of  # noqa: PLC0415

    if args.http is None and args.host != DEFAULT_HOST:
        raise InvalidArgument("--host needs --http: without it, no address is listened at.")
    catalogue = Catalogue(parse_offers(args.offers), parse_budget(args.budget))
    lab = parse_lab(args, args.runs)
    server = server_of(Searches(lab, catalogue, parse_domain(args.domain), args.at_once))
    offer = f"{', '.join(catalogue.offers)} with {args.model[0]}"
    if args.http is None:
        print(f"tot-lab: {offer}; journals in {args.runs}/", file=sys.stderr)
        asyncio.run(server.run_stdio_async())
        return 0
    token, is_new = token_for(args.host)

    def announce(url: str) -> None:
        print(f"serving   {offer}")
        print(f"MCP       {url}")
        print(f"journals  {args.runs}/")
        if is_new:
            print(f"token     {token}")
        sys.stdout.flush()

    family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    with socket.create_server((args.host, args.http), family=family) as listening:
        asyncio.run(serve_http(server, listening, token, announce))
    return 0
