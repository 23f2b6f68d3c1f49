// Fuzzes vocab.json, merges.txt and tokenizer_config.json, which zero bytes separate in the input.
// They are rejected with invalid_file, or the tokenizer decodes the tokens of a text to that text.
#include "data/text/tokenizer.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace tessera;
  std::string_view rest = fuzz::text_of(bytes, size);
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    fuzz::scratch_file(name, end == 0 ? "{}" : rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  try {
    const auto tokenizer = data::Tokenizer::open(fuzz::scratch_folder());
    const std::string text = "ab abc caf\xc3\xa9\n 12";
    if (tokenizer.decode(tokenizer.encode(text).ids) != text) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file) std::abort();
  }
  return 0;
}
