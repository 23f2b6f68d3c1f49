// Reads the worst inputs of at most 1 MB within limits of memory and time.
// Each is read or is one Error, and takes at most 100 MB and 5 seconds of CPU.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <string>

#include "sharding/base/error.h"
#include "tests/limits/cases.h"

namespace tessera::limits_test {
namespace {

constexpr size_t input_bytes = 1'000'000;
constexpr double max_seconds = 5;

struct Outcome {
  double megabytes = 0, seconds = 0;  // peak memory and CPU time
  int status = 0;                     // status that wait4 returned
  std::string text;                   // an exception's

  std::string to_text() const {
    return std::to_string(megabytes) + " MB, " + std::to_string(seconds) + " s, " +
           (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : text);
  }
};

void limit(decltype(RLIMIT_AS) what, rlim_t most) {
  const rlimit both{most, most};
  ::setrlimit(what, &both);
}

rlim_t virtual_bytes() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

// A child's peak starts at its parent's memory. The peak of another child that does nothing is therefore subtracted.
// The limits stop a child that would slow down the machine.
Outcome in_child(const Reading& read, const std::string& outcome) {
  const pid_t child = ::fork();
  if (child == 0) {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, static_cast<rlim_t>(max_seconds) + 1);
    limit(RLIMIT_AS, virtual_bytes() + (rlim_t{2} << 30));
    ::alarm(120);
    int status = 0;
    try {
      read();
    } catch (const Error& error) {
      std::ofstream(outcome) << "Error: " << std::string(error.what()).substr(0, 500);
    } catch (const std::exception& error) {
      std::ofstream(outcome) << "not an Error: " << error.what();
      status = 1;
    }
    ::_exit(status);
  }
  Outcome made;
  rusage used{};
  EXPECT_EQ(::wait4(child, &made.status, 0, &used), child);
  made.megabytes = static_cast<double>(used.ru_maxrss) / 1000;
  for (const timeval& time : {used.ru_utime, used.ru_stime})
    made.seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  std::ifstream in(outcome);
  made.text = {std::istreambuf_iterator<char>(in), {}};
  return made;
}

Outcome outcome_of(const Case& one, size_t bytes) {
  const data::ScratchFolder folder;
  const Reading read = one.prepare(folder, bytes);
  const Outcome nothing = in_child([] {}, folder.path("outcome"));
  Outcome made = in_child(read, folder.path("outcome"));
  made.megabytes -= nothing.megabytes;
  return made;
}

class Limits : public ::testing::TestWithParam<Case> {};

// Four times the input may take at most six times the memory: buffers that double need more than four times.
TEST_P(Limits, Hold) {
  const Outcome small = outcome_of(GetParam(), input_bytes / 4), large = outcome_of(GetParam(), input_bytes);
  EXPECT_TRUE(WIFEXITED(large.status) && WEXITSTATUS(large.status) == 0) << large.to_text();
  EXPECT_LE(large.megabytes, GetParam().max_megabytes) << large.to_text();
  EXPECT_LE(large.seconds, max_seconds) << large.to_text();
  EXPECT_LE(large.megabytes, 6 * small.megabytes + 5) << small.to_text() << "; " << large.to_text();
}

INSTANTIATE_TEST_SUITE_P(Readers, Limits, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::limits_test
