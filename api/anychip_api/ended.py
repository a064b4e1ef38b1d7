"""What is known of a request when it is over: for the log, and for traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anychip.log import logger
from anychip.sampling_params import SamplingParams

ON_ENDED = "anychip.on_ended"
"""Key of the scope under which a middleware may leave an `EndListener`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One HTTP request that generated. Times are seconds from its arrival; None where it did not get so far."""

    request_id: str
    model: str
    params: SamplingParams
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    finish_reasons: tuple[str, ...]
    queued: float
    first_token: float | None
    total: float

    def log(self) -> None:
        """One line, with the same as fields for JSON."""
        first = "none" if self.first_token is None else f"{self.first_token:.3f} s"
        fields = {
            "request_id": self.request_id,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "generated_tokens": self.generated_tokens,
            "finish_reasons": self.finish_reasons,
            "queued_s": round(self.queued, 6),
            "first_token_s": self.first_token,
            "total_s": round(self.total, 6),
        }
        logger.info(
            "%s: %d prompt tokens, %d generated, first after %s, %.3f s in all, %s",
            self.request_id,
            self.prompt_tokens,
            self.generated_tokens,
            first,
            self.total,
            ", ".join(dict.fromkeys(self.finish_reasons)),
            extra=fields,
        )


EndListener = Callable[[Ended], None]
