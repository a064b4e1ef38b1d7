"""Choosing and opening an engine's device, which may be done before it is known where the model lies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anychip.config import EngineConfig
from anychip.engine.phases import Phases
from anychip.log import logger
from anychip.plugin.contract import Platform
from anychip.plugin.registry import Chosen, Registry


@dataclass(frozen=True, slots=True)
class OpenedDevice:
    """A device that was opened for a config, which is as plugins have changed it."""

    config: EngineConfig
    registry: Registry
    chosen: Chosen
    platform: Platform
    phases: Phases
    """How long opening took; the engine's start goes on with it."""

    def with_model(self, config: EngineConfig) -> OpenedDevice | None:
        """The same device for a config that names the model otherwise; None if anything else of it differs now."""
        config = self.registry.configure(config)
        same = _without_model(config) == _without_model(self.config)
        return replace(self, config=config) if same else None


def open_device(config: EngineConfig) -> OpenedDevice:
    """Load plugins, choose the device and open it. Raises `UserError` where there is none, or a plugin is broken."""
    phases = Phases()
    registry = Registry(config.plugins)
    config = registry.configure(config)
    chosen = registry.choose(config.device)
    _tell_overlooked(config, registry)
    phases.end("plugins")
    platform = chosen.open(config)
    phases.end("device and imports")
    return OpenedDevice(config, registry, chosen, platform, phases)


def _tell_overlooked(config: EngineConfig, registry: Registry) -> None:
    """With `--device auto`, warn of a chip in this machine for which no platform is installed."""
    for extra in registry.missing if config.device == "auto" else ():
        if extra.seen:
            logger.warning("%s", extra.sentence)


def _without_model(config: EngineConfig) -> EngineConfig:
    return config.replace("client", model="")
