// The decoder of train_transformer: how it begins, what it writes, and what is refused before the training.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <tessera/data/text.h>
#include <tessera/nn/models.h>
#include <tessera/nn/transformations.h>
#include <tessera/sharding/placement.h>

#include "examples/train/sample.h"
#include "examples/train_options.h"

namespace tessera::examples {

// Mesh and rules of a run.
MeshRules mesh_rules_of(const TrainOptions& options);

// Returns the tokenizer of a run, the bytes unless tokens are trained; none for token files.
std::optional<data::Tokenizer> tokenizer_of(const TokenOptions& tokens);
// Sets the vocabulary of a new model to the tokenizer's unless it is given.
void read_vocab(TokenOptions& tokens);
// The model as the training begins.
nn::CausalLM first_model(const TrainOptions& options, const MeshRules& mesh_rules);
// What of a model says how its step is computed, as this run's command line has it.
template <class Decoder>
void set_step_options(Decoder& decoder, const TrainOptions& options) {
  decoder.remat = options.step.remat;
  for (auto& block : decoder.layers) block.attn.context_parallelism = options.step.context;
}
void set_step_options(nn::CausalLM& model, const TrainOptions& options);
// The arrays that are trained.
nn::Filter trained_in(const TokenOptions& tokens);

// What the model writes after each prompt.
void print_samples(const nn::CausalLM& model, const data::Tokenizer& tokenizer, const TrainOptions& options);

// Errors (UsageError): a sample or a sequence that is longer than the model has positions, a sample without tokenizer,
// a folder that cannot be written to.
void check_sample(const nn::DecoderConfig& config, const std::optional<data::Tokenizer>& tokenizer,
                  const TrainOptions& options);
void check_sequence_length(const nn::DecoderConfig& config, int64_t seq);
void check_export(const std::filesystem::path& folder);

}  // namespace tessera::examples
