// Checks that a call throws an Error of the right kind whose message contains the given words.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "sharding/base/error.h"

namespace tessera::testing {

// Returns the message of the Error that `call` throws; the test fails unless the Error is of this kind.
template <class F>
std::string error_of(ErrorKind kind, F&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error";
  return "";
}

// Expects all of these words in the message.
template <class F>
void expect_error(ErrorKind kind, std::initializer_list<std::string> words, F&& call) {
  const std::string said = error_of(kind, call);
  for (const std::string& word : words)
    EXPECT_NE(said.find(word), std::string::npos) << "given:    " << said << "\nexpected: " << word;
}
template <class F>
void expect_error(ErrorKind kind, const std::string& words, F&& call) {
  expect_error(kind, {words}, call);
}

}  // namespace tessera::testing
