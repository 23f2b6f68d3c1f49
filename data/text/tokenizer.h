// Tokenizer: text to tokens and back, as Hugging Face's `tokenizers`, from the files that models come with.
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

// The tokens of a text, and for each the characters [first, second) of the text that it covers. Tokens that a template
// adds cover no characters.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<std::pair<int64_t, int64_t>> offsets;
};

struct EncodeOptions {
  bool add_special_tokens = true;  // adds those of the file's template, such as a begin-of-text token
};
struct DecodeOptions {
  bool skip_special_tokens = true;
};

// Encodes and decodes text with byte pair encodings, including the normalizers, splits and decoders of these models.
// The encodings are over bytes (GPT-2, Llama 3, Qwen), or over characters with byte fallback (SentencePiece's in Llama
// 2, Mistral, Gemma). Needs ICU: link programs with tessera::tokenizer.
//   const auto tokenizer = data::Tokenizer::open("Llama-3.2-1B");
//   const std::vector<int32_t> ids = tokenizer.encode("Once upon a time").ids;
//   std::cout << tokenizer.decode(ids);
// Several threads may use one tokenizer; copies are handles.
class Tokenizer {
 public:
  // Opens a tokenizer.json, or a folder that contains one or else GPT-2's vocab.json and merges.txt.
  // Errors (invalid_file), which name the place in the file
  //   something missing, malformed, or of an unsupported type
  //   two tokens with one id, one token with two ids, or an added token with another id than `tokenizers` gives it
  //   a template id that is not in the vocabulary
  //   more than 64 steps of a kind, or 16,384 bytes of regular expressions in them
  //   more than 4096 bytes in an added token or in a string that a step searches; more than 1024 tokens in the template
  //   a vocab.json and merges.txt of a family other than GPT-2
  // The file's settings of batches, `padding` and `truncation`, are ignored.
  static Tokenizer open(const std::filesystem::path& path);

  // Returns a tokenizer of the 256 byte values: token i is the byte i. Texts need not be UTF-8, and `decode` returns
  // the bytes unchanged. Needs no ICU.
  static Tokenizer bytes();

  // Parses the text of a tokenizer.json; `name` replaces its path in messages.
  static Tokenizer from_json(std::string_view text, const std::string& name = "tokenizer.json");

  // Tokenizes a text. Takes 20 bytes of memory for each token, up to 20 for each byte of the text if the file's steps
  // change it, and 2 MiB for each thread that encodes concurrently.
  // Errors
  //   invalid_argument: text that is not UTF-8 or has 2^31 bytes or more; a character that the vocabulary cannot encode
  //   invalid_file, which names the step of the file: it adds more than 8 bytes per byte of the text plus 1 MiB, or its
  //     regular expression takes too long (about 5 s of CPU time for a megabyte)
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Returns the text of tokens. Bytes that are not UTF-8 become U+FFFD.
  // Errors
  //   invalid_argument: an id that the vocabulary does not have
  //   invalid_file: a step of the file exceeds the limits of encode
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  // Returns the largest id plus one.
  int64_t vocab_size() const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // Returns a token as the file spells it. Added tokens that match normalized text are normalized. Error
  // (invalid_argument): no token has this id.
  const std::string& id_to_token(int32_t id) const;

 private:
  struct Parts;
  struct Encoder;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;  // null for `bytes`
};

}  // namespace tessera::data
