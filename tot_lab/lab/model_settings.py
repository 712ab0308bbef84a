"""Settings of a model: its name, its server, and the variable of its key.

Files never hold keys. A key is sent only to its provider's own service, to this machine, and to a server to
which the user binds it: an option, the environment or the user's own file names both the key and the server.
Any other server that a project file names receives no key.
"""

from __future__ import annotations

import os
import re
import tomllib
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from tot_lab.core.calls import Model
from tot_lab.core.files import config_folder, read_regular
from tot_lab.core.parts import Part, PydanticModel, known_names, map_parts
from tot_lab.core.protocol import Budget
from tot_lab.core.registry import names
from tot_lab.core.strategy import Strategy
from tot_lab.models.model_table import is_in_table
from tot_lab.models.named import model_named
from tot_lab.models.providers import (
    checked_url,
    is_key_of,
    is_safe_url,
    key_variables,
    origin,
    provider_of,
    url_in_environment,
    whole_name,
)
from tot_lab.models.stack import Endpoint, is_model
from tot_lab.strategies.research import ResearchDelegate

FILE = "tot_lab.toml"
"""Name of a settings file."""

PREFIX = "TOT_LAB_"
"""Prefix of the environment variables."""


class SettingsError(ValueError):
    """A setting that cannot be used. The message names the setting and its source, such as a file."""


class SettingsSource(NamedTuple):
    """The settings of one source: an option, the environment or a file. `is_project` is true for a file that
    is not the user's own.
    """

    name: str
    values: dict[str, Any]
    is_project: bool = False


DEFAULT = SettingsSource("default", {})
"""The source of settings that were not given."""


def settings_files(folder: Path) -> Iterator[Path]:
    """Yield the nearest settings file in `folder` or the folders above it, then the user's own file."""
    above = (place / FILE for place in (folder, *folder.parents))
    nearest = next((path for path in above if path.is_file() and is_trusted_owner(path)), None)
    own = config_folder() / FILE
    if nearest is not None:
        yield nearest
    if own.is_file() and own != nearest:
        yield own


def is_trusted_owner(path: Path) -> bool:
    """Whether a file belongs to this user or to the system.

    A file of another user is ignored, because in a shared folder anyone could add a file that sends prompts
    and a key to another server.
    """
    if not hasattr(os, "getuid") or path.stat().st_uid in (os.getuid(), 0):
        return True
    warnings.warn(f"{path}: ignored, since it belongs to another user.", RuntimeWarning, stacklevel=5)
    return False


def in_file(path: Path) -> SettingsSource:
    """Return the settings in a file. Its relative paths are resolved against the folder of the file."""
    try:
        values = tomllib.loads(read_regular(path).decode())
    except ValueError as error:  # invalid TOML or UTF-8
        hint = '. A text needs quotes, as in model = "ollama"' if "Invalid value" in str(error) else ""
        raise SettingsError(f"{path}: {error}{hint}") from None
    except RecursionError:
        raise SettingsError(f"{path}: the file is nested too deeply.") from None
    if isinstance(values.get("cache"), str):
        values["cache"] = path.parent / Path(values["cache"]).expanduser()
    for tool in values["tools"] if isinstance(values.get("tools"), list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("root"), str):
            tool["root"] = str(path.parent / Path(tool["root"]).expanduser())
    return SettingsSource(str(path), values, is_project=path != config_folder() / FILE)


S = TypeVar("S", bound=Strategy)

_OF_A_PROVIDER = ("base_url", "context_window", "api_key_env")
_SECRET = re.compile(r"(?:key|token|secret|password)s?$", re.IGNORECASE)


class ModelSettings(PydanticModel):
    """A model and the server that offers it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    provider: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] | None = None
    """`openai`, `ollama`, `anthropic`, `google`, or any other provider that litellm supports. `None` means
    the provider in the name of the model (`openai/…`, `gpt-…`, `sim/…`, `local/…`), or else `ollama`.
    """

    model: Annotated[str, Field(min_length=1)] | None = None
    """Name of the model. `None` means the provider's default: `gpt-4.1-mini` for openai, `qwen3:8b` for
    ollama.
    """

    base_url: str | None = None
    """URL of the server. `None` means the URL in the environment, such as in `OPENAI_BASE_URL`, or else the
    provider's own service.
    """

    context_window: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Tokens of a prompt and its reply together. `None` means that of the model, as far as it is known.
    Ollama is configured to this size (`num_ctx`).
    """

    api_key_env: str | None = None
    """Environment variable of the key. `None` means that of the provider, such as `OPENAI_API_KEY`."""

    _unbound_by: str = PrivateAttr(default="")

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        try:
            return None if url is None else checked_url(url)
        except ValueError:  # The message must not repeat the URL, which may contain a key.
            example = "http://localhost:8000/v1"
            raise ValueError(f"expected a URL such as {example}, without a name, password or query") from None

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                "expected the name of an environment variable, such as OPENAI_API_KEY, not a key"
            )
        return name

    @property
    def name(self) -> str:
        """The full name of the model, as `tl.Lab` accepts it."""
        if self.model is None:
            return whole_name(self.provider or "ollama")
        named = provider_in(self.model)
        whole = "/" in self.model and canonical_provider(named) == canonical_provider(self.provider or named)
        if named and (self.provider is None or whole):
            return self.model
        return f"{self.provider or 'ollama'}/{self.model}"

    @property
    def is_keyless(self) -> bool:
        """Whether the server receives no key, since a project file names the server or the key."""
        return bool(self._unbound_by)

    def bind(self, bound: Collection[tuple[str, str]], file: str) -> None:
        """Send no key, unless the server is the provider's own or on this machine, or the user has bound the
        key to the server.

        Args:
            bound: Pairs (variable of a key, server to which the user's own settings bind it).
            file: The name of the project file that names the server or the key, for a warning.
        """
        server, provider = self._server, self._provider
        own_key = self.api_key_env is None or is_key_of(self.api_key_env, provider)
        is_home = own_key and (not server or is_safe_url(server, provider))
        is_safe = is_home or (server is not None and is_safe_url(server, ""))
        if in_environment := url_in_environment(provider):
            bound = {*bound, *((variable, origin(in_environment)) for variable in key_variables(provider))}
        self._unbound_by = "" if is_safe or self.pairs() <= {*bound} else file

    def pairs(self) -> set[tuple[str, str]]:
        """Return pairs (variable that may hold the key, server that receives the key)."""
        server = self._server or self._provider
        place = origin(server) if "://" in server else server
        return {(variable, place) for variable in self._variables}

    @property
    def _provider(self) -> str:
        return provider_of(whole_name(self.name)) or self.provider or ""

    @property
    def _server(self) -> str | None:
        """The URL of the server. `None` means the provider's own service."""
        in_name = self.name if "://" in self.name else None  # litellm reads a server from some names
        return in_name or self.base_url or url_in_environment(self._provider)

    @property
    def _variables(self) -> tuple[str, ...]:
        return (self.api_key_env,) if self.api_key_env else key_variables(self._provider)

    def endpoint(self) -> Model | Endpoint:
        """Return the model that these settings describe.

        Raises:
            SettingsError: If these settings do not describe a model.
        """
        name = self.name
        given = {field: getattr(self, field) for field in _OF_A_PROVIDER if getattr(self, field) is not None}
        key = given.pop("api_key_env", None)
        if key is not None and not os.environ.get(key):
            # A name in lower case may be a key that was entered by mistake, which must not be shown.
            missing = key if key.isupper() else "of that name"
            raise SettingsError(
                f"api_key_env: the environment has no variable {missing}. It should hold the key of {name}."
            )
        if self.model is None and not provider_of(name) and name not in names("models"):
            raise SettingsError(f"provider {self.provider!r} has no default model: set `model`.")
        if key is not None:
            given["api_key"] = os.environ[key]
        if self._unbound_by:
            given["api_key"] = ""
            self._warn_without_key()
        model = model_named(name)
        if not given:
            return model
        unused: Collection[int | str] = given
        if isinstance(model, Endpoint):
            try:
                return model.configured(**given)
            except ValidationError as error:
                problems = error.errors(include_input=False)
                unused = [problem["loc"][0] for problem in problems if problem["type"] == "extra_forbidden"]
                if not unused:
                    raise
        shown = ["api_key_env" if field == "api_key" else field for field in given if field in unused]
        raise SettingsError(f"{name} does not accept {', '.join(shown)}.")

    def _warn_without_key(self) -> None:
        """Warn that the server receives no key, if the environment has a key for it."""
        for variable in filter(os.environ.get, self._variables):
            server = self._server or self._provider
            host = urlsplit(server).hostname if self._server else server
            warnings.warn(
                f"{self._unbound_by}: no key is sent to {host or server!a}: a project file cannot bind the "
                f"key in {variable} to a server. To send it, name provider, base_url and api_key_env in a "
                f"table such as [models.work] of {config_folder() / FILE}.",
                RuntimeWarning,
                stacklevel=3,
            )


# Named models.


def named_model(name: str) -> Model | Endpoint | None:
    """Return the model `models.NAME` of the settings files. `None` if no file defines it.

    Names that already mean a model without settings files are not looked up, so that no file can redirect
    them.

    Raises:
        SettingsError: If the model cannot be used. See `ModelSettings.endpoint`.
    """
    if "/" in name or name in names("models") or provider_in(name) or is_in_table(name):
        return None
    places = [
        SettingsSource("environment", _model_in_environment()),
        *map(in_file, settings_files(Path.cwd())),
    ]
    for place in places:
        tables = place.values.get("models")
        if isinstance(tables, dict) and name in tables:
            check(ModelSettings, place.name, tables[name], ("models", name))
            table = ModelSettings.model_validate(tables[name])
            if place.is_project:
                table.bind(bound_keys(places), place.name)
            return table.endpoint()
    return None


def with_named_models(strategy: S, roles: Collection[str] = ()) -> S:
    """Return `strategy` with each name of a model in the settings files replaced by that model.

    Args:
        strategy: The strategy. Its parts are changed too.
        roles: Names of the lab's roles, which are not replaced.
    """

    def named(part: Part) -> dict[str, Any]:
        name = getattr(part, "model", None)
        if not isinstance(name, str) or name in roles or is_model(part):
            return {}
        model = named_model(name)
        return {} if model is None else {"model": model}

    changed: S = map_parts(strategy, named)
    return changed


# Validation.


def check(kind: type[BaseModel], place: str, values: Any, table: tuple[str, ...] = ()) -> None:
    """Raise `SettingsError` if the settings of one source are not valid.

    Args:
        kind: The class of the settings.
        place: The name of the source, such as a path or `environment`.
        values: The settings.
        table: The path of the table that holds them, in a file.
    """
    try:
        kind.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        path = (*table, *map(str, problem["loc"]))
        key = ".".join(path) if place != "environment" else f"{PREFIX}{'_'.join(path).upper()}"
        if problem["type"] == "extra_forbidden":
            reason = unknown(path[-1], TABLES.get(path[0], kind).model_fields)
        else:
            reason = problem["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{place}: {key}: {reason}") from None


TABLES: dict[str, type[BaseModel]] = {
    "models": ModelSettings,
    "research": ResearchDelegate,
    "budget": Budget,
}
"""The settings that are TOML tables in a file, and their classes."""


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the message about the unknown setting `name`. `known` are the accepted names."""
    if _SECRET.search(name):
        return (
            "settings must not hold keys. Put the key into an environment variable: the provider's own, such "
            "as OPENAI_API_KEY, or one that api_key_env names."
        )
    return f"unknown setting; {known_names(name, known)}"


# Keys and servers.


def bound_keys(places: Sequence[SettingsSource]) -> set[tuple[str, str]]:
    """Return pairs (variable of a key, server to which the user's own settings bind it).

    Raises:
        SettingsError: If one of these sources contains an invalid setting.
    """
    own = [place for place in places if not place.is_project]
    tables: list[Mapping[str, Any]] = []
    for place in own:
        values = {name: place.values[name] for name in ModelSettings.model_fields if name in place.values}
        check(ModelSettings, place.name, values)
        tables += place.values.get("models", {}).values()
    chosen = model_places(own, {})
    tables.append({name: place.values[name] for name, place in chosen.items()})
    return set[tuple[str, str]]().union(*(ModelSettings.model_validate(table).pairs() for table in tables))


def _model_in_environment() -> dict[str, str]:
    variables = {name: f"{PREFIX}{name.upper()}" for name in ("provider", "model", "base_url", "api_key_env")}
    return {name: os.environ[variable] for name, variable in variables.items() if os.environ.get(variable)}


def model_places(places: Sequence[SettingsSource], models: Mapping[str, Any]) -> dict[str, SettingsSource]:
    """Return the source of each setting of the model. `models` are the named models.

    A named model (`models.NAME`) is complete, so sources of lower precedence add nothing to it.
    """
    chosen: dict[str, SettingsSource] = {}
    named = ""
    for place in places:
        values = place.values
        here = {name: place for name in ModelSettings.model_fields if name in values}
        own = values.get("model") in models and "model" not in chosen
        provider = "" if own else values.get("provider") or provider_in(values.get("model", ""))
        if named and (own or not provider or canonical_provider(provider) != canonical_provider(named)):
            continue
        chosen = {**here, **chosen}
        if own:
            break
        named = named or provider
    return chosen


# Providers.


def provider_in(model: str) -> str:
    """Return the provider in the name of a model.

    Returns "" for a name without a provider, such as `qwen3:8b` of Ollama, in which a tag follows the colon.
    """
    if model.startswith("local:"):
        return "local"
    whole = whole_name(model)  # a provider's name alone means its default model
    return "" if ":" in whole and "/" not in whole else provider_of(whole)


def canonical_provider(provider: str) -> str:
    """Return one canonical name of a provider: `google` and `gemini` are the same."""
    return provider_of(whole_name(f"{provider}/"))
