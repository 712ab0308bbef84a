"""Tools that strategies may call, and the limits of their effects.

`tl.tools` exports them. Tools that need a lab or a domain are defined in other subpackages; `tot_lab` adds
their names here, and they are imported at first use. `python tests/contract/test_names.py` writes the stub
`__init__.pyi`.
"""

import inspect
import typing

from tot_lab.core import namespaces
from tot_lab.core.policy import EffectPolicy as EffectPolicy
from tot_lab.core.tool import FunctionTool as FunctionTool
from tot_lab.core.tool import Tool as Tool
from tot_lab.core.tool import tool as tool
from tot_lab.tools.calculator import Calculator as Calculator
from tot_lab.tools.files import ListFiles as ListFiles
from tot_lab.tools.files import ReadFile as ReadFile
from tot_lab.tools.files import WriteFile as WriteFile
from tot_lab.tools.mcp import McpTool as McpTool
from tot_lab.tools.mcp import mcp as mcp
from tot_lab.tools.python import Python as Python
from tot_lab.tools.toolbox import Carrying as Carrying
from tot_lab.tools.toolbox import NotReplayed as NotReplayed
from tot_lab.tools.toolbox import Toolbox as Toolbox
from tot_lab.tools.toolbox import tools_named as tools_named
from tot_lab.tools.web import Found as Found
from tot_lab.tools.web import SearchProvider as SearchProvider
from tot_lab.tools.web import WebFetch as WebFetch
from tot_lab.tools.web import WebSearch as WebSearch

__all__ = [name for name, value in list(vars().items()) if name[0] != "_" and not inspect.ismodule(value)]
__all__ += namespaces.names_added(__name__)  # noqa: PLE0605


def __getattr__(name: str) -> typing.Any:
    return namespaces.added_name(__name__, name)
