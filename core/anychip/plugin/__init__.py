"""What a plugin imports: the hook marker and the contract."""

from __future__ import annotations

from anychip.config import EngineConfig
from anychip.engine.batch import (
    NOTHING_ALLOWED,
    NULL_BLOCK,
    PENDING,
    POOL,
    SAMPLE,
    AdmittedRow,
    Batch,
    BlockCopy,
    Logprobs,
    Masks,
    Pooled,
    PromptLogprobs,
    RowSampling,
    StepResult,
)
from anychip.errors import UserError
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
    Progress,
    Ready,
    Runner,
    Step,
)
from anychip.plugin.hookspec import hookimpl
from anychip.plugin.pci import PciDevice, pci_devices
from anychip.plugin.spec import PlatformSpec, Probe
from anychip.plugin.uniforms import uniforms

__all__ = [
    "API_VERSION",
    "NOTHING_ALLOWED",
    "NULL_BLOCK",
    "PENDING",
    "POOL",
    "SAMPLE",
    "AdmittedRow",
    "Batch",
    "BlockCopy",
    "Capabilities",
    "Communicator",
    "Control",
    "EngineConfig",
    "KVGroup",
    "KVPlan",
    "KVSpec",
    "Late",
    "Logprobs",
    "Masks",
    "Memory",
    "ModelInfo",
    "ModelSource",
    "PciDevice",
    "Pending",
    "Plane",
    "Platform",
    "PlatformSpec",
    "Pooled",
    "Probe",
    "Progress",
    "PromptLogprobs",
    "Ready",
    "RowSampling",
    "Runner",
    "Step",
    "StepResult",
    "UserError",
    "hookimpl",
    "pci_devices",
    "uniforms",
]
