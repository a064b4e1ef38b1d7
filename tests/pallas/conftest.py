"""Without JAX these tests are skipped: ci/lane_pallas.sh runs them where it is installed."""

from tests.one_thread import one_thread

__all__ = ["one_thread"]
