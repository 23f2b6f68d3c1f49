// The worst inputs of any size for each reader of foreign files.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/data/scratch_folder.h"

namespace tessera::limits_test {

using Reading = std::function<void()>;

// `prepare` makes an input of about `bytes` bytes and returns the call that reads it.
struct Case {
  std::string name;
  std::function<Reading(const data::ScratchFolder&, size_t bytes)> prepare;
  double max_megabytes = 100;

  friend std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }
};

std::vector<Case> cases();

}  // namespace tessera::limits_test
