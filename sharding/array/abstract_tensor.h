// Abstract tensors: tensors without data that stand for those of an abstract mesh, and meters of what they would cost.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "sharding/placement/dtype.h"

namespace tessera::detail {

struct Type;

// A tensor of LibTorch's meta device: sizes, strides and a number of bytes. Operations on abstract tensors, gradients
// included, give abstract tensors, with the shapes and temporaries of the CPU's kernels; shape_functions.cpp has the
// operations that LibTorch cannot do without data. An operand with data counts by its shape alone. Reading a value is
// an Error (bad_argument).
at::Tensor abstract_tensor(at::IntArrayRef sizes, DType dtype);
// An abstract tensor of the shape of one block of this type.
at::Tensor abstract_block(const Type* type);

// Called, while installed, for this thread's operations on abstract tensors (under DispatchKey::Fake, on all tensors).
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // One call of an operation: its arguments are the last `arguments` values of the stack. compute() carries it out and
  // leaves its `results` results as the last values of the stack.
  virtual void call(std::string_view operation, size_t arguments, size_t results, std::vector<c10::IValue>& stack,
                    const std::function<void()>& compute) = 0;
};

// This thread's; null: none. A ScopedValue installs one.
Interceptor*& current_interceptor();

// The bytes of the abstract tensors made since the meter was opened (now, and at most), and the floating point
// operations of matrix products, convolutions and attention (a multiplication and an addition are two).
struct Meter {
  int64_t live = 0, peak = 0, allocated = 0;
  double flops = 0;
  // The most bytes that one forward pass of value_and_grad had beyond those that were live when it began.
  int64_t activations = 0;
  int64_t forward_start = 0, forward_peak = 0;
  std::shared_ptr<Meter> outer;

  virtual ~Meter() = default;
  // The meter inside this one that counts what is allocated now; null: this one.
  virtual std::shared_ptr<Meter> part() { return nullptr; }
  void add(int64_t bytes);
  void add_flops(double n);
  void begin_forward();
  virtual void end_forward();
};

// The innermost open meter of this thread; null if there is none. A ScopedValue opens one.
std::shared_ptr<Meter>& current_meter();

}  // namespace tessera::detail
