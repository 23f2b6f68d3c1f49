"""Every optimizer and transform on gradients with infinities and NaN at four of seven updates.

Writes optimizers_nonfinite.json + .safetensors, in the schema of gen_optimizers.py: the parameters after each update,
including infinities and NaN. norm.scale and head.kernel always have finite gradients, which shows what spreads from
array to array.

Run:  python optimizers_nonfinite.py
"""

import gen_optimizers as gen
import optimizers_more as more
from gen_optimizers import *

gen.SHAPES["public"] = {"dense.kernel": (4, 4), "dense.bias": (4,), "norm.scale": (4,), "head.kernel": (4, 2)}
gen.STEPS, gen.SCALE["public"] = 7, [1, 0.5, 2, 1, 0.25, 4, 1]
# (update, parameter, element, value)
WRONG = [(1, "dense.bias", 1, np.inf), (3, "dense.bias", 0, -np.inf), (3, "dense.kernel", (0, 2), np.nan),
         (4, "dense.kernel", (2, 1), np.inf), (5, "dense.kernel", (3, 3), -np.inf), (5, "dense.bias", 2, np.nan)]

MORE = {
    "apply_if_finite_sgd": T("apply_if_finite", inner=T("sgd", learning_rate=0.1, momentum=0.9), max_consecutive_errors=5),
    "apply_if_finite_never": T("apply_if_finite", inner=T("adam", learning_rate=0.01), max_consecutive_errors=0),
    "clipped_by_element": [T("clip", max_delta=0.1), T("sgd", learning_rate=0.1)],
    "zero_nans_clip": [T("zero_nans"), T("clip_by_global_norm", max_norm=1.0), T("sgd", learning_rate=0.1)],
    "nonnegative_adam": [T("adam", learning_rate=0.01), T("keep_params_nonnegative")],
}
# MultiSteps runs its inner transform at every update and multiplies by 0 in between, which NaN survives; accumulate
# runs it at the boundary only.
CASES = {name: e for name, e in (gen.PUBLIC | more.CASES | MORE).items() if "MultiSteps" not in str(e)}


def gradients(split):
    trees = finite(split)
    for update, name, element, value in WRONG:
        trees[update][name][element] = value
    return trees


finite, gen.gradients = gen.gradients, gradients


def main():
    names, grads = list(gen.SHAPES["public"]), gradients("public")
    tensors = {f"params/{k}": v for k, v in start("public").items()}
    tensors |= {f"grads/{k}": np.stack([g[k] for g in grads]) for k in names}
    out = {}
    for name, expr in CASES.items():
        trace, leaves = run(expr, "public", False)
        tensors |= {f"{name}/{k}": v for k, v in trace.items()}
        out[name] = {"chain": expr if isinstance(expr, list) else [expr], "steps": gen.STEPS, "state_leaves": leaves}
    write_json(HERE / "optimizers_nonfinite.json",
               {"meta": {"what": "optax optimizers, infinities and NaN", "generator": "optimizers_nonfinite.py"},
                "params": {k: list(v) for k, v in gen.SHAPES["public"].items()}}, {"cases": out})
    save_tensors(HERE / "optimizers_nonfinite.safetensors", tensors)


if __name__ == "__main__":
    main()
