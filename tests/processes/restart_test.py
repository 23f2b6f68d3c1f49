#!/usr/bin/env python3
"""Kills processes of a training that examples/restart.sh restarts, and compares it with an uninterrupted run.

    tests/processes/restart_test.py build/release/examples/train_transformer [--kills 20] [--seed 0]
    ... --strategies    also draws mesh, rules and 1, 2 or 4 processes for each restart; values may differ by rounding

Without --strategies two processes run, and one in the last quarter. All rows of the metrics and all bytes of the last
checkpoint must then be equal: a sum of two values does not depend on their order.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

from kill_processes import children, ranks

ROOT = pathlib.Path(__file__).parents[2]
START = ["bash", str(ROOT / "tests/processes/start.sh")]
PATIENCE = 120  # seconds until a process that does not start or end is an error, also on a busy machine
SIZES = "--embed 32 --heads 8 --layers 1 --mlp 32 --seq 16 --batch 8 --warmup 10 --lr 0.0003".split()
STRATEGIES = ["--strategy dp", "--strategy fsdp", "--strategy tp", "--strategy 2d", "--strategy zero1"]
TOLERANCE = 5e-5  # float32, with sums in another order. At ten times this learning rate training is chaotic.


class Training:
    def __init__(self, program, folder, steps):
        self.folder, self.save, self.plan = folder, folder / "save", folder / "plan"
        (folder / "text.txt").write_text("".join(f"the number {i * i % 97} follows; " for i in range(2000)))
        self.command = [program, "--data", str(folder / "text.txt"), *SIZES, "--steps", str(steps)]

    def run(self, processes, *flags):
        return subprocess.run([*START, str(processes), *self.command, *flags], stdout=subprocess.DEVNULL).returncode

    def loop(self, flags="", restarts=5):
        """Starts restart.sh, whose command reads the number of processes and the flags from the file `plan`."""
        command = [*self.command, "--save", str(self.save), "--save-every", "3", "--resume"]
        shell = f"exec {' '.join(START)} $(head -1 {self.plan}) {' '.join(command)} {flags} $(tail -1 {self.plan})"
        environment = dict(os.environ, PAUSE="0", RESTARTS=str(restarts))
        with open(self.folder / "log.txt", "w") as log:
            return subprocess.Popen(["bash", str(ROOT / "examples/restart.sh"), str(self.save), "bash", "-c", shell],
                                    env=environment, stdout=log, stderr=log)

    def log(self):
        return (self.folder / "log.txt").read_text()

    def set_plan(self, processes, flags):
        self.plan.write_text(f"{processes}\n{flags}\n")

    def newest(self):
        steps = [int(p.name) for p in self.save.glob("*") if p.name.isdigit() and (p / "commit_success.txt").exists()]
        return max(steps, default=0)


def expect(condition, message):
    if not condition:
        sys.exit(message)


def wait_until(condition, loop):
    """Returns whether the condition became true before the loop ended."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if loop.poll() is not None:
            return False
        expect(time.monotonic() < until, f"nothing has happened for {PATIENCE} s")
        time.sleep(0.001)
    return True


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def kill(training, loop, chance, step, state):
    """Kills one process or all. Returns a line of text, or None if the training has ended before."""
    processes, old, pids = state["processes"], state["pids"], {}
    moment, delay = chance.choice(["at the start", "after a save", "in a save"]), chance.uniform(0, 1)
    victims = chance.choice([[chance.randrange(processes)], range(processes)])

    def all_run():
        pids.update({rank: pid for rank, pid in ranks(loop.pid).items() if pid not in old})
        return len(pids) == processes

    def is_time():
        if moment == "at the start":  # often while the processes join each other
            time.sleep(delay)
            return True
        return training.newest() >= step and (moment == "after a save" or any(training.save.glob("*.tmp")))

    if not wait_until(all_run, loop) or not wait_until(is_time, loop):
        return None
    training.set_plan(*state["next"])
    before = training.newest()
    for victim in victims:
        try:
            os.kill(pids[victim], signal.SIGKILL)
        except ProcessLookupError:
            return None
    began = time.monotonic()
    wait_until(lambda: not any(map(is_alive, pids.values())), loop)
    seconds = time.monotonic() - began
    expect(training.newest() >= before, f"step {before} was complete, and is lost")
    state.update(processes=state["next"][0], pids=set(pids.values()), longest=max(state["longest"], seconds))
    return f"{len(victims)} of {processes} killed {moment} at step {before}; all ended after {seconds:.1f} s"


def rows(path):
    """The rows of metrics, without times and memory."""
    keys = ("step", "loss", "grad_norm", "learning_rate", "validation_loss")
    return [{k: v for k, v in json.loads(line).items() if k in keys} for line in path.read_text().splitlines()]


def files(checkpoint):
    return {p.relative_to(checkpoint): p.read_bytes() for p in checkpoint.glob("*/*.safetensors")}


def compare(expected, got, tolerance):
    expect([(r["step"], len(r)) for r in expected] == [(r["step"], len(r)) for r in got], f"other rows: {got}")
    worst = max(abs(a[key] - b[key]) for a, b in zip(expected, got) for key in a)
    expect(worst <= tolerance, f"the metrics differ by {worst}")
    return f"{len(got)} rows, largest difference {worst:.2g}"


def check_kills(program, folder, options, steps):
    """Returns whether the training was long enough for all kills."""
    training, chance = Training(program, folder, steps), random.Random(options.seed)
    any_plan = lambda: (chance.choice([1, 2, 4]), chance.choice(STRATEGIES))
    last = options.kills - max(1, options.kills // 4)
    plans = [any_plan() if options.strategies else (2 if k < last else 1, "--mesh data=2")
             for k in range(options.kills + 1)]
    expect(training.run(1, "--mesh", "data=2", "--metrics", str(folder / "whole.jsonl"), "--save",
                        str(folder / "whole")) == 0, "the uninterrupted run failed")
    training.set_plan(*plans[0])
    state = {"processes": plans[0][0], "pids": set(), "longest": 0}
    loop = training.loop(f"--metrics {folder / 'curve.jsonl'}", restarts=options.kills + 1)
    for k, step in enumerate(sorted(chance.sample(range(1, steps * 2 // 3), options.kills))):
        state["next"] = plans[k + 1]
        line = kill(training, loop, chance, step, state)
        if line is None:
            expect(loop.wait(timeout=10 * PATIENCE) == 0, training.log())
            return False
        print(line, flush=True)
    expect(loop.wait(timeout=10 * PATIENCE) == 0, training.log())
    result = compare(rows(folder / "whole.jsonl"), rows(folder / "curve.jsonl"), TOLERANCE * options.strategies)
    if not options.strategies:
        expect(files(folder / f"whole/{steps}") == files(training.save / f"{steps}"), "the last checkpoint differs")
    print(f"{options.kills} kills, the others ended within {state['longest']:.1f} s; {result}")
    return True


def check_ends(program, folder):
    """The loop ends after errors that would come again, without progress, and on SIGTERM; a busy port is one failure."""
    training = Training(program, folder, 100000)

    def end(processes, flags, restarts=5):
        training.set_plan(processes, flags)
        return training.loop(restarts=restarts).wait(timeout=PATIENCE), training.log()

    status, log = end(2, "--mesh data=2 --colour blue")
    expect(status == 2 and "restart.sh:" not in log, log)
    status, log = end(2, "--mesh data=3 --batch 6")  # two processes cannot have three devices
    expect(status == 1 and "restart.sh:" not in log, log)
    loop = subprocess.run([*START[:1], str(ROOT / "examples/restart.sh"), str(folder), "sh", "-c", "kill -9 $$"],
                          env=dict(os.environ, PAUSE="0", RESTARTS="3"), stderr=subprocess.PIPE, text=True)
    expect(loop.returncode == 137 and loop.stderr.count("newest checkpoint: none") == 3, loop.stderr)

    training.set_plan(2, "--mesh data=2 --save-on-signal")
    with socket.create_server(("127.0.0.1", 0)) as other:
        os.environ["MASTER_PORT"] = str(other.getsockname()[1])
        loop = training.loop()
        expect(wait_until(lambda: "restart.sh: status 75" in training.log(), loop), training.log())
    expect(wait_until(lambda: training.newest() >= 3, loop), training.log())
    del os.environ["MASTER_PORT"]
    loop.send_signal(signal.SIGTERM)
    expect(loop.wait(timeout=PATIENCE) == 75, training.log())
    expect("This is process" not in training.log(), training.log())  # no process misses another
    stopped = int(training.log().split("stopped by a signal after ")[1].split()[0])
    expect(training.newest() == stopped and training.log().count("resumed  after 0 ") == 1, training.log())
    expect(training.run(2, "--mesh", "data=2", "--save", str(training.save)) == 1, "it continues without --resume")


def check(options, folder):
    check_ends(options.program, folder)
    for steps in (40, 160, 640):  # for each kill: a busy machine may end a short training before all kills
        folder /= str(steps)
        folder.mkdir()
        if check_kills(options.program, folder, options, steps * options.kills):
            return
    sys.exit("each training ended before all kills")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strategies", action="store_true")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", TESSERA_TIMEOUT="30")
    with tempfile.TemporaryDirectory() as name:
        try:
            check(options, pathlib.Path(name))
        finally:
            for pid in children(os.getpid()):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
