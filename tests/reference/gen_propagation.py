"""Set C: propagation.json - the sharding of an operation's result; propagation_more.json has further cases.

Each case of propagation_cases.py and propagation_more.py runs three times:
  value     on one device, no mesh: the checksum of the result
  explicit  on a mesh of AxisType.Explicit axes, under jit: the result's PartitionSpec is part
            of its type (jax.typeof(y).sharding.spec); a rejected case records the error
  auto      on a mesh of AxisType.Auto axes, under jit: the sharding that the compiler's
            partitioner (Shardy) chooses. A requested out_sharding becomes a
            with_sharding_constraint on the result.
Both sharded runs record the collectives of the compiled program and are compared with `value`.
For float inputs and outputs "grad" has the gradient of sum(y * w), w being the checksum weights,
per float input: the spec it has in explicit mode, and the checksum of the unsharded computation.

Run:  python gen_propagation.py [id-prefix]     (a prefix limits the run and writes nothing)
"""

import time
import warnings

from refcommon import *
from jax import lax

import propagation_cases as pc
import propagation_more as pm
from propagation_ops import OPS, TAKES_OUT_SHARDING

warnings.filterwarnings("ignore")
SEEDS = [dict(k=37, c=11), dict(k=29, c=3), dict(k=23, c=7), dict(k=31, c=19)]
CREATES = ("zeros", "full", "arange", "iota", "random_normal")


def init_of(i, inp):
    """The JSON description of an input's contents."""
    if "values" in inp:
        return {"kind": "values", "values": inp["values"]}
    if inp["dtype"] == "bool":
        return {"kind": "affine_mod", "k": 5, "c": 1, "m": 7, "s": 0, "d": 1, "then": "v % 2 == 0"}
    if inp["dtype"] == "int32":
        return {"kind": "affine_mod", "k": 7, "c": 3, "m": inp["high"], "s": 0, "d": 1}
    s = -1 if inp.get("positive") else 50
    return {"kind": "affine_mod", **SEEDS[i], "m": 101, "s": s, "d": 64}


def contents(i, inp):
    init = init_of(i, inp)
    if init.get("then"):
        return det(inp["shape"], 5, 1, 7, 0, 1, "int64") % 2 == 0
    return det_from_init(inp["shape"], inp["dtype"], init)


def is_float(a):
    return jnp.issubdtype(a.dtype, jnp.floating)


def as_tuple(y):
    return tuple(y) if isinstance(y, (tuple, list)) else (y,)


def weights(shape):
    return det(shape, **CHECK_W)


def compact_collectives(text):
    c = collectives(text)
    r = dict(c["summary"])
    if "ops" in c:
        r["ops"] = [[o["kind"], "+".join(o["result"]), o["bytes"], o.get("group_size")] for o in c["ops"]]
    return r


def max_diff(a, b):
    a, b = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
    d = float(np.abs(a - b).max()) if a.size else 0.0
    assert math.isfinite(d), "a reference value is not finite"
    return d


def run_value(f, host):
    return [np.asarray(y) for y in as_tuple(jax.jit(lambda *xs: f(xs, None))(*host))]


def run_explicit(f, case, host, value):
    mesh = make_mesh(pc.MESHES[case["mesh"]], "explicit")
    with jax.set_mesh(mesh):
        try:
            xs = [jax.device_put(h, NamedSharding(mesh, to_spec(i["spec"])))
                  for h, i in zip(host, case["inputs"])]
            osh = to_spec(case["attrs"]["out_sharding"]) if "out_sharding" in case["attrs"] else None
            g = jax.jit(lambda *xs: as_tuple(f(xs, osh)))
            comp = g.lower(*xs).compile()
            ys = g(*xs)
        except Exception as e:
            return {"ok": False, "error": error_record(e)}, None
        outs, diffs = [], []
        for y, v in zip(ys, value):
            spec = jax.typeof(y).sharding.spec
            r = {"spec": spec_json(spec)}
            if spec.unreduced:      # is not readable: reduce it first
                y = jax.sharding.reshard(y, P(*[None] * y.ndim))
            else:
                r["local_shape"] = list(y.sharding.shard_shape(y.shape))
            outs.append(r)
            diffs.append(max_diff(y, v))
        rec = {"ok": True, "out": outs, "collectives": compact_collectives(comp.as_text()),
               "max_diff": float(f"{max(diffs):.3g}")}
        fl = [i for i, x in enumerate(xs) if is_float(x)]
        unreduced = any("unreduced" in o["spec"] for o in outs if isinstance(o["spec"], dict))
        if not fl or unreduced or not all(is_float(y) for y in ys):
            return rec, None

        def loss(*fx):
            full = list(xs)
            for i, x in zip(fl, fx):
                full[i] = x
            total = 0.0
            for y in as_tuple(f(full, osh)):
                w = jax.sharding.reshard(jnp.asarray(weights(y.shape), y.dtype), jax.typeof(y).sharding.spec)
                total = total + (y * w).sum()
            return total

        def plain(*fx):
            full = [jnp.asarray(h) for h in host]
            for i, x in zip(fl, fx):
                full[i] = x
            return sum((y * jnp.asarray(weights(y.shape), y.dtype)).sum()
                       for y in as_tuple(f(full, None)))
        try:
            gs = jax.jit(jax.grad(loss, tuple(range(len(fl)))))(*[xs[i] for i in fl])
        except Exception as e:
            return rec, {"ok": False, "error": error_record(e)}
    ref = jax.jit(jax.grad(plain, tuple(range(len(fl)))))(*[jnp.asarray(host[i]) for i in fl])
    # the numbers are those of the unsharded gradient; max_diff is the deviation of the sharded run
    return rec, {"ok": True, "wrt": fl,
                 "out": [{"spec": spec_json(jax.typeof(g).sharding.spec), **checksum(r, 8, 4)}
                         for g, r in zip(gs, ref)],
                 "max_diff": float(f"{max(max_diff(a, b) for a, b in zip(gs, ref)):.3g}")}


def run_auto(f, case, host, value):
    mesh = make_mesh(pc.MESHES[case["mesh"]], "auto")
    want = case["attrs"].get("out_sharding")
    constrain = want is not None and not isinstance(want, dict)
    with jax.set_mesh(mesh):
        try:
            xs = [jax.device_put(h, NamedSharding(mesh, to_spec(i["spec"])))
                  for h, i in zip(host, case["inputs"])]

            def g(*xs):
                ys = as_tuple(f(xs, None))
                if constrain:
                    ys = tuple(lax.with_sharding_constraint(y, NamedSharding(mesh, to_spec(want))) for y in ys)
                return ys
            g = jax.jit(g)
            comp = g.lower(*xs).compile()
            ys = g(*xs)
        except Exception as e:
            return {"ok": False, "error": error_record(e)}
        outs = []
        for y in ys:
            if isinstance(y.sharding, NamedSharding):
                outs.append({"spec": norm_spec(y.sharding.spec, y.ndim),
                             "local_shape": list(y.sharding.shard_shape(y.shape))})
            else:
                outs.append({"sharding": type(y.sharding).__name__,
                             "local_shape": list(y.sharding.shard_shape(y.shape))})
        return {"ok": True, "constrained": constrain, "out": outs,
                "collectives": compact_collectives(comp.as_text()),
                "max_diff": float(f"{max(max_diff(y, v) for y, v in zip(ys, value)):.3g}")}


def run(case):
    op, attrs = case["op"], case["attrs"]
    rest = {k: v for k, v in attrs.items() if k != "out_sharding"}
    assert "out_sharding" not in attrs or op in TAKES_OUT_SHARDING, op
    f = lambda xs, osh: OPS[op](list(xs), rest, osh)
    host = [contents(i, inp) for i, inp in enumerate(case["inputs"])]
    value = run_value(f, host)
    explicit, grad = run_explicit(f, case, host, value)
    auto = run_auto(f, case, host, value)
    ins = [{"shape": i["shape"], "dtype": i["dtype"], "spec": i["spec"], "init": init_of(k, i)}
           for k, i in enumerate(case["inputs"])]
    rec = {"id": case["id"], "group": case["group"], "op": op, "attrs": attrs, "mesh": case["mesh"],
           "inputs": ins, "value": [checksum(v, 8, 4) for v in value], "explicit": explicit}
    if grad is not None:
        rec["grad"] = grad
    rec["auto"] = auto
    return rec


def main():
    prefix = sys.argv[1] if len(sys.argv) > 1 else None
    t0 = time.time()
    for name, letter, raw in (("propagation", "p", pc.PUBLIC), ("propagation_more", "m", pm.MORE)):
        cases = []
        for n, (group, op, attrs, inputs, mesh) in enumerate(raw):
            case = {"id": f"prop.{letter}{n:03d}.{group}.{op}", "group": group, "op": op, "attrs": attrs,
                    "inputs": inputs, "mesh": mesh}
            if prefix and not case["id"].startswith(prefix):
                continue
            r = run(case)
            cases.append(r)
            if prefix:
                print(json.dumps(r))
            elif n % 25 == 0:
                print(f"  {name} {n}/{len(raw)} {time.time() - t0:.0f}s", flush=True)
                jax.clear_caches()
        if prefix:
            continue
        used = sorted({c["mesh"] for c in cases})
        meshes = {m: {"axes": pc.MESHES[m], "device_ids": list(range(math.prod(n for _, n in pc.MESHES[m])))}
                  for m in used}
        write_json(HERE / f"{name}.json",
                   {"meta": meta("sharding propagation per operation"), "weights": CHECK_W,
                    "collectives_ops_row": ["kind", "result shapes on one device", "bytes", "group size (null: permute)"]},
                   {"meshes": meshes, "cases": cases})
        err = {}
        for c in cases:
            if not c["explicit"]["ok"]:
                err.setdefault((c["explicit"]["error"]["type"], c["explicit"]["error"]["kind"]), []).append(c["id"])
        for k, v in sorted(err.items()):
            print("   explicit rejects", k, len(v))
        bad = [(c["id"], c[m]["max_diff"]) for c in cases for m in ("explicit", "auto")
               if c[m]["ok"] and not c[m]["max_diff"] < 2e-5]
        print("   value differs > 2e-5:", bad)
        print("   grad differs > 2e-4:", [(c["id"], c["grad"]["max_diff"]) for c in cases
                                           if c.get("grad", {}).get("ok") and not c["grad"]["max_diff"] < 2e-4])
        print("   auto rejects:", [(c["id"], c["auto"]["error"]["message"][:80]) for c in cases if not c["auto"]["ok"]])
        print("   grad rejects:", [(c["id"], c["grad"]["error"]["message"][:80]) for c in cases
                                   if not c.get("grad", {"ok": True})["ok"]])


if __name__ == "__main__":
    main()
