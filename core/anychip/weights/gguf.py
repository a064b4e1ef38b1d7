"""Tensors of a GGUF file under their Hugging Face names, one at a time."""

from __future__ import annotations

import mmap
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from anychip.errors import UserError
from anychip.weights.dequantize import dequantize
from anychip.weights.gguf_config import check_readable
from anychip.weights.gguf_metadata import GGUFFile, GGUFTensor
from anychip.weights.gguf_quantized import is_kept, quantized
from anychip.weights.gguf_types import READABLE_TYPES
from anychip.weights.progress import Progress, report
from anychip.weights.weight import Weight

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_DERIVED = {"rope_freqs.weight"}
_INTERLEAVED = {"llama"}
"""Architectures whose converter reorders query and key rows for llama.cpp's rope."""


def read_gguf(
    path: Path, progress: Progress | None = None, formats: Collection[str] = ()
) -> Iterator[tuple[str, torch.Tensor | Weight]]:
    """Yield (Hugging Face parameter name, values) in file order, dequantized to float32 or as stored.

    Matrices in one of `formats` (as in `Capabilities.weight_formats`) stay quantized. Raises `UserError` for a tensor
    whose name or type is not known.
    """
    file = GGUFFile(path)
    architecture = check_readable(file)
    names = {tensor.name: hugging_face_name(tensor.name, path) for tensor in file.tensors.values()}
    total = sum(tensor.nbytes for tensor in file.tensors.values())
    done = 0
    for tensor in sorted(file.tensors.values(), key=lambda tensor: tensor.start):
        name = names[tensor.name]
        if name is not None:
            values = _read(file, tensor, formats)
            heads = _heads_to_reorder(file, architecture, tensor.name)
            yield name, _reordered(values, heads) if heads else values
        _forget(file.buffer, tensor)
        done += tensor.nbytes
        report(progress, done, total)


def hugging_face_name(name: str, path: Path) -> str | None:
    """The parameter that a GGUF tensor holds; None for one that is derived from the configuration."""
    if name in _TOP:
        return _TOP[name]
    match = _LAYER_NAME.fullmatch(name)
    if match is not None and match[2] in _LAYER:
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"
    if name in _DERIVED:
        return None
    raise UserError(f"{path} holds a tensor {name!r} that is not known.", "Give the model as a safetensors folder.")


def _read(file: GGUFFile, tensor: GGUFTensor, formats: Collection[str]) -> torch.Tensor | Weight:
    if not tensor.type.block_bytes:
        readable = ", ".join(kind.name for kind in READABLE_TYPES.values())
        raise UserError(
            f"{file.path} stores {tensor.name!r} as {tensor.type.name}, which is not read.",
            f"Give a file quantized as one of {readable}.",
        )
    # The map is read-only and torch wants memory it may write to.
    raw = np.frombuffer(file.buffer, dtype=np.uint8, count=tensor.nbytes, offset=tensor.start).copy()
    if is_kept(tensor.type.name, tensor.shape, formats):
        return quantized(torch.from_numpy(raw), tensor.type.name, tensor.type.block_bytes, tensor.shape)
    return dequantize(torch.from_numpy(raw), tensor.type.name, tensor.type.block_bytes, tensor.shape)


def _heads_to_reorder(file: GGUFFile, architecture: str, name: str) -> int:
    if architecture not in _INTERLEAVED:
        return 0
    heads: int = file.require(f"{architecture}.attention.head_count")
    if ".attn_q." in name:
        return heads
    return int(file.get(f"{architecture}.attention.head_count_kv", heads)) if ".attn_k." in name else 0


def _reordered(values: torch.Tensor | Weight, heads: int) -> torch.Tensor | Weight:
    if isinstance(values, torch.Tensor):
        return _split_rope_halves(values, heads)
    quantization = values.quantization
    assert values.values is not None, "a weight just read has its values"
    assert quantization is not None, "a weight that is read as one is quantized"
    zero_point = quantization.zero_point
    moved = replace(
        quantization,
        scale=_split_rope_halves(quantization.scale, heads),
        zero_point=None if zero_point is None else _split_rope_halves(zero_point, heads),
    )
    return replace(values, values=_split_rope_halves(values.values, heads), quantization=moved)


def _split_rope_halves(values: torch.Tensor, heads: int) -> torch.Tensor:
    """[heads * D, ...]: pairs (0, 1), (2, 3) of a head become its two halves, as Hugging Face stores them."""
    if values.shape[0] % (2 * heads):
        raise UserError(
            f"A query or key tensor has {values.shape[0]} rows for {heads} heads.", "Convert the model again."
        )
    paired = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return paired.swapaxes(1, 2).reshape(values.shape)


def _forget(buffer: mmap.mmap, tensor: GGUFTensor) -> None:
    """Let the system drop the pages of a tensor that is done, so that a load holds the model and one tensor."""
    start = tensor.start // mmap.PAGESIZE * mmap.PAGESIZE
    buffer.madvise(mmap.MADV_DONTNEED, start, tensor.start + tensor.nbytes - start)
