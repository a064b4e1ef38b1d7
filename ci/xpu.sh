#!/usr/bin/env bash
# Builds what ci/lane_xpu.sh runs in, in the user's cache: PyTorch 2.8 with Intel's extension (7 GB), and Triton for
# Intel GPUs (2 GB); as root also Debian's offline compiler. Prints the folder.
# Needs a package index for pip, and Debian's for apt-get; the lane runs only where this has been called.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/other_torch.sh xpu "$@"
environment ipex torch==2.8.0 intel-extension-for-pytorch==2.8.0
environment triton torch==2.13.0 triton-xpu==3.3.0b1
if ! command -v ocloc > /dev/null && [ "$(id -u)" = 0 ]; then
  apt-get update -qq && apt-get install -y -qq --no-install-recommends intel-opencl-icd > /dev/null
fi
touch "$kept/ready"
