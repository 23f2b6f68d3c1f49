// Fuzzes manifest.json and state.json: the text is rejected with invalid_file, or it round-trips.
#include <cstdlib>
#include <string_view>

#include "nn/checkpoint/manifest.h"
#include "sharding/base/error.h"

namespace {

template <class Text>
void read(std::string_view text) {
  try {
    const std::string written = Text::from_json(text, "input").to_json();
    if (Text::from_json(written, "written").to_json() != written) std::abort();
  } catch (const tessera::Error& error) {
    if (error.kind() != tessera::ErrorKind::invalid_file) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read<tessera::nn::Manifest>(text);
  read<tessera::nn::SavedState>(text);
  return 0;
}
