"""Flags of other engines that people bring along, and what stands for them here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from anychip.errors import UserError

COMMANDS = ("serve", "run", "chat", "bench", "run-batch")
"""Those that load a model."""

RENAMED = {
    "--gpu-memory-utilization": "--memory-utilization",
    "--mem-fraction-static": "--memory-utilization",
    "--context-length": "--max-model-len",
    "--ctx-size": "--max-model-len",
    "-c": "--max-model-len",
    "--max-running-requests": "--max-num-seqs",
    "--parallel": "--max-num-seqs",
    "-np": "--max-num-seqs",
    "--chunked-prefill-size": "--max-num-batched-tokens",
    "--schedule-policy": "--scheduling-policy",
    "--disable-radix-cache": "--no-enable-prefix-caching",
    "--page-size": "--block-size",
    "--model-path": "--model",
    "-m": "--model",
    "--tokenizer-path": "--tokenizer",
    "--random-seed": "--seed",
    "--cache-type-k": "--kv-cache-dtype",
    "--cache-type-v": "--kv-cache-dtype",
    "--alias": "--served-model-name",
    "--runner": "--task",
    "--convert": "--task",
    "--async-scheduling": "--steps-in-flight",
    "--enable-log-requests": "--log-requests",
}
"""Flags of vLLM, SGLang and llama.cpp, with those that do the same here."""

NEEDLESS = {
    "--enable-auto-tool-choice": "tool calls are on where the chat template shows tools",
    "--jinja": "chat templates are always used",
    "--enable-chunked-prefill": "long prompts always come in chunks",
    "--enable-reasoning": "the chat template says how a model thinks",
    "--disable-log-requests": "requests are logged with --log-requests only",
    "--disable-log-stats": "figures are at /metrics only",
    "--trust-remote-code": "code that lies with a model is never run",
    "--guided-decoding-backend": "grammars are followed by one library",
    "--grammar-backend": "grammars are followed by one library",
    "--swap-space": "a request that gave up its memory is computed again",
    "--enforce-eager": "the platform decides how a step runs",
    "--attention-backend": "`anychip platforms` shows what runs each op",
    "--flash-attn": "`anychip platforms` shows what runs each op",
    "-fa": "`anychip platforms` shows what runs each op",
}
"""Flags of theirs for what is decided here without one, and how."""

NOT_BUILT = {
    "--tensor-parallel-size": "a model runs on one device",
    "-tp": "a model runs on one device",
    "--tp": "a model runs on one device",
    "--tp-size": "a model runs on one device",
    "--pipeline-parallel-size": "a model runs on one device",
    "-pp": "a model runs on one device",
    "--data-parallel-size": "one server drives one device; start several, each with its --device",
    "-dp": "one server drives one device; start several, each with its --device",
    "--n-gpu-layers": "all layers are on the device that --device names",
    "--gpu-layers": "all layers are on the device that --device names",
    "-ngl": "all layers are on the device that --device names",
    "--cpu-offload-gb": "all layers are on the device that --device names",
    "--enable-lora": "adapters have to be merged into the model",
    "--lora-modules": "adapters have to be merged into the model",
    "--lora": "adapters have to be merged into the model",
    "--speculative-config": "each step samples one token a sequence",
    "--speculative-algorithm": "each step samples one token a sequence",
    "--limit-mm-per-prompt": "models read text only",
    "--mmproj": "models read text only",
    "--hf-overrides": "edit a copy of the model's config.json",
    "--kv-transfer-config": "a server computes prompts and answers itself",
}
"""Flags of theirs for what is not here, and what is instead."""


OWN_FORMATS = (
    "awq",
    "gptq",
    "awq_marlin",
    "gptq_marlin",
    "compressed-tensors",
    "bitsandbytes",
    "gguf",
    "marlin",
    "mxfp4",
)
"""Values of vLLM's --quantization that name the format of a checkpoint."""


def check_flags(arguments: Sequence[str]) -> None:
    """Raise `UserError` for the first flag of another engine among the arguments of a command that loads a model."""
    if not arguments or arguments[0] not in COMMANDS:
        return
    for argument, following in pairwise([*arguments[1:], ""]):
        if argument == "--":
            return
        flag, _, value = argument.partition("=")
        _check(flag)
        if flag == "--quantization" and (value or following) in OWN_FORMATS:
            what = f"{flag} {value or following} is a format of checkpoints, which are read as they are."
            raise UserError(what, "Leave the flag out.")


def _check(flag: str) -> None:
    if flag in RENAMED:
        raise UserError(f"The flag {flag} has another name here.", f"Use {RENAMED[flag]}.")
    if flag in NEEDLESS:
        raise UserError(f"The flag {flag} does not exist here: {NEEDLESS[flag]}.", "Leave it out.")
    if flag in NOT_BUILT:
        raise UserError(f"The flag {flag} does not exist here: {NOT_BUILT[flag]}.", "Leave it out.")
