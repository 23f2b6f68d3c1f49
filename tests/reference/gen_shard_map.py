"""Set D: shard_map.json - per-device functions with explicit collectives.

`body` is the Python source of the per-shard function (arguments a, b, ...; jnp, lax, jax in
scope). Inputs are formula-defined; outputs and gradients are stored in full. The gradient is
that of sum_k sum(out_k * w_k), w_k = det(shape, k=13, c=5, m=17, s=8, d=16), with respect to
every float input; it is compared here with central differences ("fd_error"). If JAX has no
gradient (pmax, pmin) or fails to compute one (untiled all_to_all), "fd_values" has the differences.
shard_map_more.json has further cases of the same schema.

Run:  python gen_shard_map.py
"""

import textwrap

from refcommon import *
from jax import lax

from shard_map_cases import CASES, MESHES

SEEDS = [dict(k=37, c=11), dict(k=29, c=3), dict(k=23, c=7), dict(k=31, c=19)]
CHECK_W = dict(k=13, c=5, m=17, s=8, d=16)


def weights(shape):
    return det(shape, **CHECK_W)


def init_of(i, inp):
    if inp["dtype"] == "int32":
        return {"kind": "affine_mod", "k": 7, "c": 3, "m": inp["high"], "s": 0, "d": 1}
    return {"kind": "affine_mod", **SEEDS[i], "m": 101, "s": 50, "d": 64}


def run(c):
    axes, ids = MESHES[c["mesh"]]
    mesh = make_mesh(axes, "auto", ids)
    names = [chr(ord("a") + i) for i in range(len(c["inputs"]))]
    env = {"jnp": jnp, "lax": lax, "jax": jax}
    src = f"def body({', '.join(names)}):\n" + textwrap.indent(c["body"], "    ")
    exec(src, env)
    host = [det_from_init(i["shape"], i["dtype"], init_of(k, i)) for k, i in enumerate(c["inputs"])]
    local = []

    def body(*xs):
        local[:] = [list(x.shape) for x in xs]
        return env["body"](*xs)

    rec = {"name": c["name"], "mesh": c["mesh"], "body": c["body"], "in_specs": c["in_specs"],
           "out_specs": c["out_specs"], "check_vma": c.get("check_vma", True)}
    kw = {}
    if "axis_names" in c:
        kw["axis_names"] = set(c["axis_names"])
        rec["axis_names"] = c["axis_names"]
    rec["inputs"] = [{**{k: v for k, v in i.items() if k != "high"}, "init": init_of(k, i)}
                     for k, i in enumerate(c["inputs"])]
    outs = tuple(to_spec(s) for s in c["out_specs"])
    try:
        f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=tuple(to_spec(s) for s in c["in_specs"]),
                                  out_specs=outs if len(outs) > 1 else outs[0],
                                  check_vma=rec["check_vma"], **kw))
        comp = f.lower(*host).compile()
        ys = f(*host)
    except Exception as e:
        return {**rec, "ok": False, "error": error_record(e, 320)}
    ys = ys if isinstance(ys, tuple) else (ys,)
    rec["ok"] = True
    rec["local_inputs"] = local
    rec["outputs"] = [{"shape": list(y.shape), "dtype": str(y.dtype), "local_shape": list(y.sharding.shard_shape(y.shape)),
                       "values": to_list(np.asarray(y).reshape(-1))} for y in ys]
    rec["collectives"] = collectives(comp.as_text(), detail=False)["summary"]
    fl = [i for i, h in enumerate(host) if h.dtype == np.float32]
    if fl and all(y.dtype == jnp.float32 for y in ys):
        def loss(*fx):
            xs = list(host)
            for i, x in zip(fl, fx):
                xs[i] = x
            o = f(*xs)
            o = o if isinstance(o, tuple) else (o,)
            return sum((y * weights(y.shape)).sum() for y in o)
        fx = [host[i] for i in fl]
        eps, worst = c.get("eps", 2.0**-3), 0.0
        jl = jax.jit(loss)

        def fd(k, j):
            """Central difference of the loss along element j of float input k."""
            e = np.zeros(fx[k].size, np.float32)
            e[j] = eps
            hi, lo = [float(jl(*fx[:k], fx[k] + s * e.reshape(fx[k].shape), *fx[k + 1:])) for s in (1, -1)]
            return (hi - lo) / (2 * eps)
        try:
            gs = jax.jit(jax.grad(loss, tuple(range(len(fl)))))(*fx)
        except Exception as e:
            rec["grad"] = {"ok": False, "error": error_record(e, 200), "wrt": fl,
                           "fd_values": [[d64(round(fd(k, j), 6)) for j in range(x.size)] for k, x in enumerate(fx)]}
            return rec
        for k, (x, g) in enumerate(zip(fx, gs)):
            for j in sorted({0, x.size // 3, x.size // 2, x.size - 1}):
                worst = max(worst, abs(fd(k, j) - float(np.asarray(g).reshape(-1)[j])))
        assert worst < 5e-3, (c["name"], worst)
        rec["grad"] = {"ok": True, "wrt": fl, "fd_error": float(f"{worst:.2g}"),
                       "values": [to_list(np.asarray(g).reshape(-1)) for g in gs]}
    return rec


def main():
    for name, cases in CASES.items():
        letter = "p" if name == "shard_map" else "m"
        out = [{"id": f"shard_map.{letter}{i:02d}.{c['name']}", **run(c)} for i, c in enumerate(cases)]
        used = sorted({c["mesh"] for c in cases})
        write_json(HERE / f"{name}.json",
                   {"meta": meta("shard_map bodies with collectives"), "weights": CHECK_W},
                   {"meshes": {m: mesh_json(make_mesh(MESHES[m][0], device_ids=MESHES[m][1])) for m in used},
                    "cases": out})
        for c in out:
            bad = "rejected" in c["name"]
            if c["ok"] == bad:
                print("   UNEXPECTED", c["name"], c.get("error"))
            elif not c["ok"]:
                print("   rejects", c["name"], c["error"]["type"], c["error"]["kind"], c["error"]["message"][:100])
            elif not c.get("grad", {"ok": 1})["ok"]:
                print("   no gradient", c["name"], c["grad"]["error"]["message"][:100])


if __name__ == "__main__":
    main()
