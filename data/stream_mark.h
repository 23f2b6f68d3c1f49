// StreamMark: where the next record of a stream begins, in the records that the stream is made of.
#pragma once

#include <cstdint>

namespace tessera::data {

// To go on here: begin with item `offset` of what becomes of record `input` in epoch `epoch`, and pass over the first
// `since` records that come out (rows that were packed together with those already handed out).
struct StreamMark {
  int64_t epoch = 0;
  int64_t input = 0;
  int64_t offset = 0;
  int64_t since = 0;
  friend bool operator==(const StreamMark&, const StreamMark&) = default;
};

}  // namespace tessera::data
