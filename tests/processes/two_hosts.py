#!/usr/bin/env python3
"""Trains over TCP on two hosts, simulated by network namespaces, and expects an error when the link goes down.

The exit status is 77, with the reason, if the system does not permit namespaces.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

# Replaces ssh: enters the host with its own pid namespace and runs a command there. As on Debian, on the first host its
# own name means an address that no other host can reach.
ENTER = """#!/bin/sh
host=$1; shift
case $host in 10.77.0.1) space=%s; first=127.0.1.1;; *) space=%s; first=10.77.0.1;; esac
echo "127.0.0.1 localhost\n$first first" > $0.$host
exec ip netns exec $space unshare -u -p -f --mount-proc \\
  sh -c "hostname $host; mount --bind $0.$host /etc/hosts; $*"
"""


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


class Hosts:
    """Two network namespaces, connected by a virtual cable."""

    def __init__(self):
        self.names = [f"tessera{os.getpid()}{side}" for side in "ab"]
        self.ends = [f"v{os.getpid()}{side}" for side in "ab"]

    def __enter__(self):
        a, b = self.names
        for command in [["netns", "add", a], ["netns", "add", b],
                        ["link", "add", self.ends[0], "netns", a, "type", "veth", "peer", "name", self.ends[1],
                         "netns", b]]:
            self.ip(*command)
        for i, name in enumerate(self.names):
            self.ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", self.ends[i])
            self.ip("-n", name, "link", "set", self.ends[i], "up")
            self.ip("-n", name, "link", "set", "lo", "up")
        entered = run(["ip", "netns", "exec", a, "unshare", "-u", "-p", "-f", "--mount-proc", "true"])
        if entered.returncode:
            raise OSError(f"unshare: {entered.stdout.strip()}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            for pid in run(["ip", "netns", "pids", name]).stdout.split():
                run(["kill", "-9", pid])
            run(["ip", "netns", "delete", name])

    def ip(self, *arguments):
        done = run(["ip", *arguments])
        if done.returncode:
            self.__exit__()
            raise OSError(f"ip {' '.join(arguments)}: {done.stdout.strip()}")

    def limit(self, rate):
        """Limits the bandwidth of the cable in each direction, for example to "1gbit"."""
        for name, end in zip(self.names, self.ends):
            done = run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", rate,
                        "burst", "256kb", "latency", "50ms"])
            if done.returncode:
                raise OSError(f"tc: {done.stdout.strip()}")

    def cut(self):
        self.ip("-n", self.names[1], "link", "set", self.ends[1], "down")

    def programs(self, name):
        """The process ids of a program on both hosts."""
        found = []
        for space in self.names:
            for pid in run(["ip", "netns", "pids", space]).stdout.split():
                try:
                    if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name:
                        found.append(pid)
                except OSError:
                    pass
        return found


def by_variables(enter, command, machines, address):
    """A command like torchrun's on both hosts, with equally many processes on each, and a machine name for each
    process."""
    n = len(machines)
    ranks = [f"{enter} 10.77.0.{1 + 2 * rank // n} env RANK={rank} LOCAL_RANK={rank % (n // 2)} WORLD_SIZE={n} "
             f"TESSERA_MACHINE={machines[rank]} LOCAL_WORLD_SIZE={n // 2} MASTER_ADDR={address} MASTER_PORT=29500 "
             + " ".join(command) for rank in range(n)]
    return ["sh", "-c", "status=0; pids=; " + " ".join(f"{rank} & pids=\"$pids $!\";" for rank in ranks)
            + " for pid in $pids; do wait $pid || status=1; done; exit $status"]


def launch(hosts, folder, command, machines=("", ""), address="10.77.0.1", **environment):
    enter = os.path.join(folder, "enter.sh")
    with open(enter, "w") as script:
        script.write(ENTER % tuple(hosts.names))
    os.chmod(enter, 0o755)
    environment = dict(os.environ, OMP_NUM_THREADS="1", **environment)
    return subprocess.Popen(by_variables(enter, command, machines, address), env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, start_new_session=True)


def losses(path):
    with open(path) as metrics:
        return [float(x) for x in re.findall(r'"loss":\s*([0-9.eE+-]+)', metrics.read())]


def check_training(hosts, args, folder):
    train = [args.train, "--mesh", "data=2", "--steps", "3", "--warmup", "0", "--layers", "1", "--data", args.text]
    alone, together = os.path.join(folder, "alone.json"), os.path.join(folder, "together.json")
    done = run(train + ["--metrics", alone], env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stdout
    both = launch(hosts, folder, train + ["--metrics", together], address="first", TESSERA_TIMEOUT="60")
    output = both.communicate(timeout=240)[0]
    assert both.returncode == 0, output
    one, two = losses(alone), losses(together)
    assert one and len(one) == len(two), (one, two)
    assert all(abs(x - y) <= 1e-4 * abs(x) for x, y in zip(one, two)), (one, two)
    print(f"two hosts train as one process does: {json.dumps(two)}")


def check_cut(hosts, args, folder):
    name = os.path.basename(args.victim)
    both = launch(hosts, folder, [args.victim, "say", "0", "1000000000"], TESSERA_TIMEOUT="5",
                  TESSERA_START_TIMEOUT="60")
    output = ""
    while output.count("running\n") < 2:
        line = both.stdout.readline()
        assert line, f"the program has not started\n{output}"
        output += line
    time.sleep(args.running)
    assert len(hosts.programs(name)) == 2, both.stdout.read()
    hosts.cut()
    cut = time.time()
    while hosts.programs(name):
        assert time.time() - cut < 60, "a process hangs 60 s after the link went down"
        time.sleep(0.1)
    print(f"all processes have ended {time.time() - cut:.1f} s after the link went down")
    for pid in run(["pgrep", "-g", str(both.pid)]).stdout.split():  # the launcher still waits for the other host
        run(["kill", "-9", pid])
    output += both.stdout.read()
    expected = r'\[all_reduce\] \S+: mesh axis "data": process 1 has not been heard from for [\d.]+ s: it was killed or stopped'
    assert re.search(expected, output), output


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", required=True, help="the program train_transformer")
    parser.add_argument("--victim", required=True, help="the program victim")
    parser.add_argument("--text", required=True, help="a text to train on")
    parser.add_argument("--running", type=float, default=2, help="seconds that both run until the link goes down")
    args = parser.parse_args()
    try:
        hosts = Hosts().__enter__()
    except OSError as reason:
        print(f"skipped: no network namespaces here ({reason})")
        sys.exit(77)
    try:
        with tempfile.TemporaryDirectory() as folder:
            check_training(hosts, args, folder)
            check_cut(hosts, args, folder)
    finally:
        hosts.__exit__()


if __name__ == "__main__":
    main()
