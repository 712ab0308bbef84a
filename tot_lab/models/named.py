"""Models by name, as `tl.Lab("…")` and the `model` setting of a strategy accept them.

A name is that of a component of the group `models`, such as `sim/game24`, or begins with the prefix of one,
such as `local/`. All other names are passed to litellm, except those of OpenAI's API with a base URL of the
user's own: they are called directly.
"""

from __future__ import annotations

from typing import Any

from tot_lab.core.calls import Model
from tot_lab.core.parts import Part, class_of, known_names
from tot_lab.core.registry import BUILT_IN, find, names
from tot_lab.models.chat.endpoint import ChatEndpoint
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.lite_llm.naming import checked_url, provider_of, url_in_environment, whole_name
from tot_lab.models.lite_llm.table import in_table, price_in
from tot_lab.models.openai_compatible import OpenAIServer
from tot_lab.models.stack import Endpoint, is_model


def simulated_models() -> list[type[Part]]:
    """Return the simulated models of tot_lab, without those of installed packages."""
    return [class_of(name, Part) for name in BUILT_IN["models"] if name.startswith("sim/")]


def model_named(name: str) -> Model | Endpoint:
    """Return the model of that name with its default settings.

    litellm only reports at the first call whether it knows a name.

    Raises:
        ValueError: If the name is unknown.
    """
    if not name.strip():
        raise ValueError("The name of the model must not be empty.")
    known = names("models")
    if name in known and name[-1] not in "/:":
        return _checked(name, class_of(name, Part)())
    if name.startswith("sim/"):
        simulated = [one for one in known if one.startswith("sim/")]
        raise ValueError(f"unknown simulated model {name!r}; {known_names(name, simulated)}")
    prefixes = [one for one in known if not one or (one[-1] in "/:" and name.startswith(one))]
    prefix = max(prefixes, key=len)
    component = find(prefix, "models")
    assert component is not None
    model = _checked(name, component.value.named(name[len(prefix) :]))
    return configured(model) if isinstance(model, LiteLLM) else model


def configured(model: ChatEndpoint, **given: Any) -> ChatEndpoint:
    """Return `model` with the settings `given`, of which `base_url` is the URL of the server.

    A model of OpenAI's API at another server is called directly, unless litellm translates its
    settings: reasoning models have other names for them and reject some.

    Raises:
        ValueError: If a setting is unknown or invalid.
    """
    settings = {**{name: getattr(model, name) for name in model.model_fields_set}, **given}
    if not isinstance(model, LiteLLM):
        return type(model).model_validate(settings)
    if (base := settings.pop("base_url", None)) is not None:
        settings["api_base"] = checked_url(base, "base_url")
    name = whole_name(model.model)
    provider = provider_of(name)
    base = settings.get("api_base")
    url = url_in_environment(provider) if base is None else checked_url(base, "api_base")
    if provider != "openai" or url is None or _is_translated(name):
        return LiteLLM.model_validate(settings)
    settings.pop("api_base", None)
    price = settings.pop("price", None) or price_in(in_table(name, provider))
    return OpenAIServer.model_validate({**settings, "base_url": url, "price": price})


def _is_translated(name: str) -> bool:
    """Whether litellm sends a model of OpenAI other settings than those of the call."""
    return "gpt-5" in name or bool(in_table(name, "openai").get("supports_reasoning"))


def _checked(name: str, model: Any) -> Model | Endpoint:
    if is_model(model):
        named: Model | Endpoint = model
        return named
    raise ValueError(f"{name!r} must name a model: got {type(model).__name__}.")
