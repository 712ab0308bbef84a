"""Models of providers and of compatible servers, through litellm.

litellm only translates requests and replies. Its retries, cache and log are not used, and what it hides is
detected.

    endpoint.py    the model part and one request; what litellm says about a model, and what can be found
                   before the first call, such as a missing key
    loading.py     the late import of litellm, without its output
    asking.py      from a call to litellm's arguments, and the settings that litellm would drop
    answers.py     replies, complete or streamed
    failures.py    from litellm's exceptions to failures
"""

from tot_lab.models.lite_llm.endpoint import LiteLLM

__all__ = ["LiteLLM"]
