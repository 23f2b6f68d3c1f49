#!/usr/bin/env python3
"""Checks the tests: plants faults one at a time, each of which a test must catch.

    tests/mutations.py [--list | --check | --programs FROM TO] [--only N] [--build build/release]

Without an option all faults are planted; each one costs a build of its target. The file is restored after each fault,
also on Ctrl-C. --list shows the faults. --check only checks that each text is in its file exactly once.

--programs plants only the faults in propagation and gradients, and runs the random programs with these seeds instead of
each fault's test. The programs must pass without a fault, and detect at least three quarters of the faults.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLANNER, ROUTE = "sharding/propagation/planner.cpp", "sharding/redistribution/route.cpp"
ENGINE, LOSSES = "sharding/redistribution/engine_local.cpp", "sharding/operations/neural/losses.cpp"
BACK, PARTS = "sharding/autodiff/backpropagation.cpp", "nn/transformations/accumulate_gradients.cpp"
ADAPTIVE, SCALING, FUSED = "optim/formulas/adaptive.cpp", "optim/formulas/scaling.cpp", "optim/wrappers/chain.cpp"
BATCHES, LOADER = "data/loader/batch_plan.cpp", "data/loader/loader_core.cpp"
MATMUL, CROSS_ENTROPY = "validator_test Operations/*matmul*", "validator_test Operations/*cross_entropy*"
PAIRS, MICRO_BATCHES = "sharding_test Redistribute.*", "nn_test AccumulateGradients.*"
HOST, HOST_STATE = "sharding/kernels/host_stream.cpp", "device_test HostState.*"
IN_PLACE, CURVES = "optim_test Optimizer.FusedEqualsPure", "reference_runner tests/reference/optimizers_more.json"

# By area: the file, a text that it contains once, its replacement, and the test that must fail: a program with its
# filter, or reference_runner with its file.
FAULTS = {
    "propagation": [
        (PLANNER, "key.unreduced = targets.vary & ~sharded & ~reduced_inside(choice) & ~key.varying;",
         "key.unreduced = 0;", MATMUL),
        (PLANNER, "may_pend(problem_.operands[i]) & ~used & ~pending;", "may_pend(problem_.operands[i]) & ~used;",
         MATMUL),
        (PLANNER, "std::fill(kept.begin(), kept.end(), pending);", "", "validator_test Operations/*_add"),
        (PLANNER, "block_number(mesh(), place.axes, coordinates) * place.local : 0);",
         "block_number(mesh(), place.axes, coordinates) : 0);", "validator_test Operations/*tril*"),
        (LOSSES, "Linearity::nonlinear", "Linearity::multilinear", CROSS_ENTROPY),
        (ROUTE, '"replicated", Collective::all_reduce,     Collective::identity},',
         '"replicated", Collective::identity,       Collective::identity},', PAIRS),
        (ROUTE, "for (int i = reversed.size() - 1; i >= 0; --i)", "for (int i = 0; i < reversed.size(); ++i)", PAIRS),
        (ROUTE, "AxisSet{1} << axis, d, e, slots_);", "AxisSet{1} << axis, e, d, slots_);", PAIRS),
        (ENGINE, "parts.push_back(block(t, e.to_dim, i, n));", "parts.push_back(block(t, e.to_dim, 0, n));", PAIRS),
        (ENGINE, "return block(total, e.dim, i, n).contiguous();", "return block(total, e.dim, 0, n).contiguous();",
         PAIRS),
    ],
    "gradients": [
        (ROUTE, '"replicated",  "reduced",    Collective::identity,       Collective::all_reduce},',
         '"replicated",  "reduced",    Collective::identity,       Collective::identity},', PAIRS),
        (ROUTE, '"reduced",    Collective::all_gather,     Collective::reduce_scatter},',
         '"reduced",    Collective::all_gather,     Collective::slice},', PAIRS),
        (BACK, "for (int k = 0; k < type->mesh->slots(summed); ++k) {", "for (int k = 0; k < 1; ++k) {", MATMUL),
        (BACK, "  add_late_gradients();", "", "sharding_test Remat*"),
        ("sharding/operations/linalg/matrix_product.cpp", "sum.add(g[s], w[w_of[s]].t());",
         "sum.add(g[s], w[0].t());", MATMUL),
        (LOSSES, "block.at.here.neg().unsqueeze(-1)", "block.at.here.unsqueeze(-1)", CROSS_ENTROPY),
        (PARTS, "sum / static_cast<double>(n)", "sum", MICRO_BATCHES),
        (PARTS, "i, i + 1, 1), joined);", "0, 1, 1), joined);", MICRO_BATCHES),
        (PARTS, "+ widened(*gradients[i].value);", "+ widened(*gradients[0].value);", MICRO_BATCHES),
        ("nn/transformations/value_and_grad.cpp", "result[trained_[i]] = std::move", "result[i] = std::move",
         "nn_test Trained.*"),
    ],
    "optimizers": [
        (ADAPTIVE, "return m / (1 - std::pow(b, static_cast<double>(t)));", "return m;", "optim_test Transform.Adam*"),
        (ADAPTIVE, "nu = maximum(b2 * nu, abs(step.gradient) + eps);", "nu = maximum(nu, abs(step.gradient) + eps);",
         CURVES),
        (ADAPTIVE, "nu = nu - (1 - b2) * sign(nu - g2) * g2;", "nu = nu + (1 - b2) * sign(nu - g2) * g2;", CURVES),
        (SCALING, "u = u + weight_decay * (cautious", "u = u - weight_decay * (cautious", "optim_test Transform.*"),
        (SCALING, "u * q >= 0.0", "u * q <= 0.0", "reference_runner tests/reference/optimizers_experts.json"),
        (SCALING, "(step.count - 1) % k;", "step.count % k;", CURVES),
        (FUSED, "g.decayed ? weight_decay : 0,", "weight_decay,", IN_PLACE),
        (FUSED, "return static_cast<double>(count + 1); };", "return static_cast<double>(count); };", IN_PLACE),
        (HOST, "  if (s) s->stored[b].block(s->in);\n", "", HOST_STATE),
        (HOST, "  if (s) Streams::order(s->loaded, s->in, s->compute);\n", "", HOST_STATE),
        (HOST, "  if (s) Streams::order(s->computed, s->compute, s->out);\n", "", HOST_STATE),
        (HOST, "stored.block(streams_->compute);", "static_cast<void>(stored);", HOST_STATE),
        ("optim/formulas/clipping.cpp", "scale(updates, max_norm / norm);", "scale(updates, 1 / norm);",
         "optim_test Optimizer.*:Transform.*:Laws.*"),
        ("optim/formulas/global_norm.cpp",
         "const int blocks = type->mesh ? type->mesh->slots(type->mesh->distinct(type->sharded)) : 1;",
         "const int blocks = 1;", "optim_test GlobalNorm.*"),
        ("optim/schedules/schedule.cpp", "(count - begin);", "(count);", "reference_runner tests/reference/schedules_more.json"),
    ],
    "input": [
        ("data/datasets/shuffle.h", "do x = once(x);\n    while (x >= size_);", "x = once(x) % size_;", "data_test Shuffle.*"),
        ("data/datasets/shuffle.cpp", "(seed + kGolden) + static_cast<uint64_t>(epoch));", "(seed + kGolden));",
         "data_test Dataset.*:Shuffle.*"),
        (BATCHES, "first + shard_.index * rows;", "first + shard_.index;", "data_test Chains.*"),
        (BATCHES, "+ (pad_ && records % batch_size_ != 0);", ";", "data_test PadLastBatch.*"),
        ("data/datasets/shard_options.cpp", "std::min(shard.index + 1, rest)", "std::min(shard.index, rest)",
         "data_test Split.*"),
        ("data/datasets/combine.cpp", "index / period() * shares_[turn.part]}", "index / period()}", "data_test Mix.*"),
        (LOADER, "plan_.after(start, batch)", "plan_.after(start, batch + 1)", "data_test Loader.*"),
        ("data/streams/stream.cpp", "(at + from.input) % size;", "at % size;", "data_test StreamLoader.*"),
        ("data/datasets/random.cpp", "philox({++block_, 0, 0, index_}, key_)", "philox({block_++, 0, 0, index_}, key_)",
         "data_test Philox.*"),
        ("data/streams/pack.h", "push_back(static_cast<int32_t>(i));", "push_back(static_cast<int32_t>(i + 1));",
         "data_test Pack.*"),
    ],
}


def run(command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


def outcome(test, build):
    """The outcome of a test: "caught" if it fails, otherwise a description."""
    target, *asked = test.split()
    try:
        made = run(["cmake", "--build", build, "--target", target])
        if made.returncode:
            return "DOES NOT COMPILE\n" + made.stdout[-2000:]
        if target not in ("reference_runner", "programs"):
            asked = [f"--gtest_filter={asked[0]}"]
        return "caught" if run([f"{build}/tests/{target}", *asked]).returncode else "NOT CAUGHT"
    except subprocess.TimeoutExpired:
        return "caught: it does not end"


def plant(name, text, replacement, test, build):
    """The outcome of the test with the fault."""
    path = ROOT / name
    whole = path.read_text()
    try:
        path.write_text(whole.replace(text, replacement))
        return outcome(test, build)
    finally:
        path.write_text(whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--list", action="store_true")
    kinds.add_argument("--check", action="store_true")
    kinds.add_argument("--programs", nargs=2, type=int, metavar=("FROM", "TO"))
    parser.add_argument("--only", type=int, metavar="N")
    parser.add_argument("--build", default="build/release")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed, planted, caught = False, 0, 0
    programs = options.programs and "programs {} {}".format(*options.programs)
    if programs and (said := outcome(programs, options.build)) != "NOT CAUGHT":
        sys.exit(f"[mutations] {programs}: {said} before a fault is planted, expected that all programs pass.")
    for number, (area, fault) in enumerate(((area, fault) for area in FAULTS for fault in FAULTS[area]), 1):
        if options.only not in (None, number) or (programs and area not in ("propagation", "gradients")):
            continue
        name, text, replacement, test = fault
        test = programs or test
        said = f"stands there {(ROOT / name).read_text().count(text)} times"
        if said == "stands there 1 times":
            said = "" if options.list or options.check else plant(name, text, replacement, test, options.build)
        planted, caught = planted + 1, caught + said.startswith("caught")
        failed |= bool(said) and not said.startswith("caught")
        if said or not options.check:
            print(f"{number:2} {area:11} {name}: {text} -> {replacement} ({test}) {said}", flush=True)
    if programs:
        print(f"{caught} of {planted} caught by {programs}")
        failed = caught < 0.75 * planted
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
