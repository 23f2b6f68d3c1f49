// Collate functions, which turn records into a batch: as_vector, unbatched, pad_last_batch.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"

namespace tessera::data {

// Returns the records as a std::vector, unchanged. Any function of a std::vector<T> of records is a collate function.
// The loader then drops the records at the end of an epoch that do not fill a batch. Other standard collate functions:
// `stack` (data/batches/stack.h) makes arrays; `unbatched` returns the only record, for batch_size 1 where records are
// batches already.
struct AsVector {
  template <class T>
  std::vector<T> operator()(std::vector<T> records) const {
    return records;
  }
};
inline constexpr AsVector as_vector;

struct Unbatched {  // Error (invalid_argument): more than one record
  template <class T>
  T operator()(std::vector<T> records) const {
    if (records.size() == 1) return std::move(records.front());
    fail(ErrorKind::invalid_argument, "unbatched", std::to_string(records.size()) + " records, expected batch_size 1");
  }
};
inline constexpr Unbatched unbatched;

// A batch whose last rows may be padding: copies of its last record, with a mask of false.
template <class Batch>
struct PaddedBatch {
  Batch batch;
  NamedArray mask{"batch"};  // bool (B)
};

namespace detail {

Array mask_of(int64_t rows, int64_t valid);

// Adapters of a collate function to the call that batches make: (records, number of real records).
template <class F>
struct Dropping {
  static constexpr bool pads = false;
  F f;
  template <class T>
  auto operator()(std::vector<T> records, int64_t) const {
    return std::invoke(f, std::move(records));
  }
};

template <class F>
struct Masking {
  static constexpr bool pads = true;
  F f;
  template <class T>
  auto operator()(std::vector<T> records, int64_t valid) const {
    const auto count = static_cast<int64_t>(records.size());
    using Batch = std::decay_t<std::invoke_result_t<const F&, std::vector<T>>>;
    PaddedBatch<Batch> batch{std::invoke(f, std::move(records))};
    batch.mask = mask_of(count, valid);
    return batch;
  }
};

template <class F>
auto collator(F f) {
  if constexpr (requires { F::pads; })
    return f;
  else
    return Dropping<F>{std::move(f)};
}
template <class F>
using Collator = decltype(collator(std::declval<F>()));

template <class F, class T>
using batch_of = std::decay_t<std::invoke_result_t<const Collator<F>&, std::vector<T>, int64_t>>;

}  // namespace detail

// Returns a collate function that pads the last batch of an epoch, so that evaluation uses every record once. The batch
// of pad_last_batch(stack) is PaddedBatch<Batch>. The average over the rows whose mask is true is the average over the
// records.
template <class F>
auto pad_last_batch(F collate) {
  return detail::Masking<F>{std::move(collate)};
}

}  // namespace tessera::data
