"""The core names no device: no vendor, device or vendor library in core/ and api/, comments and docs included.

`cpu` is the host of torch and may be named, but not compared with: a platform declares what differs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sources import Source, run, sources

FOLDERS = ("core", "api")
EXEMPT = ("core/anychip/triton/",)  # kernels that more than one vendor runs

ANYWHERE = ("cuda", "rocm", "nvidia", "cudnn", "cublas", "cutlass", "torch.accelerator", "torch_xla", "levelzero")
WHOLE = ("hip", "xpu", "tpu", "npu", "mps", "amd", "nccl", "rccl", "xccl", "oneccl", "ascend", "gaudi", "hpu", "habana")
WORD = re.compile("|".join([*map(re.escape, ANYWHERE), rf"(?<![a-z])(?:{'|'.join(WHOLE)})(?![a-z])"]), re.IGNORECASE)


def named_devices(source: Source) -> Iterator[str]:
    """A message for each device word."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        for match in WORD.finditer(line):
            yield f"{source.name}:{number}: names a device: {match.group()!r}; ask the platform instead"


def host_branches(source: Source) -> Iterator[str]:
    """A message for each comparison with the string "cpu"."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Compare | ast.MatchValue | ast.Call) and _compares_host(node):
            yield f'{source.name}:{node.lineno}: branches on "cpu"; make it a capability of the platform'


def _compares_host(node: ast.Compare | ast.MatchValue | ast.Call) -> bool:
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"):
        return False
    return any(isinstance(part, ast.Constant) and part.value == "cpu" for part in ast.walk(node))


def check(root: Path) -> list[str]:
    """Every device word and every branch on the host device under `FOLDERS`."""
    problems: list[str] = []
    for source in sources(root, FOLDERS, (".py", ".md", ".toml", ".jinja", ".json", ".typed")):
        if source.name.startswith(EXEMPT):
            continue
        problems += named_devices(source)
        if source.name.endswith(".py"):
            problems += host_branches(source)
    return problems


if __name__ == "__main__":
    run("words", check)
