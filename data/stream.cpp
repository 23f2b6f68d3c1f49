// What streams and packing refuse.
#include "data/stream.h"

#include <algorithm>
#include <limits>

#include "data/divided_batches.h"
#include "data/stream_plans.h"
#include "nn/tree/tree.h"

namespace tessera::data::detail {

void check_pack(const PackOptions& options) {
  if (options.length < 1 || options.length > std::numeric_limits<int32_t>::max())
    bad("pack", "rows of " + std::to_string(options.length) + " tokens, expected 1 to 2^31 - 1");
  if (options.num_packing_bins < 1)
    bad("pack", std::to_string(options.num_packing_bins) + " packing bins, expected at least 1");
}

void check_rebatch(int64_t count) {
  if (count < 1 || count > int64_t{1} << 40)
    bad("rebatch", "batches of " + std::to_string(count) + ", expected 1 to 2^40");
}

void check_document(int64_t tokens, const PackOptions& options) {
  if (tokens <= options.length || options.split_long) return;
  bad("pack", "a document of " + std::to_string(tokens) + " tokens for rows of " + std::to_string(options.length) +
                  "; use longer rows, or {.split_long = true}");
}

int64_t max_barren(int64_t size, int64_t round) {
  if (size != endless) return size;
  return round == endless ? 10'000'000 : std::max<int64_t>(10'000, round > endless / 4 ? endless : 2 * round);
}

void fail_barren(int64_t records, int64_t epoch) {
  fail(ErrorKind::invalid_argument, "next",
       std::to_string(records) + " records of epoch " + std::to_string(epoch) +
           ", one after another, gave nothing; look at the filter or flat_map of the stream, or for documents without "
           "tokens");
}

void fail_misplaced(const StreamMark& mark) {
  bad("next", "the loader's state continues at item " + std::to_string(mark.offset) + " of what comes of record " +
                  std::to_string(mark.input) + " of epoch " + std::to_string(mark.epoch) + ", " +
                  std::to_string(mark.since) + " records on, and there is none; it was taken from another dataset");
}

void check_stream_shuffle(int64_t window) {
  if (window < 1 || window > int64_t{1} << 32)
    bad("shuffle", "a window of " + std::to_string(window) + " records of a stream, expected 1 to 2^32");
}

void check_limit(int64_t count) {
  if (count < 1) bad("limit", std::to_string(count) + " records, expected at least 1");
}

void check_divided(int64_t parts, bool is_endless) {
  if (parts < 1 || parts > 1 << 20) bad("divided", std::to_string(parts) + " parts, expected 1 to 2^20");
  if (!is_endless) bad("divided", "a dataset that ends, each part at another batch; repeat() it before it is divided");
}

void check_part(bool is_endless) {
  if (!is_endless) bad("divided", "a part that ends; limit() the dataset's records in no part");
}

void check_parts(int64_t parts, const LoaderOptions& options) {
  rows_of_shard(options.batch_size, options.shard);
  if (options.batch_size % parts != 0)
    bad("Loader", "a batch of " + std::to_string(options.batch_size) + " rows of a stream in " + std::to_string(parts) +
                      " parts, expected a multiple of the parts");
  if (parts % options.shard.count != 0)
    bad("Loader", std::to_string(options.shard.count) + " shards of a stream in " + std::to_string(parts) +
                      " parts, expected a number that divides the parts");
}

int64_t records_of_a_part(int64_t records, int64_t parts) {
  if (records % parts != 0)
    bad("restore", std::to_string(records) + " records of a stream in " + std::to_string(parts) +
                       " parts, expected a multiple of the parts");
  return records / parts;
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
