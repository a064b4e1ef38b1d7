#!/usr/bin/env bash
# Builds what ci/lane_tpu.sh runs in, in the user's cache: PyTorch 2.9 with torch-xla (8 GB), and TorchTPU (2 GB).
# Prints the folder. Needs a package index for pip; the lane runs only where this has been called.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=${XDG_CACHE_HOME:-$HOME/.cache}/anychip-ci/tpu-$(sha256sum < ci/tpu.sh | cut -c -16)
echo "$kept"
[ "${1:-}" = where ] && exit 0
[ -e "$kept/ready" ] && exit 0
rm -rf "${kept%/*}"/tpu-*  # those of older versions too

packages=$(python3 - <<'PYTHON'
import re, tomllib
names = [re.match(r"[\w.-]+", line).group() for line in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]]
print(*(name for name in names if name != "torch"), "pytest", "pytest-timeout", "hypothesis", "httpx")
PYTHON
)
grep -v '^torch==' ci/constraints.txt > "${TMPDIR:-/tmp}/tpu-constraints.$$"
trap 'rm -f "${TMPDIR:-/tmp}/tpu-constraints.$$"' EXIT
for name in xla:'torch==2.9.1 torch_xla==2.9.0 jax==0.7.1 jaxlib==0.7.1' torchtpu:'torch==2.13.0 torch-tpu==0.2.0'; do
  python3 -m venv "$kept/${name%%:*}"
  # shellcheck disable=SC2086  # both are lists of words
  "$kept/${name%%:*}/bin/pip" install -q --no-cache-dir -c "${TMPDIR:-/tmp}/tpu-constraints.$$" ${name#*:} $packages
done
touch "$kept/ready"
