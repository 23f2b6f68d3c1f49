// Fails the allocations of loaders one after another: each gives an error, no record is lost, and loading continues.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/loader.h"

namespace {

enum class Where { nowhere, first_thread, other_threads };
std::atomic<Where> where = Where::nowhere;
std::atomic<int> until_failure = 0;
const std::thread::id first_thread = std::this_thread::get_id();

bool fails() {
  const Where now = where;
  const bool is_first = std::this_thread::get_id() == first_thread;
  if (now == Where::nowhere || (now == Where::first_thread) != is_first) return false;
  return --until_failure == -1;
}

// Fails allocation number `number` (from 0) in the threads at `place` while the object exists.
class FailingAllocation {
 public:
  FailingAllocation(Where place, int number) {
    until_failure = number;
    where = place;
  }
  ~FailingAllocation() { where = Where::nowhere; }
  FailingAllocation(const FailingAllocation&) = delete;
};

}  // namespace

// noinline: otherwise g++ warns that free() does not match operator new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (fails()) throw std::bad_alloc();
  if (void* result = std::malloc(bytes ? bytes : 1)) return result;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tessera::data {
namespace {

// Reads thirty batches while allocation number `number` fails. Returns the number of errors.
template <class L>
int errors_when_fails(L loader, Where place, int number) {
  int errors = 0;
  const FailingAllocation failing(place, number);
  for (int64_t batch = 0; batch < 30;) {
    try {
      EXPECT_EQ(loader.next()->front(), 2 * batch) << "allocation " << number;
      ++batch;
    } catch (const std::exception&) {  // an Error, or the bad_alloc itself on the first thread
      where = Where::nowhere;
      ++errors;
    }
  }
  return errors;
}

template <class Source>
void expect_errors_and_nothing_lost(const Source& source) {
  for (const Where place : {Where::first_thread, Where::other_threads}) {
    int errors = 0;
    for (int number = 0; number < 300; ++number)
      errors += errors_when_fails(Loader(source, as_vector, {.batch_size = 2, .prefetch = 4, .num_threads = 2}), place,
                                  number);
    EXPECT_GT(errors, 3);
  }
}

TEST(Memory, ThatIsNotThereIsAnErrorAndNoBatchIsLost) {
  expect_errors_and_nothing_lost(range(100).repeat());
  expect_errors_and_nothing_lost(range(100).repeat().filter([](int64_t) { return true; }));
}

TEST(Memory, ThatTheWordsOfAnErrorLackLosesNoRecord) {
  for (int number = 0; number < 200; ++number) {
    int calls = 0;
    Loader loader(range(100).filter([&](int64_t x) {
      if (x == 3 && calls++ == 0) throw std::runtime_error("a record that cannot be read on this day");
      return true;
    }),
                  as_vector, {.batch_size = 2, .prefetch = 0});
    EXPECT_GT(errors_when_fails(std::move(loader), Where::first_thread, number), 0);
  }
}

TEST(Memory, ThatMapLacksLeavesTheLoaderAsItWas) {
  const std::string much(60, 'x');  // more than a std::function can store without an allocation
  const auto longer = [much](std::string x) { return x + much; };
  int failures = 0;
  for (int number = 0; number < 20; ++number) {
    Loader loader = Loader(range(100), as_vector, {.batch_size = 2}).map([](const std::vector<int64_t>& batch) {
      return std::to_string(batch.front());
    });
    try {
      const FailingAllocation failing(Where::first_thread, number);
      const auto unused = std::move(loader).map(longer);
    } catch (const std::bad_alloc&) {
      ++failures;
      EXPECT_EQ(loader.next(), "0") << "allocation " << number;
    }
  }
  EXPECT_GT(failures, 2);
}

}  // namespace
}  // namespace tessera::data
