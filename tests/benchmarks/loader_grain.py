"""Loads the windows of tests/benchmarks/loader.cpp with Grain: 256 bytes, shuffled, in batches of 32."""
import sys
import time

try:
    import grain
    import numpy as np
except ImportError:
    print("Grain    not installed for this Python")
    sys.exit(0)

WINDOW, BATCH = 256, 32


class Windows:
    def __init__(self, path):
        self.bytes = np.memmap(path, dtype=np.uint8, mode="r")

    def __len__(self):
        return (len(self.bytes) - WINDOW) // WINDOW + 1

    def __getitem__(self, i):
        return np.array(self.bytes[i * WINDOW:i * WINDOW + WINDOW])


def rate(iterator, seconds=2.0):
    for _ in range(20):
        next(iterator)
    batches, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        next(iterator)
        batches += 1
    return batches * BATCH * WINDOW / (time.perf_counter() - begin) / 1e6


source = Windows(sys.argv[1])
for threads in (0, 1, 16):
    dataset = grain.MapDataset.source(source).shuffle(seed=1).repeat().batch(BATCH)
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=16 if threads else 0)
    speed = rate(iter(dataset.to_iter_dataset(options)))
    print(f"{'Grain':8} {f'{grain.__version__}, {threads} threads':34} {speed:9.1f}")
