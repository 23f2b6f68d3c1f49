// Reads TensorBoard event files back: framing, checksums and messages. Shares no code with the writer.
#pragma once

#include <bit>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::examples {

// CRC-32C bit by bit: the reflected polynomial 0x82f63b78.
inline uint32_t bitwise_crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}

// Reads from the front of `rest`; throws if bytes are missing.
struct ByteReader {
  std::string_view rest;

  std::string_view take(size_t n) {
    if (n > rest.size()) throw std::runtime_error("the bytes end too early");
    const std::string_view taken = rest.substr(0, n);
    rest.remove_prefix(n);
    return taken;
  }
  uint64_t little_endian(size_t n) {
    uint64_t value = 0;
    const std::string_view bytes = take(n);
    for (size_t i = n; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
};

// The fields of a protobuf message by number. Varints and fixed numbers are stored as 64 bits, strings as they are.
struct ProtoField {
  uint64_t bits = 0;
  std::string_view bytes;
};

inline std::multimap<int, ProtoField> proto_fields(std::string_view message) {
  std::multimap<int, ProtoField> fields;
  for (ByteReader in{message}; !in.rest.empty();) {
    const uint64_t key = in.varint();
    ProtoField field;
    switch (key & 7) {
      case 0:
        field.bits = in.varint();
        break;
      case 1:
        field.bits = in.little_endian(8);
        break;
      case 2:
        field.bytes = in.take(in.varint());
        break;
      case 5:
        field.bits = in.little_endian(4);
        break;
      default:
        throw std::runtime_error("an unknown wire type");
    }
    fields.emplace(static_cast<int>(key >> 3), field);
  }
  return fields;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  std::map<std::string, float> scalars;
};

inline Event event_of(std::string_view message) {
  Event event;
  for (const auto& [number, field] : proto_fields(message)) {
    if (number == 1) event.wall_time = std::bit_cast<double>(field.bits);
    if (number == 2) event.step = static_cast<int64_t>(field.bits);
    if (number == 3) event.file_version = field.bytes;
    if (number != 5) continue;
    for (const auto& [one, value] : proto_fields(field.bytes)) {
      const auto fields = proto_fields(value.bytes);
      event.scalars[std::string(fields.find(1)->second.bytes)] =
          std::bit_cast<float>(static_cast<uint32_t>(fields.find(2)->second.bits));
    }
  }
  return event;
}

inline void check_masked_crc(std::string_view bytes, uint64_t given) {
  const uint32_t crc = bitwise_crc32c(bytes);
  if (static_cast<uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u) != given)
    throw std::runtime_error("a checksum is wrong");
}

inline std::vector<Event> read_events(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<Event> events;
  for (ByteReader in{bytes}; !in.rest.empty();) {
    const std::string_view length = in.take(8);
    check_masked_crc(length, in.little_endian(4));
    const std::string_view data = in.take(ByteReader{length}.little_endian(8));
    check_masked_crc(data, in.little_endian(4));
    events.push_back(event_of(data));
  }
  return events;
}

}  // namespace tessera::examples
