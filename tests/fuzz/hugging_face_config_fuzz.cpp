// Fuzzes config.json: it is rejected with invalid_file, or the config is within its limits.
// A config that was read can be written, and is read back as the same.
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "nn/models/config.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

namespace {

// Returns whether two configs are equal, up to the rounding of roots and reciprocals.
bool is_close(const boost::json::value& a, const boost::json::value& b) {
  if (a.is_double() && b.is_number()) {
    const double x = a.as_double(), y = b.to_number<double>();
    return x == y || std::abs(x - y) <= 1e-9 * std::abs(x);
  }
  if (a.is_array() && b.is_array())
    return std::equal(a.as_array().begin(), a.as_array().end(), b.as_array().begin(), b.as_array().end(), is_close);
  if (!a.is_object() || !b.is_object()) return a == b;
  return a.as_object().size() == b.as_object().size() &&
         std::all_of(a.as_object().begin(), a.as_object().end(), [&](const auto& member) {
           const boost::json::value* other = b.as_object().if_contains(member.key());
           return other && is_close(member.value(), *other);
         });
}

}  // namespace

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
  const std::string written = nn::config_to_hugging_face(config, float32);
  const std::string again = nn::config_to_hugging_face(nn::config_from_hugging_face(written, "written"), float32);
  if (!is_close(boost::json::parse(written), boost::json::parse(again))) std::abort();
  return 0;
}
