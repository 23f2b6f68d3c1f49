#!/bin/bash
# Fuzzes the readers of files under ASan and UBSan, as many at once as there are cores.
#   run.sh [--seconds 30 | --runs 1000000] [--build FOLDER] [reader...]
# A reader is a file tests/fuzz/<reader>_fuzz.cpp. Without a name, all are run. Needs clang++ with libFuzzer, and Ninja.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
amount=-max_total_time=30
out=$root/build/fuzz
while [[ ${1-} == --* ]]; do
  case $1 in
    --seconds) amount=-max_total_time=$2 ;;
    --runs) amount=-runs=$2 ;;
    --build) out=$(realpath -m "$2") ;;
    *) echo "$1: expected --seconds, --runs or --build" >&2; exit 2 ;;
  esac
  shift 2
done
readers=("$@")
[ ${#readers[@]} -gt 0 ] || readers=($(cd "$root/tests/fuzz" && printf '%s\n' *_fuzz.cpp | sed 's/_fuzz.cpp//'))

cxx=${CXX:-$(command -v clang++-19 || command -v clang++ || true)}
if ! printf '%s\n' '#if __clang_major__ < 16' '#error older' '#endif' \
    'extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }' |
    "${cxx:-clang++}" -x c++ - -fsanitize=fuzzer,address -o /dev/null 2>/dev/null; then
  echo "SKIPPED: no clang++ 16 or newer with libFuzzer. Install clang-19 and libclang-rt-19-dev, or set CXX."
  exit 0
fi
mkdir -p "$out"

# One archive of all sources that readers need; the linker selects what a reader uses. Functions that make arrays are
# missing, and are never called.
cd "$root"
sources=(sharding/{base,files}/*.cpp sharding/runtime/{heartbeat,launcher_environment}.cpp
         sharding/placement/{dtype,shape}.cpp sharding/operations/neural/rotary_checks.cpp
         nn/checkpoint/{manifest,weight_files}.cpp
         nn/models/{config,config_fields,hugging_face_config,families,expert_families}.cpp
         nn/placement/{table,table_json}.cpp nn/report/{measure_hardware,profile_data,step_forecast}.cpp
         nn/tree/{tree,tree_scalars,tree_equal}.cpp
         $(ls data/*/*.cpp | grep -vE '_stub|data/batches/(shard_batches|stack|to_global|token_batch)|/(loader_core|prefetch|tokenizer_trainer)\.cpp'))
# Boost and LibTorch's {fmt}, from CPLUS_INCLUDE_PATH, which ctest sets, or from the cache.
if [ -z "${CPLUS_INCLUDE_PATH-}" ]; then
  deps=${TESSERA_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera}
  boost=$(find "$deps" -maxdepth 4 -path '*boost_headers/include/boost' | head -1)
  torch=$(find "$deps" -maxdepth 4 -path '*libtorch-2.11*/torch/include' | head -1)
  export CPLUS_INCLUDE_PATH=${boost%/boost}:$torch
fi
libraries=-Wl,--unresolved-symbols=ignore-in-object-files
{
  cat <<RULES
rule compile
  command = $(command -v ccache || true) $cxx -std=c++20 -O1 -gline-tables-only -w -fsanitize=fuzzer-no-link,address,undefined $
    -fno-sanitize-recover=undefined -DFMT_HEADER_ONLY -DBOOST_JSON_STANDALONE -DTESSERA_HAS_ZLIB=1 -DTESSERA_HAS_ZSTD=1 $
    -I$root $
    -MMD -MF \$out.d -c \$in -o \$out
  depfile = \$out.d
  deps = gcc
rule archive
  command = rm -f \$out && ar rc \$out \$in
rule link
  command = $cxx -no-pie -fsanitize=fuzzer,address,undefined \$in $libraries -licui18n -licuuc -lz -lzstd -o \$out
RULES
  for source in "${sources[@]}"; do echo "build ${source%.cpp}.o: compile $root/$source"; done
  echo "build readers.a: archive ${sources[*]/%.cpp/.o}"
  for reader in "${readers[@]}"; do
    echo "build ${reader}_fuzz.o: compile $root/tests/fuzz/${reader}_fuzz.cpp"
    echo "build ${reader}_fuzz: link ${reader}_fuzz.o readers.a"
  done
} > "$out/build.ninja"
ninja -C "$out" > "$out/build.log" || { tail -40 "$out/build.log"; exit 1; }

# The memory limit is for the memory that a reader keeps for an input of at most 1 MB. malloc's limit also allows zstd's
# window of 128 MB.
fuzz() {
  local corpus=$root/tests/fuzz/corpus/$1 dictionary=()
  mkdir -p "corpus/$1" failures
  [ ! -f "$corpus.dict" ] || dictionary=("-dict=$corpus.dict")
  "./$1_fuzz" "$amount" -max_len=1000000 -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=160 -print_final_stats=1 \
    "${dictionary[@]}" "-artifact_prefix=failures/$1-" "corpus/$1" "$corpus" > "$1.log" 2>&1 || echo "FAILED" >> "$1.log"
}
cd "$out"
for reader in "${readers[@]}"; do
  fuzz "$reader" &
  [ "$(jobs -r | wc -l)" -lt "$(nproc)" ] || wait -n
done
wait

status=0
for reader in "${readers[@]}"; do
  log=$reader.log
  printf '%-22s %10s runs\n' "$reader" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  [ "$(tail -1 "$log")" = FAILED ] || continue
  status=1
  grep -E '^(SUMMARY|==.*ERROR|.*runtime error)' "$log" | head -3 || true
  sed -n "s|.*Test unit written to \(.*\)|  reproduce: $out/${reader}_fuzz $out/\1|p" "$log"
done
exit $status
