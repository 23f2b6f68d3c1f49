"""Equinox's document about filter_shard: a batch split over two devices, a model replicated on both, trained."""
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.sharding as js
import optax

batch_size = 1024
data = jax.random.uniform(key=jax.random.key(22), shape=(batch_size,))
mesh = jax.make_mesh((2,), axis_names=("batch",), axis_types=(js.AxisType.Auto,))
data_sharded = eqx.filter_shard(data, js.NamedSharding(mesh, js.PartitionSpec("batch")))
jax.debug.visualize_array_sharding(data_sharded)


class Model(eqx.Module):
    embed: jax.Array
    hidden: jax.Array
    out: jax.Array

    def __init__(self, vocab_size, embed_dim, time_embedding_size, key):
        k1, k2, k3 = jax.random.split(key, 3)
        init = jax.nn.initializers.lecun_normal()
        self.embed = jax.random.normal(k1, (vocab_size, embed_dim))
        self.hidden = init(k2, (embed_dim, time_embedding_size))
        self.out = init(k3, (time_embedding_size, vocab_size))

    def __call__(self, token):
        return jnp.tanh(self.embed[token] @ self.hidden) @ self.out


mesh = jax.make_mesh(
    (len(jax.devices()),), axis_names=("batch",), axis_types=(js.AxisType.Auto,)
)
data_sharding = js.NamedSharding(
    mesh,
    js.PartitionSpec(
        "batch",
    ),
)
model_sharding = js.NamedSharding(mesh, js.PartitionSpec())

optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
model = Model(16, 8, 12, key=jax.random.key(0))
opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
model, opt_state = eqx.filter_shard((model, opt_state), model_sharding)


@eqx.filter_jit
def step(model, opt_state, x):
    def loss(model):
        logits = jax.vmap(model)(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, (x + 1) % 16).mean()

    value, grads = eqx.filter_value_and_grad(loss)(model)
    updates, opt_state = optimizer.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt_state, value


x_0_batch = jax.random.randint(jax.random.key(1), (32,), 0, 16)
x_0_batch = eqx.filter_shard(x_0_batch, data_sharding)
for _ in range(5):
    model, opt_state, loss = step(model, opt_state, x_0_batch)
    print(f"loss {loss:.6f}")
print(jax.vmap(model)(x_0_batch).sharding.spec)
