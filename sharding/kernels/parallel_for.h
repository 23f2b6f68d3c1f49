// parallel_for: runs the jobs of one call, for example one per local shard, on all cores.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace tessera::detail {

// In this scope, LibTorch's kernels that this thread calls use one thread each, and parallel_for uses the other cores.
// Without it, waiting OpenMP threads would busy-wait on the workers' cores. Open it for work on several local shards.
// Other threads of the program are not affected. Scopes nest.
class ScopedIntraOpThreads {
 public:
  explicit ScopedIntraOpThreads(bool on = true);
  ~ScopedIntraOpThreads();
  ScopedIntraOpThreads(const ScopedIntraOpThreads&) = delete;
  ScopedIntraOpThreads& operator=(const ScopedIntraOpThreads&) = delete;

 private:
  int threads_ = 0, mkl_threads_ = 0;  // the previous numbers; 0: unchanged
};

// Runs job(0) ... job(n - 1), each once, on this thread and on worker threads, and returns when all are done. Each
// loader thread that is making a batch (BackgroundThreadCount) replaces one worker.
// The jobs must be independent, so that results do not depend on the threads. If jobs throw, the exception of the
// lowest job number is rethrown after all jobs have ended. A job has this thread's module path; it must set
// at::AutoGradMode itself.
//
// All jobs run on this thread, in order:
//   - outside a ScopedIntraOpThreads, and inside another job;
//   - if the program has one thread (at::set_num_threads, OMP_NUM_THREADS, TESSERA_CPU_THREADS);
//   - if `nanoseconds`, an estimate of the whole call on one core, is too short for another core to join;
//   - while another thread of the program uses the workers;
//   - under a dispatcher mode of LibTorch (inference mode, autocast, an interceptor) or its memory profiler, which are
//     per thread.
void parallel_for(int n, int64_t nanoseconds, c10::function_ref<void(int)> job);

// Returns whether this thread has no dispatcher mode and no memory profiler, so that workers can share its jobs.
bool is_plain_thread();

// Returns an estimate for parallel_for: the time of calls of LibTorch, and of the elements that they read and write, on
// one core.
constexpr int64_t nanoseconds_of(int64_t calls, int64_t elements) { return 1'500 * calls + elements / 2; }

}  // namespace tessera::detail
