#!/usr/bin/env bash
# The example platform in JAX as a stranger would have it: installed, through the kit, and the demo model against the
# reference. The environment is kept, and so is what was compiled. Needs a package index for pip, the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=${XDG_CACHE_HOME:-$HOME/.cache}/anychip-ci/jax-$(cat ci/lane_jax.sh ci/constraints.txt pyproject.toml | sha256sum | cut -c -16)
if [ ! -e "$kept/ready" ]; then
  rm -rf "${kept%/*}"/jax-*  # those of older versions too
  python3 -m venv "$kept"
  "$kept/bin/pip" install -q -c ci/constraints.txt . pytest pytest-timeout hatchling jax==0.10.2
  "$kept/bin/pip" uninstall -q -y anychip  # only its dependencies are kept: the code comes from here
  touch "$kept/ready"
fi

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
"$kept/bin/pip" install -q --no-deps --no-build-isolation --target "$site" ./examples/jax-platform
export PYTHONPATH=core:api:$site JAX_PLATFORMS=cpu JAX_COMPILATION_CACHE_DIR=$kept/compiled
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
"$kept/bin/python" -c 'import jax; print("lane jax: jax", jax.__version__)'
"$kept/bin/python" -m pytest -q -p no:cacheprovider examples/jax-platform/tests
echo "lane jax: ran"
