"""Writes random cases of optimizers and schedules: arguments, chains and wrappers are drawn again for every seed.

Writes optimizers_random.json + .safetensors and schedules_more.json in the schema of gen_optimizers.py. Cases in which
JAX's own float32 deviates by half the tolerance are left out. The files are not stored: any seed must pass.

Run:  python optimizers_random.py SEED CASES FOLDER
      build/release/tests/reference_runner FOLDER/optimizers_random.json
"""

import pathlib
import random
import sys

import optimizers_more as more
from gen_optimizers import T

R = random.Random()


def one(*values):
    return R.choice(values)


def between(low, high):
    return float(f"{R.uniform(low, high):.3g}")


def power(low, high):
    return float(f"{10 ** R.uniform(low, high):.2g}")


def some(**arguments):
    """Includes each argument with probability 1/2; a callable is called for its value."""
    return {k: v() for k, v in arguments.items() if R.random() < 0.5}


def decay():
    return between(0.5, 0.99)


def eps():
    return power(-8, -3)


def mask():
    return one("ndim>1", None)


# ------------------------------------------------------------------------------- schedules
def warmup_cosine(rate, steps):
    return dict(init_value=between(0, rate), peak_value=rate, warmup_steps=R.randint(1, steps // 2),
                decay_steps=R.randint(steps // 2 + 1, 2 * steps), end_value=between(0, rate)) | some(
                    exponent=lambda: between(0.5, 2.5))


def boundaries(steps, low, high):
    return {str(b): between(low, high) for b in sorted(R.sample(range(1, steps), R.randint(1, 4)))}


def schedule(rate, steps, depth=0):
    ints = lambda: R.randint(1, steps)
    makers = [
        lambda: T("constant_schedule", value=rate),
        lambda: T("linear_schedule", init_value=rate, end_value=between(0, rate), transition_steps=ints(),
                  **some(transition_begin=lambda: R.randint(0, steps // 2))),
        lambda: T("polynomial_schedule", init_value=rate, end_value=between(0, rate), power=one(1, 2, 0.5, 3),
                  transition_steps=ints(), **some(transition_begin=lambda: R.randint(0, steps // 2))),
        lambda: T("cosine_decay_schedule", init_value=rate, decay_steps=ints(),
                  **some(alpha=lambda: between(0, 1), exponent=lambda: between(0.5, 2.5))),
        lambda: T("exponential_decay", init_value=rate, transition_steps=ints(), decay_rate=between(0.3, 0.95),
                  **some(transition_begin=lambda: R.randint(0, steps // 2), staircase=lambda: True,
                         end_value=lambda: rate * 0.2)),
        lambda: T("piecewise_constant_schedule", init_value=rate,
                  boundaries_and_scales=boundaries(steps, 0.1, 1.5)),
        lambda: T("piecewise_interpolate_schedule", interpolate_type=one("linear", "cosine"), init_value=rate,
                  boundaries_and_scales=boundaries(steps, 0.1, 1.5)),
        lambda: T("warmup_constant_schedule", init_value=between(0, rate), peak_value=rate, warmup_steps=ints()),
        lambda: T("warmup_cosine_decay_schedule", **warmup_cosine(rate, steps)),
        lambda: T("warmup_exponential_decay_schedule", init_value=between(0, rate), peak_value=rate,
                  warmup_steps=ints(), transition_steps=ints(), decay_rate=between(0.3, 0.95),
                  **some(staircase=lambda: True, end_value=lambda: rate * 0.1,
                         transition_begin=lambda: R.randint(0, 4))),
        lambda: T("linear_onecycle_schedule", transition_steps=R.randint(steps // 2 + 4, 2 * steps), peak_value=rate,
                  **some(pct_start=lambda: between(0.2, 0.5), pct_final=lambda: between(0.6, 0.95),
                         div_factor=lambda: between(2, 30), final_div_factor=lambda: between(10, 1000))),
        lambda: T("cosine_onecycle_schedule", transition_steps=R.randint(steps // 2 + 4, 2 * steps), peak_value=rate,
                  **some(pct_start=lambda: between(0.2, 0.7), div_factor=lambda: between(2, 30),
                         final_div_factor=lambda: between(10, 1000))),
        lambda: T("sgdr_schedule", cosine_kwargs=[warmup_cosine(rate, steps) for _ in range(R.randint(1, 3))]),
    ]
    if depth == 0:
        def joined():
            cuts = sorted(R.sample(range(1, steps), R.randint(1, 3)))
            return T("join_schedules", schedules=[schedule(rate, steps, 1) for _ in range(len(cuts) + 1)],
                     boundaries=cuts)
        makers.append(joined)
    return R.choice(makers)()


def rate(low=-3, high=-1.5):
    value = power(low, high)
    return value if R.random() < 0.6 else schedule(value, 10)


# ------------------------------------------------------------------------------ optimizers
def moments(**more_of_them):
    return some(b1=decay, b2=decay, eps=eps, **more_of_them)


def decayed():
    return some(weight_decay=lambda: power(-3, -0.7), mask=mask)


OPTIMIZERS = [
    lambda: T("sgd", learning_rate=rate(-2, -0.7), **some(momentum=decay, nesterov=lambda: True)),
    lambda: T("adam", learning_rate=rate(), **moments(eps_root=eps, nesterov=lambda: True)),
    lambda: T("nadam", learning_rate=rate(), **moments(eps_root=eps)),
    lambda: T("adamw", learning_rate=rate(), **moments(eps_root=eps, nesterov=lambda: True), **decayed()),
    lambda: T("nadamw", learning_rate=rate(), **moments(), **decayed()),
    lambda: T("amsgrad", learning_rate=rate(), **moments(eps_root=eps, bias_correction_mu=lambda: one(True, False),
                                                         bias_correction_nu=lambda: one(True, False))),
    lambda: T("adamax", learning_rate=rate(), **moments()),
    lambda: T("adamaxw", learning_rate=rate(), **moments(), **decayed()),
    lambda: T("adagrad", learning_rate=rate(-2, -1), **some(initial_accumulator_value=lambda: between(0.01, 1),
                                                           eps=eps)),
    lambda: T("adadelta", learning_rate=rate(-1, 0), **some(rho=decay, eps=lambda: power(-6, -3),
                                                            weight_decay=lambda: power(-3, -1),
                                                            weight_decay_mask=mask)),
    lambda: T("adabelief", learning_rate=rate(), eps=power(-6, -3), eps_root=power(-8, -4),
              **some(b1=decay, b2=decay, nesterov=lambda: True)),
    lambda: T("adan", learning_rate=rate(), **moments(b3=decay, eps_root=eps), **decayed()),
    lambda: T("rmsprop", learning_rate=rate(), **some(decay=decay, eps=lambda: power(-6, -3),
                                                      initial_scale=lambda: between(0, 1),
                                                      eps_in_sqrt=lambda: one(True, False), momentum=decay,
                                                      nesterov=lambda: True, bias_correction=lambda: True)),
    lambda: T("rmsprop", learning_rate=rate(), centered=True, eps=power(-3, -2),
              **some(decay=decay, bias_correction=lambda: True, momentum=decay)),
    lambda: T("lion", learning_rate=rate(-4, -2.5), **some(b1=decay, b2=decay), **decayed()),
    lambda: T("lamb", learning_rate=rate(), **moments(eps_root=eps), **decayed()),
    lambda: T("lars", learning_rate=rate(-1, 0), **some(weight_decay=lambda: power(-3, -1), momentum=decay,
                                                        trust_coefficient=lambda: power(-3, -1),
                                                        nesterov=lambda: True, weight_decay_mask=mask,
                                                        trust_ratio_mask=lambda: one("ndim>1", True, False))),
    lambda: T("radam", learning_rate=rate(-3, -2), b2=between(0.5, 0.95),
              **some(b1=decay, eps=eps, threshold=lambda: between(4.2, 6), nesterov=lambda: True)),
    lambda: T("yogi", learning_rate=rate(), **moments()),
    lambda: T("novograd", learning_rate=rate(), **moments(weight_decay=lambda: power(-3, -1), eps_root=eps)),
    lambda: T("adafactor", **some(learning_rate=rate, min_dim_size_to_factor=lambda: one(4, 5, 6, 128),
                                  decay_rate=decay, multiply_by_parameter_scale=lambda: one(True, False),
                                  clipping_threshold=lambda: one(None, 0.3, 1.0, 2.0), momentum=decay,
                                  weight_decay_rate=lambda: power(-4, -2), weight_decay_mask=mask,
                                  factored=lambda: one(True, False), eps=lambda: power(-30, -6))),
    lambda: T("sign_sgd", learning_rate=rate(-4, -2.5)),
    lambda: T("signum", learning_rate=rate(-4, -2.5), **some(beta=decay)),
    lambda: T("muon", learning_rate=rate(), **some(ns_steps=lambda: R.randint(2, 6), beta=decay,
                                                   nesterov=lambda: one(True, False), adaptive=lambda: True,
                                                   weight_decay=lambda: power(-3, -1), consistent_rms=lambda: 0.2,
                                                   adam_b1=decay, adam_b2=decay, adam_learning_rate=rate,
                                                   adam_weight_decay=lambda: power(-3, -1),
                                                   preconditioning=lambda: one("frobenius", "aol", "schatten"))),
    lambda: T("schedule_free_sgd", **some(learning_rate=lambda: power(-2, -0.5), warmup_steps=lambda: R.randint(1, 8),
                                          b1=decay, weight_decay=lambda: power(-3, -1),
                                          weight_lr_power=lambda: one(0, 1, 2, 3))),
    lambda: T("schedule_free_adamw", **some(learning_rate=lambda: power(-3, -1.5),
                                            warmup_steps=lambda: R.randint(1, 8), b1=decay, b2=decay, eps=eps,
                                            weight_decay=lambda: power(-3, -1))),
    lambda: T("schedule_free", base_optimizer=T("sgd", learning_rate=0.05), learning_rate=0.05,
              **some(b1=decay, weight_lr_power=lambda: one(0, 1, 2))),
    lambda: T("ademamix", learning_rate=rate(), **moments(b3=decay, alpha=lambda: between(1, 8), eps_root=eps),
              **decayed()),
    lambda: T("prodigy", estim_lr0=power(-4, -2), **some(learning_rate=lambda: between(0.3, 1.5),
                                                         betas=lambda: [decay(), decay()], beta3=decay,
                                                         estim_lr_coef=lambda: between(0.5, 2),
                                                         weight_decay=lambda: power(-3, -1),
                                                         safeguard_warmup=lambda: True)),
    lambda: T("adopt", learning_rate=rate(), **moments(nesterov=lambda: True, use_clipping=lambda: one(True, False))),
]

def raw():
    """One of the transforms inside Optax's optimizers, and its optimizer."""
    parts = [
        lambda: T("scale_by_adam", **moments(eps_root=eps, nesterov=lambda: True)),
        lambda: T("scale_by_amsgrad", **moments(eps_root=eps, bias_correction_nu=lambda: False)),
        lambda: T("scale_by_adamax", **moments()),
        lambda: T("scale_by_belief", eps=power(-6, -3), eps_root=power(-8, -4), **some(b1=decay, b2=decay)),
        lambda: T("scale_by_yogi", **moments(eps_root=eps, initial_accumulator_value=lambda: power(-6, -1))),
        lambda: T("scale_by_radam", b2=between(0.5, 0.95), **some(b1=decay, threshold=lambda: between(4.2, 6))),
        lambda: T("scale_by_rss", **some(initial_accumulator_value=lambda: between(0, 1), eps=eps)),
        lambda: T("scale_by_rms", **some(decay=decay, eps=eps, eps_in_sqrt=lambda: False,
                                         bias_correction=lambda: True, initial_scale=lambda: between(0, 1))),
        lambda: T("scale_by_stddev", eps=power(-3, -2), **some(decay=decay, bias_correction=lambda: True)),
        lambda: T("scale_by_adadelta", **some(rho=decay, eps=lambda: power(-6, -3))),
        lambda: T("scale_by_adan", **moments(b3=decay, eps_root=eps)),
        lambda: T("scale_by_lion", **some(b1=decay, b2=decay)),
        lambda: T("scale_by_ademamix", **moments(b3=decay, alpha=lambda: between(1, 8), eps_root=eps)),
        lambda: T("scale_by_adopt", **moments(nesterov=lambda: True, use_clipping=lambda: one(True, False))),
        lambda: T("scale_by_factored_rms", **some(min_dim_size_to_factor=lambda: one(4, 5, 6), decay_rate=decay,
                                                  factored=lambda: False, epsilon=lambda: power(-30, -6))),
        lambda: T("scale_by_novograd", **moments(weight_decay=lambda: power(-3, -1), eps_root=eps)),
        lambda: T("scale_by_sign"),
    ]
    last = [lambda: T("scale_by_learning_rate", learning_rate=rate(), **some(flip_sign=lambda: one(True, False))),
            lambda: T("scale", step_size=-power(-3, -1.5)),
            lambda: [T("scale_by_schedule", step_size_fn=schedule(power(-3, -1.5), 10)), T("scale", step_size=-1.0)]]
    between_them = [T("add_decayed_weights", weight_decay=rate(-3, -1), **some(mask=mask))] * one(0, 1)
    return [R.choice(parts)(), *between_them, R.choice(last)()]


OPTIMIZERS += [raw] * 6

BEFORE = [
    lambda: T("clip", max_delta=between(0.02, 0.5)),
    lambda: T("clip_by_global_norm", max_norm=between(0.3, 5)),
    lambda: T("clip_by_block_rms", threshold=between(0.05, 1)),
    lambda: T("adaptive_grad_clip", clipping=between(0.01, 1), **some(eps=lambda: power(-4, -1), axis=lambda: one(0, -1))),
    lambda: T("zero_nans"), lambda: T("centralize"), lambda: T("identity"),
    lambda: T("add_decayed_weights", weight_decay=power(-3, -1), **some(mask=mask)),
    lambda: T("ema", decay=decay(), **some(debias=lambda: False)),
    lambda: T("trace", decay=decay(), **some(nesterov=lambda: True)),
    lambda: T("scale", step_size=between(0.3, 2)),
    lambda: T("normalize_by_update_norm", **some(scale_factor=lambda: between(0.5, 2))),
    lambda: T("apply_every", k=R.randint(1, 4)),
]
AFTER = [
    lambda: T("scale", step_size=between(0.3, 1.2)),
    lambda: T("scale_by_schedule", step_size_fn=schedule(1.0, 10)),
    lambda: T("keep_params_nonnegative"),
    lambda: T("masked", inner=T("scale_by_trust_ratio"), mask="ndim>1"),
    lambda: T("scale_by_trust_ratio", **some(min_norm=lambda: between(0, 0.3), eps=eps,
                                             trust_coefficient=lambda: between(0.01, 1))),
    lambda: T("masked", inner=T("scale", step_size=between(0, 1)), mask="ndim>1"),
    lambda: T("scale_by_param_block_rms"), lambda: T("scale_by_param_block_norm"),
    lambda: T("freeze", mask="ndim>1"),
]


def nested(depth):
    """An optimizer, possibly inside or combined with others."""
    inner = lambda: nested(depth - 1)
    if depth == 0 or R.random() < 0.3:
        return R.choice(OPTIMIZERS)()
    return R.choice([
        lambda: [R.choice(BEFORE)(), inner()],
        lambda: [R.choice(BEFORE)(), inner(), R.choice(AFTER)()],
        lambda: T("partition", transforms={"matrix": inner(), "vector": R.choice([inner, lambda: T("set_to_zero")])()}),
        lambda: T("MultiSteps", opt=inner(), every_k=R.randint(1, 4)),
        lambda: T("apply_if_finite", inner=inner(), max_consecutive_errors=R.randint(1, 3)),
        lambda: T("masked", inner=inner(), mask="ndim>1"),
        lambda: T("selective_transform", optimizer=inner(), freeze_mask="ndim>1"),
    ])()


def main(seed, cases, folder):
    R.seed(seed)
    more.HERE, more.NAME = pathlib.Path(folder), "optimizers_random"
    more.WORST = 1e-6
    more.CASES = {f"optimizer_{i}": f() for i, f in enumerate(OPTIMIZERS)}
    more.CASES |= {f"nested_{i}": nested(2) for i in range(max(0, cases - len(OPTIMIZERS)))}
    more.SCHEDULES = {f"schedule_{i}": schedule(0.1, R.choice([20, 100])) for i in range(cases)}
    more.main()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
