#!/usr/bin/env python3
"""Repeatedly kills or stops a random process of a run. The others must end in time and report which process it was."""
import argparse
import collections
import os
import random
import re
import signal
import subprocess
import sys
import time


def children(pid):
    """All process ids below `pid` in the process tree."""
    table = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                table.setdefault(int(stat.read().rsplit(")", 1)[1].split()[1]), []).append(int(entry))
        except OSError:
            pass
    found, front = [], [pid]
    while front:
        front = [child for parent in front for child in table.get(parent, [])]
        found += front
    return found


def ranks(launcher):
    """{rank: pid} of the launcher's processes."""
    found = {}
    for pid in children(launcher):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                text = environ.read()
        except OSError:
            continue
        rank = re.search(rb"(?:^|\0)(?:RANK|PMI_RANK|OMPI_COMM_WORLD_RANK)=(\d+)", text)
        if rank:
            found[int(rank[1])] = pid
    return found


def one_run(command, number, args, rng, counts):
    """Returns a description of the faults of one run, or None if it ended as expected."""
    environment = dict(os.environ, TESSERA_TIMEOUT=str(args.timeout), OMP_NUM_THREADS="1")
    run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    moment = rng.uniform(*args.moment)
    time.sleep(moment)
    victim = rng.randrange(args.processes)
    how = rng.choice([signal.SIGKILL, signal.SIGSTOP])
    pids = ranks(run.pid)
    while victim not in pids and run.poll() is None:  # the process may not have started yet
        pids = ranks(run.pid)
    if victim not in pids:
        return f"run {number}: ended by itself:\n{run.communicate()[0]}"
    os.kill(pids[victim], how)
    try:
        output = run.communicate(timeout=args.timeout * 2 + args.patience)[0]
    except subprocess.TimeoutExpired:
        for pid in children(run.pid) + [run.pid]:
            os.kill(pid, signal.SIGKILL)
        counts["hangs"] += 1
        return f"run {number}: {how.name} of process {victim} hangs:\n{run.communicate()[0]}"
    counts[how.name] += 1
    print(f"run {number}: {how.name} of process {victim} at {moment:.2f} s: status {run.returncode}", flush=True)
    if run.returncode == 0:
        return f"run {number}: {how.name} of process {victim}, but status 0"
    named = re.findall(r"process (\d+)(?: has ended| has not|, which hosts the store)", output)
    named += re.findall(r"not seen: ([\d, ]+)", output) + re.findall(r"which process (\d+) keeps", output)
    if set(named) - {str(victim)}:
        return f"run {number}: {how.name} of process {victim}, but named are {named}:\n{output}"
    if len(named) < args.processes - 1:
        counts["not by all"] += 1
        return f"run {number}: {how.name} of process {victim} at {moment:.2f} s, named by {len(named)} only:\n{output}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=5, help="TESSERA_TIMEOUT of the runs")
    parser.add_argument("--patience", type=float, default=30, help="seconds beyond twice the timeout that are no hang")
    parser.add_argument("--moment", type=float, nargs=2, default=(0.5, 3), help="seconds after the start, from and to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--launcher", default="bash tests/processes/start.sh", help="the number follows it")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="a program that runs for long, and its arguments")
    args = parser.parse_args()
    if not args.program:
        parser.error("the program is missing")
    rng = random.Random(args.seed)
    command = args.launcher.split() + [str(args.processes)] + args.program
    mistakes, counts = 0, collections.Counter()
    for number in range(args.runs):
        mistake = one_run(command, number, args, rng, counts)
        if mistake:
            mistakes += 1
            print(mistake, flush=True)
    print(f"{args.runs} runs: {counts['SIGKILL']} killed, {counts['SIGSTOP']} stopped; {mistakes} not as they should be: "
          f"{counts['hangs']} hung, in {counts['not by all']} not all that were left could say who it was")
    sys.exit(mistakes > 0)


if __name__ == "__main__":
    main()
