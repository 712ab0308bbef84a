"""Models, and the stack of layers above them; see `stack`.

To add a model, write a subclass of `Part` with `async def __call__(self, call)`, or a subclass of `Endpoint`
if it calls a server. A simulated model belongs in the package of its domain.
"""

from tot_lab.models.cache import Cache, CacheMiss
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.local import Local
from tot_lab.models.named import model_named, simulated_models
from tot_lab.models.openai_compatible import OpenAICompatible
from tot_lab.models.store import CacheError

__all__ = [
    "Cache",
    "CacheError",
    "CacheMiss",
    "LiteLLM",
    "Local",
    "OpenAICompatible",
    "model_named",
    "simulated_models",
]
