"""Hypothesis profiles: `quick` for every run, `--hypothesis-profile=deep` for ci/long.sh. Ctrl-C for all we start."""

import signal

from hypothesis import HealthCheck, settings

from anychip.config import calm_own_threads

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

calm_own_threads()  # servers and engines of the tests share these processors

settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("deep", max_examples=20_000, deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile("quick")

# Who starts us in the background of a shell has us ignore Ctrl-C, and with us each process that a test sends one to.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
