#!/usr/bin/env python3
"""A training step by two processes of one core each beside one process of two threads, in turns, on an idle machine.

  processes.py --mpiexec "mpiexec.hydra -bind-to core" --train build/release/examples/train_transformer

Prints the best and the median step of each (the model of the benchmark train_step's size mid, 16 windows of 128 bytes)
and the ratios of two processes to one. The processes have a device each, with the batch divided among them.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

MODEL = ["--embed", "256", "--heads", "8", "--layers", "4", "--mlp", "1024", "--seq", "128", "--batch", "16"]


def step_times(launcher, threads, devices, args, metrics):
    """Seconds of every step but the first three, which plan and allocate."""
    command = launcher + [args.train, *MODEL, "--mesh", f"data={devices}", "--steps", str(args.steps), "--warmup", "0",
                          "--data", *args.data, "--metrics", metrics]
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        raise SystemExit(run.stdout)
    with open(metrics) as lines:
        rows = [json.loads(line) for line in lines]
    return [16 * 128 / row["tokens_per_second"] for row in rows if "loss" in row][3:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpiexec", required=True, help="the launcher and its options, without the number")
    parser.add_argument("--train", required=True, help="the program train_transformer")
    parser.add_argument("--data", nargs="+", default=["docs"], help="files to train on")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    one, two = [], []
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.json")
        for _ in range(args.turns):
            one.append(step_times([], 2, 1, args, metrics))
            two.append(step_times(args.mpiexec.split() + ["-n", "2"], 1, 2, args, metrics))
    print(f"{'':10} {'1 process, 2 threads':>22} {'2 processes, 1 thread':>22} {'ratio':>6}")
    for name, of in (("best", min), ("median", statistics.median)):
        x, y = of(sum(one, [])) * 1000, of(sum(two, [])) * 1000
        print(f"{name:10} {x:19.1f} ms {y:19.1f} ms {y / x:6.2f}")


main()
