// Sizes, descriptions and argument checks of derived datasets.
#include "data/datasets/dataset.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "sharding/base/fail.h"

namespace tessera::data {

namespace detail {

// ---- descriptions ---------------------------------------------------------------------------------------------------

std::string count_of(int64_t size) { return size == endless ? "endless" : fmt::format("{}", size); }

std::string after(const std::string& before, const std::string& description) { return before + " | " + description; }

std::string description_of(const char* link, int64_t number) {
  return number == endless ? fmt::format("{}()", link) : fmt::format("{}({})", link, number);
}

std::string description_of_slice(int64_t begin, int64_t end, int64_t step) {
  const std::string last = end == endless ? "end" : fmt::format("{}", end);
  return step == 1 ? fmt::format("slice({}, {})", begin, last) : fmt::format("slice({}, {}, {})", begin, last, step);
}

std::string description_of_window_shuffle(int64_t window, uint64_t seed) {
  return fmt::format("window_shuffle({}, {})", window, seed);
}

std::string description_of_random_map(uint64_t seed) { return fmt::format("random_map({})", seed); }

// ---- checks ---------------------------------------------------------------------------------------------------------

void check_index(int64_t epoch, int64_t index, int64_t size) {
  if (size == endless && epoch != 0)
    fail(ErrorKind::invalid_argument, "at", "epoch {} of an endless dataset, expected 0", epoch);
  if (epoch >= 0 && index >= 0 && index < size) return;
  fail(ErrorKind::invalid_argument, "at", "record {} of epoch {}, expected a record of [0, {}) and an epoch >= 0",
       index, epoch, count_of(size));
}

void fail_beyond(int64_t number, int64_t each) {
  fail(ErrorKind::invalid_argument, "at", "number {} of runs of {} is beyond 2^63", number, each);
}

void check_shuffle(int64_t size) {
  if (size == endless) fail(ErrorKind::invalid_argument, "shuffle", "an endless dataset; shuffle first, then repeat");
}

void check_window_shuffle(int64_t window) {
  if (window < 1 || window > int64_t{1} << 62)
    fail(ErrorKind::invalid_argument, "window_shuffle", "a window of {} records, expected 1 to 2^62", window);
}

void check_cache(int64_t size, bool varies) {
  if (size == endless) fail(ErrorKind::invalid_argument, "cache", "an endless dataset; cache first, then repeat");
  if (varies)
    fail(ErrorKind::invalid_argument, "cache",
         "a dataset whose epochs differ; cache first, then shuffle() and random_map()");
}

void fail_cache(int64_t size) {
  fail(ErrorKind::invalid_argument, "cache",
       "{} records, whose pointers alone do not fit into memory; cache a part: slice()", size);
}

void check_slice(int64_t begin, int64_t end, int64_t step, int64_t size, bool reorders_and_draws) {
  if (reorders_and_draws && size != endless)
    fail(ErrorKind::invalid_argument, "slice",
         "a dataset that is shuffled and mapped at random; slice first, then random_map()");
  if (step < 1) fail(ErrorKind::invalid_argument, "slice", "a step of {}, expected at least 1", step);
  if (begin >= 0 && begin <= end && end <= size) return;
  fail(ErrorKind::invalid_argument, "slice", "[{}, {}) of {} records, expected 0 <= begin <= end <= size", begin,
       count_of(end), count_of(size));
}

void check_repeat(int64_t times, int64_t size) {
  if (times < 1) fail(ErrorKind::invalid_argument, "repeat", "{} times, expected at least 1", times);
  check_not_empty("repeat", size);
  if (times != endless && size != endless && size > (endless - 1) / times) {
    fail(ErrorKind::invalid_argument, "repeat", "{} records {} times is beyond 2^63; use repeat()", size, times);
  }
}

void check_not_empty(std::string_view verb, int64_t size) {
  if (size < 1) fail(ErrorKind::invalid_argument, verb, "{} records, expected at least 1", size);
}

int64_t shard_size(int64_t size, const ShardOptions& shard) {
  const int64_t records = strided_split(size, shard);
  if (records < 1) {
    fail(ErrorKind::invalid_argument, "shard",
         "{} records for {} shards, expected at least one each; use more data or fewer processes", size, shard.count);
  }
  return size == endless ? endless : records;
}

int64_t batched_size(int64_t size, int64_t batch_size, bool pad) {
  constexpr int64_t max_batch_size = int64_t{1} << 40;
  if (batch_size < 1 || batch_size > max_batch_size)
    fail(ErrorKind::invalid_argument, "batch", "batches of {}, expected 1 to 2^40", batch_size);
  if (size < batch_size && !pad) {
    fail(ErrorKind::invalid_argument, "batch",
         "{} records for batches of {}, expected at least one batch; use a smaller batch, repeat() before batch(), or "
         "pad_last_batch()",
         size, batch_size);
  }
  return size == endless ? endless : size / batch_size + (pad && size % batch_size != 0);
}

int64_t validation_size(int64_t size, double fraction, bool reshuffles) {
  constexpr std::string_view verb = "train_validation_split";
  if (reshuffles)
    fail(ErrorKind::invalid_argument, verb,
         "a shuffled dataset: adjacent records would be in both parts; split first, then shuffle");
  if (size == endless) fail(ErrorKind::invalid_argument, verb, "an endless dataset; split first, then repeat");
  if (!(fraction > 0 && fraction < 1)) {
    fail(ErrorKind::invalid_argument, verb, "fraction {:f}, expected more than 0 and less than 1", fraction);
  }
  const auto held_out = std::max<int64_t>(1, std::llround(fraction * static_cast<double>(size)));
  if (held_out < size) return held_out;
  fail(ErrorKind::invalid_argument, verb,
       "{} records with fraction {:f} leave none for training; use more data or a smaller fraction", size, fraction);
}

}  // namespace detail

}  // namespace tessera::data
