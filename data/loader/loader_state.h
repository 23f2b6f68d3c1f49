// LoaderState: the position of a loader, as a few numbers that are valid for any number of processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/streams/stream_mark.h"

namespace tessera::data {

// How many records, of all epochs and all shards, were handed out or passed over before the next batch. It is the same
// on every process, and holds under another shard count, thread count or batch size.
struct LoaderState {
  int64_t global_next_index = 0;

  // For a loader over a Stream: where the next record lies. Without it, the stream is read again from its beginning.
  std::optional<StreamMark> stream = std::nullopt;

  // Dataset::describe of the dataset (its sources with the number and a checksum of their bytes, and the chain), which
  // restore() compares with the loader's dataset. Empty: nothing is compared.
  std::string dataset = {};

  // {"global_next_index": 96, "dataset": "..."}
  std::string to_json() const;
  // Error (invalid_file) unless `text` is such an object: global_next_index a number >= 0, no members but these three.
  static LoaderState from_json(std::string_view text);

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

// Joins the states of all processes after the same batch. Each process of a sharded stream (data/streams/any_stream.h)
// has the positions of its own parts only; the result has the positions of all parts. A loader that restores a state
// without the position of one of its parts reads that part again from the beginning: the batches are the same, but it
// takes longer. Error (invalid_argument): no states, or states of different batches or datasets.
LoaderState joined_state(const std::vector<LoaderState>& states);

namespace detail {

// Error (invalid_argument) if two descriptions differ, naming the link where they do; none if one is empty.
void check_same_dataset(const std::string& saved, const std::string& now);

}  // namespace detail

}  // namespace tessera::data
