// KeptResults: what the products of one run came to, for a second run of the same computation.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/array/abstract_tensor.h"

namespace tessera::detail {

// In the first run every matrix product, convolution and attention leaves its results here; in the second each takes
// them instead of computing. All other operations run both times. Both runs do the same in the same order: another
// operation in the place of a kept one is an Error (bad_argument). A result that was written over since is computed
// again.
class KeptResults : public Interceptor {
 public:
  void begin_replay();
  void call(std::string_view operation, size_t arguments, size_t results, torch::jit::Stack& stack,
            const std::function<void()>& compute) override;

 private:
  struct Kept {
    std::string operation;
    std::vector<c10::IValue> values;
    std::vector<uint32_t> versions;
  };
  void keep(std::string_view operation, size_t results, const torch::jit::Stack& stack);
  bool take(std::string_view operation, size_t arguments, torch::jit::Stack& stack);

  std::vector<Kept> kept_;
  size_t next_ = 0;
  bool replays_ = false;
};

// While it lives, this thread's operations are shown to `results`; with null nothing changes.
class KeepingScope {
 public:
  explicit KeepingScope(KeptResults* results);
  ~KeepingScope();
  KeepingScope(const KeepingScope&) = delete;
  KeepingScope& operator=(const KeepingScope&) = delete;

 private:
  Interceptor* outer_ = nullptr;
  std::optional<c10::impl::IncludeDispatchKeyGuard> all_operations_;
};

}  // namespace tessera::detail
