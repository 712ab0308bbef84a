"""Makes the tools of MCP servers usable as tools of a lab.

Servers are not trusted. The names and schemas of their tools are checked, and what a server says about the
effects of a tool never relaxes an effect policy. A journal contains the tools by name and schema. Loading a
journal starts no command and connects to no server.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import count
from typing import Any, ClassVar

from pydantic import PrivateAttr
from pydantic_core import to_json

from tot_lab.core.calls import readable
from tot_lab.core.extras import requires
from tot_lab.core.tool import Tool, Unfit
from tot_lab.core.tools import tool_name
from tot_lab.tools.mcp_connection import Connection, connection_to

MAX_SCHEMA = 50_000
"""Maximum characters of a tool's JSON schema. A tool with a larger schema is left out."""

MAX_DESCRIPTION = 4_000
"""Characters after which the description of a tool is truncated."""

MAX_NAME = 64


class McpTool(Tool):
    """A tool of an MCP server. `tl.tools.mcp` makes such tools."""

    kind: ClassVar[str] = "mcp_tool"
    server: str
    """The origin of the server's URL or the name of its program, and the name that the server reports. The
    rest of a URL or a command is not recorded, since it may contain secrets.
    """

    remote: str
    """The name of the tool on the server."""

    _connection: Connection | None = PrivateAttr(default=None)

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Awaitable[str]:
        if self._connection is None:
            raise Unfit(f"{self.server} is not connected. Connect to it with tl.tools.mcp")
        return self._connection.call(self.remote, arguments)

    def __getstate__(self) -> dict[Any, Any]:
        """Leave out the connection, which works only in this process."""
        return {**super().__getstate__(), "__pydantic_private__": {"_connection": None}}


@asynccontextmanager
async def mcp(
    server: str | Sequence[str],
    *,
    prefix: str = "",
    effects: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> AsyncIterator[list[McpTool]]:
    """Connect to an MCP server, and return its tools. Requires `pip install 'tot-lab[mcp]'`.

        async with tl.tools.mcp("npx -y @modelcontextprotocol/server-memory") as tools:
            run = await tl.Lab(model, tools=tools).run(tl.ReAct(), task)

    The tools work until the block ends; a replay of the run needs no server. A call without an answer is
    retried once, and only if the server marks the tool as read-only.

    Args:
        server: The URL of a server (streamable HTTP), or the command that starts one (stdio), as a list or as
            text. It is not run in a shell.
        prefix: Prefix of each tool's name, so that the tools of several servers have different names.
        effects: The effects of all these tools; see `tl.EffectPolicy`. If the server is a URL, `network` is
            added. `None` means that the effects are unknown, whatever the server says about them.
        env: Environment variables for the command, which gets only these and `PATH`, `HOME` and the like.
        headers: Headers of every request to the URL, such as `{"Authorization": "Bearer …"}`.
        timeout: Seconds for connecting, and for each call.

    Raises:
        ConnectionError: The server cannot be started or reached, or does not answer in time.
        ImportError: The package `mcp` is not installed.
        ValueError: `server` is neither a URL nor a command, or `env` is passed with a URL, or `headers` with
            a command.

    Warns:
        RuntimeWarning: A tool is left out because its schema cannot be used, or is renamed because two tools
            of the server get the same name when special characters are replaced.
    """
    if find_spec("mcp") is None:
        raise ImportError(requires("tl.tools.mcp", "mcp", "mcp") + ".")
    connection = connection_to(server, env, headers)
    try:
        listed = await connection.open(timeout)
        declared = None if effects is None else tuple(dict.fromkeys((*connection.effects, *effects)))
        yield _tools_of(connection, listed, prefix, declared, timeout)
    finally:
        await connection.close()


def _tools_of(
    connection: Connection,
    listed: Sequence[Any],
    prefix: str,
    effects: tuple[str, ...] | None,
    timeout: float,
) -> list[McpTool]:
    made: dict[str, McpTool] = {}
    for tool in listed:
        first = name = _name(prefix, tool.name)
        for number in count(2):
            if name not in made:
                break
            name = f"{first[: MAX_NAME - len(str(number)) - 1]}-{number}"
        about = readable(tool.description or tool.title or "")
        try:
            made[name] = McpTool(
                name=name,
                description=about if len(about) <= MAX_DESCRIPTION else f"{about[:MAX_DESCRIPTION]}…",
                parameters=_usable(tool.input_schema),
                effects=effects,
                timeout=timeout,
                retries=int(tool.annotations is not None and tool.annotations.read_only_hint is True),
                server=connection.label,
                remote=tool.name,
            )
        except ValueError as error:
            why = " ".join(str(error).split())[:300]
            _warn(f"{connection.label}: the tool {tool.name[:MAX_NAME]!r} is left out: {why}.")
            continue
        made[name]._connection = connection
        if name != first:
            _warn(
                f"{connection.label}: the tools {made[first].remote!r} and {tool.name!r} both get the name "
                f"{first!r}. The latter is renamed {name!r}."
            )
    return [*made.values()]


def _name(prefix: str, name: str) -> str:
    """Return the name by which a model calls a tool: of letters, digits and hyphens, beginning with a letter,
    and at most `MAX_NAME` characters long.
    """
    plain = tool_name(f"{prefix}-{name}")
    return (plain if plain[:1].isalpha() else f"tool-{plain}".strip("-"))[:MAX_NAME].strip("-")


def _usable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a tool, with `{}` in place of each property whose schema is `true` or
    `false`.

    Raises:
        ValueError: If the schema is larger than `MAX_SCHEMA` or invalid.
    """
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415

    size = len(to_json(schema))
    if size > MAX_SCHEMA:
        raise ValueError(f"its schema must have at most {MAX_SCHEMA:,} characters: got {size:,}")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"its schema is not valid: {error.message[:200]}") from None
    if not isinstance(given := schema.get("properties"), dict):
        return schema
    properties = {name: part if isinstance(part, dict) else {} for name, part in given.items()}
    return {**schema, "properties": properties}


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)  # the line of `async with`
