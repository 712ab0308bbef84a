"""Settings of a session: the model, its cache, its tools, and the limits of a query.

Settings come from several sources, in this order of precedence:

    an option of the call   >   the environment, TOT_LAB_…   >   tot_lab.toml in the working directory
    or the nearest folder above it   >   tot_lab.toml in the user's config folder   >   the defaults

A server, its model and its key belong to one provider. Once a source names the provider, sources of lower
precedence contribute these settings only if they name the same provider, so that no key reaches another
provider.
A server that is named without a key receives the key of the provider; the first line of each query shows the
server. Files never hold keys: `api_key_env` names the environment variable of the key. Errors name the source
and the setting. Files of other users are ignored.

A project file may come from an untrusted repository. A server that it names receives no key, unless the
server is on this machine or the provider's own, or the user's own settings bind the key to it
(`model_settings`). The cache of the file must lie below the folder of the file, and its tools must not have
effects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PrivateAttr

from tot_lab.core.files import config_folder
from tot_lab.core.policy import written
from tot_lab.core.protocol import Budget
from tot_lab.lab.lab import Lab
from tot_lab.lab.model_settings import (
    DEFAULT,
    FILE,
    PREFIX,
    TABLES,
    ModelSettings,
    SettingsError,
    SettingsSource,
    bound_keys,
    check,
    in_file,
    model_places,
    settings_files,
    unknown,
)
from tot_lab.strategies.research import ResearchDelegate
from tot_lab.tools import EffectPolicy, Tool, tools_named

_OTHERS = ("TOT_LAB_MODELS", "TOT_LAB_TOKEN")  # other variables: folder of weights, token of `tot-lab serve`
_IN_FILES = ("models", "research", "budget", "tools", "allow")  # one variable cannot hold a table or a list


class Settings(ModelSettings):
    """Settings of a session. `tl.Settings.read()` collects them."""

    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Models by name. `model`, `tl.Lab`, roles and strategies accept these names."""

    cache: Path | None = None
    """Folder of cached replies, relative to the file that names it. `None` means the user's own cache
    folder.
    """

    research: ResearchDelegate = ResearchDelegate()
    """How research is delegated; see `tl.records.ResearchDelegate`."""

    budget: Budget | None = None
    """Limits on each query. `None` means no limits."""

    tools: tuple[str | dict[str, Any], ...] = ()
    """Tools of the lab: names (`calculator`), or tables of a name and its settings (`{name = "read_file",
    root = "docs"}`, with paths relative to the file).
    """

    allow: frozenset[str] = frozenset()
    """Effects that the tools may have: `files`, `network`, `process`. A project file cannot allow effects."""

    _read: tuple[Path, ...] = PrivateAttr(default=())
    _tools_from: SettingsSource | None = PrivateAttr(default=None)

    @classmethod
    def read(cls, folder: str | os.PathLike[str] | None = None, **given: Any) -> Self:
        """Collect the settings that apply in `folder`.

        Args:
            folder: The folder. `None` means the working directory.
            given: Options, which take precedence over every other source. `None` means that an option was not
                given.

        Raises:
            SettingsError: If a setting cannot be used.
        """
        folder = Path.cwd() if folder is None else Path(folder).absolute()
        options = {name: value for name, value in given.items() if value is not None}
        files = list(settings_files(folder))
        places = [
            SettingsSource("option", options),
            SettingsSource("environment", _environment()),
            *map(in_file, files),
        ]
        for place in places:
            check(cls, place.name, place.values)
        merged, sources = _merged(places)
        settings = cls.model_validate(merged)
        settings._read = tuple(files)
        settings._tools_from = sources.get("tools", DEFAULT)
        if project := next((place.name for place in places if place.is_project), ""):
            bound = bound_keys(places)
            tables: list[ModelSettings] = [settings, *settings.models.values()]
            for table in tables:
                table.bind(bound, project)
            _expect_harmless(sources, settings)
        return settings

    @property
    def files(self) -> tuple[Path, ...]:
        """The settings files that were read, the nearest first."""
        return self._read

    @property
    def chosen(self) -> ModelSettings:
        """The settings of the model to call: those of this object, or the entry of `models` that `model`
        names.
        """
        own = {name: getattr(self, name) for name in ModelSettings.model_fields}
        if self.model not in self.models:
            chosen = ModelSettings(**own)
            chosen._unbound_by = self._unbound_by
            return chosen
        beside = [name for name, value in own.items() if value is not None and name != "model"]
        if beside:
            table = f"models.{self.model}"
            raise SettingsError(
                f"{', '.join(beside)} cannot be combined with {table}, which describes a whole model."
            )
        return self.models[self.model]

    @property
    def summary(self) -> str:
        """The model, its server and the settings files, in one line."""
        chosen = self.chosen
        where = f" at {chosen.base_url}" if chosen.base_url else ""
        where += ", which receives no key" if chosen.is_keyless else ""
        files = ", ".join(map(str, self.files))
        return f"{chosen.name}{where}" + (f" (settings: {files})" if files else "")

    def lab(self, **more: Any) -> Lab:
        """Return a lab with these settings. `more` are arguments of `tl.Lab`, which take precedence."""
        equipment = {} if "tools" in more else self.equipment()
        return Lab(self.chosen.endpoint(), **{"cache": self.cache, **equipment, **more})

    def equipment(self) -> dict[str, Any]:
        """Return the tools and their effect policy as arguments of `tl.Lab`.

        Raises:
            SettingsError: If a tool is unknown, or its effects are not allowed.
        """
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
            if one.effects != () and place is not None and place.is_project:
                raise SettingsError(
                    f"{place.name}: tools: a project file may name only tools that compute: got {one.name}, "
                    f"whose effects are {written(one.effects)}. Pass --tools, or name it in "
                    f"{config_folder() / FILE}."
                )
            if policy.refusal(one.spec):
                lacking = (one.name,) if one.effects is None else one.effects
                raise SettingsError(
                    f"tools: the effects of {one.name} are {written(one.effects)}, which is not allowed. "
                    f"Pass --allow {','.join(lacking)}, or set `allow` in {config_folder() / FILE}."
                )
        return {"tools": tools, "effect_policy": policy} if tools else {}


# Sources of settings.


def allowed_by_user() -> frozenset[str]:
    """Return the effects that the user's own file allows tools to have.

    Raises:
        SettingsError: If the file contains an invalid setting.
    """
    path = config_folder() / FILE
    if not path.is_file():
        return frozenset()
    place = in_file(path)
    check(Settings, place.name, place.values)
    return Settings.model_validate(place.values).allow


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
            raise SettingsError(f"environment: {name}: {unknown(name, names)}")
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


# Limits of a project file.


def _expect_harmless(sources: Mapping[str, SettingsSource], settings: Settings) -> None:
    """Raise `SettingsError` if a project file names a cache outside its folder or allows effects."""
    place = sources.get("cache", DEFAULT)
    if place.is_project and settings.cache is not None and not _is_below(settings.cache, place):
        raise SettingsError(
            f"{place.name}: cache: a project file may name only a folder below its own folder: got "
            f"{str(settings.cache.resolve())!r}. Name it in {config_folder() / FILE}."
        )
    place = sources.get("allow", DEFAULT)
    if place.is_project and settings.allow:
        raise SettingsError(
            f"{place.name}: allow: a project file may not allow effects of tools: got "
            f"{sorted(settings.allow)}. Pass --allow, or set `allow` in {config_folder() / FILE}."
        )


def _is_below(cache: Path, place: SettingsSource) -> bool:
    """Whether a cache and the files in it lie below the folder of the file that names it."""
    above = Path(place.name).parent.resolve()
    inside = (Path(folder) / name for folder, *names in os.walk(cache) for name in chain(*names))
    return all(path.resolve().is_relative_to(above) for path in (cache, *inside))


# Merging.


def _merged(places: Sequence[SettingsSource]) -> tuple[dict[str, Any], dict[str, SettingsSource]]:
    """Merge the settings of several sources. The first source has the highest precedence.

    Returns:
        The merged settings, and the source of each. A named model is one setting, `models.NAME`.
    """
    merged: dict[str, Any] = {}
    sources: dict[str, SettingsSource] = {}
    for place in reversed(places):
        for name, value in place.values.items():
            if name in TABLES:
                merged[name] = {**merged.get(name, {}), **dict(value)}
                sources |= {f"{name}.{inside}": place for inside in dict(value)}
            elif name not in ModelSettings.model_fields:
                merged[name] = value
                sources[name] = place
    chosen = model_places(places, merged.get("models", {}))
    values = {name: place.values[name] for name, place in chosen.items()}
    return {**merged, **values}, {**sources, **chosen}
