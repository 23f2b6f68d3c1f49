// Any bytes as a file of tokens and as Megatron's index: what is accepted is read whole, else there is one Error.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "data/token_files.h"
#include "sharding/diagnostics/error.h"

namespace {

std::string scratch_file(const char* end) {
  static const std::string folder = [] {
    std::string name = "/dev/shm/tessera_fuzz_XXXXXX";
    if (!::mkdtemp(name.data())) std::abort();
    return name;
  }();
  return folder + "/input" + end;
}

void write(const std::string& path, const uint8_t* data, size_t size) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  ::close(file);
}

// All tokens, and by documents, which together are all tokens up to where the index ends.
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
    if (error.kind() != tessera::ErrorKind::bad_file) std::abort();
  }
}

}  // namespace

// The first byte says which; before an index come the bytes of its tokens.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tessera::data::TokenFormat;
  if (size < 2) return 0;
  static const std::string tokens = scratch_file(".bin"), index = scratch_file(".idx");
  const size_t of_tokens = data[0] % 8 < 4 ? size - 1 : std::min<size_t>(data[1], size - 2);
  const size_t begin = data[0] % 8 < 4 ? 1 : 2;
  write(tokens, data + begin, of_tokens);
  if (begin == 2)
    write(index, data + begin + of_tokens, size - begin - of_tokens);
  else
    ::unlink(index.c_str());
  constexpr TokenFormat formats[] = {TokenFormat::automatic, TokenFormat::llm_c, TokenFormat::npy,
                                     TokenFormat::headerless};
  read(tokens, begin == 2 ? TokenFormat::automatic : formats[data[0] % 8], size);
  return 0;
}
