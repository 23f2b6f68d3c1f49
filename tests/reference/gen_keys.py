"""Writes keys.json: results of JAX's keys, generators and type promotion, for the tests of tessera::Key and DType.

    pip install jax==0.10.2
    python gen_keys.py > keys.json

JAX runs on the CPU with jax_threefry_partitionable (its default). x64 is disabled except for the section "x64".
Floats are the shortest decimals that read back as the same number of their type.
"""

import json
import math
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

SEEDS = [0, 1, 42, 2**31, 2**32 - 1]
SHAPES = [(), (1,), (2,), (7,), (33,), (3, 5), (2, 3, 4), (5, 1, 3), (0,)]
# Covers every rounding case of low + unit * (high - low).
BOUNDS = [(0.0, 1.0), (-1.0, 1.0), (-0.044194173, 0.044194173), (-0.001, 7.0), (2.0, 5.0), (0.0, 3.0), (1e-30, 3.3),
          (-1000000.0, -999996.7)]
TRUNCATIONS = [(-2.0, 2.0), (-1.0, 3.0), (0.5, 0.75), (-math.inf, 1.0), (-3.0, math.inf)]
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32", "float64"]


def flat(values):
    return [number(v) for v in np.asarray(values).reshape(-1)]


def number(value):
    return float(str(value)) if np.issubdtype(value.dtype, np.floating) else int(value)


def words(key):
    return flat(jax.random.key_data(key))


def bound(value):
    return value if math.isfinite(value) else None


def draws(key, float_type, bits_type):
    def named(values):
        return {name: flat(value) for name, value in values.items()}

    def one(shape):
        return {
            "shape": shape,
            **named({
                "bits": jax.random.bits(key, shape, bits_type),
                "normal": jax.random.normal(key, shape, float_type),
            }),
            "uniform": [
                {"low": low, "high": high, "values": flat(jax.random.uniform(key, shape, float_type, low, high))}
                for low, high in BOUNDS
            ],
            "truncated_normal": [
                {"lower": bound(lower), "upper": bound(upper),
                 "values": flat(jax.random.truncated_normal(key, lower, upper, shape, float_type))}
                for lower, upper in TRUNCATIONS
            ],
        }

    return [one(shape) for shape in SHAPES]


def key_case(seed):
    key = jax.random.key(np.uint32(seed))
    return {
        "seed": seed,
        "data": words(key),
        "split": {str(n): [words(k) for k in jax.random.split(key, n)] for n in (1, 2, 3, 5)},
        "fold_in": [{"data": d, "key": words(jax.random.fold_in(key, d))} for d in (0, 1, 7, 2**31, 2**32 - 1)],
        "draws": draws(key, jnp.float32, jnp.uint32),
    }


def counter_case(seed, high, low):
    """One block of the cipher, for counters beyond what an array in memory can have."""
    data = jax.random.key_data(jax.random.key(np.uint32(seed)))
    return {"seed": seed, "high": high, "low": low,
            "words": flat(threefry_2x32(data, jnp.array([high, low], dtype=jnp.uint32)))}


def narrow_bits():
    key = jax.random.key(42)
    return {name: flat(jax.random.bits(key, (9,), name)) for name in ("uint8", "uint16", "uint32")}


def long_normal():
    """Normals that reach the tails of erfinv, as (index, value) of the largest and some others."""
    values = np.asarray(jax.random.normal(jax.random.key(3), (1 << 20,)))
    order = np.argsort(np.abs(values))
    picked = sorted(set(order[-40:].tolist() + order[:20].tolist() + list(range(0, 1 << 20, 1 << 14))))
    return {"seed": 3, "size": 1 << 20, "index": picked, "values": flat(values[picked])}


RANGES = [(0, 10, "int32"), (-5, 7, "int32"), (0, 2**31 - 1, "int32"), (-2**31, 2**31 - 1, "int32"),
          (1000, 1001, "int32"), (0, 256, "uint8"), (3, 200, "uint8")]


def distributions():
    """Distributions derived from bits and uniforms, by name. Each has one key; arguments come first."""
    key = jax.random.key(42)
    shape = (3, 5)
    logits = jax.random.normal(jax.random.key(7), (4, 6))
    return {
        "shape": shape,
        "exponential": flat(jax.random.exponential(key, shape)),
        "gumbel": flat(jax.random.gumbel(key, shape)),
        "bernoulli": [{"p": p, "values": flat(jax.random.bernoulli(key, p, shape))} for p in (0.0, 0.1, 0.5, 0.9, 1.0)],
        "randint": [{"minval": low, "maxval": high, "dtype": dtype,
                     "values": flat(jax.random.randint(key, shape, low, high, dtype))} for low, high, dtype in RANGES],
        "logits": {"shape": logits.shape, "values": flat(logits)},
        "categorical": [
            {"axis": axis, "shape": wanted, "values": flat(jax.random.categorical(key, logits, axis, wanted))}
            for axis, wanted in ((-1, None), (0, None), (1, (3, 4)))
        ],
        "permutation": [{"n": n, "values": flat(jax.random.permutation(key, n))} for n in (0, 1, 2, 10, 3000)],
        "permutation_of_rows": flat(jax.random.permutation(key, logits)),
        "permutation_of_columns": flat(jax.random.permutation(key, logits, axis=1)),
    }


def x64_section():
    jax.config.update("jax_enable_x64", True)
    seeds = [-1, -(2**31), 2**32, 2**40 + 5, 2**63 - 1]
    result = {
        "keys": [{"seed": seed, "data": words(jax.random.key(seed))} for seed in seeds],
        "draws": draws(jax.random.key(42), jnp.float64, jnp.uint64),
        "randint": [{"minval": low, "maxval": high,
                     "values": flat(jax.random.randint(jax.random.key(42), (3, 5), low, high, "int64"))}
                    for low, high in ((-3, 2**40), (0, 10))],
        "promotion": [[str(jnp.promote_types(a, b)) for b in DTYPES] for a in DTYPES],
    }
    jax.config.update("jax_enable_x64", False)
    return result


def main():
    warnings.simplefilter("ignore")
    reference = {
        "made_by": f"gen_keys.py with jax {jax.__version__}",
        "keys": [key_case(seed) for seed in SEEDS],
        "counters": [counter_case(s, h, l) for s in (0, 42) for h, l in ((0, 0), (1, 5), (7, 2**32 - 1))],
        "narrow_bits": narrow_bits(),
        "long_normal": long_normal(),
        "distributions": distributions(),
        "dtypes": DTYPES,
        "x64": x64_section(),
    }
    json.dump(reference, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
