"""The training step of train_step.cpp in jitted JAX, on the same meshes of virtual CPU devices, as JSON lines.

  train_step_jax.py [--size tiny|mid|all] [--strategy NAME|all] [--threads 1|all|both] [--steps N]

The same model (tests/reference/transformer_models.py), sizes, rules, clip and AdamW, with donated parameters and state;
the loss is read in each step; batches are placed before the clock starts. Each measurement has its own process, since
the number of devices is fixed per process; with "threads": 1 it uses one core. first_call_s: seconds of the first step,
which includes compilation. Requires jax and optax.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

SIZES = {
    "tiny": (dict(kind="gpt", vocab=256, d=64, heads=8, layers=2, seq=32, batch=16, mlp=256, eps=1e-5), 300),
    "mid": (dict(kind="gpt", vocab=256, d=256, heads=8, layers=4, seq=128, batch=16, mlp=1024, eps=1e-5), 15),
}

# name -> (mesh axes, logical axis -> mesh axis). A logical axis without a rule is not sharded.
STRATEGIES = {
    "one": ({"data": 1}, {}),
    "dp8": ({"data": 8}, {"batch": "data"}),
    "fsdp8": ({"data": 8}, {"batch": "data", "embed": "data"}),
    "tp8": ({"model": 8}, {"heads": "model", "mlp": "model", "vocab": "model"}),
    "2x4": ({"data": 2, "model": 4}, {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}),
    "zero1": ({"data": 8}, {"batch": "data"}),
}
# strategy -> the mesh axis over which the optimizer's state is sharded, along the first dim that it divides.
STATE_AXIS = {"zero1": "data"}

BATCHES, WARM_STEPS = 8, 5


def measure(size, strategy, cores, steps):
    """Runs one measurement. The cores, flags and path of this process are already set."""
    import jax
    import numpy as np
    import optax
    from jax.sharding import NamedSharding, PartitionSpec

    import transformer_models as models

    c, _ = SIZES[size]
    axes, rules = STRATEGIES[strategy]
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(jax.sharding.AxisType.Auto,) * len(axes))
    place = lambda names: NamedSharding(mesh, PartitionSpec(*(rules.get(name) for name in names)))
    table, stream = models.parameter_table(c), place(("batch", None, None))

    params = {k: jax.device_put(v, place(table[k][1])) for k, v in models.init_params(c).items()}
    decayed = lambda tree: jax.tree.map(lambda p: p.ndim > 1, tree)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, b2=0.95, weight_decay=0.1, mask=decayed))

    def place_state(path, v):
        if v.ndim == 0:
            return place(())
        axis = STATE_AXIS.get(strategy)
        cut = next((i for i, n in enumerate(v.shape) if axis and n % axes[axis] == 0), None)
        if cut is None:
            return params[path[-1].key].sharding
        return NamedSharding(mesh, PartitionSpec(*[None] * cut, axis))

    state = jax.tree_util.tree_map_with_path(lambda path, v: jax.device_put(v, place_state(path, v)), tx.init(params))
    tokens = np.random.default_rng(0).integers(0, c["vocab"], (BATCHES, c["batch"], c["seq"] + 1), np.int32)
    batches = [jax.device_put(t, place(("batch", None))) for t in tokens]

    def step(params, state, tokens):
        constrain = lambda x: jax.lax.with_sharding_constraint(x, stream)
        loss, grads = jax.value_and_grad(lambda p: models.loss_fn(c, p, tokens, constrain))(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    placement = lambda tree: jax.tree.map(lambda v: v.sharding, tree)
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(placement(params), placement(state), place(())))
    seconds = []
    for i in range(WARM_STEPS + steps):
        start = time.perf_counter()
        params, state, loss = jitted(params, state, batches[i % BATCHES])
        assert math.isfinite(float(loss))
        jax.block_until_ready(params)
        seconds.append(time.perf_counter() - start)
    low, median, high = (float(q) * 1e3 for q in np.percentile(seconds[WARM_STEPS:], (25, 50, 75)))
    round4 = lambda value: float(f"{value:.4g}")
    print(json.dumps({"peer": "jax", "size": size, "strategy": strategy, "threads": cores, "jax_ms": round4(median),
                      "jax_quartiles": [round4(low), round4(high)], "first_call_s": round4(seconds[0]),
                      "steps": steps}), flush=True)


def start(size, strategy, cores, steps):
    """Runs this file in another process, for one measurement."""
    devices = math.prod(STRATEGIES[strategy][0].values())
    environment = os.environ | {"JAX_PLATFORMS": "cpu",
                                "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    os.sched_setaffinity(0, sorted(ALL_CORES)[:cores])
    command = [sys.executable, __file__, "--measure", size, strategy, str(cores), str(steps)]
    subprocess.run(command, env=environment, check=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=[*SIZES, "all"], default="all")
    parser.add_argument("--strategy", choices=[*STRATEGIES, "all"], default="all")
    parser.add_argument("--threads", choices=["1", "all", "both"], default="both")
    parser.add_argument("--steps", type=int, help="of each measurement")
    given = parser.parse_args()
    if given.steps is not None and given.steps < 1:
        parser.error(f"argument --steps: {given.steps} given, expected 1 or more")
    return given


def main(given):
    chosen = lambda name, every: list(every) if name == "all" else [name]
    for cores in {"1": [1], "all": [len(ALL_CORES)], "both": [1, len(ALL_CORES)]}[given.threads]:
        for size in chosen(given.size, SIZES):
            for strategy in chosen(given.strategy, STRATEGIES):
                start(size, strategy, cores, given.steps or SIZES[size][1])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "reference"))
    if sys.argv[1:2] == ["--measure"]:
        size, strategy, cores, steps = sys.argv[2:]
        sys.exit(measure(size, strategy, int(cores), int(steps)))
    given, ALL_CORES = arguments(), os.sched_getaffinity(0)
    try:
        import jax, optax  # noqa: F401
    except ImportError as error:
        sys.exit(f"error: [train_step_jax] {error}: install jax and optax.")
    try:
        main(given)
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: [train_step_jax] {' '.join(error.cmd[3:])}: ended with status {error.returncode}.")
