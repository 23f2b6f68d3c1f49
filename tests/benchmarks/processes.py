#!/usr/bin/env python3
"""Measures a training step on two processes, compared with one process with two threads and with PyTorch, in turns.

  processes.py --train build/release/examples/train_transformer [--python python3 with torch] [--network 1gbit]

The model is that of size mid in the benchmark train_step. The batch, 16 windows of 128 bytes, is divided among the
processes, which have one thread each. Over Gloo, data parallelism is compared with DDP, FSDP with FSDP2 (one unit per
block), and a sharded optimizer state with ZeroRedundancyOptimizer. Tensor parallelism is measured, too. With --network
each process is on its own host, simulated by network namespaces, with a link of this bandwidth. Prints the minimum and
the median step of each, and for the ratios of the turns' medians: their median, minimum and maximum.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "processes"))
from two_hosts import Hosts

MODEL = ["--embed", "256", "--heads", "8", "--layers", "4", "--mlp", "1024", "--seq", "128", "--batch", "16"]
FIRST = 3  # skipped: steps that plan and allocate


def run(commands, threads):
    """Runs one command for each process, and returns the output of the first."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for command in commands]
    outputs = [process.communicate()[0] for process in started]
    for process, output in zip(started, outputs):
        if process.returncode:
            raise SystemExit(output)
    return outputs[0]


def two_processes(command, hosts, port):
    """The command for two processes, with torchrun's variables."""
    address = "10.77.0.1" if hosts else "127.0.0.1"
    commands = []
    for rank in range(2):
        said = [f"RANK={rank}", "WORLD_SIZE=2", f"LOCAL_RANK={0 if hosts else rank}", f"MASTER_ADDR={address}",
                f"MASTER_PORT={port}"]
        inside = ["ip", "netns", "exec", hosts.names[rank]] if hosts else []
        if hosts:
            said.append(f"GLOO_SOCKET_IFNAME={hosts.ends[rank]}")
        commands.append([*inside, "env", *said, *command])
    return commands


class Bench:
    def __init__(self, args, hosts, folder):
        self.args, self.hosts, self.metrics, self.port = args, hosts, os.path.join(folder, "metrics.json"), 23000

    def ours(self, where, processes):
        command = [self.args.train, *MODEL, *where, "--steps", str(self.args.steps), "--warmup", "0", "--data",
                   *self.args.data, "--metrics", self.metrics]
        self.port += 1
        run([command] if processes == 1 else two_processes(command, self.hosts, self.port), 2 // processes)
        with open(self.metrics) as lines:
            rows = [json.loads(line) for line in lines]
        return [16 * 128 / row["tokens_per_second"] for row in rows if "loss" in row][FIRST:]

    def torchs(self, kind):
        self.port += 1
        command = [self.args.python, str(HERE / "processes_torch.py"), kind, str(self.args.steps)]
        return json.loads(run(two_processes(command, self.hosts, self.port), 1).splitlines()[-1])[FIRST:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True, help="the program train_transformer")
    parser.add_argument("--python", help="a Python with torch, for DDP and FSDP2")
    parser.add_argument("--network", help="two hosts with so fast a cable between them: 1gbit")
    parser.add_argument("--data", nargs="+", default=["docs"], help="files to train on")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rows", nargs="+", help="these alone, as they are printed: fsdp FSDP2")
    args = parser.parse_args()
    hosts = Hosts().__enter__() if args.network else None
    try:
        if hosts:
            hosts.limit(args.network)
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(args, hosts, folder)
            dp, fsdp = ["--mesh", "data=2"], ["--mesh", "data=2", "--rules", "embed=data"]
            tp = ["--mesh", "model=2", "--rules", "heads=model,mlp=model,vocab=model"]
            rows = {"1 process, 2 threads": lambda: bench.ours(["--mesh", "data=1"], 1),
                    "dp": lambda: bench.ours(dp, 2), "fsdp": lambda: bench.ours(fsdp, 2),
                    "zero1": lambda: bench.ours([*dp, "--shard-state-over", "data"], 2),
                    "tp": lambda: bench.ours(tp, 2)}
            if args.python:
                rows |= {"DDP": lambda: bench.torchs("ddp"), "FSDP2": lambda: bench.torchs("fsdp"),
                         "torch's ZeRO-1": lambda: bench.torchs("zero1")}
            rows = {name: measure for name, measure in rows.items() if not args.rows or name in args.rows}
            times = {name: [] for name in rows}
            for _ in range(args.turns):
                for name, measure in rows.items():
                    times[name].append(measure())
    finally:
        if hosts:
            hosts.__exit__()
    for name, turns in times.items():
        print(f"{name:22} best {min(map(min, turns)) * 1000:7.1f} ms   median "
              f"{statistics.median(sum(turns, [])) * 1000:7.1f} ms")
    for ours, theirs in (("dp", "1 process, 2 threads"), ("dp", "DDP"), ("fsdp", "FSDP2"), ("zero1", "torch's ZeRO-1")):
        if ours not in times or theirs not in times:
            continue
        ratios = sorted(statistics.median(a) / statistics.median(b) for a, b in zip(times[ours], times[theirs]))
        best = min(map(min, times[ours])) / min(map(min, times[theirs]))
        print(f"{ours} / {theirs}: median of turns {statistics.median(ratios):.2f} ({ratios[0]:.2f} to "
              f"{ratios[-1]:.2f}), best step {best:.2f}")


main()
