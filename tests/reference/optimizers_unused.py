"""The optimizers on a model with an unused parameter, norm.scale, whose gradient is zero at every step.

Writes optimizers_unused.json + .safetensors, in the schema of gen_optimizers.py.

Run:  python optimizers_unused.py
"""

import gen_optimizers as gen
import optimizers_more as more

UNUSED = ["adamw_schedule", "nadam", "amsgrad", "adamax", "adagrad_small", "adadelta_decay", "adabelief", "adan_decay",
          "rmsprop_outside", "lion_default", "lamb_default", "lars", "radam", "yogi", "novograd_decay",
          "adafactor_momentum", "adafactor_not_factored", "sign_sgd", "muon_plain", "schedule_free_adamw_warm",
          "ademamix", "prodigy", "adopt", "multi_steps_4", "block_rms_adam", "trust_ratio"]


def gradients(split):
    trees = used(split)
    for tree in trees:
        tree["norm.scale"] = tree["norm.scale"] * 0
    return trees


used = gen.gradients
gen.gradients = more.gradients = gradients
more.CASES = {name: more.CASES[name] for name in UNUSED}
more.SCHEDULES = {}
more.NAME = "optimizers_unused"

if __name__ == "__main__":
    more.main()
