// CRC-32C: the checksum of file contents, much faster than a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// The CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes`, continued from the CRC `before` of preceding bytes:
// crc32c(ab) = crc32c(b, crc32c(a)). It detects every burst of up to 32 wrong bits.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The CRC-32C of `size` zero bytes. A CRC is affine in its bytes: for a and b of one size,
// crc32c(a ^ b) = crc32c(a) ^ crc32c(b) ^ crc32c_of_zeros(size). So processes that write parts of a chunk, each with
// zeros elsewhere, can combine their checksums without exchanging bytes.
uint32_t crc32c_of_zeros(size_t size);

}  // namespace tessera
