// parallel_for: runs the jobs of one call, such as one for each local shard, on all cores.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace tessera::detail {

// While it lives, LibTorch's kernels that this thread calls use one thread each, and parallel_for uses the other cores:
// waiting OpenMP threads would spin on the cores of the workers. For work on several local shards. Other threads of the
// program are not affected. Scopes nest.
class ScopedIntraOpThreads {
 public:
  explicit ScopedIntraOpThreads(bool on = true);
  ~ScopedIntraOpThreads();
  ScopedIntraOpThreads(const ScopedIntraOpThreads&) = delete;
  ScopedIntraOpThreads& operator=(const ScopedIntraOpThreads&) = delete;

 private:
  int threads_ = 0, mkl_threads_ = 0;  // the numbers before; 0: nothing was changed
};

// Runs job(0) ... job(n - 1), each once, on this thread and on worker threads, and returns when all are done. Each
// loader thread that is making a batch (background_threads.h) takes the place of one worker.
// The jobs must not depend on each other, so that the results do not depend on the threads. If jobs throw, the
// exception of the lowest job number is rethrown after all jobs have ended. A job has this thread's module path; it
// sets at::AutoGradMode itself.
//
// All jobs run on this thread, in order:
//   - outside of a ScopedIntraOpThreads, and inside another job;
//   - if the program gave it one thread (at::set_num_threads, OMP_NUM_THREADS, TESSERA_CPU_THREADS);
//   - if `nanoseconds`, an estimate of the whole call on one core, is less than another core needs to notice the call;
//   - while another thread of the program uses the workers;
//   - under a mode of LibTorch's dispatcher (inference mode, autocast, an interceptor) or its memory profiler, because
//     these belong to their thread.
void parallel_for(int n, int64_t nanoseconds, c10::function_ref<void(int)> job);

// Returns whether this thread has no mode of the dispatcher and no memory profiler, so that a worker can replace it.
bool is_plain_thread();

// An estimate for parallel_for: calls of LibTorch, and the elements that they read and write, on one core.
constexpr int64_t nanoseconds_of(int64_t calls, int64_t elements) { return 1'500 * calls + elements / 2; }

}  // namespace tessera::detail
