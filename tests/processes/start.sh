#!/usr/bin/env bash
# start.sh N PROGRAM [ARGUMENT...]: runs N processes with only torchrun's variables, and ends the others if one fails.
n=$1
shift
export WORLD_SIZE="${WORLD_SIZE:-$n}" LOCAL_WORLD_SIZE="$n"
export MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}" MASTER_PORT="${MASTER_PORT:-$((20000 + $$ % 12000))}"
pids=()
for ((rank = 0; rank < n; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  pids+=($!)
done
failure=0
for ((left = n; left > 0; --left)); do
  wait -n
  status=$?
  if ((status > 0 && failure == 0)); then
    failure=$status
    {
      sleep 10
      for pid in "${pids[@]}"; do  # the pid of an ended process may have been reused
        grep -q "^PPid:[[:space:]]*$$\$" "/proc/$pid/status" && kill -KILL "$pid"
      done
    } >/dev/null 2>&1 &
    ender=$!
    disown
  fi
done
[ -n "$ender" ] && kill "$ender"
exit $failure
