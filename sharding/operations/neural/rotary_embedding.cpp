// Rotary embedding: frequencies, tables of cosines and sines, and the rotation.
#include "sharding/operations/neural/rotary_embedding.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "sharding/array/late_checks.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

const Operation rotary_embedding_op{"rotary_embedding", "... t h [d] -> ... t h [d]", Linearity::additive};
const Operation of_tokens_op{"rotary_embedding", "... t h [d], ... t -> ... t h [d]", Linearity::linear_in_first};
const Operation of_rows_op{"rotary_embedding", "... t h [d], t -> ... t h [d]", Linearity::linear_in_first};
// Two operations whose last operand is the length of the sequence.
const Operation of_long_tokens_op{"rotary_embedding", "... t h [d], ... t, -> ... t h [d]", Linearity::linear_in_first};
const Operation of_long_rows_op{"rotary_embedding", "... t h [d], t, -> ... t h [d]", Linearity::linear_in_first};

// The largest position that a double holds exactly.
constexpr int64_t max_positions = int64_t{1} << 53;

// ---- checks

void check_positions(const Array& x, const RotaryOptions& options) {
  const Array& positions = options.positions;
  check_integers("rotary_embedding", positions, "positions");
  if (options.offset != 0)
    fail(ErrorKind::invalid_argument, "rotary_embedding",
         "an offset of {} together with positions, expected one of the two.", options.offset);
  const Shape all = x.shape(), tokens(all.begin(), all.end() - 2);
  if (positions.shape() != tokens && positions.shape() != Shape{tokens.back()})
    fail(ErrorKind::shape_mismatch, "rotary_embedding", "positions {} of {}, expected {} or ({}).",
         positions.type_string(), x.type_string(), to_string(tokens), tokens.back());
}

void check_offset(const Array& x, int64_t offset) {
  if (offset < 0) fail(ErrorKind::invalid_argument, "rotary_embedding", "offset {}, expected 0 or more.", offset);
  if (offset > max_positions - x.shape(-3))
    fail(ErrorKind::invalid_argument, "rotary_embedding", "offset {} of {}, expected positions up to 2^53.", offset,
         x.type_string());
}

void check(const Array& x, const RotaryOptions& options) {
  const Shape& shape = materialized(x, "rotary_embedding").type->shape;
  const bool has_heads = is_floating(x.dtype()) && shape.size() >= 3;
  check_rotary([&] { return x.type_string(); }, has_heads ? std::optional(shape.back()) : std::nullopt, options.base,
               options.dims, options.scaling);
  if (options.positions.is_absent())
    check_offset(x, options.offset);
  else
    check_positions(x, options);
}

// ---- frequencies

// Returns the coordinate that turns this many times in the original positions.
double coordinate_of(double turns, int64_t dims, double base, const RotaryScaling& s) {
  const double exact = static_cast<double>(dims) * std::log(s.original_positions / (turns * 2 * std::numbers::pi));
  return exact / (2 * std::log(base));
}

double yarn_frequency(double f, int64_t i, int64_t dims, double base, const RotaryScaling& s) {
  double first = coordinate_of(s.beta_fast, dims, base, s), last = coordinate_of(s.beta_slow, dims, base, s);
  if (s.truncate) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0), last = std::min(last, static_cast<double>(dims - 1));
  if (first == last) last += 0.001;  // avoids a division by zero, as in transformers
  const double ramp = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
  return f / s.factor * ramp + f * (1 - ramp);
}

bool depends_on_length(const RotaryScaling& s) {
  return s.kind == RotaryScaling::dynamic || s.kind == RotaryScaling::longrope;
}

// Returns the frequencies for a sequence of `length` positions, a scalar of double.
at::Tensor frequencies_at(const at::Tensor& length, const RotaryOptions& options, int64_t dims) {
  const RotaryScaling& s = options.scaling;
  const auto numbers = length.options();
  const at::Tensor exponents = at::arange(0, dims, 2, numbers).div_(-static_cast<double>(dims));
  if (s.kind == RotaryScaling::longrope) {
    const auto at_factors = [&](const std::vector<double>& factors) {
      return at::pow(options.base, exponents).div_(moved_to(at::tensor(factors, at::kDouble), length.device()));
    };
    return at::where(length > s.original_positions, at_factors(s.long_factors), at_factors(s.short_factors));
  }
  const at::Tensor stretch =
      length.clamp_min(s.original_positions) * (s.factor / s.original_positions) - (s.factor - 1);
  const at::Tensor base = stretch.pow(static_cast<double>(dims) / static_cast<double>(dims - 2)) * options.base;
  return at::pow(base, exponents);
}

at::Tensor frequencies(const RotaryOptions& options, int64_t dims) {
  const RotaryScaling& s = options.scaling;
  const at::Tensor all = at::empty({dims / 2}, at::kDouble);
  for (int64_t i = 0; i < dims / 2; ++i) {
    double f = std::pow(options.base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    if (s.kind == RotaryScaling::linear) f /= s.factor;
    if (s.kind == RotaryScaling::llama3) f = llama3_frequency(f, s);
    if (s.kind == RotaryScaling::yarn) f = yarn_frequency(f, i, dims, options.base, s);
    all.mutable_data_ptr<double>()[i] = f;
  }
  return all;
}

double length_of_turns(const RotaryScaling& s) {
  if (s.kind == RotaryScaling::longrope) {
    const double grown = std::sqrt(1 + std::log(s.factor) / std::log(s.original_positions));
    return s.attention_factor.value_or(s.factor <= 1 ? 1 : grown);
  }
  if (s.kind != RotaryScaling::yarn) return 1;
  return s.attention_factor.value_or(yarn_attention_factor(s.factor));
}

// ---- rotation

// The factors of coordinate i of a head, and of the other coordinate of its pair: (..., seq, 1, dims).
struct Rotation {
  at::Tensor own, partner;
};

// Returns a model's frequencies on that device. They are transferred once, so a step transfers nothing. The table is
// kept forever, because recorded steps read it; there is one table per kind of model.
at::Tensor kept_on(c10::Device device, const at::Tensor& frequency) {
  if (device == frequency.device() || !frequency.is_cpu() || device.is_meta()) return moved_to(frequency, device);
  static std::mutex mutex;
  static auto* all = new std::map<std::pair<std::string, std::vector<double>>, at::Tensor>;  // never destroyed
  const auto* values = detail::const_elements<double>(frequency);
  const std::lock_guard lock(mutex);
  at::Tensor& table = (*all)[{device.str(), {values, values + frequency.numel()}}];
  if (!table.defined()) table = moved_to(frequency, device);
  return table;
}

// Returns the rotation of positions (..., seq), computed in double.
Rotation rotation(const at::Tensor& positions, const at::Tensor& frequency, const RotaryOptions& options,
                  at::ScalarType type) {
  const double length = length_of_turns(options.scaling);
  const at::Tensor angle = positions.unsqueeze(-1).unsqueeze(-1) * kept_on(positions.device(), frequency);
  const at::Tensor cos = angle.cos().mul_(length), sin = angle.sin().mul_(length);
  const auto pairs = [&](const at::Tensor& first, const at::Tensor& second) {
    const at::Tensor both =
        options.interleaved ? at::stack({first, second}, -1).flatten(-2) : at::cat({first, second}, -1);
    return both.to(at::toOpMathType(type));
  };
  return {pairs(cos, cos), pairs(-sin, sin)};
}

// Returns x with its first `dims` coordinates rotated, and the others unchanged.
at::Tensor rotated(const at::Tensor& x, const Rotation& by, int64_t dims, bool interleaved) {
  const at::Tensor turning = x.narrow(-1, 0, dims);
  const at::Tensor partner =
      interleaved ? turning.unflatten(-1, {dims / 2, 2}).flip(-1).flatten(-2) : turning.roll(dims / 2, -1);
  const at::Tensor turned = at::addcmul(turning * by.own, partner, by.partner).to(x.scalar_type());
  return dims == x.size(-1) ? turned : at::cat({turned, x.narrow(-1, dims, x.size(-1) - dims)}, -1);
}

// Rotates each token by its own position.
Array rotated_at_positions(const Operand& x, const RotaryOptions& options, int64_t dims) {
  const Array &a = x.array(), &positions = options.positions;
  const bool in_rows = positions.ndim() == 1 && a.ndim() > 3;
  const auto turned = [&, dims](const at::Tensor& t, const at::Tensor& at, const at::Tensor& frequency) {
    const Rotation by = rotation(at.to(at::kDouble), frequency, options, t.scalar_type());
    return rotated(t, by, dims, options.interleaved);
  };
  if (depends_on_length(options.scaling)) {
    const Array length = positions.size() ? astype(max({positions, x.where()}), int64) + 1 : zeros({}, int64);
    return run({.operation = in_rows ? of_long_rows_op : of_long_tokens_op, .where = x.where()},
               {&a, &positions, &length}, [&](Locals t, const BlockContext&) {
                 return turned(t[0], t[1], frequencies_at(t[2].to(at::kDouble), options, dims));
               });
  }
  const at::Tensor frequency = frequencies(options, dims);
  return run({.operation = in_rows ? of_rows_op : of_tokens_op, .where = x.where()}, {&a, &positions},
             [&](Locals t, const BlockContext&) { return turned(t[0], t[1], frequency); });
}

}  // namespace

Array rotary_embedding(Operand x, const RotaryOptions& options) {
  const Array& a = x.array();
  check(a, options);
  const int64_t dims = options.dims ? options.dims : a.shape(-1);
  if (!options.positions.is_absent()) return rotated_at_positions(x, options, dims);
  const auto length = static_cast<double>(options.offset + a.shape(-3));
  const at::Tensor frequency = depends_on_length(options.scaling)
                                   ? frequencies_at(at::full({}, length, at::kDouble), options, dims)
                                   : frequencies(options, dims);
  const at::Tensor like = a.impl()->local[0].detach();
  const at::Tensor positions =
      at::arange(options.offset, options.offset + a.shape(-3), like.options().dtype(at::kDouble));
  const Rotation all = rotation(positions, frequency, options, like.scalar_type());
  return run({.operation = rotary_embedding_op, .where = x.where()}, {&a}, [&](Locals t, const BlockContext& block) {
    const auto here = [&](const at::Tensor& table) { return table.narrow(0, block.offset("t"), t[0].size(-3)); };
    return rotated(t[0], {here(all.own), here(all.partner)}, dims, options.interleaved);
  });
}

}  // namespace tessera
