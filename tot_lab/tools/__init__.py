"""Tools: what strategies may have done, and within which limits.

`tl.tools` offers all of them. Those that need a lab or a domain are imported when they are first used.
"""

from typing import TYPE_CHECKING

from tot_lab.core.attach import lazy_names
from tot_lab.core.policy import EffectPolicy
from tot_lab.core.tool import FunctionTool, Tool, tool
from tot_lab.tools.calculator import Calculator
from tot_lab.tools.files import ListFiles, ReadFile, WriteFile
from tot_lab.tools.named import tools_named
from tot_lab.tools.python import Python
from tot_lab.tools.toolbox import Carrying, NotReplayed, Toolbox
from tot_lab.tools.web import Found, SearchProvider, WebFetch, WebSearch

if TYPE_CHECKING:
    from tot_lab.domains.multi_hop import multi_hop_tools
    from tot_lab.domains.multi_hop.documents import document_tools
    from tot_lab.lab.deep_think_tool import DeepThinkTool, deep_think

__getattr__ = lazy_names(
    __name__,
    {
        "DeepThinkTool": "tot_lab.lab.deep_think_tool",
        "deep_think": "tot_lab.lab.deep_think_tool",
        "document_tools": "tot_lab.domains.multi_hop.documents",
        "multi_hop_tools": "tot_lab.domains.multi_hop",
    },
)

__all__ = [
    "Calculator",
    "Carrying",
    "DeepThinkTool",
    "EffectPolicy",
    "Found",
    "FunctionTool",
    "ListFiles",
    "NotReplayed",
    "Python",
    "ReadFile",
    "SearchProvider",
    "Tool",
    "Toolbox",
    "WebFetch",
    "WebSearch",
    "WriteFile",
    "deep_think",
    "document_tools",
    "multi_hop_tools",
    "tool",
    "tools_named",
]
