// Checks of rotary positions that need no array, YaRN's default factor and Llama 3's frequencies.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "sharding/base/fail.h"
#include "sharding/operations/neural/rotary_embedding.h"

namespace tessera::detail {

namespace {

void check_above_zero(const char* option, double value) {
  if (!(value > 0) || std::isinf(value))
    fail(ErrorKind::invalid_argument, "rotary_embedding", "{} {}, expected a finite one above 0.", option, value);
}

// Checks that there is one factor for each frequency.
void check_factors(const char* option, const std::vector<double>& factors, int64_t dims) {
  if (static_cast<int64_t>(factors.size()) != dims / 2)
    fail(ErrorKind::invalid_argument, "rotary_embedding", "scaling {} of {} numbers, expected dims / 2 = {}.", option,
         factors.size(), dims / 2);
  for (const double factor : factors) check_above_zero(fmt::format("scaling {}", option).c_str(), factor);
}

void check_scaling(const RotaryScaling& s, int64_t dims) {
  if (s.kind == RotaryScaling::none) return;
  check_above_zero("scaling factor", s.factor);
  if (s.kind == RotaryScaling::linear) return;
  check_above_zero("scaling original_positions", s.original_positions);
  if (s.attention_factor) check_above_zero("scaling attention_factor", *s.attention_factor);
  if (s.kind == RotaryScaling::dynamic) return;
  if (s.kind == RotaryScaling::longrope) {
    check_factors("short_factors", s.short_factors, dims), check_factors("long_factors", s.long_factors, dims);
    if (!s.attention_factor && s.factor > 1 && s.original_positions <= 1)
      fail(ErrorKind::invalid_argument, "rotary_embedding",
           "scaling original_positions = {}, expected more than 1, or an attention_factor.", s.original_positions);
    return;
  }
  const bool is_llama3 = s.kind == RotaryScaling::llama3;
  const double low = is_llama3 ? s.low_frequency : s.beta_slow, high = is_llama3 ? s.high_frequency : s.beta_fast;
  check_above_zero(is_llama3 ? "scaling low_frequency" : "scaling beta_slow", low);
  check_above_zero(is_llama3 ? "scaling high_frequency" : "scaling beta_fast", high);
  if (is_llama3 ? low > high : low >= high)  // Llama 4 Scout has 1 and 1
    fail(ErrorKind::invalid_argument, "rotary_embedding",
         "scaling between {} and {}, expected a lower end and a higher one.", low, high);
}

}  // namespace

void check_rotary(const std::function<std::string()>& given, std::optional<int64_t> head_dim, double base, int64_t dims,
                  const RotaryScaling& scaling) {
  if (!head_dim || *head_dim % 2)
    fail(ErrorKind::shape_mismatch, "rotary_embedding",
         "given {}, expected (..., seq, heads, head_dim) of a floating type with an even head_dim.", given());
  check_above_zero("base", base);
  if (dims < 0 || dims > *head_dim || dims % 2)
    fail(ErrorKind::invalid_argument, "rotary_embedding", "dims {} of {}, expected an even number up to {}.", dims,
         given(), *head_dim);
  check_scaling(scaling, dims ? dims : *head_dim);
  if (scaling.kind == RotaryScaling::yarn && base == 1)
    fail(ErrorKind::invalid_argument, "rotary_embedding",
         "base 1, expected another one for yarn, which divides by its logarithm.");
}

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double llama3_frequency(double f, const RotaryScaling& s) {
  const double wavelength = 2 * std::numbers::pi / f, turns = s.original_positions / wavelength;
  if (turns >= s.high_frequency) return f;
  if (turns < s.low_frequency) return f / s.factor;
  const double smooth = (turns - s.low_frequency) / (s.high_frequency - s.low_frequency);
  return (1 - smooth) * f / s.factor + smooth * f;
}

}  // namespace tessera::detail
