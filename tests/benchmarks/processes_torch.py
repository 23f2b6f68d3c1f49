#!/usr/bin/env python3
"""The model of processes.py with PyTorch's DDP, FSDP2 or ZeroRedundancyOptimizer over Gloo, in torchrun's processes.

  processes_torch.py ddp|fsdp|zero1 STEPS      process 0 prints the seconds of every step as JSON
"""
import dataclasses
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F

BATCH = 16


@dataclasses.dataclass
class Sizes:  # of the benchmark's size mid
    embed: int = 256
    heads: int = 8
    layers: int = 4
    mlp: int = 1024
    seq: int = 128
    vocab: int = 256


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        embed, self.heads = sizes.embed, sizes.heads
        self.ln1, self.ln2 = nn.LayerNorm(embed, eps=1e-6), nn.LayerNorm(embed, eps=1e-6)
        self.q, self.k, self.v, self.o = (nn.Linear(embed, embed) for _ in range(4))
        self.up, self.down = nn.Linear(embed, sizes.mlp), nn.Linear(sizes.mlp, embed)

    def forward(self, x):
        h = self.ln1(x)
        q, k, v = (f(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab, sizes.embed)
        self.positions = nn.Parameter(torch.randn(sizes.seq, sizes.embed) * 0.02)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.final_ln = nn.LayerNorm(sizes.embed, eps=1e-6)
        self.head = nn.Linear(sizes.embed, sizes.vocab, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final_ln(x))


def optimizer_of(model, is_sharded=False):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    if is_sharded:
        return ZeroRedundancyOptimizer(groups, torch.optim.AdamW, lr=1e-3, fused=True)
    return torch.optim.AdamW(groups, lr=1e-3, fused=True)


def main():
    kind, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    sizes = Sizes()
    model = Gpt(sizes)
    if kind != "fsdp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    optimizer = optimizer_of(model, kind == "zero1")
    local = BATCH // dist.get_world_size()
    times = []
    for _ in range(steps):
        ids = torch.randint(sizes.vocab, (local, sizes.seq + 1))
        start = time.perf_counter()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
