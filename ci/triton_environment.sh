# Sourced at the root of the repository: makes an environment with Triton in $kept once, and keeps what is compiled in it.
kept=${XDG_CACHE_HOME:-$HOME/.cache}/anychip-ci/triton-$(cat ci/triton_environment.sh ci/constraints.txt | sha256sum | cut -c -16)
if [ ! -e "$kept/ready" ]; then
  rm -rf "${kept%/*}"/triton-*  # those of older versions too
  python3 -m venv "$kept"
  "$kept/bin/pip" install -q -c ci/constraints.txt \
    torch numpy msgspec pluggy tokenizers safetensors hypothesis pytest pytest-timeout setuptools triton==3.7.1
  touch "$kept/ready"
fi
