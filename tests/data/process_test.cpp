// The loader's use of its process: threads and descriptors are released, limits are respected, and fork() works.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "data/loader.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data::process_test {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<int64_t>;
constexpr auto odd = [](int64_t x) { return x % 2 == 1; };

int64_t entries(const char* folder) {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

// Runs `run` in a child process and returns its exit status. The child is killed after a minute.
int status_in_child(const std::function<int()>& run) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    int result = 99;
    try {
      result = run();
    } catch (...) {
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Process, ManyLoadersLeaveNoThreadAndNoDescriptor) {
  const ScratchFolder folder;
  const auto path = folder.write("a", std::string(2'000'000, 'a'));
  const int64_t threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
  for (int round = 0; round < 300; ++round) {
    const auto bytes = windows(ByteSource::open({path}), 100).shuffle(1).repeat();
    Loader loader(bytes, as_vector, {.batch_size = 2, .prefetch = 3, .num_threads = 2});
    Loader stream(range(9).repeat().filter(odd), as_vector, {.batch_size = 2, .prefetch = 2, .num_threads = 2});
    if (round % 2) loader.next(), stream.next();
  }
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  for (int wait = 0; wait < 60'000 && entries("/proc/self/task") != threads; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a joined thread may still be listed for a moment
  EXPECT_EQ(entries("/proc/self/task"), threads);
}

TEST(Process, MoreThreadsThanThereAreIsAnErrorThatCanBeTriedAgain) {
  const auto status = status_in_child([] {
    Loader loader(range(100).repeat(), as_vector, {.batch_size = 2, .prefetch = 10'000, .num_threads = 10'000});
    Loader few(range(100).repeat(), as_vector, {.batch_size = 2, .prefetch = 2, .num_threads = 2});
    struct rlimit before = {}, low = {};
    ::getrlimit(RLIMIT_AS, &before);
    low = {rlim_t{3} << 30, before.rlim_max};
    ::setrlimit(RLIMIT_AS, &low);
    try {
      loader.next();
      return 1;
    } catch (const Error& error) {
      if (std::string(error.what()).find("LoaderOptions::num_threads") == std::string::npos) return 2;
    }
    ::setrlimit(RLIMIT_AS, &before);
    return few.next()->size() == 2 ? 0 : 3;
  });
  EXPECT_EQ(status, 0);
}

TEST(Process, AHugePrefetchDepthTakesMemoryAsItIsUsed) {
  const auto slow = range(10).repeat().map([](int64_t x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return x;
  });
  Loader loader(slow, as_vector, {.batch_size = 5, .prefetch = std::numeric_limits<int>::max(), .num_threads = 2});
  EXPECT_EQ(*loader.next(), (Numbers{0, 1, 2, 3, 4}));
}

// A child does not have the parent's threads. Its loaders continue at the same record and can be destroyed.
template <class S>
void expect_to_go_on_after_fork(const S& source) {
  for (const int threads : {1, 3}) {
    const LoaderOptions options{.batch_size = 4, .prefetch = 4, .num_threads = threads};
    Loader reference(source, as_vector, options);
    Loader loader(source, as_vector, options);
    const auto next = [&] { return loader.next() == reference.next(); };
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(next());
    const std::vector<Numbers> expected = {*reference.next(), *reference.next()};
    EXPECT_EQ(status_in_child([&] {
                for (const Numbers& batch : expected)
                  if (*loader.next() != batch) return 1;
                auto unused = std::move(loader);
                return 0;
              }),
              0)
        << source.describe() << " " << threads;
    for (const Numbers& batch : expected) EXPECT_EQ(*loader.next(), batch) << "the parent's";
  }
}

TEST(Process, AForkedLoaderContinuesWithItsOwnThreads) {
  expect_to_go_on_after_fork(range(97).shuffle(1).repeat());
  expect_to_go_on_after_fork(range(97).shuffle(1).repeat().filter(odd));
}

using Handler = void (*)(int);
Handler handler_of_bus_errors() {
  struct sigaction now = {};
  ::sigaction(SIGBUS, nullptr, &now);
  return now.sa_handler;
}

TEST(Process, AMappedFileLeavesTheSignalsAsTheyWere) {
  const ScratchFolder folder;
  const auto path = folder.write("a", std::string(100'000, 'a'));
  for (const Handler before : {Handler{SIG_DFL}, Handler{[](int) {}}}) {
    const Handler outside = ::signal(SIGBUS, before);
    {
      Loader loader(windows(ByteSource::open({path}, {.map_from = 1}), 100), as_vector,
                    {.batch_size = 2, .prefetch = 2});
      loader.next();
      EXPECT_EQ(handler_of_bus_errors(), before);
    }
    EXPECT_EQ(handler_of_bus_errors(), before);
    ::signal(SIGBUS, outside);
  }
}

}  // namespace
}  // namespace tessera::data::process_test
