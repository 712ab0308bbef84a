"""The settings of a session: which model is asked, where its answers are kept, what a thought may use.

Rule: of the places that say something, the nearest is heard:

    an option given in the call   >   the environment, TOT_LAB_…   >   tot_lab.toml in the working directory
    or the nearest folder above it   >   tot_lab.toml in the user's own config folder   >   the defaults

A server, its model and its key belong to one provider: once a place has named the provider, farther ones are
heard on these only where they name the same, so that no key goes to another provider. A server that is named
alone is asked with the provider's key: it stands in the first line of each thought. A key stands in no file;
`api_key_env` names the environment variable that holds it. What cannot be used is named with its place and
its key. A file that belongs to another user is not read.

A project file may come from a stranger, with a repository that was cloned. Until the user approves it
(`tot-lab trust`), a key goes to a server only if that server is on this machine or is
the provider's own, as soon as the file names the server or the key; and its cache lies in its own folder.
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
from typing import Annotated, Any, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from tot_lab.core.calls import Model
from tot_lab.core.files import config_folder, data_folder, write_whole
from tot_lab.core.parts import known_names
from tot_lab.core.thinking import Budget
from tot_lab.lab.lab import Lab
from tot_lab.models import LiteLLM, Local, model_named
from tot_lab.models.lite_llm.naming import (
    checked_url,
    is_safe_url,
    key_variables,
    provider_of,
    url_in_environment,
    whole_name,
)
from tot_lab.models.stack import Endpoint
from tot_lab.strategies import ResearchDelegate
from tot_lab.tools import EffectPolicy, Tool, tools_named

FILE = "tot_lab.toml"
"""What a file of settings is called."""

PREFIX = "TOT_LAB_"
"""What the environment variables begin with."""

_OTHERS = ("TOT_LAB_MODELS",)  # a folder of weights: no setting of these
_OF_A_PROVIDER = ("base_url", "context_window", "api_key_env")
_IN_FILES = ("models", "research", "budget", "tools", "allow")  # no variable stands for the whole of them
_SECRET = re.compile(r"(?:key|token|secret|password)s?$", re.IGNORECASE)


class SettingsError(ValueError):
    """A setting that cannot be used; the message names its place and its key."""


class ModelSettings(BaseModel):
    """A model of a provider.

    provider: `openai`, `ollama`, `anthropic`, `google`, or any other that litellm knows. None = what the
        model's name says (`openai/…`, `gpt-…`, `sim/…`, `local/…`), else `ollama`.
    model: None = the provider's default: `gpt-4.1-mini` of openai, `qwen3:8b` of ollama.
    base_url: the server, where it is not the provider's own.
    context_window: tokens of prompt and reply together; Ollama is told to keep so many (`num_ctx`).
    api_key_env: the environment variable that holds the key, None = the provider's (`OPENAI_API_KEY`, …).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    provider: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    base_url: str | None = None
    context_window: Annotated[int, Field(ge=1, strict=True)] | None = None
    api_key_env: str | None = None
    _refusal: str = PrivateAttr(default="")
    """Why this model may not be asked: an unapproved project file names its server or its key."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        try:
            return None if url is None else checked_url(url)
        except ValueError:  # there may be a key in it
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
        """The model's whole name, as `tl.Lab` takes it."""
        if self.model is None:
            return whole_name(self.provider or "ollama")
        said = _provider_in(self.model)
        whole = "/" in self.model and _same(said) == _same(self.provider or said)
        if said and (self.provider is None or whole):
            return self.model
        return f"{self.provider or 'ollama'}/{self.model}"

    def asked(self) -> Model | Endpoint:
        """The model itself. Raises `SettingsError` for one that cannot be had with these settings, or that
        an unapproved project file may not have asked."""
        if self._refusal:
            raise SettingsError(self._refusal)
        name = self.name
        given = {field: getattr(self, field) for field in _OF_A_PROVIDER if getattr(self, field) is not None}
        key = given.pop("api_key_env", None)
        if key is not None and not os.environ.get(key):
            lacking = key if key.isupper() else "variable of that name"  # it may be a key
            raise SettingsError(
                f"api_key_env: the environment has no {lacking}, where the key of {name} should be"
            )
        model = model_named(name)
        if isinstance(model, LiteLLM):
            if "/" not in model.name and not model.provider:
                raise SettingsError(f"provider {self.provider!r} has no default model: name a model")
            given |= {"api_base": given.pop("base_url", None), "api_key": key and os.environ[key]}
            return LiteLLM(model=name, **given)
        if isinstance(model, Local) and given.keys() <= {"context_window"} and key is None:
            return Local(weights=model.weights, **given)
        if given or key:
            lacking = ", ".join([*given, *(["api_key_env"] if key else [])])
            raise SettingsError(f"{name} takes no {lacking}")
        return model


class Settings(ModelSettings):
    """What a session works with; `tl.Settings.read()` finds it.

    provider, model, base_url, context_window, api_key_env: who is asked, as in a table of `models`.
    models: such tables by a name of your own, which `model` may say.
    cache: folder of known answers, relative to the file that names it; None = the user's own.
    research: see `tl.records.ResearchDelegate`. budget: caps on each thought (`tl.Budget`), None = none.
    tools: what the lab has for gathering: names (`calculator`), or tables of a name and its settings
        (`{name = "read_file", root = "docs"}`; paths are relative to the file).
    allow: the effects that these tools may have (`files`, `network`, `process`). A project file that was
        not approved (`tot-lab trust`) cannot allow any.
    """

    models: dict[str, ModelSettings] = Field(default_factory=dict)
    cache: Path | None = None
    research: ResearchDelegate = ResearchDelegate()
    budget: Budget | None = None
    tools: tuple[str | dict[str, Any], ...] = ()
    allow: frozenset[str] = frozenset()
    _read: tuple[Path, ...] = PrivateAttr(default=())
    _tools_from: _Place | None = PrivateAttr(default=None)

    @classmethod
    def read(cls, folder: str | os.PathLike[str] | None = None, **given: Any) -> Self:
        """The settings that hold in `folder` (None = the working directory). given: options, which go
        before all else; None = not given. Raises `SettingsError`, also where an unapproved project file names
        a server or a key for the model that would be asked."""
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
        """Refuse each model that an unapproved file gives a server or a key. sources: the place that each
        setting comes from. Raises `SettingsError` if it is the chosen one, or for the cache."""
        for name, table in self.models.items():
            place = sources[f"models.{name}"]
            table._refusal = _refusal(place, f"models.{name}.", table, table.model_fields_set)
        if self.model in self.models:
            refusal = self.models[self.model]._refusal
        else:
            told = {
                name for name in ModelSettings.model_fields if not sources.get(name, _DEFAULT).is_approved
            }
            place = next((sources[name] for name in told), _DEFAULT)
            refusal = self._refusal = _refusal(place, "", self, told)
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
        """Who is asked: what these settings say, or the table of `models` that `model` names."""
        told = {name: getattr(self, name) for name in ModelSettings.model_fields}
        if self.model not in self.models:
            chosen = ModelSettings(**told)
            chosen._refusal = self._refusal
            return chosen
        beside = [name for name, value in told.items() if value is not None and name != "model"]
        if beside:
            table = f"models.{self.model}"
            raise SettingsError(f"{table} says all of its model: {', '.join(beside)} cannot stand beside it")
        return self.models[self.model]

    @property
    def told(self) -> str:
        """Who is asked, and by the word of which files."""
        chosen = self.chosen
        where = f" at {chosen.base_url}" if chosen.base_url else ""
        files = ", ".join(map(str, self.files))
        return f"{chosen.name}{where}" + (f" (settings: {files})" if files else "")

    def lab(self, **more: Any) -> Lab:
        """A lab with these settings. more: those of `tl.Lab` (`tools`, `runs`, `mode`, …)."""
        equipment = {} if "tools" in more else self._equipment()
        return Lab(self.chosen.asked(), **{"cache": self.cache, **equipment, **more})

    def _equipment(self) -> dict[str, Any]:
        """The tools and what they may do, as `tl.Lab` takes them. Raises `SettingsError`."""
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
                    f"tools: {one.name} has the effects {', '.join(one.effects)}, which nothing allows. Pass "
                    f"--allow {','.join(one.effects)}, or put `allow` into {config_folder() / FILE}"
                )
        return {"tools": tools, "effect_policy": policy} if tools else {}


# Where they stand.


class _Place(NamedTuple):
    """What one place says. is_approved: whether it may combine any server with any key, as all places may
    but a project file that the user has not approved."""

    name: str
    values: dict[str, Any]
    is_approved: bool = True


_DEFAULT = _Place("default", {})


def _files(folder: Path) -> Iterator[Path]:
    """The nearest file in `folder` or above it, and the user's."""
    above = (place / FILE for place in (folder, *folder.parents))
    nearest = next((path for path in above if path.is_file() and _ours(path)), None)
    own = config_folder() / FILE
    if nearest is not None:
        yield nearest
    if own.is_file() and own != nearest:
        yield own


def _ours(path: Path) -> bool:
    """Whether a file is this user's or the system's: what anybody may put in a shared folder could send
    questions, and a key, to any server."""
    if not hasattr(os, "getuid") or path.stat().st_uid in (os.getuid(), 0):
        return True
    warnings.warn(f"{path}: this file belongs to another user, and is not read", RuntimeWarning, stacklevel=5)
    return False


def project_file(folder: Path) -> Path | None:
    """The project file that is read in `folder`; None if there is none but the user's own."""
    return next((path for path in _files(folder) if path != config_folder() / FILE), None)


def allowed_by_user() -> frozenset[str]:
    """The effects that the user's own file allows tools to have. Raises `SettingsError`."""
    path = config_folder() / FILE
    if not path.is_file():
        return frozenset()
    place = _in_file(path)
    _check(Settings, place.name, place.values)
    return Settings.model_validate(place.values).allow


def approve_project_file(path: Path) -> list[str]:
    """Approve the project file as it is now. Returns a line for each server, key, folder and tool that it
    names, and for what it allows tools to do.
    Raises `SettingsError` if it cannot be used anyway, and OSError if it cannot be read."""
    if path.name != FILE:
        raise SettingsError(f"expected a file called {FILE}: got {str(path)!r}")
    if not _ours(path):
        raise SettingsError(f"{path}: it belongs to another user, so it is never read")
    content = path.read_bytes()
    place = _in_file(path, content)
    _check(Settings, place.name, place.values)
    write_whole(_approval(path, content), os.fsencode(path) + b"\n")
    tables = {"": place.values} | {
        f"models.{name}.": told for name, told in place.values.get("models", {}).items()
    }
    names = ("base_url", "api_key_env", "cache", "tools", "allow")
    return [
        f"{prefix}{name} = {str(told[name])!r}"
        for prefix, told in tables.items()
        for name in names
        if name in told
    ]


def _approval(path: Path, content: bytes) -> Path:
    """Where it is remembered, as `direnv allow` does it, that the user has approved the file at `path` with
    this content: a file that changes, or lies elsewhere, needs a new approval."""
    place = path.parent.resolve() / path.name
    digest = hashlib.sha256(os.fsencode(place) + b"\0" + content).hexdigest()
    return data_folder() / "trusted" / digest


def _in_file(path: Path, content: bytes | None = None) -> _Place:
    if content is None:
        content = path.read_bytes()  # once: what is approved is what is read
    try:
        values = tomllib.loads(content.decode())
    except ValueError as error:  # of TOML, or of UTF-8
        raise SettingsError(f"{path}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{path}: it is nested too deep") from None
    if isinstance(values.get("cache"), str):
        values["cache"] = path.parent / Path(values["cache"]).expanduser()
    for tool in values["tools"] if isinstance(values.get("tools"), list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("root"), str):
            tool["root"] = str(path.parent / Path(tool["root"]).expanduser())
    return _Place(str(path), values, path == config_folder() / FILE or _approval(path, content).is_file())


def _environment() -> dict[str, Any]:
    """What the environment says: TOT_LAB_MODEL, TOT_LAB_BUDGET_CALLS, …"""
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


# Whether they can be used.


def _check(kind: type[BaseModel], place: str, values: Mapping[str, Any]) -> None:
    """`SettingsError` for what one place says and cannot be."""
    try:
        kind.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        path = tuple(map(str, problem["loc"]))
        key = ".".join(path) if place != "environment" else f"{PREFIX}{'_'.join(path).upper()}"
        if problem["type"] == "extra_forbidden":
            said = _unknown(path[-1], _TABLES.get(path[0], Settings).model_fields)
        else:
            said = problem["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{place}: {key}: {said}") from None


_TABLES: dict[str, type[BaseModel]] = {
    "models": ModelSettings,
    "research": ResearchDelegate,
    "budget": Budget,
}


def _unknown(name: str, known: Iterable[str]) -> str:
    if _SECRET.search(name):
        return (
            "no key stands here; it belongs into an environment variable: the provider's own, such as "
            "OPENAI_API_KEY, or one that api_key_env names"
        )
    return f"there is no such setting; {known_names(name, known)}"


# Whether a stranger may have put them there.


def _refusal(place: _Place, prefix: str, table: ModelSettings, told: Collection[str]) -> str:
    """Why the model of `table` may not be asked; "" if it may. told: what `place` says of it."""
    provider = provider_of(whole_name(table.name)) or table.provider or ""
    server = table.base_url or url_in_environment(provider)
    if not place.is_approved and "://" in table.name:  # litellm takes a server out of some names
        return (
            f"{place.name}: {prefix}model: this project file may not name a server: got {table.name!r}. "
            f"{_ADVICE.format(shlex.quote(place.name))}"
        )
    named = [name for name in ("base_url", "api_key_env") if name in told]
    if place.is_approved or not named or server is None or is_safe_url(server, provider):
        return ""
    variable = table.api_key_env or key_variables(provider)[-1]
    if not variable.isupper():  # it may be a key
        variable = "the variable that api_key_env names"
    host = urlsplit(server).hostname
    return (
        f"{place.name}: {prefix}{named[0]}: this project file may not combine a server with a key: got the "
        f"server {host!a} and the key in {variable}. {_ADVICE.format(shlex.quote(place.name))}"
    )


def _cache_refusal(place: _Place, cache: Path | None) -> str:
    """Why that cache may not be used; "" if it may."""
    if place.is_approved or cache is None:
        return ""
    if cache.resolve().is_relative_to(Path(place.name).parent.resolve()):
        return ""
    return (
        f"{place.name}: cache: this project file may name a folder only below its own: got "
        f"{str(cache.resolve())!r}. {_ADVICE.format(shlex.quote(place.name))}"
    )


def _allow_refusal(place: _Place, allow: Iterable[str]) -> str:
    """Why these effects may not be allowed; "" if they may."""
    if place.is_approved or not allow:
        return ""
    return (
        f"{place.name}: allow: this project file may not allow what tools do: got {sorted(allow)}. "
        f"{_ADVICE.format(shlex.quote(place.name))}"
    )


_ADVICE = "Read the file; if you trust it, approve it with: tot-lab trust {}"


# Together.


def _merged(places: Sequence[_Place]) -> tuple[dict[str, Any], dict[str, _Place]]:
    """One set of settings out of those of several places, the nearest first; and the place that each comes
    from, a model of one's own as `models.NAME`."""
    merged: dict[str, Any] = {}
    sources: dict[str, _Place] = {}
    for place in reversed(places):
        for name, told in place.values.items():
            if name in _TABLES:
                merged[name] = {**merged.get(name, {}), **dict(told)}
                sources |= {f"{name}.{inside}": place for inside in dict(told)}
            elif name not in ModelSettings.model_fields:
                merged[name] = told
                sources[name] = place
    who = _who(places, merged.get("models", {}))
    values = {name: place.values[name] for name, place in who.items()}
    return {**merged, **values}, {**sources, **who}


def _who(places: Sequence[_Place], models: Mapping[str, Any]) -> dict[str, _Place]:
    """Who is asked: the place that says each of the settings. A model of one's own brings all that there is
    to say."""
    who: dict[str, _Place] = {}
    named = ""
    for place in places:
        values = place.values
        told = {name: place for name in ModelSettings.model_fields if name in values}
        own = values.get("model") in models and "model" not in who
        provider = "" if own else values.get("provider") or _provider_in(values.get("model", ""))
        if named and (own or not provider or _same(provider) != _same(named)):
            continue
        who = {**told, **who}
        if own:
            break
        named = named or provider
    return who


def _provider_in(model: str) -> str:
    """The provider that a model's name says; "" for a bare name such as Ollama's, whose tag comes after a
    colon."""
    if model.startswith("local:"):
        return "local"
    whole = whole_name(model)  # the name of a provider alone is its default model
    return "" if ":" in whole and "/" not in whole else provider_of(whole)


def _same(provider: str) -> str:
    """A provider by one name: `google` and `gemini` are one."""
    return provider_of(whole_name(f"{provider}/"))
