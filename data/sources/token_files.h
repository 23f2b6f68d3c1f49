// TokenFiles: files of token ids as nanoGPT, llm.c, Megatron and numpy write them, as one sequence or as documents.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/sources/source.h"
#include "data/sources/token_layout.h"

namespace tessera::data {

struct TokenFilesOptions {
  TokenFormat format = TokenFormat::automatic;
  // Number of ids of the tokenizer: a larger id is an Error. 0: any id that fits int32.
  int64_t vocab_size = 0;
  // Extensions of the files of a folder that are read. Files named directly are always read.
  std::vector<std::string> extensions = {".bin", ".idx", ".npy"};
  int64_t map_from = 1 << 20;  // as in ByteSourceOptions
};

// Reads the tokens of all files, concatenated, as int32:
//
//   const auto files = TokenFiles::open({"fineweb"}, {.vocab_size = 50257});
//   Loader loader(windows(files, 1025).shuffle(seed).repeat(), token_batch, {.batch_size = 32});
//
// A path is a file or a folder (data/sources/file_list.h). Name a Megatron pair by its .bin, its .idx, both, or the
// name without extension. All files of a set have one format; `concat` and `mix` combine sets.
//
// Without an explicit format, each file's format is detected:
//   an .idx file of the same name exists: Megatron
//   the file begins with the magic number of llm.c or numpy: that format
//   the name ends in .npy: numpy
//   the name ends in .uint32.bin or .u32.bin, in any case: headerless uint32
//   otherwise: headerless uint16
// A file whose bytes show a different format (zip archives, pickles, safetensors, text, wider numbers) is an Error,
// unless you name the format.
//
// Copies share the files; any number of threads may read concurrently. The rules of ByteSource for changed and mapped
// files also apply here.
class TokenFiles {
 public:
  using value_type = int32_t;

  // Opens files and folders.
  // Errors
  //   those of ByteSource::open
  //   invalid_file, which names the file: a file that read_token_layout (data/sources/token_layout.h) rejects; a file
  //     whose format differs from the files before it
  //   invalid_argument: vocab_size < 0 or > 2^31
  static TokenFiles open(const std::vector<std::string>& paths, const TokenFilesOptions& options = {});

  int64_t size() const;  // tokens

  // Copies tokens [offset, offset + out.size()) to `out`.
  // Errors
  //   invalid_argument: tokens outside [0, size())
  //   invalid_file: "[read] train.bin, token 17: id 50300, expected one of 0 to 50256"; a file that was changed
  void read(int64_t offset, std::span<int32_t> out) const;

  TokenFormat format() const;
  // Returns whether the files contain where documents end, as Megatron's do.
  bool knows_documents() const;
  // Returns the file and the token at the offset: "train.bin, token 17".
  std::string where(int64_t offset) const;
  // Returns "2 files, 25380 bytes, 513e3d42 as llm.c tokens".
  std::string describe() const;

 private:
  friend class TokenDocuments;
  struct Impl;
  explicit TokenFiles(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

// The separator of documents in files that do not contain where documents end. Set at most one.
struct TokenDocumentOptions {
  std::optional<int32_t> end_of_text = std::nullopt;    // each is the last token of a document, as in nanoGPT's files
  std::optional<int32_t> begin_of_text = std::nullopt;  // each is the first token of a document, as in llm.c's files
};

// Splits token files into documents, each a std::vector of its tokens, including the separator. With a separator,
// opening reads all tokens once. A document may then continue in the next file, as in shards of one length. The tokens
// after the last separator are a document too.
class TokenDocuments {
 public:
  // Finds the documents.
  // Errors
  //   invalid_argument: no separator for files that do not contain where documents end; a separator for files that do;
  //     both separators
  //   invalid_file: the separator does not occur; no document at all
  explicit TokenDocuments(TokenFiles files, const TokenDocumentOptions& options = {});

  int64_t size() const;
  // Returns the tokens of one document. Errors: invalid_argument for an index outside [0, size()); as TokenFiles::read.
  std::vector<int32_t> operator[](int64_t index) const;
  // Returns "2 files, 25380 bytes, 513e3d42 as Megatron tokens | documents(17)".
  std::string describe() const;

 private:
  const std::vector<int64_t>& bounds() const;

  TokenFiles files_;
  std::shared_ptr<const std::vector<int64_t>> bounds_;  // begin of each document, and the end of the last
};

// Returns documents as a dataset: token_documents(files).shuffle(seed).repeat().pack({.length = 1024}).
inline auto token_documents(const TokenFiles& files, const TokenDocumentOptions& options = {}) {
  return from_source(TokenDocuments(files, options));
}

}  // namespace tessera::data
