// Computes the ranges of even_split and strided_split.
#include "data/datasets/shard_options.h"

#include <algorithm>

#include "sharding/base/fail.h"

namespace tessera::data {

namespace {

void check(int64_t size, const ShardOptions& shard) {
  if (size >= 0 && shard.index >= 0 && shard.index < shard.count) return;
  fail(ErrorKind::invalid_argument, "shard", "{} of {} records, expected 0 <= index < count", to_string(shard), size);
}

}  // namespace

std::string to_string(const ShardOptions& shard) { return fmt::format("shard {} of {}", shard.index, shard.count); }

RecordSpan even_split(int64_t size, const ShardOptions& shard) {
  check(size, shard);
  const int64_t each = size / shard.count, rest = shard.drop_remainder ? 0 : size % shard.count;
  return {each * shard.index + std::min(shard.index, rest), each * (shard.index + 1) + std::min(shard.index + 1, rest)};
}

int64_t strided_split(int64_t size, const ShardOptions& shard) {
  check(size, shard);
  return size / shard.count + (!shard.drop_remainder && shard.index < size % shard.count);
}

}  // namespace tessera::data
