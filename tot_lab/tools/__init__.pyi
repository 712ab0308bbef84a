"""The names of `tl.tools`; `python tests/contract/test_names.py` writes this file."""

from tot_lab.core.policy import EffectPolicy as EffectPolicy
from tot_lab.core.tool import FunctionTool as FunctionTool
from tot_lab.core.tool import Tool as Tool
from tot_lab.core.tool import tool as tool
from tot_lab.domains.multi_hop import multi_hop_tools as multi_hop_tools
from tot_lab.domains.multi_hop.documents import document_tools as document_tools
from tot_lab.lab.deep_think_tool import DeepThinkTool as DeepThinkTool
from tot_lab.lab.deep_think_tool import deep_think as deep_think
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

__all__: list[str]
