// skip_without: for tests of what a build may leave out.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sharding/base/error.h"

namespace tessera::testing {

// Skips the test if the call's Error says so, "without ICU".
template <class Call>
void skip_without(const std::string& words, Call call) {
  try {
    call();
  } catch (const Error& error) {
    if (std::string(error.what()).find(words) != std::string::npos) GTEST_SKIP() << error.what();
    throw;
  }
}

}  // namespace tessera::testing
