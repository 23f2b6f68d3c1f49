// Measures the memory of a function in a separate process.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace tessera::benchmarks {

// Returns the peak memory of a new process that runs `work`, in MiB. Call it before this process has threads.
inline double peak_of(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  rusage used{};
  wait4(child, nullptr, 0, &used);
  return static_cast<double>(used.ru_maxrss) / 1024;
}

}  // namespace tessera::benchmarks
