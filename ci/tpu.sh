#!/usr/bin/env bash
# Builds what ci/lane_tpu.sh runs in, in the user's cache: PyTorch 2.9 with torch-xla (8 GB), and TorchTPU (2 GB).
# Prints the folder. Needs a package index for pip; the lane runs only where this has been called.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/other_torch.sh tpu "$@"
environment xla torch==2.9.1 torch_xla==2.9.0 jax==0.7.1 jaxlib==0.7.1
environment torchtpu torch==2.13.0 torch-tpu==0.2.0
touch "$kept/ready"
