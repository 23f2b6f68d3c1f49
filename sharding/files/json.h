// Parses JSON texts and files strictly, with Boost.JSON.
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <string_view>

namespace tessera {

// Returns the value of a JSON text (RFC 8259, UTF-8). Numbers with a fraction are rounded correctly. Integers are
// int64, above that uint64, above that double. With `allow_nan`, the literals NaN, Infinity and -Infinity are numbers,
// as Python's json.dumps writes them. Callers include <boost/json/value.hpp>, or <boost/json.hpp> for conversions.
//
// Throws invalid_file, "[verb] name: line 3, column 7: ...", in these cases:
// - malformed JSON
// - anything except white space after the value
// - more than 32 levels
// - a duplicate key in an object, for which readers behave differently
boost::json::value parse_json(std::string_view text, std::string_view verb, std::string_view name,
                              bool allow_nan = false);

// Returns the value of a JSON file (see parse_json). Also throws invalid_file if the file is missing or cannot be read.
boost::json::value parse_json_file(const std::filesystem::path& path);

}  // namespace tessera
