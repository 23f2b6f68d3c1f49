// Counters, bits and numbers of a batch, in loops that the compiler vectorizes.
#include "sharding/random/threefry_simd.h"

#include "sharding/random/threefry_element.h"

// CMake compiles this file with -O3, and with -ffp-contract=off, so that all clones and batches give the same bits.
// -fno-math-errno and -fno-trapping-math allow the compiler to vectorize sqrt and selections. Clones need glibc's
// ifunc, whose resolvers run before a sanitizer is initialized.
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
namespace detail {

void Batch::append(uint64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    high[size + i] = static_cast<uint32_t>((first + static_cast<uint64_t>(i)) >> 32);
    low[size + i] = static_cast<uint32_t>(first + static_cast<uint64_t>(i));
  }
  size += count;
}

// --- threefry2x32 ---

namespace {

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

}  // namespace

void draw(Key key, const Batch& batch, uint32_t* out) { bits_of(key, batch, out); }
void draw(Key key, const Batch& batch, uint64_t* out) { wide_bits_of(key, batch, out); }

// --- uniform ---

namespace {

template <class T>
TESSERA_ALWAYS_INLINE void scale_loop(Interval<T> to, const BitsFor<T>* __restrict bits, int64_t n, T* __restrict out) {
  if (to.rounding == Rounding::product_exact) {
    for (int64_t i = 0; i < n; ++i) out[i] = with_exact_product(unit(bits[i]), to.low, to.width);
  } else if (to.rounding == Rounding::sum_exact_in_double) {
    const double width = to.width, low = to.low;
    for (int64_t i = 0; i < n; ++i) out[i] = with_exact_sum<T>(unit(bits[i]), low, width);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = with_one_rounding(unit(bits[i]), to.low, to.width);
  }
}

}  // namespace

TESSERA_CLONES void scale(Interval<float> to, const uint32_t* bits, int64_t n, float* out) {
  scale_loop(to, bits, n, out);
}
TESSERA_CLONES void scale(Interval<double> to, const uint64_t* bits, int64_t n, double* out) {
  scale_loop(to, bits, n, out);
}

// --- normal ---

namespace {

template <class T>
TESSERA_ALWAYS_INLINE void normal_loop(Clip<T> clip, int64_t n, T* __restrict x) {
  for (int64_t i = 0; i < n; ++i) x[i] = normal_of(x[i], clip.low, clip.high);
}

}  // namespace

TESSERA_CLONES void to_normal(Clip<float> clip, int64_t n, float* x) { normal_loop(clip, n, x); }
TESSERA_CLONES void to_normal(Clip<double> clip, int64_t n, double* x) { normal_loop(clip, n, x); }

// --- exponential and gumbel ---

namespace {

template <class T>
TESSERA_ALWAYS_INLINE void exponential_loop(int64_t n, T* __restrict x) {
  for (int64_t i = 0; i < n; ++i) x[i] = exponential_of(x[i]);
}
template <class T>
TESSERA_ALWAYS_INLINE void gumbel_loop(int64_t n, T* __restrict x) {
  for (int64_t i = 0; i < n; ++i) x[i] = gumbel_of(x[i]);
}

}  // namespace

TESSERA_CLONES void to_exponential(int64_t n, float* x) { exponential_loop(n, x); }
TESSERA_CLONES void to_exponential(int64_t n, double* x) { exponential_loop(n, x); }
TESSERA_CLONES void to_gumbel(int64_t n, float* x) { gumbel_loop(n, x); }
TESSERA_CLONES void to_gumbel(int64_t n, double* x) { gumbel_loop(n, x); }

}  // namespace detail

Key threefry2x32(const Key& key, uint32_t high, uint32_t low) {
  detail::threefry(key.data[0], key.data[1], high, low);
  return Key::from_data(high, low);
}

}  // namespace tessera
