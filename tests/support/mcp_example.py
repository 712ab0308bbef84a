"""An MCP server, written with the SDK as in its own examples: `python mcp_example.py [PORT]`."""

import base64
import os
import sys
from typing import TypedDict

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents, ToolAnnotations

mcp = MCPServer("Demo", version="1.2")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Weather(TypedDict):
    city: str
    degrees: float


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool()
def getWeather(city: str, unit: str | None = None) -> Weather:
    """The weather of a city."""
    return {"city": city, "degrees": 21.5}


@mcp.tool()
def picture() -> list[Image | str]:
    """A picture, and a text about it."""
    return ["one pixel", Image(data=PIXEL, format="png")]


@mcp.tool()
def notes() -> list[TextContent | ResourceLink | EmbeddedResource]:
    """Notes, as resources."""
    inside = TextResourceContents(uri="note://1", mime_type="text/plain", text="buy milk")
    return [ResourceLink(name="all notes", uri="note://all"), EmbeddedResource(resource=inside)]


@mcp.tool()
def fails() -> str:
    """Always fails."""
    raise ValueError("no luck today")


@mcp.tool()
def environment() -> list[str]:
    """The variables of the environment."""
    return [f"{name}={value}" for name, value in os.environ.items()]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        mcp.run("streamable-http", port=int(sys.argv[1]))
    else:
        mcp.run()
