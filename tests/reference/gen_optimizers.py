"""optimizers.json + optimizers.safetensors, schedules.json.

Every case is a chain of optax transformations applied for ten steps to fixed parameters with
fixed gradients. The safetensors file has, each stacked over the steps as a leading axis of 10:
    params/<name>        the start (no step axis)
    grads/<name>         the gradient of each step
    <case>/<name>        the parameters after each step
`f64_diff` of a case is the largest difference of any parameter at any step between the float32
run and a float64 run: a measure of how far two correct float32 programs may drift apart.

schedules.json has values of optax schedules at fixed steps.

Run:  python gen_optimizers.py
"""

import pathlib

from refcommon import *

import optax
import optax.contrib

STEPS = 10
HERE = pathlib.Path(__file__).parent

# --------------------------------------------------------------------------- parameters
SHAPES = {"public": {"dense.kernel": (6, 4), "dense.bias": (4,), "norm.scale": (4,), "head.kernel": (4, 8)}}
# factor of each step's gradient
SCALE = {"public": [1, 0.5, 2, 1, 0.25, 4, 1, 1, 0.125, 1]}


def start(split):
    return {n: det(s, k=37, c=11 + 7 * i, m=101, s=50, d=64) for i, (n, s) in enumerate(SHAPES[split].items())}


def gradients(split):
    """A list of ten trees."""
    return [{n: det(s, k=29 + 2 * t, c=3 + 5 * t + 13 * i, m=97, s=48, d=128) * np.float32(SCALE[split][t])
             for i, (n, s) in enumerate(SHAPES[split].items())} for t in range(STEPS)]


# --------------------------------------------------------- declarative optax expressions
def ndim_gt_1(params):
    return jax.tree.map(lambda p: p.ndim > 1, params)


def label(params):
    return jax.tree.map(lambda p: "matrix" if p.ndim > 1 else "vector", params)


def warmup_stable_decay(init_value=0.0, peak_value=None, warmup_steps=0, stable_steps=0, decay_steps=None,
                        end_value=0.0, decay_shape="linear"):
    """Optax lacks this schedule; its parts are Optax's."""
    decay = {"linear": optax.linear_schedule(peak_value, end_value, decay_steps),
             "cosine": optax.cosine_decay_schedule(peak_value, decay_steps, alpha=end_value / peak_value),
             "one_minus_sqrt": lambda n: end_value + (peak_value - end_value) * (
                 1 - jnp.sqrt(jnp.minimum(n / decay_steps, 1.0)))}[decay_shape]
    warmup = optax.linear_schedule(init_value, peak_value, max(warmup_steps, 1))
    return optax.join_schedules([warmup, optax.constant_schedule(peak_value), decay],
                                [warmup_steps, warmup_steps + stable_steps])


def build(e):
    """A T(...) expression -> the optax object."""
    if isinstance(e, list):
        return optax.chain(*[build(x) for x in e])
    if not isinstance(e, dict):
        return e
    kw = {k: v for k, v in e.items() if k != "name"}
    for k, v in kw.items():
        if k.endswith("mask") and v == "ndim>1":
            kw[k] = ndim_gt_1
        elif k in ("inner", "opt", "optimizer", "base_optimizer") or (isinstance(v, dict) and "name" in v):
            kw[k] = build(v)
    name = e["name"]
    if name == "warmup_stable_decay_schedule":
        return warmup_stable_decay(**kw)
    if name == "partition":
        return optax.partition({k: build(v) for k, v in e["transforms"].items()}, label)
    if name == "selective_transform":  # it takes a tree only: any function is true
        frozen = {n: kw["freeze_mask"] is ndim_gt_1 and len(shape) > 1 for n, shape in SHAPES["public"].items()}
        return optax.selective_transform(kw["optimizer"], freeze_mask=frozen)
    if name == "MultiSteps":
        return optax.MultiSteps(kw["opt"], every_k_schedule=kw["every_k"]).gradient_transformation()
    if name == "join_schedules":
        return optax.join_schedules([build(s) for s in e["schedules"]], e["boundaries"])
    if name.startswith("piecewise"):
        kw["boundaries_and_scales"] = {int(k): v for k, v in kw["boundaries_and_scales"].items()}
    if name == "sgdr_schedule":
        return optax.sgdr_schedule(kw["cosine_kwargs"])
    f = getattr(optax, name, None) or getattr(optax.contrib, name)
    return f(**kw)


WC = T("warmup_cosine_decay_schedule", init_value=0.0, peak_value=0.02, warmup_steps=3, decay_steps=10, end_value=0.002)
PUBLIC = {
    "sgd": T("sgd", learning_rate=0.1),
    "sgd_momentum": T("sgd", learning_rate=0.1, momentum=0.9),
    "sgd_nesterov": T("sgd", learning_rate=0.1, momentum=0.9, nesterov=True),
    "adam": T("adam", learning_rate=0.01),
    "adam_betas": T("adam", learning_rate=0.01, b1=0.8, b2=0.95, eps=1e-6),
    "adamw": T("adamw", learning_rate=0.01, weight_decay=0.1),
    "adamw_masked": T("adamw", learning_rate=0.01, b1=0.9, b2=0.95, weight_decay=0.1, mask="ndim>1"),
    "lion": T("lion", learning_rate=0.003, b1=0.9, b2=0.99, weight_decay=0.01),
    "rmsprop": T("rmsprop", learning_rate=0.01, decay=0.9, eps=1e-8),
    "rmsprop_momentum": T("rmsprop", learning_rate=0.01, decay=0.9, momentum=0.9),
    "adagrad": T("adagrad", learning_rate=0.1),
    "adafactor_unfactored": T("adafactor", learning_rate=0.01),
    "adafactor_factored": T("adafactor", learning_rate=0.01, min_dim_size_to_factor=4),
    "lamb": T("lamb", learning_rate=0.01, weight_decay=0.1),
    "muon": T("muon", learning_rate=0.02),
    "clip_sgd": [T("clip_by_global_norm", max_norm=1.0), T("sgd", learning_rate=0.1)],
    "clip_adamw_warmup_cosine": [T("clip_by_global_norm", max_norm=1.0),
                                 T("adamw", learning_rate=WC, b1=0.9, b2=0.95, weight_decay=0.1, mask="ndim>1")],
    "chain_scale_by_adam": [T("scale_by_adam", b1=0.9, b2=0.999, eps=1e-8),
                            T("add_decayed_weights", weight_decay=0.05, mask="ndim>1"),
                            T("scale_by_learning_rate", learning_rate=0.01)],
    "sgd_linear_schedule": T("sgd", learning_rate=T("linear_schedule", init_value=0.1, end_value=0.01, transition_steps=8),
                             momentum=0.9),
    "clip_elementwise_adam": [T("clip", max_delta=0.1), T("adam", learning_rate=0.01)],
}

def run(expr, split, x64):
    with jax.enable_x64(x64):
        dt = np.float64 if x64 else np.float32
        tree = lambda t: {k: jnp.asarray(v, dt) for k, v in t.items()}
        tx = build(expr)
        params = tree(start(split))
        state = tx.init(params)
        leaves = [[jax.tree_util.keystr(p), list(np.shape(v)), str(jnp.asarray(v).dtype)]
                  for p, v in jax.tree_util.tree_leaves_with_path(state)]
        step = jax.jit(lambda g, s, p: tx.update(g, s, p))
        trace = []
        with jax.default_matmul_precision("highest"):
            for g in gradients(split):
                up, state = step(tree(g), state, params)
                params = optax.apply_updates(params, up)
                trace.append({k: np.asarray(v) for k, v in params.items()})
    return {k: np.stack([t[k] for t in trace]) for k in trace[0]}, leaves


# ------------------------------------------------------------------------------ schedules
AT = [0, 1, 2, 5, 9, 10, 11, 25, 49, 50, 51, 75, 99, 100, 101, 150, 1000]
SCHEDULES_PUBLIC = {
    "constant": T("constant_schedule", value=0.1),
    "linear": T("linear_schedule", init_value=1.0, end_value=0.1, transition_steps=100),
    "cosine": T("cosine_decay_schedule", init_value=0.1, decay_steps=100),
    "cosine_alpha": T("cosine_decay_schedule", init_value=0.1, decay_steps=100, alpha=0.1),
    "warmup_cosine": T("warmup_cosine_decay_schedule", init_value=0.0, peak_value=1e-3, warmup_steps=10,
                       decay_steps=100, end_value=1e-5),
    "exponential": T("exponential_decay", init_value=0.1, transition_steps=10, decay_rate=0.9),
    "exponential_staircase": T("exponential_decay", init_value=0.1, transition_steps=10, decay_rate=0.5, staircase=True),
    "piecewise": T("piecewise_constant_schedule", init_value=0.1, boundaries_and_scales={"10": 0.1, "50": 0.5}),
    "onecycle_cosine": T("cosine_onecycle_schedule", transition_steps=100, peak_value=0.1),
}

def main():
    for split, cases, scheds in [("public", PUBLIC, SCHEDULES_PUBLIC)]:
        tensors = {f"params/{k}": v for k, v in start(split).items()}
        gs = gradients(split)
        tensors |= {f"grads/{k}": np.stack([g[k] for g in gs]) for k in gs[0]}
        out = {}
        for name, expr in cases.items():
            trace, leaves = run(expr, split, False)
            exact, _ = run(expr, split, True)
            diff = max(float(np.abs(trace[k] - exact[k]).max()) for k in trace)
            assert all(np.isfinite(v).all() for v in trace.values()), name
            tensors |= {f"{name}/{k}": v for k, v in trace.items()}
            out[name] = {"chain": expr if isinstance(expr, list) else [expr], "steps": STEPS,
                         "f64_diff": float(f"{diff:.2g}"), "state_leaves": leaves}
            print(f"  {split} {name}: f64_diff {diff:.2g}")
        write_json(HERE / "optimizers.json",
                   {"meta": meta("optax optimizers, ten steps"),
                    "params": {k: list(v) for k, v in SHAPES[split].items()},
                    "mask_ndim_gt_1": {k: len(v) > 1 for k, v in SHAPES[split].items()},
                    "grad_global_norm": [d64(np.sqrt(sum((v.astype(np.float64) ** 2).sum() for v in g.values()))) for g in gs]},
                   {"cases": out})
        save_tensors(HERE / "optimizers.safetensors", tensors)
        write_json(HERE / "schedules.json",
                   {"meta": meta("optax schedules at fixed steps (float32 arithmetic)"), "steps": AT},
                   {"schedules": {k: {"expr": e, "values": [fnum(build(e)(jnp.int32(t))) for t in AT]}
                                  for k, e in scheds.items()}})


if __name__ == "__main__":
    main()
