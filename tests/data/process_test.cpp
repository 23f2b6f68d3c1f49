// The loader as a citizen of its process: threads and descriptors that it gives back, limits, and fork().
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
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
#include "data/map_guard.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<int64_t>;
constexpr auto odd = [](int64_t x) { return x % 2 == 1; };

int64_t entries(const char* folder) {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

// The exit status of a child that runs this; it has a minute.
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
    Loader loader(bytes, rows, {.batch_size = 2, .prefetch = 3, .threads = 2});
    Loader stream(range(9).repeat().filter(odd), rows, {.batch_size = 2, .prefetch = 2, .threads = 2});
    if (round % 2) loader.next(), stream.next();
  }
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  for (int wait = 0; wait < 60'000 && entries("/proc/self/task") != threads; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a thread that was joined may still be listed
  EXPECT_EQ(entries("/proc/self/task"), threads);
}

TEST(Process, MoreThreadsThanThereAreIsAnErrorThatCanBeTriedAgain) {
  const auto status = status_in_child([] {
    Loader loader(range(100).repeat(), rows, {.batch_size = 2, .prefetch = 10'000, .threads = 10'000});
    Loader few(range(100).repeat(), rows, {.batch_size = 2, .prefetch = 2, .threads = 2});
    struct rlimit before = {}, low = {};
    ::getrlimit(RLIMIT_AS, &before);
    low = {rlim_t{3} << 30, before.rlim_max};
    ::setrlimit(RLIMIT_AS, &low);
    try {
      loader.next();
      return 1;
    } catch (const Error& error) {
      if (std::string(error.what()).find("LoaderOptions::threads") == std::string::npos) return 2;
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
  Loader loader(slow, rows, {.batch_size = 5, .prefetch = std::numeric_limits<int>::max(), .threads = 2});
  EXPECT_EQ(*loader.next(), (Numbers{0, 1, 2, 3, 4}));
}

// The parent's threads are not there in the child; its loaders go on where they stood, and end.
template <class S>
void expect_to_go_on_after_fork(const S& source) {
  for (const int threads : {1, 3}) {
    const LoaderOptions options{.batch_size = 4, .prefetch = 4, .threads = threads};
    Loader reference(source, rows, options);
    Loader loader(source, rows, options);
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

TEST(Process, AForkedLoaderGoesOnWithThreadsOfItsOwn) {
  expect_to_go_on_after_fork(range(97).shuffle(1).repeat());
  expect_to_go_on_after_fork(range(97).shuffle(1).repeat().filter(odd));
}

// ---- the handler of SIGBUS ------------------------------------------------------------------------------------------

// A page of a file that is cut off after it was mapped.
class CutPage {
 public:
  CutPage() {
    const auto path = folder_.write("a", std::string(size, 'a'));
    const int file = ::open(path.c_str(), O_RDONLY);
    map_ = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    fs::resize_file(path, 10);
  }
  CutPage(const CutPage&) = delete;
  CutPage& operator=(const CutPage&) = delete;
  ~CutPage() { ::munmap(map_, size); }
  const void* data() const { return map_; }
  int last_byte() const { return static_cast<const volatile char*>(map_)[size - 1]; }
  static constexpr size_t size = 100'000;

 private:
  ScratchFolder folder_;
  void* map_;
};

void exit_with_7(int) { ::_exit(7); }
void exit_with_8(int, siginfo_t*, void*) { ::_exit(8); }

using Handler = void (*)(int);
Handler handler_now() {
  struct sigaction now = {};
  ::sigaction(SIGBUS, nullptr, &now);
  return now.sa_handler;
}

TEST(MapGuard, TakesTheHandlerWhileAnyGuardLives) {
  const CutPage page;
  const Handler before = handler_now();
  {
    const detail::MapGuard guard(page.data(), CutPage::size);
    EXPECT_NE(handler_now(), before);
    { const detail::MapGuard other(page.data(), 1); }
    EXPECT_NE(handler_now(), before) << "one guard is left";
    EXPECT_EQ(page.last_byte(), 0);
    EXPECT_TRUE(guard.is_broken());
  }
  EXPECT_EQ(handler_now(), before);
}

TEST(MapGuard, WhatIsNotGuardedGoesToTheHandlerBefore) {
  const CutPage guarded, other;
  const auto with = [&](const std::function<void()>& install, const std::function<void()>& fault) {
    return status_in_child([&] {
      ::signal(SIGBUS, SIG_DFL);
      install();
      const detail::MapGuard guard(guarded.data(), CutPage::size);
      if (guarded.last_byte() != 0 || !guard.is_broken()) return 50;
      fault();
      return 51;
    });
  };
  const auto no_handler = [] {};
  const auto simple = [] { ::signal(SIGBUS, exit_with_7); };
  const auto full = [] {
    struct sigaction action = {};
    action.sa_sigaction = exit_with_8;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
  };
  const auto fault = [&] { other.last_byte(); };
  const auto raise = [] { ::raise(SIGBUS); };
  EXPECT_EQ(with(no_handler, fault), -SIGBUS) << "ends the process, as without a guard";
  EXPECT_EQ(with(no_handler, raise), -SIGBUS);
  EXPECT_EQ(with(simple, fault), 7);
  EXPECT_EQ(with(simple, raise), 7);
  EXPECT_EQ(with(full, fault), 8);
  EXPECT_EQ(with([] { ::signal(SIGBUS, SIG_IGN); }, fault), -SIGBUS) << "a fault cannot be ignored";
  EXPECT_EQ(with([] { ::signal(SIGBUS, SIG_IGN); }, raise), 51) << "a signal can";
}

struct sigaction before_mine;
void pass_on(int number, siginfo_t* info, void* context) { before_mine.sa_sigaction(number, info, context); }

TEST(MapGuard, AHandlerThatCameLaterPassesOnWhatItDoesNotKnow) {
  const CutPage first, second;
  EXPECT_EQ(status_in_child([&] {
              struct sigaction action = {};
              {
                const detail::MapGuard guard(first.data(), CutPage::size);
                action.sa_sigaction = pass_on;
                action.sa_flags = SA_SIGINFO;
                ::sigaction(SIGBUS, &action, &before_mine);
                if (first.last_byte() != 0 || !guard.is_broken()) return 1;
              }
              const detail::MapGuard guard(second.data(), CutPage::size);  // the later handler stays in front
              struct sigaction now = {};
              ::sigaction(SIGBUS, nullptr, &now);
              if (now.sa_sigaction != pass_on) return 2;
              return second.last_byte() == 0 && guard.is_broken() ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace tessera::data
