// Checks errors in the tests of data.
#pragma once

#include "tests/sharding/expect_error.h"

namespace tessera::data {

using tessera::testing::expect_error;

}  // namespace tessera::data
