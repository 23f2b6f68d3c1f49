// A table of address ranges that a signal handler may read, and that handler.
#include "data/map_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <mutex>

namespace tessera::data::detail {

namespace {

struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};  // end 0: free
  std::atomic<bool> broken{false};
};

std::array<Range, 1 << 16> ranges;
std::atomic<int> used = 0;  // ranges that were ever used
struct sigaction previous;
size_t page_size = 4096;

// Only what signal handlers may call: a page of zeros takes the place of the missing one.
bool mend(uintptr_t address) {
  for (int i = 0; i < used.load(std::memory_order_acquire); ++i) {
    Range& range = ranges[static_cast<size_t>(i)];
    if (address < range.begin.load() || address >= range.end.load()) continue;
    void* page = reinterpret_cast<void*>(address / page_size * page_size);
    if (::mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return false;
    range.broken.store(true);
    return true;
  }
  return false;
}

void handle(int number, siginfo_t* info, void* context) {
  if (mend(reinterpret_cast<uintptr_t>(info->si_addr))) return;
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(number, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(number);
  ::sigaction(SIGBUS, &previous, nullptr);  // the faulting read is tried again, and ends the process as it would have
}

void install() {
  page_size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous);
}

std::mutex& table() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

MapGuard::MapGuard(const void* begin, size_t size) {
  static std::once_flag once;
  std::call_once(once, install);
  const std::lock_guard lock(table());
  for (slot_ = 0; slot_ < static_cast<int>(ranges.size()); ++slot_) {
    Range& range = ranges[static_cast<size_t>(slot_)];
    if (range.end.load() != 0) continue;
    range.broken.store(false);
    range.begin.store(reinterpret_cast<uintptr_t>(begin));
    range.end.store(reinterpret_cast<uintptr_t>(begin) + size);
    if (slot_ >= used.load()) used.store(slot_ + 1, std::memory_order_release);
    return;
  }
  slot_ = -1;
}

MapGuard::~MapGuard() {
  if (slot_ < 0) return;
  const std::lock_guard lock(table());
  ranges[static_cast<size_t>(slot_)].end.store(0);
}

bool MapGuard::is_broken() const {
  return slot_ >= 0 && ranges[static_cast<size_t>(slot_)].broken.load(std::memory_order_relaxed);
}

}  // namespace tessera::data::detail
