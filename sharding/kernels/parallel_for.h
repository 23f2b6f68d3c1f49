// parallel_for: what a call does for each of its slots, on all cores.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace tessera::detail {

// While it lives, LibTorch's kernels use one thread each where this thread calls them, and parallel_for uses the others
// instead: OpenMP threads that wait would spin in the workers' way. For what is computed in several slots; nothing
// changes for other threads of the program. Scopes nest.
class ScopedIntraOpThreads {
 public:
  explicit ScopedIntraOpThreads(bool on = true);
  ~ScopedIntraOpThreads();
  ScopedIntraOpThreads(const ScopedIntraOpThreads&) = delete;
  ScopedIntraOpThreads& operator=(const ScopedIntraOpThreads&) = delete;

 private:
  int threads_ = 0, mkl_threads_ = 0;  // of before; 0: nothing was changed
};

// Runs job(0) ... job(n - 1), each once, on this thread and on workers of the library, and returns when all are done. A
// loader's threads that are making batches (busy_core.h) have their cores: so many workers less take part.
// The jobs must not depend on each other: whichever thread takes them, and however many there are, the results are the
// same. An exception is thrown on when all jobs have ended, of several that of the lowest number. A job has this
// thread's module path; whether it records gradients it says itself (at::AutoGradMode).
//
// All jobs run on this thread, in order, outside of a ScopedIntraOpThreads, if the program gave it one thread
// (at::set_num_threads, OMP_NUM_THREADS, TESSERA_CPU_THREADS), if the call as a whole costs less than to look at it
// from another core (`nanoseconds`, an estimate), inside another job, while another thread of the program has the
// workers, and under a mode of LibTorch's dispatcher (inference mode, autocast, an interceptor) or its memory profiler,
// which belong to their thread.
void parallel_for(int n, int64_t nanoseconds, c10::function_ref<void(int)> job);

// Whether this thread is as LibTorch starts one, and nobody watches it: no mode of the dispatcher, no memory profiler.
// A worker is then like it.
bool is_plain_thread();

// An estimate for parallel_for: calls of LibTorch, and the elements that they read and write, on one core.
constexpr int64_t nanoseconds_of(int64_t calls, int64_t elements) { return 1'500 * calls + elements / 2; }

}  // namespace tessera::detail
