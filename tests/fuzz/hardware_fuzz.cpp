// Fuzzes the speeds of a machine: they are rejected with invalid_file or invalid_argument, or they round-trip.
#include "nn/report/measure_hardware.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const std::string written =
        nn::to_json(nn::load_hardware(fuzz::scratch_file("input.json", fuzz::text_of(data, size))));
    if (nn::to_json(nn::load_hardware(fuzz::scratch_file("written.json", written))) != written) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file && error.kind() != ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
