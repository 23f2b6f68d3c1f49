// The functions that tessera::finalize calls.
#include "sharding/base/finalize.h"

#include <mutex>
#include <utility>
#include <vector>

namespace tessera::detail {
namespace {

struct Finalizers {
  std::mutex mutex;
  std::vector<void (*)()> all;

  static Finalizers& instance() {
    static Finalizers& finalizers = *new Finalizers;  // static objects of the program may still use it
    return finalizers;
  }
};

}  // namespace

void on_finalize(void (*end)()) {
  const std::lock_guard lock(Finalizers::instance().mutex);
  Finalizers::instance().all.push_back(end);
}

void run_finalizers() {
  std::vector<void (*)()> all;
  {
    const std::lock_guard lock(Finalizers::instance().mutex);
    all.swap(Finalizers::instance().all);
  }
  for (auto end = all.rbegin(); end != all.rend(); ++end) (*end)();
}

}  // namespace tessera::detail
