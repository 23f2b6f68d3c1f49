// Parses lines as JSON, and checks the range of numbers.
#include "data/sources/json_lines.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "sharding/base/fail.h"
#include "sharding/files/json.h"

namespace tessera::data::detail {

boost::json::value parse_line(const std::string& text, const std::string& where) {
  if (text.find_first_not_of(" \t") == std::string::npos)
    fail(ErrorKind::invalid_file, "json_lines", where + ": an empty line, expected a JSON value; remove the line");
  return parse_json(text, "json_lines", where, /*allow_nan=*/true);
}

double number_up_to(double max, const JsonPart& json) {
  const double number = json.number();
  if (!(std::abs(number) <= max)) json.refuse_type(fmt::format("a number of at most {:g}", max));
  return number;
}

}  // namespace tessera::data::detail
