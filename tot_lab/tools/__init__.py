"""Tools: what strategies may have done, and within which limits.

`tl.tools` offers all of them. `tot_lab` adds those of other rooms, which need a lab or a domain: they are
imported when they are first used. `python tests/contract/test_names.py` writes the stub `__init__.pyi`.
"""

from typing import Any

from tot_lab.core.namespaces import added_name, names_added
from tot_lab.core.policy import EffectPolicy
from tot_lab.core.tool import FunctionTool, Tool, tool
from tot_lab.tools.calculator import Calculator
from tot_lab.tools.files import ListFiles, ReadFile, WriteFile
from tot_lab.tools.mcp import McpTool, mcp
from tot_lab.tools.named import tools_named
from tot_lab.tools.python import Python
from tot_lab.tools.toolbox import Carrying, NotReplayed, Toolbox
from tot_lab.tools.web import Found, SearchProvider, WebFetch, WebSearch

__all__ = [
    "Calculator",
    "Carrying",
    "EffectPolicy",
    "Found",
    "FunctionTool",
    "ListFiles",
    "McpTool",
    "NotReplayed",
    "Python",
    "ReadFile",
    "SearchProvider",
    "Tool",
    "Toolbox",
    "WebFetch",
    "WebSearch",
    "WriteFile",
    "mcp",
    "tool",
    "tools_named",
]
__all__ += names_added(__name__)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    return added_name(__name__, name)
