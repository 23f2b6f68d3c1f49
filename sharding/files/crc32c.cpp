// Computes CRC-32C by the processor's instruction if available, else eight bytes at a time from tables.
#include <algorithm>
#include <array>
#include <cstring>

#include "sharding/files/file.h"

namespace tessera {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

// table[k][b]: the effect of byte b on the register when k further bytes follow it. Source: Kounavis and Berry, "A
// systematic approach to building high performance, software-based, CRC generators" (2005).
constexpr Table make_table() {
  constexpr uint32_t polynomial = 0x82f63b78;  // 0x1edc6f41, its lowest bit first
  Table table{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
    table[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (uint32_t b = 0; b < 256; ++b) table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 255];
  return table;
}
constexpr Table table = make_table();

uint64_t word_at(const std::byte* p) {
  uint64_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

uint32_t by_tables(uint32_t crc, const std::byte* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    const uint64_t word = word_at(p) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= table[7 - k][(word >> (8 * k)) & 255];
  }
  for (; n > 0; ++p, --n) crc = (crc >> 8) ^ table[0][(crc ^ static_cast<uint32_t>(*p)) & 255];
  return crc;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc, const std::byte* p, size_t n) {
  uint64_t wide = crc;
  for (; n >= 8; p += 8, n -= 8) wide = __builtin_ia32_crc32di(wide, word_at(p));
  crc = static_cast<uint32_t>(wide);
  for (; n > 0; ++p, --n) crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(*p));
  return crc;
}

const auto advance = __builtin_cpu_supports("sse4.2") ? by_instruction : by_tables;

#else

constexpr auto advance = by_tables;

#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  return ~advance(~before, bytes.data(), bytes.size());
}

uint32_t crc32c_of_zeros(size_t size) {
  static constexpr std::array<std::byte, 4096> zeros{};
  uint32_t crc = 0;
  for (; size > 0; size -= std::min(size, zeros.size()))
    crc = crc32c({zeros.data(), std::min(size, zeros.size())}, crc);
  return crc;
}

}  // namespace tessera
