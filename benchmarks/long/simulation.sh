#!/usr/bin/env bash
# Tens of thousands of random schedules and cache histories; about an hour.
set -euo pipefail
python -m pytest tests/engine/test_simulation.py tests/cache --hypothesis-profile=deep -q -o timeout=7200
