"""Set B: placement.json - the shards of NamedSharding, or the error if an array is rejected.

For each (mesh, global shape, dtype, PartitionSpec): local shape, index ranges and replica
id per device. For a rejected case: its stage ("sharding": building NamedSharding(mesh, spec);
"placement": placing an array of that shape) and the kind of error.

placement_more.json has further cases of the same schema.

A second list, "equivalence", has for pairs of shardings whether the specs compare equal,
whether the NamedShardings compare equal, and whether they place an array of the given
rank identically (Sharding.is_equivalent_to).

Run:  python gen_placement.py
"""

from refcommon import *

# name -> (axes, device ids or None for 0..n-1 row-major)
MESHES = {
    "m1": ([["x", 1]], None),
    "m2": ([["x", 2]], None),
    "m8": ([["x", 8]], None),
    "m2x4": ([["x", 2], ["y", 4]], None),
    "m4x2": ([["data", 4], ["model", 2]], None),
    "m8x1": ([["data", 8], ["model", 1]], None),
    "m1x8": ([["batch", 1], ["model", 8]], None),
    "m2x2x2": ([["a", 2], ["b", 2], ["c", 2]], None),
    # of placement_more
    "torus": ([["x", 2], ["y", 4]], [0, 1, 2, 3, 6, 7, 4, 5]),
    "column_major": ([["x", 4], ["y", 2]], [0, 4, 1, 5, 2, 6, 3, 7]),
    "some": ([["x", 3]], [6, 1, 4]),
    "six": ([["x", 2], ["y", 3]], [5, 3, 1, 4, 2, 0]),
    "m8_reversed": ([["x", 8]], [7, 6, 5, 4, 3, 2, 1, 0]),
    "ones": ([["a", 1], ["b", 4], ["c", 1], ["d", 2]], None),
}

XY, YX = ["x", "y"], ["y", "x"]

# (mesh, shape, spec[, dtype])
CASES = [
    # --- one axis
    ("m1", (4,), ["x"]), ("m1", (3, 5), [None, "x"]), ("m1", (), []),
    ("m2", (1024,), ["x"]), ("m2", (1024,), []), ("m2", (6, 4), ["x"]),
    ("m2", (6, 4), [None, "x"]), ("m2", (6, 4), ["x", None]), ("m2", (2, 3, 4), [None, None, "x"]),
    ("m8", (8,), ["x"]), ("m8", (32,), ["x"]), ("m8", (32,), []), ("m8", (32,), [None]),
    ("m8", (128, 512), ["x", None]), ("m8", (128, 512), [None, "x"]), ("m8", (128, 512), ["x"]),
    ("m8", (512, 512), [None, "x"], "bfloat16"), ("m8", (16, 8, 24), [None, None, "x"]),
    ("m8", (16, 8, 24), [None, "x", None], "int8"), ("m8", (), []),
    # --- two axes
    ("m2x4", (4, 8), ["x", "y"]), ("m2x4", (4, 8), ["y", "x"]), ("m2x4", (4, 8), ["x"]),
    ("m2x4", (4, 8), ["y"]), ("m2x4", (4, 8), [None, "x"]), ("m2x4", (4, 8), [None, "y"]),
    ("m2x4", (4, 8), []), ("m2x4", (4, 8), [None]), ("m2x4", (4, 8), [None, None]),
    ("m2x4", (4, 8), ["x", None]), ("m2x4", (8,), ["x"]), ("m2x4", (8,), ["y"]),
    ("m2x4", (8,), [XY]), ("m2x4", (8,), [YX]), ("m2x4", (16, 6), [XY]),
    ("m2x4", (16, 6), [XY, None]), ("m2x4", (6, 16), [None, XY]), ("m2x4", (6, 16), [None, YX]),
    ("m2x4", (8, 4, 2), ["y", None, "x"]), ("m2x4", (8, 4, 2), [None, "y"]),
    ("m2x4", (2, 3, 4), ["x", None, "y"], "int32"), ("m2x4", (8, 8), [["x"], ["y"]]),
    ("m4x2", (128, 512), ["data", "model"]), ("m4x2", (128, 512), ["data", None]),
    ("m4x2", (128, 512), [None, "model"]), ("m4x2", (128, 512), []),
    ("m4x2", (512, 512), ["model", "data"]), ("m4x2", (32, 128), ["data", None], "int32"),
    ("m4x2", (16,), [["data", "model"]]), ("m4x2", (64, 16, 8), [["data", "model"], None, None]),
    ("m8x1", (128, 512), ["data", "model"]), ("m8x1", (7, 16), ["model", "data"]),
    ("m8x1", (128, 5), ["data", "model"]), ("m1x8", (128, 512), ["batch", "model"]),
    ("m1x8", (3, 512), ["batch", "model"]), ("m1x8", (512,), ["batch"]),
    # --- three axes
    ("m2x2x2", (8, 8, 8), ["a", "b", "c"]), ("m2x2x2", (8, 8), ["a", "c"]),
    ("m2x2x2", (8, 8), [["a", "b"], "c"]), ("m2x2x2", (8, 8), ["b"]),
    ("m2x2x2", (16,), [["a", "b", "c"]]), ("m2x2x2", (8, 4), ["c", ["a", "b"]]),
    # --- sizes at the edge
    ("m2x4", (0, 8), ["x", "y"]), ("m8", (0,), ["x"]), ("m2x4", (2, 4), ["x", "y"]),
    ("m2x4", (1, 8), [None, XY]),
    # --- rejected
    ("m8", (12,), ["x"]), ("m8", (4,), ["x"]), ("m2x4", (3, 8), ["x", "y"]),
    ("m2x4", (4, 6), ["x", "y"]), ("m2x4", (12,), [XY]), ("m4x2", (128, 511), [None, "model"]),
    ("m2x4", (8, 8), ["x", "x"]), ("m2x4", (8, 8), [["x", "x"]]), ("m2x4", (8, 8), [XY, "y"]),
    ("m2x4", (8, 8), ["z"]), ("m4x2", (8, 8), ["x", "y"]), ("m2x4", (8, 8), [None, ["x", "z"]]),
    ("m2x4", (8,), ["x", "y"]), ("m4x2", (16,), ["data", None]), ("m2x4", (), ["x"]),
    ("m2", (7,), ["x"]), ("m2x2x2", (8, 8), [["a", "b"], ["c", "a"]]),
    ("m2x2x2", (8, 6), ["c", ["a", "b"]]), ("m1", (4, 4), ["x", "x"]),
    ("m8", (), [None]),
]

# (mesh a, spec a, mesh b, spec b, rank)
EQUIVALENCE = [
    ("m2x4", ["x"], "m2x4", ["x", None], 2), ("m2x4", [], "m2x4", [None, None], 2),
    ("m2x4", [["x"]], "m2x4", ["x"], 1), ("m2x4", ["x", "y"], "m2x4", ["y", "x"], 2),
    ("m2x4", [XY], "m2x4", [YX], 1), ("m2x4", ["x"], "m2x4", [None, "x"], 2),
    ("m2x4", [], "m8", [], 2), ("m2x4", [XY], "m8", ["x"], 1), ("m2x4", ["x"], "m4x2", ["data"], 1),
    ("m8x1", ["data"], "m8", ["x"], 2),
]

# Device orders, element types, unconstrained dims, and which of two faults is reported.
OPEN = "?"
MORE = [
    ("torus", (4, 8), ["x", "y"]), ("torus", (8, 8), ["y"]), ("torus", (16,), [YX]), ("torus", (8,), []),
    ("column_major", (8, 4), ["x", "y"]), ("column_major", (8, 4), [None, "y"]), ("column_major", (8,), [YX]),
    ("some", (6, 2), ["x"]), ("some", (3,), []), ("some", (4,), ["x"]), ("six", (6, 6), ["y", "x"]), ("six", (12,), [XY]),
    ("six", (1, 2, 3), [None, "x", "y"]), ("m8_reversed", (16, 3), ["x"]), ("m8_reversed", (), []),
    ("ones", (3, 8), ["a", "b"]), ("ones", (8, 5), [["d", "a", "b"], "c"]), ("ones", (5,), [["a", "c"]]),
    ("ones", (8, 8), ["a", "a"]), ("ones", (8, 8), [["c", "b"], ["d", "a"]]),
    *[("m2x4", (4, 8), ["x", "y"], t) for t in ("float16", "bfloat16", "uint8", "int8", "int16", "int32", "bool")],
    ("m2x4", (4, 8), ["y"], "float64"), ("m2x4", (4, 8), [None, "x"], "int64"), ("m8", (0, 4), [None], "uint8"),
    ("m2x4", (4, 0), ["x"], "float16"), ("m2x4", (4, 0), ["x", "y"]), ("m2x4", (0,), [XY], "bool"),
    # an empty tuple has no axes
    ("m2x4", (4, 8), [[], "y"]), ("m2x4", (4, 8), ["x", []]), ("m2x4", (8,), [[]]), ("m2x4", (8,), [[], []]),
    ("m2x4", (3, 8), [[], ["y"]]), ("m2x4", (2, 2, 2, 2, 8), ["x", None, None, None, "y"]),
    # unconstrained dims
    ("m2x4", (8,), [OPEN]), ("m2x4", (), [OPEN]), ("m2x4", (8, 3), [OPEN, "x"]), ("m2x4", (8, 8), ["x", OPEN]),
    ("m2x4", (8,), ["x", OPEN]), ("m2x4", (8, 8), [OPEN, "z"]), ("m2x4", (8, 8, 8), ["x", OPEN, "x"]),
    ("m2x4", (8, 8), [None, OPEN]), ("m2x4", (8, 8), [OPEN, None]),
    # two faults
    ("m2x4", (3,), ["x", "y"]), ("m2x4", (3, 3), ["x", "x"]), ("m2x4", (8, 8), ["z", "z"]), ("m2x4", (8, 8, 8), ["z", "x", "x"]),
    ("m2x4", (8,), ["x", "z"]), ("m2x4", (3, 5), ["x", "y"]), ("m2x4", (8,), [None, None]), ("m2x4", (8,), [None, "x"]),
    ("m2x4", (), [[]]), ("m2x4", (5,), [XY, None]),
]
MORE_EQUIVALENCE = [
    ("m2x4", [[], "y"], "m2x4", [None, "y"], 2), ("m2x4", [["x"], None], "m2x4", ["x", None], 2),
    ("torus", ["x"], "m2x4", ["x"], 1), ("torus", [], "m2x4", [], 1), ("m8_reversed", [], "m8", [None], 2),
    ("m8_reversed", ["x"], "m8", ["x"], 1), ("column_major", [YX], "m8", ["x"], 1), ("ones", ["a"], "ones", [], 2),
    ("ones", [["a", "b"]], "ones", ["b"], 1), ("ones", ["b", "d"], "ones", ["b", ["d", "c"]], 2), ("m2", [], "m8", [], 1),
    ("ones", ["b", ["d"]], "ones", ["b", "d", None], 3), ("m1x8", ["batch", "model"], "m8", [None, "x"], 2),
]

def place(name, shape, spec, dtype):
    mesh = make_mesh(*[MESHES[name][0]], device_ids=MESHES[name][1])
    case = {"mesh": name, "shape": list(shape), "dtype": dtype, "spec": spec}
    try:
        sharding = NamedSharding(mesh, to_spec(spec))
    except Exception as e:
        return {**case, "ok": False, "stage": "sharding", "error": error_record(e)}
    try:
        a = jax.device_put(jnp.zeros(shape, dtype), sharding)
    except Exception as e:
        err = error_record(e)
        if "UNCONSTRAINED" in str(e):
            err["kind"] = "unconstrained"
        return {**case, "ok": False, "stage": "placement", "error": err}
    r = array_record(a)
    tiles = [g // l if l else None for g, l in zip(a.shape, r["local_shape"])]
    return {**case, "ok": True, "shard_shape": r["local_shape"], "tiles": tiles,
            "is_fully_replicated": r["is_fully_replicated"],
            "num_distinct_shards": len({json.dumps(d["index"]) for d in r["devices"]}),
            "bytes_per_device": r["bytes_per_device"],
            "devices": [[d["id"], d["index"], d["replica_id"]] for d in r["devices"]]}


def equivalence(ma, sa, mb, sb, rank):
    a = NamedSharding(make_mesh(MESHES[ma][0], device_ids=MESHES[ma][1]), to_spec(sa))
    b = NamedSharding(make_mesh(MESHES[mb][0], device_ids=MESHES[mb][1]), to_spec(sb))
    return {"a": [ma, sa], "b": [mb, sb], "rank": rank,
            "spec_equal": bool(a.spec == b.spec), "sharding_equal": bool(a == b),
            "equivalent": bool(a.is_equivalent_to(b, rank))}


def main():
    for name, letter, cases, eqs in [("placement", "p", CASES, EQUIVALENCE), ("placement_more", "m", MORE, MORE_EQUIVALENCE)]:
        out = [{"id": f"placement.{letter}{i:03d}", **place(c[0], c[1], c[2], c[3] if len(c) > 3 else "float32")}
               for i, c in enumerate(cases)]
        used = {c["mesh"] for c in out} | {m for e in eqs for m in (e[0], e[2])}
        meshes = {k: mesh_json(make_mesh(a, device_ids=i)) for k, (a, i) in MESHES.items() if k in used}
        write_json(HERE / f"{name}.json",
                   {"meta": meta("NamedSharding placement"),
                    "devices_row": ["device id", "index ranges per dimension", "replica id"]},
                   {"meshes": meshes, "cases": out, "equivalence": [equivalence(*e) for e in eqs]})


if __name__ == "__main__":
    main()
