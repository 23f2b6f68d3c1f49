// LoaderState: the position of a loader, valid for any number of processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/streams/stream_position.h"

namespace tessera::data {

// A loader's position: the number of records, of all epochs and all shards, that were returned or skipped before the
// next batch. It is the same on every process, and stays valid for a different number of shards or threads and a
// different batch size.
struct LoaderState {
  int64_t global_next_index = 0;

  // The position of the next record in a Stream. Without it, a loader reads the stream again from its beginning.
  std::optional<StreamPosition> stream = std::nullopt;

  // Dataset::describe of the dataset: the chain, and its sources with the number and a checksum of their bytes.
  // restore() compares it with the loader's dataset. Empty: nothing is compared.
  std::string dataset = {};

  // Returns {"global_next_index": 96, "dataset": "..."}.
  std::string to_json() const;
  // Parses `text`. Error (invalid_file) unless it is a JSON object with global_next_index >= 0 and no members but these
  // three.
  static LoaderState from_json(std::string_view text);

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

// Joins the states of all processes after the same batch. Each process of a divided stream (data/streams/stream.h) has
// the positions of its own parts only; the result has the positions of all parts. If a part's position is missing, the
// loader that restores the state reads that part again from the beginning. The batches are the same, but resuming takes
// longer. Error (invalid_argument): no states; states of different batches or datasets.
LoaderState joined_state(const std::vector<LoaderState>& states);

namespace detail {

// Throws Error (invalid_argument) if two descriptions differ, naming the link that differs. An empty one matches any
// other.
void check_same_dataset(const std::string& saved, const std::string& now);

}  // namespace detail

}  // namespace tessera::data
