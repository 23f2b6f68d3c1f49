"""The document about scaling up: placements, the eight-core meshes, and one model under DDP, FSDP, TP and both."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = mesh_utils.create_device_mesh((4, 2))
mesh = Mesh(devices, axis_names=("data", "model"))
data_sharding = NamedSharding(mesh, P("data", None))
numpy_batch = np.arange(32 * 128).reshape((32, 128))
sharded_batch = jax.device_put(numpy_batch, data_sharding)
jax.debug.visualize_array_sharding(sharded_batch)


@jax.jit
def step(x):
    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", None)))
    return x * 2


print(step(jax.device_put(numpy_batch, NamedSharding(mesh, P(None, "model")))).sharding.spec)

STRATEGIES = {
    "ddp": (("batch", "data"), ("embed", None), ("hidden", None)),
    "fsdp": (("batch", "data"), ("embed", "data"), ("hidden", None)),
    "tp": (("batch", None), ("embed", None), ("hidden", "model")),
    "fsdp+tp": (("batch", "data"), ("embed", "data"), ("hidden", "model")),
}


class LogicalDotReluDot(nnx.Module):
    def __init__(self, depth: int, rules, rngs: nnx.Rngs):
        def linear(names):
            init = nnx.with_metadata(nnx.initializers.lecun_normal(), sharding=names, sharding_rules=rules)
            return nnx.Linear(depth, depth, kernel_init=init, use_bias=False, rngs=rngs)

        self.dot1 = linear(("embed", "hidden"))
        self.dot2 = linear(("hidden", "embed"))

    def __call__(self, x):
        return self.dot2(jax.nn.relu(self.dot1(x)))


@nnx.jit
def train_step(model, optimizer, batch, labels):
    def loss_fn(model):
        logits = model(batch)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


def train(name, rules, mesh):
    batch_axis = dict(rules)["batch"]
    batch = jax.device_put(jax.random.normal(jax.random.key(1), (32, 128)), NamedSharding(mesh, P(batch_axis, None)))
    labels = jax.device_put(jax.random.randint(jax.random.key(2), (32,), 0, 128), NamedSharding(mesh, P(batch_axis)))
    with jax.set_mesh(mesh):
        model = nnx.jit(lambda: LogicalDotReluDot(128, rules, nnx.Rngs(0)))()
        optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
        held = sum(p[...].addressable_shards[0].data.nbytes for p in (model.dot1.kernel, model.dot2.kernel))
        losses = [f"{train_step(model, optimizer, batch, labels):.6f}" for _ in range(3)]
    print(f"{name} {mesh.shape['data']}x{mesh.shape['model']}: {held} bytes, losses", *losses)


for shape in [(4, 2), (2, 4), (1, 8), (8, 1)]:
    mesh = Mesh(mesh_utils.create_device_mesh(shape), ("data", "model"))
    for name, rules in STRATEGIES.items():
        train(name, rules, mesh)
