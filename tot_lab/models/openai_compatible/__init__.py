"""Models of OpenAI-compatible servers, called directly over HTTP.

endpoint.py    the model part, its variants for known servers, and one request
answers.py     the server's JSON, complete or streamed
"""

from tot_lab.models.openai_compatible.endpoint import VLLM, LlamaCpp, OpenAICompatible, OpenAIServer, SGLang

__all__ = ["VLLM", "LlamaCpp", "OpenAICompatible", "OpenAIServer", "SGLang"]
