#!/usr/bin/env python3
"""Prints the tables of docs/performance.md: training steps, the loader and tokenizers, with other libraries, in turns.

  performance.py --build build/release [--python PYTHON] [--threads 1|all|both] [--turns 5] [--steps N]
                 [--tokenizer FOLDER... --text FILE...]

A turn runs these programs one after another:
- train_step with OpenMP's default wait policy, and for several threads again with OMP_WAIT_POLICY=PASSIVE. Both measure
  ours and plain LibTorch; the faster LibTorch counts.
- with PYTHON: the step in jitted JAX (train_step_jax.py) and in PyTorch, eager and compiled (torch_step.py). Packages
  that PYTHON does not have are named and left out.
Then processes.py compares two processes with DDP and FSDP2, the program `loader` compares the input pipeline with
Grain, and tokenizer.py compares each tokenizer FOLDER with Hugging Face's `tokenizers`. A cell is the median of the
turns' ratios with the minimum and the maximum in brackets. The tables are printed; progress goes to standard error.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SIZES, STRATEGIES = ["tiny", "mid"], ["one", "dp8", "fsdp8", "tp8", "2x4", "zero1"]


def lines_of(command, **variables):
    """The JSON lines that a program prints, by (size, strategy)."""
    print(*variables, *command, file=sys.stderr, flush=True)
    done = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"error: [performance] {' '.join(command)}: ended with status {done.returncode}.")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(row["size"], row["strategy"]): row for row in rows}


def has(python, *modules):
    script = "import " + ", ".join(modules)
    return bool(python) and subprocess.run([python, "-c", script], stderr=subprocess.DEVNULL).returncode == 0


def one_turn(args, threads):
    """Milliseconds by library and (size, strategy)."""
    steps = ["--steps", str(args.steps)] if args.steps else []
    step = [f"{args.build}/tests/benchmarks/train_step", "--threads", threads, *steps]
    runs = [lines_of(step)] + ([] if threads == "1" else [lines_of(step, OMP_WAIT_POLICY="PASSIVE")])
    turn = {"ours": {k: row["ours_ms"] for k, row in runs[0].items()},
            "LibTorch": {k: min(run[k]["plain_ms"] for run in runs) for k in runs[0]}}
    if args.jax:
        command = [args.python, str(HERE / "train_step_jax.py"), "--threads", threads, *steps]
        turn["JAX"] = {k: row["jax_ms"] for k, row in lines_of(command).items()}
    for kind in ("eager", "compile") if args.torch else ():
        command = [args.python, str(HERE / "torch_step.py"), kind, threads, *steps[1:]]
        turn[f"PyTorch, {kind}"] = {k: row["ms"] for k, row in lines_of(command).items()}
    return turn


def cell(ratios):
    low, high = min(ratios), max(ratios)
    return f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})" if len(ratios) > 1 else f"{low:.2f}"


def table(turns, theirs):
    """Ours divided by theirs, one row per size: of the same strategy, or of one device if theirs has no other."""
    rows = [f"| ours / {theirs} | {' | '.join(STRATEGIES)} |", "|---" * (len(STRATEGIES) + 1) + "|"]
    for size in SIZES:
        cells = []
        for strategy in STRATEGIES:
            peer = [turn[theirs].get((size, strategy), turn[theirs].get((size, "one"))) for turn in turns]
            cells.append(cell([turn["ours"][size, strategy] / p for turn, p in zip(turns, peer)]))
        rows.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(rows)


def output_of(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    return "```\n" + done.stdout.rstrip() + "\n```"


def measured(args):
    yield f"{len(os.sched_getaffinity(0))} cores; {args.turns} turns."
    for threads in {"1": ["1"], "all": ["all"], "both": ["1", "all"]}[args.threads]:
        turns = [one_turn(args, threads) for _ in range(args.turns)]
        yield "**One thread**" if threads == "1" else "**All cores**"
        for theirs in turns[0]:
            if theirs != "ours":
                yield table(turns, theirs)
    if args.torch:
        yield "**Two processes of one thread**, mid, and one of two threads"
        yield output_of(sys.executable, HERE / "processes.py", "--train", f"{args.build}/examples/train_transformer",
                        "--python", args.python, "--turns", args.turns)
    if args.grain:
        yield "**The loader**"
        yield output_of(f"{args.build}/tests/benchmarks/loader", args.python)
    for folder in args.tokenizer if args.tokenizers else ():
        yield f"**Tokenizer {pathlib.Path(folder).name}**, one thread"
        yield output_of(args.python, HERE / "tokenizer.py", "--build", args.build, "--tokenizer", folder,
                        "--turns", args.turns, *args.text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the folder of the build")
    parser.add_argument("--python", help="a Python with some of jax, optax, torch, grain and tokenizers")
    parser.add_argument("--threads", choices=["1", "all", "both"], default="both")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of each measurement")
    parser.add_argument("--tokenizer", nargs="+", default=[], help="folders with a tokenizer.json")
    parser.add_argument("--text", nargs="+", default=[], help="files that the tokenizers encode")
    args = parser.parse_args()
    if bool(args.tokenizer) != bool(args.text):
        parser.error("--tokenizer and --text belong together")
    for peer, modules in {"jax": ["jax", "optax"], "torch": ["torch"], "grain": ["grain"],
                          "tokenizers": ["tokenizers"]}.items():
        setattr(args, peer, has(args.python, *modules))
        if not getattr(args, peer):
            print(f"left out: --python has no {' and '.join(modules)}", file=sys.stderr)
    for part in measured(args):
        print(part + "\n", flush=True)


main()
