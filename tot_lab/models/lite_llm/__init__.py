"""Models of a provider, or of any server that speaks like one, through litellm.

Rule: one request, whose way is all ours. litellm translates and no more, and what it hides is found
out. Each file here keeps one subject:

    endpoint.py    the part that a lab takes: who is asked, and one request
    naming.py      from what was typed to a model, a server and a key
    loading.py     litellm itself, imported late and made quiet
    table.py       what litellm knows of a model beforehand: provider, window, tokens, price
    asking.py      from a call to litellm's arguments, and what would be lost on the way
    answers.py     what comes back, whole or in a stream
    failures.py    what went wrong, and the keys that nobody may see
"""

from tot_lab.models.lite_llm.endpoint import LiteLLM
from tot_lab.models.lite_llm.table import OLLAMA_WINDOW

__all__ = ["OLLAMA_WINDOW", "LiteLLM"]
