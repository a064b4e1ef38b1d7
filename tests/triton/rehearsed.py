"""Models of real sizes, with few layers, and the NVIDIA platform without its GPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.triton.fake_device import SHARED, TARGETS
from tests.triton.launches import caches, chip

from anychip.config import make_config
from anychip.plugin.contract import ModelSource
from anychip.triton.ahead.absent import Target
from anychip.triton.ahead.rehearsal import Rehearsed
from anychip.triton.ahead.work import Work
from anychip.triton.packing import FORMATS
from anychip.triton.platform import gpu_capabilities
from anychip_cuda.cudnn import Cudnn
from anychip_cuda.kernels import cuda_kernels
from anychip_cuda.libraries import Library
from anychip_cuda.steps import prompt_steps

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN = LLAMA | {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
    "num_attention_heads": 16, "vocab_size": 151936, "tie_word_embeddings": True, "rope_theta": 1000000.0,
}  # fmt: skip
EXPERTS = QWEN | {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "num_attention_heads": 32, "num_key_value_heads": 4, "tie_word_embeddings": False,
}  # fmt: skip

BERT = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 384, "intermediate_size": 1536,
    "num_hidden_layers": 2, "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "torch_dtype": "float32",
}  # fmt: skip


def work(target: str, model: dict[str, Any], library: Library | None = None, **options: Any) -> Work:
    """Serving `model` with `options` on a GPU of a target, long prompts by `library` or cuDNN."""
    chosen = library or Cudnn()
    kernels, steps = partial(cuda_kernels, library=chosen), partial(prompt_steps, library=chosen)
    config = make_config({"model": "none", "skip_tokenizer_init": True, **options}, {})
    found = TARGETS[target]
    source = ModelSource("none", Path("none"), "safetensors", model, {})
    platform = Rehearsed(chip(target), gpu_capabilities(FORMATS, caches(target), "nccl"), kernels, steps_of=steps)
    return Work(Target(found.backend, found.arch, found.warp_size, SHARED[target]), platform, config, source)
