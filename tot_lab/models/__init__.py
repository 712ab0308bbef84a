"""Models, and the stack between a search and a real one (`stack.py` has the picture).

Add one: a file with a Part that has `async def __call__(self, call)`, or with an `Endpoint` when it
reaches the outside world. A simulated player stands with its domain.
"""

from tot_lab.models.cache import Cache, CacheMiss
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.local import Local
from tot_lab.models.named import model_named, simulated_models
from tot_lab.models.store import CacheError

__all__ = [
    "Cache",
    "CacheError",
    "CacheMiss",
    "LiteLLM",
    "Local",
    "model_named",
    "simulated_models",
]
