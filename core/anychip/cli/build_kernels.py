"""`anychip build-kernels`."""

from __future__ import annotations

from anychip.cli.fields import engine_fields
from anychip.cli.flags import Values, with_flags
from anychip.config import make_config
from anychip.errors import UserError
from anychip.plugin.registry import Registry

FIELDS = ("device", "plugins", "native_kernels", "cache_dir")


@with_flags(options=[field for field in engine_fields() if field.name in FIELDS])
def build_kernels(options: Values) -> None:
    """Compile what the platforms of this machine have to compile, so that no start does it."""
    config = make_config(options)
    registry = Registry(config.plugins)
    if config.device == "auto":
        specs = [found.spec for found in registry.platforms if found.usable]
    else:
        specs = [registry.choose(config.device).found.spec]
    builders = [(spec.name, spec.build_kernels) for spec in specs if spec.build_kernels is not None]
    if not builders:
        names = ", ".join(spec.name for spec in specs)
        raise UserError(f"There is nothing to compile for {names}.", "Their kernels come ready, or are none.")
    for name, build in builders:
        for line in build(config):
            print(f"{name}: {line}", flush=True)
