"""Who may import whom.

    platforms/*   anychip, and what the chip needs        never another platform
    api           anychip                                 never a platform, never torch
    core layer 1  anychip                                 models: no collective, no file format
    core layer 0  layer 0 only                            torch and transformers only inside functions

Core imports neither api nor a platform: both come in through entry points. `anychip serve` alone starts the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from imports import Import, imports
from sources import Source, run, sources

CORE = "core/anychip/"
LAYER_0 = (
    "__init__",
    "config",
    "errors",
    "llm",
    "log",
    "pooling_params",
    "progress",
    "sampling_params",
    "scaffold",
    "version",
    "bench",
    "plugin",
    "engine",
    "cache",
    "grammar",
    "text",
)
LAYER_1 = (
    "ops",
    "sample",
    "weights",
    "models",
    "parallel",
    "runner",
    "reference",
    "triton",
    "testing",
    "cli",
    "__main__",
)
LIGHT = {
    *("weights.__init__", "weights.gguf_metadata", "weights.gguf_types", "weights.json_file"),  # the tokenizer's too
    "weights.role",
    "weights.scheme",
}
HEAVY = ("torch", "transformers")
SERVES = "core/anychip/cli/"  # the command line puts core and api together, inside functions


def room(source: Source) -> str:
    """The part of core/anychip a file belongs to: its folder, or its own name at the top."""
    return source.name.removeprefix(CORE).split("/")[0].removesuffix(".py")


def in_layer_0(source: Source) -> bool:
    """Whether a file of core/anychip must load without torch."""
    return room(source) in LAYER_0 or module(source).removeprefix("anychip.") in LIGHT


def module(source: Source) -> str:
    """The import name of a file in core/: `anychip.engine.__init__` for a package."""
    return source.name.removeprefix("core/").removesuffix(".py").replace("/", ".")


def packages(root: Path) -> dict[str, str]:
    """Folder prefix to import package of each platform: {"platforms/cpu/": "anychip_cpu"}."""
    folders = sorted(path.parent.name for path in root.glob("platforms/*/pyproject.toml"))
    return {f"platforms/{name}/": f"anychip_{name}" for name in folders}


def layer_0_problem(found: Import) -> str | None:
    """Why a layer-0 file may not import this when it is loaded."""
    if found.late or found.typing:
        return None
    if found.within(*HEAVY):
        return "layer 0 imports it only inside a function"
    light = found.within(*(f"anychip.{name}" for name in LIGHT))
    if found.within(*(f"anychip.{name}" for name in LAYER_1)) and not light:
        return "layer 0 does not load layer 1"
    return None


def core_problem(source: Source, found: Import, platforms: tuple[str, ...]) -> str | None:
    """Why a file of the core may not import this."""
    if found.within(*platforms):
        return "the core knows no platform"
    if found.within("anychip_api") and not (source.name.startswith(SERVES) and (found.late or found.typing)):
        return "the core does not know the server"
    if room(source) != "triton" and found.within("anychip.triton"):
        return "only a platform that lists these kernels loads them"
    if room(source) == "models" and found.within("torch.distributed", "anychip.parallel"):
        return "a model calls no collective"
    if room(source) == "models" and found.within("gguf", "safetensors"):
        return "a model knows no file format"
    return layer_0_problem(found) if in_layer_0(source) else None


def api_problem(found: Import, platforms: tuple[str, ...]) -> str | None:
    """Why a file of the server may not import this."""
    if found.within(*platforms):
        return "the server knows no platform"
    if found.within(*HEAVY) and not found.typing:
        return "the server's process computes nothing"
    return None


def file_problems(source: Source, owners: dict[str, str]) -> Iterator[str]:
    """A message for each import of a file that its place forbids."""
    platforms = tuple(owners.values())
    others = tuple(package for prefix, package in owners.items() if not source.name.startswith(prefix))
    for found in imports(source):
        if source.name.startswith(CORE):
            reason = core_problem(source, found, platforms)
        elif source.name.startswith("api/"):
            reason = api_problem(found, platforms)
        else:
            reason = "platforms do not know each other" if found.within(*others, "anychip_api") else None
        if reason:
            yield f"{source.name}:{found.line}: imports {found.module}: {reason}"


def room_problems(root: Path) -> Iterator[str]:
    """A message for each top-level name in core/anychip that no layer lists."""
    for name in sorted({room(source) for source in sources(root, ("core/anychip",), (".py",))}):
        if name not in LAYER_0 and name not in LAYER_1:
            yield f"core/anychip/{name}: in no layer; add it to LAYER_0 or LAYER_1 of ci/layers.py"


def check(root: Path) -> list[str]:
    """Every import that the layers forbid."""
    owners = packages(root)
    problems = [*room_problems(root)]
    for source in sources(root, ("core", "api", "platforms"), (".py",)):
        problems += file_problems(source, owners)
    return problems


if __name__ == "__main__":
    run("layers", check)
