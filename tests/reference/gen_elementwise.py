"""Writes elementwise.json: element types, values and gradients of JAX's elementwise functions, for our tests.

    pip install jax==0.10.2
    python gen_elementwise.py > elementwise.json

x64 is disabled. An element type of null means that JAX throws. Values and gradients are float32. The arguments include
the points at which a gradient is not unique.
"""

import json
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np

DTYPES = ["bool", "uint8", "int32", "bfloat16", "float16", "float32"]
NUMBERS = {"True": True, "2": 2, "2.5": 2.5}  # weakly typed
POINTS = [-3.0, -2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0]
UNIT = [-0.75, -0.5, 0.0, 0.25, 0.875]
POSITIVE = [0.125, 0.5, 1.0, 1.5, 3.0]

UNARY = {
    "negative": (jnp.negative, POINTS), "abs": (jnp.abs, POINTS), "sign": (jnp.sign, POINTS),
    "floor": (jnp.floor, POINTS), "ceil": (jnp.ceil, POINTS), "trunc": (jnp.trunc, POINTS),
    "round": (jnp.round, POINTS), "square": (jnp.square, POINTS), "reciprocal": (jnp.reciprocal, POSITIVE),
    "sqrt": (jnp.sqrt, POSITIVE), "rsqrt": (jax.lax.rsqrt, POSITIVE), "cbrt": (jnp.cbrt, POSITIVE),
    "exp": (jnp.exp, POINTS), "exp2": (jnp.exp2, POINTS), "expm1": (jnp.expm1, POINTS),
    "log": (jnp.log, POSITIVE), "log1p": (jnp.log1p, POSITIVE), "log2": (jnp.log2, POSITIVE),
    "log10": (jnp.log10, POSITIVE), "sin": (jnp.sin, POINTS), "cos": (jnp.cos, POINTS), "tan": (jnp.tan, UNIT),
    "arcsin": (jnp.arcsin, UNIT), "arccos": (jnp.arccos, UNIT), "arctan": (jnp.arctan, POINTS),
    "sinh": (jnp.sinh, POINTS), "cosh": (jnp.cosh, POINTS), "tanh": (jnp.tanh, POINTS),
    "arcsinh": (jnp.arcsinh, POINTS), "arccosh": (jnp.arccosh, [1.5, 2.5, 4.0]), "arctanh": (jnp.arctanh, UNIT),
    "erf": (jax.scipy.special.erf, POINTS), "erfc": (jax.scipy.special.erfc, POINTS),
    "erf_inv": (jax.lax.erf_inv, UNIT), "nan_to_num": (jnp.nan_to_num, POINTS),
    "sigmoid": (jax.nn.sigmoid, POINTS), "log_sigmoid": (jax.nn.log_sigmoid, POINTS), "relu": (jax.nn.relu, POINTS),
    "leaky_relu": (jax.nn.leaky_relu, POINTS), "silu": (jax.nn.silu, POINTS), "softplus": (jax.nn.softplus, POINTS),
    "soft_sign": (jax.nn.soft_sign, POINTS), "elu": (jax.nn.elu, POINTS), "celu": (jax.nn.celu, POINTS),
    "selu": (jax.nn.selu, POINTS), "mish": (jax.nn.mish, POINTS), "gelu": (jax.nn.gelu, POINTS),
    "gelu_exact": (lambda x: jax.nn.gelu(x, approximate=False), POINTS),
    "logical_not": (jnp.logical_not, POINTS), "isfinite": (jnp.isfinite, POINTS), "isinf": (jnp.isinf, POINTS),
    "isnan": (jnp.isnan, POINTS), "bitwise_not": (jnp.bitwise_not, None),
}

PAIRS = [(a, b) for a in POINTS for b in (-1.5, -1.0, 0.0, 0.5, 1.0, 2.5)]
NONZERO = [(a, b) for a, b in PAIRS if b]
BASES = [(a, b) for a in POSITIVE for b in (-1.5, -1.0, 0.0, 0.5, 1.0, 2.0, 2.5)]
NO_AXIS = [(a, b) for a, b in PAIRS if a or b]

BINARY = {
    "add": (jnp.add, PAIRS), "subtract": (jnp.subtract, PAIRS), "multiply": (jnp.multiply, PAIRS),
    "divide": (jnp.divide, NONZERO), "remainder": (jnp.remainder, NONZERO),
    "floor_divide": (jnp.floor_divide, NONZERO), "power": (jnp.power, BASES), "maximum": (jnp.maximum, PAIRS),
    "minimum": (jnp.minimum, PAIRS), "logaddexp": (jnp.logaddexp, PAIRS), "arctan2": (jnp.arctan2, NO_AXIS),
    "less": (jnp.less, PAIRS), "less_equal": (jnp.less_equal, PAIRS), "greater": (jnp.greater, PAIRS),
    "greater_equal": (jnp.greater_equal, PAIRS), "equal": (jnp.equal, PAIRS), "not_equal": (jnp.not_equal, PAIRS),
    "logical_and": (jnp.logical_and, PAIRS), "logical_or": (jnp.logical_or, PAIRS),
    "logical_xor": (jnp.logical_xor, PAIRS), "bitwise_and": (jnp.bitwise_and, None),
    "bitwise_or": (jnp.bitwise_or, None), "bitwise_xor": (jnp.bitwise_xor, None),
    "where": (lambda a, b: jnp.where(a > 0, a, b), PAIRS), "clip": (lambda a, b: jnp.clip(a, b, b + b), PAIRS),
}


def flat(values):
    return [float(str(v)) for v in np.asarray(values, np.float32).reshape(-1)]


def dtype_of(f, *args):
    try:
        return str(f(*args).dtype)
    except (TypeError, ValueError):
        return None


def number_or_array(name):
    return NUMBERS[name] if name in NUMBERS else jnp.ones(2, name)


def values(f, *args):
    out = f(*args)
    case = {"values": flat(out)}
    if jnp.issubdtype(out.dtype, jnp.floating):
        gradient = jax.grad(lambda *xs: f(*xs).sum(), argnums=tuple(range(len(args))))
        case["gradients"] = [flat(g) for g in gradient(*args)]
    return case


def unary(name):
    f, points = UNARY[name]
    case = {"dtypes": {d: dtype_of(f, jnp.ones(2, d)) for d in DTYPES}}
    if points:
        case |= {"x": points, **values(f, jnp.array(points, jnp.float32))}
    return case


def binary(name):
    f, pairs = BINARY[name]
    kinds = DTYPES + list(NUMBERS)
    table = [[a, b, dtype_of(f, number_or_array(a), number_or_array(b))] for a in kinds for b in kinds
             if not (a in NUMBERS and b in NUMBERS) and not (name in ("where", "clip") and a in NUMBERS)]
    case = {"dtypes": table}
    if pairs:
        x, y = (jnp.array(column, jnp.float32) for column in zip(*pairs))
        case |= {"x": flat(x), "y": flat(y), **values(f, x, y)}
    return case


def main():
    warnings.simplefilter("ignore")
    out = {"made_by": f"gen_elementwise.py with jax {jax.__version__}",
           "unary": {name: unary(name) for name in UNARY}, "binary": {name: binary(name) for name in BINARY}}
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
