// Abstract tensors: tensors without data for abstract meshes, and meters of the memory and FLOPs that they would take.
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

// Returns a tensor of LibTorch's meta device: sizes, strides and a number of bytes. Operations on abstract tensors,
// gradients included, return abstract tensors, with the shapes and temporaries of the CPU's kernels.
// shape_functions.cpp handles the operations that LibTorch cannot run without data. For an operand with data, only the
// shape counts. Reading a value throws invalid_argument.
// The first call registers kernels with LibTorch's dispatcher and an allocator of meta tensors, permanently. Throws an
// Error (other) if another library has registered a fallback for DispatchKey::Fake.
at::Tensor abstract_tensor(at::IntArrayRef sizes, DType dtype);
// Returns an abstract tensor with the shape of one block of this type.
at::Tensor abstract_block(const Type* type);

// While installed, receives this thread's operations on abstract tensors (under DispatchKey::Fake, on all tensors).
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // Handles one call of an operation. Its arguments are the last values of the stack. compute() runs it and leaves its
  // results as the last values of the stack.
  virtual void call(const c10::FunctionSchema& operation, std::vector<c10::IValue>& stack,
                    const std::function<void()>& compute) = 0;
};

// Returns this thread's interceptor; null if there is none. Install one with a ScopedValue.
Interceptor*& current_interceptor();
// Registers the kernel of all operations under DispatchKey::Fake, at the first call. Errors: as abstract_tensor.
void register_call_kernel_once(const char* feature);

// An amount on the devices of a pipeline: the amount that all stages have, plus each stage's own.
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

// The stage on which this thread computes and makes abstract tensors: the coordinate of a sub-mesh, or -1 for the whole
// mesh.
inline int& metered_stage() {
  thread_local int stage = -1;
  return stage;
}
inline int stage_number(const MeshImpl* mesh) { return mesh && mesh->parent ? mesh->cut_at : -1; }

// Counts the bytes of abstract tensors made since the meter was opened. Also counts the floating-point operations of
// matrix products, convolutions and attention (a multiply-add counts as two). All numbers are per device; for a
// pipeline, of the device with the most.
struct Meter {
  OnStages<int64_t> live, allocated;
  OnStages<double> flops;
  OnStages<int64_t> calls;  // operations that allocate or write memory
  int64_t peak = 0;         // the maximum of live bytes
  // The most bytes that one forward pass of value_and_grad added to those that were live when it began.
  int64_t activations = 0;
  int64_t forward_start = 0, forward_peak = 0;
  int64_t forward_passes = 1;  // of a pipeline's stage: one per micro-batch and virtual stage
  std::shared_ptr<Meter> outer;

  virtual ~Meter() = default;
  // Returns the meter inside this one that counts new allocations; null if this one does.
  virtual std::shared_ptr<Meter> part() { return nullptr; }
  virtual void add(int64_t bytes, int stage = -1);
  void add_flops(double n, int stage = -1);
  void add_call(int stage = -1);
  void begin_forward();
  virtual void end_forward();
};

// Returns the innermost open meter of this thread; null if there is none. Open one with a ScopedValue.
std::shared_ptr<Meter>& current_meter();

}  // namespace tessera::detail
