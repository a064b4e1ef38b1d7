"""What looking for platforms changes in a process: `python -m anychip.testing.effects` prints it, one line each."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import ModuleType

import torch

from anychip.plugin.registry import Registry


def _state() -> dict[str, str]:
    state = {
        "the working directory": str(Path.cwd()),
        "torch's default dtype": str(torch.get_default_dtype()),
        "torch's default device": str(torch.get_default_device()),
        "torch's random state": str(hash(torch.get_rng_state().numpy().tobytes())),
        "torch's thread count": str(torch.get_num_threads()),
        "the handler of Ctrl-C": str(signal.getsignal(signal.SIGINT)),
        "running threads": str(threading.active_count()),
        "child processes": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
    }
    for module in _device_modules():
        if callable(initialized := getattr(module, "is_initialized", None)):
            state[f"whether {module.__name__} is initialized"] = str(initialized())
    return state


def _device_modules() -> list[ModuleType]:
    """Torch's modules of one device type each."""
    modules = [module for module in vars(torch).values() if isinstance(module, ModuleType)]
    return [module for module in modules if callable(getattr(module, "device_count", None))]


def main() -> int:
    """Load every plugin and probe every platform; print what is different afterwards."""
    before = _state()
    Registry()
    after = _state()
    for name, value in after.items():
        if before.get(name, value) != value:
            sys.stdout.write(f"{name}: {before[name]} -> {value}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
