#!/usr/bin/env bash
# Builds what ci/lane_xpu.sh runs in, in the user's cache: PyTorch 2.8 with Intel's extension (7 GB), and Triton for
# Intel GPUs (2 GB); as root also Debian's offline compiler. Prints the folder.
# Needs a package index for pip, and Debian's for apt-get; the lane runs only where this has been called.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=${XDG_CACHE_HOME:-$HOME/.cache}/anychip-ci/xpu-$(cat ci/xpu.sh ci/constraints.txt | sha256sum | cut -c -16)
echo "$kept"
[ "${1:-}" = where ] && exit 0
[ -e "$kept/ready" ] && exit 0
rm -rf "${kept%/*}"/xpu-*  # those of older versions too

packages=$(python3 - <<'PYTHON'
import re, tomllib
names = [re.match(r"[\w.-]+", line).group() for line in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]]
print(*(name for name in names if name != "torch"), "pytest", "pytest-timeout", "hypothesis", "httpx", "setuptools")
PYTHON
)
mkdir -p "$kept"
grep -v '^torch==' ci/constraints.txt > "$kept/constraints.txt"
for name in ipex:'torch==2.8.0 intel-extension-for-pytorch==2.8.0' triton:'torch==2.13.0 triton-xpu==3.3.0b1'; do
  python3 -m venv "$kept/${name%%:*}"
  # shellcheck disable=SC2086  # both are lists of words
  "$kept/${name%%:*}/bin/pip" install -q --no-cache-dir -c "$kept/constraints.txt" ${name#*:} $packages
done
if ! command -v ocloc > /dev/null && [ "$(id -u)" = 0 ]; then
  apt-get update -qq && apt-get install -y -qq --no-install-recommends intel-opencl-icd > /dev/null
fi
touch "$kept/ready"
