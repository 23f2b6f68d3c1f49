// StreamMark: where the next record of a stream begins, in terms of the stream's input records.
#pragma once

#include <cstdint>

namespace tessera::data {

// To resume here: begin with item `offset` of the items that input record `input` of epoch `epoch` gives, and skip the
// first `since` records that come out (packed rows that were already handed out).
struct StreamMark {
  int64_t epoch = 0;
  int64_t input = 0;
  int64_t offset = 0;
  int64_t since = 0;
  friend bool operator==(const StreamMark&, const StreamMark&) = default;
};

}  // namespace tessera::data
