// How lines of the user's program are spelled in tables and messages.
#pragma once

#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <vector>

namespace tessera::detail {

// Each file by its last part, or by as many as tell it from the others: "model.cpp", "a/model.cpp".
std::map<std::string, std::string> short_names(const std::vector<std::string>& files);

// "model.cpp:31"; "an unknown line" without a file.
std::string line_name(const std::string& file, uint32_t line);
// The same by the last part of its file, as messages have it.
std::string line_name(const std::source_location& where);

}  // namespace tessera::detail
