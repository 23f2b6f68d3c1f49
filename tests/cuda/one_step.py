#!/usr/bin/env python3
"""Compares losses and gradient norms of training steps on TESSERA_DEVICE with those on the CPU: one_step.py PROGRAM."""
import json
import os
import subprocess
import sys
import tempfile

STEPS = 3
TOLERANCES = {"loss": 1e-4, "grad_norm": 1e-3}  # relative, in float32; the first step differs by about 1e-6


def train(program, device, *mesh):
    """The rows of --metrics, one for each step."""
    environment = {**os.environ, "TESSERA_DEVICE": device}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, *mesh, "--steps", str(STEPS), "--warmup", "0", "--data", "README.md",
                        "--metrics", f"{folder}/metrics"], env=environment, stdout=subprocess.DEVNULL, check=True)
        with open(f"{folder}/metrics") as lines:
            return [row for row in map(json.loads, lines) if "loss" in row]


def main(program):
    expected = train(program, "cpu", "--mesh", "data=1")
    failed = len(expected) != STEPS
    for mesh in [["--mesh", "data=1"], ["--mesh", "data=2,model=2", "--rules", "mlp=model,embed=data"]]:
        got = train(program, os.environ["TESSERA_DEVICE"], *mesh)
        failed |= len(got) != len(expected)
        for want, have in zip(expected, got):
            for key, tolerance in TOLERANCES.items():
                differs = not abs(have[key] - want[key]) <= tolerance * abs(want[key])  # NaN counts as different
                failed |= differs
                print(mesh[1], "step", want["step"], key, "on the CPU", want[key], "on the device", have[key],
                      "DIFFERS" if differs else "", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
