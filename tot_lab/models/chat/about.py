"""What a server reports about itself and its weights: version, revision, quantisation, chat template.

Only the fields in `PAGES` are read, since SGLang's page also contains the server's key. A path is reduced to
its last component, since recordings may be shared.

References:
    vLLM, `/version` and `root` in `/v1/models`; SGLang, `/server_info` (`/get_server_info` in earlier
    versions); llama.cpp, tools/server/README.md (`/props`); text-embeddings-inference, docs/openapi.json
    (`/info`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from tot_lab.core.scrubbing import clean
from tot_lab.models.chat.failures import shortened
from tot_lab.models.stack import ServerFacts

LLAMA_CPP = "llama.cpp"

Facts = dict[str, str]
"""Known facts by name: `server`, `version`, `model`, `revision`, `quantization`, `dtype`, and `chat_template`
as the beginning of its SHA-256. Facts about weights can also have `root`, `n_params`, `size`, and `path` as a
hash.
"""


def facts_in(path: str, page: Any) -> Facts:
    """Return the facts in `page`, the JSON that a server returned for `path`. {} if `page` is that of another
    kind of server than `PAGES` names for this path.
    """
    if not isinstance(page, dict):
        return {}
    server, mark, fields = PAGES[path]
    if not isinstance(page.get(mark), str):
        return {}
    found = {name: page.get(field) for name, field in fields.items()}
    texts = {name: value for name, value in found.items() if isinstance(value, str) and value.strip()}
    return {"server": server} | {name: _WRITTEN.get(name, _short)(value) for name, value in texts.items()}


def entries_in(page: Any) -> list[dict[str, Any]]:
    """Return the well-formed entries of a server's list of models."""
    entries = page.get("data") if isinstance(page, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def listed_in(page: Any, model: str) -> ServerFacts:
    """Return the names in a server's list of models, and the context window of `model`."""
    entries = entries_in(page)
    mine = next((entry for entry in entries if entry.get("id") == model), {})
    window = count_in(mine, "max_model_len") or count_in(mine, "max_input_tokens")  # vLLM, Anthropic
    return ServerFacts(tuple(str(entry["id"]) for entry in entries if "id" in entry), window)


def with_props(facts: ServerFacts, page: Any) -> ServerFacts:
    """Return `facts` with the slots and context window in llama.cpp's page `/props`. If `page` is no such
    page, they are returned unchanged.
    """
    slots = count_in(page, "total_slots")
    if slots is None:
        return facts
    window = count_in(page.get("default_generation_settings"), "n_ctx")
    return facts._replace(context_window=window, slots=slots)


def count_in(page: Any, name: str) -> int | None:
    """Return the field `name` of a page if it is a positive integer, else `None`."""
    value = page.get(name) if isinstance(page, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def root_in(page: Any, model: str) -> Facts:
    """Return the weights that vLLM's list of models names for the alias `model`, as the fact `model`. {} if
    the name is no alias.
    """
    root = next((entry.get("root") for entry in entries_in(page) if entry.get("id") == model), None)
    return {"model": _last_part(root)} if isinstance(root, str) and root != model else {}


def weights_in(path: str, page: Any) -> Facts:
    """Return the facts that identify the weights of a server, from its page at `path`, or {}.

    For llama.cpp, the version is one of them, since its builds quantise and sample differently.
    """
    facts = facts_in(path, page)
    same = {"server"} if facts.get("server") == LLAMA_CPP else {"server", "version"}
    found = {name: value for name, value in facts.items() if name not in same}
    return found | _digest_of_path(page.get(PAGES[path][2].get("model", ""))) if found else {}


def listed_weights_in(page: Any, model: str) -> Facts:
    """Return the facts that identify the weights of `model`, from a server's list of models.

    These are vLLM's `root` and llama.cpp's `meta`. `created` is not used, since some servers set it to the
    present time.
    """
    entries = entries_in(page)
    entry = next((entry for entry in entries if entry.get("id") == model), None)
    if entry is None:
        entry = entries[0] if len(entries) == 1 else {}  # llama.cpp lists its file and answers to any name
    root, meta = entry.get("root"), entry.get("meta")
    found = {"root": _last_part(root), **_digest_of_path(root)} if isinstance(root, str) and root else {}
    return found | {name: str(count) for name in ("n_params", "size") if (count := count_in(meta, name))}


def _digest_of_path(path: Any) -> Facts:
    """Return a hash of `path`, which distinguishes paths with the same last component; {} for a name."""
    return {"path": _digest(path)} if isinstance(path, str) and _last_part(path) != path else {}


def describe(facts: Facts) -> str:
    """Return the facts as one line, such as "llama.cpp b4567, Q4_K - Medium"."""
    named = " ".join(facts[name] for name in ("server", "version") if name in facts)
    more = (facts[name] for name in ("quantization", "dtype", "model", "revision") if name in facts)
    return ", ".join(filter(None, [named, *more]))


def _short(text: str) -> str:
    return shortened(clean(text))


def _last_part(path: str) -> str:
    is_path = path.startswith(("/", "~", ".")) or path.endswith(".gguf") or any(c in path for c in ":\\")
    return _short(path.replace("\\", "/").rstrip("/").rpartition("/")[2] if is_path else path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


_WRITTEN: dict[str, Callable[[str], str]] = {"model": _last_part, "chat_template": _digest}

_SGLANG = {
    "version": "version",
    "model": "model_path",
    "revision": "revision",
    "quantization": "quantization",
    "dtype": "dtype",
}
PAGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "/version": ("vllm", "version", {"version": "version"}),
    "/server_info": ("sglang", "model_path", _SGLANG),
    "/get_server_info": ("sglang", "model_path", _SGLANG),
    "/props": (
        LLAMA_CPP,
        "build_info",
        {
            "version": "build_info",
            "model": "model_path",
            "quantization": "model_ftype",
            "chat_template": "chat_template",
        },
    ),
    "/info": (
        "text-embeddings-inference",
        "model_id",
        {"version": "version", "model": "model_id", "revision": "model_sha", "dtype": "model_dtype"},
    ),
}
"""By path: the server, a field of the page that identifies it, and the field of each fact."""
