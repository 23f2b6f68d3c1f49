// ShardOptions: which part of every global batch this process reads, as two plain numbers.
#pragma once

#include <cstdint>

namespace tessera::data {

// Part `index` of `count` equal parts. Input knows no mesh: shard_of(mesh, spec) in data/to_global.h fills this in, so
// that processes which hold the same rows read the same rows. One process: {0, 1}.
struct ShardOptions {
  int64_t index = 0;
  int64_t count = 1;
  friend bool operator==(const ShardOptions&, const ShardOptions&) = default;
};

}  // namespace tessera::data
