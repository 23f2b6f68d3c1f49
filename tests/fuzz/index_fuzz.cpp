// Fuzzes Hugging Face's index: it is rejected with invalid_file, or all its files are in the folder.
#include <cstdlib>
#include <string_view>

#include "nn/checkpoint/manifest.h"
#include "sharding/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const auto index = nn::SafetensorsIndex::from_json({reinterpret_cast<const char*>(data), size}, "input");
    for (const auto& [tensor, file] : index.files)
      if (file.empty() || file == ".." || file.find('/') != file.npos) std::abort();
    if (nn::SafetensorsIndex::from_json(index.to_json(), "written").files != index.files) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file) std::abort();
  }
  return 0;
}
