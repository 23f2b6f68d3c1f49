#!/usr/bin/env bash
# start.sh N PROGRAM [ARGUMENT...]: runs N processes with only torchrun's variables, and ends the others if one fails.
# The others have GRACE seconds (default: 10) to end themselves. Passes SIGTERM and SIGINT on as SIGTERM. The exit status
# is the first failure's; 75 only if no process exits with another.
n=$1
shift
export WORLD_SIZE="${WORLD_SIZE:-$n}" LOCAL_WORLD_SIZE="$n"
export MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}" MASTER_PORT="${MASTER_PORT:-$((20000 + $$ % 12000))}"
pids=()
for ((rank = 0; rank < n; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  pids+=($!)
done
trap 'kill -TERM "${pids[@]}" 2>/dev/null' TERM INT
failure=0
for ((left = n; left > 0; )); do
  wait -n -p ended
  status=$?
  if [ -z "$ended" ] && ((status != 127)); then continue; fi  # a signal interrupted wait
  if [ -z "$ended" ]; then status=137; fi  # bash has dropped the status of a killed process
  ((--left))
  if ((status > 0 && status < 128 && failure == 75)); then
    failure=$status
  elif ((status > 0 && failure == 0)); then
    failure=$status
    {
      sleep "${GRACE:-10}"
      for pid in "${pids[@]}"; do  # the pid of an ended process may have been reused
        grep -q "^PPid:[[:space:]]*$$\$" "/proc/$pid/status" && kill -KILL "$pid"
      done
    } >/dev/null 2>&1 &
    ender=$!
    disown
  fi
done
[ -n "$ender" ] && kill "$ender" 2>/dev/null
exit $failure
