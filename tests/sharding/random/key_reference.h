// The results of JAX's keys and generators, read once from tests/reference/keys.json.
#pragma once

#include <boost/json/value.hpp>
#include <filesystem>

#include "sharding/files/json.h"

namespace tessera {

inline const boost::json::value& reference() {
  static const boost::json::value value = parse_json_file(
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "reference" / "keys.json");
  return value;
}

}  // namespace tessera
