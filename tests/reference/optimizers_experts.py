"""The optimizers on a model with experts: Muon on stacks of matrices, cautious weight decay, cautious updates.

Optax lacks cautious weight decay and cautious updates, so they are built from its parts here.

Writes optimizers_experts.json + .safetensors, in the schema of gen_optimizers.py.

Run:  python optimizers_experts.py
"""

import gen_optimizers as gen
import optimizers_more as more
from gen_optimizers import *
from optax._src import transform
from optax.contrib import MuonDimensionNumbers

gen.SHAPES["public"] = {"experts.up": (4, 5, 6), "experts.down": (4, 7, 6), "experts.odd": (3, 4, 6),
                        "attention.query": (6, 3, 4), "head.kernel": (4, 8), "norm.scale": (4,)}
EXPERTS = {"experts.up": [[-2], [-1]], "experts.down": [[1], [2]], "experts.odd": [[1], [2]],
           "head.kernel": [[0], [1]], "attention.query": None, "norm.scale": None}
ALL = EXPERTS | {"attention.query": [[0], [1, 2]], "experts.down": [[2], [1]]}
SMALL = dict(learning_rate=0.01)


def muon(numbers, **kw):
    return T("muon", muon_weight_dimension_numbers=numbers, **kw)


more.CASES = {
    "muon_default": T("muon", learning_rate=0.02),
    "muon_experts": muon(EXPERTS, learning_rate=0.02),
    "muon_merged": muon(ALL, learning_rate=0.01, weight_decay=0.1, weight_decay_mask="ndim>1", nesterov=False),
    "muon_rms": muon(ALL, learning_rate=0.01, consistent_rms=0.2),
    "muon_adaptive": muon(EXPERTS, learning_rate=0.002, adaptive=True),
    "muon_aol": muon(EXPERTS, preconditioning="aol", **SMALL),
    "muon_schatten": muon(EXPERTS, preconditioning="schatten", **SMALL),
    "muon_spectral": muon(EXPERTS, preconditioning="spectral", **SMALL),
    "muon_cautious": muon(EXPERTS, weight_decay=0.5, adam_weight_decay=0.5, cautious_weight_decay=True, **SMALL),
    "adamw_cautious": T("adamw", learning_rate=0.02, b1=0.8, b2=0.99, weight_decay=0.5, mask="ndim>1",
                        cautious_weight_decay=True),
    "lion_cautious": T("lion", learning_rate=0.002, weight_decay=0.5, cautious_weight_decay=True),
    "decay_cautious": [T("add_decayed_weights", weight_decay=0.2, cautious=True), T("sgd", learning_rate=0.1)],
    "cautious_adam": [T("cautious", inner=T("scale_by_adam", b1=0.8, b2=0.99)),
                      T("add_decayed_weights", weight_decay=0.1), T("scale_by_learning_rate", **SMALL)],
    "cautious_lion": [T("cautious", inner=T("scale_by_lion", b1=0.7, b2=0.9)), T("scale", step_size=-0.01)],
}
more.SCHEDULES = {}
more.NAME = "optimizers_experts"


def cautious_decay(weight_decay=0.0, mask=None):
    """Chen et al., arXiv:2510.12402: u + weight_decay * 1(u p >= 0) p."""
    def update(updates, state, params):
        chosen = mask(params) if mask else jax.tree.map(lambda p: True, params)
        decayed = lambda u, p, c: u + weight_decay * p * (u * p >= 0) if c else u
        return jax.tree.map(decayed, updates, params, chosen), state
    return optax.GradientTransformation(optax.init_empty_state, update)


def cautious(inner):
    """Liang et al., arXiv:2411.16085: u m / max(mean(m), 1e-3) with m = 1(u g > 0)."""
    def update(grads, state, params):
        updates, state = inner.update(grads, state, params)
        def masked(u, g):
            m = (u * g > 0).astype(u.dtype)
            return u * m / jnp.maximum(m.mean(), 1e-3)
        return jax.tree.map(masked, updates, grads), state
    return optax.GradientTransformation(inner.init, update)


def build(e):
    if isinstance(e, list):
        return optax.chain(*[build(x) for x in e])
    if e["name"] == "cautious":
        return cautious(plain(e["inner"]))
    e = dict(e)
    usual = transform.add_decayed_weights
    if e.pop("cautious_weight_decay", False) or e.pop("cautious", False):
        transform.add_decayed_weights = optax.add_decayed_weights = cautious_decay
    if "muon_weight_dimension_numbers" in e:
        e["muon_weight_dimension_numbers"] = lambda params, given=e["muon_weight_dimension_numbers"]: {
            n: given[n] and MuonDimensionNumbers(*map(tuple, given[n])) for n in params}
    built = plain(e)
    transform.add_decayed_weights = optax.add_decayed_weights = usual
    return built


plain, gen.build = gen.build, build

if __name__ == "__main__":
    more.main()
