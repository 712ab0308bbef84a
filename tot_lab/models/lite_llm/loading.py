"""The import of litellm, without its side effects.

As imported here, litellm downloads nothing, prints nothing, reads no `.env`, and never blocks an event loop.
The import takes seconds, so it happens with the first call, in a thread. Objects that litellm would build at
its first use are built then, too. No environment variable that other libraries read is left changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any
from weakref import WeakSet

from tot_lab.core.calls import is_token_count, usage_text
from tot_lab.core.reading.finish_reasons import read_finish_reason
from tot_lab.models.chat.failures import failure_in
from tot_lab.models.connections import at_end_of_loop
from tot_lab.models.lite_llm.answers import FAILED

_loading = threading.Lock()
_loaded: list[ModuleType] = []


def load_litellm() -> ModuleType:
    """Return litellm. The first call takes seconds and blocks."""
    with _loading:
        if not _loaded:
            _loaded.append(_imported())
    return _loaded[0]


def is_loaded() -> bool:
    """Whether litellm was imported."""
    return bool(_loaded)


async def litellm_ready() -> ModuleType:
    """Return litellm, importing it in a thread if needed."""
    return _loaded[0] if _loaded else await asyncio.to_thread(load_litellm)


def _imported() -> ModuleType:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
    mode = os.environ.get("LITELLM_MODE")
    # Otherwise litellm loads `.env` from the working directory or above. A file from a stranger could name a
    # server, which would receive the user's key.
    os.environ["LITELLM_MODE"] = mode or "PRODUCTION"
    litellm: Any = import_module("litellm")
    if mode is None:
        del os.environ["LITELLM_MODE"]
    litellm.disable_hf_tokenizer_download = True  # litellm would download one to count tokens
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    if "LITELLM_LOG" not in os.environ:
        logging.getLogger("LiteLLM").setLevel("CRITICAL")  # tot_lab reports these problems itself
    # These calls build objects that litellm would otherwise build at its first use.
    litellm.token_counter(model="gpt-4o", text="")
    litellm.ModelResponse(), litellm.types.utils.Delta()
    litellm.utils.get_optional_params(model="gpt-4o", custom_llm_provider="openai")
    _ = import_module("openai").AsyncOpenAI(api_key="none").chat.completions
    _take_any_usage(litellm.types.utils.Usage)
    _keep_failures(import_module("litellm.litellm_core_utils.core_helpers"))
    _take_empty_errors(import_module("litellm.llms.openai.openai"))
    _take_empty_errors(import_module("litellm.llms.openai.chat.gpt_transformation"))
    return litellm  # type: ignore[no-any-return]


def _take_any_usage(usage: Any) -> None:
    """Patch litellm's class `Usage` to accept impossible token counts.

    litellm rejects a whole reply, although it was paid for, if a count is not an integer. With the patch,
    such a count becomes -1, and the attribute `reported` is the text of the original value.
    """
    take = usage.__init__
    names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}

    def init(
        self: Any,
        prompt_tokens: Any = None,
        completion_tokens: Any = None,
        total_tokens: Any = None,
        **more: Any,
    ) -> None:
        counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        wrong = {
            name: count for name, count in counts.items() if count is not None and not is_token_count(count)
        }
        counts |= {"total_tokens": total_tokens if is_token_count(total_tokens) else None}
        try:
            take(self, **{**counts, **dict.fromkeys(wrong, -1)}, **more)
        except (ValueError, TypeError):  # an impossible value in the details
            wrong |= {"details": more}
            take(self, -1, -1)
        if wrong and not hasattr(self, "reported"):
            self.reported = usage_text({names.get(name, name): value for name, value in wrong.items()})

    usage.__init__ = init


def _keep_failures(helpers: Any) -> None:
    """Patch litellm to keep the finish reasons of replies that the provider marks as failed or truncated.

    litellm replaces them by `stop`. A failed reply gets `FAILED`, which litellm's types accept.
    """
    known = {"error": FAILED, "length": "length"}

    class Reasons(dict[str, str]):
        def get(self, reason: str, default: Any = None) -> Any:
            return known.get(read_finish_reason(reason) or "") or super().get(reason, default)

    helpers._FINISH_REASON_MAP = Reasons(helpers._FINISH_REASON_MAP)


def _take_empty_errors(client: Any) -> None:
    """Patch litellm to accept replies whose field `error` is empty, such as `false`."""
    convert = client.convert_to_model_response_object

    def converted(*, response_object: Any = None, **more: Any) -> Any:
        if isinstance(response_object, dict) and failure_in(response_object.get("error")) is None:
            response_object = {**response_object, "error": None}
        return convert(response_object=response_object, **more)

    client.convert_to_model_response_object = converted


def silence_warnings() -> None:
    """Ignore warnings about litellm's own behaviour.

    litellm reads attributes that pydantic deprecated, and serialises tool calls whose arguments a server sent
    as an object, and token counts that are not integers. At its import, it ignores the first kind of warning
    itself, but a later reset of the warning filters ends that.
    """
    warnings.filterwarnings("ignore", "Accessing the 'model_", DeprecationWarning, r"litellm\.")
    arguments = r"Pydantic serializer warnings:[^\[]*Expected `str`[^\[]*\[field_name='arguments'"
    tokens = r"Pydantic serializer warnings:[^\[]*Expected `int`[^\[]*\[field_name='\w*_tokens'"
    warnings.filterwarnings("ignore", arguments, UserWarning)
    warnings.filterwarnings("ignore", tokens, UserWarning)


_watched: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


async def end_with_this_loop(litellm: ModuleType) -> None:
    """Close litellm's connections when the running event loop ends. litellm itself never closes them."""
    loop = asyncio.get_running_loop()
    if loop in _watched:
        return

    async def close() -> None:
        clients = litellm.in_memory_llm_clients_cache
        for key in [key for key in clients.cache_dict if key.endswith(f"-{id(loop)}")]:
            clients.ttl_dict.pop(key, None)
            await clients.cache_dict.pop(key).close()

    _watched.add(loop)
    await at_end_of_loop(close)
