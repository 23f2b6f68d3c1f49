// A check that a call is refused, with the right kind of Error and these words in it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sharding/diagnostics/error.h"

namespace tessera::testing {

template <class Fn>
void expect_error(ErrorKind kind, const std::string& words, Fn&& fn) {
  try {
    fn();
    ADD_FAILURE() << "no error, expected: " << words;
  } catch (const Error& e) {
    EXPECT_TRUE(e.kind() == kind) << "another kind of error: " << e.what();
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos)
        << "given:    " << e.what() << "\nexpected: " << words;
  }
}

}  // namespace tessera::testing
