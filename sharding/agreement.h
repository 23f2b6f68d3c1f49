// Agreement: processes that are to run one program compare what each of them is about to do.
#pragma once

#include <string>

#include "sharding/type.h"

namespace tessera::detail {

// Compares a text of this process, line by line, with those of all other processes, which call it at the same place.
// Error (inconsistent), the same on all, which begins with `verb` and shows the first line that differs, as both have
// it. What it costs: 16 bytes from each process to each. Nothing to compare where one process is alone.
void check_agreement(const char* verb, int processes, const std::string& text);

}  // namespace tessera::detail
