#!/usr/bin/env bash
# train_on_gpus.sh PROGRAM [FLAG...]: trains on all GPUs of this machine, with one process each.
# The flags are passed to the program. With another launcher, such as torchrun --no-python or mpiexec, start PROGRAM
# directly with TESSERA_DEVICE=cuda.
if [ -n "${CUDA_VISIBLE_DEVICES-}" ]; then
  gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
else
  gpus=$(compgen -G '/dev/nvidia[0-9]*' | wc -l)
fi
if ((gpus == 0)); then
  echo "there is no GPU on this machine (/dev/nvidia0)" >&2
  exit 1
fi
export TESSERA_DEVICE=cuda
[[ "$*" =~ --(mesh|strategy) ]] || set -- "$@" --mesh "data=$gpus"
[[ "$*" =~ --batch ]] || set -- "$@" --batch $((8 * gpus))
exec bash "$(dirname "$0")/../tests/processes/start.sh" "$gpus" "$@"
