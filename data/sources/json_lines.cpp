// Parses lines as JSON, and checks the range of numbers.
#include "data/sources/json_lines.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/files/json.h"

namespace tessera::data::detail {

boost::json::value parse_line(const std::string& text, const std::string& where) {
  if (text.find_first_not_of(" \t") == std::string::npos)
    fail(ErrorKind::invalid_file, "json_lines", where + ": an empty line, expected a JSON value; remove the line");
  return parse_json(text, "json_lines", where, /*allow_nan=*/true);
}

std::string text_in_line(const std::string& text, const std::string& field, const std::string& where) {
  const boost::json::value value = parse_line(text, where);
  const JsonPart record{value, where + ": record", "json_lines"};
  if (record.has(field)) return record.at(field).text();  // a name may contain a dot
  const boost::json::value* found = &value;
  for (const std::string_view name : tessera::detail::split_text(field, ".")) {
    const auto* object = found->if_object();
    const auto* member = object ? object->if_contains(name) : nullptr;
    if (!member || member->is_null())
      record.refuse(fmt::format("the field \"{}\" is missing or null, expected a string.", field));
    found = member;
  }
  if (!found->is_string()) record.refuse(fmt::format("the field \"{}\" is not a string, expected one.", field));
  return std::string(found->get_string());
}

double number_up_to(double max, const JsonPart& json) {
  const double number = json.number();
  if (!(std::abs(number) <= max)) json.refuse_type(fmt::format("a number of at most {:g}", max));
  return number;
}

}  // namespace tessera::data::detail
