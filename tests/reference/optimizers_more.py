"""Further cases of optimizers and schedules: every transform, with other arguments and in other chains.

Writes optimizers_more.json + .safetensors and schedules_more.json, in the schema of gen_optimizers.py.

Run:  python optimizers_more.py
"""

import pathlib

import gen_optimizers as gen
from gen_optimizers import *

NAME = "optimizers_more"
WORST = np.inf  # cases in which JAX float32 deviates more from float64 are left out
LR = dict(learning_rate=0.01)
WARM = T("warmup_cosine_decay_schedule", init_value=0.001, peak_value=0.02, warmup_steps=3, decay_steps=10,
         end_value=0.002)
LINEAR = T("linear_schedule", init_value=0.05, end_value=0.005, transition_steps=6, transition_begin=2)

CASES = {
    # every optimizer of the list
    "nadam": T("nadam", **LR), "nadamw": T("nadamw", weight_decay=0.1, mask="ndim>1", **LR),
    "adam_eps_root": T("adam", eps_root=1e-3, b1=0.7, **LR), "adam_no_memory": T("adam", b1=0.0, eps=1e-4, **LR),
    "adamw_schedule": T("adamw", learning_rate=WARM, weight_decay=0.05),
    "adamw_nesterov": T("adamw", nesterov=True, b2=0.95, **LR),
    "amsgrad": T("amsgrad", **LR), "amsgrad_plain": T("amsgrad", bias_correction_mu=False, bias_correction_nu=False, **LR),
    "adamax": T("adamax", **LR), "adamaxw": T("adamaxw", weight_decay=0.1, mask="ndim>1", **LR),
    "adagrad_small": T("adagrad", learning_rate=0.05, initial_accumulator_value=0.5, eps=1e-3),
    "adadelta": T("adadelta", learning_rate=1.0), "adadelta_decay": T("adadelta", learning_rate=0.5, rho=0.8, eps=1e-4,
                                                                     weight_decay=0.1, weight_decay_mask="ndim>1"),
    "adabelief": T("adabelief", eps=1e-6, eps_root=1e-8, **LR),
    "adabelief_nesterov": T("adabelief", eps=1e-6, eps_root=1e-8, nesterov=True, **LR),
    "adan": T("adan", **LR), "adan_decay": T("adan", b1=0.9, b2=0.8, b3=0.95, weight_decay=0.1, mask="ndim>1", **LR),
    "rmsprop_centered": T("rmsprop", centered=True, eps=1e-4, **LR),
    "rmsprop_outside": T("rmsprop", eps_in_sqrt=False, initial_scale=0.5, decay=0.8, **LR),
    "rmsprop_corrected": T("rmsprop", bias_correction=True, momentum=0.8, nesterov=True, **LR),
    "rmsprop_centered_corrected": T("rmsprop", centered=True, bias_correction=True, eps=1e-3, initial_scale=0.1, **LR),
    "lion_default": T("lion", learning_rate=0.001), "lion_masked": T("lion", learning_rate=0.002, b1=0.95, b2=0.98,
                                                                    weight_decay=0.1, mask="ndim>1"),
    "lamb_default": T("lamb", **LR), "lamb_masked": T("lamb", weight_decay=0.1, mask="ndim>1", eps=1e-4, **LR),
    "lars": T("lars", learning_rate=0.1), "lars_masked": T("lars", learning_rate=0.5, weight_decay=0.01,
                                                          weight_decay_mask="ndim>1",
                                                          trust_coefficient=0.01, momentum=0.8, nesterov=True),
    "radam": T("radam", **LR), "radam_early": T("radam", b2=0.9, threshold=4.5, nesterov=True, **LR),
    "yogi": T("yogi", **LR), "yogi_other": T("yogi", b1=0.8, b2=0.95, eps=1e-2, learning_rate=0.03),
    "novograd": T("novograd", **LR), "novograd_decay": T("novograd", b1=0.8, b2=0.5, weight_decay=0.05, **LR),
    "adafactor_momentum": T("adafactor", momentum=0.9, min_dim_size_to_factor=4, **LR),
    "adafactor_plain": T("adafactor", min_dim_size_to_factor=4, multiply_by_parameter_scale=False,
                         clipping_threshold=None, decay_rate=0.6, **LR),
    "adafactor_decay": T("adafactor", weight_decay_rate=0.001, weight_decay_mask="ndim>1", min_dim_size_to_factor=5,
                         **LR),
    "adafactor_not_factored": T("adafactor", factored=False, clipping_threshold=0.5, **LR),
    "adafactor_schedule": T("adafactor", learning_rate=LINEAR, min_dim_size_to_factor=4, eps=1e-8),
    "sign_sgd": T("sign_sgd", learning_rate=0.002), "signum": T("signum", learning_rate=0.002, beta=0.8),
    "sgd_schedule": T("sgd", learning_rate=LINEAR, momentum=0.8, nesterov=True),
    "muon_plain": T("muon", learning_rate=0.02, nesterov=False, beta=0.9, ns_steps=3),
    "muon_rms": T("muon", learning_rate=0.01, consistent_rms=0.2, weight_decay=0.1, weight_decay_mask="ndim>1"),
    "muon_adaptive": T("muon", learning_rate=0.005, adaptive=True, adam_b1=0.8, adam_b2=0.95, adam_weight_decay=0.1),
    "muon_dion": T("muon", learning_rate=0.01, ns_coeffs="dion"),
    "muon_schatten": T("muon", learning_rate=0.01, preconditioning="schatten"),
    "muon_aol": T("muon", learning_rate=0.01, preconditioning="aol", adam_learning_rate=0.003),
    "muon_spectral": T("muon", learning_rate=0.01, preconditioning="spectral"),
    "schedule_free_adamw": T("schedule_free_adamw"),
    "schedule_free_adamw_warm": T("schedule_free_adamw", learning_rate=0.01, warmup_steps=4, b1=0.8, weight_decay=0.1),
    "schedule_free_sgd": T("schedule_free_sgd", learning_rate=0.1, warmup_steps=3, weight_decay=0.01),
    "ademamix": T("ademamix", **LR),
    "ademamix_schedules": T("ademamix", b3=0.99, alpha=3.0, weight_decay=0.1, mask="ndim>1", **LR),
    "prodigy": T("prodigy", learning_rate=1.0, estim_lr0=1e-3),
    "prodigy_guarded": T("prodigy", learning_rate=0.5, betas=[0.8, 0.99], estim_lr0=1e-3, safeguard_warmup=True,
                         weight_decay=0.01),
    "adopt": T("adopt", **LR), "adopt_free": T("adopt", use_clipping=False, nesterov=True, b2=0.99, eps=1e-2, **LR),
    # combinators
    "partition_adam_sgd": T("partition", transforms={"matrix": T("adam", **LR),
                                                     "vector": T("sgd", learning_rate=0.1, momentum=0.9)}),
    "partition_frozen": T("partition", transforms={"matrix": T("adamw", weight_decay=0.1, **LR),
                                                   "vector": T("set_to_zero")}),
    "multi_steps_4": T("MultiSteps", opt=T("adamw", weight_decay=0.1, **LR), every_k=4),
    "multi_steps_3_chain": [T("MultiSteps", opt=T("sgd", learning_rate=0.1, momentum=0.9), every_k=3), T("scale", step_size=0.5)],
    "apply_if_finite": T("apply_if_finite", inner=T("adam", **LR), max_consecutive_errors=2),
    "masked_trust": [T("masked", inner=T("scale_by_trust_ratio"), mask="ndim>1"), T("scale", step_size=-0.01)],
    "partition_in_chain": [T("clip_by_global_norm", max_norm=0.5),
                           T("partition", transforms={"matrix": T("lion", learning_rate=0.001),
                                                      "vector": T("rmsprop", **LR)}),
                           T("add_decayed_weights", weight_decay=0.001)],
    # transforms
    "block_rms_adam": [T("clip_by_block_rms", threshold=0.2), T("adam", **LR)],
    "adaptive_clip_sgd": [T("adaptive_grad_clip", clipping=0.1, eps=0.01), T("sgd", learning_rate=0.1)],
    "centralized": [T("centralize"), T("adam", **LR)], "zero_nans_adam": [T("zero_nans"), T("adam", **LR)],
    "noisy": [T("add_noise", eta=0.01, gamma=0.55, key=3), T("sgd", learning_rate=0.05)],
    "ema_sgd": [T("ema", decay=0.8), T("scale", step_size=-0.1)],
    "ema_biased": [T("ema", decay=0.8, debias=False), T("scale_by_learning_rate", learning_rate=LINEAR)],
    "trace_nesterov": [T("trace", decay=0.7, nesterov=True), T("scale_by_schedule", step_size_fn=LINEAR), T("scale", step_size=-1.0)],
    "param_block_rms": [T("scale_by_param_block_rms", min_scale=0.01), T("scale", step_size=-0.1)],
    "param_block_norm": [T("scale_by_param_block_norm"), T("scale", step_size=-0.05)],
    "trust_ratio": [T("scale_by_trust_ratio", min_norm=0.1, trust_coefficient=0.5, eps=1e-3), T("scale", step_size=-0.1)],
    "normalized": [T("normalize_by_update_norm", scale_factor=2.0), T("scale", step_size=-0.1)],
    "nonnegative": [T("sgd", learning_rate=0.1), T("keep_params_nonnegative")],
    "every_third": [T("apply_every", k=3), T("sgd", learning_rate=0.05)],
    "factored_rms": [T("scale_by_factored_rms", min_dim_size_to_factor=4, decay_rate=0.9, step_offset=0), T("scale", step_size=-0.01)],
    "stddev": [T("scale_by_stddev", decay=0.8, eps=1e-2), T("scale", step_size=-0.01)],
    "rss": [T("scale_by_rss", initial_accumulator_value=0.0), T("scale", step_size=-0.05)],
    "decay_then_momentum": [T("add_decayed_weights", weight_decay=0.01, mask="ndim>1"), T("trace", decay=0.9), T("scale", step_size=-0.02)],
    "clip_lion_onecycle": [T("clip", max_delta=0.05), T("lion", learning_rate=T("cosine_onecycle_schedule", transition_steps=10, peak_value=0.01))],
    "adam_piecewise": T("adam", learning_rate=T("piecewise_constant_schedule", init_value=0.02, boundaries_and_scales={"3": 0.5, "7": 0.1})),
    "adam_joined": T("adam", learning_rate=T("join_schedules", schedules=[T("constant_schedule", value=0.01), T("exponential_decay", init_value=0.02, transition_steps=2, decay_rate=0.7)], boundaries=[4])),
}
SCHEDULES = {
    "linear_begin": T("linear_schedule", init_value=0.0, end_value=1.0, transition_steps=50, transition_begin=10),
    "polynomial": T("polynomial_schedule", init_value=1.0, end_value=0.1, power=2, transition_steps=80, transition_begin=5),
    "cosine_exponent": T("cosine_decay_schedule", init_value=0.3, decay_steps=75, alpha=0.2, exponent=2.0),
    "exponential_begin": T("exponential_decay", init_value=0.1, transition_steps=20, decay_rate=0.5, transition_begin=10, end_value=0.01),
    "exponential_up": T("exponential_decay", init_value=0.1, transition_steps=20, decay_rate=1.5, end_value=0.5, staircase=True),
    "piecewise_linear": T("piecewise_interpolate_schedule", interpolate_type="linear", init_value=0.1, boundaries_and_scales={"10": 5.0, "50": 0.1}),
    "piecewise_cosine": T("piecewise_interpolate_schedule", interpolate_type="cosine", init_value=0.1, boundaries_and_scales={"25": 2.0, "100": 0.2}),
    "warmup_constant": T("warmup_constant_schedule", init_value=0.01, peak_value=0.1, warmup_steps=50),
    "warmup_cosine_exponent": T("warmup_cosine_decay_schedule", init_value=0.01, peak_value=0.1, warmup_steps=25, decay_steps=150, end_value=0.005, exponent=1.5),
    "warmup_exponential": T("warmup_exponential_decay_schedule", init_value=0.0, peak_value=0.1, warmup_steps=10, transition_steps=20, decay_rate=0.8, transition_begin=5, end_value=0.02),
    "warmup_staircase": T("warmup_exponential_decay_schedule", init_value=0.0, peak_value=0.1, warmup_steps=9, transition_steps=10, decay_rate=0.5, staircase=True),
    "onecycle_linear": T("linear_onecycle_schedule", transition_steps=100, peak_value=0.1),
    "onecycle_linear_other": T("linear_onecycle_schedule", transition_steps=150, peak_value=0.5, pct_start=0.2, pct_final=0.7, div_factor=10.0, final_div_factor=100.0),
    "onecycle_cosine_other": T("cosine_onecycle_schedule", transition_steps=75, peak_value=0.5, pct_start=0.5, div_factor=5.0, final_div_factor=50.0),
    "stable_linear": T("warmup_stable_decay_schedule", peak_value=0.3, warmup_steps=10, stable_steps=15, decay_steps=50),
    "stable_cosine": T("warmup_stable_decay_schedule", init_value=0.1, peak_value=0.3, warmup_steps=2, stable_steps=48, decay_steps=51, end_value=0.05, decay_shape="cosine"),
    "stable_sqrt": T("warmup_stable_decay_schedule", peak_value=0.3, stable_steps=9, decay_steps=90, end_value=0.03, decay_shape="one_minus_sqrt"),
    "joined": T("join_schedules", schedules=[T("constant_schedule", value=0.5), T("linear_schedule", init_value=1.0, end_value=0.0, transition_steps=40), T("constant_schedule", value=0.25)], boundaries=[10, 75]),
    "sgdr": T("sgdr_schedule", cosine_kwargs=[dict(init_value=0.0, peak_value=1.0, warmup_steps=5, decay_steps=25, end_value=0.1), dict(init_value=0.1, peak_value=0.5, warmup_steps=10, decay_steps=75, end_value=0.0)]),
}


def main():
    names = list(gen.SHAPES["public"])
    tensors = {f"params/{k}": v for k, v in start("public").items()}
    grads = gradients("public")
    tensors |= {f"grads/{k}": np.stack([g[k] for g in grads]) for k in names}
    out = {}
    for name, expr in CASES.items():
        trace, leaves = run(expr, "public", False)
        exact, _ = run(expr, "public", True)
        diff = max(float(np.abs(trace[k] - exact[k]).max()) for k in trace)
        assert all(np.isfinite(v).all() for v in trace.values()), name
        if diff > WORST:
            print(f"  {name}: f64_diff {diff:.2g}, left out")
            continue
        tensors |= {f"{name}/{k}": v for k, v in trace.items()}
        out[name] = {"chain": expr if isinstance(expr, list) else [expr], "steps": STEPS,
                     "f64_diff": float(f"{diff:.2g}"), "state_leaves": leaves}
        print(f"  {name}: f64_diff {diff:.2g}", flush=True)
    write_json(HERE / f"{NAME}.json",
               {"meta": {"what": "optax optimizers, ten steps", "generator": f"{NAME}.py"},
                "params": {k: list(v) for k, v in gen.SHAPES["public"].items()}}, {"cases": out})
    save_tensors(HERE / f"{NAME}.safetensors", tensors)
    if not SCHEDULES:
        return
    write_json(HERE / "schedules_more.json", {"meta": {"what": "optax schedules", "generator": f"{NAME}.py"},
                                              "steps": AT},
               {"schedules": {k: {"expr": e, "values": [fnum(build(e)(jnp.int32(t))) for t in AT]}
                              for k, e in SCHEDULES.items()}})


if __name__ == "__main__":
    main()
