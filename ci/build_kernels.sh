#!/usr/bin/env bash
# ci/build_kernels.sh: compile every variant of the CPU kernels into the package, for wheels that carry them.
# Refuses libraries that need a newer C or C++ library than the wheel's tag promises.
set -euo pipefail
cd "$(dirname "$0")/.."

into=platforms/cpu/anychip_cpu/native/prebuilt
variants=(avx2 avx512 avx512_vnni_bf16 amx)  # ci/wheels.py expects the same
rm -rf "$into"
python -m anychip_cpu.native.build --plain-names --into "$into" "${variants[@]}"
for library in "$into"/*.so; do
  newest=$(objdump -T "$library" | grep -oE 'GLIBC_[0-9.]+' | sort -V | tail -n 1)
  cxx=$(objdump -T "$library" | grep -oE 'GLIBCXX_[0-9.]+' | sort -V | tail -n 1)
  echo "$library: $newest $cxx"
  if [ "$(printf '%s\n' "$newest" GLIBC_2.34 | sort -V | tail -n 1)" != GLIBC_2.34 ] ||
    [ "$(printf '%s\n' "$cxx" GLIBCXX_3.4.29 | sort -V | tail -n 1)" != GLIBCXX_3.4.29 ]; then
    echo "$library needs more than manylinux_2_34 has; build on an older system" >&2
    exit 1
  fi
done
