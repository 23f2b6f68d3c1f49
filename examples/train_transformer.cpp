// Trains a transformer on the bytes or tokens of files, with any mesh and rules: see train_transformer --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include <tessera/data/text.h>
#include <tessera/nn/models.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/report.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/kernels.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/runtime.h>

#include "examples/chosen_strategy.h"
#include "examples/corpus.h"
#include "examples/tokenize_files.h"
#include "examples/train/failed_steps.h"
#include "examples/train/metrics.h"
#include "examples/train/progress.h"
#include "examples/train/run_checkpoints.h"
#include "examples/train/sample.h"
#include "examples/train_options.h"
#include "examples/train_tokens.h"
#include "examples/transformer.h"

namespace tessera::examples {
namespace {

using namespace tessera::train;
using data::PackedTokens;

double value_of(const Array& loss) { return gather(loss).item<double>(); }

// Returns a batch of zeros of the run's size.
PackedTokens any_rows(const TrainOptions& options) {
  PackedTokens batch;
  for (NamedArray* ids : {&batch.inputs, &batch.targets, &batch.segment_ids, &batch.positions})
    *ids = zeros({options.batch, options.model.seq}, int32);
  const int64_t segments = options.tokens.used() ? max_segments_of(options.model.seq) : options.model.seq;
  batch.segment_starts = zeros({options.batch, segments}, int32);
  batch.weights = zeros({options.batch, options.model.seq}, float32);
  return batch;
}

// Returns the loss function: the mean over tokens, in float32 for any dtype of the model. If each row is one document,
// attention needs no segments. A perplexity excludes the balance loss of routers. Bytes have few logits: all are stored.
template <bool of_bytes = false>
auto loss_in(const TrainOptions& options, bool is_packed, bool is_balanced = true) {
  return [dtype = options.step.precision, is_packed, is_balanced]<class Model>(const Model& model,
                                                                               const PackedTokens& batch) {
    if constexpr (of_bytes) {
      return next_token_loss_in<Model, PackedTokens>(dtype)(model, batch);
    } else {
      nn::CausalLM cast = dtype == float32 ? model : nn::cast(model, dtype);
      if (!is_balanced) cast.set_router_aux_loss_coef(0);
      if (!is_packed) return cast.loss(batch.inputs, batch.targets);
      return cast.loss(batch.inputs, batch.targets, batch.weights,
                       {.positions = batch.positions, .segment_starts = batch.segment_starts});
    }
  };
}

WeightedSum weighted(const WeightedSum& loss) { return loss; }
WeightedSum weighted(const Array& mean) { return {mean, ones({})}; }  // batches of bytes have one size

// Returns the mean loss over the batches. All processes must call it.
template <class Model, class Loss>
double mean_loss(const Model& model, const std::vector<PackedTokens>& batches, const Loss& loss_fn) {
  double sum = 0, weight = 0;
  for (const PackedTokens& batch : batches) {
    const WeightedSum loss = weighted(loss_fn(model, batch));
    sum += value_of(loss.sum), weight += value_of(loss.weight);
  }
  return sum / weight;
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

// Runs one step. If failed steps are kept, it is checked before the update, so that the model stays unchanged.
template <class Model, class Gradients, class Optimizer>
StepMetrics take_step(int64_t step, Model& model, const PackedTokens& batch, const Gradients& loss_and_grads,
                      Optimizer& optimizer, bool is_kept) {
  auto [loss, grads] = loss_and_grads(model, batch);
  if (is_kept) check_step(step, value_of(loss), value_of(optim::global_norm(grads)));
  optimizer.update(model, std::move(grads));
  const StepMetrics row{step, value_of(loss), optimizer.grad_norm().value(), optimizer.learning_rate()};
  check_step(step, row.loss, row.grad_norm);
  return row;
}

void print_placement(const TrainOptions& options, const MeshRules& mesh_rules) {
  fmt::print("mesh     {} ({} devices; {})\n", mesh_rules.mesh().to_string(), mesh_rules.mesh().size(),
             options.placement);
  fmt::print("rules    {}; every other name is replicated\n", to_flag(options.rules));
  if (options.step.schedule)
    fmt::print("stages   {} micro-batches, {}\n", options.step.num_micro_batches, nn::name_of(*options.step.schedule));
  if (!options.step.shard_state_over.empty())
    fmt::print("state    of the optimizer: sharded over {} as well\n", fmt::join(options.step.shard_state_over, "+"));
}

std::string size_of(const Corpus& corpus) {
  if (corpus.symbol == "byte") return fmt::format("{:.3g} MB", static_cast<double>(corpus.size) / 1e6);
  return fmt::format("{} documents", corpus.size);
}

void print_corpus(const Corpus& corpus) {
  fmt::print("corpus   {} files, {}; entropy in nats per {}: unigram {:.2f}, bigram {:.2f}\n\n", corpus.files,
             size_of(corpus), corpus.symbol, corpus.unigram_entropy, corpus.bigram_entropy);
  if (corpus.dropped_turns.value_or(0))
    fmt::print("dropped  {} turns of the first conversations, which are longer than a row; --seq sets its length\n\n",
               *corpus.dropped_turns);
}

void print_resumed(int64_t done, const TrainOptions& options) {
  fmt::print("resumed  after {} of {} steps{}\n\n", done, options.steps,
             done ? "" : fmt::format(": {} has no checkpoint yet", options.save.folder));
}

void print_input(const data::LoaderStats& stats) {
  fmt::print("input    {:.0f} windows/s; steps waited for it {:.2f} % of the time, {:.1f} batches were ready\n",
             stats.records_per_second(), 100 * stats.wait_fraction(), stats.mean_ready);
}

std::string title_of(const TrainOptions& options) {
  const ModelOptions& model = options.model;
  if (!options.tokens.from.empty()) return options.tokens.from;
  return fmt::format("{}, {} blocks of width {}", model.title(), model.layers, model.embed);
}

nn::Report report_before_training(const TrainOptions& options, const MeshRules& mesh_rules, const Corpus& corpus,
                                  const nn::PlacementTable& table) {
  return {.title = title_of(options),
          .facts = {{"mesh", mesh_rules.mesh().to_string()},
                    {"placement", options.placement},
                    {"rules", to_flag(options.rules)},
                    {"batch", fmt::format("{} rows of {} {}s", options.batch, options.model.seq, corpus.symbol)},
                    {"data", fmt::format("{} files, {}", corpus.files, size_of(corpus))},
                    {"precision", std::string(name_of(options.step.precision))}},
          .placement = table};
}

std::string beside_entropies(const ValidationMetrics& row, const Corpus& corpus) {
  const std::string perplexity =
      corpus.symbol == "token" ? fmt::format(" (perplexity {:.4g})", std::exp(row.loss)) : "";
  // The entropies are of all tokens, also of those that are not learned.
  if (corpus.dropped_turns)
    return fmt::format("validation loss {:.3f}{} after {} steps", row.loss, perplexity, row.step);
  return fmt::format("validation loss {:.3f}{} after {} steps; {} the bigram entropy {:.3f} (unigram {:.3f})", row.loss,
                     perplexity, row.step, row.loss < corpus.bigram_entropy ? "below" : "not below",
                     corpus.bigram_entropy, corpus.unigram_entropy);
}

// Returns a text that depends on the tokenizer and the options that determine the tokens.
std::string mark_of(const TokenOptions& tokens) {
  if (tokens.tokenizer.empty()) return "";
  const std::string field = tokens.text_field == "text" ? "" : " " + tokens.text_field;
  return fmt::format("{:016x} {}{}{}", mark_of_tokenizer(tokens.tokenizer), tokens.end_of_text, field,
                     tokens.chat ? " chat" : "");
}

// Whether to count a step's operations for more than a file of metrics; this runs a step on an abstract mesh.
bool counts_operations(const TrainOptions& options) {
  return options.profile.flops_per_second > 0 || !options.profile.folder.empty();
}

void set_speed(StepMetrics& row, double flops, const TrainOptions& options) {
  row.flops_per_second = flops * row.tokens_per_second / static_cast<double>(options.batch * options.model.seq);
  if (options.profile.flops_per_second > 0) row.mfu = row.flops_per_second / options.profile.flops_per_second;
}

// Runs the training loop. `trained` selects the arrays of the model that have gradients. Returns whether all steps are
// done; a signal can stop the run earlier.
template <class Model, class Loss, class Transform>
bool train(const TrainOptions& options, const MeshRules& mesh_rules, Corpus& corpus, Model& model, const Loss& loss_fn,
           const Loss& validation_loss, const Transform& transform, const nn::Filter& trained) {
  print_corpus(corpus);
  auto optimizer = optim::Optimizer(model, transform, {.shard_state_over = options.step.shard_state_over});
  const auto loss_and_grads = loss_and_gradients(loss_fn, trained, options.step);
  nn::GraphedStep graphed(loss_and_grads);
  const auto gradients = [&](auto&... x) { return options.step.graphed_step ? graphed(x...) : loss_and_grads(x...); };
  const nn::PlacementTable table = nn::placement_table(nn::named("model", model, "optimizer", optimizer));
  std::cout << table << std::endl;

  RunCheckpoints checkpoints(options.save, {corpus.size, options.model.seq, options.seed, mark_of(options.tokens)});
  const auto state = [&] { return nn::named_state("model", model, "optimizer", optimizer); };
  const int64_t done = checkpoints.restore(state(), corpus.training);
  set_step_options(model, options);  // a checkpoint has the options of the run that saved it
  if (options.save.resume) print_resumed(done, options);
  const FailedSteps failed_steps(options.keep_failed_step, options.arguments);
  Metrics metrics(options.metrics, {options.steps, corpus.unigram_entropy, corpus.bigram_entropy},
                  report_before_training(options, mesh_rules, corpus, table), done);
  Progress progress(options.steps, options.batch, options.model.seq);
  StepProfile profile(options.profile, done + 1, options.steps);
  const int64_t validate_every = (options.steps + 4) / 5;
  double flops = 0;  // FLOPs of one device in a step
  bool is_stopped = false;

  for (int64_t step = done + 1; step <= options.steps && !is_stopped; ++step) {
    progress.begin_step();
    profile.begin_step(step, flops);
    // The second step uses the gather order that the first one has learned.
    const auto ledger = step == std::min(done + 2, options.steps) ? std::make_unique<CommLedger>() : nullptr;

    const StepScope current(step);
    PackedTokens batch = *corpus.training.next();
    StepMetrics row;
    failed_steps.watch(
        step, [&] { return nn::named_state("model", model, "optimizer", optimizer, "batch", batch); },
        [&] { row = take_step(step, model, batch, gradients, optimizer, failed_steps.keeps()); });
    const auto measured = profile.end_step(step);
    if (ledger) {
      progress.print("One step communicates\n" + ledger->to_text());
      metrics.keep(ledger->records());
    }
    row.tokens_per_second = progress.end_step(step, row.loss, corpus.training.progress());
    set_speed(row, flops, options);
    row.peak_bytes = nn::peak_bytes(mesh_rules.mesh());
    metrics.write(row);
    if (measured) {
      progress.print(measured->to_text(/*max_rows=*/8));
      metrics.keep(*measured);
    }
    if (step == done + 1) {
      if (metrics.has_rows() || counts_operations(options)) flops = nn::flops_per_device(loss_and_grads, model, batch);
      if (metrics.has_page()) metrics.keep(nn::activation_summary(loss_and_grads, model, batch));
      progress.show_utilization(flops, options.profile.flops_per_second);
    }

    const bool is_last = step == options.steps;
    is_stopped = checkpoints.is_stopped() && !is_last;
    if (step % validate_every == 0 || is_last) {
      const ValidationMetrics validation{step, mean_loss(model, corpus.validation, validation_loss)};
      check_finite(step, "validation loss", validation.loss);
      metrics.write(validation);
      progress.print(beside_entropies(validation, corpus));
    }
    if (checkpoints.is_due(step, is_last || is_stopped)) {
      metrics.sync();
      checkpoints.save(step, state(), corpus.training.state());
    }
    if (is_stopped) progress.print(fmt::format("stopped by a signal after {} steps; --resume continues", step));
  }
  checkpoints.wait();
  print_input(corpus.training.stats());
  fmt::print("memory   {:.0f} MB at most in this process\n",
             1e-6 * static_cast<double>(nn::peak_bytes(mesh_rules.mesh())));
  return !is_stopped;
}

// Runs the kept step, with its batch.
template <class Model, class Loss, class Transform>
void replay(const TrainOptions& options, const MeshRules& mesh_rules, Model& model, const Loss& loss_fn,
            const Transform& transform, const nn::Filter& trained) {
  auto optimizer = optim::Optimizer(model, transform);
  PackedTokens batch = data::from_process_local(any_rows(options), mesh_rules);
  const int64_t step =
      nn::restore(options.replay, nn::named_state("model", model, "optimizer", optimizer, "batch", batch)).step;
  const DetectNonFinite checks;
  const StepScope current(step);
  const StepMetrics row =
      take_step(step, model, batch, loss_and_gradients(loss_fn, trained, options.step), optimizer, /*is_kept=*/true);
  fmt::print("step {} does not fail here: loss {}, norm of the gradient {}\n", step, row.loss, row.grad_norm);
}

// Writes the file of --export-gguf, with a suffix to its name, in the precision of the computation.
void export_gguf(const nn::CausalLM& model, const TrainOptions& options, const std::string& suffix = "") {
  const TokenOptions& tokens = options.tokens;
  if (tokens.export_gguf.empty()) return;
  const auto tokenizer =
      tokens.tokenizer.empty() ? std::nullopt : std::optional<std::filesystem::path>(tokens.tokenizer);
  nn::save_gguf(tokens.export_gguf + suffix, nn::merge_lora(model),
                {.dtype = options.step.precision, .tokenizer = tokenizer});
  if (!suffix.empty() && process_index() == 0) std::filesystem::remove(tokens.export_gguf + suffix);
}

// Returns the exit status.
int train(const TrainOptions& options, const MeshRules& mesh_rules) {
  const TokenOptions& tokens = options.tokens;
  const auto tokenizer = tokenizer_of(tokens);
  nn::CausalLM model = first_model(options, mesh_rules);
  check_sample(model.config, tokenizer, options);
  check_sequence_length(model.config, options.model.seq);
  const auto from = tokens.from.empty() ? std::nullopt : std::optional<std::filesystem::path>(tokens.from);
  check_export(tokens.export_to, tokens.from, options.save.resume);  // an error must not come after the training
  if (!tokens.export_to.empty()) nn::check_save_pretrained(tokens.export_to, nn::merge_lora(model), from);
  if (!tokens.export_gguf.empty()) nn::check_gguf_path(tokens.export_gguf);
  export_gguf(model, options, ".untrained");
  bool is_done = false;
  const auto run = [&]<bool of_bytes>(std::bool_constant<of_bytes>, const auto& transform, const nn::Filter& trained) {
    if (!options.replay.empty())
      return replay(options, mesh_rules, model, loss_in<of_bytes>(options, tokens.used()), transform, trained);
    const CorpusOptions rows{options.model.seq, options.batch, options.seed};
    Corpus corpus = tokens.used() ? open_tokens(options.data,
                                                {.rows = rows,
                                                 .tokenizer = tokenizer,
                                                 .chat = chat_template_of(tokens),
                                                 .end_of_text = tokens.end_of_text,
                                                 .text_field = tokens.text_field,
                                                 .eval = tokens.eval,
                                                 .vocab = model.config.vocab_size},
                                                mesh_rules)
                                  : open_bytes(options.data, rows, mesh_rules);
    const auto loss = loss_in<of_bytes>(options, corpus.is_packed),
               validation_loss = loss_in<of_bytes>(options, corpus.is_packed, false);
    is_done = train(options, mesh_rules, corpus, model, loss, validation_loss, transform, trained);
  };
  if (tokens.used())
    run(std::false_type(), optim::masked(clipped_adamw(options), trained_in(tokens)), trained_in(tokens));
  else
    run(std::true_type(), clipped_adamw(options), nn::is_trainable);
  if (!options.replay.empty()) return 0;
  if (!is_done) {
    finalize();  // waits for the others, as an exit with status 0 does
    return restart_status;
  }
  if (!tokens.export_to.empty()) nn::save_pretrained(tokens.export_to, nn::merge_lora(model), from);
  export_gguf(model, options);
  if (options.sample.length) print_samples(model, *tokenizer, options);
  return 0;
}

// Returns the step for which --strategy auto searches strategies.
nn::PipelineStep step_of(const TrainOptions& options) {
  const nn::Filter trained = trained_in(options.tokens);
  return step_for_strategies(
      options.step, [=](const MeshRules& mesh_rules) { return first_model(options, mesh_rules); }, any_rows(options),
      loss_in(options, options.tokens.used()), optim::masked(clipped_adamw(options), trained), trained);
}

int train(TrainOptions options) {
  read_vocab(options.tokens);
  if (options.automatic.is_on) choose_strategy(step_of(options), options);
  const MeshRules mesh_rules = mesh_rules_of(options);
  print_placement(options, mesh_rules);
  return train(options, mesh_rules);
}

// Runs a kept step as its run did, except for mesh and rules, and without its other outputs.
void replay(const std::string& folder) {
  const KeptStep kept = read_kept_step(folder);
  TrainOptions options = parse_options(kept.arguments);
  read_vocab(options.tokens);
  options.replay = folder;
  options.rules = with_all_names({});
  options.step.shard_state_over = {};
  options.sample.length = 0;
  options.tokens.export_to = options.tokens.export_gguf = {};
  fmt::print("replays  step {} alone, on one device; it failed with\n         {}\n", kept.number,
             train::printable(kept.error));
  std::fflush(stdout);
  const MeshRules mesh_rules{make_mesh({{"data", 1}}), options.rules, {.missing_axes = MissingAxes::ok}};
  train(options, mesh_rules);
}

// Silences all processes but the first, which prints and writes for all.
void leave_output_to_the_first(TrainOptions& options) {
  options.metrics = {};
  if (!std::freopen("/dev/null", "w", stdout))
    fail(ErrorKind::other, "train", "standard output cannot be turned off on this process.");
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;
  tessera::use_caching_cpu_allocator();
  std::signal(SIGPIPE, SIG_IGN);  // a pipe of --metrics whose reader has ended is an error, not the end of the run
  return tessera::run_program([&] {
    try {
      TrainOptions options = parse_options({argv + 1, argv + argc});
      if (tessera::process_index() != 0) leave_output_to_the_first(options);
      int status = 0;
      if (options.help)
        fmt::print("{}", usage());
      else if (!options.replay.empty())
        replay(options.replay);
      else
        status = train(options);
      std::cout.flush();
      if (std::fflush(stdout) || !std::cout) throw UsageError("[train] standard output: it cannot be written to.");
      return status;
    } catch (const UsageError& error) {
      fmt::print(stderr, "error: {}\n", error.what());
      return 2;
    }
  });
}
