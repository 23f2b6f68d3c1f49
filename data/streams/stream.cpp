// The errors of streams and of packing.
#include "data/streams/stream.h"

#include <algorithm>
#include <limits>

#include "data/streams/stream_plans.h"
#include "sharding/base/fail.h"

namespace tessera::data::detail {

void check_pack(const PackOptions& options) {
  if (options.length < 1 || options.length > std::numeric_limits<int32_t>::max())
    fail(ErrorKind::invalid_argument, "pack", "rows of {} tokens, expected 1 to 2^31 - 1", options.length);
  if (options.num_packing_bins < 1)
    fail(ErrorKind::invalid_argument, "pack", "{} packing bins, expected at least 1", options.num_packing_bins);
}

void check_rebatch(int64_t count) {
  if (count < 1 || count > int64_t{1} << 40)
    fail(ErrorKind::invalid_argument, "rebatch", "batches of {}, expected 1 to 2^40", count);
}

void check_document(int64_t tokens, const PackOptions& options) {
  if (tokens <= options.length || options.split_long) return;
  fail(ErrorKind::invalid_argument, "pack",
       "a document of {} tokens for rows of {}; use longer rows, or {{.split_long = true}}", tokens, options.length);
}

int64_t max_barren(int64_t size, int64_t round) {
  if (size != endless) return size;
  return round == endless ? 10'000'000 : std::max<int64_t>(10'000, round > endless / 4 ? endless : 2 * round);
}

void fail_barren(int64_t records, int64_t epoch) {
  fail(ErrorKind::invalid_argument, "next",
       "{} records of epoch {}, one after another, gave nothing; look at the filter or flat_map of the stream, or for "
       "documents without tokens",
       records, epoch);
}

void fail_misplaced(const StreamMark& mark) {
  fail(ErrorKind::invalid_argument, "next",
       "the loader's state continues at item {} of what comes of record {} of epoch {}, {} records on, and there is "
       "none; it was taken from another dataset",
       mark.offset, mark.input, mark.epoch, mark.since);
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

std::string missing_numbers(const StreamMark& mark, size_t parts) {
  const bool is_beginning = mark == StreamMark{};
  if (is_beginning || (mark.parts.size() == parts && std::min({mark.epoch, mark.input, mark.offset, mark.since}) >= 0))
    return "";
  return "the state has the places of " + std::to_string(mark.parts.size()) + " streams, and here are " +
         std::to_string(parts) + "; restore it with the dataset it was taken from";
}

void fail_stopped() { fail(ErrorKind::stopped, "next", "the loader was stopped"); }

}  // namespace tessera::data::detail
