// The program input_pipeline: its slices, its shards, and resumption with any number of processes.
#include <gtest/gtest.h>

#include "tests/examples/program.h"

namespace tessera::examples::input_pipeline_test {
namespace {

TEST(InputPipeline, SlicesByProcessAndContinuesAnywhere) {
  const Outcome outcome = run_program(TESSERA_INPUT_PIPELINE);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* line : {"16 records over 4 processes, drop_remainder=false: [0, 4) [4, 8) [8, 12) [12, 16)\n",
                           "10 records over 4 processes, drop_remainder=false: [0, 3) [3, 6) [6, 8) [8, 10)\n",
                           "10 records over 4 processes, drop_remainder=true: [0, 2) [2, 4) [4, 6) [6, 8)\n",
                           "8 records over 1 processes, drop_remainder=true: [0, 8)\n",
                           "mesh batch=4, model=2: processes read parts 0/4 0/4 1/4 1/4 2/4 2/4 3/4 3/4\n",
                           "mesh batch=1, model=8: processes read parts 0/1 0/1 0/1 0/1 0/1 0/1 0/1 0/1\n",
                           "inputs int32[8@batch,8], targets int32[8@batch,8]\n", "\"global_next_index\": 96",
                           "every global batch as if never stopped: yes\n"}) {
    EXPECT_TRUE(outcome.says(line)) << line << outcome.output;
  }
}

}  // namespace
}  // namespace tessera::examples::input_pipeline_test
