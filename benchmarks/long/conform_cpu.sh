#!/usr/bin/env bash
# The whole kit, levels 0 to 4, on the CPU platform: each variant of the kernels that this machine runs, and without
# them. Those it cannot run are compiled. Prints a table for benchmarks/results/.
set -euo pipefail
cd "$(dirname "$0")/../.."

kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
runs() { python -c "
from anychip_cpu.native.variants import VARIANTS, supported_variants
print(*(variant.name for variant in VARIANTS if (variant in supported_variants()) == ($1)))"; }

status=0
echo "| --native-kernels | kit | seconds |"
echo "|---|---|---|"
for variant in $(runs True) none; do
  begin=$(date +%s)
  [ "$variant" = none ] || python -m anychip build-kernels --native-kernels "$variant" >"$kept/log" 2>&1
  if ANYCHIP_NATIVE_KERNELS=$variant python -m anychip conform cpu >"$kept/log" 2>&1; then
    outcome=$(tail -n 1 "$kept/log")
  else
    outcome="FAILED" status=1
    cat "$kept/log" >&2
  fi
  echo "| \`$variant\` | $outcome | $(($(date +%s) - begin)) |"
done
for variant in $(runs False); do
  if python -m anychip_cpu.native.build --plain-names --into "$kept" "$variant" >"$kept/log" 2>&1; then
    echo "| \`$variant\` | compiles; this processor does not run it | |"
  else
    echo "| \`$variant\` | does NOT compile | |" status=1
    cat "$kept/log" >&2
  fi
done
exit "$status"
