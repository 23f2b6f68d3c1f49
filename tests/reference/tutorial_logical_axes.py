"""The document about scaling up: logical axis names, their rules, and the distributed training loop."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

sharding_rules = (
    ("batch", "data"),
    ("hidden", "model"),
    ("embed", None),
)


class LogicalDotReluDot(nnx.Module):
    def __init__(self, depth: int, rngs: nnx.Rngs):
        init_fn = nnx.initializers.lecun_normal()
        self.dot1 = nnx.Linear(
            depth,
            depth,
            kernel_init=nnx.with_metadata(
                init_fn,
                sharding=("embed", "hidden"),
                sharding_rules=sharding_rules,
            ),
            use_bias=False,
            rngs=rngs,
        )
        self.dot2 = nnx.Linear(
            depth,
            depth,
            kernel_init=nnx.with_metadata(
                init_fn,
                sharding=("hidden", "embed"),
                sharding_rules=sharding_rules,
            ),
            use_bias=False,
            rngs=rngs,
        )

    def __call__(self, x):
        return self.dot2(jax.nn.relu(self.dot1(x)))


devices = mesh_utils.create_device_mesh((4, 2))
mesh = Mesh(devices, axis_names=("data", "model"))
input_sharding = NamedSharding(mesh, P("data", None))
label_sharding = NamedSharding(mesh, P("data"))


def get_next_batch(step):
    batch_key, label_key = jax.random.split(jax.random.key(step))
    return jax.random.normal(batch_key, (32, 128)), jax.random.randint(label_key, (32,), 0, 128)


@nnx.jit
def train_step(model, optimizer, batch, labels):
    def loss_fn(model):
        logits = model(batch)
        return jnp.mean(
            optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        )
    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


with jax.set_mesh(mesh):
    model = nnx.jit(lambda: LogicalDotReluDot(128, nnx.Rngs(0)))()
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    print(model.dot1.kernel[...].sharding.spec)
    print(model.dot2.kernel[...].sharding.spec)
    for step in range(5):
        numpy_batch, numpy_labels = get_next_batch(step)
        sharded_batch = jax.device_put(numpy_batch, input_sharding)
        sharded_labels = jax.device_put(numpy_labels, label_sharding)
        loss = train_step(model, optimizer, sharded_batch, sharded_labels)
        print(f"loss {loss:.6f}")
