#!/usr/bin/env bash
# Checks and measures a machine with GPUs within 540 seconds, most important items first, and writes a JSON report.
#
#   first_run.sh [BUILD] [JSON] [PART]   runs all items, or those of one part: correctness or speed
#   first_run.sh pack BUILD CARRIED      copies the programs of BUILD without symbols, to carry them to such a machine
#
# BUILD: build/cuda, or a carried folder. JSON: first_run.json.
# A program that is in BUILD and starts is used as it is. Others are built there, as the preset train-cuda does.
# The JSON file is written after each item. Without a GPU each item reports so. docs/gpu_tests.md describes the items.
# TESSERA_FIRST_RUN_SECONDS: total limit instead of 540. TESSERA_FIRST_RUN_ITEM_SECONDS: limit of every item.
# TESSERA_FIRST_RUN_GPUS: number of GPUs instead of the detected number.
cd "$(dirname "$0")/../.." || exit 1

train=examples/train_transformer benchmark=tests/benchmarks/train_step
programs=("$train" "$benchmark" tests/{gpu_kernels_test,graphs_test,nccl_test,validator_test,reference_runner})

if [[ $1 == pack ]]; then
  from=$2 to=$3
  for program in "${programs[@]}"; do
    [[ -x $from/$program ]] || continue
    mkdir -p "$to/${program%/*}"
    strip -o "$to/$program" "$from/$program" 2>/dev/null || cp "$from/$program" "$to/$program"
  done
  [[ -x $to/$train ]] || { echo "[pack] $from: no $train. Build it first." >&2; exit 1; }
  du -sh "$to"
  exit
fi

build=${1:-build/cuda}
json=${2:-first_run.json}
part=${3:-all}
[[ $part == all || $part == correctness || $part == speed ]] ||
  { echo "[first_run] $part: unknown. Give correctness or speed, or leave it out for both." >&2; exit 2; }
limit=${TESSERA_FIRST_RUN_SECONDS:-540}
grace=2  # seconds between SIGTERM and SIGKILL
log=$(mktemp -d)
set -m   # each item is a process group, which is ended as a whole
trap 'rm -rf "$log"' EXIT
trap '[[ $running ]] && kill -KILL -- "-$running"; exit 143' TERM INT

gpus=${TESSERA_FIRST_RUN_GPUS:-$(compgen -G '/dev/nvidia[0-9]*' | wc -l)}
name=$(timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)
case "$name" in  # operations a second in bfloat16, without sparsity
  *B200*) peak=2250e12 ;;
  *H100* | *H200*) peak=989e12 ;;
  *A100*) peak=312e12 ;;
esac

# Runs a command until its limit, and sets `state`. A process that even SIGKILL does not end is left behind.
run_until() {
  local seconds=$1 begun=$SECONDS
  shift
  "$@" >"$log/$item.out" 2>&1 </dev/null &
  running=$!
  while kill -0 "$running" 2>/dev/null && ((SECONDS < begun + seconds)); do sleep 0.1; done
  if kill -0 "$running" 2>/dev/null; then
    state="ended after $seconds seconds"
    kill -TERM -- "-$running"
    sleep "$grace"
  else
    wait "$running"
    case $? in
      0) state=passed ;;
      77) state=skipped ;;
      *) state="failed ($?)" ;;
    esac
  fi
  kill -KILL -- "-$running" 2>/dev/null
  running=
}

# item NAME GPUS SECONDS COMMAND...: runs it on so many GPUs and at most so long, or records why not.
item() {
  local item=$1 wanted=$2 seconds=${TESSERA_FIRST_RUN_ITEM_SECONDS:-$3} begun=$SECONDS state
  local left=$((limit - SECONDS - grace - 3))  # and three seconds for the report
  shift 3
  if ((gpus == 0)); then
    state="no GPU"
  elif ((gpus < wanted)); then
    state="$wanted GPUs wanted"
  elif ((left <= 0)); then
    state="no time left"
  else
    run_until $((seconds < left ? seconds : left)) "$@"
    local ran=yes
  fi
  printf '%-22s %s\n' "$item" "$state"
  printf '%s\t%s\t%s\t%s\t%s\n' "$item" "$state" $((SECONDS - begun)) "$seconds" "$*" >>"$log/items"
  [[ $ran ]] && report "$item"
}

# report [ITEM]: replaces the JSON file atomically, so that readers always find a complete file; prints ITEM's speed.
report() {
  GPUS=$gpus NAME=$name COMMIT=$(git rev-parse HEAD 2>/dev/null) LOG=$log SECONDS_USED=$SECONDS ITEM=$1 \
    python3 tests/cuda/first_run_report.py "$json"
}

# Whether the program is there, with all libraries and symbols that it needs.
starts() { [[ -x $1 ]] && ! ldd -r "$1" 2>&1 | grep -q 'not found\|undefined symbol'; }

# Sets `missing` to the targets among these programs that have to be built.
find_missing() {
  missing=()
  ((gpus == 0)) && return
  local program
  for program; do starts "$build/$program" || missing+=("${program##*/}"); done
}

build_targets() {
  [[ -e $build/CMakeCache.txt ]] || cmake --preset train-cuda -B "$build" || return
  local target known wanted=()
  known=$(cmake --build "$build" --target help)
  for target; do
    grep -q "^$target:" <<<"$known" && wanted+=("$target") || echo "no target $target: GoogleTest is missing"
  done
  cmake --build "$build" -j --target "${wanted[@]}"
}

# A program from another machine may not find LibTorch by its path: use the one of python3's torch package.
if ((gpus > 0)) && [[ -x $build/$train ]] && ! starts "$build/$train"; then
  torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)
  [[ $torch ]] && export LD_LIBRARY_PATH=$torch/lib$(printf ':%s' "${torch%/*}"/nvidia/*/lib)
fi

export TESSERA_DEVICE=cuda
start="bash tests/processes/start.sh"
((gpus > 0)) && python3 tests/cuda/random_documents.py "$log"
# train_tokens SECONDS NAME FILE FLAGS...: trains on FILE of random_documents.py. Steps 4 to 6 are profiled.
train_tokens() {
  local seconds=$1 name=$2 data=$log/$3.bin
  shift 3
  item "$name" 1 "$seconds" "$build/$train" --mesh data=1 --data "$data" --precision bfloat16 --steps 30 --lr 3e-4 \
    ${peak:+--peak-flops $peak} --metrics "$log/$name.metrics" --profile "$log/$name.profile" --profile-steps 3 "$@"
}
gpt2="--vocab 50304 --layers 12 --embed 768 --heads 12 --seq 1024"  # 124M parameters
llama="--model llama --vocab 128256 --layers 16 --embed 2048 --heads 32 --kv-heads 8 --mlp 8192 --seq 2048"  # 1.2B
torch="python3 tests/cuda/torch_gpt.py ${peak:+--peak-flops $peak}"

find_missing "$train"
((${#missing[@]})) && item build_train 1 300 build_targets "${missing[@]}"

if [[ $part != speed ]]; then
  item one_step 1 50 python3 tests/cuda/one_step.py "$build/$train"
  for ((n = 2; n <= 8; n *= 2)); do
    item "train_$n" $n 60 $start $n "$build/$train" --mesh "data=$n" --rules embed=data --data README.md docs --steps 50
  done
fi

# On one GPU, the limits from one_step to graphs add up to 540 seconds.
if [[ $part != correctness ]]; then
  train_tokens 40 gpt2_64 rows $gpt2 --batch 64
  train_tokens 30 gpt2_64_documents documents $gpt2 --batch 64
  item torch_gpt2 1 40 $torch --rows 64 16 --how eager
  item torch_gpt2_documents 1 30 $torch --rows 64 16 --how eager --documents
  train_tokens 30 gpt2_16 rows $gpt2 --batch 16
  train_tokens 30 gpt2_16_documents documents $gpt2 --batch 16
  train_tokens 50 llama_1b rows $llama --batch 4
  item torch_llama_1b 1 70 $torch --model llama --rows 4 --how eager compile
  item torch_gpt2_compile 1 90 $torch --rows 64 16 --how compile --seconds 50
fi

[[ $part == speed ]] && programs=("$train" "$benchmark")
find_missing "${programs[@]}"
((${#missing[@]})) && item build_rest 1 200 build_targets "${missing[@]}"

if [[ $part != speed ]]; then
  item nccl_1 1 30 "$build/tests/nccl_test"
  for ((n = 2; n <= 8; n *= 2)); do item "nccl_$n" $n 60 $start $n "$build/tests/nccl_test"; done
  item kernels 1 20 "$build/tests/gpu_kernels_test"
  item graphs 1 30 "$build/tests/graphs_test"
fi
if [[ $part != correctness ]]; then
  item torch_gpt2_documents_compile 1 100 $torch --rows 64 16 --how flex compile --documents --seconds 50
  train_tokens 40 gpt2_64_graphed rows $gpt2 --batch 64 --graphed-step
  item train_step 1 60 "$build/$benchmark" --size all --strategy one --threads 1 --steps 100
  item train_step_graphed 1 60 "$build/$benchmark" --size all --strategy one --threads 1 --steps 100 --graphed-step yes
fi
if [[ $part != speed ]]; then
  item validator 1 120 env TESSERA_PLACEMENTS=8 "$build/tests/validator_test" --gtest_filter='Operations/Validator.*'
  item curves 1 "$limit" "$build/tests/reference_runner" \
    tests/reference/{optimizers,placement,propagation,schedules,seeds_examples,shard_map,transformer_}*.json
fi

report
echo "written: $json"
! grep -q "	failed\|	ended" "$log/items"
