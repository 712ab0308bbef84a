"""The code of the README, the guides and CONTRIBUTING."""

import ast
import asyncio
import inspect
import re

from support import ROOT


def blocks(document: str) -> list[str]:
    """The Python code of a page."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def execute(code: str, names: dict) -> dict:
    """Run a notebook cell, `await` and all."""
    compiled = compile(code, "<document>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def cell():
        done = eval(compiled, names)
        if inspect.iscoroutine(done):
            await done

    asyncio.run(cell())
    return names
