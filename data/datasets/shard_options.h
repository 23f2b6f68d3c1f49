// ShardOptions: which part of the records one process reads, and the exact ranges that a split gives.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::data {

// Part `index` of `count`. ShardByProcess (data/batches/to_global.h) fills it in from a mesh, so that processes which
// hold the same rows read the same rows. One process: {0, 1}.
struct ShardOptions {
  int64_t index = 0;
  int64_t count = 1;
  // Every part gets size / count records and the remainder is dropped, so that all processes make the same number of
  // steps. (Grain's default is false: the first size % count parts get one record more. If processes then make
  // different numbers of steps, collectives wait forever for those that have ended.)
  bool drop_remainder = true;
  friend bool operator==(const ShardOptions&, const ShardOptions&) = default;
};

// Records [begin, end).
struct RecordSpan {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const RecordSpan&, const RecordSpan&) = default;
};

// The part as a contiguous range, as Grain's even_split: with per = size / count and r = size % count, part i is
// [per i, per (i + 1)); if the remainder is kept, begin and end are moved on by min(i, r) and min(i + 1, r).
//   10 over 3: [0,4) [4,7) [7,10), dropped [0,3) [3,6) [6,9);   3 over 4: [0,1) [1,2) [2,3) [3,3), dropped: all empty
// Error (invalid_argument) unless size >= 0 and 0 <= index < count.
RecordSpan even_split(int64_t size, const ShardOptions& shard);

// How many records the part gets if it takes every count-th record from index on, as ds[index::count] in Grain:
//   10 over 3: 4 3 3, dropped 3 3 3
// Errors as even_split.
int64_t strided_split(int64_t size, const ShardOptions& shard);

// "shard 1 of 4"
std::string to_string(const ShardOptions& shard);

}  // namespace tessera::data
