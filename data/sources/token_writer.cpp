// Writes tokens through a buffer, then the index, and renames both files when they are complete.
#include "data/sources/token_writer.h"

#include <numeric>
#include <string>

#include "sharding/base/fail.h"

namespace tessera::data {
namespace {

constexpr size_t max_buffer_bytes = 1 << 20;
constexpr const char* verb = "TokenWriter";

std::filesystem::path with_end(const std::filesystem::path& prefix, const char* end) { return prefix.string() + end; }

template <class T>
void append(std::vector<uint8_t>& bytes, const T* values, size_t count) {
  const auto* from = reinterpret_cast<const uint8_t*>(values);
  bytes.insert(bytes.end(), from, from + count * sizeof(T));
}

}  // namespace

TokenWriter::TokenWriter(const std::filesystem::path& prefix, int64_t vocab_size)
    : prefix_(prefix),
      vocab_size_(vocab_size),
      is_narrow_(vocab_size <= 65536),
      file_(File::lock(with_end(prefix, ".bin.partial"), verb)) {
  file_.reserve(0);
}

// After finish(), the open file is the one that readers see.
void TokenWriter::check_unfinished() const {
  if (is_finished_)
    fail(ErrorKind::invalid_argument, verb, "{}: finish() was called before. Make another writer.", prefix_.string());
}

void TokenWriter::add(std::span<const int32_t> document) {
  check_unfinished();
  if (document.size() > INT32_MAX)
    fail(ErrorKind::invalid_argument, verb, "{} tokens in a document, expected fewer than 2^31.", document.size());
  for (const int32_t id : document)
    if (id < 0 || id >= vocab_size_)
      fail(ErrorKind::invalid_argument, verb, "{}: id {}, expected one of 0 to {}.", prefix_.string(), id,
           vocab_size_ - 1);
  for (const int32_t id : document) {
    const auto narrow = static_cast<uint16_t>(id);
    is_narrow_ ? append(buffer_, &narrow, 1) : append(buffer_, &id, 1);
    if (buffer_.size() >= max_buffer_bytes) write_buffer();
  }
  sizes_.push_back(static_cast<int32_t>(document.size()));
  tokens_ += static_cast<int64_t>(document.size());
}

void TokenWriter::write_buffer() {
  file_.write_at(std::as_bytes(std::span(buffer_)), written_);
  written_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void TokenWriter::write_index() {
  const int64_t width = is_narrow_ ? 2 : 4;
  std::vector<uint8_t> bytes;
  append(bytes, "MMIDIDX\0", 9);
  const uint64_t version = 1, sequences = sizes_.size(), boundaries = sequences + 1;
  const uint8_t type = is_narrow_ ? 8 : 4;
  append(bytes, &version, 1), append(bytes, &type, 1), append(bytes, &sequences, 1), append(bytes, &boundaries, 1);
  append(bytes, sizes_.data(), sizes_.size());
  int64_t at = 0;
  for (const int32_t size : sizes_) {
    append(bytes, &at, 1);
    at += width * size;
  }
  std::vector<int64_t> documents(boundaries);
  std::iota(documents.begin(), documents.end(), 0);
  append(bytes, documents.data(), documents.size());
  const File index = File::create(with_end(prefix_, ".idx.partial"), verb);
  index.write_at(std::as_bytes(std::span(bytes)), 0);
  index.sync();
}

void TokenWriter::finish() {
  check_unfinished();
  write_buffer();
  file_.sync();
  write_index();
  for (const char* end : {".idx", ".bin"})  // without its index, a .bin would be read as another format
    move_into_place(with_end(prefix_, (std::string(end) + ".partial").c_str()), with_end(prefix_, end), verb);
  is_finished_ = true;
}

}  // namespace tessera::data
