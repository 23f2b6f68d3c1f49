// The stack of open scopes, the test for library lines, and short names of lines.
#include "sharding/base/caller.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

namespace tessera {

const CallerScope*& detail::innermost_caller() {
  thread_local const CallerScope* innermost = nullptr;
  return innermost;
}

namespace {

// Returns the root folder of the library's sources, as the compiler writes it.
std::string_view root() {
  constexpr std::string_view here = "sharding/base/caller.cpp";
  const std::string_view file = std::source_location::current().file_name();
  return file.substr(0, file.size() - std::min(file.size(), here.size()));
}

// Returns whether `path`, relative to an include root, is in one of the library's folders.
bool is_in_a_folder(std::string_view path) {
  constexpr std::array<std::string_view, 4> folders{"sharding/", "nn/", "optim/", "data/"};
  return std::any_of(folders.begin(), folders.end(), [&](std::string_view folder) { return path.starts_with(folder); });
}

bool is_library_source(std::string_view file) {
  static const std::string_view folder = root();
  constexpr std::string_view include = "/include/tessera/";  // in an installation or a build folder
  if (file.empty() || (file.starts_with(folder) && is_in_a_folder(file.substr(folder.size())))) return true;
  const size_t at = file.rfind(include);
  return at != std::string_view::npos && is_in_a_folder(file.substr(at + include.size()));
}

}  // namespace

CallerScope::CallerScope(const std::source_location& where, const std::source_location& here)
    : where_(where), file_(here.file_name()), innermost_(detail::innermost_caller(), this) {}

CallerLine::CallerLine(const std::source_location& where) : where_(where) {
  const auto is_library = [](std::string_view file) {
    if (is_library_source(file)) return true;
    for (const CallerScope* scope = detail::innermost_caller(); scope; scope = scope->innermost_.outer())
      if (file == scope->file_) return true;
    return false;
  };
  for (const CallerScope* scope = detail::innermost_caller(); scope && is_library(where_.file_name());
       scope = scope->innermost_.outer())
    if (*scope->where_.file_name()) where_ = scope->where_;
}

std::shared_ptr<const std::string>& detail::current_module_path() {
  thread_local std::shared_ptr<const std::string> innermost;
  return innermost;
}

ModulePathScope::ModulePathScope(std::string path)
    : path_(detail::current_module_path(),
            path.empty() ? detail::current_module_path() : std::make_shared<const std::string>(std::move(path))) {}

}  // namespace tessera

namespace tessera::detail {

Text as_text(std::string words) { return std::make_shared<const std::string>(std::move(words)); }

Text lasting_text(const char* words) { return Text(Text(), new std::string(words)); }

Text explicit_reason() {
  static const Text reason = lasting_text("explicit");
  return reason;
}

Text returned_value_reason() {
  static const Text reason = lasting_text("a value is returned, not a partial sum");
  return reason;
}

namespace {

// Returns the last `parts` components of a path.
std::string tail(const std::string& file, int parts) {
  size_t begin = file.size();
  for (; parts > 0 && begin != std::string::npos && begin > 0; --parts) begin = file.rfind('/', begin - 1);
  return begin == std::string::npos || begin == 0 ? file : file.substr(begin + 1);
}

}  // namespace

std::map<std::string, std::string> short_names(const std::vector<std::string>& files) {
  const std::set<std::string> distinct(files.begin(), files.end());
  std::map<std::string, std::string> names;
  for (const std::string& file : distinct) {
    int parts = 1;
    const auto is_like = [&](const std::string& other) { return tail(other, parts) == tail(file, parts); };
    while (std::count_if(distinct.begin(), distinct.end(), is_like) > 1) ++parts;
    names[file] = tail(file, parts);
  }
  return names;
}

std::string line_name(const std::string& file, uint32_t line) {
  return file.empty() ? "an unknown line" : fmt::format("{}:{}", file, line);
}

std::string line_name(const std::source_location& where) { return line_name(tail(where.file_name(), 1), where.line()); }

}  // namespace tessera::detail
