// Skips tests of optional features that the build does not have.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sharding/base/error.h"

namespace tessera::testing {

// Skips the test if the call throws an Error whose message contains `words`, such as "without ICU".
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
