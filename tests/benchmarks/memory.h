// The memory that some work takes, in a process of its own.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace tessera::benchmarks {

// The most memory of a new process that does this, in MiB. Call it before this process has threads.
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
