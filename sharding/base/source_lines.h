// How lines of the user's program are spelled in tables and messages.
#pragma once

#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <vector>

namespace tessera::detail {

// A short name for each file: as many last parts of its path as tell it from the others: "model.cpp", "a/model.cpp".
std::map<std::string, std::string> short_names(const std::vector<std::string>& files);

// "model.cpp:31"; "an unknown line" if `file` is empty.
std::string line_name(const std::string& file, uint32_t line);
// The same with the last part of the file's path, as in messages.
std::string line_name(const std::source_location& where);

}  // namespace tessera::detail
