// The generators of threefry.h: counters in batches, through loops that compilers turn into vector instructions.
#include "sharding/threefry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "sharding/erf_inv.h"
#include "sharding/error.h"

// CMake compiles this file with -O3 and, so that every clone and every batch gives the same bits, with
// -ffp-contract=off; -fno-math-errno and -fno-trapping-math let sqrt and selections become vector instructions.
// Clones need glibc's ifunc, whose resolvers run before a sanitizer is ready.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TESSERA_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESSERA_SANITIZED
#endif
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(TESSERA_SANITIZED) && \
    !defined(TESSERA_NO_CLONES) && (!defined(__clang__) || __clang_major__ >= 16)
#define TESSERA_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TESSERA_CLONES
#endif

namespace tessera {
namespace {

constexpr int64_t kBatch = 512;

// The global indices of a batch of elements, as the words that threefry takes.
struct Batch {
  alignas(64) uint32_t high[kBatch];
  alignas(64) uint32_t low[kBatch];
  int64_t size = 0;

  void append(uint64_t first, int64_t count);
};

void Batch::append(uint64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    high[size + i] = static_cast<uint32_t>((first + static_cast<uint64_t>(i)) >> 32);
    low[size + i] = static_cast<uint32_t>(first + static_cast<uint64_t>(i));
  }
  size += count;
}

// Walks a block in row-major order as runs of consecutive global indices.
class BlockWalk {
 public:
  BlockWalk(const Shape& global, const IndexRanges& block);

  // Fills the batch with the next elements; false when there are none left.
  bool next(Batch& batch);

 private:
  struct Dim {
    int64_t extent;  // of the block
    int64_t stride;  // of the global array
    int64_t at;      // position in the block
  };

  void next_run();

  std::vector<Dim> outer_;  // all dims but the one along which a run goes
  int64_t run_ = 1;         // elements per run
  int64_t start_ = 0;       // global index of the current run
  int64_t done_ = 0;        // elements of the current run already given
  int64_t left_ = 1;        // elements not yet given
};

void check_block(const Shape& global, const IndexRanges& block) {
  bool inside = global.size() == block.size();
  for (size_t d = 0; inside && d < global.size(); ++d)
    inside = 0 <= block[d].first && block[d].first <= block[d].second && block[d].second <= global[d];
  if (inside) return;
  std::vector<std::string> ranges;
  for (const auto& [start, stop] : block) ranges.push_back(fmt::format("{}:{}", start, stop));
  fail(ErrorKind::bad_argument, "random",
       fmt::format("the block [{}] does not lie inside the global shape {}. Give one range within each dim.",
                   fmt::join(ranges, ", "), to_string(global)));
}

BlockWalk::BlockWalk(const Shape& global, const IndexRanges& block) {
  check_block(global, block);
  int64_t stride = 1;
  for (size_t d = global.size(); d-- > 0;) {
    const int64_t extent = block[d].second - block[d].first;
    const bool whole_so_far = run_ == stride;
    if (whole_so_far) {
      run_ *= extent;
    } else {
      outer_.push_back({extent, stride, 0});
    }
    start_ += block[d].first * stride;
    stride *= global[d];
    left_ *= extent;
  }
}

void BlockWalk::next_run() {
  done_ = 0;
  for (Dim& dim : outer_) {
    start_ += dim.stride;
    if (++dim.at < dim.extent) return;
    start_ -= dim.stride * dim.extent;
    dim.at = 0;
  }
}

bool BlockWalk::next(Batch& batch) {
  batch.size = 0;
  while (left_ > 0 && batch.size < kBatch) {
    const int64_t count = std::min(run_ - done_, kBatch - batch.size);
    batch.append(static_cast<uint64_t>(start_ + done_), count);
    done_ += count;
    left_ -= count;
    if (done_ == run_) next_run();
  }
  return batch.size > 0;
}

// --- threefry2x32 ---

template <int A, int B, int C, int D>
TESSERA_ALWAYS_INLINE void four_rounds(uint32_t& x0, uint32_t& x1) {
  x0 += x1, x1 = std::rotl(x1, A) ^ x0;
  x0 += x1, x1 = std::rotl(x1, B) ^ x0;
  x0 += x1, x1 = std::rotl(x1, C) ^ x0;
  x0 += x1, x1 = std::rotl(x1, D) ^ x0;
}

TESSERA_ALWAYS_INLINE void threefry(uint32_t k0, uint32_t k1, uint32_t& x0, uint32_t& x1) {
  const uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  x0 += k0, x1 += k1;
  four_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k1, x1 += k2 + 1;
  four_rounds<17, 29, 16, 24>(x0, x1);
  x0 += k2, x1 += k0 + 2;
  four_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k0, x1 += k1 + 3;
  four_rounds<17, 29, 16, 24>(x0, x1);
  x0 += k1, x1 += k2 + 4;
  four_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k2, x1 += k0 + 5;
}

TESSERA_CLONES void bits_of(Key key, const Batch& batch, uint32_t* __restrict out) {
  const uint32_t k0 = key.data[0], k1 = key.data[1];
  for (int64_t i = 0; i < batch.size; ++i) {
    uint32_t x0 = batch.high[i], x1 = batch.low[i];
    threefry(k0, k1, x0, x1);
    out[i] = x0 ^ x1;
  }
}

TESSERA_CLONES void wide_bits_of(Key key, const Batch& batch, uint64_t* __restrict out) {
  const uint32_t k0 = key.data[0], k1 = key.data[1];
  for (int64_t i = 0; i < batch.size; ++i) {
    uint32_t x0 = batch.high[i], x1 = batch.low[i];
    threefry(k0, k1, x0, x1);
    out[i] = uint64_t{x0} << 32 | x1;
  }
}

TESSERA_ALWAYS_INLINE void draw(Key key, const Batch& batch, uint32_t* out) { bits_of(key, batch, out); }
TESSERA_ALWAYS_INLINE void draw(Key key, const Batch& batch, uint64_t* out) { wide_bits_of(key, batch, out); }

template <class T>
using BitsFor = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;

// --- uniform ---

// XLA computes low + unit * width with one rounding. The same bits come from a plain product and sum where the product
// is exact, and (for float) from double arithmetic where the sum is exact there; both are faster than std::fma,
// which without the instruction is a call.
enum class Rounding { product_exact, sum_exact_in_double, fused };

template <class T>
struct Interval {
  T low, high, width;
  Rounding rounding;

  Interval(double from, double to)
      : low(static_cast<T>(from)), high(static_cast<T>(to)), width(high - low), rounding(choose()) {}

 private:
  Rounding choose() const {
    int exponent = 0;
    if (!(width >= std::numeric_limits<T>::min() * T(0x1p60))) return Rounding::fused;
    if (std::frexp(width, &exponent) == T(0.5)) return Rounding::product_exact;
    if (std::is_same_v<T, float> && sum_fits_double()) return Rounding::sum_exact_in_double;
    return Rounding::fused;
  }
  // Multiples of 2^lowest below 2^highest are doubles if these are 53 bits apart.
  bool sum_fits_double() const {
    const int lowest_product = std::ilogb(width) - 23 - 23;
    const int lowest = low == 0 ? lowest_product : std::min(lowest_product, std::ilogb(low) - 23);
    const int highest = std::ilogb(std::max({std::abs(low), std::abs(high), width})) + 2;
    return highest - lowest <= 53;
  }
};

// In [0, 1), from the upper bits.
TESSERA_ALWAYS_INLINE float unit(uint32_t bits) { return std::bit_cast<float>(bits >> 9 | 0x3F800000u) - 1.0f; }
TESSERA_ALWAYS_INLINE double unit(uint64_t bits) {
  return std::bit_cast<double>(bits >> 12 | 0x3FF0000000000000u) - 1.0;
}

template <class T>
TESSERA_ALWAYS_INLINE void scale_loop(Interval<T> to, const BitsFor<T>* __restrict bits, int64_t n, T* __restrict out) {
  const auto at_least_low = [&](T x) { return x > to.low ? x : to.low; };
  if (to.rounding == Rounding::product_exact) {
    for (int64_t i = 0; i < n; ++i) out[i] = at_least_low(unit(bits[i]) * to.width + to.low);
  } else if (to.rounding == Rounding::sum_exact_in_double) {
    const double width = to.width, low = to.low;
    for (int64_t i = 0; i < n; ++i) out[i] = at_least_low(static_cast<T>(unit(bits[i]) * width + low));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = at_least_low(std::fma(unit(bits[i]), to.width, to.low));
  }
}

TESSERA_CLONES void scale(Interval<float> to, const uint32_t* bits, int64_t n, float* out) {
  scale_loop(to, bits, n, out);
}
TESSERA_CLONES void scale(Interval<double> to, const uint64_t* bits, int64_t n, double* out) {
  scale_loop(to, bits, n, out);
}

// --- normal ---

template <class T>
struct Clip {
  T low, high;
};

template <class T>
TESSERA_ALWAYS_INLINE void normal_loop(Clip<T> clip, int64_t n, T* __restrict x) {
  constexpr T root_two = static_cast<T>(1.41421356237309504880);
  for (int64_t i = 0; i < n; ++i) {
    const T value = root_two * detail::erf_inv(x[i]);
    const T above = value < clip.low ? clip.low : value;
    x[i] = above > clip.high ? clip.high : above;
  }
}

TESSERA_CLONES void to_normal(Clip<float> clip, int64_t n, float* x) { normal_loop(clip, n, x); }
TESSERA_CLONES void to_normal(Clip<double> clip, int64_t n, double* x) { normal_loop(clip, n, x); }

// --- exponential and gumbel ---

template <class T>
TESSERA_ALWAYS_INLINE void exponential_loop(int64_t n, T* __restrict x) {
  for (int64_t i = 0; i < n; ++i) x[i] = -detail::log_of(T(1) - x[i]);
}
template <class T>
TESSERA_ALWAYS_INLINE void gumbel_loop(int64_t n, T* __restrict x) {
  for (int64_t i = 0; i < n; ++i) x[i] = -detail::log_of(-detail::log_of(x[i]));
}

TESSERA_CLONES void to_exponential(int64_t n, float* x) { exponential_loop(n, x); }
TESSERA_CLONES void to_exponential(int64_t n, double* x) { exponential_loop(n, x); }
TESSERA_CLONES void to_gumbel(int64_t n, float* x) { gumbel_loop(n, x); }
TESSERA_CLONES void to_gumbel(int64_t n, double* x) { gumbel_loop(n, x); }

// --- integers ---

// (high 2^bits + low) mod span, in arithmetic of that many bits; span 0 stands for 2^bits.
template <class U>
struct Remainder {
  U span, multiplier;

  explicit Remainder(U n) : span(n), multiplier(0) {
    if (span == 0) return;
    const U half = static_cast<U>(static_cast<U>(U(1) << (std::numeric_limits<U>::digits / 2)) % span);
    multiplier = static_cast<U>(static_cast<U>(half * half) % span);
  }
  U operator()(U high, U low) const {
    if (span == 0) return low;
    const U product = static_cast<U>(static_cast<U>(high % span) * multiplier);
    return static_cast<U>(static_cast<U>(product + static_cast<U>(low % span)) % span);
  }
};

// --- blocks ---

template <class T>
void fill_bits(const Key& key, const Shape& global, const IndexRanges& block, T* out) {
  BlockWalk walk(global, block);
  for (Batch batch; walk.next(batch); out += batch.size) draw(key, batch, out);
}

template <class T, class Finish>
void fill_uniform(const Key& key, const Shape& global, const IndexRanges& block, Interval<T> to, T* out,
                  Finish finish) {
  BlockWalk walk(global, block);
  alignas(64) BitsFor<T> bits[kBatch];
  for (Batch batch; walk.next(batch); out += batch.size) {
    draw(key, batch, bits);
    scale(to, bits, batch.size, out);
    finish(batch.size, out);
  }
}

template <class T>
void fill_uniform(const Key& key, const Shape& global, const IndexRanges& block, double low, double high, T* out) {
  fill_uniform<T>(key, global, block, {low, high}, out, [](int64_t, T*) {});
}

template <class T>
void fill_normal(const Key& key, const Shape& global, const IndexRanges& block, T* out) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  fill_uniform<T>(key, global, block, {std::nextafter(T(-1), T(0)), 1}, out, [=](int64_t n, T* x) {
    to_normal(Clip<T>{-infinity, infinity}, n, x);
  });
}

template <class T>
void fill_truncated_normal(const Key& key, const Shape& global, const IndexRanges& block, double lower, double upper,
                           T* out) {
  if (!(lower < upper))
    fail(ErrorKind::bad_argument, "random_truncated_normal",
         fmt::format("the bounds are {} and {}. The lower bound must be below the upper one.", lower, upper));
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const T a = static_cast<T>(lower), b = static_cast<T>(upper);
  const Clip<T> clip{std::nextafter(a, infinity), std::nextafter(b, -infinity)};
  fill_uniform<T>(key, global, block, {std::erf(a / std::sqrt(2.0)), std::erf(b / std::sqrt(2.0))}, out,
                  [=](int64_t n, T* x) { to_normal(clip, n, x); });
}

template <class T>
void fill_exponential(const Key& key, const Shape& global, const IndexRanges& block, T* out) {
  fill_uniform<T>(key, global, block, {0, 1}, out, [](int64_t n, T* x) { to_exponential(n, x); });
}

template <class T>
void fill_gumbel(const Key& key, const Shape& global, const IndexRanges& block, T* out) {
  fill_uniform<T>(key, global, block, {std::numeric_limits<T>::min(), 1}, out,
                  [](int64_t n, T* x) { to_gumbel(n, x); });
}

// In arithmetic of U, which is no narrower than T.
template <class U, class T>
void fill_integers(const Key& key, const Shape& global, const IndexRanges& block, int64_t first, uint64_t span,
                   T* out) {
  const std::vector<Key> keys = split(key, 2);
  const Remainder<U> remainder(static_cast<U>(span));
  BlockWalk walk(global, block);
  alignas(64) U high[kBatch], low[kBatch];
  for (Batch batch; walk.next(batch); out += batch.size) {
    draw(keys[0], batch, high);
    draw(keys[1], batch, low);
    for (int64_t i = 0; i < batch.size; ++i)
      out[i] = static_cast<T>(static_cast<U>(first) + remainder(high[i], low[i]));
  }
}

}  // namespace

Key threefry2x32(const Key& key, uint32_t high, uint32_t low) {
  threefry(key.data[0], key.data[1], high, low);
  return Key::from_data(high, low);
}

void random_bits(const Key& key, const Shape& global, const IndexRanges& block, uint32_t* out) {
  fill_bits(key, global, block, out);
}
void random_bits(const Key& key, const Shape& global, const IndexRanges& block, uint64_t* out) {
  fill_bits(key, global, block, out);
}

void random_uniform(const Key& key, const Shape& global, const IndexRanges& block, double low, double high,
                    float* out) {
  fill_uniform(key, global, block, low, high, out);
}
void random_uniform(const Key& key, const Shape& global, const IndexRanges& block, double low, double high,
                    double* out) {
  fill_uniform(key, global, block, low, high, out);
}

void random_normal(const Key& key, const Shape& global, const IndexRanges& block, float* out) {
  fill_normal(key, global, block, out);
}
void random_normal(const Key& key, const Shape& global, const IndexRanges& block, double* out) {
  fill_normal(key, global, block, out);
}

void random_truncated_normal(const Key& key, const Shape& global, const IndexRanges& block, double lower, double upper,
                             float* out) {
  fill_truncated_normal(key, global, block, lower, upper, out);
}
void random_truncated_normal(const Key& key, const Shape& global, const IndexRanges& block, double lower, double upper,
                             double* out) {
  fill_truncated_normal(key, global, block, lower, upper, out);
}

void random_exponential(const Key& key, const Shape& global, const IndexRanges& block, float* out) {
  fill_exponential(key, global, block, out);
}
void random_exponential(const Key& key, const Shape& global, const IndexRanges& block, double* out) {
  fill_exponential(key, global, block, out);
}

void random_gumbel(const Key& key, const Shape& global, const IndexRanges& block, float* out) {
  fill_gumbel(key, global, block, out);
}
void random_gumbel(const Key& key, const Shape& global, const IndexRanges& block, double* out) {
  fill_gumbel(key, global, block, out);
}

void random_integers(const Key& key, const Shape& global, const IndexRanges& block, int64_t first, uint64_t span,
                     uint8_t* out) {
  fill_integers<uint32_t>(key, global, block, first, span, out);
}
void random_integers(const Key& key, const Shape& global, const IndexRanges& block, int64_t first, uint64_t span,
                     int32_t* out) {
  fill_integers<uint32_t>(key, global, block, first, span, out);
}
void random_integers(const Key& key, const Shape& global, const IndexRanges& block, int64_t first, uint64_t span,
                     int64_t* out) {
  fill_integers<uint64_t>(key, global, block, first, span, out);
}

}  // namespace tessera
