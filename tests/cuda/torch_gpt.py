#!/usr/bin/env python3
"""Measures PyTorch's training steps for models of train_transformer's architectures, and prints JSON lines.

  torch_gpt.py --model gpt --rows 16 64 --how eager compile    a run for each way and number of rows; needs a GPU
  torch_gpt.py --check                                         compares the ways with tiny models on the CPU

As `train_transformer --precision bfloat16`: each step casts float32 parameters to bfloat16, clips the gradient to
global norm 1 and runs a fused AdamW. With --documents, rows are packed documents that attend to themselves only.
The ways: eager; compile, of the model and its loss; flex, compile with flex_attention instead of a mask.
Exit status 77: PyTorch is missing, or has no GPU.
"""
import argparse
import gc
import json
import statistics
import sys
import time

from random_documents import packed_rows

try:
    import torch
    from torch_decoder import IGNORED, Decoder
    from torch.nn.attention.flex_attention import create_block_mask
except (ImportError, OSError) as error:
    print(f"skipped: {error}")
    sys.exit(77)

SIZES = {"gpt": dict(is_llama=False, layers=12, embed=768, heads=12, kv_heads=12, mlp=3072, seq=1024, vocab=50304),
         "llama": dict(is_llama=True, layers=16, embed=2048, heads=32, kv_heads=8, mlp=8192, seq=2048, vocab=128256)}
WARM_STEPS, BATCHES = 5, 4


class Training:
    """A model, its optimizer and some batches, which are used in turn."""

    def __init__(self, how, rows, has_documents, sizes, device, dtype=torch.bfloat16, **compile_options):
        torch.manual_seed(0)
        self.how, self.has_documents, self.device, self.dtype = how, has_documents, device, dtype
        tokens, segments, positions = torch.tensor(
            packed_rows(BATCHES * rows, sizes["seq"] + 1, sizes["vocab"], has_documents)).unbind(1)
        ends = (segments[:, 1:] != segments[:, :-1]) | (segments[:, 1:] == 0)
        self.batches = list(zip(*(x.split(rows) for x in (
            tokens[:, :-1], tokens[:, 1:].masked_fill(ends, IGNORED), positions[:, :-1], segments[:, :-1]))))
        ids = self.segments = torch.empty(rows, sizes["seq"], dtype=torch.int64, device=device)  # of the current batch
        self.is_visible = lambda row, head, q, k: (q >= k) & (ids[row, q] == ids[row, k])
        with torch.device(device):
            self.model = Decoder(**sizes)
        parameters = list(self.model.parameters())
        groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0}]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.loss_fn = self.loss if how == "eager" else torch.compile(self.loss, dynamic=False, **compile_options)

    def loss(self, *batch):
        weights = {name: p.to(self.dtype) for name, p in self.model.named_parameters()}
        return torch.func.functional_call(self.model, weights, batch)

    def inputs(self, number):
        """A batch on the device, with one mask for all blocks."""
        ids, targets, positions, segments = (x.to(self.device) for x in self.batches[number % BATCHES])
        if not self.has_documents:
            return ids, targets, positions[0]  # causal attention needs no mask
        self.segments.copy_(segments)
        rows, seq = segments.shape
        if self.how == "flex":
            return ids, targets, positions, create_block_mask(self.is_visible, rows, None, seq, seq, self.device,
                                                              _compile=self.device == "cuda")
        visible = (segments.unsqueeze(1) == segments.unsqueeze(2)).tril_()
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device).masked_fill_(~visible, -torch.inf)
        return ids, targets, positions, mask.unsqueeze(1)

    def step(self, number):
        loss = self.loss_fn(*self.inputs(number))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def measure(how, rows, args):
    torch.compiler.reset(), gc.collect(), torch.cuda.empty_cache(), torch.cuda.reset_peak_memory_stats()
    training, seconds = Training(how, rows, args.documents, SIZES[args.model], "cuda"), []
    for number in range(WARM_STEPS + args.steps):
        begun = time.perf_counter()
        loss = training.step(number)
        seconds.append(time.perf_counter() - begun)
    step = statistics.median(seconds[WARM_STEPS:])
    speed = rows * SIZES[args.model]["seq"] / step
    return {"tokens_per_second": speed, "milliseconds": 1e3 * step, "first_step_seconds": seconds[0], "loss": loss,
            "mfu": args.peak_flops and speed * training.model.flops_per_token / args.peak_flops,
            "peak_memory_bytes": torch.cuda.max_memory_allocated()}


def run(args):
    begun = time.monotonic()
    for how in args.how:
        for rows in args.rows:
            try:
                late = time.monotonic() - begun > args.seconds
                result = {"error": "no time left"} if late else measure(how, rows, args)
            except Exception as error:  # out of memory, or a way that this version of PyTorch does not have
                result = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps({"model": args.model, "how": how, "rows": rows, "documents": args.documents, **result}),
                  flush=True)


def check():
    """All ways have the same losses, which fall. In a row, documents have the losses that they have alone."""
    tiny = dict(layers=2, embed=64, heads=4, mlp=96, seq=128, vocab=100)
    for sizes in [dict(tiny, is_llama=False, kv_heads=4), dict(tiny, is_llama=True, kv_heads=2)]:
        for has_documents in [False, True]:
            eager, compiled = (Training(how, 2, has_documents, sizes, "cpu", torch.float32, **options)
                               for how, options in [("eager", {}), ("compile", {"backend": "aot_eager"})])
            losses = [eager.step(number) for number in range(2 * BATCHES)]
            assert losses[-1] < losses[0], losses
            for number in range(2):
                assert abs(compiled.step(number) - losses[number]) < 1e-4, (sizes, number)
        ids, targets, positions, mask = eager.inputs(0)
        with torch.no_grad():
            expected = eager.loss(ids, targets, positions, mask)
            eager.how = "flex"
            assert abs(eager.loss(*eager.inputs(0)) - expected) < 1e-4, sizes
            documents = [(row, eager.segments[row] == segment) for row in range(2)
                         for segment in eager.segments[row].unique()]
            alone = [(eager.loss(ids[row, at][None], targets[row, at][None], positions[row, at]),
                      (targets[row, at] != IGNORED).sum()) for row, at in documents]
            mean = sum(loss * count for loss, count in alone if count) / sum(count for _, count in alone)
            assert abs(mean - expected) < 1e-4, (sizes, mean, expected)
    print("passed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--model", choices=SIZES, default="gpt")
    parser.add_argument("--rows", type=int, nargs="+", default=[16])
    parser.add_argument("--how", choices=["eager", "compile", "flex"], nargs="+", default=["eager"])
    parser.add_argument("--documents", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1e9, help="no run begins later")
    parser.add_argument("--peak-flops", type=float, help="for the MFU")
    arguments = parser.parse_args()
    if not arguments.check and not torch.cuda.is_available():
        print("skipped: PyTorch has no GPU")
        sys.exit(77)
    check() if arguments.check else run(arguments)
