"""transformers' module for a config: built without memory, its matrices ours, its remote code never run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from huggingface_hub import errors
from torch import nn
from torch.overrides import TorchFunctionMode

from anychip.errors import UserError
from anychip.models.fallback_attention import NAME, HostingError, register
from anychip.models.layers import Linear
from anychip.ops.parts import Ops
from anychip.weights.role import Role

FOREIGN_FAILURES: tuple[type[Exception], ...] = (
    AssertionError, AttributeError, HostingError, ImportError, LookupError, RuntimeError, TypeError, ValueError,
    getattr(errors, "StrictDataclassError", ValueError),
)  # fmt: skip
"""What another library's code may raise when it is run in a way it does not know."""


class ParametersOnMeta(TorchFunctionMode):
    """While active, `torch.empty` (what layers make parameters of) takes no memory; computed buffers stay real."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """See torch.overrides."""
        keywords = dict(kwargs or {})
        if func is torch.empty:
            keywords["device"] = "meta"
        return func(*args, **keywords)


class TokenLinear(Linear):
    """A `Linear` that takes transformers' leading axes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[.., K] -> [.., N]."""
        return super().forward(x.flatten(0, -2)).view(*x.shape[:-1], -1)


class Given(nn.Module):
    """Stands for the body of a model whose output is already known, so that only the head runs."""

    @property
    def decoder(self) -> Given:
        """Some heads call their body's decoder."""
        return self

    def forward(self, *ignored: Any, inputs_embeds: torch.Tensor, **options: Any) -> Any:
        """Takes what the body takes, and returns `inputs_embeds` as its output."""
        from transformers.modeling_outputs import MoeModelOutputWithPast

        output = MoeModelOutputWithPast(last_hidden_state=inputs_embeds)
        output.cross_attentions = None  # heads of encoder-decoder descent look for it
        return output


def read_config(config: Mapping[str, Any]) -> Any:
    """transformers' own config object, for a causal language model that it implements itself."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    model_type = str(config["model_type"])
    if model_type not in CONFIG_MAPPING or model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise UserError(
            f"transformers has no causal language model of type {model_type!r}.",
            "Code inside a checkpoint is never run; a newer transformers, or a plugin, may bring this model.",
        )
    try:
        return CONFIG_MAPPING[model_type].from_dict(dict(config))
    except FOREIGN_FAILURES as error:
        raise UserError(f"transformers cannot read the config of this {model_type} model: {error}") from error


def build(config: Any, dtype: torch.dtype, where: AbstractContextManager[Any], ops: Ops, experts: str | None) -> Any:
    """The module in `dtype`, its parameters placed by the context `where`, attending through our function."""
    from transformers import AutoModelForCausalLM

    register()
    config = copy.deepcopy(config)
    if experts is not None:
        config._experts_implementation = experts
    with where:
        module = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=NAME, trust_remote_code=False
        )
    module.eval().requires_grad_(False)
    module.config.pad_token_id = None  # some forwards wait for the device to look for padding, which there is none of
    host_linears(module, ops)
    return module


def host_linears(module: Any, ops: Ops) -> None:
    """Put our `Linear` in the place of every plain torch one."""
    found = [(path, layer) for path, layer in module.named_modules() if type(layer) is nn.Linear]
    output = module.get_output_embeddings()
    for path, layer in found:
        parent, _, name = path.rpartition(".")
        parts, dtype, bias = {name: layer.out_features}, layer.weight.dtype, layer.bias is not None
        role: Role = "output" if layer is output else "inner"
        setattr(module.get_submodule(parent), name, TokenLinear(ops, layer.in_features, parts, dtype, bias, role=role))


def keep_wide(module: Any) -> None:
    """Give the parameters that transformers keeps in float32, whatever the model's type, that type."""
    patterns = set(module._keep_in_fp32_modules_strict or ())
    if module.dtype == torch.float16:
        patterns |= set(module._keep_in_fp32_modules or ())
    for path, layer in module.named_modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if any(pattern in f"{path}.{name}" for pattern in patterns):
                wide = torch.empty_like(parameter, dtype=torch.float32)
                setattr(layer, name, nn.Parameter(wide, requires_grad=False))


def head_of(module: Any) -> Any:
    """The same model with `Given` for its body; both share their layers."""
    head = copy.copy(module)
    head._modules = {**module._modules, module.base_model_prefix: Given()}
    return head


def tied_layers(module: Any) -> Iterator[tuple[str, str]]:
    """(path of the output layer, path of the embedding) where a config ties them."""
    if not module.config.get_text_config(decoder=True).tie_word_embeddings:
        return
    paths = {id(layer): path for path, layer in module.named_modules()}
    output, source = module.get_output_embeddings(), module.get_input_embeddings()
    if isinstance(output, Linear):
        yield paths[id(output)], paths[id(source)]
