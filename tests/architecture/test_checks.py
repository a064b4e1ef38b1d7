"""The checks of ci/ pass on this repository, and each finds what it is for in a tree made to break it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import budget
import habits
import layers
import words
from sources import ROOT

Check = Callable[[Path], list[str]]


@pytest.mark.parametrize("check", [words.check, layers.check, budget.check, habits.check], ids=lambda c: c.__module__)
def test_repository_passes(check: Check) -> None:
    problems = check(ROOT)
    assert not problems, "\n".join(problems)


def tree(root: Path, files: dict[str, str]) -> Path:
    """A folder holding `files`, name to text."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CORE, CPU = "core/anychip/", "platforms/cpu/anychip_cpu/"


@pytest.mark.parametrize(
    ("check", "name", "text", "message"),
    [
        (words.check, CORE + "runner/a.py", "x = 'CUDA graph'", "names a device: 'CUDA'"),
        (words.check, CORE + "runner/a.py", "# as is_xpu() says", "names a device: 'xpu'"),
        (words.check, "api/anychip_api/a.py", "torch.accelerator.current_device_index()", "torch.accelerator"),
        (words.check, CORE + "runner/a.py", "if device.type == 'cpu': pass", 'branches on "cpu"'),
        (words.check, CORE + "runner/a.py", "x = name.startswith('cpu')", 'branches on "cpu"'),
        (layers.check, CORE + "engine/a.py", "import torch.nn", "imports torch.nn"),
        (layers.check, CORE + "engine/a.py", "class A:\n    from transformers import AutoConfig", "layer 0"),
        (layers.check, CORE + "cache/a.py", "from anychip.ops import bind", "layer 0 does not load layer 1"),
        (layers.check, CORE + "runner/a.py", "def f():\n    import anychip_cpu", "knows no platform"),
        (layers.check, CORE + "engine/a.py", "def f():\n    import anychip_api", "does not know the server"),
        (layers.check, CORE + "cli/a.py", "import anychip_api", "does not know the server"),
        (layers.check, CORE + "models/a.py", "from torch import distributed", "calls no collective"),
        (layers.check, CORE + "runner/a.py", "from anychip.triton import norm", "only a platform"),
        (layers.check, CORE + "novel/a.py", "", "in no layer"),
        (layers.check, "api/anychip_api/a.py", "from anychip_cpu import platform", "knows no platform"),
        (layers.check, "api/anychip_api/a.py", "def f():\n    import torch", "computes nothing"),
        (layers.check, CPU + "a.py", "def f():\n    import anychip_other.kernels", "do not know each other"),
        (budget.check, CORE + "a.py", "x = 1\n" * 301, "301 lines"),
        (budget.check, CORE + "a.py", "def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
        (budget.check, CORE + "utils/a.py", "", "say in its name"),
        (budget.check, "tests/helpers.py", "", "say in its name"),
        (habits.check, CORE + "a.py", "def f():\n    global x", "global"),
        (habits.check, CORE + "a.py", "import os\nx = os.environ.get('A')", "reads the environment"),
        (habits.check, CORE + "a.py", "from os import getenv", "reads the environment"),
        (habits.check, CORE + "a.py", "try:\n    x = 1\nexcept:\n    raise", "bare"),
        (habits.check, CORE + "a.py", "import torch\ntorch.Event = None", "changes torch"),
        (habits.check, CORE + "a.py", "def f(**kw):\n    return g(**kw)", "spell the parameters"),
        (habits.check, CORE + "a.py", "raise NotImplementedError", "abstract"),
        (habits.check, "docs/a.md", "see /home/" + "someone/notes", "a path of one machine"),
        (habits.check, "ci/a.txt", "--extra-" + "index-url x", "registry"),
    ],
)
def test_check_finds(tmp_path: Path, check: Check, name: str, text: str, message: str) -> None:
    manifests = {"platforms/cpu/pyproject.toml": "", "platforms/other/pyproject.toml": ""}
    problems = check(tree(tmp_path, {**manifests, name: text}))
    assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (words.check, CORE + "runner/a.py", "x = f('cpu', ship, output, timestamps)"),
        (words.check, CORE + "triton/a.py", "x = 'hip'"),
        (layers.check, CORE + "engine/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        (layers.check, CORE + "engine/a.py", "def f():\n    import torch"),
        (layers.check, CORE + "cli/a.py", "def f():\n    import anychip_api"),
        (layers.check, CPU + "a.py", "import torch, anychip.plugin, anychip.triton, anychip_cpu.ops"),
        (habits.check, CORE + "config.py", "import os\nx = os.environ"),
        (habits.check, "docs/a.md", "GET /v1/models, ~/.cache/x, https://a.org/home/x"),
    ],
)
def test_check_leaves_alone(tmp_path: Path, check: Check, name: str, text: str) -> None:
    assert check(tree(tmp_path, {"platforms/cpu/pyproject.toml": "", name: text})) == []


def test_budget_refuses_a_stale_excuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget.ALLOWED, "core/anychip/a.py", "a reason")
    assert budget.check(tree(tmp_path, {CORE + "a.py": "x = 1"})) == [
        "ci/budget.py: ALLOWED names core/anychip/a.py, which is within its budget"
    ]
