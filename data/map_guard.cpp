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

// A signal handler has no arguments of its own, so the table is one for the process.
struct Table {
  std::array<Range, 1 << 16> ranges;
  std::atomic<int> used = 0;  // ranges that were ever used
  std::mutex mutex;           // of what follows, and of writing the ranges
  int guards = 0;
  bool installed = false;
  struct sigaction previous = {};
  size_t page_size = 4096;
};
Table table;

// Only what signal handlers may call: a page of zeros takes the place of the missing one. The range is marked first, so
// that no thread reads the zeros and finds it whole.
bool mend(uintptr_t address) {
  for (int i = 0; i < table.used.load(std::memory_order_acquire); ++i) {
    Range& range = table.ranges[static_cast<size_t>(i)];
    if (address < range.begin.load() || address >= range.end.load()) continue;
    range.broken.store(true);
    void* page = reinterpret_cast<void*>(address / table.page_size * table.page_size);
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    return ::mmap(page, table.page_size, PROT_READ, flags, -1, 0) != MAP_FAILED;
  }
  return false;
}

void handle(int number, siginfo_t* info, void* context) {
  const bool is_fault = info->si_code > 0;
  if (is_fault && mend(reinterpret_cast<uintptr_t>(info->si_addr))) return;
  const struct sigaction& previous = table.previous;
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(number, info, context);
  if (previous.sa_handler == SIG_IGN && !is_fault) return;
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(number);
  ::sigaction(SIGBUS, &previous, nullptr);  // the faulting read is tried again, and ends the process as it would have
  if (!is_fault) ::raise(number);
}

void install() {
  table.page_size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, nullptr, &table.previous);  // known before the handler may ask for it
  table.installed = ::sigaction(SIGBUS, &action, nullptr) == 0;
}

// Where another handler came later this one stays, since that one may call it.
void uninstall() {
  struct sigaction now = {};
  ::sigaction(SIGBUS, nullptr, &now);
  if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != handle) return;
  ::sigaction(SIGBUS, &table.previous, nullptr);
  table.installed = false;
}

}  // namespace

MapGuard::MapGuard(const void* begin, size_t size) {
  const std::lock_guard lock(table.mutex);
  if (!table.installed) install();
  ++table.guards;
  for (size_t i = 0; i < table.ranges.size(); ++i) {
    Range& range = table.ranges[i];
    if (range.end.load() != 0) continue;
    range.broken.store(false);
    range.begin.store(reinterpret_cast<uintptr_t>(begin));
    range.end.store(reinterpret_cast<uintptr_t>(begin) + size);
    slot_ = static_cast<int>(i);
    if (slot_ >= table.used.load()) table.used.store(slot_ + 1, std::memory_order_release);
    return;
  }
}

MapGuard::~MapGuard() {
  const std::lock_guard lock(table.mutex);
  if (slot_ >= 0) table.ranges[static_cast<size_t>(slot_)].end.store(0);
  if (--table.guards == 0 && table.installed) uninstall();
}

bool MapGuard::is_broken() const {
  std::atomic_thread_fence(std::memory_order_acquire);  // the bytes were read before
  return slot_ >= 0 && table.ranges[static_cast<size_t>(slot_)].broken.load(std::memory_order_relaxed);
}

}  // namespace tessera::data::detail
