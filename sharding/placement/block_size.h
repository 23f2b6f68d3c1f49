// block_size: how long a block is of a dim that so many blocks cover.
#pragma once

#include <cstdint>

namespace tessera::detail {

// The size divided, and rounded up: the last blocks may be padded, or empty.
constexpr int64_t block_size(int64_t size, int64_t blocks) { return (size + blocks - 1) / blocks; }

}  // namespace tessera::detail
