// Fuzzes token files and Megatron's index.
// They are rejected with invalid_file, or all tokens can be read, with the same result alone and by documents.
#include <string>
#include <vector>

#include "data/sources/token_files.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

namespace {

// Reads all tokens, and all documents, which together have the same tokens.
void read(const std::string& path, tessera::data::TokenFormat format, size_t size) {
  using namespace tessera::data;
  try {
    const auto files = TokenFiles::open({path}, {.format = format, .vocab_size = 40'000});
    if (files.size() > static_cast<int64_t>(size)) std::abort();
    std::vector<int32_t> tokens(static_cast<size_t>(files.size()));
    files.read(0, tokens);
    TokenDocumentOptions options;
    if (!files.knows_documents()) options.end_of_text = tokens.front();
    const TokenDocuments documents(files, options);
    std::vector<int32_t> joined;
    for (int64_t i = 0; i < documents.size(); ++i)
      for (const int32_t token : documents[i]) joined.push_back(token);
    if (joined != tokens) std::abort();
  } catch (const tessera::Error& error) {
    if (error.kind() != tessera::ErrorKind::invalid_file) std::abort();
  }
}

}  // namespace

// The first byte selects the format. Then come the bytes of the tokens, then the bytes of an index.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tessera::data::TokenFormat;
  if (size < 2) return 0;
  using tessera::fuzz::scratch_file;
  const bool has_index = data[0] % 8 >= 4;
  const size_t begin = has_index ? 2 : 1;
  const size_t of_tokens = has_index ? std::min<size_t>(data[1], size - 2) : size - 1;
  const std::string_view input = tessera::fuzz::text_of(data, size);
  const std::string tokens = scratch_file("input.bin", input.substr(begin, of_tokens));
  if (has_index)
    scratch_file("input.idx", input.substr(begin + of_tokens));
  else
    std::filesystem::remove(tessera::fuzz::scratch_folder() / "input.idx");
  constexpr TokenFormat formats[] = {TokenFormat::automatic, TokenFormat::llm_c, TokenFormat::npy,
                                     TokenFormat::headerless};
  const TokenFormat chosen = data[0] / 8 == 31 ? TokenFormat::headerless_uint32 : formats[data[0] % 8 % 4];
  read(tokens, has_index ? TokenFormat::automatic : chosen, size);
  return 0;
}
