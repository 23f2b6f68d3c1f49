// Errors of streams and packing, positions in a dataset, and records made ahead in threads.
#include "data/streams/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "sharding/base/fail.h"

namespace tessera::data::detail {

void fail_next(const std::string& where) {
  const Failure failure = current_failure();
  fail(failure.kind, "next", "{}: {}", where, failure.message);
}

void fail_at_record(int64_t epoch, int64_t index) {
  fail_next("record " + std::to_string(index) + " of epoch " + std::to_string(epoch));
}

void fail_at_stream_record(const StreamPosition& from) {
  const StreamPosition* first = &from;  // becomes the position in the dataset, inside the positions of stages
  while (first->parts.size() == 1) first = &first->parts[0];
  fail_next(fmt::format("the output of {} {} of epoch {} and those after it",
                        first->parts.empty() ? "record" : "the mix's turn", first->input, first->epoch));
}

void fail_empty(int64_t records, int64_t epoch) {
  fail(ErrorKind::invalid_argument, "next",
       "{} records of epoch {}, one after another, gave nothing; check the filter or flat_map of the stream, or for "
       "documents without tokens",
       records, epoch);
}

void fail_stopped() { fail(ErrorKind::stopped, "next", "the loader was stopped"); }

void fail_misplaced(const StreamPosition& position) {
  fail(ErrorKind::invalid_argument, "next",
       "the loader's state continues at item {} of the output of record {} of epoch {}, {} records on, and there is "
       "none; it was taken from another dataset",
       position.offset, position.input, position.epoch, position.since);
}

// ---- positions

std::string StreamSource::missing(const StreamPosition& p) const {
  const bool is_endless = size == endless;
  const bool is_place = p.input <= (is_endless ? endless / 2 : size) && p.epoch <= (is_endless ? 0 : endless / 2);
  if (is_place && p.parts.empty() && std::min({p.epoch, p.input, p.offset, p.since}) >= 0) return "";
  return "the state continues at item " + std::to_string(p.offset) + " of record " + std::to_string(p.input) +
         " in epoch " + std::to_string(p.epoch) + ", and the stream's dataset has " +
         (is_endless ? "one endless epoch" : std::to_string(size) + " records") +
         "; restore it with the dataset it was taken from";
}

double StreamSource::passes(const StreamPosition& position) const {
  const double epochs = size == endless ? 0 : static_cast<double>(position.epoch) * static_cast<double>(size);
  return (epochs + static_cast<double>(position.input)) / static_cast<double>(epoch_length);
}

int64_t StreamSource::max_empty() const {
  if (size != endless) return size;
  if (epoch_length == endless) return max_empty_unknown;
  return std::max<int64_t>(10'000, epoch_length > endless / 4 ? endless : 2 * epoch_length);
}

std::string missing_parts(const StreamPosition& p, size_t inputs) {
  const auto [least, most] = std::minmax({p.epoch, p.input, p.offset, p.since});
  if (least < 0 || most > endless / 2)
    return fmt::format("the state has the number {}, expected 0 to 2^62; restore a state that a loader has given",
                       least < 0 ? least : most);
  if (p == StreamPosition{} || p.parts.size() == inputs) return "";
  return "the state has the places of " + std::to_string(p.parts.size()) + " streams, but this pipeline has " +
         std::to_string(inputs) + "; restore it with the dataset it was taken from";
}

// ---- arguments

void check_pack(const PackOptions& options) {
  if (options.length < 1 || options.length > std::numeric_limits<int32_t>::max())
    fail(ErrorKind::invalid_argument, "pack", "rows of {} tokens, expected 1 to 2^31 - 1", options.length);
  if (options.num_packing_bins < 1)
    fail(ErrorKind::invalid_argument, "pack", "{} packing bins, expected at least 1", options.num_packing_bins);
  if (options.max_sequences_per_bin < 0)
    fail(ErrorKind::invalid_argument, "pack", "max_sequences_per_bin = {}, expected 1 or more, or 0 for any number",
         options.max_sequences_per_bin);
}

void check_document(int64_t tokens, const PackOptions& options) {
  if (tokens <= options.length || options.split_long) return;
  fail(ErrorKind::invalid_argument, "pack",
       "a document of {} tokens for rows of {}; use longer rows, or {{.split_long = true}}", tokens, options.length);
}

void check_rebatch(int64_t count) {
  if (count < 1 || count > int64_t{1} << 40)
    fail(ErrorKind::invalid_argument, "rebatch", "batches of {}, expected 1 to 2^40", count);
}

void check_stream_shuffle(int64_t window) {
  if (window < 1 || window > int64_t{1} << 32)
    fail(ErrorKind::invalid_argument, "shuffle", "a window of {} records of a stream, expected 1 to 2^32", window);
}

void check_limit(int64_t count) {
  if (count < 1) fail(ErrorKind::invalid_argument, "limit", "{} records, expected at least 1", count);
}

void check_divided(int64_t parts, bool is_endless) {
  if (parts < 1 || parts > 1 << 20) fail(ErrorKind::invalid_argument, "divided", "{} parts, expected 1 to 2^20", parts);
  if (!is_endless)
    fail(ErrorKind::invalid_argument, "divided",
         "a dataset that ends, each part at another batch; repeat() it before it is divided");
}

void check_part(bool is_endless) {
  if (!is_endless)
    fail(ErrorKind::invalid_argument, "divided", "a part that ends; limit() the dataset's records in no part");
}

// ---- records made ahead

namespace {

constexpr int64_t records_per_chunk = 32;
constexpr int chunks_per_thread = 2;
constexpr int max_threads = 1 << 20;

}  // namespace

ChunkReader::ChunkReader(int64_t size, const StreamPosition& from,
                         std::function<AnyItem(int64_t epoch, int64_t index)> make, int threads)
    : prefetcher_(
          [size, from, make = std::move(make)](int64_t number) -> AnyItem {
            auto chunk = std::make_shared<std::vector<Outcome>>();
            for (int64_t i = 0; i < records_per_chunk; ++i) {
              const int64_t at = number * records_per_chunk + i;  // counted from the initial position
              const int64_t beyond = size == endless ? 0 : (at + from.input) / size;
              const int64_t index = size == endless ? from.input + at : (at + from.input) % size;
              chunk->push_back(attempt([&] { return make(from.epoch + beyond, index); }));
              if (std::holds_alternative<Failure>(chunk->back())) break;
            }
            return chunk;
          },
          chunks_per_thread* std::min(threads, max_threads), threads) {}

AnyItem ChunkReader::next() {
  if (!chunk_ || at_ == chunk_->size()) {
    chunk_ = std::static_pointer_cast<std::vector<Outcome>>(*prefetcher_.next());
    at_ = 0;
  }
  return item_or_throw(std::move((*chunk_)[at_++]));
}

}  // namespace tessera::data::detail
