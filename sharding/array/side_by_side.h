// side_by_side: what a call does for each of its slots, on all cores.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace tessera::detail {

// Runs job(0) ... job(n - 1), each once, on this thread and on workers of the library, and returns when all are done.
// The jobs must not depend on each other: whichever thread takes them, and however many there are, the results are the
// same. An exception is thrown on when all jobs have ended, of several that of the lowest number. A job has this thread's
// module path and one thread of LibTorch's, and records gradients if it says so itself (at::AutoGradMode).
//
// All jobs run on this thread, in order, if the call as a whole costs less than waking a worker (`nanoseconds`, an
// estimate), if this thread may use one thread (at::set_num_threads, OMP_NUM_THREADS, TESSERA_CPU_THREADS), inside
// another job, while another thread of the program has the workers, and under a mode of LibTorch's dispatcher
// (inference mode, autocast, an interceptor), which belongs to its thread.
void side_by_side(int n, int64_t nanoseconds, c10::function_ref<void(int)> job);

// While it lives, what this thread computes uses no team of OpenMP threads: those that wait would spin in the workers'
// way. Nothing changes for other threads of the program.
class WithoutTeams {
 public:
  WithoutTeams();
  ~WithoutTeams();
  WithoutTeams(const WithoutTeams&) = delete;
  WithoutTeams& operator=(const WithoutTeams&) = delete;

 private:
  int threads_, mkl_threads_ = 0;
};

}  // namespace tessera::detail
