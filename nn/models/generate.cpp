// Draws tokens on the host, and batches rows of different lengths.
#include "nn/models/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

namespace {

using Ids = std::vector<int32_t>;

void check(const SamplingOptions& options, size_t logits) {
  const auto refuse = [](const char* option, double given, const char* expected) {
    fail(ErrorKind::invalid_argument, "sample_token", "{} = {}, expected {}.", option, given, expected);
  };
  if (logits == 0) fail(ErrorKind::invalid_argument, "sample_token", "no logits, expected one for each token.");
  if (!(options.temperature >= 0) || std::isinf(options.temperature))
    refuse("temperature", options.temperature, "a number from 0 on");
  if (options.top_k < 0) refuse("top_k", static_cast<double>(options.top_k), "1 or more, or 0 for all");
  if (!(options.top_p > 0 && options.top_p <= 1)) refuse("top_p", options.top_p, "a number above 0 and up to 1");
}

// Returns the tokens that may be drawn, the most probable first; of equally probable ones, the lower id first.
std::vector<size_t> candidates(std::span<const float> logits, const SamplingOptions& options) {
  std::vector<size_t> all(logits.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (options.top_k == 0 && options.top_p == 1) return all;
  std::stable_sort(all.begin(), all.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (options.top_k) all.resize(std::min(all.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> weights;
  for (const size_t i : all) weights.push_back(std::exp((double{logits[i]} - logits[all[0]]) / options.temperature));
  const double enough = options.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t kept = 0;
  for (double sum = 0; kept < all.size() && sum < enough; ++kept) sum += weights[kept];
  all.resize(std::max<size_t>(kept, 1));
  return all;
}

// Prompts of one batch, padded at their beginning.
struct Rows {
  int64_t longest = 0;
  Ids tokens, fillings;  // row after row; number of padding tokens of each row

  explicit Rows(const std::vector<Ids>& prompts) {
    for (const Ids& prompt : prompts) longest = std::max(longest, static_cast<int64_t>(prompt.size()));
    for (const Ids& prompt : prompts) {
      fillings.push_back(static_cast<int32_t>(longest - static_cast<int64_t>(prompt.size())));
      tokens.insert(tokens.end(), static_cast<size_t>(fillings.back()), 0);
      tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    }
  }
  int64_t number() const { return static_cast<int64_t>(fillings.size()); }

  // Returns the padded prompts, each followed by its value of every column, row after row.
  Ids followed_by(const std::vector<Ids>& columns) const {
    Ids all;
    for (size_t row = 0; row < fillings.size(); ++row) {
      const auto prompt = tokens.begin() + static_cast<int64_t>(row) * longest;
      all.insert(all.end(), prompt, prompt + longest);
      for (const Ids& column : columns) all.push_back(column[row]);
    }
    return all;
  }

  // Returns the inputs for `count` tokens after the first `done` of each row.
  DecodeInputs inputs(int64_t done, int64_t count) const {
    if (std::all_of(fillings.begin(), fillings.end(), [](int32_t n) { return n == 0; })) return {};
    const Array filled = array<int32_t>(fillings, {number(), 1});
    const Array places = expand_dims(arange(done, done + count), {0});
    const Array keys = expand_dims(arange(done + count), {0});
    return {.mask = expand_dims(keys >= filled, {1, 2}), .positions = maximum(places - filled, 0)};
  }
};

void check(const std::vector<Ids>& prompts, const GenerateOptions& options) {
  if (prompts.empty()) fail(ErrorKind::invalid_argument, "generate", "no prompts, expected one or more.");
  for (size_t i = 0; i < prompts.size(); ++i)
    if (prompts[i].empty())
      fail(ErrorKind::invalid_argument, "generate", "prompt {} is empty, expected a token or more to continue.", i);
  if (options.max_new_tokens < 0)
    fail(ErrorKind::invalid_argument, "generate", "max_new_tokens = {}, expected 0 or more.", options.max_new_tokens);
}

void check_positions(const DecoderConfig& config, int64_t prompt, int64_t max_new_tokens) {
  if (config.learned_positions && prompt + max_new_tokens - 1 > config.max_position_embeddings)
    fail(ErrorKind::invalid_argument, "generate",
         "max_new_tokens = {} after a prompt of {}, expected {} at most, for which the model has positions.",
         max_new_tokens, prompt, std::max<int64_t>(0, config.max_position_embeddings + 1 - prompt));
}

// Returns whether another token after `length` needs all keys to be rotated again: Phi-3 uses its long factors for the
// whole text, as in transformers (modeling_phi3.py, prepare_inputs_for_generation), other models for the new tokens.
bool begins_long_factors(const DecoderConfig& config, int64_t length) {
  const RotaryScaling& s = config.rope.scaling;
  return config.model_type == "phi3" && s.kind == RotaryScaling::longrope &&
         length == static_cast<int64_t>(s.original_positions);
}

bool ends(const Ids& row, const CausalLM& model, const GenerateOptions& options) {
  const Ids& last = options.eos_token_id.empty() ? model.eos_token_id : options.eos_token_id;
  if (std::find(last.begin(), last.end(), row.back()) != last.end()) return true;
  return options.stopping_criteria && options.stopping_criteria(row);
}

}  // namespace

int32_t sample_token(const Key& key, std::span<const float> logits, const SamplingOptions& options) {
  check(options, logits.size());
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }) ||
      std::all_of(logits.begin(), logits.end(), [](float x) { return std::isinf(x); }))
    fail(ErrorKind::invalid_argument, "sample_token",
         "logits that are not numbers, expected finite ones. Did the model diverge?");
  if (options.temperature == 0)
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const auto u =
      uniform(key, {static_cast<int64_t>(logits.size())}, std::numeric_limits<float>::min()).to_host<float>();
  const auto score = [&](size_t i) { return logits[i] - options.temperature * std::log(-std::log(double{u[i]})); };
  const std::vector<size_t> among = candidates(logits, options);
  return static_cast<int32_t>(
      *std::max_element(among.begin(), among.end(), [&](size_t a, size_t b) { return score(a) < score(b); }));
}

std::vector<Ids> generate(const CausalLM& model, const Key& key, const std::vector<Ids>& prompts,
                          const GenerateOptions& options) {
  check(prompts, options);
  const Rows rows(prompts);
  const auto number = prompts.size();
  check_positions(model.config, rows.longest, options.max_new_tokens);
  std::vector<Ids> written(number);
  std::vector<bool> done(number, false);
  std::vector<Ids> columns;  // the tokens after the prompts
  DecoderCache cache;
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    if (begins_long_factors(model.config, cache.length())) cache = {};
    Ids next = cache.length() == 0 ? rows.followed_by(columns) : columns.back();
    const Array ids = array<int32_t>(next, {rows.number(), static_cast<int64_t>(next.size() / number)});
    const Array logits = model.decode(ids, cache, rows.inputs(cache.length(), ids.shape(1)));
    const auto last = gather(astype(index_in_dim(logits, ids.shape(1) - 1, 1, false), float32)).to_host<float>();
    const size_t vocab = last.size() / number;
    next.assign(number, 0);
    for (size_t row = 0; row < number; ++row) {
      if (done[row]) continue;
      const Key of_token = fold_in(fold_in(key, static_cast<uint32_t>(row)), static_cast<uint32_t>(i));
      next[row] = sample_token(of_token, std::span(last).subspan(row * vocab, vocab), options.sampling);
      written[row].push_back(next[row]);
      done[row] = ends(written[row], model, options);
    }
    columns.push_back(std::move(next));
    if (std::all_of(done.begin(), done.end(), [](bool is) { return is; })) break;
  }
  return written;
}

}  // namespace tessera::nn
