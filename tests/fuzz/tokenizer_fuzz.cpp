// Fuzzes tokenizer.json: it is rejected with invalid_file, or the tokenizer encodes a text and decodes the tokens.
// An open tokenizer may also throw invalid_argument.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer.h"
#include "sharding/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  bool is_open = false;
  try {
    const auto tokenizer = data::Tokenizer::from_json({reinterpret_cast<const char*>(data), size}, "input");
    is_open = true;
    const std::string text = "ab abc <s>caf\xc3\xa9\n 12";
    const data::Encoding encoding = tokenizer.encode(text);
    if (encoding.ids.size() != encoding.offsets.size()) std::abort();
    for (const auto& [begin, end] : encoding.offsets)
      if (begin < 0 || end < begin || end > static_cast<int64_t>(text.size())) std::abort();
    tokenizer.decode(encoding.ids);
  } catch (const Error& error) {
    // encode may refuse a text itself, or a step of the file that takes too much time or memory.
    if (error.kind() != ErrorKind::invalid_file && !(is_open && error.kind() == ErrorKind::invalid_argument))
      std::abort();
  }
  return 0;
}
