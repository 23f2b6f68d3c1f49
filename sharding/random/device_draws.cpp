// Draws random blocks by LibTorch operations on whole tensors: 32-bit words are stored in int64 with zero upper halves.
#include "sharding/random/device_draws.h"

#include "sharding/random/device_draws.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <utility>
#include <vector>

#include "sharding/base/fail.h"

namespace tessera::detail {
namespace {

constexpr int64_t word = 0xFFFFFFFF;

// Consecutive elements of a block.
struct Part {
  int64_t first, size;
};

// Returns the global index of each element.
at::Tensor indices_of(const BlockDraw& draw, const Part& part, const at::TensorOptions& integers) {
  at::Tensor index = at::full({part.size}, draw.start, integers);
  at::Tensor place = at::arange(part.first, part.first + part.size, integers);
  for (int d = draw.dims; d-- > 0;) {
    index.add_(at::remainder(place, draw.extents[d]).mul_(draw.strides[d]));
    if (d) place = at::floor_divide(place, draw.extents[d]);
  }
  return index;
}

// ---- threefry2x32

void add(at::Tensor& x, uint32_t k) { x.add_(static_cast<int64_t>(k)).bitwise_and_(word); }

void rounds(at::Tensor& x0, at::Tensor& x1, std::initializer_list<int64_t> rotations) {
  for (const int64_t r : rotations) {
    x0.add_(x1).bitwise_and_(word);
    const at::Tensor carried = at::bitwise_right_shift(x1, 32 - r);
    x1.bitwise_left_shift_(r).bitwise_or_(carried).bitwise_and_(word).bitwise_xor_(x0);
  }
}

at::Tensor bits_of(const BlockDraw& draw, const Part& part, c10::Device device) {
  const at::Tensor index = indices_of(draw, part, at::TensorOptions(at::kLong).device(device));
  at::Tensor x0 = at::bitwise_right_shift(index, 32), x1 = at::bitwise_and(index, word);
  const uint32_t k[3] = {draw.key[0], draw.key[1], draw.key[0] ^ draw.key[1] ^ 0x1BD11BDAu};
  add(x0, k[0]), add(x1, k[1]);
  for (uint32_t i = 1; i <= 5; ++i) {
    i % 2 ? rounds(x0, x1, {13, 15, 26, 6}) : rounds(x0, x1, {17, 29, 16, 24});
    add(x0, k[i % 3]), add(x1, k[(i + 1) % 3] + i);
  }
  return x0.bitwise_xor_(x1);
}

// ---- numbers, as in threefry_element.h

at::Tensor as_float(const at::Tensor& bits) { return bits.to(at::kInt).view(at::kFloat); }

at::Tensor uniforms_of(const BlockDraw& draw, const at::Tensor& bits) {
  const at::Tensor unit = as_float(at::bitwise_right_shift(bits, 9).bitwise_or_(0x3F800000)).sub_(1);
  const double low = draw.low, width = draw.width;
  const at::Tensor x =
      draw.rounding == 0 ? unit.mul(width).add_(low) : unit.to(at::kDouble).mul_(width).add_(low).to(at::kFloat);
  return x.clamp_min(low);
}

at::Tensor log_of(const at::Tensor& x) {
  const at::Tensor shifted = x.contiguous().view(at::kInt) - 0x3F3504F3;
  const at::Tensor k = at::bitwise_right_shift(shifted, 23).to(at::kFloat);
  const at::Tensor f = at::bitwise_and(shifted, 0x007FFFFF).add_(0x3F3504F3).view(at::kFloat).sub(1);
  const at::Tensor s = f / (f + 2), z = s * s, w = z * z;
  const at::Tensor odd = w * (w * double{0xf89e26.0p-26f} + double{0xccce13.0p-25f});
  const at::Tensor even = z * (w * double{0x91e9ee.0p-25f} + double{0xaaaaaa.0p-24f});
  const at::Tensor half = f * 0.5 * f;
  return k * double{6.9313812256e-01f} - ((half - (s * (half + (odd + even)) + k * double{9.0580006145e-06f})) - f);
}

// Returns the square root, correctly rounded. Some math libraries do not round it correctly, such as LibTorch's for
// CPUs.
at::Tensor root_of(const at::Tensor& x) { return at::sqrt(x.to(at::kDouble)).to(at::kFloat); }

at::Tensor erf_inv(const at::Tensor& x) {
  const at::Tensor square = x * x, w = -log_of(at::sub(square, 1).neg());
  const at::Tensor is_central = w < 5, t = at::where(is_central, w - 2.5, root_of(w) - 3);
  const auto term = [&](int i) {
    const auto of = [&](float value) { return at::full({}, double{value}, x.options()); };
    return at::where(is_central, of(kCentralFloat[i]), of(kTailFloat[i]));
  };
  at::Tensor p = term(0);
  for (int i = 1; i < 9; ++i) p = term(i) + p * t;
  return at::where(square == 1, x * INFINITY, p * x);
}

at::Tensor drawn_part(const BlockDraw& draw, const Part& part, c10::Device device) {
  const at::Tensor bits = bits_of(draw, part, device);
  if (draw.law == Law::bits) return bits;
  const at::Tensor x = uniforms_of(draw, bits);
  if (draw.law == Law::bernoulli) return at::lt(x, double{draw.chance});
  if (draw.law == Law::normal)
    return (erf_inv(x) * double{1.41421356237309504880f}).clamp(double{draw.least}, double{draw.most});
  if (draw.law == Law::exponential) return log_of(at::sub(x, 1).neg()).neg();
  return draw.law == Law::gumbel ? log_of(log_of(x).neg()).neg() : x;
}

at::Tensor empty_for(const BlockDraw& draw, at::IntArrayRef sizes, c10::Device device) {
  const at::ScalarType type = draw.law == Law::bits ? at::kLong : draw.law == Law::bernoulli ? at::kBool : at::kFloat;
  return at::empty(sizes, at::TensorOptions(type).device(device));
}

// Limits the memory for 8-byte words to the bytes of a float32 block.
int64_t longest_part(int64_t size) {
  constexpr int64_t few = 2048, many = 1 << 18;
  return size <= few ? size : std::min(many, (size + 1) / 2);
}

}  // namespace

BlockDraw block_draw(Law law, const Key& key, const Interval<float>& uniforms, const Shape& global,
                     const IndexRanges& block) {
  BlockDraw draw{.law = law,
                 .rounding = static_cast<uint8_t>(uniforms.rounding),
                 .key = {key.data[0], key.data[1]},
                 .low = uniforms.low,
                 .width = uniforms.width,
                 .size = 1};
  int64_t stride = 1;
  std::vector<std::pair<int64_t, int64_t>> dims;  // extent and stride, the last one first; merges complete ones
  for (size_t d = global.size(); d-- > 0;) {
    const int64_t extent = block[d].second - block[d].first;
    draw.start += block[d].first * stride, draw.size *= extent;
    if (!dims.empty() && dims.back().first * dims.back().second == stride)
      dims.back().first *= extent;
    else if (extent != 1)
      dims.emplace_back(extent, stride);
    stride *= global[d];
  }
  if (dims.size() > BlockDraw::max_dims)
    fail(ErrorKind::invalid_argument, "random", "a block that is sharded along {} dims, expected {} at most.",
         dims.size(), BlockDraw::max_dims);
  for (; !dims.empty(); dims.pop_back(), ++draw.dims)
    std::tie(draw.extents[draw.dims], draw.strides[draw.dims]) = dims.back();
  return draw;
}

at::Tensor drawn_by_operations(const BlockDraw& draw, at::IntArrayRef sizes, c10::Device device) {
  at::Tensor out = empty_for(draw, sizes, device);
  const at::Tensor flat = out.view({-1});
  for (Part part{0, longest_part(draw.size)}; part.first < draw.size; part.first += part.size) {
    part.size = std::min(part.size, draw.size - part.first);
    flat.narrow(0, part.first, part.size).copy_(drawn_part(draw, part, device));
  }
  return out;
}

DrawKernel& kernel_for_cuda() {
  static DrawKernel kernel = nullptr;
  return kernel;
}

at::Tensor drawn_on(const BlockDraw& draw, at::IntArrayRef sizes, c10::Device device) {
  if (!device.is_cuda() || !kernel_for_cuda()) return drawn_by_operations(draw, sizes, device);
  at::Tensor out = empty_for(draw, sizes, device);
  if (draw.size) kernel_for_cuda()(draw, out.mutable_data_ptr(), device.index());
  return out;
}

}  // namespace tessera::detail
