// What streams and packing refuse.
#include "data/stream.h"

#include <limits>

#include "nn/tree/tree.h"

namespace tessera::data::detail {

void check_pack(const PackOptions& options) {
  if (options.length < 1 || options.length > std::numeric_limits<int32_t>::max())
    bad("pack", "rows of " + std::to_string(options.length) + " tokens, expected 1 to 2^31 - 1");
  if (options.open_rows < 1) bad("pack", std::to_string(options.open_rows) + " open rows, expected at least 1");
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

int64_t most_barren(int64_t size, int64_t round) {
  if (size != endless) return size;
  return round == endless ? 10'000'000 : std::max<int64_t>(10'000, round > endless / 4 ? endless : 2 * round);
}

void fail_barren(int64_t records, int64_t epoch) {
  fail(ErrorKind::bad_argument, "next",
       std::to_string(records) + " records of epoch " + std::to_string(epoch) +
           ", one after another, gave nothing; look at the filter or flat_map of the stream");
}

void fail_misplaced(const StreamMark& mark) {
  bad("next", "the loader's state goes on at item " + std::to_string(mark.offset) + " of what comes of record " +
                  std::to_string(mark.input) + " of epoch " + std::to_string(mark.epoch) + ", " +
                  std::to_string(mark.since) + " records on, and there is none; it was taken from another dataset");
}

void fail_stopped() { fail(ErrorKind::other, "next", "the loader was stopped"); }

}  // namespace tessera::data::detail
