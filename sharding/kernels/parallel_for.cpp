// The thread pool of parallel_for: idle workers take the next job of the call in progress.
#include "sharding/kernels/parallel_for.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "sharding/base/caller.h"
#include "sharding/base/threads.h"
#include "sharding/kernels/plain.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

// ---- threads of LibTorch's kernels

// Both set the number of threads for the calling thread only; at::set_num_threads sets it for the program. Null if
// LibTorch uses another library.
const auto omp_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
const auto mkl_threads = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local"));

int set_mkl_threads(int n) { return mkl_threads ? mkl_threads(n) : 0; }
void set_omp_threads(int n) {
  if (omp_threads) omp_threads(n);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Busy-waits until `is_done`, at most this long.
template <class IsDone>
bool spin(nanoseconds longest, IsDone is_done) {
  const auto begin = Clock::now();
  for (int i = 1;; ++i) {
    if (is_done()) return true;
    pause();
    if (i % 64 == 0 && Clock::now() - begin > longest) return false;
  }
}

// ---- the pool

constexpr microseconds awake_between_calls{200}, awake_for_others{20};
// The shortest calls, in nanoseconds, that workers share: with awake workers (least_shared), and with workers that must
// be woken (least_woken_for). A woken worker starts 20,000 ns later (AMD EPYC, 2 cores), but is then awake for
// subsequent calls.
constexpr int max_jobs = 1 << 15;
constexpr int64_t least_shared = 5'000, least_woken_for = 10'000;

thread_local bool in_a_job = false;
// Inside a ScopedIntraOpThreads: the calling thread's previous number of threads. Otherwise 0.
thread_local int program_threads = 0;

class Pool {
 public:
  // Returns the pool. It is never destroyed: a worker may read it during exit.
  static Pool& instance() {
    static Pool& pool = *new Pool;
    return pool;
  }

  bool try_run(int n, int threads, int64_t cost, c10::function_ref<void(int)> job) {
    std::unique_lock mine(caller_, std::try_to_lock);
    if (!mine) return false;
    while (std::ssize(workers_) < threads - 1 && start_worker()) {
    }
    job_ = job;
    path_ = current_module_path();
    errors_.assign(static_cast<size_t>(n), nullptr);
    left_.store(n, std::memory_order_relaxed);
    helpers_.store(threads - 1, std::memory_order_relaxed);
    const uint32_t before = call_.load(std::memory_order_relaxed).number;
    call_.store({.number = before + 1, .next = 0, .jobs = static_cast<uint16_t>(n)}, std::memory_order_seq_cst);
    if (cost >= least_woken_for && asleep_.load(std::memory_order_seq_cst) > 0) wake();
    take_jobs();
    await_others();
    path_ = nullptr;
    for (const std::exception_ptr& error : errors_)
      if (error) std::rethrow_exception(error);
    return true;
  }

  // Stops the workers. The next call starts new ones.
  void stop() {
    const std::lock_guard mine(caller_);
    if (pid_ != ::getpid()) return;  // a child of fork() has no workers
    stops_ = true;
    wake();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stops_ = false;
  }

 private:
  struct Call {
    uint32_t number;
    uint16_t next, jobs;
    bool has_jobs() const { return next < jobs; }
  };

  // Takes the next job of the call. A thread that increments `next` has taken that job. The call lasts until the job is
  // done, so the thread may read the fields of the call.
  int take() {
    for (Call now = call_.load(std::memory_order_acquire); now.has_jobs();) {
      Call taken = now;
      ++taken.next;
      if (call_.compare_exchange_weak(now, taken, std::memory_order_acq_rel)) return now.next;
    }
    return -1;
  }
  bool has_jobs() const { return call_.load(std::memory_order_seq_cst).has_jobs(); }

  void take_jobs() {
    in_a_job = true;
    for (int i; (i = take()) >= 0;) {
      try {
        const ScopedValue path(current_module_path(), path_);
        job_(i);
      } catch (...) {
        errors_[static_cast<size_t>(i)] = std::current_exception();
      }
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
    in_a_job = false;
  }

  void await_others() {
    spin(awake_for_others, [this] { return left_.load(std::memory_order_acquire) == 0; });
    for (int left; (left = left_.load(std::memory_order_acquire)) > 0;) left_.wait(left, std::memory_order_acquire);
  }

  void wake() {
    calls_for_help_.fetch_add(1, std::memory_order_seq_cst);
    calls_for_help_.notify_all();
  }

  // Starts a worker with the program's signals blocked. Returns false if the system cannot start a thread: then fewer
  // workers share the jobs.
  bool start_worker() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
      workers_.emplace_back([this, number = static_cast<int>(workers_.size())] { work(number); });
      if (workers_.size() == 1) stop_workers = [] { Pool::instance().stop(); };
    } catch (const std::exception&) {  // no thread or memory available
      started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void work(int number) {
    at::get_num_threads();  // LibTorch's first call in a thread sets the program's number
    set_omp_threads(1);
    set_mkl_threads(1);
    at::AutoGradMode off(false);
    while (!stops_.load(std::memory_order_seq_cst)) {
      if (number < helpers_.load(std::memory_order_relaxed)) {
        take_jobs();
        if (spin(awake_between_calls, [this] { return has_jobs(); })) continue;
      }
      const uint32_t heard = calls_for_help_.load(std::memory_order_seq_cst);
      asleep_.fetch_add(1, std::memory_order_seq_cst);
      if (!stops_.load(std::memory_order_seq_cst) &&
          (number >= helpers_.load(std::memory_order_relaxed) || !has_jobs()))
        calls_for_help_.wait(heard, std::memory_order_seq_cst);
      asleep_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  std::mutex caller_;  // held by the caller in progress
  c10::function_ref<void(int)> job_;
  std::shared_ptr<const std::string> path_;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> workers_;
  std::atomic<bool> stops_ = false;
  const pid_t pid_ = ::getpid();
  alignas(64) std::atomic<Call> call_ = Call{};  // the current or last call
  static_assert(std::atomic<Call>::is_always_lock_free);
  alignas(64) std::atomic<int> left_ = 0;
  std::atomic<int> helpers_ = 0;  // workers that may take jobs
  alignas(64) std::atomic<uint32_t> calls_for_help_ = 0;
  std::atomic<int> asleep_ = 0;
};

// The dispatch key of named tensors, which the backward pass excludes (at::NoNamesGuard). Empty in LibTorch 2.15, which
// lacks the key.
template <class Key>
constexpr c10::DispatchKeySet names() {
  if constexpr (requires { Key::Named; })
    return c10::DispatchKeySet(Key::Named);
  else
    return {};
}

}  // namespace

bool is_plain_thread() {
  if (c10::memoryProfilingEnabled()) return false;
  const c10::impl::LocalDispatchKeySet mine = c10::impl::tls_local_dispatch_key_set();
  return mine.included_ == c10::default_included_set &&
         mine.excluded_ - names<c10::DispatchKey>() == c10::default_excluded_set;
}

ScopedIntraOpThreads::ScopedIntraOpThreads(bool on) {
  if (!on || program_threads > 0 || uses_plain(Kernel::thread_pool)) return;
  program_threads = threads_ = at::get_num_threads();
  if (threads_ == 1) return;
  set_omp_threads(1);
  mkl_threads_ = set_mkl_threads(1);
}

ScopedIntraOpThreads::~ScopedIntraOpThreads() {
  if (threads_ == 0) return;
  program_threads = 0;
  if (threads_ == 1) return;
  set_omp_threads(threads_);
  set_mkl_threads(mkl_threads_);
}

void parallel_for(int n, int64_t cost, c10::function_ref<void(int)> job) {
  if (n > max_jobs) {
    const int64_t each = (int64_t{n} + max_jobs - 1) / max_jobs;
    return parallel_for(static_cast<int>((n + each - 1) / each), cost, [&](int i) {
      for (int64_t part = i * each; part < std::min<int64_t>(n, (i + 1) * each); ++part) job(static_cast<int>(part));
    });
  }
  const int threads = std::min(n, program_threads - BackgroundThreadCount::count());
  if (threads > 1 && cost >= least_shared && !in_a_job && is_plain_thread() &&
      Pool::instance().try_run(n, threads, cost, job))
    return;
  for (int i = 0; i < n; ++i) job(i);
}

}  // namespace tessera::detail
