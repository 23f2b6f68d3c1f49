#!/bin/bash
# Fuzzes the readers of files under ASan and UBSan: run.sh [inputs] [build folder] [reader...], with clang++'s libFuzzer.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
inputs=${1:-1000000}
out=$(realpath -m "${2:-$root/build/fuzz}")
readers=("${@:3}")
[ ${#readers[@]} -gt 0 ] || readers=(safetensors manifest index token_files tokenizer)
cxx=${CXX:-$(command -v clang++-19 || command -v clang++)}
cache=$(dirname "$(find "${TESSERA_DEPS_DIR:-$HOME/.cache/tessera}" -path '*boost_headers/include/boost' -maxdepth 4 | head -1)")
torch=$(find "${TESSERA_DEPS_DIR:-$HOME/.cache/tessera}" -path '*libtorch-2.11*/torch/include' -maxdepth 4 | head -1)
flags=(-std=c++20 -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -DFMT_HEADER_ONLY
       -DBOOST_JSON_STANDALONE -I"$root" -isystem "$cache" -isystem "$torch")

# What each reader is linked of; the tokenizer with ICU. What makes arrays of a file is not there, and not called.
common=(sharding/{diagnostics/{error,module_path},files/{file,json}}.cpp)
saved=(sharding/{files/{crc32c,safetensors,safetensors_writer},placement/{dtype,shape}}.cpp nn/checkpoint/manifest.cpp)
files=(data/{dataset,decompress,decompress_gzip_stub,decompress_zstd_stub,file_list,file_watch,npy_header,random}.cpp
       data/{shard_options,shuffle,source,token_files,token_layout,text_source}.cpp)
tokens=(data/{added_tokens,aligned_text,byte_characters,byte_pair_encoding,step_budget,tokenizer}.cpp
        data/{tokenizer_steps,unicode_text,word_memo}.cpp sharding/files/json_part.cpp)
sources_of() {
  printf '%s\n' "${common[@]}"
  case $1 in
    token_files) printf '%s\n' "${files[@]}" ;;
    tokenizer) printf '%s\n' "${files[@]}" "${tokens[@]}" ;;
    *) printf '%s\n' "${saved[@]}" ;;
  esac
}

mkdir -p "$out"
for source in $(for reader in "${readers[@]}"; do sources_of "$reader"; echo "tests/fuzz/${reader}_fuzz.cpp"; done | sort -u); do
  object=$out/$(basename "$source" .cpp).o
  [ "$object" -nt "$root/$source" ] || "$cxx" "${flags[@]}" -c "$root/$source" -o "$object" &
  [ "$(jobs -r | wc -l)" -lt "$(nproc)" ] || wait -n
done
wait
for reader in "${readers[@]}"; do
  objects=("$out/${reader}_fuzz.o")
  for source in $(sources_of "$reader"); do objects+=("$out/$(basename "$source" .cpp).o"); done
  libraries=(-Wl,--unresolved-symbols=ignore-in-object-files)
  [ "$reader" != tokenizer ] || libraries+=(-licui18n -licuuc)
  "$cxx" -fsanitize=fuzzer,address,undefined "${objects[@]}" "${libraries[@]}" -o "$out/${reader}_fuzz"
done
for reader in "${readers[@]}"; do
  mkdir -p "$out/corpus_$reader"
  echo "== $reader: $inputs inputs"
  (cd "$out" && "./${reader}_fuzz" -runs="$inputs" -max_len=2048 -rss_limit_mb=1024 -malloc_limit_mb=64 -verbosity=0 \
     -print_final_stats=1 "corpus_$reader" "$root/tests/fuzz/corpus/$reader")
done
