// expect_error, as the tests of the input write it.
#pragma once

#include "tests/sharding/expect_error.h"

namespace tessera::data {

using tessera::testing::expect_error;

}  // namespace tessera::data
