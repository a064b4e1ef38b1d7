"""What POST /v1/batches takes."""

from __future__ import annotations

from anychip_api.batch.upload import read_lifetime
from anychip_api.schemas import Metadata, Schema


class ExpiresAfter(Schema):
    """How long a batch's results are kept."""

    anchor: str
    seconds: int

    def lifetime(self) -> int:
        """Seconds; raises `RequestError` outside of OpenAI's range."""
        return read_lifetime(self.anchor, self.seconds, "output_expires_after")


class BatchRequest(Schema):
    """POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
