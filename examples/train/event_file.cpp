// Writes the few protobuf fields of a scalar event, and TFRecord frames.
#include "examples/train/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>

#include <tessera/sharding/base.h>
#include <tessera/sharding/files.h>

namespace tessera::train {
namespace {

// ---- protobuf: a field is (number << 3 | wire type), followed by its value

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>((value & 0x7f) | 0x80);
  return text + static_cast<char>(value);
}

std::string key(int number, int wire_type) { return varint(static_cast<uint64_t>(number << 3 | wire_type)); }

std::string int64_field(int number, int64_t value) { return key(number, 0) + varint(static_cast<uint64_t>(value)); }

std::string double_field(int number, double value) {
  return key(number, 1) + little_endian(std::bit_cast<uint64_t>(value), 8);
}

std::string bytes_field(int number, std::string_view value) {
  return key(number, 2) + varint(value.size()) + std::string(value);
}

std::string float_field(int number, float value) {
  return key(number, 5) + little_endian(std::bit_cast<uint32_t>(value), 4);
}

// ---- Event{wall_time = 1, step = 2, file_version = 3, summary = 5}, Summary{value = 1}, Value{tag = 1, simple_value =
// 2}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string summary(const EventFile::Scalars& scalars) {
  std::string values;
  for (const auto& [tag, value] : scalars)
    values += bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)));
  return values;
}

// ---- the file

std::string host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] ? name.data() : "localhost";
}

std::string event_path(const std::string& folder) {
  make_folders(folder, "metrics");
  return (std::filesystem::path(folder) / fmt::format("events.out.tfevents.{:010}.{}.{}",
                                                      static_cast<int64_t>(seconds_since_1970()), host(), ::getpid()))
      .string();
}

std::string masked_crc(std::string_view bytes) {
  return little_endian(std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8u, 4);
}

}  // namespace

OutputFile::OutputFile(const std::string& path, Start start)
    : path_(path), file_(path, std::ios::binary | (start == Start::empty ? std::ios::trunc : std::ios::app)) {
  if (!file_) fail(ErrorKind::invalid_file, "metrics", path_ + ": the file cannot be written. Check its folder.");
}

void OutputFile::append(std::string_view bytes) {
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  if (!file_)
    fail(ErrorKind::invalid_file, "metrics",
         fmt::format("{}: the file cannot be written: {}. Free some space, or give another file.", path_,
                     std::strerror(errno)));
}

void OutputFile::sync() const {
  if (std::filesystem::is_regular_file(path_)) File::modify(path_, "metrics").sync();
}

EventFile::EventFile(const std::string& folder) : file_(event_path(folder)) { append(bytes_field(3, "brain.Event:2")); }

void EventFile::write(int64_t step, const Scalars& scalars) {
  append(int64_field(2, step) + bytes_field(5, summary(scalars)));
}

void EventFile::append(const std::string& event) {
  file_.append(tf_record(double_field(1, seconds_since_1970()) + event));
}

std::string tf_record(std::string_view data) {
  const std::string length = little_endian(data.size(), 8);
  return length + masked_crc(length) + std::string(data) + masked_crc(data);
}

}  // namespace tessera::train
