// The generators of threefry.h: walk a block in batches, and generate each batch in vectorized loops.
#include "sharding/random/threefry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sharding/base/fail.h"
#include "sharding/random/threefry_simd.h"

namespace tessera {

using namespace detail;

namespace {

// Walks a block in row-major order as runs of consecutive global indices.
class BlockWalk {
 public:
  BlockWalk(const Shape& global, const IndexRanges& block);

  // Fills the batch with the next elements. Returns false when no elements are left.
  bool next(Batch& batch);

 private:
  struct Dim {
    int64_t extent;  // extent of the block
    int64_t stride;  // stride of the global array
    int64_t at;      // position in the block
  };

  void next_run();

  std::vector<Dim> outer_;  // all dimensions except the one of the runs
  int64_t run_ = 1;         // elements per run
  int64_t start_ = 0;       // global index of the current run
  int64_t done_ = 0;        // elements of the current run that were returned
  int64_t left_ = 1;        // elements that were not returned yet
};

void check_block(const Shape& global, const IndexRanges& block) {
  bool inside = global.size() == block.size();
  for (size_t d = 0; inside && d < global.size(); ++d)
    inside = 0 <= block[d].first && block[d].first <= block[d].second && block[d].second <= global[d];
  if (inside) return;
  fail(ErrorKind::invalid_argument, "random",
       "the block {} is not inside the global shape {}. Give one range within each dim.", ranges_text(block),
       to_string(global));
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
  while (left_ > 0 && batch.size < batch_size) {
    const int64_t count = std::min(run_ - done_, batch_size - batch.size);
    batch.append(static_cast<uint64_t>(start_ + done_), count);
    done_ += count;
    left_ -= count;
    if (done_ == run_) next_run();
  }
  return batch.size > 0;
}

// --- integers ---

// Returns (high 2^bits + low) mod span, in arithmetic of that many bits; span 0 means 2^bits.
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

template <class T, class Finish>
void fill_uniform(const Key& key, const Shape& global, const IndexRanges& block, Interval<T> to, T* out,
                  Finish finish) {
  BlockWalk walk(global, block);
  alignas(64) BitsFor<T> bits[batch_size];
  for (Batch batch; walk.next(batch); out += batch.size) {
    draw(key, batch, bits);
    scale(to, bits, batch.size, out);
    finish(batch.size, out);
  }
}

}  // namespace

template <class T>
void random_bits(const Key& key, const Shape& global, const IndexRanges& block, T* out) {
  BlockWalk walk(global, block);
  for (Batch batch; walk.next(batch); out += batch.size) draw(key, batch, out);
}

template <class T>
void random_uniform(const Key& key, const Shape& global, const IndexRanges& block, double low, double high, T* out) {
  fill_uniform<T>(key, global, block, {low, high}, out, [](int64_t, T*) {});
}

template <class T>
void random_normal(const Key& key, const Shape& global, const IndexRanges& block, T* out) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  fill_uniform<T>(key, global, block, {std::nextafter(T(-1), T(0)), 1}, out, [=](int64_t n, T* x) {
    to_normal(Clip<T>{-infinity, infinity}, n, x);
  });
}

template <class T>
void random_truncated_normal(const Key& key, const Shape& global, const IndexRanges& block, double lower, double upper,
                             T* out) {
  if (!(lower < upper))
    fail(ErrorKind::invalid_argument, "random_truncated_normal",
         "the bounds are {} and {}. The lower bound must be below the upper one.", lower, upper);
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const T a = static_cast<T>(lower), b = static_cast<T>(upper);
  const Clip<T> clip{std::nextafter(a, infinity), std::nextafter(b, -infinity)};
  fill_uniform<T>(key, global, block, {std::erf(a / std::sqrt(2.0)), std::erf(b / std::sqrt(2.0))}, out,
                  [=](int64_t n, T* x) { to_normal(clip, n, x); });
}

template <class T>
void random_exponential(const Key& key, const Shape& global, const IndexRanges& block, T* out) {
  fill_uniform<T>(key, global, block, {0, 1}, out, [](int64_t n, T* x) { to_exponential(n, x); });
}

template <class T>
void random_gumbel(const Key& key, const Shape& global, const IndexRanges& block, T* out) {
  fill_uniform<T>(key, global, block, {std::numeric_limits<T>::min(), 1}, out,
                  [](int64_t n, T* x) { to_gumbel(n, x); });
}

template <class T>
void random_integers(const Key& key, const Shape& global, const IndexRanges& block, int64_t first, uint64_t span,
                     T* out) {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const std::vector<Key> keys = split(key, 2);
  const Remainder<U> remainder(static_cast<U>(span));
  BlockWalk walk(global, block);
  alignas(64) U high[batch_size], low[batch_size];
  for (Batch batch; walk.next(batch); out += batch.size) {
    draw(keys[0], batch, high);
    draw(keys[1], batch, low);
    for (int64_t i = 0; i < batch.size; ++i)
      out[i] = static_cast<T>(static_cast<U>(first) + remainder(high[i], low[i]));
  }
}

template void random_bits(const Key&, const Shape&, const IndexRanges&, uint32_t*);
template void random_bits(const Key&, const Shape&, const IndexRanges&, uint64_t*);
template void random_uniform(const Key&, const Shape&, const IndexRanges&, double, double, float*);
template void random_uniform(const Key&, const Shape&, const IndexRanges&, double, double, double*);
template void random_normal(const Key&, const Shape&, const IndexRanges&, float*);
template void random_normal(const Key&, const Shape&, const IndexRanges&, double*);
template void random_truncated_normal(const Key&, const Shape&, const IndexRanges&, double, double, float*);
template void random_truncated_normal(const Key&, const Shape&, const IndexRanges&, double, double, double*);
template void random_exponential(const Key&, const Shape&, const IndexRanges&, float*);
template void random_exponential(const Key&, const Shape&, const IndexRanges&, double*);
template void random_gumbel(const Key&, const Shape&, const IndexRanges&, float*);
template void random_gumbel(const Key&, const Shape&, const IndexRanges&, double*);
template void random_integers(const Key&, const Shape&, const IndexRanges&, int64_t, uint64_t, uint8_t*);
template void random_integers(const Key&, const Shape&, const IndexRanges&, int64_t, uint64_t, int32_t*);
template void random_integers(const Key&, const Shape&, const IndexRanges&, int64_t, uint64_t, int64_t*);

}  // namespace tessera
