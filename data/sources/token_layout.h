// TokenLayout: the position of the tokens in a file, from its header or its index file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/sources/source.h"

namespace tessera::data {

// Formats of files of token ids, all little-endian, as other programs write them.
enum class TokenFormat : uint8_t {
  automatic,   // detected from the bytes of the file, and from an index file next to it
  headerless,  // nanoGPT's .bin: only uint16 tokens
  llm_c,     // llm.c's .bin: 256 int32 (magic number, version, number of tokens, ...), then the tokens. They are uint16
             // for magic number 20240520 and version 1, uint32 for 20240801 and version 7
  megatron,  // Megatron's .bin (numbers only) and its .idx, which has their type and the ends of documents
  npy,       // numpy's .npy, versions 1 to 3: one dimension of integers
  headerless_uint32,  // only uint32 tokens, as numpy's tofile writes them for vocabularies of more than 65,536 ids
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
  std::vector<int64_t> documents;  // end of each document in tokens, if the file contains them
  bool knows_documents = false;
};

// Returns a name for messages and saved states: "llm.c's".
std::string name_of(TokenFormat format);

// Detects the format by the file's first bytes, or by its name if it ends in .npy, .uint32.bin or .u32.bin. It is
// headerless if neither decides, and megatron if `has_index`. Errors (invalid_file): the bytes of a different format
// (zip, pickle, safetensors, text); numbers wider than the tokens.
TokenFormat format_of(const ByteSource& bytes, const SourceFile& file, bool has_index);

// Returns the layout of the file, whose bytes are in `bytes`. `index` is the path of the .idx that a Megatron file
// needs. Errors (invalid_file), which name the file: a header that is truncated, malformed or of another format or
// version; an element type that tokens cannot have; contradictory sizes.
TokenLayout read_token_layout(TokenFormat format, const ByteSource& bytes, const SourceFile& file,
                              const std::string& index);

// Reads the header of a .npy file.
TokenLayout npy_layout(const ByteSource& bytes, const SourceFile& file);

[[noreturn]] void fail_tokens(const std::string& path, const std::string& what);

}  // namespace detail

}  // namespace tessera::data
