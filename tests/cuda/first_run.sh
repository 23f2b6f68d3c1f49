#!/usr/bin/env bash
# first_run.sh [BUILD] [JSON]: the first minutes on GPUs: what to run, in order; one JSON file says what each showed.
# BUILD: build/cuda, of `cmake --preset train-cuda`; JSON: first_run.json. Without a GPU each item says so.
# docs/gpus.md says what each should print. TESSERA_FIRST_RUN_GPUS: the number of GPUs, in place of those that are here.
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build/cuda}
json=${2:-first_run.json}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

gpus=${TESSERA_FIRST_RUN_GPUS:-$(compgen -G '/dev/nvidia[0-9]*' | wc -l)}
name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)
case "$name" in  # operations a second in bfloat16, without sparsity
  *B200*) peak=2250e12 ;;
  *H100* | *H200*) peak=989e12 ;;
  *A100*) peak=312e12 ;;
esac

# item NAME GPUS COMMAND...: runs it on so many GPUs, or says why not; its last lines come into the JSON file.
item() {
  local item=$1 wanted=$2 began=$SECONDS state
  shift 2
  if ((gpus == 0)); then
    state="no GPU"
  elif ((gpus < wanted)); then
    state="$wanted GPUs wanted"
  elif timeout "${TESSERA_FIRST_RUN_TIMEOUT:-1200}" "$@" >"$log/$item.out" 2>&1; then
    state=passed
  else
    state="failed ($?)"
  fi
  printf '%-22s %s\n' "$item" "$state"
  touch "$log/$item.out"
  printf '%s\t%s\t%s\t%s\n' "$item" "$state" $((SECONDS - began)) "$*" >>"$log/items"
}

export TESSERA_DEVICE=cuda
train=$build/examples/train_transformer
benchmark=$build/tests/benchmarks/train_step
start="bash tests/processes/start.sh"
gpt2=(--mesh data=1 --tokenizer tests/reference/tokenizers/gpt2 --vocab 50304 --data sharding nn data optim --layers 12
  --embed 768 --heads 12 --seq 1024 --batch 16 --precision bfloat16 --steps 50 ${peak:+--peak-flops $peak})

item build 1 cmake --build "$build"
item validator 1 "$build/tests/validator_test"
item curves 1 ctest --test-dir "$build" -R '^reference/'
item nccl_1 1 "$build/tests/nccl_test"
item graphs 1 "$build/tests/graphs_test"
item train_step 1 "$benchmark" --size all --strategy one --threads 1 --steps 100
item train_step_captured 1 "$benchmark" --size all --strategy one --threads 1 --steps 100 --captured yes
item gpt2_124m 1 "$train" "${gpt2[@]}" --profile "$log/profile"
for ((n = 2; n <= 8; n *= 2)); do
  item "nccl_$n" $n $start $n "$build/tests/nccl_test"
  item "train_$n" $n $start $n "$train" --mesh "data=$n" --rules embed=data --steps 100
done

GPUS=$gpus NAME=$name COMMIT=$(git rev-parse HEAD 2>/dev/null) LOG=$log python3 - >"$json" <<'END'
import json, os

log = os.environ["LOG"]
items = []
for line in open(f"{log}/items"):
    name, state, seconds, command = line.rstrip("\n").split("\t")
    with open(f"{log}/{name}.out", errors="replace") as said:
        items.append({"name": name, "state": state, "seconds": int(seconds), "command": command,
                      "last_lines": said.read().splitlines()[-40:]})
print(json.dumps({"gpus": int(os.environ["GPUS"]), "gpu_and_driver": os.environ["NAME"],
                  "commit": os.environ["COMMIT"], "items": items}, indent=1))
END
echo "written: $json"
! grep -q "	failed" "$log/items"
