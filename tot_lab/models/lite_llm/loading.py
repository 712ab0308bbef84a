"""litellm itself: imported late, made quiet, and ended with each event loop.

Rule: litellm fetches nothing, prints nothing, reads no `.env`, and never holds up an event loop. Its import
takes seconds, so it comes with the first call, in a thread; so does what litellm would build at its
first use. Nothing is left in the environment that other libraries read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from collections.abc import AsyncGenerator
from importlib import import_module
from types import ModuleType
from typing import Any

from tot_lab.core.calls import is_token_count, usage_text

_loading = threading.Lock()
_loaded: list[ModuleType] = []


def load_litellm() -> ModuleType:
    """litellm. The first time takes seconds and blocks."""
    with _loading:
        if not _loaded:
            _loaded.append(_imported())
    return _loaded[0]


def is_loaded() -> bool:
    """Whether litellm was imported."""
    return bool(_loaded)


async def litellm_ready() -> ModuleType:
    """litellm, loaded in a thread if it was not yet."""
    return _loaded[0] if _loaded else await asyncio.to_thread(load_litellm)


def _imported() -> ModuleType:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
    mode = os.environ.get("LITELLM_MODE")
    # Otherwise it loads `.env` from the working directory or above, and a stranger's may name the server
    # that the user's key is sent to.
    os.environ["LITELLM_MODE"] = mode or "PRODUCTION"
    litellm: Any = import_module("litellm")
    if mode is None:
        del os.environ["LITELLM_MODE"]
    litellm.disable_hf_tokenizer_download = True  # for the streams that it counts itself
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    if "LITELLM_LOG" not in os.environ:
        logging.getLogger("LiteLLM").setLevel("CRITICAL")  # what it warns of, we note or raise
    # What it would else build at its first use.
    litellm.token_counter(model="gpt-4o", text="")
    litellm.ModelResponse(), litellm.types.utils.Delta()
    litellm.utils.get_optional_params(model="gpt-4o", custom_llm_provider="openai")
    _ = import_module("openai").AsyncOpenAI(api_key="none").chat.completions
    _take_any_usage(litellm.types.utils.Usage)
    return litellm  # type: ignore[no-any-return]


def _take_any_usage(usage: Any) -> None:
    """Let an answer through whose usage cannot be true. litellm gives up the whole answer for a count that
    is no integer, although it was paid for; such a count becomes -1, and `reported` holds what it was."""
    take = usage.__init__
    names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}

    def init(
        self: Any,
        prompt_tokens: Any = None,
        completion_tokens: Any = None,
        total_tokens: Any = None,
        **more: Any,
    ) -> None:
        told = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        wrong = {
            name: count for name, count in told.items() if count is not None and not is_token_count(count)
        }
        told |= {"total_tokens": total_tokens if is_token_count(total_tokens) else None}
        try:
            take(self, **{**told, **dict.fromkeys(wrong, -1)}, **more)
        except (ValueError, TypeError):  # in the details
            wrong |= {"details": more}
            take(self, -1, -1)
        if wrong and not hasattr(self, "reported"):
            self.reported = usage_text({names.get(name, name): value for name, value in wrong.items()})

    usage.__init__ = init


def silence_warnings() -> None:
    """No warnings of what litellm does by itself: it reads what pydantic calls deprecated, and writes out
    a tool call whose arguments a server gave as an object and not as text, or tokens that are no integers. It
    ignores the first itself, once, when it is imported, which those who set the filters anew take back."""
    warnings.filterwarnings("ignore", "Accessing the 'model_", DeprecationWarning, r"litellm\.")
    arguments = r"Pydantic serializer warnings:[^\[]*Expected `str`[^\[]*\[field_name='arguments'"
    tokens = r"Pydantic serializer warnings:[^\[]*Expected `int`[^\[]*\[field_name='\w*_tokens'"
    warnings.filterwarnings("ignore", arguments, UserWarning)
    warnings.filterwarnings("ignore", tokens, UserWarning)


_watched: dict[int, AsyncGenerator[None, None]] = {}


async def end_with_this_loop(litellm: ModuleType) -> None:
    """See to it that litellm's connections end with the loop that they belong to. litellm keeps them
    for ever; a loop's last act is to finish the generators that were begun in it."""
    loop = id(asyncio.get_running_loop())
    if loop in _watched:
        return

    async def until_the_end() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _watched.pop(loop, None)
            clients = litellm.in_memory_llm_clients_cache
            for key in [key for key in clients.cache_dict if key.endswith(f"-{loop}")]:
                clients.ttl_dict.pop(key, None)
                await clients.cache_dict.pop(key).close()

    _watched[loop] = until_the_end()
    await anext(_watched[loop])
