// Cross-entropy of one row of logits: the arithmetic of the CUDA kernels, which a test repeats on the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TESSERA_HOST_DEVICE inline
#endif

namespace tessera::detail {

enum class LogitType : uint8_t { float32, float16, bfloat16 };

// The rows of one call, in the form that a GPU kernel takes. With `gradients`, the backward pass.
struct LossRows {
  LogitType type;
  LogitType gradient_type;  // that of the logits, or any type if they are float32
  const void* logits;       // row r begins at element r * stride
  const int64_t* labels;    // negative: ignored
  float* sums;              // two per row, from the forward pass: max, and sum of exp(logit - max)
  float* losses;            // results of the forward pass
  const float* of_losses;   // gradients of the losses
  void* gradients;          // of the logits; no gaps between rows
  int64_t rows, vocab, stride;
  float smoothing, z_loss;
};

// ---- access by the threads of a row

constexpr int max_row_threads = 512;

// The elements of 16 bytes, which a thread reads and writes at once.
template <class T>
struct alignas(16) Load {
  static constexpr int size = 16 / sizeof(T);
  T values[size];
};

// Returns the number of threads for a row: whole warps, with four loads each if the row is long enough.
template <class T>
int row_threads(int64_t vocab) {
  int threads = 32;
  while (threads < max_row_threads && vocab > 4 * threads * Load<T>::size) threads *= 2;
  return threads;
}

template <int n, class T, class F>
TESSERA_HOST_DEVICE void call(const F& f, int64_t first, const T* values) {
  float x[n];
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(values[i]);
  f(first, x);
}

// Returns the number of elements of a row before its first load.
template <class T>
TESSERA_HOST_DEVICE int64_t elements_before_loads(const T* row) {
  return static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T));
}

// Calls f(first, x) for this thread's elements of a row, where x is an array of floats: of a load at addresses
// divisible by 16, of one element before and after them. Without `reads`, the values in x are arbitrary.
template <bool reads, class T, class F>
TESSERA_HOST_DEVICE void for_each_load(const T* row, int64_t vocab, int thread, int threads, const F& f) {
  constexpr int n = Load<T>::size;
  const int64_t before = elements_before_loads(row);
  const int64_t begin = before < vocab ? before : vocab, end = begin + (vocab - begin) / n * n;
  const int64_t step = int64_t{threads} * n;
  const auto load = [=](int64_t i) { return reads ? *reinterpret_cast<const Load<T>*>(row + i) : Load<T>(); };
  if (thread < begin) call<1>(f, thread, row + thread);
  int64_t i = begin + int64_t{thread} * n;
  for (; i + step < end; i += 2 * step) {  // two loads at a time, to hide the latency of the memory
    const Load<T> x = load(i), y = load(i + step);
    call<n>(f, i, x.values), call<n>(f, i + step, y.values);
  }
  if (i < end) call<n>(f, i, load(i).values);
  if (end + thread < vocab) call<1>(f, end + thread, row + end + thread);
}

// Stores n elements, at once if `to` is `aligned` to their bytes.
template <class T, int n>
TESSERA_HOST_DEVICE void store(T* to, const float (&x)[n], bool aligned) {
  struct alignas(n * sizeof(T)) Packed {
    T values[n];
  } packed;
  for (int i = 0; i < n; ++i) packed.values[i] = static_cast<T>(x[i]);
  if (n == 1 || !aligned) {
    for (int i = 0; i < n; ++i) to[i] = packed.values[i];
    return;
  }
#ifdef __CUDA_ARCH__  // the compiler may split a plain store
  if constexpr (sizeof(packed) == 16) __stwb(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(packed));
  if constexpr (sizeof(packed) == 8) __stwb(reinterpret_cast<uint2*>(to), std::bit_cast<uint2>(packed));
#else
  *reinterpret_cast<Packed*>(to) = packed;
#endif
}

// Returns e^x for x <= 0. The GPU's fast instruction rounds results below 2^-126 to 0. Its error is otherwise similar
// to that of rounding x.
TESSERA_HOST_DEVICE float exp_of(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
  return result;
#else
  return std::exp(x);
#endif
}

// ---- forward

// Sums over some logits of a row. A NaN or +inf among them makes `sum` NaN.
struct RowSums {
  float max = -INFINITY;  // skips NaN
  float sum = 0;          // of exp(logit - max)
  float deviations = 0;   // sum of logit - center
};

// Returns the number to subtract from logits whose maximum is `max`. It is 0 for -inf, because -inf - -inf is NaN.
TESSERA_HOST_DEVICE float base_of(float max) { return max == -INFINITY ? 0 : max; }

TESSERA_HOST_DEVICE RowSums merged(const RowSums& a, const RowSums& b) {
  const float max = fmaxf(a.max, b.max), base = base_of(max);
  return {max, a.sum * exp_of(a.max - base) + b.sum * exp_of(b.max - base), a.deviations + b.deviations};
}

template <class T>
TESSERA_HOST_DEVICE const T* logits_of(const LossRows& rows, int64_t row) {
  return static_cast<const T*>(rows.logits) + row * rows.stride;
}

// Returns the label's logit, from which others are subtracted before they are summed: their sum alone may overflow.
TESSERA_HOST_DEVICE float center_of(float label) { return label - label == 0 ? label : 0; }

// Returns the sums of one thread's logits. They are empty if the label is ignored.
template <class T>
TESSERA_HOST_DEVICE RowSums thread_sums(const LossRows& rows, int64_t row, int thread, int threads) {
  RowSums s;
  const int64_t label = rows.labels[row];
  if (label < 0) return s;
  const T* logits = logits_of<T>(rows, row);
  const float center = rows.smoothing != 0 ? center_of(static_cast<float>(logits[label])) : 0;
  for_each_load<true>(logits, rows.vocab, thread, threads, [&](int64_t, const auto& x) {
    float max = s.max;
    for (const float value : x) max = fmaxf(max, value);
    const float base = base_of(max);
    s.sum *= exp_of(s.max - base), s.max = max;
    for (const float value : x) s.sum += exp_of(value - base), s.deviations += value - center;
  });
  return s;
}

// Writes the loss of a row from the sums of all its logits.
template <class T>
TESSERA_HOST_DEVICE void finish_row(const LossRows& rows, int64_t row, const RowSums& s) {
  rows.sums[2 * row] = s.max, rows.sums[2 * row + 1] = s.sum;
  rows.losses[row] = 0;
  const int64_t label = rows.labels[row];
  if (label < 0) return;
  const float logit = static_cast<float>(logits_of<T>(rows, row)[label]), log_sum = std::log(s.sum);
  float loss = log_sum - (logit - s.max);
  if (rows.smoothing != 0) {
    const float mean = center_of(logit) - s.max + s.deviations / static_cast<float>(rows.vocab);
    loss = (1 - rows.smoothing) * loss + rows.smoothing * (log_sum - mean);
  }
  if (rows.z_loss != 0) loss += rows.z_loss * (s.max + log_sum) * (s.max + log_sum);
  rows.losses[row] = loss;
}

// ---- backward

// Writes one thread's gradients of the logits, of type G: of_loss * ((1 + 2 z_loss logsumexp) softmax - (1 - smoothing)
// onehot - smoothing / vocab), 0 if the label is ignored.
template <class T, class G>
TESSERA_HOST_DEVICE void thread_gradients(const LossRows& rows, int64_t row, int thread, int threads) {
  const T* logits = logits_of<T>(rows, row);
  G* out = static_cast<G*>(rows.gradients) + row * rows.vocab;
  constexpr uintptr_t bytes = Load<T>::size * sizeof(G);  // of the gradients of a load
  const bool aligned = reinterpret_cast<uintptr_t>(out + elements_before_loads(logits)) % bytes == 0;
  const int64_t label = rows.labels[row];
  if (label < 0) {
    for_each_load<false>(logits, rows.vocab, thread, threads, [&](int64_t first, auto& x) {
      for (float& value : x) value = 0;
      store(out + first, x, aligned);
    });
    return;
  }
  const float max = rows.sums[2 * row], sum = rows.sums[2 * row + 1], of_loss = rows.of_losses[row];
  const float slope = rows.z_loss != 0 ? 1 + 2 * rows.z_loss * (max + std::log(sum)) : 1;
  const float scale = of_loss * slope / sum, shift = of_loss * rows.smoothing / static_cast<float>(rows.vocab);
  for_each_load<true>(logits, rows.vocab, thread, threads, [&](int64_t first, auto& x) {
    for (float& value : x) value = exp_of(value - max) * scale - shift;
    store(out + first, x, aligned);
    if (label < first || label >= first + static_cast<int64_t>(sizeof(x) / sizeof(float))) return;
    const float p = exp_of(static_cast<float>(logits[label]) - max) * scale;  // this thread overwrites its own element
    out[label] = static_cast<G>(p - shift - of_loss * (1 - rows.smoothing));
  });
}

}  // namespace tessera::detail
