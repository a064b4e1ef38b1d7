#!/usr/bin/env bash
# What takes hours: each script in benchmarks/long/, in order, in the current environment.
# Commit the dated result they print under benchmarks/results/.
set -euo pipefail
cd "$(dirname "$0")/.."

found=0
for script in benchmarks/long/*; do
  [ -x "$script" ] || continue
  found=1
  echo "long: $script"
  "$script"
done
[ "$found" = 1 ] && echo "long: ran" || echo "long: nothing to run"
