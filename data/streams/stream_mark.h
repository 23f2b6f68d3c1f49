// StreamMark: where the next record of a stream begins, in terms of the stream's input records.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::data {

// To resume here: begin with item `offset` of the items that input record `input` of epoch `epoch` gives, and skip the
// first `since` records that come out (packed rows that were already handed out).
struct StreamMark {
  int64_t epoch = 0;
  int64_t input = 0;
  int64_t offset = 0;
  int64_t since = 0;
  // The marks of the parts, if the stream is made of several streams or of windows of one
  // (data/streams/any_stream.h). Then the numbers above count: in a mix `input` turns, in a shuffle `input` windows and
  // `since` records of one, in a limit `input` records, in a divided stream `input` records of each part; a part that
  // another process reads is elsewhere.
  std::vector<StreamMark> parts = {};

  static StreamMark elsewhere() { return {-1}; }
  bool is_elsewhere() const { return epoch < 0; }
  friend bool operator==(const StreamMark&, const StreamMark&) = default;
};

}  // namespace tessera::data
