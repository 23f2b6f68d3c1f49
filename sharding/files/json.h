// JSON texts and files as values, read strictly: Boost.JSON behind two functions.
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <string_view>

namespace tessera {

// The value of a JSON text (RFC 8259, UTF-8). Errors (invalid_file) read "[verb] name: line 3, column 7: ...":
// malformed JSON, anything but white space after the value, more than 32 levels, and a key twice in one object, which
// most readers resolve silently and each in its own way. Numbers with a fraction are rounded correctly; integers are
// int64, above that uint64, above that double. Callers include <boost/json/value.hpp>, or <boost/json.hpp> for
// conversions. With `allow_nan`, the literals NaN, Infinity and -Infinity are numbers: Python's json.dumps writes them.
boost::json::value parse_json(std::string_view text, std::string_view verb, std::string_view name,
                              bool allow_nan = false);

// The same for a file. One that is missing or cannot be read is an Error (invalid_file) too.
boost::json::value parse_json_file(const std::filesystem::path& path);

}  // namespace tessera
