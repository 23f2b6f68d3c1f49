// SavedResults: the results of matrix products and the like in one run, for a second run of the same computation.
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
#include "sharding/base/scoped_value.h"

namespace tessera::detail {

// The first run stores the results of every matrix product, convolution and attention here; the second run, after
// begin_replay(), takes them instead of computing. All other operations run both times. Where the second run calls
// another operation, or of other shapes, than the first, as LibTorch's kernels do that have a gradient, it computes
// everything from there on. A result that was overwritten in the meantime is computed again. During the first run, each
// write to its memory is detected here, also through views; later writes are detected by LibTorch's version counters.
// A first run inside the second run of another stores the results that the other one returns.
class SavedResults : public Interceptor {
 public:
  void begin_replay();
  void call(const c10::FunctionSchema& operation, torch::jit::Stack& stack,
            const std::function<void()>& compute) override;

 private:
  friend class SavingScope;
  using Shapes = std::vector<int64_t>;  // element types, sizes and strides of tensors, one behind the other
  struct Kept {
    std::string operation;
    Shapes shapes;  // of its arguments
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
  Interceptor* outer_ = nullptr;  // that operations went through before
};

// While it lives, this thread's LibTorch operations go through `results`; if that is null, nothing changes.
class SavingScope {
 public:
  explicit SavingScope(SavedResults* results);

 private:
  std::optional<ScopedValue<Interceptor*>> interceptor_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> all_operations_;
};

}  // namespace tessera::detail
