// Waits: the waits of the host for an accelerator.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>

#include "sharding/array/host_sync.h"

namespace tessera::testing {

// Collects every wait of the host, by kernel and operation.
class Waits : public detail::HostSyncObserver {
 public:
  void waited(detail::HostSync sync, const std::string& kernel) override {
    ++count_[fmt::format("{} {} after {} at {}", sync == detail::HostSync::read ? "reads" : "hands over", kernel,
                         detail::latest_operation().name, detail::latest_line())];
  }
  int64_t reads() const { return of("reads"); }
  int64_t all() const { return of(""); }
  std::string text() const {
    std::string text;
    for (const auto& [what, n] : count_) text += fmt::format("  {} x {}\n", n, what);
    return text;
  }

 private:
  int64_t of(const std::string& kind) const {
    int64_t sum = 0;
    for (const auto& [what, n] : count_) sum += what.starts_with(kind) ? n : 0;
    return sum;
  }
  std::map<std::string, int64_t> count_;
};

}  // namespace tessera::testing
