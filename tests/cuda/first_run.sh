#!/usr/bin/env bash
# Checks and measures a machine with GPUs within 540 seconds, most important items first, and writes a JSON report.
#
#   first_run.sh [BUILD] [JSON]       runs all items. BUILD: build/cuda or a carried folder; JSON: first_run.json
#   first_run.sh pack BUILD CARRIED   copies the programs of BUILD without symbols, to carry them to such a machine
#
# A program that is in BUILD and starts is used as it is. Others are built there, as the preset train-cuda does.
# The JSON file is written after each item. Without a GPU each item reports so. docs/gpus.md describes the items.
# TESSERA_FIRST_RUN_SECONDS: total limit instead of 540. TESSERA_FIRST_RUN_ITEM_SECONDS: limit of every item.
# TESSERA_FIRST_RUN_GPUS: number of GPUs instead of the detected number.
cd "$(dirname "$0")/../.." || exit 1

train=examples/train_transformer benchmark=tests/benchmarks/train_step
programs=("$train" "$benchmark" tests/{graphs_test,nccl_test,validator_test,reference_runner})

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
  elif wait "$running"; then
    state=passed
  else
    state="failed ($?)"
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
  printf '%s\t%s\t%s\t%s\n' "$item" "$state" $((SECONDS - begun)) "$*" >>"$log/items"
  [[ $ran ]] && report
}

# Replaces the JSON file atomically, so that readers always find a complete file.
report() {
  GPUS=$gpus NAME=$name COMMIT=$(git rev-parse HEAD 2>/dev/null) LOG=$log SECONDS_USED=$SECONDS python3 - "$json" <<'END'
import json, os, statistics, sys

log = os.environ["LOG"]

def lines(file, most=None):
    try:
        with open(f"{log}/{file}", errors="replace") as text:
            return text.read().splitlines()[-most if most else 0:]
    except OSError:
        return []

def speed(rows):  # of the steps after the first quarter
    steps = [row for row in map(json.loads, rows) if "loss" in row]
    result = {"steps": len(steps)}
    for key in ["tokens_per_second", "mfu"]:
        values = [row[key] for row in steps[len(steps) // 4:] if key in row]
        if values:
            result[key] = statistics.median(values)
    return {**result, **{f"{which}_step": steps[at] for which, at in [("first", 0), ("last", -1)] if steps}}

items = []
for line in lines("items"):
    name, state, seconds, command = line.split("\t")
    item = {"name": name, "state": state, "seconds": int(seconds), "command": command,
            "last_lines": lines(f"{name}.out", 40)}
    if rows := lines(f"{name}.metrics"):
        item["speed"] = speed([row for row in rows if row.endswith("}")])
    if profile := lines(f"{name}.profile/profile.txt"):
        item["profile"] = profile
    items.append(item)
with open(f"{sys.argv[1]}.new", "w") as file:
    json.dump({"gpus": int(os.environ["GPUS"]), "gpu_and_driver": os.environ["NAME"], "commit": os.environ["COMMIT"],
               "seconds": int(os.environ["SECONDS_USED"]), "items": items}, file, indent=1)
os.replace(file.name, sys.argv[1])
END
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

# The bytes of the library's sources as tokens, in llm.c's format: a program without ICU reads them, too.
write_tokens() {
  python3 - "$1" <<'END'
import pathlib, struct, sys

folders = [pathlib.Path(folder) for folder in ["sharding", "nn", "optim", "data"]]
text = b"".join(file.read_bytes() for folder in folders for file in sorted(folder.rglob("*.*")))
with open(sys.argv[1], "wb") as tokens:
    tokens.write(struct.pack("<256i", 20240520, 1, len(text), *[0] * 253) + struct.pack(f"<{len(text)}H", *text))
END
}

# A program from another machine may not find LibTorch by its path: use the one of python3's torch package.
if ((gpus > 0)) && [[ -x $build/$train ]] && ! starts "$build/$train"; then
  torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)
  [[ $torch ]] && export LD_LIBRARY_PATH=$torch/lib$(printf ':%s' "${torch%/*}"/nvidia/*/lib)
fi

export TESSERA_DEVICE=cuda
start="bash tests/processes/start.sh"
tokens=$log/tokens.bin
((gpus > 0)) && write_tokens "$tokens"
# gpt2 NAME: the command that trains GPT-2's 124M parameters on 64 rows of 1,024 tokens.
gpt2() {
  echo "$build/$train" --mesh data=1 --vocab 50304 --data "$tokens" --layers 12 --embed 768 --heads 12 --seq 1024 \
    --batch 64 --precision bfloat16 ${peak:+--peak-flops $peak} --metrics "$log/$1.metrics"
}

find_missing "$train"
((${#missing[@]})) && item build_train 1 300 build_targets "${missing[@]}"
item one_step 1 100 python3 tests/cuda/one_step.py "$build/$train"
item gpt2_124m 1 100 $(gpt2 gpt2_124m) --steps 40
item gpt2_124m_profile 1 60 $(gpt2 gpt2_124m_profile) --steps 12 --profile "$log/gpt2_124m_profile.profile" --profile-steps 3

find_missing "${programs[@]}"
((${#missing[@]})) && item build_rest 1 200 build_targets "${missing[@]}"
item nccl_1 1 60 "$build/tests/nccl_test"
for ((n = 2; n <= 8; n *= 2)); do
  item "nccl_$n" $n 60 $start $n "$build/tests/nccl_test"
  item "train_$n" $n 60 $start $n "$build/$train" --mesh "data=$n" --rules embed=data --data README.md docs --steps 50
done
item gpt2_124m_captured 1 100 $(gpt2 gpt2_124m_captured) --steps 40 --graphed-step
item graphs 1 60 "$build/tests/graphs_test"
item train_step 1 60 "$build/$benchmark" --size all --strategy one --threads 1 --steps 100
item train_step_captured 1 60 "$build/$benchmark" --size all --strategy one --threads 1 --steps 100 --graphed-step yes
item validator 1 120 env TESSERA_PLACEMENTS=8 "$build/tests/validator_test" --gtest_filter='Operations/Validator.*'
item curves 1 "$limit" "$build/tests/reference_runner" \
  tests/reference/{optimizers,placement,propagation,schedules,seeds_examples,shard_map,transformer_}*.json

report
echo "written: $json"
! grep -q "	failed\|	ended" "$log/items"
