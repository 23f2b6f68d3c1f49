#!/bin/bash
# Fuzzes the readers of files under ASan and UBSan: run.sh [inputs] [build folder], with libFuzzer of clang++.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
inputs=${1:-1000000}
out=$(realpath -m "${2:-$root/build/fuzz}")
cxx=${CXX:-$(command -v clang++-19 || command -v clang++)}
cache=$(dirname "$(find "${TESSERA_DEPS_DIR:-$HOME/.cache/tessera}" -path '*boost_headers/include/boost' -maxdepth 4 | head -1)")
torch=$(find "${TESSERA_DEPS_DIR:-$HOME/.cache/tessera}" -path '*libtorch-2.11*/torch/include' -maxdepth 4 | head -1)
flags=(-std=c++20 -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -DFMT_HEADER_ONLY
       -DBOOST_JSON_STANDALONE -I"$root" -isystem "$cache" -isystem "$torch")

mkdir -p "$out"
sources=(sharding/{diagnostics/{error,module_path},files/{crc32c,file,json,safetensors,safetensors_writer}}.cpp
         sharding/placement/{dtype,shape}.cpp nn/checkpoint/manifest.cpp)
for source in "${sources[@]}" tests/fuzz/{safetensors,manifest,index}_fuzz.cpp; do
  object=$out/$(basename "$source" .cpp).o
  [ "$object" -nt "$root/$source" ] || "$cxx" "${flags[@]}" -c "$root/$source" -o "$object" &
  [ "$(jobs -r | wc -l)" -lt "$(nproc)" ] || wait -n
done
wait
objects=()
for source in "${sources[@]}"; do objects+=("$out/$(basename "$source" .cpp).o"); done
for reader in safetensors manifest index; do
  "$cxx" -fsanitize=fuzzer,address,undefined "$out/${reader}_fuzz.o" "${objects[@]}" -o "$out/${reader}_fuzz"
done
for reader in safetensors manifest index; do
  mkdir -p "$out/corpus_$reader"
  echo "== $reader: $inputs inputs"
  (cd "$out" && "./${reader}_fuzz" -runs="$inputs" -max_len=2048 -rss_limit_mb=1024 -malloc_limit_mb=64 -verbosity=0 \
     -print_final_stats=1 "corpus_$reader" "$root/tests/fuzz/corpus/$reader")
done
