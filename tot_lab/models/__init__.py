"""Models, and the stack between a search and a real one (`stack.py` has the picture).

Add one: a file with a Part that has `async def __call__(self, call)`, or with an `Endpoint` when it
reaches the outside world, and its name in `named.py`.
"""

from tot_lab.domains.agent_player import SimAgent
from tot_lab.domains.constrained.player import SimConstrained
from tot_lab.domains.creative_writing.player import SimCreativeWriting
from tot_lab.domains.game24.player import SimGame24
from tot_lab.domains.general.player import SimGeneral
from tot_lab.domains.mini_crossword.player import SimMiniCrossword
from tot_lab.models.cache import Cache, CacheMiss
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.local import Local
from tot_lab.models.named import MODELS, model_named
from tot_lab.models.roles import ROLES, Role
from tot_lab.models.store import CacheError
from tot_lab.runtime.gateway import Gateway

__all__ = [
    "MODELS",
    "ROLES",
    "Cache",
    "CacheError",
    "CacheMiss",
    "Gateway",
    "LiteLLM",
    "Local",
    "Role",
    "SimAgent",
    "SimConstrained",
    "SimCreativeWriting",
    "SimGame24",
    "SimGeneral",
    "SimMiniCrossword",
    "model_named",
]
