"""All checks of the kit, level by level. pytest and `anychip conform` run the same list."""

from __future__ import annotations

from anychip.testing.attention_checks import ATTENTION_CHECKS
from anychip.testing.check import Check
from anychip.testing.device_checks import DEVICE_CHECKS
from anychip.testing.large_checks import LARGE_CHECKS
from anychip.testing.large_steps import LARGE_STEP_CHECKS
from anychip.testing.op_checks import OP_CHECKS
from anychip.testing.pooling_checks import POOLING_CHECKS
from anychip.testing.runner_checks import RUNNER_CHECKS
from anychip.testing.sampling_checks import SAMPLING_CHECKS
from anychip.testing.serve_checks import SERVE_CHECKS

CHECKS: tuple[Check, ...] = (
    *DEVICE_CHECKS,
    *OP_CHECKS,
    *ATTENTION_CHECKS,
    *LARGE_CHECKS,
    *RUNNER_CHECKS,
    *LARGE_STEP_CHECKS,
    *POOLING_CHECKS,
    *SAMPLING_CHECKS,
    *SERVE_CHECKS,
)
