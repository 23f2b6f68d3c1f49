// Rotary embedding of positions, and its scalings for texts longer than those of training.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// How the frequencies are changed to read further than a model was trained for; with f the frequency that the base
// gives and wavelength = 2 pi / f. The formulas are those of Hugging Face's transformers by the same names
// (modeling_rope_utils.py). Those of dynamic and longrope depend on the length of the text, the largest position + 1 of
// the call: keys in a cache stay as they were rotated when they were read.
//   linear   f / factor. Chen et al., "Extending context window of large language models via position interpolation"
//            (2023).
//   llama3   f where wavelength < original_positions / high_frequency, f / factor where it is above
//            original_positions / low_frequency, and a mixture between them. Llama 3.1 (2024).
//   yarn     f for what turns more than beta_fast times in the original positions, f / factor for what turns less than
//            beta_slow times, a ramp between them (its ends rounded outward if `truncate`); cosines and sines are
//            multiplied by attention_factor, 0.1 ln(factor) + 1 unless given. Peng et al., "YaRN" (2023).
//   dynamic  the base is multiplied by (factor length / original_positions - factor + 1)^(dims / (dims - 2)) where the
//            length is above original_positions. NTK-aware scaling of bloc97 and emozilla (2023).
//   longrope f / short_factors[i] up to a length of original_positions, f / long_factors[i] beyond it; cosines and
//   sines
//            are multiplied by attention_factor, sqrt(1 + ln(factor) / ln(original_positions)) unless given. Ding et
//            al., "LongRoPE" (2024).
struct RotaryScaling {
  enum Kind { none, linear, llama3, yarn, dynamic, longrope };
  Kind kind = none;
  double factor = 1;
  double original_positions = 0;                              // of all but linear: the positions of training
  double low_frequency = 1, high_frequency = 4;               // of llama3
  double beta_fast = 32, beta_slow = 1;                       // of yarn
  std::optional<double> attention_factor = {};                // of yarn and longrope
  bool truncate = true;                                       // of yarn
  std::vector<double> short_factors = {}, long_factors = {};  // of longrope, dims / 2 each
};

struct RotaryOptions {
  int64_t offset = 0;    // of the first position
  Array positions = {};  // instead of an offset: integers (seq) or (..., seq), one for each token
  double base = 10000;
  int64_t dims = 0;  // how many coordinates of a head are rotated, its first ones; 0: all
  RotaryScaling scaling = {};
};

// Rotary positions for x (..., seq, heads, head_dim): at position t, coordinates i and i + dims / 2 of every head are
// rotated by the angle t base^(-2 i / dims), so that the product of a query and a key depends on their distance only.
// Any dim but head_dim may be sharded; a scaling that depends on the length needs the largest of sharded positions, one
// small all_reduce_max. Su et al., "RoFormer: enhanced transformer with rotary position embedding"
// (2021); the pairing of coordinates is that of GPT-NeoX, Llama in Hugging Face and Equinox.
// Errors: x of other dims or with an odd head_dim, positions of another shape (shape_mismatch), positions that are not
// integers (dtype_mismatch), an offset below 0 or beside positions, a base or a scaling that is not a positive number,
// dims that are odd or more than the head has (invalid_argument).
Array rotary_embedding(Operand x, const RotaryOptions& options = {});

}  // namespace tessera
