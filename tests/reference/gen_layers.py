"""Writes layers.safetensors: results of layers of Equinox, Flax and PyTorch, with weights in their own layouts.

    python gen_layers.py [pytorch.json]

A case is a prefix "<library>.<case>." of the tensors x (and further inputs), y, cotangent, x_grad, weights.<name> and
grads.<name>: the gradients of sum(y * cotangent). Arrays have the layout that our layers take, features last. Weights
and their gradients have the other library's layout. pytorch.json is the output of gen_layers_pytorch.cpp.
"""

import json
import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import equinox as eqx
import flax
import flax.linen as fnn
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

tensors = {}
random = np.random.default_rng(0)


def draw(*shape):
    return jnp.asarray(random.normal(size=shape), jnp.float32)


def shaken(tree):
    """Replaces the zeros and ones of initial values."""
    return jax.tree.map(lambda a: a + 0.1 * draw(*a.shape), tree)


def store(case, weights, f, x, **inputs):
    """Stores a case of f(weights, x) -> y; weights: a dict name -> array."""
    y = f(weights, x)
    cotangent = draw(*y.shape)
    grads, x_grad = jax.grad(lambda w, x: jnp.sum(f(w, x) * cotangent), (0, 1))(weights, x)
    parts = dict(x=x, y=y, cotangent=cotangent, x_grad=x_grad, **inputs)
    parts |= {f"weights.{k}": v for k, v in weights.items()} | {f"grads.{k}": v for k, v in grads.items()}
    tensors.update({f"{case}.{k}": np.ascontiguousarray(v) for k, v in parts.items()})


# ---- Equinox: modules of one example; convolutions have features first


def dotted(path):
    return ".".join(str(getattr(p, "name", getattr(p, "idx", getattr(p, "key", "")))) for p in path)


def equinox(case, module, x, call=None, **inputs):
    arrays, static = eqx.partition(shaken_module(module), eqx.is_inexact_array)
    named = {dotted(p): v for p, v in jax.tree_util.tree_leaves_with_path(arrays)}
    treedef = jax.tree_util.tree_structure(arrays)
    call = call or (lambda m, x: jax.vmap(m)(x))

    def f(weights, x):
        return call(eqx.combine(jax.tree_util.tree_unflatten(treedef, [weights[k] for k in named]), static), x)

    store("equinox." + case, named, f, x, **inputs)


def shaken_module(module):
    arrays, static = eqx.partition(module, eqx.is_inexact_array)
    return eqx.combine(shaken(arrays), static)


def rows(m, x):
    """Applies a module that takes (features) to (..., features)."""
    flat = jax.vmap(m)(x.reshape(-1, x.shape[-1]))
    return flat.reshape(*x.shape[:-1], flat.shape[-1])


def channels_first(m, x):
    return jnp.moveaxis(jax.vmap(m)(jnp.moveaxis(x, -1, 1)), 1, -1)


key = jax.random.key(0)
en = eqx.nn
equinox("linear", en.Linear(5, 7, key=key), draw(2, 3, 5), rows)
equinox("layer_norm", en.LayerNorm(6), draw(2, 3, 6), rows)
equinox("rms_norm", en.RMSNorm(6, use_bias=False), draw(2, 3, 6), rows)
equinox("group_norm", en.GroupNorm(2, 6), draw(2, 3, 4, 6), channels_first)
equinox("prelu", en.PReLU(0.25), draw(2, 6))
equinox("mlp", en.MLP(4, 3, 5, 2, key=key), draw(2, 4))
equinox("conv1d", en.Conv1d(4, 6, 3, stride=2, padding=1, key=key), draw(2, 7, 4), channels_first)
equinox("conv2d", en.Conv2d(4, 6, 3, padding=((1, 0), (2, 1)), groups=2, key=key), draw(2, 6, 5, 4), channels_first)
equinox("conv3d", en.Conv3d(2, 3, 2, dilation=2, key=key), draw(2, 4, 5, 4, 2), channels_first)
equinox("conv_transpose1d", en.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, key=key),
        draw(2, 4, 4), channels_first)
equinox("conv_transpose2d", en.ConvTranspose2d(4, 6, 3, stride=2, groups=2, key=key), draw(2, 3, 4, 4), channels_first)


def attention(m, x):
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    return jax.vmap(lambda x: m(x, x, x, mask=mask))(x)


biases = dict(use_query_bias=True, use_key_bias=True, use_value_bias=True, use_output_bias=True)
equinox("attention", en.MultiheadAttention(2, 6, key=key, **biases), draw(2, 5, 6), attention)
memory = draw(2, 4, 3)
equinox("cross_attention", en.MultiheadAttention(2, 6, key_size=3, value_size=3, key=key), draw(2, 5, 6),
        lambda m, x: jax.vmap(lambda x, c: m(x, c, c))(x, memory), context=memory)
equinox("rotary", en.RotaryPositionalEmbedding(6, theta=100.0), draw(2, 5, 1, 6),
        lambda m, x: jax.vmap(lambda x: m(x[:, 0])[:, None])(x))


def steps(cell_type):
    def f(m, xs):
        def row(xs):
            h = jnp.zeros(m.hidden_size)
            state = (h, h) if cell_type is en.LSTMCell else h

            def step(state, x):
                state = m(x, state)
                return state, state[0] if isinstance(state, tuple) else state

            return jax.lax.scan(step, state, xs)[1]

        return jax.vmap(row)(xs)

    return f


equinox("lstm", en.LSTMCell(3, 4, key=key), draw(2, 5, 3), steps(en.LSTMCell))
equinox("gru", en.GRUCell(3, 4, key=key), draw(2, 5, 3), steps(en.GRUCell))
equinox("weight_norm", en.WeightNorm(en.Linear(5, 7, key=key), "weight", axis=0), draw(2, 5))

# Modules with state: its arrays are stored among the weights, without gradients.
spectral, state = eqx.nn.make_with_state(en.SpectralNorm)(en.Linear(5, 7, key=key), "weight", key=key)
fresh = lambda: jax.tree_util.tree_unflatten(*reversed(jax.tree_util.tree_flatten(state)))
u, v = fresh().get(spectral.uv_index)
equinox("spectral_norm", spectral, draw(2, 5), lambda m, x: jax.vmap(lambda x: m(x, fresh())[0])(x), u=u, v=v)

ids = np.array([[0, 6, 3], [2, 2, 5]], np.int32)
table = shaken_module(en.Embedding(7, 4, key=key)).weight
for name, weights in (("equinox.embedding", dict(weight=table)), ("flax.embedding", dict(embedding=table))):
    tensors |= {f"{name}.x": ids, f"{name}.y": np.asarray(table)[ids]}
    tensors |= {f"{name}.weights.{k}": np.asarray(v) for k, v in weights.items()}

dropped = draw(4, 8)
tensors |= {"equinox.dropout.x": np.asarray(dropped),
            "equinox.dropout.y": np.asarray(en.Dropout(0.25)(dropped, key=jax.random.key(3)))}

# ---- Flax


def flax_case(case, module, x, call=None, **inputs):
    call = call or (lambda module, variables, x: module.apply(variables, x))
    variables = call_init(module, x)
    params = shaken(variables["params"])
    flat = flax.traverse_util.flatten_dict(params, sep=".")

    def f(weights, x):
        nested = flax.traverse_util.unflatten_dict(weights, sep=".")
        return call(module, {**variables, "params": nested}, x)

    store("flax." + case, flat, f, x, **inputs)


def call_init(module, x):
    if isinstance(module, (fnn.OptimizedLSTMCell, fnn.GRUCell)):
        return module.init(key, module.initialize_carry(key, x[:, 0].shape), x[:, 0])
    if isinstance(module, fnn.SpectralNorm):
        return module.init(key, x, update_stats=False)
    return module.init(key, x)


def flax_steps(module, variables, xs):
    carry = module.initialize_carry(key, xs[:, 0].shape)
    outputs = []
    for t in range(xs.shape[1]):
        carry, y = module.apply(variables, carry, xs[:, t])
        outputs.append(y)
    return jnp.stack(outputs, 1)


flax_case("linear", fnn.Dense(7), draw(2, 3, 5))
flax_case("layer_norm", fnn.LayerNorm(), draw(2, 3, 6))
flax_case("rms_norm", fnn.RMSNorm(), draw(2, 3, 6))
flax_case("group_norm", fnn.GroupNorm(num_groups=2), draw(2, 3, 4, 6))
flax_case("conv1d", fnn.Conv(6, (3,), strides=2), draw(2, 7, 4))
flax_case("conv2d", fnn.Conv(6, (3, 2), padding="VALID", feature_group_count=2), draw(2, 6, 5, 4))
flax_case("conv3d", fnn.Conv(3, (2, 2, 2), kernel_dilation=2), draw(2, 4, 5, 4, 2))
flax_case("conv_transpose1d", fnn.ConvTranspose(6, (3,), strides=(2,)), draw(2, 4, 4))
flax_case("conv_transpose2d", fnn.ConvTranspose(6, (2, 3), strides=(3, 2), padding="VALID"), draw(2, 3, 4, 4))
flax_case("conv_transpose3d", fnn.ConvTranspose(3, (2, 2, 2), strides=(2, 1, 3)), draw(2, 2, 3, 2, 2))
flax_case("attention", fnn.MultiHeadDotProductAttention(num_heads=2, qkv_features=8, out_features=6), draw(2, 5, 6),
          lambda module, variables, x: module.apply(variables, x, mask=fnn.make_causal_mask(x[..., 0])))
flax_case("prelu", fnn.PReLU(), draw(2, 6))
flax_case("lstm", fnn.OptimizedLSTMCell(4), draw(2, 5, 3), flax_steps)
flax_case("gru", fnn.GRUCell(4), draw(2, 5, 3), flax_steps)


def batch_norm(train):
    x = draw(3, 4, 5)
    module = fnn.BatchNorm(use_running_average=not train, momentum=0.9)
    variables = module.init(key, x)
    statistics = dict(mean=draw(5), var=jnp.abs(draw(5)) + 0.5)
    after = module.apply({**variables, "batch_stats": statistics}, x, mutable=["batch_stats"])[1]["batch_stats"]
    flat = shaken(variables["params"])

    def f(weights, x):
        return module.apply({"params": weights, "batch_stats": statistics}, x, mutable=["batch_stats"])[0]

    store("flax.batch_norm_" + ("train" if train else "inference"), flat, f, x, **statistics,
          next_mean=after["mean"], next_var=after["var"])


batch_norm(True)
batch_norm(False)

# ---- A mixture of experts, which none of these libraries has: the formula of nn/layers/moe.h, expert by expert


def seats(p, k=2, factor=0.75):
    """The k best experts of each token, and whether each has capacity: first choices first, then earlier tokens
    first."""
    best = np.argsort(-np.asarray(p), axis=-1)[..., :k]
    capacity = int(np.ceil(k * p.shape[1] / p.shape[2] * factor))
    kept = np.zeros(best.shape, bool)
    for b in range(p.shape[0]):
        used = [0] * p.shape[2]
        for choice in range(k):
            for s in range(p.shape[1]):
                used[best[b, s, choice]] += 1
                kept[b, s, choice] = used[best[b, s, choice]] <= capacity
    return best, kept


def moe(weights, x):
    p = jax.nn.softmax(x @ weights["router"])
    best, kept = seats(jax.nn.softmax(moe_x @ moe_weights["router"]))
    gates = jnp.take_along_axis(p, best, -1)
    gates = gates / gates.sum(-1, keepdims=True) * kept
    hidden = jax.nn.gelu(jnp.einsum("bsd,edh->bseh", x, weights["up"]))
    answers = jnp.einsum("bseh,ehd->bsed", hidden, weights["down"])
    return jnp.einsum("bsk,bskd->bsd", gates, jnp.take_along_axis(answers, best[..., None], 2))


moe_weights = dict(router=draw(4, 3), up=draw(3, 4, 5), down=draw(3, 5, 4))
moe_x = draw(2, 6, 4)
p = jax.nn.softmax(moe_x @ moe_weights["router"])
chosen = jax.nn.one_hot(jax.lax.top_k(p, 2)[1], 3).sum(2)
store("jax.moe", moe_weights, moe, moe_x, balance_loss=3 * jnp.sum(chosen.mean((0, 1)) / 2 * p.mean((0, 1))))

# ---- PyTorch: computed by gen_layers_pytorch.cpp

if len(sys.argv) > 1:
    for name, entry in json.loads(Path(sys.argv[1]).read_text()).items():
        tensors["pytorch." + name] = np.array(entry["values"], entry["dtype"]).reshape(entry["shape"])

versions = dict(equinox=eqx.__version__, flax=flax.__version__, jax=jax.__version__, pytorch="2.11.0")
out = Path(__file__).resolve().parent / "layers.safetensors"
save_file(dict(sorted(tensors.items())), out, versions)
print(len(tensors), "tensors,", out.stat().st_size, "bytes")
