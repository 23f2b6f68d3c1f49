#!/usr/bin/env python3
"""The training step of train_step.cpp in PyTorch on one device, eager or compiled, as JSON lines.

  torch_step.py eager|compile 1|all [STEPS]      a line for each size

The model of processes_torch.py with clipping and fused AdamW. The loss is read in each step. compile: torch.compile of
the forward pass and the loss, which also compiles their backward pass. Requires torch.
"""
import json
import statistics
import sys
import time

import torch
from processes_torch import Gpt, Sizes, optimizer_of
from torch import nn
from torch.nn import functional as F

SIZES = {"tiny": (Sizes(embed=64, heads=8, layers=2, mlp=256, seq=32), 300), "mid": (Sizes(), 15)}
BATCH, WARM_STEPS = 16, 5


def measure(kind, size, steps):
    sizes = SIZES[size][0]
    torch.manual_seed(0)
    model = Gpt(sizes)
    optimizer = optimizer_of(model)

    def loss_of(ids):
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    loss_fn = torch.compile(loss_of) if kind == "compile" else loss_of
    seconds = []
    for _ in range(WARM_STEPS + steps):
        ids = torch.randint(sizes.vocab, (BATCH, sizes.seq + 1))
        start = time.perf_counter()
        loss = loss_fn(ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    milliseconds = float(f"{statistics.median(seconds[WARM_STEPS:]) * 1e3:.4g}")
    print(json.dumps({"peer": f"torch {kind}", "size": size, "strategy": "one", "threads": torch.get_num_threads(),
                      "ms": milliseconds, "steps": steps}), flush=True)


if __name__ == "__main__":
    kind, threads, *steps = sys.argv[1:]
    if threads == "1":
        torch.set_num_threads(1)
    for size in SIZES:
        measure(kind, size, int(steps[0]) if steps else SIZES[size][1])
