// The exit status of a program that throws: whether a restart makes sense.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "sharding/base/error.h"
#include "sharding/runtime/processes.h"

namespace tessera::run_program_test {
namespace {

template <class Exception>
int status_of(const Exception& exception) {
  return run_program([&]() -> int { throw exception; });
}

TEST(RunProgram, ReturnsTheRestartStatusIfAProcessOrADeviceIsLost) {
  EXPECT_EQ(status_of(Error(ErrorKind::lost_process, "[all_reduce] process 1 has ended.")), restart_status);
  EXPECT_EQ(status_of(c10::AcceleratorError({__func__, __FILE__, __LINE__}, 719, "unspecified launch failure")),
            restart_status);
}

TEST(RunProgram, ReturnsOneForErrorsThatWouldComeAgain) {
  EXPECT_EQ(status_of(Error(ErrorKind::invalid_file, "[restore] runs/7: their checksum differs.")), 1);
  EXPECT_EQ(status_of(std::runtime_error("no such row")), 1);
  EXPECT_EQ(run_program([] {}), 0);
}

TEST(RunProgram, ReportsThatMemoryIsExhausted) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(status_of(std::bad_alloc()), 1);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("has no more memory. Use smaller batches"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::run_program_test
