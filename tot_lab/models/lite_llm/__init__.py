"""Models of providers and of compatible servers, through litellm.

litellm only translates requests and replies; retries, caching and logging are done here, and what litellm
hides is detected.

    endpoint.py    the model part, and one request
    naming.py      from the user's input to a model, a server and a key
    loading.py     the late import of litellm, without its output
    table.py       what litellm's table says about a model: provider, window, tokens, price
    asking.py      from a call to litellm's arguments, and what would be dropped
    answers.py     replies, complete or streamed
    failures.py    errors, and the removal of keys
"""

from tot_lab.models.lite_llm.endpoint import LiteLLM
from tot_lab.models.lite_llm.table import OLLAMA_WINDOW

__all__ = ["OLLAMA_WINDOW", "LiteLLM"]
