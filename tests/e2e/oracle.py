"""What transformers says of the demo model, in float32, on weights rounded to the dtype under test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from anychip import LLM, SamplingParams
from anychip.config import make_config
from anychip.engine.batch import Batch
from anychip.engine.locate import locate_model
from anychip.runner.inputs import Computed

PROMPTS = [
    "The capital of France is",
    "Water boils at a temperature of",
    "The largest planet of the solar system is",
    "def add(a, b):\n    return",
    "Once upon a time there was a",
    "The opposite of hot is",
    "1, 2, 3, 4, 5,",
    "Photosynthesis is the process by which plants",
    "The first president of the United States was",
    "Roses are red, violets are",
    "import numpy as",
    "The chemical symbol of gold is",
    "A triangle has three",
    "Shakespeare wrote the play Romeo and",
    "The sun rises in the",
    "In the beginning God created the",
    "The speed of light is about",
    "Two plus two equals",
    "The Great Wall of China was built to",
    "for i in range(10):\n    print(",
]


def demo_path() -> str:
    """The demo model's file, fetched if need be."""
    return str(locate_model(make_config({"model": "demo"}, {}), lambda what, done, total: None).path)


class Oracle:
    """transformers' own module with transformers' own reading of the file."""

    def __init__(self, dtype: str) -> None:
        from pathlib import Path

        from transformers import AutoModelForCausalLM

        path = Path(demo_path())
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        self.model = model.to(getattr(torch, dtype)).to(torch.float32).eval()
        self._known: dict[tuple[int, ...], torch.Tensor] = {}

    @torch.inference_mode()
    def logits(self, token_ids: list[int], last: int) -> torch.Tensor:
        """[last, V] float32: those of the last tokens."""
        key = (*token_ids, last)
        if key not in self._known:
            self._known[key] = self.model(torch.tensor([token_ids]), use_cache=False, logits_to_keep=last).logits[0]
        return self._known[key]


@dataclass
class Recorder:
    """Notes the logits from which each request sampled, by (handle, position)."""

    llm: LLM
    seen: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        runner: Any = self.llm.engine.runner
        run = runner._run
        handles = self.llm.engine.scheduler.rows.handles

        def note(batch: Batch, computed: Computed) -> Computed:
            row_of_token = np.repeat(batch.rows, np.diff(batch.query_start))
            places = [(int(handles[row_of_token[at]]), int(batch.positions[at])) for at in batch.logits_at]
            if places:
                assert computed.logits is not None
                self.seen.update(zip(places, computed.logits.float().clone(), strict=True))
            again = computed.again
            if again is None:
                return computed
            return replace(computed, again=lambda masked: note(batch, replace(again(True), again=again)))

        runner._run = lambda batch, greedy: note(batch, run(batch, greedy))


def greedy(llm: LLM, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Greedy token ids of each prompt, ends of sequence ignored."""
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


def relative_error(recorder: Recorder, oracle: Oracle, prompts: list[list[int]], outputs: list[list[int]]) -> float:
    """norm(out - reference) / norm(reference) over all logits that were sampled from."""
    handles = sorted({handle for handle, _ in recorder.seen})
    off = size = 0.0
    for handle, prompt, output in zip(handles, prompts, outputs, strict=True):
        reference = oracle.logits([*prompt, *output], len(output) + 1)[:-1]
        ours = torch.stack([recorder.seen[(handle, len(prompt) - 1 + place)] for place in range(len(output))])
        off += float((ours - reference).square().sum())
        size += float(reference.square().sum())
    return (off / size) ** 0.5
