"""What a plugin imports: the hook marker and the contract."""

from __future__ import annotations

from anychip.config import EngineConfig
from anychip.plugin.communicator import Communicator
from anychip.plugin.contract import (
    API_VERSION,
    Capabilities,
    Control,
    KVGroup,
    KVPlan,
    KVSpec,
    Late,
    Memory,
    ModelInfo,
    ModelSource,
    Pending,
    Plane,
    Platform,
    Ready,
    Runner,
    Step,
)
from anychip.plugin.hookspec import hookimpl
from anychip.plugin.spec import PlatformSpec, Probe

__all__ = [
    "API_VERSION",
    "Capabilities",
    "Communicator",
    "Control",
    "EngineConfig",
    "KVGroup",
    "KVPlan",
    "KVSpec",
    "Late",
    "Memory",
    "ModelInfo",
    "ModelSource",
    "Pending",
    "Plane",
    "Platform",
    "PlatformSpec",
    "Probe",
    "Ready",
    "Runner",
    "Step",
    "hookimpl",
]
