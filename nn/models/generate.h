// generate: the tokens that a decoder generates after prompts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nn/models/causal_lm.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// Options to draw the next token from its logits. The logits are divided by the temperature, then reduced to the top_k
// largest, then to the fewest whose probabilities sum to top_p or more. Holtzman et al., "The curious case of neural
// text degeneration" (2020), as in transformers.
struct SamplingOptions {
  double temperature = 1;  // 0: always the most probable token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
};

// Draws a token with probability softmax(logits / temperature) among those that the options keep. It is the largest of
// logits / temperature + g, with g = -log(-log(u)) of jax.random.categorical's u. Gumbel, "Statistical theory of
// extreme values" (1954). Errors (invalid_argument): no logits, NaN among them, a temperature or top_k below 0, or a
// top_p outside (0, 1].
int32_t sample_token(const Key& key, std::span<const float> logits, const SamplingOptions& options = {});

struct GenerateOptions {
  int64_t max_new_tokens = 64;  // after each prompt
  SamplingOptions sampling = {};
  std::vector<int32_t> eos_token_id = {};  // a row ends after any of these; empty: the model's
  // Called after each token of a row, with all tokens that were generated for the row. The row ends if it returns true,
  // for example because the decoded text has a stop word. By default no row ends this way.
  std::function<bool(std::span<const int32_t> written)> stopping_criteria = {};
};

// Returns the tokens after each prompt, without the prompt and with the end-of-sequence id. All processes of the
// model's mesh must call it.
//   const auto texts = nn::generate(model, Key(0), {tokenizer.encode("Once upon").ids}, {.sampling = {.top_p = 0.9}});
// Prompts of different lengths form one batch: shorter ones are padded at their beginning with masked tokens. Token i
// of a row depends on the key, i, the number of the row and the tokens before it, not on the other rows. The exception
// is a rotation that depends on the length of the text (dynamic, longrope): it uses the longest row, as in
// transformers. Where the text of a Phi-3 with longrope exceeds original_positions, its keys are computed again.
// Errors, in addition to those of the model (invalid_argument): no prompts, an empty prompt, a max_new_tokens below 0,
// or, with learned positions, more tokens than positions.
std::vector<std::vector<int32_t>> generate(const CausalLM& model, const Key& key,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options = {});

}  // namespace tessera::nn
