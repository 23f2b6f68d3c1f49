// The decoder of train_transformer: its initialization, its samples, and checks before the training.
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

// Returns the mesh rules of a run.
MeshRules mesh_rules_of(const TrainOptions& options);

// Returns the tokenizer of a run; the byte tokenizer unless tokens are trained; nullopt for token files.
std::optional<data::Tokenizer> tokenizer_of(const TokenOptions& tokens);
// Returns the chat template in --from, else in --tokenizer; nullopt without --chat.
std::optional<data::ChatTemplate> chat_template_of(const TokenOptions& tokens);
// Sets the vocabulary of a new model to the tokenizer's unless it is given.
void read_vocab(TokenOptions& tokens);
// Returns the model before the training.
nn::CausalLM first_model(const TrainOptions& options, const MeshRules& mesh_rules);
// Sets the options of a model that determine how a step is computed, from this run's command line.
void set_step_options(nn::CausalLM& model, const TrainOptions& options);
// Selects the arrays that are trained.
nn::Filter trained_in(const TokenOptions& tokens);

// Prints a sample after each prompt.
void print_samples(const nn::CausalLM& model, const data::Tokenizer& tokenizer, const TrainOptions& options);

// Errors (UsageError): a sample or a sequence that is longer than the model's positions; a sample without tokenizer; a
// folder that is `from` or a file, or, of a run that does not resume, that is not empty. Error (invalid_file): a folder
// that cannot be written to.
void check_sample(const nn::DecoderConfig& config, const std::optional<data::Tokenizer>& tokenizer,
                  const TrainOptions& options);
void check_sequence_length(const nn::DecoderConfig& config, int64_t seq);
void check_export(const std::filesystem::path& folder, const std::filesystem::path& from, bool resumes);

}  // namespace tessera::examples
