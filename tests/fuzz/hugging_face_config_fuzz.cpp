// Fuzzes config.json: it is rejected with invalid_file, or the config is within its limits.
// A config that transformers can express also round-trips.
#include "nn/models/config.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  nn::DecoderConfig config;
  try {
    config = nn::config_from_hugging_face(fuzz::text_of(data, size), "input");
    nn::check(config);
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) config.sliding_window(i);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file) std::abort();
    return 0;
  }
  try {
    const std::string written = nn::config_to_hugging_face(config, float32);
    const auto read = nn::config_from_hugging_face(written, "written");
    if (nn::config_to_hugging_face(read, float32) != written) std::abort();
  } catch (const Error& error) {  // an option that transformers cannot express
    if (error.kind() != ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
