// Trains a transformer on the bytes of any files, on any mesh, by any rules: train_transformer --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "examples/corpus.h"
#include "examples/metrics.h"
#include "examples/progress.h"
#include "examples/run_checkpoints.h"
#include "examples/sample.h"
#include "examples/train_options.h"
#include "examples/transformer.h"
#include "nn/placement.h"
#include "nn/transformations.h"
#include "optim/optimizer.h"
#include "sharding/accounting.h"
#include "sharding/distributed.h"
#include "sharding/placement.h"

namespace tessera::examples {
namespace {

using data::TokenBatch;

double value_of(const Array& loss) { return gather(loss).item<double>(); }

template <class Model, class Loss>
double mean_loss(const Model& model, const std::vector<TokenBatch>& batches, const Loss& loss_fn) {
  double sum = 0;
  for (const TokenBatch& batch : batches) sum += value_of(loss_fn(model, batch));
  return sum / static_cast<double>(batches.size());
}

// Where the optimizer's state is cut further, so are the gradients.
template <class Loss>
auto loss_and_gradients(const Loss& loss_fn, const StepOptions& step) {
  return nn::accumulate_gradients(loss_fn, step.micro_batches,
                                  {.borrow_gathers = step.borrow_gathers,
                                   .prefetch = static_cast<int>(step.prefetch),
                                   .shard = step.shard_state});
}

auto clipped_adamw(const TrainOptions& options) {
  return optim::chain(
      optim::clip_by_global_norm(1.0),
      optim::adamw({.learning_rate = optim::warmup_cosine_decay_schedule({.peak_value = options.learning_rate,
                                                                          .warmup_steps = options.warmup,
                                                                          .decay_steps = options.steps,
                                                                          .end_value = options.learning_rate / 10}),
                    .b2 = 0.95,
                    .weight_decay = 0.1,
                    .mask = optim::matrices_only}));
}

void check_finite(int64_t step, const char* what, double value) {
  if (std::isfinite(value)) return;
  fail(ErrorKind::other, "train",
       fmt::format("step {}: the {} is {}, expected a finite number. Lower --lr or raise --warmup.", step, what,
                   std::abs(value)));
}

template <class Model>
void print_sample(const Model& model, const TrainOptions& options) {
  const Key key = fold_in(Key(options.seed), ~0u);  // the model's own keys are the first
  fmt::print("\n{} bytes at temperature {}:\n", options.sample.bytes, options.sample.temperature);
  fmt::print("{}\n", printable(options.sample.prompt + sample(model, key, options.sample)));
}

void print_placement(const TrainOptions& options, const Layout& layout) {
  fmt::print("mesh     {} ({} devices; {})\n", layout.mesh().to_string(), layout.mesh().size(), options.placement);
  fmt::print("rules    {}; every other name is replicated\n", to_flag(options.rules));
  if (!options.step.shard_state.empty())
    fmt::print("state    of the optimizer: cut over {} as well\n", fmt::join(options.step.shard_state, "+"));
}

void print_corpus(const Corpus& corpus) {
  fmt::print("corpus   {} files, {:.3g} MB; entropy in nats per byte: unigram {:.2f}, bigram {:.2f}\n\n", corpus.files,
             static_cast<double>(corpus.bytes) / 1e6, corpus.unigram_entropy, corpus.bigram_entropy);
}

void print_resumed(int64_t done, const TrainOptions& options) {
  fmt::print("resumed  after {} of {} steps{}\n\n", done, options.steps,
             done ? "" : fmt::format(": {} has no checkpoint yet", options.save.folder));
}

void print_input(const data::LoaderStats& stats) {
  fmt::print("input    {:.0f} windows/s; steps waited for it {:.2f} % of the time, {:.1f} batches lay ready\n",
             stats.records_per_second(), 100 * stats.wait_fraction(), stats.mean_ready);
}

LossCurve curve_before_training(const TrainOptions& options, const Layout& layout, const Corpus& corpus) {
  return {.caption = fmt::format("{}; mesh {}; rules {}", options.model.name, layout.mesh().to_string(),
                                 to_flag(options.rules)),
          .steps = options.steps,
          .unigram_entropy = corpus.unigram_entropy,
          .bigram_entropy = corpus.bigram_entropy};
}

nn::Report report_before_training(const TrainOptions& options, const Layout& layout, const Corpus& corpus,
                                  const nn::PlacementTable& table) {
  const ModelOptions& model = options.model;
  return {.title = fmt::format("{}, {} blocks of width {}", model.name == "gpt" ? "GPT" : "Llama", model.layers,
                               model.embed),
          .facts = {{"mesh", layout.mesh().to_string()},
                    {"placement", options.placement},
                    {"rules", to_flag(options.rules)},
                    {"batch", fmt::format("{} windows of {} bytes", options.batch, model.seq)},
                    {"data", fmt::format("{} files, {:.3g} MB", corpus.files, static_cast<double>(corpus.bytes) / 1e6)},
                    {"precision", std::string(name_of(options.step.precision))}},
          .placement = table};
}

std::string beside_entropies(const ValidationMetrics& row, const Corpus& corpus) {
  return fmt::format("validation loss {:.3f} after {} steps; {} the bigram entropy {:.3f} (unigram {:.3f})", row.loss,
                     row.step, row.loss < corpus.bigram_entropy ? "below" : "not below", corpus.bigram_entropy,
                     corpus.unigram_entropy);
}

template <class Model, class Config>
void train(const TrainOptions& options, const Config& config) {
  const Layout layout{make_mesh(options.mesh), options.rules, {.missing_axes = MissingAxes::ok}};
  print_placement(options, layout);
  Corpus corpus = Corpus::open(options.data, {options.model.seq, options.batch, options.seed}, layout);
  print_corpus(corpus);

  auto model = nn::filter_shard(Model::init(Key(options.seed), config), layout);
  auto optimizer = optim::Optimizer(model, clipped_adamw(options), {.shard_state = options.step.shard_state});
  const auto loss_fn = next_token_loss_in<Model, TokenBatch>(options.step.precision);
  const auto loss_and_grads = loss_and_gradients(loss_fn, options.step);
  const nn::PlacementTable table = nn::placement_table(nn::named("model", model, "optimizer", optimizer));
  std::cout << table << std::endl;

  RunCheckpoints checkpoints(options.save, {corpus.bytes, options.model.seq, options.seed});
  const auto state = [&] { return nn::named_state("model", model, "optimizer", optimizer); };
  const int64_t done = checkpoints.restore(state(), corpus.training);
  model.remat = options.step.remat;
  if (options.save.resume) print_resumed(done, options);

  Metrics metrics(options.metrics, curve_before_training(options, layout, corpus),
                  report_before_training(options, layout, corpus, table), done);
  Progress progress(options.steps, options.batch, options.model.seq);
  const int64_t validate_every = (options.steps + 4) / 5;

  for (int64_t step = done + 1; step <= options.steps; ++step) {
    progress.begin_step();
    // The second step knows what the first one gathered.
    const auto ledger = step == std::min(done + 2, options.steps) ? std::make_unique<CommLedger>() : nullptr;

    const TokenBatch batch = *corpus.training.next();
    const auto [loss, grads] = loss_and_grads(model, batch);
    optimizer.update(model, grads);

    StepMetrics row{step, value_of(loss), optimizer.grad_norm().value(), optimizer.learning_rate()};
    check_finite(step, "loss", row.loss);
    check_finite(step, "norm of the gradient", row.grad_norm);
    if (ledger) {
      progress.print("One step communicates\n" + ledger->table());
      metrics.keep(ledger->records());
    }
    row.tokens_per_second = progress.end_step(step, row.loss, corpus.training.progress());
    metrics.write(row);

    const bool is_last = step == options.steps;
    if (step % validate_every == 0 || is_last) {
      const ValidationMetrics validation{step, mean_loss(model, corpus.validation, loss_fn)};
      check_finite(step, "validation loss", validation.loss);
      metrics.write(validation);
      progress.print(beside_entropies(validation, corpus));
    }
    checkpoints.save(step, is_last, state(), corpus.training);
  }
  checkpoints.wait();
  print_input(corpus.training.stats());
  if (options.sample.bytes) print_sample(model, options);
}

// Of several processes, the first prints and writes for all.
void leave_output_to_the_first(TrainOptions& options) {
  options.metrics = {};
  if (!std::freopen("/dev/null", "w", stdout))
    fail(ErrorKind::other, "train", "standard output cannot be turned off on this process.");
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;
  return tessera::run_program([&] {
    try {
      TrainOptions options = parse_options({argv + 1, argv + argc});
      if (tessera::process_index() != 0) leave_output_to_the_first(options);
      if (options.help)
        fmt::print("{}", usage());
      else if (options.model.name == "llama")
        train<Llama>(options, options.model.llama());
      else
        train<Gpt>(options, options.model.gpt());
      std::cout.flush();
      if (std::fflush(stdout) || !std::cout) throw UsageError("[train] standard output: it cannot be written to.");
      return 0;
    } catch (const UsageError& error) {
      fmt::print(stderr, "error: {}\n", error.what());
      return 2;
    }
  });
}
