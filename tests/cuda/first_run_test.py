# Without a GPU the first run says so of each item, and its JSON file has them all.
import json
import os
import subprocess
import sys

root, build = sys.argv[1:]
file = os.path.join(build, "first_run.json")
done = subprocess.run(["bash", f"{root}/tests/cuda/first_run.sh", build, file], text=True, capture_output=True,
                      env={**os.environ, "TESSERA_FIRST_RUN_GPUS": "0"})
report = json.load(open(file))
items = {item["name"]: item for item in report["items"]}
assert done.returncode == 0, done.stderr
assert report["gpus"] == 0 and len(report["commit"]) in (0, 40), report
for name in ["build", "validator", "curves", "nccl_1", "train_step", "train_step_captured", "gpt2_124m", "nccl_8"]:
    assert items[name]["state"] == "no GPU" and items[name]["command"], name
    assert any(line.split() == [name, "no", "GPU"] for line in done.stdout.splitlines()), done.stdout
print(f"{len(items)} items say that there is no GPU")
