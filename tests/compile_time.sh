#!/usr/bin/env bash
# Measures how long a model file takes to compile, and fails above 4 seconds. The default file is the quickstart.
#
#   tests/compile_time.sh [FILE.cpp]
#
# The compile command is that of the file, or of the quickstart if the file belongs to no target, in build/release or in
# the build folder $BUILD. If CXXFLAGS is set, the command is `$CXX $CXXFLAGS`. Without caches; the best of three runs,
# in seconds of CPU time, which on an idle machine equal the elapsed time.
set -euo pipefail
limit=4
root=$(cd "$(dirname "$0")/.." && pwd)
file=$(realpath "${1:-$root/examples/quickstart.cpp}")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

command_from_build() {
  python3 - "${BUILD:-$root/build/release}/compile_commands.json" "$root" "$file" <<'PYTHON'
import json, os, re, shlex, sys
commands, root, file = sys.argv[1:]
entries = {os.path.realpath(entry["file"]): entry for entry in json.load(open(commands))}
entry = entries.get(file) or entries[os.path.realpath(root + "/examples/quickstart.cpp")]
words = shlex.split(entry["command"])
words = words[next(i for i, w in enumerate(words) if re.fullmatch(r"(.*/)?(c\+\+|g\+\+|clang\+\+)(-\d+)?", w)):]
words = words[:words.index("-o")]
print(shlex.join(words))
PYTHON
}

if [[ -n "${CXXFLAGS:-}" ]]; then
  compile="${CXX:-c++} $CXXFLAGS"
else
  compile=$(command_from_build)
fi

export CCACHE_DISABLE=1
TIMEFORMAT='%U %S'
best=
for _ in 1 2 3; do
  { time eval "$compile -c $(printf %q "$file") -o $(printf %q "$out/model.o")" 2>"$out/errors"; } 2>"$out/time" || {
    cat "$out/errors" >&2
    exit 2
  }
  seconds=$(awk '{ printf "%.2f", $1 + $2 }' "$out/time")
  if [[ -z "$best" ]] || awk "BEGIN { exit !($seconds < $best) }"; then best=$seconds; fi
done
echo "$best"
if awk "BEGIN { exit !($best > $limit) }"; then
  echo "[compile_time] ${file#"$root"/} takes $best s, expected at most $limit s." >&2
  exit 1
fi
