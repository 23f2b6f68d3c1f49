// Abstract tensors: tensors without data that stand for those of an abstract mesh, and meters of what they would cost.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "sharding/placement/dtype.h"
#include "sharding/placement/mesh_impl.h"

namespace c10 {
struct FunctionSchema;
}

namespace tessera::detail {

struct Type;

// A tensor of LibTorch's meta device: sizes, strides and a number of bytes. Operations on abstract tensors, gradients
// included, give abstract tensors, with the shapes and temporaries of the CPU's kernels; shape_functions.cpp has the
// operations that LibTorch cannot do without data. An operand with data counts by its shape alone. Reading a value is
// an Error (invalid_argument).
// The first call registers kernels with LibTorch's dispatcher and an allocator of meta tensors, which remain. Error
// (other): another library has registered a fallback for DispatchKey::Fake.
at::Tensor abstract_tensor(at::IntArrayRef sizes, DType dtype);
// An abstract tensor of the shape of one block of this type.
at::Tensor abstract_block(const Type* type);

// Called, while installed, for this thread's operations on abstract tensors (under DispatchKey::Fake, on all tensors).
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // One call of an operation: its arguments are the last values of the stack. compute() carries it out and leaves its
  // results as the last values of the stack.
  virtual void call(const c10::FunctionSchema& operation, std::vector<c10::IValue>& stack,
                    const std::function<void()>& compute) = 0;
};

// This thread's; null: none. A ScopedValue installs one.
Interceptor*& current_interceptor();
// Registers the kernel of all operations under DispatchKey::Fake at its first call; errors as of abstract_tensor.
void register_call_kernel_once(const char* feature);

// An amount on the devices of a pipeline: what those of all stages have, and those of each stage beside that.
template <class Number>
struct OnStages {
  Number everywhere = 0;
  std::vector<Number> own = {};

  void add(Number n, int stage) {
    if (n == 0) return;
    if (stage >= static_cast<int>(own.size())) own.resize(stage + 1);
    (stage < 0 ? everywhere : own[stage]) += n;
  }
  Number most() const { return everywhere + (own.empty() ? 0 : *std::max_element(own.begin(), own.end())); }
};

// The stage on which this thread computes and makes abstract tensors: the coordinate of a sub-mesh; -1: the whole mesh.
inline int& metered_stage() {
  thread_local int stage = -1;
  return stage;
}
inline int stage_number(const MeshImpl* mesh) { return mesh && mesh->parent ? mesh->cut_at : -1; }

// The bytes of the abstract tensors made since the meter was opened, and the floating point operations of matrix
// products, convolutions and attention (a multiplication and an addition are two). All are those of one device; of a
// pipeline's, where there are most.
struct Meter {
  OnStages<int64_t> live, allocated;
  OnStages<double> flops;
  OnStages<int64_t> calls;  // of operations that make or write memory
  int64_t peak = 0;         // the most bytes that were live
  // The most bytes that one forward pass of value_and_grad had beyond those that were live when it began.
  int64_t activations = 0;
  int64_t forward_start = 0, forward_peak = 0;
  int64_t num_micro_batches = 1;  // of a pipeline
  std::shared_ptr<Meter> outer;

  virtual ~Meter() = default;
  // The meter inside this one that counts what is allocated now; null: this one.
  virtual std::shared_ptr<Meter> part() { return nullptr; }
  void add(int64_t bytes, int stage = -1);
  void add_flops(double n, int stage = -1);
  void add_call(int stage = -1);
  void begin_forward();
  virtual void end_forward();
};

// The innermost open meter of this thread; null if there is none. A ScopedValue opens one.
std::shared_ptr<Meter>& current_meter();

}  // namespace tessera::detail
