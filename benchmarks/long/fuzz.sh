#!/usr/bin/env bash
# Twenty minutes of schemathesis and hostile clients.
set -euo pipefail
. ci/environment.sh schemathesis
python benchmarks/fuzz.py --seconds 1200
