// StreamPosition: the position of the next record of a stream, in terms of its input records.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::data {

// A position to resume from. Input record `input` of epoch `epoch` gives items: begin with item `offset`. Then skip the
// first `since` records of the stream (packed rows that were already returned).
struct StreamPosition {
  int64_t epoch = 0;
  int64_t input = 0;
  int64_t offset = 0;
  int64_t since = 0;
  // The positions of the inputs, if the stream is a transform of other streams (data/streams/stream_transforms.h). Then
  // the numbers above are counts. `input` counts the turns of a mix, the windows of a shuffle, the records of a limit,
  // or the records of each part of a divided stream. `since` counts the records of a shuffle's window, or the records
  // since the input's position. Parts that other processes read have the position elsewhere().
  std::vector<StreamPosition> parts = {};

  static StreamPosition elsewhere() { return {-1}; }
  bool is_elsewhere() const { return epoch < 0; }
  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};

namespace detail {

// How a stage's input positions determine its stream's positions (data/streams/stream_transforms.h).
enum class StagePositions {
  of_input,     // the input's positions: the stage is empty after every pop()
  since_input,  // the stage's first input record, and the number of records returned since then
  numbered      // as since_input, and how often pop() left the stage empty in the epoch
};

}  // namespace detail

}  // namespace tessera::data
