#!/usr/bin/env bash
# All that an NVIDIA GPU is asked, in order of worth, in a given time; a part that fails or takes too long holds up no other.
#
#   benchmarks/card.sh FOLDER [PART ...]
#
# FOLDER is what `benchmarks/card_folder.sh` made. Without parts: check speed codes profile kernels. `check` is levels and
# models, for which two GPUs can be used at once; `speed` is small large
# fp8 experts int4 cache, a model each. Results go to $OUT, or to card-results: `results.txt` has each part's status and
# last lines, `logs.txt` all they printed. SECONDS_LEFT (570) is the time for all of it. What is installed is kept in
# $KEPT, or /tmp/anychip-card, for a second call.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "$1"); shift
out=${OUT:-card-results} kept=${KEPT:-/tmp/anychip-card} deadline=$((SECONDS + ${SECONDS_LEFT:-570}))
mkdir -p "$out" "$kept"

if [ -d "$folder/wheels" ]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$kept/site" "$folder"/wheels/*.whl
fi
for item in workloads.py adapters shapes answers.json; do [ -e "$folder/$item" ] && cp -r "$folder/$item" "$kept/"; done
for piece in "$folder"/demo.gguf.*; do [ -e "$piece" ] && cp "$piece" "$kept/"; done
[ -e "$kept/demo.gguf.aa" ] && [ -e "$kept/demo.gguf.ab" ] && cat "$kept"/demo.gguf.a? > "$kept/demo.gguf"
export PYTHONPATH=$kept/site PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TRITON_CACHE_DIR=$kept/triton

# NAME LIMIT COMMAND...: run it for so many seconds at most.
run_part() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) begin=$SECONDS; shift 2
  ((left > 5)) || { echo "left out: no time" > "$kept/$name.log"; echo "left out" > "$kept/$name.status"; return; }
  timeout -k 5 $((limit < left ? limit : left)) "$@" > "$kept/$name.log" 2>&1
  echo "status $? after $((SECONDS - begin)) s" > "$kept/$name.status"
}

# Print and keep what parts said.
tell() {
  local name
  for name; do
    { echo "=== $name: $(cat "$kept/$name.status")"; tail -n 40 "$kept/$name.log"; } | tee -a "$out/results.txt"
    { echo "=== $name: $(cat "$kept/$name.status")"; cat "$kept/$name.log"; } >> "$out/logs.txt"
  done
}

# LIMIT: every level of the kit, in processes for all processors, noted for the table of platforms.
kit() {
  run_part kit "$1" python3 -m anychip conform cuda --record "$out/cuda.json" --on "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)"
}

# Right or wrong: `levels` looks at kernels, and compiles with all processors; `models` looks at what they add up to.
check() { levels; models; }

levels() {
  kit 400  # the first part of it looks at the memory, so nothing runs beside it
  tell kit
}

# What does not measure runs side by side, in a part of the memory each.
models() {
  local dtype
  export ANYCHIP_KV_CACHE_MEMORY_BYTES=$((8 << 30))
  if [ -e "$kept/demo.gguf" ]; then
    run_part soak 300 python3 benchmarks/soak.py --seconds 180 --model "$kept/demo.gguf" &
    run_part accuracy 400 python3 benchmarks/accuracy.py --model "$kept/demo.gguf" --device cuda \
      dtype=bfloat16 quantization=fp8 quantization=int8 quantization=int4 &
    [ -e "$kept/answers.json" ] && for dtype in float32 bfloat16; do
      run_part "answers-$dtype" 200 python3 benchmarks/answers.py compare "$kept/demo.gguf" "$kept/answers.json" --device cuda --dtype "$dtype" &
    done
  fi
  wait
  unset ANYCHIP_KV_CACHE_MEMORY_BYTES
  [ -e "$kept/demo.gguf" ] && tell soak accuracy
  [ -e "$kept/demo.gguf" ] && [ -e "$kept/answers.json" ] && tell answers-float32 answers-bfloat16
}

# NAME LIMIT SHAPE WORKLOADS [OPTION ...]
workloads() {
  local name=$1 limit=$2 shape=$3 only=$4 option options=(); shift 4
  rm -rf "$TRITON_CACHE_DIR"  # a start counts with no kernel compiled
  for option in 'device="cuda"' 'load_format="dummy"' skip_tokenizer_init=true max_model_len=16384 "$@"; do
    options+=(--option "$option")
  done
  run_part "$name" "$limit" python3 "$kept/workloads.py" anychip "$kept/shapes/$shape" --here --runs 2 --only "$only" "${options[@]}"
  tell "$name"
}

decode=decode_1,decode_8,decode_32,decode_128
all=$decode,prefill_1k,prefill_8k,shared_prefix_64,offline_512,long_decode_32
small() { workloads qwen3-0.6b 110 qwen3-0.6b $all; }
large() { workloads llama-3.1-8b 120 llama-3.1-8b $all; }
fp8() { workloads llama-3.1-8b-fp8 90 llama-3.1-8b $decode,prefill_1k,prefill_8k,offline_512 'quantization="fp8"'; }
experts() { workloads qwen3-30b-a3b 120 qwen3-30b-a3b $decode,prefill_8k,offline_512; }
int4() { workloads llama-3.1-8b-int4 90 llama-3.1-8b $decode,prefill_8k 'quantization="int4"'; }
cache() { workloads llama-3.1-8b-fp8-cache 90 llama-3.1-8b decode_1,decode_32,long_decode_32,prefill_8k 'kv_cache_dtype="fp8"'; }

speed() {
  local name
  for name in small large fp8 experts int4 cache; do "$name"; done
}

codes() {
  run_part codes 120 python3 benchmarks/triton_codes.py
  tell codes
}

profile() {
  local shape
  for shape in qwen3-0.6b llama-3.1-8b; do
    run_part "profile-$shape" 90 python3 benchmarks/cuda_profile.py "$kept/shapes/$shape" --rows 1 32 128 --prompt 1024 8192 --host
    tell "profile-$shape"
  done
  run_part profile-long 60 python3 benchmarks/cuda_profile.py "$kept/shapes/qwen3-0.6b" --rows 64 256 --context 640
  run_part profile-experts 90 python3 benchmarks/cuda_profile.py "$kept/shapes/qwen3-30b-a3b" --rows 1 32 128 --prompt 8192
  tell profile-long profile-experts
}

kernels() {
  run_part kernels-compiled 120 python3 benchmarks/triton_kernels.py warm
  run_part kernels 200 python3 benchmarks/triton_kernels.py time
  tell kernels
}

# Two GPUs: a machine of its own.
ranks() {
  run_part ranks 200 python3 benchmarks/two_gpus.py
  tell ranks
}

nvidia-smi --query-gpu=name,driver_version,memory.free --format=csv,noheader | tee -a "$out/results.txt"
for part in "${@:-check speed codes profile kernels}"; do
  for name in $part; do "$name"; done
done
echo "took $SECONDS s" | tee -a "$out/results.txt"
