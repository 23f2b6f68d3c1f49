# Tests first_run.sh with fake programs: order and parts of the items, time limits, the report, and the built targets.
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

root = sys.argv[1]
script = f"{root}/tests/cuda/first_run.sh"

# A fake program. It first checks that the report of the earlier items is complete JSON.
PROGRAM = """#!/usr/bin/env bash
[ ! -e "$REPORT" ] || python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$REPORT" || touch "$REPORT.broken"
"""
TRAIN = PROGRAM + """
loss=5
while (($#)); do
  case $1 in
    --metrics) metrics=$2 ;;
    --profile) mkdir -p "$2"; echo "$PROFILE" >"$2/profile.txt" ;;
  esac
  shift
done
[[ $TESSERA_DEVICE == cpu ]] || loss=${LOSS_ON_GPU:-5.0000001}
for step in 1 2 3; do
  speed='"tokens_per_second":'$step'000,"mfu":0.'$step',"peak_bytes":'$step'e9'
  echo '{"step":'$step',"loss":'$loss',"grad_norm":2,'$speed'}' >>"$metrics"
done
"""
HANGS = PROGRAM.replace("\n", "\necho begun\n", 1) + """
trap '' TERM
(exec -a "$0 child" sleep 1000) &
sleep 1000
"""
PROFILE = """part   ms/step      %
update   2.000   20.0
device   8.000   80.0
step    10.000  100.0

module              calls/step  ms/step  with inner     %
outside of modules           2    2.000       2.000  20.0
decoder.layers.{0,1}.mlp    14    8.000       8.000  80.0"""
PROGRAMS = ["examples/train_transformer", "tests/benchmarks/train_step", "tests/gpu_kernels_test", "tests/graphs_test",
            "tests/nccl_test", "tests/validator_test", "tests/reference_runner"]

# A fake CMake that records its arguments, and whose build copies the targets.
CMAKE = """#!/usr/bin/env bash
echo "$@" >>"$CALLS"
case "$*" in
  *"--target help"*) printf '%s: phony\\n' train_transformer train_step gpu_kernels_test graphs_test nccl_test validator_test ;;
  --build*)
    for target in "${@:5}"; do
      for program in """ + " ".join(PROGRAMS) + """; do
        [[ ${program##*/} == $target ]] || continue
        mkdir -p "$2/${program%/*}"
        cp "$MADE" "$2/$program"
      done
    done ;;
esac
"""


# A fake python3 that measures instead of torch_gpt.py, or has no PyTorch.
PYTHON = """#!/usr/bin/env bash
[[ $1 == */torch_gpt.py ]] || exec "$REAL_PYTHON" "$@"
[[ ! $NO_TORCH ]] || { echo "skipped: PyTorch has no GPU"; exit 77; }
echo "a warning"
echo '{"how":"eager","rows":64,"tokens_per_second":500.5,"mfu":0.25,"milliseconds":20,"peak_memory_bytes":3e9}'
echo '{"how":"eager","rows":16,"error":"no time left"}'
"""


class FirstRun:
    """A build folder with fake programs, and a run of the script with it."""

    def __init__(self, folder, **programs):
        self.folder = pathlib.Path(folder)
        self.build, self.report = self.folder / "build", self.folder / "report.json"
        for path in PROGRAMS:
            text = programs.get(os.path.basename(path), TRAIN if "transformer" in path else PROGRAM)
            if text:
                self.write(self.build / path, text)
        self.write(self.folder / "bin" / "cmake", CMAKE)
        self.write(self.folder / "bin" / "python3", PYTHON)
        self.write(self.folder / "made", TRAIN)

    @staticmethod
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *part, gpus=1, **settings):
        return subprocess.Popen(
            ["bash", script, str(self.build), str(self.report), *part], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TESSERA_FIRST_RUN_GPUS": str(gpus), "REPORT": str(self.report), "PROFILE": PROFILE,
                 "REAL_PYTHON": sys.executable, "CALLS": str(self.folder / "calls"), "MADE": str(self.folder / "made"),
                 "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", **settings})

    def run(self, *part, **settings):
        begun = time.monotonic()
        process = self.start(*part, **settings)
        said, errors = process.communicate(timeout=100)
        self.status, self.seconds = process.returncode, time.monotonic() - begun
        assert not pathlib.Path(f"{self.report}.broken").exists(), "a program found a report that is not whole"
        return self.items(), said + errors

    def items(self):
        return {item["name"]: item for item in json.loads(self.report.read_text())["items"]}

    def left_over(self):
        """The processes of its programs, which the system may take a moment to end."""
        for _ in range(100):
            found = []
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if str(self.build) in (process / "cmdline").read_text():
                        found.append(process.name)
                except OSError:
                    pass  # it has ended
            if not found:
                break
            time.sleep(0.05)
        return found

    def cmake_calls(self):
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


def states(items):
    return {name: item["state"] for name, item in items.items()}


def without_a_gpu(folder):
    run = FirstRun(folder, train_transformer="", graphs_test="")
    items, said = run.run(gpus=0)
    report = json.loads(run.report.read_text())
    assert run.status == 0, said
    assert report["gpus"] == 0 and len(report["commit"]) in (0, 40), report
    for name in ["one_step", "gpt2_64", "torch_gpt2", "nccl_1", "nccl_8", "graphs", "train_step", "curves"]:
        assert items[name]["state"] == "no GPU" and items[name]["command"], name
        assert any(line.split() == [name, "no", "GPU"] for line in said.splitlines()), said
    assert not run.cmake_calls(), "nothing is built without a GPU"


def carried_programs(folder):
    run = FirstRun(folder, reference_runner=PROGRAM + "echo curves differ\nexit 3\n")
    items, said = run.run()
    order = ["one_step", "train_2", "gpt2_64", "gpt2_64_documents", "torch_gpt2", "llama_1b", "nccl_1", "graphs",
             "validator", "curves"]
    assert [name for name in items if name in order] == order, list(items)
    assert not run.cmake_calls(), "what was carried is not built"
    assert items["curves"]["state"] == "failed (3)" and items["curves"]["last_lines"] == ["curves differ"], items
    assert run.status == 1, said
    others = {name: state for name, state in states(items).items() if name != "curves"}
    assert others.pop("train_8") == others.pop("nccl_8") == "8 GPUs wanted"
    assert set(others.values()) == {"passed", "2 GPUs wanted", "4 GPUs wanted"}, others
    assert len(items["one_step"]["last_lines"]) == 12, items["one_step"]


def speeds(folder):
    run = FirstRun(folder)
    items, said = run.run("speed")
    assert run.status == 0, said
    speed, command = items["gpt2_64"]["speed"], items["gpt2_64"]["command"]
    assert speed["tokens_per_second"] == 2000 and speed["mfu"] == 0.2 and speed["last_step"]["step"] == 3, speed
    assert speed["milliseconds"] == 64 * 1024 / 2 and speed["peak_memory_bytes"] == 3e9, speed
    assert "--batch 64" in command and "/rows.bin" in command and "--precision bfloat16" in command, command
    assert "/documents.bin" in items["gpt2_16_documents"]["command"], items["gpt2_16_documents"]
    assert items["gpt2_64"]["profile"] == PROFILE.splitlines(), items["gpt2_64"]
    assert [row["rows"] for row in items["torch_gpt2"]["runs"]] == [64, 16], items["torch_gpt2"]
    for line in ["2,000 tokens/s, MFU 0.200, 32768.0 ms, peak 3,000,000,000 bytes",
                 "parts: step 10.0 ms, device 8.0 ms, update 2.0 ms",
                 "modules: decoder.layers.{0,1}.mlp 8.0 ms, outside of modules 2.0 ms",
                 "eager, 64 rows: 500 tokens/s, MFU 0.250, 20.0 ms, peak 3,000,000,000 bytes",
                 "eager, 16 rows: no time left"]:
        assert f"  {line}\n" in said, (line, said)


def parts(folder):
    run = FirstRun(folder)
    items, said = run.run("correctness", NO_TORCH="1")
    assert run.status == 0 and "one_step" in items and "curves" in items, said
    speed, said = run.run("speed", NO_TORCH="1")
    assert run.status == 0 and speed["torch_gpt2"]["state"] == "skipped", said
    assert speed["torch_gpt2"]["last_lines"] == ["skipped: PyTorch has no GPU"], speed["torch_gpt2"]
    assert "llama_1b" in speed and not set(items) & set(speed), (list(items), list(speed))
    both, said = run.run()
    assert set(both) == set(items) | set(speed), list(both)
    on_one_gpu = [item for item in both.values() if item["state"] in ("passed", "skipped")]
    important = on_one_gpu[:[item["name"] for item in on_one_gpu].index("graphs") + 1]
    assert sum(item["limit"] for item in important) <= 540, [(item["name"], item["limit"]) for item in important]
    process = run.start("quality")
    assert "[first_run] quality" in process.communicate()[1] and process.returncode == 2


def token_files(folder):
    subprocess.run([sys.executable, f"{root}/tests/cuda/random_documents.py", folder], check=True)
    folder = pathlib.Path(folder)
    tokens, index = (folder / "documents.bin").read_bytes(), (folder / "documents.idx").read_bytes()
    assert (folder / "rows.bin").read_bytes()[1024:] == tokens
    _, _, count, bounds = struct.unpack_from("<QBQQ", index, 9)
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    assert bounds == count + 1 and 2 * sum(lengths) == len(tokens) and 200 < sum(lengths) / count < 600, count
    assert max(struct.unpack(f"<{len(tokens) // 2}H", tokens)) < 50304


def another_loss(folder):
    run = FirstRun(folder)
    for loss in ["5.01", "NaN"]:
        compared = subprocess.run(["python3", f"{root}/tests/cuda/one_step.py", f"{run.build}/{PROGRAMS[0]}"],
                                  text=True, capture_output=True,
                                  env={**os.environ, "TESSERA_DEVICE": "cuda", "LOSS_ON_GPU": loss, "REPORT": ""})
        assert compared.returncode == 1 and "DIFFERS" in compared.stdout.splitlines()[0], compared


# Programs that are missing or lack a library are built: first the one for the first items, then the rest.
def missing_programs(folder):
    run = FirstRun(folder, train_transformer="", graphs_test="", reference_runner="")
    run.write(run.folder / "bin" / "ldd", """#!/usr/bin/env bash
[[ $2 == */nccl_test ]] && grep -q metrics "$2" || [[ $2 != */nccl_test ]] || echo "libother.so => not found"
""")
    items, said = run.run()
    assert list(items)[:2] == ["build_train", "one_step"], list(items)
    builds = [call.split("--target ")[1] for call in run.cmake_calls() if "--build" in call and "help" not in call]
    assert builds == ["train_transformer", "graphs_test nccl_test"], builds
    assert run.cmake_calls()[0] == f"--preset train-cuda -B {run.build}", run.cmake_calls()
    found = states(items)
    assert found["build_train"] == found["build_rest"] == found["one_step"] == "passed", said
    assert "no target reference_runner: GoogleTest is missing" in items["build_rest"]["last_lines"]
    assert found["curves"] == "failed (127)", found


def hanging_item(folder):
    run = FirstRun(folder, nccl_test=HANGS)
    items, said = run.run(TESSERA_FIRST_RUN_ITEM_SECONDS="6")
    assert items["nccl_1"]["state"] == "ended after 6 seconds", said
    assert items["nccl_1"]["last_lines"] == ["begun"], items["nccl_1"]
    assert items["graphs"]["state"] == "passed" and run.status == 1, said
    assert not run.left_over()


def total_limit(folder):
    run = FirstRun(folder, **{os.path.basename(path): HANGS for path in PROGRAMS})
    items, said = run.run(TESSERA_FIRST_RUN_SECONDS="12", TESSERA_FIRST_RUN_ITEM_SECONDS="3")
    assert run.seconds < 12, run.seconds
    assert states(items)["one_step"] == "ended after 3 seconds", said
    assert states(items)["curves"] == "no time left" and run.status == 1, said


# If the script is killed during an item, the earlier items stay in the report.
def killed(folder):
    run = FirstRun(folder, graphs_test=HANGS)
    process = run.start()
    while not run.report.exists() or "nccl_1" not in run.items():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143, process.returncode
    assert states(run.items())["nccl_1"] == "passed"
    assert not run.left_over()


def pack(folder):
    run = FirstRun(folder, graphs_test="")
    carried = run.folder / "carried"
    subprocess.run(["bash", script, "pack", str(run.build), str(carried)], check=True, stdout=subprocess.DEVNULL)
    found = sorted(str(path.relative_to(carried)) for path in carried.rglob("*") if path.is_file())
    assert found == sorted(path for path in PROGRAMS if "graphs" not in path), found
    assert all(os.access(carried / path, os.X_OK) for path in found)
    refused = subprocess.run(["bash", script, "pack", f"{folder}/none", f"{folder}/other"], capture_output=True, text=True)
    assert refused.returncode == 1 and "[pack]" in refused.stderr, refused


for check in [without_a_gpu, carried_programs, speeds, parts, token_files, another_loss, missing_programs, hanging_item,
              total_limit, killed, pack]:
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.monotonic()
        check(scratch)
        print(f"{check.__name__}: passed in {time.monotonic() - begun:.1f} s", flush=True)
