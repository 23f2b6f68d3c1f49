// TokenLayout: where the tokens lie in a file, as its header or the index beside it says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/sources/source.h"

namespace tessera::data {

// Files of token ids, all little-endian, as other programs write them.
enum class TokenFormat : uint8_t {
  automatic,   // told by what lies in the file and beside it
  headerless,  // nanoGPT's .bin: uint16 from the first byte on
  llm_c,     // llm.c's .bin: 256 int32, of which the first are the magic number 20240520 and version 1 (uint16 follow)
             // or 20240801 and 7 (uint32), and the number of tokens; then these
  megatron,  // Megatron's .bin of numbers only, and beside it the .idx with their type and the ends of documents
  npy,       // numpy's .npy, versions 1 to 3: one dim of whole numbers
};

namespace detail {

struct TokenType {
  int bytes = 2;
  bool is_signed = false;
};

struct TokenLayout {
  TokenFormat format = TokenFormat::headerless;
  TokenType type;
  int64_t begin = 0;               // bytes before the first token
  int64_t count = 0;               // tokens
  std::vector<int64_t> documents;  // after which token each ends, where the file says it
  bool knows_documents = false;
};

// "llm.c's", for messages and saved states.
std::string name_of(TokenFormat format);

// Returns the format by the file's first bytes, or by its name if it ends in .npy; headerless if neither decides, and
// megatron if `has_index`. Errors (invalid_file): the bytes are those of another kind of file (zip, pickle,
// safetensors, text), or of numbers wider than uint16.
TokenFormat format_of(const ByteSource& bytes, const SourceFile& file, bool has_index);

// Of the file, which lies in `bytes`; `index` is the path of the .idx that a Megatron file needs.
// Errors (invalid_file), which name the file: a header that is cut short, malformed or of another format or version, an
// element type that is none of tokens, and sizes that contradict each other.
TokenLayout read_token_layout(TokenFormat format, const ByteSource& bytes, const SourceFile& file,
                              const std::string& index);

// The header of a .npy file.
TokenLayout npy_layout(const ByteSource& bytes, const SourceFile& file);

[[noreturn]] void fail_tokens(const std::string& path, const std::string& what);

}  // namespace detail

}  // namespace tessera::data
