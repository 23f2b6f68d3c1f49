"""Flax's guide to several devices: parameters annotated with mesh axes, and a training loop."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax.experimental import mesh_utils


class DotReluDot(nnx.Module):

  def __init__(self, depth: int, rngs: nnx.Rngs):
    init_fn = nnx.initializers.lecun_normal()
    self.dot1 = nnx.Linear(
        depth, depth,
        kernel_init=nnx.with_metadata(init_fn, sharding=(None, 'model')),
        use_bias=False,
        rngs=rngs)
    self.w2 = nnx.Param(
        nnx.with_metadata(init_fn, sharding=('model', None))(rngs.params(), (depth, depth)))

  def __call__(self, x: jax.Array):
    y = self.dot1(x)
    y = jax.nn.relu(y)
    y = jax.lax.with_sharding_constraint(y, P('data', 'model'))
    z = jnp.dot(y, self.w2[...])
    return z


@nnx.jit
def train_step(model, optimizer, x, y):
  def loss_fn(model: DotReluDot):
    y_pred = model(x)
    loss = jnp.mean((y_pred - y) ** 2)
    return loss

  loss, grads = nnx.value_and_grad(loss_fn)(model)
  optimizer.update(model, grads)
  return loss


mesh = Mesh(mesh_utils.create_device_mesh((2, 4)), axis_names=('data', 'model'))
with jax.set_mesh(mesh):
  model = nnx.jit(lambda: DotReluDot(1024, nnx.Rngs(0)))()
  print(model.dot1.kernel[...].sharding.spec)
  jax.debug.visualize_array_sharding(model.dot1.kernel[...])
  print(model.w2[...].sharding.spec)
  jax.debug.visualize_array_sharding(model.w2[...])
  optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
  data_sharding = NamedSharding(mesh, P('data', None))
  input = jax.device_put(jax.random.normal(jax.random.key(1), (8, 1024)), data_sharding)
  label = jax.device_put(jax.random.normal(jax.random.key(2), (8, 1024)), data_sharding)
  for i in range(5):
    loss = train_step(model, optimizer, input, label)
    print(f'loss {loss:.6f}')
