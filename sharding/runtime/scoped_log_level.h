// Quiet: LibTorch's warnings held back.
#pragma once

#include <c10/util/Logging.h>

#include <mutex>
#include <utility>

namespace tessera::detail {

// While one lives: LibTorch's client warns on stderr, with a trace of calls, of what it throws as well.
class ScopedLogLevel {
 public:
  ScopedLogLevel() {
    const std::lock_guard lock(mutex());
    if (depth()++ == 0) before() = std::exchange(FLAGS_caffe2_log_level, c10::GLOG_ERROR);
  }
  ~ScopedLogLevel() {
    const std::lock_guard lock(mutex());
    if (--depth() == 0) FLAGS_caffe2_log_level = before();
  }
  ScopedLogLevel(const ScopedLogLevel&) = delete;

 private:
  static std::mutex& mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
  }
  static int& depth() {
    static int depth = 0;
    return depth;
  }
  static int& before() {
    static int before = 0;
    return before;
  }
};

}  // namespace tessera::detail
