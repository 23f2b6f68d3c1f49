// ShardOptions: the part of the records that one process reads, and the exact ranges of a split.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::data {

// Part `index` of `count`; {0, 1} for a single process. ShardByProcess (data/batches/to_global.h) derives it from a
// mesh, so that processes that hold the same rows read the same rows.
struct ShardOptions {
  int64_t index = 0;
  int64_t count = 1;
  // Whether every part gets size / count records and the remainder is dropped, so that all processes make the same
  // number of steps. Grain's default is false: the first size % count parts get one more record. Processes may then
  // make different numbers of steps, and collectives wait forever for those that have ended.
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

// Returns the part as a contiguous range, as Grain's even_split. With per = size / count and r = size % count, part i
// is [per * i, per * (i + 1)). If the remainder is kept, begin and end are shifted by min(i, r) and min(i + 1, r).
//   10 records in 3 parts: [0,4) [4,7) [7,10); with drop_remainder [0,3) [3,6) [6,9)
//   3 records in 4 parts: [0,1) [1,2) [2,3) [3,3); with drop_remainder all parts are empty
// Error (invalid_argument) unless size >= 0 and 0 <= index < count.
RecordSpan even_split(int64_t size, const ShardOptions& shard);

// Returns the number of records of a part that takes every count-th record from index on, as ds[index::count] in Grain:
//   10 records in 3 parts: 4 3 3; with drop_remainder 3 3 3
// Errors: as even_split.
int64_t strided_split(int64_t size, const ShardOptions& shard);

// Returns "shard 1 of 4".
std::string to_string(const ShardOptions& shard);

}  // namespace tessera::data
