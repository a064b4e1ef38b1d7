"""What is said of machines with and without TPUs and runtimes; no runtime is loaded for it."""

import subprocess
import sys

import pytest

from anychip.config import make_config
from anychip.errors import UserError
from anychip_tpu.choose import kernel_choice, open_runtime
from anychip_tpu.probe import HAND_IN, INSTALL, NO_TPU, SCORE, judge, look


def machine(root, chips=(), files=(), modules=()):
    """A root folder with such devices, looked at."""
    for number, (vendor, device) in enumerate(chips):
        folder = root / f"sys/bus/pci/devices/0000:00:{number:02}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
        (folder / "class").write_text("0x120000\n")
    for name in files:
        (root / name).mkdir(parents=True)
    return look(root, lambda module: module in modules)


V5E, NETWORK_CARD = ("0x1ae0", "0x0063"), ("0x1ae0", "0x0042")
XLA, TORCH_TPU = ("torch_xla", "libtpu"), ("torch_tpu", "libtpu")


@pytest.mark.parametrize(
    ("there", "score", "says", "remedy"),
    [
        ({}, 0, "no TPU runtime is installed", INSTALL),
        ({"chips": [V5E]}, 0, "1 TPU v5e were found, and no TPU runtime is installed", INSTALL),
        ({"modules": TORCH_TPU}, 0, "torch-tpu is installed, and no TPU was found", NO_TPU),
        ({"chips": [NETWORK_CARD], "modules": TORCH_TPU}, 0, "torch-tpu is installed, and no TPU was found", NO_TPU),
        ({"modules": XLA}, -1, "no TPU was found; with --runtime torch-xla-cpu", ""),
        ({"chips": [V5E, V5E], "modules": XLA}, 0, "2 TPU v5e were found, and none of /dev/accel*", HAND_IN),
        ({"chips": [V5E], "files": ["dev/vfio/0"], "modules": ("torch_xla",)}, 0, "libtpu is missing", INSTALL),
        ({"chips": [V5E, V5E], "files": ["dev/accel0"], "modules": XLA}, SCORE, "", ""),
        ({"chips": [V5E], "files": ["dev/vfio/3"], "modules": TORCH_TPU}, SCORE, "", ""),
    ],
)
def test_a_machine_is_judged_by_what_is_missing(tmp_path, there, score, says, remedy):
    probe = judge(machine(tmp_path, **there))
    assert (probe.score, probe.remedy) == (score, remedy)
    assert says in probe.reason
    assert probe.devices == (len(there["chips"]) if score == SCORE else 1 if score < 0 else 0)


def test_looking_loads_no_torch_and_no_runtime():
    loaded = "print({'torch', 'torch_xla', 'torch_tpu', 'jax'} & {*sys.modules})"
    code = f"import sys, anychip_tpu; anychip_tpu.probe(); {loaded}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_unknown_runtime_is_refused_by_name():
    with pytest.raises(UserError, match="no runtime 'abacus'"):
        open_runtime(0, make_config({"runtime": "abacus"}, {}))


def test_unknown_kernels_are_refused_by_name():
    with pytest.raises(UserError, match="no kernels 'amx'"):
        kernel_choice(make_config({"native_kernels": "amx"}, {}))
    assert kernel_choice(make_config({"native_kernels": "none"}, {})) == "none"
