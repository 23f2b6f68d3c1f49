"""Kills a training at random moments, resumes it on another mesh each time, and compares it with an uninterrupted run.

    python3 tests/examples/kill_training.py build/release/examples/train_transformer [--kills 50] [--seed 0]
    ... --launcher 'bash tests/processes/start.sh' [--processes 1 2 4]    kills one process; their number changes

Every step is saved, so that many kills interrupt a save. After every kill `inspect` reads each folder that looks like a
checkpoint, and the newest one must not be older than before. With several processes, the others must end. The exit
status is 1 if anything differs.
"""
import argparse, json, os, pathlib, random, signal, subprocess, sys, tempfile, time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "processes"))
from kill_processes import children, ranks

PATIENCE = 60  # time limit for the other processes to end
MESHES = [["--strategy", name] for name in ("dp", "fsdp", "tp", "2d", "zero1")] + [["--mesh", "data=1"]]
TOLERANCE = 5e-5  # float32, with sums in another order


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--longest", type=float, default=3.0, help="seconds until a kill, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--launcher", help="launches several processes; their number follows it")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], help="where there is --launcher")
    return parser.parse_args()


def command(options, folder, mesh, metrics, extra=(), processes=1):
    # A low learning rate: at ten times this rate training is chaotic, and uninterrupted runs also diverge from each
    # other.
    sizes = "--embed 32 --heads 8 --layers 1 --mlp 32 --seq 16 --batch 8 --warmup 10 --lr 0.0003".split()
    launcher = options.launcher.split() + [str(processes)] if options.launcher and processes > 1 else []
    return [*launcher, options.program, "--data", str(folder / "text.txt"), *sizes, "--steps", str(options.steps), *mesh,
            "--metrics", str(metrics), *extra]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def newest(save):
    steps = [int(p.name) for p in save.glob("*") if p.name.isdigit() and (p / "commit_success.txt").exists()]
    return max(steps, default=0)


def kill(run, processes, chance):
    """Kills the program, or one of several processes. The others must end without help."""
    if processes == 1:
        run.send_signal(signal.SIGKILL)
        return run.wait()
    pids = ranks(run.pid)
    while len(pids) < processes and run.poll() is None:
        time.sleep(0.01)
        pids = ranks(run.pid)
    if run.poll() is None:
        os.kill(pids[chance.randrange(processes)], signal.SIGKILL)
    try:
        run.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        for pid in children(run.pid) + [run.pid]:
            os.kill(pid, signal.SIGKILL)
        sys.exit(f"one of {processes} processes was killed, and the others hang")


def kill_once(options, folder, save, environment, chance):
    processes = chance.choice(options.processes) if options.launcher else 1
    mesh = chance.choice(MESHES if processes == 1 else MESHES[:-1])
    extra = ["--save", str(save), "--save-every", "1", "--resume"]
    before = newest(save)
    with open(folder / "log.txt", "w") as log:
        run = subprocess.Popen(command(options, folder, mesh, folder / "curve.jsonl", extra, processes),
                               env=environment, stdout=log, stderr=log)
        try:
            run.wait(timeout=chance.uniform(0.2, options.longest))
        except subprocess.TimeoutExpired:
            pass
        killed = run.poll() is None
        in_save = any(save.glob("*.tmp")) or any(save.glob("*.deleted"))
        if killed:
            kill(run, processes, chance)
    if not killed and run.returncode:
        sys.exit(f"the run failed:\n{(folder / 'log.txt').read_text()}")
    after = newest(save)
    inspect = pathlib.Path(options.program).with_name("inspect")
    for checkpoint in save.glob("*"):
        if checkpoint.name.isdigit():
            subprocess.run([inspect, checkpoint], check=True, stdout=subprocess.DEVNULL)
    if after < before:
        sys.exit(f"step {before} was complete, now the newest is {after}")
    end = "ended" if not killed else "killed in a save" if in_save else "killed"
    print(f"{processes} x {' '.join(mesh):20} {before:4} -> {after:4}  {end}", flush=True)
    return killed, in_save


def main():
    options = arguments()
    chance = random.Random(options.seed)
    environment = dict(os.environ, OMP_NUM_THREADS="1", TESSERA_TIMEOUT="10")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("".join(f"the number {i * i % 97} follows; " for i in range(2000)))
        save = folder / "save"
        save.mkdir()
        whole = folder / "whole.jsonl"
        quietly = dict(check=True, env=environment, stdout=subprocess.DEVNULL)
        subprocess.run(command(options, folder, MESHES[-1], whole), **quietly)
        kills = in_saves = 0
        while kills < options.kills:
            killed, in_save = kill_once(options, folder, save, environment, chance)
            kills += killed
            in_saves += killed and in_save
            if not killed:
                break  # the run has finished
        last = ["--save", str(save), "--save-every", "50", "--resume"]
        subprocess.run(command(options, folder, MESHES[3], folder / "curve.jsonl", last), **quietly)
        expected, got = rows(whole), rows(folder / "curve.jsonl")
        worst = 0
        for a, b in zip(expected, got, strict=True):
            for key in ("loss", "validation_loss", "learning_rate"):
                if a["step"] != b["step"] or (key in a) != (key in b):
                    sys.exit(f"other rows: {a} {b}")
                worst = max(worst, abs(a.get(key, 0) - b.get(key, 0)))
        print(f"{kills} kills, {in_saves} of them in a save; {len(got)} rows, largest difference {worst:.2g}")
        if kills < options.kills or worst > TOLERANCE:
            sys.exit(f"expected {options.kills} kills and at most {TOLERANCE}: give more --steps, or look at the curve")


if __name__ == "__main__":
    main()
