// SavedResults: keeps the results of matrix products and similar operations of one run, for a second run.
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
#include "sharding/base/thread_state.h"

namespace tessera::detail {

// Stores the results of every matrix product, convolution and attention of the first run. After begin_replay(), the
// second run takes them instead of computing them. All other operations run both times.
//
// The runs may diverge: LibTorch's kernels may call other operations, or use other shapes, if they have a gradient.
// From that point on the second run computes everything. A result that was overwritten in the meantime is also computed
// again. Writes to its memory are detected here during the first run, also through views, and by LibTorch's version
// counters later. If SavedResults are nested, a first run inside an outer second run stores the results that the outer
// object returns.
class SavedResults : public Interceptor {
 public:
  void begin_replay();
  void call(const c10::FunctionSchema& operation, torch::jit::Stack& stack,
            const std::function<void()>& compute) override;

 private:
  friend class SavingScope;
  using Shapes = std::vector<int64_t>;  // element types, sizes and strides of all tensors, concatenated
  struct Kept {
    std::string operation;
    Shapes shapes;  // shapes of its arguments
    std::vector<c10::IValue> values;
    std::vector<uint32_t> versions;
    bool overwritten = false;
  };
  static Shapes shapes_of(const torch::jit::Stack& stack, size_t arguments);
  void note_writes(const c10::FunctionSchema& operation, const torch::jit::Stack& stack);
  void note_write(const at::Tensor& written);
  void keep(std::string_view operation, Shapes shapes, size_t results, const torch::jit::Stack& stack);
  bool take(std::string_view operation, size_t arguments, torch::jit::Stack& stack);

  std::vector<Kept> kept_;
  size_t next_ = 0;
  bool replays_ = false;
  Interceptor* outer_ = nullptr;  // the interceptor that was active before
};

// Passes this thread's LibTorch operations through `results` during its lifetime; does nothing if that is null.
class SavingScope {
 public:
  explicit SavingScope(SavedResults* results);

 private:
  std::optional<ScopedValue<Interceptor*>> interceptor_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> all_operations_;
};

}  // namespace tessera::detail
