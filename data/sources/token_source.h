// TokenSource: files of uint8, uint16 or uint32 tokens as one long sequence.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/sources/source.h"

namespace tessera::data {

namespace detail {
void check_tokens(const ByteSource& bytes, int64_t item_size);
}

// Reads files of little-endian numbers, as numpy's tofile writes them: token ids of a tokenizer.
//
//   auto tokens = windows(TokenSource<uint16_t>::open({"train.bin"}), 1025).shuffle(seed).repeat();
//   Loader loader(tokens, token_batch, {.batch_size = 32});
template <class Token>
requires(std::same_as<Token, uint8_t> || std::same_as<Token, uint16_t> ||
         std::same_as<Token, uint32_t>) class TokenSource {
 public:
  using value_type = Token;
  static_assert(std::endian::native == std::endian::little, "tessera: token files are little-endian.");

  // Opens files and folders. Errors: as ByteSource::open; a file size that is not a multiple of the token's
  // (invalid_file).
  static TokenSource open(const std::vector<std::string>& paths, const ByteSourceOptions& options = {}) {
    return TokenSource(ByteSource::open(paths, options));
  }
  explicit TokenSource(ByteSource bytes) : bytes_(std::move(bytes)) { detail::check_tokens(bytes_, sizeof(Token)); }

  int64_t size() const { return bytes_.size() / static_cast<int64_t>(sizeof(Token)); }

  // Copies tokens [offset, offset + out.size()) to `out`. Errors: as ByteSource::read.
  void read(int64_t offset, std::span<Token> out) const {
    detail::check_range("tokens", offset, out.size(), size());
    bytes_.read(offset * static_cast<int64_t>(sizeof(Token)),
                {reinterpret_cast<uint8_t*>(out.data()), out.size_bytes()});
  }

  std::string describe() const {
    return bytes_.describe() + " as uint" + std::to_string(8 * sizeof(Token)) + " tokens";
  }

 private:
  ByteSource bytes_;
};

}  // namespace tessera::data
