// Reads the header of a .npy file: a Python dict of three entries, padded with spaces.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "data/sources/token_layout.h"

namespace tessera::data::detail {
namespace {

constexpr int64_t max_header_bytes = 1 << 20;

// Parses {'descr': '<u2', 'fortran_order': False, 'shape': (3,), }.
class DictReader {
 public:
  explicit DictReader(std::string_view text) : text_(text) {}

  // Returns each value as text, strings without their quotes; std::nullopt if the text is not such a dict.
  std::optional<std::map<std::string, std::string, std::less<>>> read() {
    std::map<std::string, std::string, std::less<>> entries;
    if (!takes('{')) return std::nullopt;
    while (!takes('}')) {
      const auto key = quoted();
      if (!key || !takes(':')) return std::nullopt;
      const auto value = this->value();
      if (!value || !entries.emplace(*key, *value).second) return std::nullopt;
      if (!takes(',') && !is_next('}')) return std::nullopt;
    }
    skip_space();
    return text_.empty() ? std::optional(entries) : std::nullopt;
  }

 private:
  void skip_space() { text_.remove_prefix(std::min(text_.find_first_not_of(" \n"), text_.size())); }

  bool is_next(char c) {
    skip_space();
    return text_.starts_with(c);
  }
  bool takes(char c) {
    if (!is_next(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  std::optional<std::string> until(size_t end, size_t after) {
    if (end == text_.npos) return std::nullopt;
    const std::string part(text_.substr(0, end));
    text_.remove_prefix(end + after);
    return part;
  }

  std::optional<std::string> quoted() {
    for (const char quote : {'\'', '"'})
      if (takes(quote)) return until(text_.find(quote), 1);
    return std::nullopt;
  }

  std::optional<std::string> value() {
    if (is_next('\'') || is_next('"')) return quoted();
    if (takes('(')) return until(text_.find(')'), 1);
    return until(text_.find_first_of(",} \n"), 0);
  }

  std::string_view text_;
};

// Returns 3 for "3,"; std::nullopt for any other number of dimensions.
std::optional<int64_t> only_dim(std::string_view shape) {
  int64_t size = 0;
  const char* end = shape.data() + shape.size();
  const auto [rest, error] = std::from_chars(shape.data(), end, size);
  const std::string_view after(rest, static_cast<size_t>(end - rest));
  const bool is_one = after.starts_with(',') && after.find_first_not_of(' ', 1) == after.npos;
  return error == std::errc{} && size >= 0 && is_one ? std::optional(size) : std::nullopt;
}

TokenType type_of(const std::string& descr, const std::string& path) {
  const bool is_byte = descr == "|u1" || descr == "|i1";
  const bool is_number = descr.size() == 3 && descr[0] == '<' && (descr[1] == 'u' || descr[1] == 'i') &&
                         std::string_view("1248").find(descr[2]) != std::string_view::npos;
  if (!is_byte && !is_number)
    fail_tokens(path, "elements \"" + descr + "\", expected little-endian whole numbers, as <u2 or <i4");
  return {descr[2] - '0', descr[1] == 'i'};
}

}  // namespace

TokenLayout npy_layout(const ByteSource& bytes, const SourceFile& file) {
  uint8_t fixed[12] = {};
  if (file.size < 12) fail_tokens(file.path, fmt::format("{} bytes, fewer than the header of a .npy file", file.size));
  bytes.read(file.begin, fixed);
  if (std::string_view(reinterpret_cast<const char*>(fixed), 6) != "\x93NUMPY")
    fail_tokens(file.path, "does not begin with \\x93NUMPY, as a .npy file does; name its own format");
  if (fixed[6] < 1 || fixed[6] > 3 || fixed[7] != 0)
    fail_tokens(file.path, fmt::format("version {}.{} of .npy, expected 1.0, 2.0 or 3.0", fixed[6], fixed[7]));
  const bool is_short = fixed[6] == 1;
  const int64_t length =
      fixed[8] | fixed[9] << 8 | (is_short ? 0 : int64_t{fixed[10]} << 16 | int64_t{fixed[11]} << 24);
  const int64_t begin = is_short ? 10 : 12;
  if (length > std::min(file.size - begin, max_header_bytes))
    fail_tokens(file.path,
                fmt::format("a header of {} bytes in a file of {}; it is truncated or damaged", length, file.size));
  std::string text(static_cast<size_t>(length), '\0');
  bytes.read(file.begin + begin, {reinterpret_cast<uint8_t*>(text.data()), text.size()});

  const auto entries = DictReader(text).read();
  if (!entries || entries->size() != 3 || !entries->contains("descr") || !entries->contains("fortran_order") ||
      !entries->contains("shape"))
    fail_tokens(file.path, "its header is not a dict of descr, fortran_order and shape; it is damaged");
  const TokenType type = type_of(entries->at("descr"), file.path);
  const auto count = only_dim(entries->at("shape"));
  if (!count) fail_tokens(file.path, "shape (" + entries->at("shape") + "), expected one dim, as (1000,)");
  const int64_t rest = file.size - begin - length;
  if (*count > rest || *count * type.bytes != rest)
    fail_tokens(file.path,
                fmt::format("its header declares {} elements of {} bytes, and {} bytes follow; it is truncated "
                            "or damaged",
                            *count, type.bytes, rest));
  return {.format = TokenFormat::npy, .type = type, .begin = begin + length, .count = *count};
}

}  // namespace tessera::data::detail
