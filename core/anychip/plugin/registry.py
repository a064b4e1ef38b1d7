"""Finding platforms: entry points, scores, versions, and the exceptions of those that are broken.

A plugin is an entry point of group `anychip` whose object holds hook implementations. Each is loaded on its own: one
that raises is kept with its exception, shown by `anychip platforms`, and raised if it was asked for.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import pluggy

from anychip.config import EngineConfig
from anychip.errors import UserError
from anychip.log import logger
from anychip.plugin import hookspec
from anychip.plugin.contract import API_VERSION, Platform
from anychip.plugin.extras import Extra, platform_extras
from anychip.plugin.signatures import check_members
from anychip.plugin.spec import PlatformSpec, Probe

Name = TypeVar("Name", str, tuple[str, str])
GROUP = "anychip"
BUILT_IN = {"reference": "anychip.reference.plugin", "null": "anychip.testing.plugin"}
"""Plugins that come with the core: name -> module."""
OTHER_VERSION = "Install a version of it that was made for this anychip."


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plugin that could not be used, and why."""

    name: str
    version: str
    reason: str
    detail: str = ""
    """Its traceback, if it raised."""


@dataclass(frozen=True, slots=True)
class FoundPlatform:
    """A platform and what it says of this machine; `refused` is a reason that has nothing to do with the machine."""

    spec: PlatformSpec
    plugin: str
    version: str
    probe: Probe
    refused: str = ""

    @property
    def usable(self) -> bool:
        """Whether it can be opened here."""
        return not self.refused and self.probe.score != 0

    @property
    def obstacle(self) -> str:
        """Why it cannot be opened here, without a full stop; empty if it can."""
        return "" if self.usable else self.refused or self.probe.reason or "its probe scored 0"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A platform and the index of its device."""

    found: FoundPlatform
    index: int

    def open(self, config: EngineConfig) -> Platform:
        """Open the device."""
        platform = self.found.spec.open((self.index,), config)
        if not isinstance(platform, Platform):
            raise UserError(f"Platform {self.found.spec.name!r} opened a {type(platform).__name__}, not a Platform.")
        check_members(platform, f"Plugin {self.found.plugin!r} {self.found.version}")
        return platform


class Registry:
    """All plugins of one process's start-up. It keeps no state between engines.

    `installed` holds the names of all plugins, those that an allow-list leaves out included.
    """

    def __init__(
        self,
        allowed: Iterable[str] | None = None,
        points: Iterable[EntryPoint] | None = None,
        api_version: int = API_VERSION,
    ) -> None:
        self.api_version = api_version
        self.manager = pluggy.PluginManager("anychip")
        self.manager.add_hookspecs(hookspec)
        self.platforms: list[FoundPlatform] = []
        self.models: dict[str, str] = {}
        self.parsers: dict[tuple[str, str], str] = {}
        self.broken: list[BrokenPlugin] = []
        listed = list(entry_points(group=GROUP) if points is None else points)
        self.installed = frozenset(point.name for point in listed)
        self._load(listed, allowed)

    @property
    def missing(self) -> tuple[Extra, ...]:
        """Platforms that anychip has an extra for and that are not installed."""
        return tuple(extra for extra in platform_extras() if extra.name not in self.installed)

    def configure(self, config: EngineConfig) -> EngineConfig:
        """The config after every plugin's `configure`; each one sees what the last one returned."""
        for name, plugin in self.manager.list_name_plugin():
            implementation = getattr(plugin, "configure", None)
            changed = implementation(config=config) if implementation else None
            if changed is not None:
                if not isinstance(changed, EngineConfig):
                    raise UserError(f"Plugin {name!r} returned {type(changed).__name__} from configure().")
                config = changed
        return config

    def choose(self, device: str) -> Chosen:
        """The platform for `NAME`, `NAME:INDEX` or `auto`; an explicit one is never replaced by another.

        Raises `UserError` saying why, with the plugin's own exception where it is broken.
        """
        name, _, index = device.partition(":")
        if index and not index.isdigit():
            raise UserError(f"Device {device!r} has a bad index.", "Write NAME or NAME:INDEX, such as reference:0.")
        if name == "auto":
            return Chosen(self._best(), int(index or 0))
        found = self._named(name)
        if int(index or 0) >= found.probe.devices:
            count = found.probe.devices
            raise UserError(f"Device {device!r} does not exist.", f"{name} has {count} device(s), counted from 0.")
        return Chosen(found, int(index or 0))

    def _best(self) -> FoundPlatform:
        usable = [found for found in self.platforms if found.usable and found.probe.score > 0]
        if not usable:
            raise UserError("No platform can run on this machine.", "`anychip platforms` says why for each.")
        score = max(found.probe.score for found in usable)
        best = [found for found in usable if found.probe.score == score]
        if len(best) > 1:
            names = sorted(found.spec.name for found in best)
            raise UserError(
                f"The platforms {', '.join(names)} score {score} alike on this machine.",
                f"Choose one, such as with --device {names[0]}.",
            )
        return best[0]

    def _named(self, name: str) -> FoundPlatform:
        for found in self.platforms:
            if found.spec.name == name:
                if not found.usable:
                    remedy = found.probe.remedy or "`anychip platforms` lists what can."
                    raise UserError(f"Platform {name!r} cannot run here: {found.obstacle}.", remedy)
                return found
        for broken in self.broken:
            if broken.name == name:
                raise UserError(f"Plugin {name!r} {broken.version} is broken: {broken.reason}", broken.detail)
        known = ", ".join(sorted(found.spec.name for found in self.platforms)) or "none"
        broken_names = ", ".join(f"{broken.name} {broken.version} ({broken.reason})" for broken in self.broken)
        extra = next((extra for extra in self.missing if extra.name == name), None)
        raise UserError(
            f"No platform {name!r} is installed; found: {known}{broken_names and '; broken: ' + broken_names}.",
            f"Install it with `{extra.install}`." if extra else "`anychip platforms` says what there is.",
        )

    def _load(self, points: list[EntryPoint], allowed: Iterable[str] | None) -> None:
        wanted = None if allowed is None else set(allowed)
        for name, module in BUILT_IN.items():
            self._register(name, "built in", import_module(module))
        for point in points:
            if wanted is None or point.name in wanted:
                self._load_point(point)
        missing = (wanted or set()) - {point.name for point in points} - {*BUILT_IN}
        if missing:
            found = ", ".join(sorted(point.name for point in points)) or "none"
            raise UserError(
                f"--plugins names {sorted(missing)[0]!r}, which is not installed.", f"Plugins found: {found}."
            )

    def _load_point(self, point: EntryPoint) -> None:
        version = point.dist.version if point.dist else "unknown version"
        try:
            plugin = point.load()
        except Exception as error:  # noqa: BLE001 (kept and shown)
            self._break(point.name, version, error)
            return
        self._register(point.name, version, plugin)

    def _register(self, name: str, version: str, plugin: Any) -> None:
        if self.manager.has_plugin(name):
            self._break(name, version, UserError(f"Another plugin is called {name!r} too.", "Uninstall one of them."))
            return
        before = len(self.platforms)
        try:
            self._check_hooks(plugin)
            self.manager.register(plugin, name=name)
            self.manager.check_pending()
            self._collect(name, version, plugin)
        except Exception as error:  # noqa: BLE001 (kept and shown)
            del self.platforms[before:]
            if self.manager.has_plugin(name):
                self.manager.unregister(name=name)
            self._break(name, version, error)

    def _break(self, name: str, version: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        detail = "" if isinstance(error, UserError) else "".join(traceback.format_exception(error))
        self.broken.append(BrokenPlugin(name, version, reason, detail))
        logger.error("plugin %s %s is broken and was left out: %s", name, version, reason)

    def _check_hooks(self, plugin: Any) -> None:
        """Refuse hook implementations that no hook of ours will ever call."""
        known = {name for name, _ in inspect.getmembers(hookspec, inspect.isfunction)}
        for name, member in inspect.getmembers(plugin, callable):
            options = getattr(member, "anychip_impl", None)
            if options is not None and (options.get("specname") or name) not in known:
                raise UserError(f"It implements the hook {name!r}, which does not exist.", f"Hooks: {sorted(known)}.")

    def _collect(self, name: str, version: str, plugin: Any) -> None:
        if register := getattr(plugin, "register_platforms", None):
            register(register=lambda spec: self._add_platform(spec, name, version))
        if register := getattr(plugin, "register_models", None):
            register(register=lambda kind, path: self._add_class(self.models, kind, path))
        if register := getattr(plugin, "register_parsers", None):
            register(register=lambda kind, parser, path: self._add_class(self.parsers, (kind, parser), path))

    def _add_class(self, known: dict[Name, str], name: Name, path: str) -> None:
        if known.setdefault(name, path) != path:
            raise UserError(f"Another plugin has registered {name!r} already: {known[name]}.", "Uninstall one of them.")

    def _add_platform(self, spec: PlatformSpec, plugin: str, version: str) -> None:
        if any(found.spec.name == spec.name for found in self.platforms):
            raise UserError(f"There is another platform called {spec.name!r}.", "Uninstall one of them.")
        refused = version_refusal(spec.api_version, self.api_version)
        probe = Probe.cannot(refused, OTHER_VERSION) if refused else spec.probe()
        if not isinstance(probe, Probe):
            raise UserError(f"The probe of platform {spec.name!r} returned {type(probe).__name__}, not Probe.")
        self.platforms.append(FoundPlatform(spec, plugin, version, probe, refused))


def version_refusal(theirs: int, ours: int = API_VERSION) -> str:
    """Why a plugin made for contract version `theirs` cannot be loaded, or nothing.

    Version 0 loads only itself; from 1 on the current and the previous version load.
    """
    if theirs == ours or (ours > 1 and theirs == ours - 1):
        return ""
    takes = f"{ours - 1} and {ours}" if ours > 1 else f"{ours}"
    return f"it was made for contract version {theirs}, this anychip takes {takes}"
