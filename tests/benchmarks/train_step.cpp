// Compares a training step with the same step in plain LibTorch: every strategy, one JSON line per measurement.
//
//   train_step [--size tiny|mid|all] [--strategy NAME|all] [--threads 1|all|both] [--steps N] [--graphed-step yes|no]
//
// Ours is the program that a user writes: examples/transformer.h placed by filter_shard, value_and_grad, Optimizer with
// clip_by_global_norm and adamw, the loss read each step. All virtual devices share one CPU. Plain is plain_gpt.h. Both
// start from the same parameters and read the same batches of random tokens. The batches are made, and placed on the
// mesh, before the clock starts. Both alternate in one process, so that they run under the same load of the machine.
//
// The program ends if losses differ by more than 1e-4 in the first steps. Both use the caching CPU allocator. With
// TESSERA_DEVICE=cuda both run on that GPU. ratio = median of ours / median of plain; milliseconds; quartiles are the
// 25th and 75th percentile.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "data/batches/to_global.h"
#include "data/batches/token_batch.h"
#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/graphed_step.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/kernels.h"
#include "sharding/runtime/hardware.h"
#include "tests/benchmarks/plain_gpt.h"

namespace tessera::benchmarks {
namespace {

using data::TokenBatch;
using examples::Gpt;

// ---- sizes

struct Size {
  std::string name;
  examples::GptConfig model;
  int64_t batch, steps, turn;  // total steps, and consecutive steps in a turn
};

const std::vector<Size> sizes = {
    {"tiny", {.vocab = 256, .embed = 64, .heads = 8, .layers = 2, .seq = 32, .mlp = 4 * 64}, 16, 300, 10},
    {"mid", {.vocab = 256, .embed = 256, .heads = 8, .layers = 4, .seq = 128, .mlp = 4 * 256}, 16, 15, 1},
};

struct Strategy {
  std::string name;
  std::vector<MeshAxis> mesh;
  Rules rules;
  GradientOptions gradients = {};
  optim::OptimizerOptions optimizer = {};
};

const std::vector<Strategy> strategies = {
    {"one", {{"data", 1}}, {}},
    {"dp8", {{"data", 8}}, {{"batch", "data"}}},
    {"fsdp8", {{"data", 8}}, {{"batch", "data"}, {"embed", "data"}}},
    {"tp8", {{"model", 8}}, {{"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}}},
    {"2x4", {{"data", 2}, {"model", 4}}, {{"batch", "data"}, {"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}}},
    {"zero1", {{"data", 8}}, {{"batch", "data"}}, {.shard_gradients_over = {"data"}}, {.shard_state_over = {"data"}}},
};

constexpr PlainAdamw adamw{
    .learning_rate = 1e-3, .b1 = 0.9, .b2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0};
constexpr int64_t batches = 8, checked_steps = 5;
constexpr double tolerance = 1e-4;

// ---- ours and plain

using Tokens = std::vector<int32_t>;

// Returns the tokens of each batch: rows of seq + 1.
std::vector<Tokens> random_tokens(const Size& size) {
  std::mt19937 random(0);
  std::vector<Tokens> result(batches, Tokens(static_cast<size_t>(size.batch * (size.model.seq + 1))));
  for (Tokens& tokens : result)
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(size.model.vocab));
  return result;
}

// The device of our meshes and of plain tensors.
at::Device device() { return detail::accelerator(""); }

class Plain {
 public:
  Plain(const Size& size, const Gpt& initial)
      : model_(copies(initial), size.model.layers, size.model.heads, size.model.eps, adamw) {
    for (Tokens& tokens : random_tokens(size)) {
      const at::Tensor rows = at::tensor(tokens, at::kLong).view({size.batch, size.model.seq + 1}).to(device());
      inputs_.push_back(rows.slice(1, 0, size.model.seq).contiguous());
      targets_.push_back(rows.slice(1, 1).contiguous());
    }
  }

  double step(int64_t i) { return model_.step(inputs_[i % batches], targets_[i % batches]); }

 private:
  static std::map<std::string, at::Tensor> copies(Gpt model) {
    std::map<std::string, at::Tensor> result;
    for (const nn::Leaf& leaf : nn::leaves(model))
      result[leaf.path] = to_tensor(*leaf.value).to(device(), at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    return result;
  }

  PlainGpt model_;
  std::vector<at::Tensor> inputs_, targets_;
};

auto transform() {
  return optim::chain(optim::clip_by_global_norm(adamw.max_norm), optim::adamw({.learning_rate = adamw.learning_rate,
                                                                                .b1 = adamw.b1,
                                                                                .b2 = adamw.b2,
                                                                                .eps = adamw.eps,
                                                                                .weight_decay = adamw.weight_decay,
                                                                                .mask = optim::matrices_only}));
}

class Ours {
 public:
  Ours(const Size& size, const Strategy& strategy, bool captured)
      : mesh_rules_(make_mesh(strategy.mesh), examples::with_all_names(strategy.rules)),
        model_(nn::filter_shard(Gpt::init(Key(0), size.model), mesh_rules_)),
        gradients_(nn::value_and_grad(examples::next_token_loss<Gpt, TokenBatch>, strategy.gradients)),
        captured_(gradients_),
        is_captured_(captured),
        optimizer_(model_, transform(), strategy.optimizer) {
    for (const Tokens& tokens : random_tokens(size)) batches_.push_back(placed(tokens, size));
  }

  double step(int64_t i) {
    const TokenBatch& batch = batches_[i % batches];
    const auto [loss, grads] = is_captured_ ? captured_(model_, batch) : gradients_(model_, batch);
    optimizer_.update(model_, grads);
    return loss.item<double>();
  }

  const Gpt& model() const { return model_; }

 private:
  TokenBatch placed(const Tokens& tokens, const Size& size) const {
    Tokens inputs, targets;
    for (auto row = tokens.begin(); row != tokens.end(); row += size.model.seq + 1) {
      inputs.insert(inputs.end(), row, row + size.model.seq);
      targets.insert(targets.end(), row + 1, row + size.model.seq + 1);
    }
    TokenBatch batch;
    batch.inputs = array(inputs, {size.batch, size.model.seq});
    batch.targets = array(targets, {size.batch, size.model.seq});
    return data::from_process_local(batch, mesh_rules_);
  }

  MeshRules mesh_rules_;
  Gpt model_;
  decltype(nn::value_and_grad(examples::next_token_loss<Gpt, TokenBatch>)) gradients_;
  nn::GraphedStep<decltype(gradients_)> captured_;
  bool is_captured_;
  optim::Optimizer<Gpt, decltype(transform())> optimizer_;
  std::vector<TokenBatch> batches_;
};

// ---- measuring

// Times the steps from `first` to `last`, after a pause in which the threads of the other side go to sleep: OpenMP's
// threads spin for some milliseconds when their work is done.
template <class Side>
void take_turn(Side& side, int64_t first, int64_t last, std::vector<double>& milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int64_t step = first; step < last; ++step) {
    const auto start = std::chrono::steady_clock::now();
    side.step(step);
    milliseconds.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
}

struct Quartiles {
  double low, median, high;
};

Quartiles quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {values[n / 4], values[n / 2], values[n * 3 / 4]};
}

void check_equal(Ours& ours, Plain& plain, const Size& size, const Strategy& strategy) {
  for (int64_t step = 0; step < checked_steps; ++step) {
    const double a = ours.step(step), b = plain.step(step);
    if (!(std::abs(a - b) <= tolerance * std::abs(b)))
      throw std::runtime_error(
          fmt::format("[train_step] {} {}: the loss of step {} is {}, in plain LibTorch {}. Nothing is measured before "
                      "both compute the same.",
                      size.name, strategy.name, step, a, b));
  }
}

void measure(const Size& size, const Strategy& strategy, int threads, int64_t steps, bool captured) {
  at::set_num_threads(threads);
  Ours ours(size, strategy, captured);
  Plain plain(size, ours.model());
  check_equal(ours, plain, size, strategy);
  std::vector<double> a, b;
  const int64_t end = checked_steps + steps;
  for (int64_t step = checked_steps; step < end; step += size.turn) {
    take_turn(ours, step, std::min(step + size.turn, end), a);
    take_turn(plain, step, std::min(step + size.turn, end), b);
  }
  const Quartiles o = quartiles(a), p = quartiles(b);
  fmt::print(
      R"({{"size":"{}","strategy":"{}","captured":{},"threads":{},"ours_ms":{:.4g},"plain_ms":{:.4g},"ratio":{:.3f},)"
      R"("ours_quartiles":[{:.4g},{:.4g}],"plain_quartiles":[{:.4g},{:.4g}],"steps":{}}})"
      "\n",
      size.name, strategy.name, captured, threads, o.median, p.median, o.median / p.median, o.low, o.high, p.low,
      p.high, steps);
  std::fflush(stdout);
}

// ---- flags

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::vector<Size> sizes = benchmarks::sizes;
  std::vector<Strategy> strategies = benchmarks::strategies;
  std::vector<int> threads;
  int64_t steps = 0;  // 0: the size's own number
  bool captured = false;
};

// Returns the entry of this name, or all.
template <class Entry>
std::vector<Entry> choose(const std::vector<Entry>& all, std::string_view flag, std::string_view name) {
  if (name == "all") return all;
  std::string known;
  for (const Entry& entry : all) {
    if (entry.name == name) return {entry};
    known += entry.name + ", ";
  }
  throw UsageError(fmt::format("[command line] {}: \"{}\" given, expected {}or all.", flag, name, known));
}

std::vector<int> choose_threads(std::string_view name) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (name == "1") return {1};
  if (name == "all") return {all};
  if (name == "both") return {1, all};
  throw UsageError(fmt::format("[command line] --threads: \"{}\" given, expected 1, all or both.", name));
}

int64_t positive(std::string_view flag, std::string_view text) {
  int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size() || value < 1 || value > 1'000'000)
    throw UsageError(
        fmt::format("[command line] {}: \"{}\" given, expected a whole number from 1 to 1000000.", flag, text));
  return value;
}

Options parse_options(const std::vector<std::string_view>& arguments) {
  Options options{.threads = choose_threads("both")};
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view flag = arguments[i];
    const bool known = flag == "--size" || flag == "--strategy" || flag == "--threads" || flag == "--steps" ||
                       flag == "--graphed-step";
    if (!known)
      throw UsageError(fmt::format(
          "[command line] {}: unknown, expected --size, --strategy, --threads, --steps or --graphed-step.", flag));
    if (i + 1 == arguments.size()) throw UsageError(fmt::format("[command line] {}: its value is missing.", flag));
    const std::string_view value = arguments[i + 1];
    if (flag == "--size") options.sizes = choose(sizes, flag, value);
    if (flag == "--strategy") options.strategies = choose(strategies, flag, value);
    if (flag == "--threads") options.threads = choose_threads(value);
    if (flag == "--graphed-step") options.captured = value == "yes";
    if (flag == "--steps") options.steps = positive(flag, value);
  }
  return options;
}

void run(const Options& options) {
  for (const int threads : options.threads)
    for (const Size& size : options.sizes)
      for (const Strategy& strategy : options.strategies)
        measure(size, strategy, threads, options.steps ? options.steps : size.steps, options.captured);
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) {
  using namespace tessera::benchmarks;
  tessera::use_caching_cpu_allocator();
  try {
    run(parse_options({argv + 1, argv + argc}));
    return 0;
  } catch (const UsageError& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
