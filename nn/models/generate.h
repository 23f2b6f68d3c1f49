// generate: what a decoder writes after prompts, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nn/models/causal_lm.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// How the next token is drawn from its logits: they are divided by the temperature, cut to the top_k largest, and then
// to the fewest whose probabilities sum to top_p or more. Holtzman et al., "The curious case of neural text
// degeneration" (2020), as in transformers.
struct SamplingOptions {
  double temperature = 1;  // 0: always the most probable token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
};

// A token, drawn with probability softmax(logits / temperature) among those that the options leave: the largest of
// logits / temperature + g, where g = -log(-log(u)) of jax.random.categorical's u. Gumbel, "Statistical theory of
// extreme values" (1954). Errors (invalid_argument): no logits, or NaN among them, a temperature or top_k below 0, a
// top_p that is not in (0, 1].
int32_t sample_token(const Key& key, std::span<const float> logits, const SamplingOptions& options = {});

struct GenerateOptions {
  int64_t max_new_tokens = 64;  // after each prompt
  SamplingOptions sampling = {};
  std::vector<int32_t> eos_token_id = {};  // a row ends after any of these
  // Called after each token of a row, with all tokens that were generated for the row. The row ends if it returns true,
  // for example because the decoded text has a stop word. By default no row ends this way.
  std::function<bool(std::span<const int32_t> written)> stopping_criteria = {};
};

// Returns the tokens after each prompt, without the prompt and with the end-of-sequence id. Prompts of different
// lengths are read together: shorter ones are filled at their beginning with tokens that nothing sees. Token i of a row
// depends on the key, i, the number of the row and the tokens before it, not on the other rows, but that rotations
// which depend on the length of the text (dynamic, longrope) go by the longest row, as in transformers. All processes
// of the model's mesh call this. Errors (invalid_argument): no prompts, an empty prompt, a max_new_tokens below 0 or,
// of gpt2, beyond its positions; those of the model.
//   const auto texts = nn::generate(model, Key(0), {tokenizer.encode("Once upon").ids}, {.sampling = {.top_p = 0.9}});
std::vector<std::vector<int32_t>> generate(const CausalLM& model, const Key& key,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options = {});

}  // namespace tessera::nn
