// CRC-32C: the checksum of what files hold, fast enough to go unnoticed beside a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// The CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes`, or of what came before them and them:
// crc32c(ab) = crc32c(b, crc32c(a)). It finds every burst of up to 32 wrong bits.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The same of `size` bytes of zero. A CRC is affine in its bytes: where a and b are of one size and never both not
// zero, crc32c(a ^ b) = crc32c(a) ^ crc32c(b) ^ crc32c_of_zeros(size), so those who write parts of a chunk need not
// meet.
uint32_t crc32c_of_zeros(size_t size);

}  // namespace tessera
