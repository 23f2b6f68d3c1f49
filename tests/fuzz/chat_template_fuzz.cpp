// Fuzzes chat templates: they are rejected with invalid_file, or they write a conversation or reject it.
#include <cstdlib>
#include <string_view>

#include "data/text/chat_template.h"
#include "sharding/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace tessera;
  bool is_open = false;
  try {
    const auto chat =
        data::ChatTemplate::from_text({reinterpret_cast<const char*>(bytes), size}, {{"bos_token", "<s>"}});
    is_open = true;
    const auto [text, parts] =
        chat.render_with_spans({{"user", "caf\xc3\xa9"}, {"assistant", "<think>a</think>b"}, {"user", "c"}});
    for (const auto& [begin, end] : parts)
      if (end < begin || end > text.size()) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file && !(is_open && error.kind() == ErrorKind::invalid_argument))
      std::abort();
  }
  return 0;
}
