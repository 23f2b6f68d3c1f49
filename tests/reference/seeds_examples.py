"""The examples of set A, one function each. See gen_seeds.py."""

import textwrap

from refcommon import *
from jax import lax
from jax.experimental import mesh_utils

SEED = {"eqx": "000_d10738bef2a16e32.txt", "spmd": "001_19a0dec0b9f87199.txt",
        "intro": "002_994a6a8737f78d5c.txt", "scaling": "003_42dae8fa1c0af593.txt"}
EXAMPLES = []
TENSORS = {}


class Rec:
    """Collects the output of an example."""

    def __init__(self, name):
        self.name, self.d = name, {}

    def _put(self, kind, name, v):
        self.d.setdefault(kind, {})[name] = v

    def array(self, name, a, values=False):
        self._put("arrays", name, array_record(a, values))

    def visual(self, name, a):
        self._put("visualize", name, visualize(a))

    def value(self, name, v, tol=None):
        v = to_list(np.asarray(v)) if hasattr(v, "shape") else v
        self._put("values", name, {"value": v, "tolerance": tol} if tol is not None else v)

    def documented(self, name, v):
        """A number as the document prints it."""
        self._put("documented", name, v)

    def hlo(self, name, compiled):
        self._put("collectives", name, collectives(compiled.as_text()))

    def error(self, name, f):
        try:
            f()
        except Exception as e:
            self._put("errors", name, error_record(e))
        else:
            raise AssertionError(f"{self.name}: {name} was expected to fail")

    def tensor(self, name, v):
        """Stores an input; its key in the safetensors file is <example>/<name>."""
        TENSORS[f"{self.name}/{name}"] = np.asarray(v)
        self.d.setdefault("tensors", []).append(f"{self.name}/{name}")


def example(seed, name, section, fixes=(), ndev=8):
    def reg(f):
        EXAMPLES.append(dict(name=f"{seed}.{name}", seed=SEED[seed], section=section,
                             fixes=list(fixes), ndev=ndev, f=f))
        return f
    return reg


def mesh_of(shape, names, ids=None):
    return make_mesh([[n, s] for n, s in zip(names, shape)], "auto", ids)


TORUS = [0, 1, 2, 3, 6, 7, 4, 5]     # create_device_mesh((2, 4)) on the document's TPU v2

# =============================================================== 000: Equinox, two devices

MODEL_FIX = "the document's Model is not shown: a stand-in with an embedding and two linear layers"
LEAF_FIX = "weights are set by formula: leaf i of the parameter tree is det(shape, c=11+7i, d=256)"


@example("eqx", "data_sharded", "Data Parallelization", ndev=2)
def _(r):
    import equinox as eqx
    import jax.sharding as js
    batch_size = 1024
    data = jax.random.uniform(key=jax.random.key(22), shape=(batch_size,))
    mesh = jax.make_mesh((2,), axis_names=("batch",), axis_types=(js.AxisType.Auto,))
    data_sharded = eqx.filter_shard(data, js.NamedSharding(mesh, js.PartitionSpec("batch")))
    r.tensor("data", data)
    r.array("data_sharded", data_sharded)
    r.visual("data_sharded", data_sharded)
    r.value("sum", float(np.asarray(data_sharded).astype(np.float64).sum()))


@example("eqx", "model_replicated", "Data Parallelization (model replication)", ndev=2,
         fixes=[MODEL_FIX, LEAF_FIX, "optimizer: adamw(1e-2) after clip_by_global_norm(1.0), the document elides it"])
def _(r):
    import equinox as eqx
    import optax
    mesh = jax.make_mesh((len(jax.devices()),), axis_names=("batch",), axis_types=(AxisType.Auto,))
    data_sharding = NamedSharding(mesh, P("batch"))
    model_sharding = NamedSharding(mesh, P())

    class Model(eqx.Module):
        embed: eqx.nn.Embedding
        hidden: eqx.nn.Linear
        out: eqx.nn.Linear

        def __init__(self, vocab_size, embed_dim, time_embedding_size, key):
            k = jax.random.split(key, 3)
            self.embed = eqx.nn.Embedding(vocab_size, embed_dim, key=k[0])
            self.hidden = eqx.nn.Linear(embed_dim, time_embedding_size, key=k[1])
            self.out = eqx.nn.Linear(time_embedding_size, vocab_size, key=k[2])

        def __call__(self, token):          # one token in, logits out; batches through vmap
            return self.out(jnp.tanh(self.hidden(self.embed(token))))

    model = Model(16, 8, 12, key=jax.random.key(0))
    leaves, tree = jax.tree.flatten(eqx.filter(model, eqx.is_array))
    model = eqx.combine(jax.tree.unflatten(tree, [jnp.asarray(det(v.shape, c=11 + 7 * i, d=256))
                                                  for i, v in enumerate(leaves)]), model)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    model, opt_state = eqx.filter_shard((model, opt_state), model_sharding)
    x_0_batch = jnp.asarray(det((32,), k=7, c=3, m=16, s=0, d=1, dtype="int32"))
    x_0_batch = eqx.filter_shard(x_0_batch, data_sharding)
    r.array("x_0_batch", x_0_batch, values=True)
    for path, v in jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_array)):
        r.array("model" + jax.tree_util.keystr(path), v)
    n = [v for v in jax.tree.leaves(opt_state) if eqx.is_array(v)]
    r.value("opt_state_arrays", len(n))
    r.value("opt_state_all_replicated", bool(all(v.sharding.is_fully_replicated for v in n)))
    r.value("opt_state_bytes_per_device", int(sum(v.nbytes for v in n)))
    out = eqx.filter_jit(lambda m, x: jax.vmap(m)(x))(model, x_0_batch)
    r.array("output", out)
    r.value("output", out, 1e-6)

    @eqx.filter_jit
    def step(model, opt_state, x):
        def loss(m):                         # the label of a token is its successor
            lg = jax.vmap(m)(x)
            return optax.softmax_cross_entropy_with_integer_labels(lg, (x + 1) % 16).mean()
        v, g = eqx.filter_value_and_grad(loss)(model)
        up, opt_state = optimizer.update(g, opt_state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, up), opt_state, v
    losses = []
    for _ in range(5):
        model, opt_state, v = step(model, opt_state, x_0_batch)
        losses.append(fnum(v))
    r.value("losses", losses, 1e-5)
    r.value("weights_replicated_after_training",
            bool(all(v.sharding.is_fully_replicated for v in jax.tree.leaves(eqx.filter(model, eqx.is_array)))))


# ====================================================================== 001: SPMD with NNX

@example("spmd", "mesh_shapes", "Core Concepts 1. Device Mesh; Step 1")
def _(r):
    for shape, names in [((4, 2), ("data", "model")), ((8,), ("data",)), ((8,), ("fsdp",)),
                         ((2, 2, 2), ("data", "model", "pipeline"))]:
        devices = mesh_utils.create_device_mesh(shape)
        mesh = Mesh(devices, axis_names=names)
        r.value("x".join(map(str, shape)) + " " + ",".join(names),
                {**mesh_json(mesh), "shape": list(mesh.devices.shape), "size": mesh.size,
                 "device_grid": np.vectorize(lambda d: d.id)(mesh.devices).tolist()})


@example("spmd", "partition_specs", "Core Concepts 2. PartitionSpec",
         fixes=["the document's mesh '(8, 1) with axis data' needs a name for its second axis: model"])
def _(r):
    x = jnp.asarray(det((128, 512)))
    m81 = Mesh(mesh_utils.create_device_mesh((8, 1)), ("data", "model"))
    m42 = Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model"))
    for name, mesh, spec, doc in [("(8,1) P('data', None)", m81, P("data", None), [16, 512]),
                                  ("(8,1) P(None, 'data')", m81, P(None, "data"), [128, 64]),
                                  ("(4,2) P('data', 'model')", m42, P("data", "model"), [32, 256]),
                                  ("(4,2) P('data')", m42, P("data"), None),
                                  ("(4,2) P(None, 'model')", m42, P(None, "model"), None),
                                  ("(4,2) P()", m42, P(), None)]:
        r.array(name, jax.device_put(x, NamedSharding(mesh, spec)))
        if doc:
            r.documented(name, {"each device gets": doc})


@example("spmd", "sharding_specs", "Step 2: Define Sharding Strategies; Inspecting Sharding")
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("data", "model"))
    shardings = {"data_parallel": NamedSharding(mesh, P("data", None)),
                 "model_parallel": NamedSharding(mesh, P(None, "model")),
                 "hybrid": NamedSharding(mesh, P("data", "model")),
                 "replicated": NamedSharding(mesh, P())}
    for name, s in shardings.items():
        x = jax.device_put(jnp.asarray(det((32, 64))), s)
        r.array(name, x)
        r.visual(name, x)


def my_transformer(d_model, num_layers, rngs, vocab=1000, classes=10):
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self, d, rngs):
            self.norm = nnx.LayerNorm(d, rngs=rngs)
            self.query, self.key, self.value, self.out = [nnx.Linear(d, d, rngs=rngs) for _ in range(4)]
            self.up, self.down = nnx.Linear(d, 4 * d, rngs=rngs), nnx.Linear(4 * d, d, rngs=rngs)

    class MyTransformer(nnx.Module):
        def __init__(self):
            self.embed = nnx.Embed(vocab, d_model, rngs=rngs)
            self.layers = nnx.List([Layer(d_model, rngs) for _ in range(num_layers)])
            self.head = nnx.Linear(d_model, classes, rngs=rngs)
    return MyTransformer()


@example("spmd", "shard_params", "Step 3: Shard Model Parameters",
         fixes=["MyTransformer is not shown: a stand-in with the same call", "`with mesh:` dropped (not needed for device_put)",
                "the parameters are traversed as a pure dict of arrays"])
def _(r):
    from flax import nnx
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("data", "model"))
    shardings = {"model_parallel": NamedSharding(mesh, P(None, "model")), "replicated": NamedSharding(mesh, P())}
    model = my_transformer(d_model=512, num_layers=6, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)

    def shard_array(path, array):
        path_str = "/".join(str(p) for p in path)
        if "kernel" in path_str and array.shape[0] > 256:
            return jax.device_put(array, shardings["model_parallel"])
        return jax.device_put(array, shardings["replicated"])
    placed = jax.tree_util.tree_map_with_path(shard_array, nnx.to_pure_dict(params))
    total = {"parameters": 0, "bytes": 0, "bytes_per_device": 0}
    for path, a in jax.tree_util.tree_leaves_with_path(placed):
        key = ".".join(str(getattr(p, "key", p)) for p in path)
        rec = array_record(a, device_map=False)
        total["parameters"] += a.size
        total["bytes"] += a.nbytes
        total["bytes_per_device"] += rec["bytes_per_device"]
        if not key.startswith("layers.") or key.startswith("layers.0."):
            r._put("arrays", key, {k: rec[k] for k in ("shape", "spec", "local_shape", "is_fully_replicated", "bytes_per_device")})
    r.value("total of six layers", total)


def text_classifier():
    """The substitute for the model of the train step examples: embedding, mean over the text, two linear layers."""
    from flax import nnx

    class TextClassifier(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(64, 32, rngs=rngs)
            self.up = nnx.Linear(32, 64, rngs=rngs)
            self.head = nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, ids):
            return self.head(jax.nn.gelu(self.up(self.embed(ids).mean(axis=1))))
    m = TextClassifier(nnx.Rngs(0))
    for i, p in enumerate([m.embed.embedding, m.up.kernel, m.up.bias, m.head.kernel, m.head.bias]):
        p[...] = jnp.asarray(det(p.shape, c=11 + 7 * i, d=256))
    return m


CLASSIFIER_FIX = [
    "model: TextClassifier(embed 64x32, mean over the sequence, linear 32-64, tanh-GELU, linear 64-10); parameter i of "
    "[embed, up.kernel, up.bias, head.kernel, head.bias] is det(shape, c=11+7i, d=256)",
    "nnx.Optimizer(model, tx, wrt=nnx.Param); optimizer.update(model, grads); nnx.jit instead of jax.jit with a mutable argument",
    "labels are rank 1: their sharding is P('data'), the document's P('data', None) is rejected",
]


def classifier_batch(t):
    return {"input_ids": det((16, 8), k=7, c=3 + 5 * t, m=64, s=0, d=1, dtype="int32"),
            "label": det((16,), k=3, c=1 + t, m=10, s=0, d=1, dtype="int32")}


def train_classifier(r, mesh, kernel_spec, batch_axis, steps, constrain_logits=False):
    import optax
    from flax import nnx
    model = text_classifier()
    rep = NamedSharding(mesh, P())
    for p, big in [(model.embed.embedding, False), (model.up.kernel, True), (model.up.bias, False),
                   (model.head.kernel, True), (model.head.bias, False)]:
        p[...] = jax.device_put(p[...], NamedSharding(mesh, kernel_spec) if big else rep)
    optimizer = nnx.Optimizer(model, optax.adam(learning_rate=1e-2), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, batch):
        def loss_fn(model):
            logits = model(batch["input_ids"])
            if constrain_logits:
                logits = lax.with_sharding_constraint(logits, rep)
            onehot = jax.nn.one_hot(batch["label"], num_classes=10)
            loss = optax.softmax_cross_entropy(logits, onehot).mean()
            return loss, {"accuracy": jnp.mean(jnp.argmax(logits, axis=-1) == batch["label"])}
        (loss, metrics), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
        optimizer.update(model, grads)
        return loss, metrics
    losses, acc = [], []
    for t in range(steps):
        b = {k: jax.device_put(v, NamedSharding(mesh, P(batch_axis, None) if v.ndim == 2 else P(batch_axis)))
             for k, v in classifier_batch(t % 4).items()}
        loss, metrics = train_step(model, optimizer, b)
        losses.append(fnum(loss))
        acc.append(fnum(metrics["accuracy"]))
    r.value("losses", losses, 1e-5)
    r.value("accuracies", acc)
    r.array("up.kernel after training", model.up.kernel[...])
    r.array("head.kernel after training", model.head.kernel[...])
    r.value("up.kernel checksum", checksum(model.up.kernel[...]), 1e-4)


@example("spmd", "train_step", "Step 4 and 5: sharded training step and loop", fixes=CLASSIFIER_FIX)
def _(r):
    train_classifier(r, Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model")), P(None, "model"), "data", 10)
    r.value("batches", "input_ids = det((16,8), k=7, c=3+5t, m=64, s=0, d=1), label = det((16,), k=3, c=1+t, m=10, s=0, d=1), "
                       "t = step mod 4; adam(1e-2)")


@example("spmd", "data_parallel_label_error", "Step 5: Training Loop, as written")
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model"))
    s = NamedSharding(mesh, P("data", None))
    r.error("device_put of rank-1 labels with P('data', None)", lambda: jax.device_put(np.zeros(16, np.int32), s))
    r.array("rank-2 ids", jax.device_put(np.zeros((16, 8), np.int32), s))


@example("spmd", "tensor_parallel", "Strategy 2: Tensor Parallelism")
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((8,)), axis_names=("model",))
    q = jax.device_put(jnp.zeros((512, 512)), NamedSharding(mesh, P(None, "model")))
    r.array("query projection", q)
    r.documented("query projection", {"each device has": [512, 64]})
    r.array("bias", jax.device_put(jnp.zeros(512), NamedSharding(mesh, P())))


@example("spmd", "two_d_matmul", "Strategy 3: 2D Parallelism, communication pattern",
         fixes=["sizes: batch 16, d_model 32, d_ff 64",
                "the document says the compiler inserts an all-reduce along 'model'; XLA all-gathers x along it"])
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model"))
    x = jax.device_put(det((16, 32)), NamedSharding(mesh, P("data", "model")))
    w = jax.device_put(det((32, 64), k=29, c=3), NamedSharding(mesh, P(None, "model")))
    f = jax.jit(lambda x, w: x @ w)
    y = f(x, w)
    r.array("output", y)
    r.hlo("matmul", f.lower(x, w).compile())
    r.value("checksum", checksum(y), 1e-5)


@example("spmd", "fsdp_memory", "Strategy 4: FSDP-Style Sharding, memory savings")
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((8,)), axis_names=("fsdp",))
    shape, item = (10000, 10000), 4                    # 100M float32 parameters, 400 MB; not allocated
    full = math.prod(shape) * item
    part = math.prod(NamedSharding(mesh, P("fsdp")).shard_shape(shape)) * item
    r.value("replicated", {"per_device": full, "all_devices": 8 * full})
    r.value("fsdp", {"per_device": part, "all_devices": 8 * part})
    r.documented("memory", {"without": "400MB model x 8 devices = 3.2GB total", "with": "50MB per device, 400MB total"})


@example("spmd", "reshard_in_jit", "Advanced Topics: Resharding Arrays",
         fixes=["device_put inside jit no longer reshards on jax 0.10 (the sharding is dropped when the program is lowered, and "
                "the result keeps P('data')); with_sharding_constraint inside, or device_put outside, do what the document says"])
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model"))
    x_data = jax.device_put(det((16, 8)), NamedSharding(mesh, P("data")))

    @jax.jit
    def process(x):
        y = jax.device_put(x, NamedSharding(mesh, P("model")))
        return y * 2

    @jax.jit
    def process_constraint(x):
        y = lax.with_sharding_constraint(x, NamedSharding(mesh, P("model")))
        return y * 2
    r.array("device_put inside jit", process(x_data))
    r.array("with_sharding_constraint inside jit", process_constraint(x_data))
    r.hlo("with_sharding_constraint inside jit", process_constraint.lower(x_data).compile())
    r.array("device_put outside jit", jax.device_put(x_data, NamedSharding(mesh, P("model"))))


@example("spmd", "constraint_propagation", "Advanced Topics: Constraint Propagation")
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model"))
    x = jax.device_put(det((16, 32)), NamedSharding(mesh, P("data", None)))
    w = jax.device_put(det((32, 64), k=29, c=3), NamedSharding(mesh, P(None, "model")))
    f = jax.jit(lambda x, w: jnp.dot(x, w))
    y = f(x, w)
    r.array("output", y)
    r.visual("output", y)
    r.hlo("dot", f.lower(x, w).compile())
    r.value("checksum", checksum(y), 1e-5)


# ===================================================== 002: Introduction to sharded computation

@example("intro", "single_device", "Key concept: Data sharding")
def _(r):
    arr = jnp.arange(32.0).reshape(4, 8)
    r.array("arr", arr)
    r.visual("arr", arr)


def xy_mesh(ids=None):
    return mesh_of((2, 4), ("x", "y"), ids)


@example("intro", "device_put_xy", "Key concept: Data sharding (NamedSharding)")
def _(r):
    devices = mesh_utils.create_device_mesh((2, 4))
    mesh = Mesh(devices, ("x", "y"))
    arr_sharded = jax.device_put(jnp.arange(32.0).reshape(4, 8), NamedSharding(mesh, P("x", "y")))
    r.array("arr_sharded", arr_sharded, values=True)
    r.visual("arr_sharded", arr_sharded)


@example("intro", "f_elementwise", "1. Automatic parallelism via jit")
def _(r):
    arr_sharded = jax.device_put(jnp.arange(32.0).reshape(4, 8), NamedSharding(xy_mesh(), P("x", "y")))
    f_elementwise = jax.jit(lambda x: 2 * jnp.sin(x) + 1)
    result = f_elementwise(arr_sharded)
    r.value("shardings match", bool(result.sharding == arr_sharded.sharding))
    r.array("result", result)
    r.value("result", result, 1e-6)
    r.hlo("f_elementwise", f_elementwise.lower(arr_sharded).compile())


@example("intro", "f_contract", "1. Automatic parallelism via jit: sum over the leading axis")
def _(r):
    arr_sharded = jax.device_put(jnp.arange(32.0).reshape(4, 8), NamedSharding(xy_mesh(), P("x", "y")))
    f_contract = jax.jit(lambda x: x.sum(axis=0))
    result = f_contract(arr_sharded)
    r.array("result", result, values=True)
    r.visual("result", result)
    r.hlo("f_contract", f_contract.lower(arr_sharded).compile())
    r.documented("result", [48, 52, 56, 60, 64, 68, 72, 76])


@example("intro", "f_contract_2", "2. Semi-automated sharding with constraints")
def _(r):
    arr_sharded = jax.device_put(jnp.arange(32.0).reshape(4, 8), NamedSharding(xy_mesh(), P("x", "y")))

    @jax.jit
    def f_contract_2(x):
        out = x.sum(axis=0)
        mesh = Mesh(mesh_utils.create_device_mesh((8,)), "x")
        return lax.with_sharding_constraint(out, NamedSharding(mesh, P("x")))
    result = f_contract_2(arr_sharded)
    r.array("result", result, values=True)
    r.visual("result", result)
    r.hlo("f_contract_2", f_contract_2.lower(arr_sharded).compile())


SHARD_MAP_FIX = ["jax.shard_map instead of jax.experimental.shard_map.shard_map", "in_specs/out_specs written out"]


@example("intro", "shard_map_elementwise", "3. Manual parallelism with shard_map", fixes=SHARD_MAP_FIX)
def _(r):
    mesh = Mesh(jax.devices(), "x")
    f = jax.shard_map(lambda x: 2 * jnp.sin(x) + 1, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    y = f(jnp.arange(32))
    r.array("result", y)
    r.value("result", y, 1e-6)
    r.documented("result", [1.0, 2.682942, 2.818595, 1.28224, -0.513605, -0.9178486, 0.44116896, 2.3139732])


@example("intro", "shard_map_local", "3. Manual parallelism with shard_map: local shape, sums, psum", fixes=SHARD_MAP_FIX)
def _(r):
    mesh = Mesh(jax.devices(), "x")
    x = jnp.arange(32)
    seen = {}

    def f(x):
        seen["device local shape"] = list(x.shape)
        return x * 2
    y = jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)
    r.value("global shape", list(x.shape))
    r.value("device local shape", seen["device local shape"])
    r.array("times two", y, values=True)
    y = jax.shard_map(lambda x: jnp.sum(x, keepdims=True), mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)
    r.array("sum per shard", y, values=True)
    r.documented("sum per shard", [6, 22, 38, 54, 70, 86, 102, 118])
    y = jax.shard_map(lambda x: lax.psum(x.sum(), "x"), mesh=mesh, in_specs=P("x"), out_specs=P())(x)
    r.array("psum", y, values=True)
    r.documented("psum", 496)


def layer(x, weights, bias):
    return jax.nn.sigmoid(x @ weights + bias)


def layer_inputs():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32,))
    weights = rng.normal(size=(32, 4))
    bias = rng.normal(size=(4,))
    return x.astype(np.float32), weights.astype(np.float32), bias.astype(np.float32)


@example("intro", "layer", "Comparing the three approaches",
         fixes=SHARD_MAP_FIX + ["the inputs are float64 in NumPy and become float32 in JAX; stored as float32"])
def _(r):
    x, weights, bias = layer_inputs()
    for n, v in (("x", x), ("weights", weights), ("bias", bias)):
        r.tensor(n, v)
    r.value("layer", layer(x, weights, bias), 1e-6)
    mesh = Mesh(jax.devices(), "x")
    sharding = NamedSharding(mesh, P("x"))
    x_sharded, weights_sharded = jax.device_put(x, sharding), jax.device_put(weights, sharding)
    r.array("x_sharded", x_sharded)
    r.array("weights_sharded", weights_sharded)
    f = jax.jit(layer)
    y = f(x_sharded, weights_sharded, bias)
    r.array("layer of sharded inputs", y)
    r.value("layer of sharded inputs", y, 1e-6)
    r.hlo("layer of sharded inputs", f.lower(x_sharded, weights_sharded, bias).compile())

    @jax.jit
    def layer_auto(x, weights, bias):
        x = lax.with_sharding_constraint(x, sharding)
        weights = lax.with_sharding_constraint(weights, sharding)
        return layer(x, weights, bias)
    y = layer_auto(x, weights, bias)
    r.array("layer_auto", y)
    r.value("layer_auto", y, 1e-6)
    r.hlo("layer_auto", layer_auto.lower(x, weights, bias).compile())
    layer_sharded = jax.jit(jax.shard_map(
        lambda x, weights, bias: jax.nn.sigmoid(lax.psum(x @ weights, "x") + bias),
        mesh=mesh, in_specs=(P("x"), P("x", None), P(None)), out_specs=P(None)))
    y = layer_sharded(x, weights, bias)
    r.array("layer_sharded", y)
    r.value("layer_sharded", y, 1e-6)
    r.hlo("layer_sharded", layer_sharded.lower(x, weights, bias).compile())
    r.documented("layer", [0.02138912, 0.893112, 0.59892005, 0.97742504])
    r.documented("layer_sharded", [0.02138914, 0.89311206, 0.5989201, 0.97742516])


# ====================================================================== 003: Scaling Up

@example("scaling", "mesh_and_specs", "JAX Sharding Primitives: Mesh, PartitionSpec")
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("data", "model"))
    r.value("mesh", mesh_json(mesh))
    for name, spec in [("spec1", P("data", "model")), ("spec2", P("data", None)), ("spec3", P(None, "model"))]:
        x = jax.device_put(det((64, 16)), NamedSharding(mesh, spec))
        r.array(name, x)
        r.visual(name, x)


@example("scaling", "device_put_batch", "NamedSharding and device_put")
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("data", "model"))
    numpy_batch = np.arange(32 * 128).reshape((32, 128)).astype(np.int32)
    sharded_batch = jax.device_put(numpy_batch, NamedSharding(mesh, P("data", None)))
    r.array("sharded_batch", sharded_batch)
    r.visual("sharded_batch", sharded_batch)
    r.value("first element of each shard", [[s.device.id, int(s.data[0, 0])] for s in sharded_batch.addressable_shards])


@example("scaling", "constraint_step", "jit and Sharding Constraints",
         fixes=["a bare PartitionSpec in with_sharding_constraint needs a mesh context: jax.set_mesh(mesh)"])
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("data", "model"))

    @jax.jit
    def step(x):
        x = lax.with_sharding_constraint(x, P("data", None))
        return x * 2
    r.error("without a mesh context", lambda: step(jnp.asarray(det((16, 8)))))
    with jax.set_mesh(mesh):
        y = step(jnp.asarray(det((16, 8))))
        r.array("from an unsharded array", y)
        z = step(jax.device_put(det((16, 8)), NamedSharding(mesh, P(None, "model"))))
        r.array("from P(None, 'model')", z)
    r.value("checksum", checksum(y))


@example("scaling", "nnx_metadata", "Annotating Sharding in Flax NNX",
         fixes=["flax 0.12 places annotated parameters when they are created and needs jax.set_mesh(mesh) for it",
                "the metadata key is out_sharding now; sharding= is still accepted"])
def _(r):
    from flax import nnx
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("data", "model"))
    init_fn = nnx.initializers.lecun_normal()

    class Dot(nnx.Module):
        def __init__(self, shape, rngs, sharding):
            self.kernel = nnx.Param(nnx.with_metadata(init_fn, sharding=sharding)(rngs.params(), shape))
    r.error("without a mesh context", lambda: Dot((16, 32), nnx.Rngs(0), (None, "model")))
    with jax.set_mesh(mesh):
        for sharding in [(None, "model"), ("data", "model"), ("model", None), ("data",)]:
            m = Dot((16, 32), nnx.Rngs(0), sharding)
            r.array(f"kernel {sharding}", m.kernel[...])
            r.value(f"metadata {sharding}", {"out_sharding": list(m.kernel.get_metadata()["out_sharding"]),
                                             "partition_spec": spec_json(nnx.get_partition_spec(nnx.state(m))["kernel"].get_value())})
        r.error("uneven", lambda: Dot((16, 5), nnx.Rngs(0), (None, "model")))
        r.error("unknown axis", lambda: Dot((16, 8), nnx.Rngs(0), (None, "tensor")))


def logical_model(rules, depth=8):
    from flax import nnx
    init_fn = nnx.initializers.lecun_normal()

    class LogicalDotReluDot(nnx.Module):
        def __init__(self, depth, rngs):
            def linear(sharding):
                return nnx.Linear(depth, depth, use_bias=False, rngs=rngs, kernel_init=nnx.with_metadata(
                    init_fn, sharding=sharding, sharding_rules=rules))
            self.dot1 = linear(("embed", "hidden"))
            self.dot2 = linear(("hidden", "embed"))

        def __call__(self, x):
            return self.dot2(jax.nn.relu(self.dot1(x)))
    m = LogicalDotReluDot(depth, nnx.Rngs(0))
    for i, p in enumerate([m.dot1.kernel, m.dot2.kernel]):
        p[...] = jax.device_put(jnp.asarray(det(p.shape, c=11 + 7 * i, d=128)), p[...].sharding)
    return m


LOGICAL_FIX = ["the second layer, which the document does not show, is annotated (hidden, embed)",
               "kernel i is det(shape, c=11+7i, d=128)", "jax.set_mesh(mesh)"]


def train_logical(r, mesh, rules, batch_spec, steps=6, depth=8):
    import optax
    from flax import nnx
    with jax.set_mesh(mesh):
        model = logical_model(rules, depth)
        for n in ("dot1", "dot2"):
            k = getattr(model, n).kernel
            r.array(n, k[...])
            r.value(f"{n} logical axes", list(k.get_metadata()["out_sharding"]))
        optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
        for path, v in jax.tree_util.tree_leaves_with_path(nnx.to_pure_dict(nnx.state(optimizer, nnx.OptState))):
            key = ".".join(str(getattr(p, "key", p)) for p in path)
            r._put("optimizer_state", key, {"shape": list(v.shape), "spec": spec_json(v.sharding.spec)
                                            if isinstance(v.sharding, NamedSharding) else None})

        @nnx.jit
        def train_step(model, optimizer, batch, labels):
            def loss_fn(model):
                return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(model(batch), labels))
            loss, grads = nnx.value_and_grad(loss_fn)(model)
            optimizer.update(model, grads)
            return loss
        losses = []
        for t in range(steps):
            b = jax.device_put(det((16, depth), c=11 + 3 * t), NamedSharding(mesh, P(batch_spec, None)))
            l = jax.device_put(det((16,), k=3, c=1 + t, m=depth, s=0, d=1, dtype="int32"), NamedSharding(mesh, P(batch_spec)))
            losses.append(fnum(train_step(model, optimizer, b, l)))
        r.value("losses", losses, 1e-5)
        r.array("dot1 after training", model.dot1.kernel[...])
        r.value("dot1 checksum", checksum(model.dot1.kernel[...]), 1e-4)
        r.value("inputs", "step t: batch = det((16, depth), c=11+3t) with P(batch axis, None), labels = det((16,), k=3, c=1+t, "
                          "m=depth, s=0, d=1); adam(1e-2); mean softmax cross-entropy")


@example("scaling", "logical_axes_training", "Logical Axis Names; Distributed Training Loop", fixes=LOGICAL_FIX + CLASSIFIER_FIX[1:2])
def _(r):
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model"))
    train_logical(r, mesh, (("batch", "data"), ("hidden", "model"), ("embed", None)), "data")
    with jax.set_mesh(mesh):
        r.error("a logical name without a rule", lambda: logical_model((("hidden", "model"),)))
        m = logical_model((("hidden", "model"), ("embed", None), ("hidden", "data")))
        r.array("hidden has two rules, model then data: the last one wins", m.dot1.kernel[...])


@example("scaling", "eight_core_meshes", "Choosing an Eight-Core Mesh")
def _(r):
    for shape in [(4, 2), (2, 4), (1, 8), (8, 1)]:
        mesh = Mesh(mesh_utils.create_device_mesh(shape), ("batch", "model"))
        x = jax.device_put(det((32, 64)), NamedSharding(mesh, P("batch", None)))
        w = jax.device_put(det((64, 128), k=29, c=3), NamedSharding(mesh, P(None, "model")))
        f = jax.jit(lambda x, w: x @ w)
        y = f(x, w)
        for n, a in (("batch", x), ("weight", w), ("product", y)):
            rec = array_record(a, device_map=False)
            r._put("arrays", f"{shape} {n}", rec)
        r.hlo(f"{shape} product", f.lower(x, w).compile())
    r.value("checksum of the product", checksum(y), 1e-5)


def grain_indices(n, count, drop):
    import grain.python as pygrain
    out = []
    for i in range(count):
        s = pygrain.IndexSampler(num_records=n, shuffle=False, num_epochs=1, seed=0,
                                 shard_options=pygrain.ShardOptions(shard_index=i, shard_count=count, drop_remainder=drop))
        keys = []
        k = i
        while True:
            try:
                keys.append(int(s[k].record_key))
            except IndexError:
                break
            k += count
        out.append(keys)
    return out


@example("scaling", "grain_shards", "Data Loading with Grain",
         fixes=["one process here: ShardOptions(shard_index, shard_count) as ShardByJaxProcess builds them per process"])
def _(r):
    for n, count, drop in [(16, 4, False), (16, 4, True), (10, 4, False), (10, 4, True), (8, 1, False)]:
        r.value(f"{n} records, {count} shards, drop_remainder={drop}", grain_indices(n, count, drop))
