// TokenFiles: files of token ids as nanoGPT, llm.c, Megatron and numpy write them, as one sequence and as documents.
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
  // How many ids the tokenizer has: a larger one is an Error. 0: any that an int32 holds.
  int64_t vocab_size = 0;
  // Which files of a folder are read. Files named directly are always read.
  std::vector<std::string> extensions = {".bin", ".idx", ".npy"};
  int64_t map_from = 1 << 20;  // as in ByteSourceOptions
};

// The tokens of all files one after another, as int32:
//
//   const auto files = TokenFiles::open({"fineweb"}, {.vocab_size = 50257});
//   Loader loader(windows(files, 1025).shuffle(seed).repeat(), token_batch, {.batch_size = 32});
//
// A path is a file or a folder (data/sources/file_list.h). A Megatron pair is named by its .bin, its .idx, both, or the
// name without either. All files of a set are of one format; `concat` and `mix` join sets. Without a named format a
// file with an .idx file of its name is Megatron's, one that begins with the magic number of llm.c or numpy is of that
// format, one that ends in .npy is numpy's, and any other is headerless uint16. A file whose bytes show that it is
// none of these (zip archives, pickles, safetensors, text, uint32 numbers) is an Error, unless you name the format.
//
// Copies share the files; any number of threads may read at once. What ByteSource says of files that change and of
// maps holds here too.
class TokenFiles {
 public:
  using value_type = int32_t;

  // Errors: as ByteSource::open. Further ones (invalid_file) name the file: what read_token_layout
  // (data/sources/token_layout.h) refuses, a file of another format than those before it. invalid_argument: vocab_size
  // < 0 or > 2^31.
  static TokenFiles open(const std::vector<std::string>& paths, const TokenFilesOptions& options = {});

  int64_t size() const;  // tokens

  // Copies tokens [offset, offset + out.size()) to out. Errors: invalid_argument unless they lie within [0, size());
  // invalid_file: "[read] train.bin, token 17: id 50300, expected one of 0 to 50256", and for a file that was changed.
  void read(int64_t offset, std::span<int32_t> out) const;

  TokenFormat format() const;
  // Whether the files say where documents end, as Megatron's do.
  bool knows_documents() const;
  // "train.bin, token 17": which token of which file lies at offset.
  std::string where(int64_t offset) const;
  // "2 files, 25380 bytes, 513e3d42 as llm.c tokens".
  std::string describe() const;

 private:
  friend class TokenDocuments;
  struct Impl;
  explicit TokenFiles(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;
  std::shared_ptr<const Impl> impl_;
};

// Where documents end, for files that do not say it: at most one of these.
struct TokenDocumentOptions {
  std::optional<int32_t> end_of_text = std::nullopt;    // each is the last token of a document, as in nanoGPT's files
  std::optional<int32_t> begin_of_text = std::nullopt;  // each is the first token of a document, as in llm.c's files
};

// The documents of token files, each a std::vector of its tokens, the separator with it. With a separator a document
// goes on in the next file, as in shards of one length, opening reads all tokens once, and what follows the last
// separator is a document too.
class TokenDocuments {
 public:
  // Errors (invalid_argument): no separator for files that do not know their documents, both, or one for files that do;
  // invalid_file: the separator is nowhere, no document at all.
  explicit TokenDocuments(TokenFiles files, const TokenDocumentOptions& options = {});

  int64_t size() const;
  // Errors: invalid_argument unless index lies within [0, size()); as TokenFiles::read.
  std::vector<int32_t> operator[](int64_t index) const;
  // "2 files, 25380 bytes, 513e3d42 as Megatron tokens | documents(17)".
  std::string describe() const;

 private:
  const std::vector<int64_t>& bounds() const;

  TokenFiles files_;
  std::shared_ptr<const std::vector<int64_t>> bounds_;  // where each document begins, and the end
};

// Documents as a dataset: token_documents(files).shuffle(seed).repeat().pack({.length = 1024}).
inline auto token_documents(const TokenFiles& files, const TokenDocumentOptions& options = {}) {
  return from_source(TokenDocuments(files, options));
}

}  // namespace tessera::data
