#!/usr/bin/env bash
# What benchmarks/card.sh needs on a machine that reaches no package index, in FOLDER/a and FOLDER/b: each fits 64 MiB.
#
#   benchmarks/card_folder.sh FOLDER WORKLOADS [PYTHON_VERSION]
#
# WORKLOADS is a folder with workloads.py, adapters/ and shapes/. The machine brings torch, Triton, transformers, tokenizers
# and what they need. The demo model is split in two, because it is larger than what one call may carry.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 workloads=$2 version=${3:-3.12}
missing=(annotated-doc annotated-types fastapi gguf httptools llguidance msgspec opentelemetry-api prometheus_client pydantic pydantic_core python-multipart
  starlette typing-inspection uvicorn)
rm -rf "$folder"
mkdir -p "$folder/a/wheels" "$folder/b"
python -m pip wheel -q --no-deps --no-build-isolation -w "$folder/a/wheels" . ./platforms/cuda
platforms=()
for name in manylinux_2_39 manylinux_2_35 manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux1; do platforms+=(--platform "${name}_x86_64"); done
for name in "${missing[@]}"; do
  pin=$(python -c 'import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))' "$name")
  python -m pip download -q --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
    "${platforms[@]}" -d "$folder/a/wheels" "$name==$pin"
done
cp -r "$workloads"/{workloads.py,adapters,shapes} "$folder/a/"
model=$(python -c 'from pathlib import Path; from anychip.weights.demo import demo_model; print(demo_model(Path("~/.cache/anychip")))')
split -n 2 "$model" "$folder/b/demo.gguf."
mv "$folder/b/demo.gguf.aa" "$folder/a/"
du -sh "$folder"/*
