// Tensors without data: what one device of an abstract mesh would hold, and what LibTorch makes of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "sharding/placement/dtype.h"

namespace tessera::detail {

struct Type;

// A tensor of LibTorch's meta device: sizes, strides and a number of bytes. Operations on it give such tensors again,
// gradients included, with the shapes and temporaries of the CPU's kernels; those for which LibTorch has no form
// without data get one in shape_functions.cpp. Tensors with data that meet one are taken for their shape. Reading a
// value from one is an Error (bad_argument).
at::Tensor abstract_tensor(at::IntArrayRef sizes, DType dtype);
// One block of this type.
at::Tensor abstract_block(const Type* type);

// Is shown every operation of LibTorch's on this thread while one is in place.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // One call of an operation whose results will be the last `results` values of the stack, and whose arguments are the
  // last `arguments` of it now. `compute` does it.
  virtual void call(std::string_view operation, size_t arguments, size_t results, std::vector<c10::IValue>& stack,
                    const std::function<void()>& compute) = 0;
};

// Puts it in the place of this thread's, and returns that one; with null nothing is shown.
Interceptor* set_interceptor(Interceptor* interceptor);

// What abstract tensors take and cost from when the meter is opened: bytes of the tensors made since then, and the
// floating point operations of matrix products, convolutions and attention (a multiplication and an addition are two).
struct Meter {
  int64_t live = 0, peak = 0;
  double flops = 0;
  // The most that one forward pass of value_and_grad had beside what lived when it began.
  int64_t activations = 0;
  int64_t forward_start = 0, forward_peak = 0;
  std::shared_ptr<Meter> outer;

  void add(int64_t bytes);
  void add_flops(double n);
  void begin_forward();
  void end_forward();
};

// The innermost open meter of this thread; null if there is none.
const std::shared_ptr<Meter>& current_meter();
// Makes this the innermost meter and returns the one before.
std::shared_ptr<Meter> set_meter(std::shared_ptr<Meter> meter);

}  // namespace tessera::detail
