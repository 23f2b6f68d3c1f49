// Fuzzes safetensors files: a file is rejected with invalid_file, or the values of all its tensors can be read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <numeric>
#include <string>

#include "sharding/base/error.h"
#include "sharding/files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const int file = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const SafetensorsFile tensors = SafetensorsFile::open(path);
    int64_t bytes = 0;
    for (const std::string& name : tensors.names()) {
      const auto values = tensors.bytes(name);
      bytes += static_cast<int64_t>(values.size());
      volatile int sum = 0;
      for (std::byte b : values) sum = sum + static_cast<int>(b);
    }
    if (bytes > static_cast<int64_t>(size)) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file || !std::string_view(error.what()).starts_with("[safetensors] "))
      std::abort();
  }
  return 0;
}
