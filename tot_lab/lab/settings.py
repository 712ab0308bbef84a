"""Settings of a session: the model, its cache, its tools, and the limits of a query.

Settings come from several places, and the nearest place takes precedence:

    an option of the call   >   the environment, TOT_LAB_…   >   tot_lab.toml in the working directory
    or the nearest folder above it   >   tot_lab.toml in the user's config folder   >   the defaults

A server, its model and its key belong to one provider. Once a place names the provider, farther places
contribute these settings only if they name the same one, so that no key reaches another provider. A server
that is named without a key receives the key of the provider; the first line of each query shows it. Files
never hold keys: `api_key_env` names the environment variable that does. Errors name the place and the
setting. Files of other users are ignored.

A project file may come from a stranger's repository. Until the user approves it with `tot-lab trust`, a file
that names a server or a key works only with a server on this machine or the provider's own, its cache must
lie below its own folder, and its tools must not have effects.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import tomllib
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from tot_lab.core.attach import attach
from tot_lab.core.calls import Model
from tot_lab.core.files import config_folder, data_folder, write_whole
from tot_lab.core.parts import Part, known_names, map_parts
from tot_lab.core.registry import names
from tot_lab.core.strategy import Strategy
from tot_lab.core.thinking import Budget
from tot_lab.models import LiteLLM, Local, model_named
from tot_lab.models.chat.endpoint import ChatEndpoint
from tot_lab.models.lite_llm.naming import (
    checked_url,
    is_safe_url,
    key_variables,
    provider_of,
    url_in_environment,
    whole_name,
)
from tot_lab.models.lite_llm.table import is_in_table
from tot_lab.models.named import configured
from tot_lab.models.stack import Endpoint, is_model
from tot_lab.strategies import ResearchDelegate
from tot_lab.tools import EffectPolicy, Tool, tools_named

if TYPE_CHECKING:
    from tot_lab.lab.lab import Lab

S = TypeVar("S", bound=Strategy)

FILE = "tot_lab.toml"
"""Name of a settings file."""

PREFIX = "TOT_LAB_"
"""Prefix of the environment variables."""

_OTHERS = ("TOT_LAB_MODELS",)  # the folder of weights, which is not one of these settings
_OF_A_PROVIDER = ("base_url", "context_window", "api_key_env")
_IN_FILES = ("models", "research", "budget", "tools", "allow")  # no single variable can hold them
_SECRET = re.compile(r"(?:key|token|secret|password)s?$", re.IGNORECASE)


class SettingsError(ValueError):
    """A setting that cannot be used. The message names its place and the setting."""


class ModelSettings(BaseModel):
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
    """URL of the server. `None` means the provider's own."""

    context_window: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Tokens of a prompt and its reply together. Ollama is configured to this size (`num_ctx`)."""

    api_key_env: str | None = None
    """Environment variable that holds the key. `None` means the provider's, such as `OPENAI_API_KEY`."""

    _refusal: str = PrivateAttr(default="")
    """Why the model must not be called: an unapproved project file names its server or its key."""

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
        named = _provider_in(self.model)
        whole = "/" in self.model and _canonical_provider(named) == _canonical_provider(
            self.provider or named
        )
        if named and (self.provider is None or whole):
            return self.model
        return f"{self.provider or 'ollama'}/{self.model}"

    def endpoint(self) -> Model | Endpoint:
        """Return the model.

        Raises:
            SettingsError: If these settings do not describe a model, or an unapproved project file must not
                use it.
        """
        if self._refusal:
            raise SettingsError(self._refusal)
        name = self.name
        given = {field: getattr(self, field) for field in _OF_A_PROVIDER if getattr(self, field) is not None}
        key = given.pop("api_key_env", None)
        if key is not None and not os.environ.get(key):
            # A name in lower case may be a key that was entered by mistake.
            missing = key if key.isupper() else "of that name"
            raise SettingsError(
                f"api_key_env: the environment has no variable {missing}. It should hold the key of {name}."
            )
        model = model_named(name)
        if isinstance(model, ChatEndpoint):
            if isinstance(model, LiteLLM) and "/" not in model.name and not model.provider:
                raise SettingsError(f"provider {self.provider!r} has no default model: set `model`.")
            return configured(model, **given, api_key=key and os.environ[key])
        if isinstance(model, Local) and given.keys() <= {"context_window"} and key is None:
            return Local(weights=model.weights, **given)
        if given or key:
            unused = ", ".join([*given, *(["api_key_env"] if key else [])])
            raise SettingsError(f"{name} does not accept {unused}.")
        return model


class Settings(ModelSettings):
    """Settings of a session. `tl.Settings.read()` collects them."""

    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Named models, which `tl.Lab`, roles and strategies accept too. `model` may be one of these names."""

    cache: Path | None = None
    """Folder of cached replies, relative to the file that names it. `None` means the user's own."""

    research: ResearchDelegate = ResearchDelegate()
    """How research is delegated; see `tl.records.ResearchDelegate`."""

    budget: Budget | None = None
    """Limits on each query. `None` means no limits."""

    tools: tuple[str | dict[str, Any], ...] = ()
    """Tools of the lab: names (`calculator`), or tables of a name and its settings (`{name = "read_file",
    root = "docs"}`, with paths relative to the file).
    """

    allow: frozenset[str] = frozenset()
    """Effects that the tools may have: `files`, `network`, `process`. Only the user's own or an approved
    project file can allow any.
    """

    _read: tuple[Path, ...] = PrivateAttr(default=())
    _tools_from: _Place | None = PrivateAttr(default=None)

    @classmethod
    def read(cls, folder: str | os.PathLike[str] | None = None, **given: Any) -> Self:
        """Collect the settings that apply in `folder`.

        Args:
            folder: `None` means the working directory.
            given: Options, which take precedence over every other place. `None` means that an option was not
                given.

        Raises:
            SettingsError: If a setting cannot be used, or an unapproved project file names a server or a key
                for the model.
        """
        folder = Path.cwd() if folder is None else Path(folder).absolute()
        options = {name: value for name, value in given.items() if value is not None}
        files = list(_files(folder))
        places = [_Place("option", options), _Place("environment", _environment()), *map(_in_file, files)]
        for place in places:
            _check(cls, place.name, place.values)
        merged, sources = _merged(places)
        settings = cls.model_validate(merged)
        settings._read = tuple(files)
        settings._refuse(sources)
        return settings

    def _refuse(self, sources: Mapping[str, _Place]) -> None:
        """Mark the models to which an unapproved file gives a server or a key.

        Args:
            sources: The place from which each setting comes.

        Raises:
            SettingsError: If the chosen model is one of them, or the cache or the effects are not permitted.
        """
        for name, table in self.models.items():
            place = sources[f"models.{name}"]
            table._refusal = _refusal(place, f"models.{name}.", table, table.model_fields_set)
        if self.model in self.models:
            refusal = self.models[self.model]._refusal
        else:
            unapproved = {
                name for name in ModelSettings.model_fields if not sources.get(name, _DEFAULT).is_approved
            }
            place = next((sources[name] for name in unapproved), _DEFAULT)
            refusal = self._refusal = _refusal(place, "", self, unapproved)
        refusal = refusal or _cache_refusal(sources.get("cache", _DEFAULT), self.cache)
        refusal = refusal or _allow_refusal(sources.get("allow", _DEFAULT), self.allow)
        self._tools_from = sources.get("tools", _DEFAULT)
        if refusal:
            raise SettingsError(refusal)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that were read, the nearest first."""
        return self._read

    @property
    def chosen(self) -> ModelSettings:
        """The settings of the model to call: these, or the entry of `models` that `model` names."""
        own = {name: getattr(self, name) for name in ModelSettings.model_fields}
        if self.model not in self.models:
            chosen = ModelSettings(**own)
            chosen._refusal = self._refusal
            return chosen
        beside = [name for name, value in own.items() if value is not None and name != "model"]
        if beside:
            table = f"models.{self.model}"
            raise SettingsError(
                f"{', '.join(beside)} cannot be combined with {table}, which describes its model."
            )
        return self.models[self.model]

    @property
    def summary(self) -> str:
        """The model, its server and the settings files, in one line."""
        chosen = self.chosen
        where = f" at {chosen.base_url}" if chosen.base_url else ""
        files = ", ".join(map(str, self.files))
        return f"{chosen.name}{where}" + (f" (settings: {files})" if files else "")

    if TYPE_CHECKING:  # attached below

        def lab(self, **more: Any) -> Lab:
            """Return a lab with these settings. `more` are arguments of `tl.Lab` that replace them."""

    def equipment(self) -> dict[str, Any]:
        """Return the tools and their effect policy as arguments of `tl.Lab`. Raises `SettingsError`."""
        tools: list[Tool] = []
        for tool in self.tools:
            given = {"name": tool} if isinstance(tool, str) else dict(tool)
            try:
                tools += tools_named(str(given.pop("name", "")), given)
            except (ValueError, TypeError) as error:
                raise SettingsError(f"tools: {error}") from None
        policy = EffectPolicy(allow=self.allow)
        place = self._tools_from
        for one in tools:
            if one.effects and place is not None and not place.is_approved:
                raise SettingsError(
                    f"{place.name}: tools: this project file may name only tools that compute: got "
                    f"{one.name}, which has {', '.join(one.effects)}. "
                    f"{_ADVICE.format(shlex.quote(place.name))}"
                )
            if policy.refusal(one.spec):
                raise SettingsError(
                    f"tools: {one.name} has the effects {', '.join(one.effects)}, which are not allowed. "
                    f"Pass --allow {','.join(one.effects)}, or set `allow` in {config_folder() / FILE}."
                )
        return {"tools": tools, "effect_policy": policy} if tools else {}


attach(Settings, "tot_lab.lab.configured", "lab")


# Named models.


def named_model(name: str) -> Model | Endpoint | None:
    """Return the model `models.NAME` of the settings files. `None` if no file names it.

    Names that mean a model without the files are never looked up, so that no file can redirect them.

    Raises:
        SettingsError: If the model cannot be used. See `ModelSettings.endpoint`.
    """
    if "/" in name or name in names("models") or _provider_in(name) or is_in_table(name):
        return None
    for place in map(_in_file, _files(Path.cwd())):
        tables = place.values.get("models")
        if isinstance(tables, dict) and name in tables:
            _check(Settings, place.name, {"models": {name: tables[name]}})
            table = ModelSettings.model_validate(tables[name])
            table._refusal = _refusal(place, f"models.{name}.", table, table.model_fields_set)
            return table.endpoint()
    return None


def with_named_models(strategy: S, roles: Collection[str] = ()) -> S:
    """Return `strategy` with the models of the settings files in place of their names.

    Args:
        strategy: The strategy. Its parts are changed too.
        roles: Roles of the lab, which take precedence.
    """

    def named(part: Part) -> dict[str, Any]:
        name = getattr(part, "model", None)
        if not isinstance(name, str) or name in roles or is_model(part):
            return {}
        model = named_model(name)
        return {} if model is None else {"model": model}

    changed: S = map_parts(strategy, named)
    return changed


# Places of settings.


class _Place(NamedTuple):
    """The settings of one place.

    `is_approved` tells whether it may combine any server with any key: true for every place but a project
    file that the user has not approved.
    """

    name: str
    values: dict[str, Any]
    is_approved: bool = True


_DEFAULT = _Place("default", {})


def _files(folder: Path) -> Iterator[Path]:
    """Yield the nearest settings file in `folder` or above it, then the user's own."""
    above = (place / FILE for place in (folder, *folder.parents))
    nearest = next((path for path in above if path.is_file() and _is_trusted_owner(path)), None)
    own = config_folder() / FILE
    if nearest is not None:
        yield nearest
    if own.is_file() and own != nearest:
        yield own


def _is_trusted_owner(path: Path) -> bool:
    """Whether a file belongs to this user or to the system.

    In a shared folder anybody could add a file that sends prompts and a key to another server.
    """
    if not hasattr(os, "getuid") or path.stat().st_uid in (os.getuid(), 0):
        return True
    warnings.warn(f"{path}: ignored, since it belongs to another user.", RuntimeWarning, stacklevel=5)
    return False


def project_file(folder: Path) -> Path | None:
    """Return the project file that applies in `folder`, or `None` if only the user's own file does."""
    return next((path for path in _files(folder) if path != config_folder() / FILE), None)


def allowed_by_user() -> frozenset[str]:
    """Return the effects that the user's own file allows tools to have. Raises `SettingsError`."""
    path = config_folder() / FILE
    if not path.is_file():
        return frozenset()
    place = _in_file(path)
    _check(Settings, place.name, place.values)
    return Settings.model_validate(place.values).allow


def approve_project_file(path: Path) -> list[str]:
    """Approve the current content of a project file.

    Returns:
        One line for each server, key, folder and tool that it names, and for the effects that it allows.

    Raises:
        SettingsError: If the file cannot be used at all.
        OSError: If it cannot be read.
    """
    if path.name != FILE:
        raise SettingsError(f"expected a file called {FILE}: got {str(path)!r}")
    if not _is_trusted_owner(path):
        raise SettingsError(f"{path}: the file belongs to another user and is always ignored.")
    content = path.read_bytes()
    place = _in_file(path, content)
    _check(Settings, place.name, place.values)
    write_whole(_approval(path, content), os.fsencode(path) + b"\n")
    tables = {"": place.values} | {
        f"models.{name}.": table for name, table in place.values.get("models", {}).items()
    }
    names = ("base_url", "api_key_env", "cache", "tools", "allow")
    return [
        f"{prefix}{name} = {str(table[name])!r}"
        for prefix, table in tables.items()
        for name in names
        if name in table
    ]


def _approval(path: Path, content: bytes) -> Path:
    """Return the file that records the approval of this content at `path`.

    As with `direnv allow`, a file that changes or moves needs a new approval.
    """
    place = path.parent.resolve() / path.name
    digest = hashlib.sha256(os.fsencode(place) + b"\0" + content).hexdigest()
    return data_folder() / "trusted" / digest


def _in_file(path: Path, content: bytes | None = None) -> _Place:
    if content is None:
        content = path.read_bytes()  # read once, so that the approved content is the content in use
    try:
        values = tomllib.loads(content.decode())
    except ValueError as error:  # invalid TOML or UTF-8
        raise SettingsError(f"{path}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{path}: the file is nested too deeply.") from None
    if isinstance(values.get("cache"), str):
        values["cache"] = path.parent / Path(values["cache"]).expanduser()
    for tool in values["tools"] if isinstance(values.get("tools"), list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("root"), str):
            tool["root"] = str(path.parent / Path(tool["root"]).expanduser())
    return _Place(str(path), values, path == config_folder() / FILE or _approval(path, content).is_file())


def _environment() -> dict[str, Any]:
    """Return the settings in the environment: TOT_LAB_MODEL, TOT_LAB_BUDGET_CALLS, …"""
    names = {
        f"{PREFIX}{'_'.join(path).upper()}": path
        for path in [
            *((name,) for name in Settings.model_fields if name not in _IN_FILES),
            *(("research", name) for name in ResearchDelegate.model_fields),
            *(("budget", name) for name in Budget.model_fields),
        ]
    }
    found: dict[str, Any] = {}
    for name, text in os.environ.items():
        if not name.startswith(PREFIX) or name in _OTHERS or not text:
            continue
        if name not in names:
            raise SettingsError(f"environment: {name}: {_unknown(name, names)}")
        *tables, last = names[name]
        place = found
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = text if not tables and last != "context_window" else _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# Validation.


def _check(kind: type[BaseModel], place: str, values: Mapping[str, Any]) -> None:
    """Raise `SettingsError` if the settings of one place are not valid."""
    try:
        kind.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        path = tuple(map(str, problem["loc"]))
        key = ".".join(path) if place != "environment" else f"{PREFIX}{'_'.join(path).upper()}"
        if problem["type"] == "extra_forbidden":
            reason = _unknown(path[-1], _TABLES.get(path[0], Settings).model_fields)
        else:
            reason = problem["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{place}: {key}: {reason}") from None


_TABLES: dict[str, type[BaseModel]] = {
    "models": ModelSettings,
    "research": ResearchDelegate,
    "budget": Budget,
}


def _unknown(name: str, known: Iterable[str]) -> str:
    if _SECRET.search(name):
        return (
            "settings must not hold keys. Put the key into an environment variable: the provider's own, such "
            "as OPENAI_API_KEY, or one that api_key_env names."
        )
    return f"unknown setting; {known_names(name, known)}"


# What an unapproved project file may not do.


def _refusal(place: _Place, prefix: str, table: ModelSettings, given: Collection[str]) -> str:
    """Return why the model of `table` must not be called, or "". `given` are the settings that `place`
    contributes.
    """
    provider = provider_of(whole_name(table.name)) or table.provider or ""
    server = table.base_url or url_in_environment(provider)
    if not place.is_approved and "://" in table.name:  # litellm reads a server from some names
        return (
            f"{place.name}: {prefix}model: this project file may not name a server: got {table.name!r}. "
            f"{_ADVICE.format(shlex.quote(place.name))}"
        )
    named = [name for name in ("base_url", "api_key_env") if name in given]
    if place.is_approved or not named or server is None or is_safe_url(server, provider):
        return ""
    variable = table.api_key_env or key_variables(provider)[-1]
    if not variable.isupper():  # it may be a key that was entered by mistake
        variable = "the variable that api_key_env names"
    host = urlsplit(server).hostname
    return (
        f"{place.name}: {prefix}{named[0]}: this project file may not combine a server with a key: got the "
        f"server {host!a} and the key in {variable}. {_ADVICE.format(shlex.quote(place.name))}"
    )


def _cache_refusal(place: _Place, cache: Path | None) -> str:
    """Return why this cache must not be used, or ""."""
    if place.is_approved or cache is None:
        return ""
    if cache.resolve().is_relative_to(Path(place.name).parent.resolve()):
        return ""
    return (
        f"{place.name}: cache: this project file may name a folder only below its own: got "
        f"{str(cache.resolve())!r}. {_ADVICE.format(shlex.quote(place.name))}"
    )


def _allow_refusal(place: _Place, allow: Iterable[str]) -> str:
    """Return why these effects must not be allowed, or ""."""
    if place.is_approved or not allow:
        return ""
    return (
        f"{place.name}: allow: this project file may not allow what tools do: got {sorted(allow)}. "
        f"{_ADVICE.format(shlex.quote(place.name))}"
    )


_ADVICE = "Read the file; if you trust it, approve it with: tot-lab trust {}"


# Merging.


def _merged(places: Sequence[_Place]) -> tuple[dict[str, Any], dict[str, _Place]]:
    """Merge the settings of several places, the nearest first.

    Returns:
        The merged settings, and the place of each. A named model is one setting, `models.NAME`.
    """
    merged: dict[str, Any] = {}
    sources: dict[str, _Place] = {}
    for place in reversed(places):
        for name, value in place.values.items():
            if name in _TABLES:
                merged[name] = {**merged.get(name, {}), **dict(value)}
                sources |= {f"{name}.{inside}": place for inside in dict(value)}
            elif name not in ModelSettings.model_fields:
                merged[name] = value
                sources[name] = place
    chosen = _model_places(places, merged.get("models", {}))
    values = {name: place.values[name] for name, place in chosen.items()}
    return {**merged, **values}, {**sources, **chosen}


def _model_places(places: Sequence[_Place], models: Mapping[str, Any]) -> dict[str, _Place]:
    """Return the place from which each setting of the model comes.

    A named model describes its model completely, so that farther places add nothing to it.
    """
    chosen: dict[str, _Place] = {}
    named = ""
    for place in places:
        values = place.values
        here = {name: place for name in ModelSettings.model_fields if name in values}
        own = values.get("model") in models and "model" not in chosen
        provider = "" if own else values.get("provider") or _provider_in(values.get("model", ""))
        if named and (own or not provider or _canonical_provider(provider) != _canonical_provider(named)):
            continue
        chosen = {**here, **chosen}
        if own:
            break
        named = named or provider
    return chosen


def _provider_in(model: str) -> str:
    """Return the provider in the name of a model.

    This is "" for a bare name such as Ollama's, in which a tag follows a colon.
    """
    if model.startswith("local:"):
        return "local"
    whole = whole_name(model)  # a provider's name alone means its default model
    return "" if ":" in whole and "/" not in whole else provider_of(whole)


def _canonical_provider(provider: str) -> str:
    """Return one canonical name of a provider: `google` and `gemini` are the same."""
    return provider_of(whole_name(f"{provider}/"))
