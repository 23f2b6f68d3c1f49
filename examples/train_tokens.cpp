// The model, its prompts, and what is refused before a training that would be for nothing.
#include "examples/train_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include <tessera/nn/placement.h>

namespace tessera::examples {

using namespace tessera::train;

MeshRules mesh_rules_of(const TrainOptions& options) {
  return {make_mesh(options.mesh), options.rules, {.missing_axes = MissingAxes::ok}};
}

void read_vocab(TokenOptions& tokens) {
  if (tokens.vocab == 0 && tokens.from.empty() && !tokens.tokenizer.empty())
    tokens.vocab = data::Tokenizer::open(tokens.tokenizer).vocab_size();
}

nn::CausalLM first_model(const TrainOptions& options, const MeshRules& mesh_rules) {
  const TokenOptions& tokens = options.tokens;
  nn::CausalLM model;
  if (tokens.from.empty()) {
    model = nn::filter_shard(nn::CausalLM::init(Key(options.seed), options.model.decoder(tokens.vocab)), mesh_rules);
  } else {
    model = nn::from_pretrained(tokens.from, mesh_rules);
    if (tokens.lora) model = nn::with_lora(Key(options.seed), model, {.rank = tokens.lora});
  }
  set_step_options(model, options);
  return model;
}

void set_step_options(nn::CausalLM& model, const TrainOptions& options) {
  std::visit([&](auto& decoder) { set_step_options(decoder, options); }, model.decoder);
  if (const double coef = options.tokens.router_aux_loss_coef; coef > 0) model.set_router_aux_loss_coef(coef);
}

nn::Filter trained_in(const TokenOptions& tokens) {
  return tokens.lora ? nn::Filter(nn::is_trainable) && nn::by_path("**.lora.**") : nn::Filter(nn::is_trainable);
}

// ---- what it writes

void print_sample(const std::string& prompt, const std::string& text, const char* symbol,
                  const SampleOptions& options) {
  fmt::print("\n{} {}s at temperature {}:\n", options.length, symbol, options.sampling.temperature);
  fmt::print("{}\n", printable(prompt + text));
}

// The model's own keys are the first.
Key key_of_sample(const TrainOptions& options) { return fold_in(Key(options.seed), ~0u); }

namespace {

std::vector<std::vector<int32_t>> prompts_of(const TrainOptions& options, const data::Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& prompt : options.prompts) prompts.push_back(tokenizer.encode(prompt).ids);
  return prompts;
}

}  // namespace

void print_samples(const nn::CausalLM& model, const data::Tokenizer& tokenizer, const TrainOptions& options,
                   const char* symbol) {
  const SampleOptions& sample = options.sample;
  const auto has_stop = [&](std::span<const int32_t> written) {
    return !sample.stop.empty() && tokenizer.decode(written).find(sample.stop) != std::string::npos;
  };
  std::vector<int32_t> ends;
  if (const auto end = tokenizer.token_to_id(options.tokens.end_of_text)) ends.push_back(*end);
  const auto written = nn::generate(model, key_of_sample(options), prompts_of(options, tokenizer),
                                    {.max_new_tokens = sample.length,
                                     .sampling = sample.sampling,
                                     .eos_token_id = ends,
                                     .stopping_criteria = has_stop});
  for (size_t i = 0; i < written.size(); ++i)
    print_sample(options.prompts[i], tokenizer.decode(written[i]), symbol, sample);
}

// ---- what is refused

void check_sample(const nn::DecoderConfig& config, const std::optional<data::Tokenizer>& tokenizer,
                  const TrainOptions& options) {
  const SampleOptions& sample = options.sample;
  if (!sample.length) return;
  if (!tokenizer) throw UsageError("[command line] --sample: no tokenizer for its prompt. Give --tokenizer too.");
  int64_t prompt = 0;
  for (const auto& ids : prompts_of(options, *tokenizer)) prompt = std::max(prompt, static_cast<int64_t>(ids.size()));
  if (config.family == nn::DecoderFamily::gpt2 && prompt + sample.length > config.max_position_embeddings)
    throw UsageError(
        fmt::format("[command line] --sample: {} tokens after a prompt of {}, expected {} at most, for "
                    "which the model has positions.",
                    sample.length, prompt, config.max_position_embeddings - prompt));
}

void check_sequence_length(const nn::DecoderConfig& config, int64_t seq) {
  if (config.family == nn::DecoderFamily::gpt2 && seq > config.max_position_embeddings)
    throw UsageError(
        fmt::format("[command line] --seq: {} given, expected {} at most, for which the model has positions.", seq,
                    config.max_position_embeddings));
}

// What was trained would be lost if it could not be written.
void check_export(const std::filesystem::path& folder) {
  if (folder.empty()) return;
  std::error_code error;
  if (exists(folder, error) && !(is_directory(folder, error) && is_empty(folder, error)))
    throw UsageError(fmt::format("[command line] --export: {}: it is there and not an empty folder. Give another.",
                                 folder.string()));
  create_directories(folder, error);
  if (error) throw UsageError(fmt::format("[command line] --export: {}: {}.", folder.string(), error.message()));
}

}  // namespace tessera::examples
