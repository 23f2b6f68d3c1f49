// The generators of threefry.h: counters in batches, through loops that compilers turn into vector instructions.
#include "sharding/threefry.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
#define TESSERA_INLINE inline __attribute__((always_inline))

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
TESSERA_INLINE void four_rounds(uint32_t& x0, uint32_t& x1) {
  x0 += x1, x1 = std::rotl(x1, A) ^ x0;
  x0 += x1, x1 = std::rotl(x1, B) ^ x0;
  x0 += x1, x1 = std::rotl(x1, C) ^ x0;
  x0 += x1, x1 = std::rotl(x1, D) ^ x0;
}

TESSERA_INLINE void threefry(uint32_t k0, uint32_t k1, uint32_t& x0, uint32_t& x1) {
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

TESSERA_INLINE void draw(Key key, const Batch& batch, uint32_t* out) { bits_of(key, batch, out); }
TESSERA_INLINE void draw(Key key, const Batch& batch, uint64_t* out) { wide_bits_of(key, batch, out); }

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
TESSERA_INLINE float unit(uint32_t bits) { return std::bit_cast<float>(bits >> 9 | 0x3F800000u) - 1.0f; }
TESSERA_INLINE double unit(uint64_t bits) { return std::bit_cast<double>(bits >> 12 | 0x3FF0000000000000u) - 1.0; }

template <class T>
TESSERA_INLINE void scale_loop(Interval<T> to, const BitsFor<T>* __restrict bits, int64_t n, T* __restrict out) {
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

// The natural logarithm of a positive normal number, to one unit in the last place. Vector and scalar math
// libraries differ in the last bit, so this is ours. Source: FreeBSD msun e_logf.c and e_log.c (Sun Microsystems).
TESSERA_INLINE float log_of(float x) {
  const int32_t shifted = std::bit_cast<int32_t>(x) - 0x3F3504F3;
  const float k = static_cast<float>(shifted >> 23);
  const float f = std::bit_cast<float>((shifted & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  const float s = f / (2.0f + f), z = s * s, w = z * z;
  const float odd = w * (0xccce13.0p-25f + w * 0xf89e26.0p-26f);
  const float even = z * (0xaaaaaa.0p-24f + w * 0x91e9ee.0p-25f);
  const float half = 0.5f * f * f;
  return k * 6.9313812256e-01f - ((half - (s * (half + (odd + even)) + k * 9.0580006145e-06f)) - f);
}

TESSERA_INLINE double log_of(double x) {
  const int64_t shifted = std::bit_cast<int64_t>(x) - 0x3FE6A09E667F3BCD;
  const double k = static_cast<double>(static_cast<int32_t>(shifted >> 52));
  const double f = std::bit_cast<double>((shifted & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD) - 1.0;
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double odd = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double even = z * (6.666666666666735130e-01 +
                           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half = 0.5 * f * f;
  return k * 6.93147180369123816490e-01 - ((half - (s * (half + (odd + even)) + k * 1.90821492927058770002e-10)) - f);
}

constexpr float kCentralFloat[] = {2.81022636e-08f,  3.43273939e-07f,  -3.5233877e-06f,
                                   -4.39150654e-06f, 0.00021858087f,   -0.00125372503f,
                                   -0.00417768164f,  0.246640727f,     1.50140941f};
constexpr float kTailFloat[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f,
                                -0.0076224613f,   0.00943887047f,  1.00167406f,    2.83297682f};

// erfinv(x) for -1 <= x <= 1, where w = -log(1 - x^2).
TESSERA_INLINE float erf_inv(float x) {
  const float square = x * x;
  const float w = -log_of(1.0f - square);
  const bool central = w < 5.0f;
  const float t = central ? w - 2.5f : std::sqrt(w) - 3.0f;
  float p = central ? kCentralFloat[0] : kTailFloat[0];
  for (int i = 1; i < 9; ++i) p = (central ? kCentralFloat[i] : kTailFloat[i]) + p * t;
  return square == 1.0f ? x * std::numeric_limits<float>::infinity() : p * x;
}

constexpr double kCentral[] = {
    -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,   1.115787767802518096e-17,
    -1.333171662854620906e-16,  2.0972767875968561637e-17, 6.6376381343583238325e-15,   -4.0545662729752068639e-14,
    -8.1519341976054721522e-14, 2.6335093153082322977e-12, -1.2975133253453532498e-11,  -5.4154120542946279317e-11,
    1.051212273321532285e-09,   -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
    -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352,   -0.00074070253416626697512,
    -0.0060336708714301490533,  0.24015818242558961693,     1.6536545626831027356};
constexpr double kMiddle[] = {
    2.2137376921775787049e-09,  9.0756561938885390979e-08,  -2.7517406297064545428e-07, 1.8239629214389227755e-08,
    1.5027403968909827627e-06,  -4.013867526981545969e-06,  2.9234449089955446044e-06,  1.2475304481671778723e-05,
    -4.7318229009055733981e-05, 6.8284851459573175448e-05,  2.4031110387097893999e-05,  -0.0003550375203628474796,
    0.00095328937973738049703,  -0.0016882755560235047313,  0.0024914420961078508066,   -0.0037512085075692412107,
    0.005370914553590063617,    1.0052589676941592334,      3.0838856104922207635};
constexpr double kTail[] = {
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
    7.6157012080783393804e-09,  -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
    2.2900482228026654717e-07,  -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
    7.5995277030017761139e-05,  -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
    4.8499064014085844221};

template <size_t N>
TESSERA_INLINE double horner(const double (&coefficients)[N], double t) {
  double p = coefficients[0];
#pragma GCC unroll 32
  for (size_t i = 1; i < N; ++i) p = coefficients[i] + p * t;
  return p;
}

TESSERA_INLINE double erf_inv(double x) {
  const double square = x * x;
  const double w = -log_of(1.0 - square);
  const double root = std::sqrt(w);
  const double central = horner(kCentral, w - 3.125);
  const double middle = horner(kMiddle, root - 3.25);
  const double tail = horner(kTail, root - 5.0);
  const double p = w < 6.25 ? central : w < 16.0 ? middle : tail;
  return square == 1.0 ? x * std::numeric_limits<double>::infinity() : p * x;
}

template <class T>
struct Clip {
  T low, high;
};

template <class T>
TESSERA_INLINE void normal_loop(Clip<T> clip, int64_t n, T* __restrict x) {
  constexpr T root_two = static_cast<T>(1.41421356237309504880);
  for (int64_t i = 0; i < n; ++i) {
    const T value = root_two * erf_inv(x[i]);
    const T above = value < clip.low ? clip.low : value;
    x[i] = above > clip.high ? clip.high : above;
  }
}

TESSERA_CLONES void to_normal(Clip<float> clip, int64_t n, float* x) { normal_loop(clip, n, x); }
TESSERA_CLONES void to_normal(Clip<double> clip, int64_t n, double* x) { normal_loop(clip, n, x); }

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
  fill_uniform<T>(key, global, block, {std::nextafter(T(-1), T(0)), 1}, out,
                  [=](int64_t n, T* x) { to_normal(Clip<T>{-infinity, infinity}, n, x); });
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

}  // namespace tessera
