"""Writes grain_loader.json: Grain's splits, shuffles and packed rows. tests/runner/grain.cpp compares them.

    python gen_grain.py      (grain 0.2.18)
"""
import json
import os
import platform

import grain
import numpy as np
from grain._src.core import sharding
from grain._src.python.experimental.index_shuffle.python import index_shuffle_module
from grain.experimental import FirstFitPackIterDataset


def even_splits():
    sizes = list(range(0, 14)) + [16, 31, 100, 65537]
    return [{"size": n, "count": c, "drop": drop,
             "ranges": [list(sharding.even_split(n, grain.sharding.ShardOptions(i, c, drop))) for i in range(c)]}
            for n in sizes for c in (1, 2, 3, 4, 7) for drop in (False, True)]


def strided(n, c):
    shuffled = grain.MapDataset.range(n)
    return {"size": n, "count": c, "shards": [[int(shuffled[i::c][k]) for k in range(len(shuffled[i::c]))] for i in range(c)]}


def index_shuffles():
    cases = []
    for n, seeds in [(1, [0]), (2, [0, 1]), (3, [0, 5]), (7, [1]), (10, [0, 1, 2**32 - 1]), (100, [3, 4]), (1000, [3]),
                     (65536, [1]), (65538, [1, 9]), (70000, [9]), (131073, [2]), (262144, [2]), (300000, [5]),
                     (1 << 20, [7]), ((1 << 20) + 2, [7]), (10**9, [11]), (2**31, [1, 12])]:
        # all of small ones, samples of large ones
        indices = range(n) if n <= 1000 else sorted({int(i) for i in np.linspace(0, n - 1, 60)})
        for seed in seeds:
            images = [index_shuffle_module.index_shuffle(i, max_index=n - 1, seed=seed, rounds=4) for i in indices]
            cases.append({"size": n, "seed": seed, "indices": list(indices), "images": images})
    return cases


def refused():
    """The sizes for which Grain's order is not a permutation: the images of all indices, some of which repeat."""
    cases = []
    for n in (65537, 262145):
        images = [index_shuffle_module.index_shuffle(i, max_index=n - 1, seed=3, rounds=4) for i in range(n)]
        cases.append({"size": n, "missing": n - len(set(images))})
    return cases


def epochs():
    """MapDataset.shuffle(seed) with repeat: each epoch uses seed + epoch."""
    cases = []
    for n, seed in [(10, 3), (100, 2**32 - 1)]:
        dataset = grain.MapDataset.range(n).shuffle(seed=seed).repeat(3)
        cases.append({"size": n, "seed": seed, "records": [int(dataset[i]) for i in range(3 * n)]})
    return cases


def packs():
    cases = []
    rng = np.random.default_rng(0)
    lengths = [[5, 3, 4, 2, 6, 1, 7]] + [rng.integers(1, 9, size=20).tolist() for _ in range(6)]
    for number, case in enumerate(lengths):
        rows, length = (2, 8) if number == 0 else (1 + number % 4, 8)
        documents = [{"x": np.full(n, i + 1, dtype=np.int32)} for i, n in enumerate(case)]
        dataset = grain.MapDataset.source(documents).to_iter_dataset(grain.ReadOptions(num_threads=0))
        packed = FirstFitPackIterDataset(dataset, length_struct={"x": length}, num_packing_bins=rows, shuffle_bins=False)
        cases.append({"lengths": case, "length": length, "open_rows": rows,
                      "rows": [{"tokens": r["x"].tolist(), "segment_ids": r["x_segment_ids"].tolist(),
                                "positions": r["x_positions"].tolist()} for r in packed]})
    return cases


def main():
    out = {"meta": {"what": "Grain's splits, shuffles and packing", "schema": 1,
                    "versions": {"python": platform.python_version(), "grain": grain.__version__,
                                 "numpy": np.__version__}},
           "grain": {"even_splits": even_splits(), "strided": [strided(n, c) for n in (10, 11, 16) for c in (1, 3, 4)],
                     "index_shuffle": index_shuffles(), "refused": refused(), "epochs": epochs(), "packs": packs()}}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "grain_loader.json")
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(f'"{k}": ' + (json.dumps(v, separators=(",", ":")) if k == "meta" else
                "{\n" + ",\n".join(f' "{g}":[\n' + ",\n".join("  " + json.dumps(c, separators=(",", ":")) for c in cases)
                                   + "]" for g, cases in v.items()) + "}") for k, v in out.items()) + "}\n")


if __name__ == "__main__":
    main()
