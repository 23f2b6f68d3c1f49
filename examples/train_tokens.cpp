// Makes the model, prints samples, and rejects runs whose results would be lost.
#include "examples/train_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include <tessera/nn/placement.h>
#include <tessera/sharding/files.h>
#include <tessera/sharding/runtime.h>

namespace tessera::examples {

using namespace tessera::train;

// ---- the model

namespace {

int64_t default_kv_heads(int64_t heads) {
  int64_t kv_heads = std::max<int64_t>(1, heads / 4);
  while (heads % kv_heads) --kv_heads;
  return kv_heads;
}

}  // namespace

nn::DecoderConfig ModelOptions::decoder(int64_t vocab_size, bool is_of_bytes) const {
  const bool is_gpt = name == "gpt", is_mixtral = name == "mixtral";
  return {.model_type = is_gpt       ? "gpt2"
                        : is_mixtral ? "mixtral"
                                     : "llama",
          .vocab_size = vocab_size,
          .hidden_size = embed,
          .num_hidden_layers = layers,
          .num_attention_heads = heads,
          .num_key_value_heads = is_gpt         ? heads
                                 : kv_heads > 0 ? kv_heads
                                                : default_kv_heads(heads),
          .head_dim = embed / heads,
          .intermediate_size = mlp > 0  ? mlp
                               : is_gpt ? 4 * embed
                                        : (8 * embed / 3 + 31) / 32 * 32,
          .max_position_embeddings = seq,
          .norm = is_gpt ? nn::NormKind::layer : nn::NormKind::rms,
          .rms_norm_eps = 1e-5,
          .hidden_act = {is_gpt ? nn::Activation::gelu : nn::Activation::silu},
          .gated_mlp = !is_gpt,
          .learned_positions = is_gpt,
          .attention_bias = is_gpt,
          .output_bias = is_gpt,
          .mlp_bias = is_gpt,
          .tie_word_embeddings = !(is_gpt && is_of_bytes),
          .num_local_experts = is_mixtral ? experts : 0,
          .num_experts_per_tok = is_mixtral ? 2 : 0};
}

MeshRules mesh_rules_of(const TrainOptions& options) {
  Rules rules;
  // A gpt of bytes has one name for its heads and for their keys and values, and one for rows and positions.
  if (options.model.name == "gpt" && !options.tokens.used() && !options.automatic.is_on)
    for (Rule rule : options.rules) {
      if (rule.logical != "heads" && rule.logical != "seq") continue;
      rule.logical = rule.logical == "heads" ? "kv_heads" : "positions";
      rules.push_back(rule);
    }
  rules.insert(rules.end(), options.rules.begin(), options.rules.end());
  return {make_mesh(options.mesh), rules, {.missing_axes = MissingAxes::ok}};
}

std::optional<data::Tokenizer> tokenizer_of(const TokenOptions& tokens) {
  if (!tokens.used()) return data::Tokenizer::bytes();
  return tokens.tokenizer.empty() ? std::nullopt : std::optional(data::Tokenizer::open(tokens.tokenizer));
}

std::optional<data::ChatTemplate> chat_template_of(const TokenOptions& tokens) {
  if (!tokens.chat) return std::nullopt;
  return data::ChatTemplate::open(tokens.from.empty() ? tokens.tokenizer : tokens.from);
}

void read_vocab(TokenOptions& tokens) {
  if (tokens.used() && tokens.vocab == 0 && tokens.from.empty()) tokens.vocab = tokenizer_of(tokens)->vocab_size();
}

nn::CausalLM first_model(const TrainOptions& options, const MeshRules& mesh_rules) {
  const TokenOptions& tokens = options.tokens;
  nn::CausalLM model;
  if (tokens.from.empty()) {
    const nn::DecoderConfig config = options.model.decoder(tokens.used() ? tokens.vocab : byte_values, !tokens.used());
    model = nn::filter_shard(nn::CausalLM::init(Key(options.seed), config), mesh_rules);
  } else {
    nn::PretrainedOptions pretrained;
    if (!tokens.adapter.empty()) pretrained.adapter = tokens.adapter;
    model = nn::from_pretrained(tokens.from, mesh_rules, pretrained);
    if (tokens.lora) model = nn::with_lora(Key(options.seed), model, {.rank = tokens.lora});
  }
  set_step_options(model, options);
  return model;
}

void set_step_options(nn::CausalLM& model, const TrainOptions& options) {
  model.remat = options.step.remat;
  model.set_context_parallelism(options.step.context);
  if (const double coef = options.tokens.router_aux_loss_coef; coef > 0) model.set_router_aux_loss_coef(coef);
}

nn::Filter trained_in(const TokenOptions& tokens) {
  return tokens.lora ? nn::Filter(nn::is_trainable) && nn::by_path("**.lora.**") : nn::Filter(nn::is_trainable);
}

// ---- samples

namespace {

std::vector<std::vector<int32_t>> prompts_of(const TrainOptions& options, const data::Tokenizer& tokenizer,
                                             const std::optional<data::ChatTemplate>& chat) {
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& prompt : options.prompts) {
    const std::string text = chat ? chat->render({{"user", prompt}}, {.add_generation_prompt = true}) : prompt;
    prompts.push_back(tokenizer.encode(text, {.add_special_tokens = !chat}).ids);
  }
  return prompts;
}

}  // namespace

void print_samples(const nn::CausalLM& model, const data::Tokenizer& tokenizer, const TrainOptions& options) {
  const SampleOptions& sample = options.sample;
  nn::GenerateOptions generate{.max_new_tokens = sample.length, .sampling = sample.sampling};
  if (const auto end = tokenizer.token_to_id(options.tokens.end_of_text)) generate.eos_token_id = {*end};
  std::string stop = sample.stop;
  const auto chat = chat_template_of(options.tokens);
  if (chat) {
    const std::string end = chat->end_of_turn();
    const auto ids = tokenizer.encode(end, {.add_special_tokens = false}).ids;
    if (!ids.empty() && tokenizer.decode({&ids.front(), 1}).empty())  // a special token
      generate.eos_token_id = {ids.front()};
    else if (stop.empty())
      stop = end;
  }
  if (!stop.empty())
    generate.stopping_criteria = [&](std::span<const int32_t> written) {
      return tokenizer.decode(written).find(stop) != std::string::npos;
    };
  const auto prompts = prompts_of(options, tokenizer, chat);
  // Models of bytes have learned only as many positions as a row has.
  const int64_t window = options.tokens.used() ? nn::max_decoder_size : options.model.seq;
  const Key first = fold_in(Key(options.seed), ~0u);  // the model's own keys begin at 0
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Key key = i ? fold_in(first, static_cast<uint32_t>(i)) : first;
    const std::string text = tokenizer.decode(train::sample(model, key, prompts[i], generate, window));
    fmt::print("\n{} {}s at temperature {}:\n{}\n", sample.length, options.tokens.used() ? "token" : "byte",
               sample.sampling.temperature, printable(options.prompts[i] + (options.tokens.chat ? "\n" : "") + text));
  }
}

// ---- checks

void check_sample(const nn::DecoderConfig& config, const std::optional<data::Tokenizer>& tokenizer,
                  const TrainOptions& options) {
  const SampleOptions& sample = options.sample;
  if (!sample.length) return;
  if (!tokenizer) throw UsageError("[command line] --sample: no tokenizer for its prompt. Give --tokenizer too.");
  int64_t prompt = 0;
  for (const auto& ids : prompts_of(options, *tokenizer, chat_template_of(options.tokens)))
    prompt = std::max(prompt, static_cast<int64_t>(ids.size()));
  if (options.tokens.used() && config.learned_positions && prompt + sample.length > config.max_position_embeddings)
    throw UsageError(
        fmt::format("[command line] --sample: {} tokens after a prompt of {}, expected {} at most, for "
                    "which the model has positions.",
                    sample.length, prompt, config.max_position_embeddings - prompt));
}

void check_sequence_length(const nn::DecoderConfig& config, int64_t seq) {
  if (config.learned_positions && seq > config.max_position_embeddings)
    throw UsageError(
        fmt::format("[command line] --seq: {} given, expected {} at most, for which the model has positions.", seq,
                    config.max_position_embeddings));
}

// Checks that the trained model can be written; otherwise the training would be lost.
void check_export(const std::filesystem::path& folder, const std::filesystem::path& from, bool resumes) {
  if (folder.empty()) return;
  std::error_code error;
  if (equivalent(folder, from, error))
    throw UsageError(
        fmt::format("[command line] --export: {}: it is also the folder of --from. Give another.", folder.string()));
  const auto refuse = [&](const char* why) {
    throw UsageError(fmt::format("[command line] --export: {}: {}. Give another.", folder.string(), why));
  };
  const bool is_there = exists(folder, error);
  if (is_there && !is_directory(folder, error)) refuse("it is not a folder");
  if (is_there && !resumes && !is_empty(folder, error)) refuse("it is not an empty folder");
  if (process_index() != 0) return;
  auto above = absolute(folder);  // the folder, or the one in which it will be made
  for (; !exists(above, error); above = above.parent_path()) {
    if (error) refuse(error.message().c_str());
    if (is_symlink(above, error)) refuse("a link leads nowhere");
  }
  if (!is_directory(above, error)) refuse("a folder above it is a file");
  check_writable_folder(above, "export");
}

}  // namespace tessera::examples
