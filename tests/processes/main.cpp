// Runs the tests in every process. Process 0 prints all results, the others only failures.
#include <gtest/gtest.h>

#include "sharding/runtime/processes.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tessera::initialize();
  if (tessera::process_index() > 0) GTEST_FLAG_SET(brief, true);
  return RUN_ALL_TESTS();
}
