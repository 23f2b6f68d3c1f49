"""Set F: transformer_<kind>.json + .safetensors - thirty training steps, alone and sharded.

The safetensors file: "tokens" int32 (30, batch, seq + 1), "params/<name>" the start,
"grads/<name>" the gradient of the first step before clipping, "logits0" the first step's logits
of batch row 0, positions 0..3. The JSON: loss, gradient norm and learning rate per step; a
checksum of every parameter after the last step; and for each parallel strategy the mesh, the
logical axis rules, the placement of each parameter, per-device bytes of parameters and Adam
state, the collectives of the compiled train step and how far its losses are from the
one-device run.

Optimizer: clip by global norm 1.0, then AdamW (b1 0.9, b2 0.95, eps 1e-8, weight decay 0.1 on
parameters with more than one dimension), warm-up 5 steps to 1e-3, cosine to 1e-4 at step 30.

transformer_<kind>_more.json has further strategies for the same model: a sharded sequence, tuples of mesh axes, axes
that shard a head, more devices than kv heads. transformer_<kind>_deep.json has a model of four layers.

Run:  python gen_transformer.py [gpt|llama|gpt_deep|llama_deep]
"""

from refcommon import *

import optax
from jax import lax

import transformer_models as tm

STEPS = 30
LR = dict(init_value=0.0, peak_value=1e-3, warmup_steps=5, decay_steps=30, end_value=1e-4)

TP = {"heads": "model", "kv_heads": "model", "mlp": "model", "vocab": "model"}

# strategy -> (mesh axes, logical axis -> mesh axis). A logical axis without a rule is not sharded.
STRATEGIES = {
    "gpt": {
        "dp8": ([["data", 8]], {"batch": "data"}),
        "tp4": ([["model", 4]], {"heads": "model", "mlp": "model", "vocab": "model"}),
        "fsdp8": ([["data", 8]], {"batch": "data", "embed": "data"}),
        "dp2_tp4": ([["data", 2], ["model", 4]],
                    {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}),
        "fsdp2_tp4": ([["data", 2], ["model", 4]],
                      {"batch": "data", "embed": "data", "heads": "model", "mlp": "model", "vocab": "model"}),
    },
    "gpt_more": {
        "tp8_through_heads": ([["model", 8]], {"heads": "model", "mlp": "model", "vocab": "model"}),
        "dp2_sp4": ([["data", 2], ["model", 4]],
                    {"batch": "data", "stream_seq": "model", "heads": "model", "mlp": "model", "vocab": "model"}),
        "sp8": ([["seq", 8]], {"stream_seq": "seq"}),
        "fsdp_tuple": ([["data", 2], ["model", 4]], {"batch": ["data", "model"], "embed": ["data", "model"]}),
        "hsdp": ([["replica", 2], ["data", 4]], {"batch": ["replica", "data"], "embed": "data"}),
        "three_axes": ([["replica", 2], ["data", 2], ["model", 2]],
                       {"batch": ["replica", "data"], "embed": "data", "heads": "model", "mlp": ["model", "replica"],
                        "vocab": "model"}),
    },
    "llama": {
        "dp8": ([["data", 8]], {"batch": "data"}),
        "tp2": ([["model", 2]], TP),
        "fsdp8": ([["data", 8]], {"batch": "data", "embed": "data"}),
        "dp2_tp2": ([["data", 2], ["model", 2]], {"batch": "data", **TP}),
        "dp4_tp2": ([["data", 4], ["model", 2]], {"batch": "data", **TP}),
        "fsdp4_tp2": ([["data", 4], ["model", 2]], {"batch": "data", "embed": "data", **TP}),
        "dp4_sp2": ([["data", 4], ["model", 2]], {"batch": "data", "stream_seq": "model", **TP}),
    },
    "llama_more": {
        "tp8_whole_kv_heads": ([["model", 8]], {"heads": "model", "mlp": "model", "vocab": "model"}),
        "tp4_through_kv_heads": ([["model", 4]], TP),
        "sp8": ([["seq", 8]], {"stream_seq": "seq"}),
        "dp2_sp4": ([["data", 2], ["model", 4]], {"batch": "data", "stream_seq": "model", **TP}),
        "hsdp": ([["replica", 2], ["data", 4]], {"batch": ["replica", "data"], "embed": "data", "norm": "data"}),
        "fsdp_tuple": ([["data", 2], ["model", 4]], {"batch": ["data", "model"], "embed": ["data", "model"]}),
        "heads_apart": ([["replica", 2], ["data", 2], ["model", 2]],
                        {"batch": "data", "embed": "data", "heads": ["model", "replica"], "kv_heads": "replica",
                         "mlp": ["model", "replica"], "vocab": "replica"}),
    },
    "gpt_deep": {"dp2_tp2": ([["data", 2], ["model", 2]],
                             {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"})},
    "llama_deep": {"dp2_tp2": ([["data", 2], ["model", 2]], {"batch": "data", **TP})},
}


def optimizer():
    mask = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.warmup_cosine_decay_schedule(**LR), b1=0.9, b2=0.95, eps=1e-8,
                    weight_decay=0.1, mask=mask))


def make_step(c, tx, constrain=lambda x: x):
    def step(params, state, tokens):
        loss, grads = jax.value_and_grad(lambda p: tm.loss_fn(c, p, tokens, constrain))(params)
        norm = optax.global_norm(grads)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss, norm
    return step


def train_alone(c, params0, tokens, x64=False):
    with jax.enable_x64(x64):
        dt = jnp.float64 if x64 else jnp.float32
        params = {k: jnp.asarray(v, dt) for k, v in params0.items()}
        tx = optimizer()
        state = tx.init(params)
        step = jax.jit(make_step(c, tx))
        losses, norms = [], []
        for t in range(STEPS):
            params, state, l, n = step(params, state, tokens[t])
            losses.append(float(l))
            norms.append(float(n))
        return params, losses, norms


def spec_of(axes, rules):
    out = []
    for a in axes:
        r = rules.get(a)
        out.append(tuple(r) if isinstance(r, list) else r)
    while out and out[-1] is None:
        out.pop()
    return P(*out)


def train_sharded(c, params0, tokens, axes, rules):
    mesh = make_mesh(axes, "auto")
    table = tm.parameter_table(c)
    place = {k: NamedSharding(mesh, spec_of(table[k][1], rules)) for k in table}
    batch = NamedSharding(mesh, spec_of(("batch", None), rules))
    stream = NamedSharding(mesh, spec_of(("batch", "stream_seq", None), rules))
    constrain = lambda x: lax.with_sharding_constraint(x, stream)
    tx = optimizer()
    with jax.set_mesh(mesh):
        params = {k: jax.device_put(v, place[k]) for k, v in params0.items()}
        # moments have the sharding of their parameter; counters are replicated
        state = tx.init(params)
        rep = NamedSharding(mesh, P())
        state = jax.tree_util.tree_map_with_path(
            lambda path, v: jax.device_put(v, place[path[-1].key] if hasattr(path[-1], "key") and v.ndim else rep), state)
        state_sh = jax.tree.map(lambda v: v.sharding, state)
        step = jax.jit(make_step(c, tx, constrain), donate_argnums=(),
                       in_shardings=(place, state_sh, batch), out_shardings=(place, state_sh, rep, rep))
        comp = step.lower(params, state, jax.device_put(tokens[0], batch)).compile()
        losses, norms = [], []
        for t in range(STEPS):
            params, state, l, n = step(params, state, jax.device_put(tokens[t], batch))
            losses.append(float(l))
            norms.append(float(n))
    local = lambda v: math.prod(v.sharding.shard_shape(v.shape)) * v.dtype.itemsize
    pbytes = {k: local(v) for k, v in params.items()}
    sbytes = sum(local(v) for v in jax.tree.leaves(state))
    col = collectives(comp.as_text())
    groups = {}
    for o in col.get("ops", []):
        key = (o["kind"], o.get("group_size"))
        g = groups.setdefault(key, [0, 0])
        g[0] += 1
        g[1] += o["bytes"]
    ma = comp.memory_analysis()
    return params, losses, norms, {
        "mesh": mesh_json(mesh), "rules": rules,
        "batch_spec": spec_json(batch.spec), "residual_stream_spec": spec_json(stream.spec),
        "params": {k: [spec_json(place[k].spec), list(params[k].sharding.shard_shape(params[k].shape)), pbytes[k]]
                   for k in params},
        "bytes_per_device": {"params": sum(pbytes.values()), "adam_state": sbytes,
                             "batch": local(jax.device_put(tokens[0], batch)),
                             "compiled_arguments": int(ma.argument_size_in_bytes) if ma else None},
        "collectives": col["summary"],
        "collectives_by_group": [[k, g, n, b] for (k, g), (n, b) in sorted(groups.items(), key=str)],
    }


def rel(a, b):
    return max(abs(x - y) / max(abs(y), 1e-12) for x, y in zip(a, b))


def sharded_runs(layouts, c, params0, tokens, params, losses, norms):
    """Runs every strategy of a dict like STRATEGIES["gpt"], and compares it with the one-device run."""
    strat = {}
    for name, (axes, rules) in layouts.items():
        p, l, n, rec = train_sharded(c, params0, tokens, axes, rules)
        rec["loss_max_rel_diff"] = float(f"{rel(l, losses):.2g}")
        rec["norm_max_rel_diff"] = float(f"{rel(n, norms):.2g}")
        rec["param_max_abs_diff"] = float(
            f"{max(float(np.abs(np.asarray(p[k]) - np.asarray(params[k])).max()) for k in p):.2g}")
        strat[name] = rec
        print(f"   {name}: loss off {rec['loss_max_rel_diff']}, params off {rec['param_max_abs_diff']}, "
              f"bytes {rec['bytes_per_device']}, {rec['collectives']}")
        assert rec["loss_max_rel_diff"] < 1e-4
    return strat


COLUMNS = {"columns_params_of_strategy": ["spec", "local shape", "bytes on one device"],
           "columns_collectives_by_group": ["kind", "devices in a group (null: permute)", "count",
                                            "bytes of the results on one device"]}


def main():
    jax.config.update("jax_default_matmul_precision", "highest")
    models = {"gpt": tm.GPT, "llama": tm.LLAMA, "gpt_deep": tm.GPT_DEEP, "llama_deep": tm.LLAMA_DEEP}
    for kind in sys.argv[1:] or models:
        c = models[kind]
        params0, tokens = tm.init_params(c), tm.token_batches(c, STEPS)
        params, losses, norms = train_alone(c, params0, tokens)
        _, l64, n64 = train_alone(c, params0, tokens, x64=True)
        lr = optax.warmup_cosine_decay_schedule(**LR)
        print(f"{kind}: loss {losses[0]:.5f} -> {losses[-1]:.5f}, float64 loss off by {rel(losses, l64):.1e}, "
              f"norm by {rel(norms, n64):.1e}")
        strat = sharded_runs(STRATEGIES[kind], c, params0, tokens, params, losses, norms)
        if f"{kind}_more" in STRATEGIES:
            write_json(HERE / f"transformer_{kind}_more.json",
                       {"meta": meta(f"more layouts of the {kind} transformer"), "config": c, **COLUMNS},
                       {"strategies": sharded_runs(STRATEGIES[f"{kind}_more"], c, params0, tokens, params, losses, norms)})
        grads = jax.jit(jax.grad(lambda p: tm.loss_fn(c, p, tokens[0])))(params0)
        logits = jax.jit(lambda p: tm.logits_fn(c, p, tokens[0][:1, :-1]))(params0)
        table = tm.parameter_table(c)
        write_json(
            HERE / f"transformer_{kind}.json",
            {"meta": meta(f"{kind} transformer, thirty AdamW steps"), "config": c,
             "optimizer": {"clip_by_global_norm": 1.0, "adamw": {"b1": 0.9, "b2": 0.95, "eps": 1e-8, "weight_decay": 0.1,
                                                                  "decay_where": "ndim > 1"},
                           "warmup_cosine_decay_schedule": LR},
             **COLUMNS,
             "loss": [fnum(v) for v in losses], "grad_norm": [fnum(v) for v in norms],
             "lr": [fnum(lr(t)) for t in range(STEPS)],
             "float64_loss": [d64(v) for v in l64], "float64_grad_norm": [d64(v) for v in n64],
             "num_params": sum(math.prod(s) for s, _, _ in table.values()),
             "logits0": checksum(logits)},
            {"parameters": {k: {"shape": list(s), "logical": list(a),
                                "final": {"sum": d64(np.asarray(params[k]).astype(np.float64).sum()),
                                          "l2": d64(np.linalg.norm(np.asarray(params[k]).astype(np.float64)))}}
                            for k, (s, a, _) in table.items()},
             "strategies": strat})
        save_tensors(HERE / f"transformer_{kind}.safetensors",
                     {"tokens": tokens, "logits0": np.asarray(logits)[0, :4],
                      **{f"params/{k}": v for k, v in params0.items()},
                      **{f"grads/{k}": np.asarray(v) for k, v in grads.items()}})


if __name__ == "__main__":
    main()
