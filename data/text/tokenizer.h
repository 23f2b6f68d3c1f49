// Tokenizer: text to tokens and back, as Hugging Face's `tokenizers` does it, from the files that models come with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::data {

// The tokens of a text, and of each the characters [first, second) of the text that it stands for; those that a
// template adds stand for none.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<std::pair<int64_t, int64_t>> offsets;
};

struct EncodeOptions {
  bool add_special_tokens = true;  // those of the file's template, as a token for the beginning of a text
};
struct DecodeOptions {
  bool skip_special_tokens = true;
};

// Byte pair encodings over bytes (GPT-2, Llama 3, Qwen) or over characters with byte fallback (SentencePiece's in Llama
// 2, Mistral, Gemma), with the normalizers, splits and decoders that these use. Needs ICU: programs are linked with
// tessera::tokenizer.
//   const auto tokenizer = data::Tokenizer::open("Llama-3.2-1B");
//   const std::vector<int32_t> ids = tokenizer.encode("Once upon a time").ids;
//   std::cout << tokenizer.decode(ids);
// May be used by several threads; copies are handles.
class Tokenizer {
 public:
  // A tokenizer.json, or a folder that has one, or else GPT-2's vocab.json and merges.txt. Errors (invalid_file): what
  // is missing, malformed, or of a kind that is not known, by its place in the file; two tokens with one id, or one
  // token with two; an id of the template that is not in the vocabulary; more than 64 steps of a kind or 16,384 bytes
  // of regular expressions in them, 4096 bytes in an added token or in what a step looks for, 1024 tokens in the
  // template; a vocab.json and merges.txt of a family other than GPT-2.
  static Tokenizer open(const std::filesystem::path& path);

  // The 256 byte values as tokens: token i is the byte i. Texts need not be UTF-8, and `decode` returns the bytes as
  // they are. Needs no ICU.
  static Tokenizer bytes();

  // Of the text of a tokenizer.json; `name` stands in for its path in messages.
  static Tokenizer from_json(std::string_view text, const std::string& name = "tokenizer.json");

  // Takes about 20 bytes of memory for each byte of the text, and 20 for each token.
  // Errors (invalid_argument): text that is not UTF-8 or has 2^31 bytes or more, a character for which the vocabulary
  // has no token. invalid_file, which names the step of the file: it makes the text longer by more than 8 bytes for
  // each byte and 1 MiB, or a regular expression takes too long (about 5 s of CPU time for a megabyte).
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Bytes that are not UTF-8 become U+FFFD. Errors: an id that the vocabulary does not have (invalid_argument); a step
  // of the file that takes too much, as in encode.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  // One more than the largest id.
  int64_t vocab_size() const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // As the file spells it; an added token that is sought in normalized text, normalized. Error (invalid_argument):
  // there is none with this id.
  const std::string& id_to_token(int32_t id) const;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;  // null for `bytes`
};

}  // namespace tessera::data
