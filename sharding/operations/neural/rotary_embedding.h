// Rotary position embedding, and its scalings for sequences longer than in training.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// Scales the rotary frequencies to read longer sequences than a model was trained for. Here f is the frequency that the
// base gives, and wavelength = 2 pi / f. The formulas are as in Hugging Face's transformers by the same names
// (modeling_rope_utils.py). dynamic and longrope depend on the length of the sequence, the largest position + 1 of the
// call. Keys in a cache keep the rotation with which they were added.
//   linear   f / factor. Chen et al., "Extending context window of large language models via position interpolation"
//            (2023).
//   llama3   f where wavelength < original_positions / high_frequency, f / factor where it is above
//            original_positions / low_frequency, and a mixture between them. Llama 3.1 (2024).
//   yarn     f for coordinates that turn more than beta_fast times in the original positions, f / factor for those that
//            turn less than beta_slow times, a ramp between them (its ends rounded outward if `truncate`); cosines and
//            sines are multiplied by attention_factor, 0.1 ln(factor) + 1 unless given. Peng et al., "YaRN" (2023).
//   dynamic  the base is multiplied by (factor length / original_positions - factor + 1)^(dims / (dims - 2)) if the
//            length is above original_positions. NTK-aware scaling of bloc97 and emozilla (2023).
//   longrope f / short_factors[i] up to a length of original_positions, f / long_factors[i] beyond it; cosines and
//            sines are multiplied by attention_factor, sqrt(1 + ln(factor) / ln(original_positions)) unless given.
//            Ding et al., "LongRoPE" (2024).
struct RotaryScaling {
  enum Kind { none, linear, llama3, yarn, dynamic, longrope };
  Kind kind = none;
  double factor = 1;
  double original_positions = 0;                              // for all but linear: the number of positions of training
  double low_frequency = 1, high_frequency = 4;               // for llama3
  double beta_fast = 32, beta_slow = 1;                       // for yarn
  std::optional<double> attention_factor = {};                // for yarn and longrope
  bool truncate = true;                                       // for yarn
  std::vector<double> short_factors = {}, long_factors = {};  // for longrope, dims / 2 each
};

struct RotaryOptions {
  int64_t offset = 0;    // position of the first row
  Array positions = {};  // instead of an offset: integers (seq) or (..., seq), one per token
  double base = 10000;
  int64_t dims = 0;  // the number of coordinates of a head that are rotated, from the first on; 0: all
  RotaryScaling scaling = {};
  bool interleaved = false;  // whether coordinates 2 i and 2 i + 1 are a pair, instead of i and i + dims / 2
};

// Rotates x (..., seq, heads, head_dim) by its positions. At position t, coordinates i and i + dims / 2 of every head
// are rotated by the angle t base^(-2 i / dims). So the product of a query and a key depends on their distance only.
// Any dimension but head_dim may be sharded. A scaling that depends on the length needs the largest of sharded
// positions: one small all_reduce_max.
//
// Su et al., "RoFormer: enhanced transformer with rotary position embedding" (2021). Coordinates are paired as in
// GPT-NeoX, Hugging Face's Llama and Equinox; if `interleaved`, as in the paper, GPT-J, Llama 4, Cohere and DeepSeek.
//
// Errors
//   shape_mismatch: x that is not floating, or has fewer than three dimensions or an odd head_dim; positions of the
//     wrong shape
//   dtype_mismatch: positions that are not integers
//   invalid_argument: an offset below 0, beyond 2^53 or together with positions; a base or a scaling that is not a
//     positive number; scaling bounds in the wrong order; `dims` that is odd or larger than the head
Array rotary_embedding(Operand x, const RotaryOptions& options = {});

namespace detail {

// Throws the errors of rotary_embedding that depend on no values. `given` describes x; `head_dim` is absent if x is not
// floating or has fewer than three dimensions.
void check_rotary(const std::function<std::string()>& given, std::optional<int64_t> head_dim, double base, int64_t dims,
                  const RotaryScaling& scaling);
// Returns the factor of YaRN's queries and keys: 0.1 mscale log(factor) + 1, or 1 for a factor of at most 1. Peng et
// al., "YaRN: efficient context window extension of large language models" (2023), 3.4.
double yarn_attention_factor(double factor, double mscale = 1);
// Returns the frequency that a scaling of kind llama3 makes of f.
double llama3_frequency(double f, const RotaryScaling& scaling);

}  // namespace detail

}  // namespace tessera
