"""Writes rules.json: specs of rule tables in Flax Linen and NNX (PYTHON gen_rules.py, eight virtual devices)."""
import json
import os
import pathlib

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import flax
import jax
import jax.numpy as jnp
from flax import linen, nnx
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding

MESH = Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model"))

# name, rules in order, the array's names, its shape
CASES = [
    ("one rule for each", [["embed", "data"], ["mlp", "model"]], ["embed", "mlp"], [8, 8]),
    ("replicated", [["embed", None], ["mlp", "model"]], ["embed", "mlp"], [8, 8]),
    ("a dim without a name", [["mlp", "model"]], [None, "mlp"], [8, 8]),
    ("two rules for one name", [["mlp", "model"], ["mlp", "data"], ["embed", None]], ["embed", "mlp"], [8, 8]),
    ("the first of two rules is taken by another dim", [["embed", "data"], ["mlp", "data"], ["mlp", "model"]],
     ["embed", "mlp"], [8, 8]),
    ("the last of two rules is taken by another dim", [["embed", "data"], ["mlp", "model"], ["mlp", "data"]],
     ["embed", "mlp"], [8, 8]),
    ("two names on one mesh axis", [["embed", "model"], ["mlp", "model"]], ["embed", "mlp"], [8, 8]),
    ("two names on one mesh axis, the second dim's rule first", [["mlp", "model"], ["embed", "model"]],
     ["embed", "mlp"], [8, 8]),
    ("one name on two dims", [["embed", "model"]], ["embed", "embed"], [8, 8]),
    ("one name on two dims, replicated", [["embed", None]], ["embed", "embed"], [8, 8]),
    ("a name in no rule", [["mlp", "model"]], ["embed", "mlp"], [8, 8]),
    ("a mesh axis's name in no rule", [["mlp", "model"]], ["data", "mlp"], [8, 8]),
    ("a dim that does not divide", [["mlp", "data"]], ["mlp"], [6]),
    ("a dim that does not divide, and a second rule", [["mlp", "data"], ["mlp", "model"]], ["mlp"], [6]),
    ("a tuple of mesh axes", [["vocab", ["data", "model"]]], ["vocab"], [16]),
    ("a tuple whose second axis is taken", [["embed", "model"], ["vocab", ["data", "model"]]], ["vocab", "embed"],
     [16, 8]),
    ("a tuple that does not divide, its first axis does", [["vocab", ["data", "model"]]], ["vocab"], [4]),
    ("an empty tuple", [["norm", []]], ["norm"], [8]),
    ("a mesh axis that the mesh lacks", [["embed", "fsdp"], ["mlp", "model"]], ["embed", "mlp"], [8, 8]),
    ("a tuple, one axis of which the mesh lacks", [["embed", ["data", "fsdp"]]], ["embed"], [8]),
    ("fewer names than dims", [["embed", "data"]], ["embed"], [8, 8]),
    ("more names than dims", [["embed", "data"], ["mlp", "model"]], ["embed", "mlp"], [8]),
]


def as_rules(rules):
    return tuple((name, tuple(axes) if isinstance(axes, list) else axes) for name, axes in rules)


def as_json(spec):
    entries = [list(e) if isinstance(e, tuple) else e for e in spec]
    entries = [e[0] if isinstance(e, list) and len(e) == 1 else (None if e == [] else e) for e in entries]
    while entries and entries[-1] is None:
        entries.pop()
    return entries


def outcome(place):
    try:
        return {"spec": as_json(place())}
    except Exception as error:  # only the kind of error is recorded
        return {"error": type(error).__name__}


def by_linen(rules, names, shape):
    spec = linen.spmd.logical_to_mesh_axes(names, as_rules(rules))
    return jax.device_put(jnp.zeros(shape), NamedSharding(MESH, spec)).sharding.spec


def by_nnx(rules, names, shape):
    init = nnx.with_metadata(nnx.initializers.zeros_init(), sharding=tuple(names), sharding_rules=as_rules(rules))
    with jax.set_mesh(MESH):
        return nnx.Param(init(jax.random.key(0), tuple(shape)))[...].sharding.spec


def main():
    cases = [{"name": name, "rules": rules, "axes": names, "shape": shape,
              "linen": outcome(lambda: by_linen(rules, names, shape)),
              "nnx": outcome(lambda: by_nnx(rules, names, shape))} for name, rules, names, shape in CASES]
    meta = {"what": "rules resolved", "mesh": "data=4, model=2", "flax": flax.__version__, "jax": jax.__version__,
            "generator": "gen_rules.py"}
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = '{"meta": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(meta), lines)
    pathlib.Path(__file__).with_name("rules.json").write_text(text)


if __name__ == "__main__":
    main()
