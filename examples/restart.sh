#!/usr/bin/env bash
# restart.sh FOLDER COMMAND...: runs COMMAND, a training with --save FOLDER --resume, and starts it again if it fails.
# It ends with the status of COMMAND in these cases:
# - The status is 0.
# - The status is 1, 2, 126 or 127: a restart would fail in the same way.
# - RESTARTS failures in a row (default 5) have left no new checkpoint in FOLDER.
# - It has received SIGTERM or SIGINT, which it passes on to COMMAND as SIGTERM.
# It waits PAUSE seconds (default 5) before each restart.
if (($# < 2)); then
  echo "usage: restart.sh FOLDER COMMAND..." >&2
  exit 2
fi
for number in "${RESTARTS:=5}" "${PAUSE:=5}"; do
  if ! [[ $number =~ ^[0-9]+$ ]]; then
    echo "restart.sh: RESTARTS and PAUSE: $number given, expected a number" >&2
    exit 2
  fi
done
folder=$1 failures=0 is_stopped=
shift
newest() { ls -d -- "$folder"/*[0-9]/commit_success.txt 2>/dev/null | sort -V | tail -n 1; }
trap 'is_stopped=yes; kill -TERM "$command" 2>/dev/null' TERM INT
while true; do
  before=$(newest)
  "$@" &
  command=$!
  [ -n "$is_stopped" ] && kill -TERM "$command"
  until wait "$command"; status=$?; ! kill -0 "$command" 2>/dev/null; do :; done  # a signal interrupts wait
  case $status in 0 | 1 | 2 | 126 | 127) exit "$status" ;; esac
  after=$(newest)
  if [ "$after" = "$before" ]; then failures=$((failures + 1)); else failures=0; fi
  echo "restart.sh: status $status, newest checkpoint: ${after:-none}, failures without a new one: $failures" >&2
  if [ -z "$is_stopped" ] && ((failures < RESTARTS)); then
    sleep "$PAUSE" &
    wait $!
  fi
  if [ -n "$is_stopped" ] || ((failures >= RESTARTS)); then exit "$status"; fi
done
