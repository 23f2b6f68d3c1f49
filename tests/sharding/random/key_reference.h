// What JAX's keys and generators give: tests/reference/keys.json, read once.
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
