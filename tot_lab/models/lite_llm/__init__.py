"""Models of providers and of compatible servers, through litellm.

litellm only translates requests and replies; retries, caching and logging are done here, and what litellm
hides is detected.

    endpoint.py    the model part and one request; what litellm says about a model, and what can be found
                   before the first call, such as a missing key
    loading.py     the late import of litellm, without its output
    asking.py      from a call to litellm's arguments, and what would be dropped
    answers.py     replies, complete or streamed
    failures.py    errors, and the removal of keys
"""

from tot_lab.models.lite_llm.endpoint import LiteLLM

__all__ = ["LiteLLM"]
