#!/usr/bin/env python3
"""Measures the speedup by each entry of sharding/kernels/: the training step without it, compared with all entries.

  kernels.py --build build/release [--threads 1|all] [--turns 15] [--strategies one,dp8,fsdp8] [--entries NAME,...]

A turn runs train_step with all entries, and then once for each entry with the entry's plain version (TESSERA_PLAIN).
Each run gives the ratio of the step to the same step in plain LibTorch, so that other load on the machine affects both.
A cell is the median over the turns of ratio(without) / ratio(with), in percent above 1, and the quartiles.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "sharding/kernels/plain.cpp"


def entries():
    return re.findall(r'"(\w+)"', re.search(r"entry_names\{(.*?)\}", SOURCE.read_text(), re.S)[1])


def ratios(args, size, steps, plain):
    """The ratio of our milliseconds to those of plain LibTorch, by strategy."""
    found = {}
    for strategy in args.strategies.split(","):
        command = [f"{args.build}/tests/benchmarks/train_step", "--size", size, "--strategy", strategy,
                   "--threads", args.threads, "--steps", str(steps)]
        done = subprocess.run(command, env=os.environ | {"TESSERA_PLAIN": plain}, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"error: [kernels] TESSERA_PLAIN={plain} {' '.join(command)}: status {done.returncode}.")
        found[strategy] = json.loads(done.stdout.splitlines()[-1])["ratio"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--threads", default="all")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--strategies", default="one,dp8,fsdp8")
    parser.add_argument("--entries", default=",".join(entries() + ["1"]), help="1: all twins at once")
    args = parser.parse_args()
    strategies = args.strategies.split(",")
    print(f"{'entry':20}" + "".join(f"{size + ' ' + s:>26}" for size in ("tiny", "mid") for s in strategies))
    gains = {}
    for turn in range(args.turns):
        for size, steps in (("tiny", 100), ("mid", 6)):
            base = ratios(args, size, steps, "0")
            for entry in args.entries.split(","):
                without = ratios(args, size, steps, entry)
                for s in strategies:
                    gains.setdefault((entry, size, s), []).append(100 * (without[s] / base[s] - 1))
        print(f"turn {turn + 1}", file=sys.stderr, flush=True)
    for entry in args.entries.split(","):
        cells = []
        for size in ("tiny", "mid"):
            for s in strategies:
                low, mid, high = statistics.quantiles(gains[entry, size, s], n=4) if args.turns > 1 \
                    else gains[entry, size, s] * 3
                cells.append(f"{mid:8.1f} ({low:.1f} to {high:.1f})")
        print(f"{'all' if entry == '1' else entry:20}" + "".join(f"{cell:>26}" for cell in cells))


if __name__ == "__main__":
    main()
