// expect_error: that a call throws an Error of this kind whose message holds these words.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "nn/tree/tree.h"

namespace tessera::data {

template <class F>
void expect_error(ErrorKind kind, std::initializer_list<std::string> words, F call) {
  try {
    call();
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const auto& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what() << "\n  lacks: " << word;
    }
  }
}

}  // namespace tessera::data
