// The sizes of derived datasets, and the errors of those that cannot be.
#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "data/windows.h"
#include "nn/tree/tree.h"

namespace tessera::data {

namespace {

std::string count_of(int64_t size) { return size == endless ? "endless" : std::to_string(size); }

}  // namespace

void detail::bad(std::string_view verb, const std::string& message) {
  fail(ErrorKind::invalid_argument, verb, message);
}

namespace detail {

// ---- words ----------------------------------------------------------------------------------------------------------

Words::Words(std::string text) : text_(std::move(text)) {}
Words::Words(const Words&) = default;
Words::Words(Words&&) noexcept = default;
Words& Words::operator=(const Words&) = default;
Words& Words::operator=(Words&&) noexcept = default;
Words::~Words() = default;

std::string after(const std::string& before, const std::string& words) { return before + " | " + words; }

std::string words_of(const char* link, int64_t number) {
  return std::string(link) + "(" + (number == endless ? std::string() : std::to_string(number)) + ")";
}

std::string words_of_slice(int64_t begin, int64_t end, int64_t step) {
  return "slice(" + std::to_string(begin) + ", " + (end == endless ? "end" : std::to_string(end)) +
         (step == 1 ? "" : ", " + std::to_string(step)) + ")";
}

std::string words_of_window_shuffle(int64_t window, uint64_t seed) {
  return "window_shuffle(" + std::to_string(window) + ", " + std::to_string(seed) + ")";
}

std::string words_of_random_map(uint64_t seed) { return "random_map(" + std::to_string(seed) + ")"; }

// ---- checks ---------------------------------------------------------------------------------------------------------

void check_index(int64_t epoch, int64_t index, int64_t size) {
  if (size == endless && epoch != 0) bad("at", "epoch " + std::to_string(epoch) + " of an endless dataset, expected 0");
  if (epoch >= 0 && index >= 0 && index < size) return;
  bad("at", "record " + std::to_string(index) + " of epoch " + std::to_string(epoch) + ", expected a record of [0, " +
                count_of(size) + ") and an epoch >= 0");
}

void fail_beyond(int64_t number, int64_t each) {
  bad("at", "number " + std::to_string(number) + " of runs of " + std::to_string(each) + " is beyond 2^63");
}

void check_shuffle(int64_t size) {
  if (size == endless) bad("shuffle", "an endless dataset; shuffle first, then repeat");
}

void check_window_shuffle(int64_t window) {
  if (window < 1 || window > int64_t{1} << 62)
    bad("window_shuffle", "a window of " + std::to_string(window) + " records, expected 1 to 2^62");
}

void check_cache(int64_t size, bool varies) {
  if (size == endless) bad("cache", "an endless dataset; cache first, then repeat");
  if (varies) bad("cache", "a dataset whose epochs differ; cache first, then shuffle() and random_map()");
}

void fail_cache(int64_t size) {
  bad("cache", std::to_string(size) + " records, whose pointers alone do not fit into memory; cache a part: slice()");
}

void check_slice(int64_t begin, int64_t end, int64_t step, int64_t size, bool reorders_and_draws) {
  if (reorders_and_draws && size != endless)
    bad("slice", "a dataset that is shuffled and mapped at random; slice first, then random_map()");
  if (step < 1) bad("slice", "a step of " + std::to_string(step) + ", expected at least 1");
  if (begin >= 0 && begin <= end && end <= size) return;
  bad("slice", "[" + std::to_string(begin) + ", " + count_of(end) + ") of " + count_of(size) +
                   " records, expected 0 <= begin <= end <= size");
}

void check_repeat(int64_t times, int64_t size) {
  if (times < 1) bad("repeat", std::to_string(times) + " times, expected at least 1");
  check_not_empty("repeat", size);
  if (times != endless && size != endless && size > (endless - 1) / times) {
    bad("repeat", std::to_string(size) + " records " + std::to_string(times) + " times is beyond 2^63; use repeat()");
  }
}

void check_not_empty(std::string_view verb, int64_t size) {
  if (size < 1) bad(verb, std::to_string(size) + " records, expected at least 1");
}

int64_t shard_size(int64_t size, const ShardOptions& shard) {
  const int64_t records = strided_split(size, shard);
  if (records < 1) {
    bad("shard", std::to_string(size) + " records for " + std::to_string(shard.count) +
                     " shards, expected at least one each; use more data or fewer processes");
  }
  return size == endless ? endless : records;
}

int64_t batched_size(int64_t size, int64_t batch_size, bool pad) {
  constexpr int64_t max_batch_size = int64_t{1} << 40;
  if (batch_size < 1 || batch_size > max_batch_size)
    bad("batch", "batches of " + std::to_string(batch_size) + ", expected 1 to 2^40");
  if (size < batch_size && !pad) {
    bad("batch",
        std::to_string(size) + " records for batches of " + std::to_string(batch_size) +
            ", expected at least one batch; use a smaller batch, repeat() before batch(), or pad_last_batch()");
  }
  return size == endless ? endless : size / batch_size + (pad && size % batch_size != 0);
}

int64_t window_stride(int64_t length, int64_t stride) {
  return stride == 0 ? std::max<int64_t>(1, length - 1) : stride;
}

int64_t window_count(int64_t source_size, int64_t length, int64_t stride) {
  if (length < 1 || stride < 0) {
    bad("windows", "length " + std::to_string(length) + " and stride " + std::to_string(stride) +
                       ", expected a length of at least 1 and a stride of at least 1 (or 0 for length - 1)");
  }
  if (source_size < length) {
    bad("windows", "a source of " + std::to_string(source_size) + " values is shorter than one window of " +
                       std::to_string(length) + "; use more data or shorter windows");
  }
  return (source_size - length) / window_stride(length, stride) + 1;
}

int64_t validation_size(int64_t size, double fraction, bool reshuffles) {
  constexpr std::string_view verb = "train_validation_split";
  if (reshuffles) bad(verb, "a shuffled dataset: adjacent records would be in both parts; split first, then shuffle");
  if (size == endless) bad(verb, "an endless dataset; split first, then repeat");
  if (!(fraction > 0 && fraction < 1)) {
    bad(verb, "fraction " + std::to_string(fraction) + ", expected more than 0 and less than 1");
  }
  const auto held_out = std::max<int64_t>(1, std::llround(fraction * static_cast<double>(size)));
  if (held_out < size) return held_out;
  bad(verb, std::to_string(size) + " records with fraction " + std::to_string(fraction) +
                " leave none for training; use more data or a smaller fraction");
}

}  // namespace detail

}  // namespace tessera::data
