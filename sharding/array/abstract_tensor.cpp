// A fallback kernel for all operations on abstract tensors, below LibTorch's autograd, and a count of their memory.
#include "sharding/array/abstract_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "sharding/array/dispatcher.h"
#include "sharding/array/shape_functions.h"
#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"
#include "sharding/placement/type.h"

namespace tessera::detail {

// ---- memory

void Meter::add(int64_t bytes, int stage) {
  live.add(bytes, stage);
  allocated.add(std::max<int64_t>(bytes, 0), stage);
  peak = std::max(peak, live.most());
  forward_peak = std::max(forward_peak, live.most());
  if (outer) outer->add(bytes, stage);
}

void Meter::add_flops(double n, int stage) {
  flops.add(n, stage);
  if (outer) outer->add_flops(n, stage);
}

void Meter::add_call(int stage) {
  calls.add(1, stage);
  if (outer) outer->add_call(stage);
}

void Meter::begin_forward() {
  forward_start = forward_peak = live.most();
  if (outer) outer->begin_forward();
}

void Meter::end_forward() {
  activations = std::max(activations, forward_peak - forward_start);
  if (outer) outer->end_forward();
}

namespace {

thread_local std::shared_ptr<Meter> innermost;
thread_local Interceptor* interceptor = nullptr;

// The bytes that an abstract storage represents, and the meter that counts them.
struct CountedBytes {
  std::shared_ptr<Meter> meter;
  int64_t bytes;
  int stage;
};

void uncount(void* bytes) {
  const std::unique_ptr<CountedBytes> counted(static_cast<CountedBytes*>(bytes));
  counted->meter->add(-counted->bytes, counted->stage);
}

void keep(void*) {}

// Replaces LibTorch's allocator of meta tensors, whose storages are indistinguishable and uncounted. From the first
// abstract tensor on, all meta tensors of the process use it. The pointers are never dereferenced.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() { c10::SetAllocator(c10::DeviceType::Meta, this, /*priority=*/1); }
  c10::DataPtr allocate(size_t n) override {
    static char nowhere;
    if (!innermost) return {&nowhere, &nowhere, &keep, c10::Device(c10::DeviceType::Meta)};
    const std::shared_ptr<Meter> part = innermost->part();
    auto* counted = new CountedBytes{part ? part : innermost, static_cast<int64_t>(n), metered_stage()};
    counted->meter->add(counted->bytes, counted->stage);
    return {counted, counted, &uncount, c10::Device(c10::DeviceType::Meta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}
};

// ---- operations

// Programs may register kernels for all operations under this key. It is between autograd and the backends.
constexpr auto key = c10::DispatchKey::Fake;

at::Tensor with_key(const at::Tensor& t) {
  auto marked = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(t.storage()),
                                                         t.key_set() | c10::DispatchKeySet(key), t.dtype());
  marked.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return marked;
}

// Calls f with each tensor in a value. If f returns true, its change of the tensor is stored.
template <class F>
void for_each_tensor(c10::IValue& value, F f) {
  if (value.isTensor()) {
    if (at::Tensor t = value.toTensor(); t.defined() && f(t)) value = t;
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list = value.toTensorList().copy();
    bool changed = false;
    for (size_t i = 0; i < list.size(); ++i)
      if (at::Tensor t = list.get(i); t.defined() && f(t)) list.set(i, t), changed = true;
    if (changed) value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list = value.toOptionalTensorList().copy();
    bool changed = false;
    for (size_t i = 0; i < list.size(); ++i)
      if (std::optional<at::Tensor> t = list.get(i); t && t->defined() && f(*t)) list.set(i, t), changed = true;
    if (changed) value = std::move(list);
  }
}

bool mark(at::Tensor& t) {
  if (!t.is_meta() || t.key_set().has(key)) return false;
  t = with_key(t);
  return true;
}

// One call of an operation. Its arguments are the last values of the stack.
class Call {
 public:
  Call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack)
      : op_(op), keys_(keys), stack_(stack), first_(stack.size() - op.schema().arguments().size()) {}

  void run() {
    if (!is_abstract()) return redispatch();
    const std::string name = c10::toString(op_.operator_name());
    bring_over();
    if (innermost) innermost->add_flops(flops_of(name, arguments()), metered_stage());
    if (innermost && !is_view()) innermost->add_call(metered_stage());
    if (const ShapeFunction shapes = shape_function(name)) return finish(shapes(arguments()));
    if (op_.hasTag(at::Tag::data_dependent_output)) refuse("a value cannot be read where there is no data");
    if (has_kernel()) return redispatch();
    if (!writes_all_results()) emulate();
  }

 private:
  c10::ArrayRef<c10::IValue> arguments() const {
    return c10::ArrayRef<c10::IValue>(stack_.data() + first_, op_.schema().arguments().size());
  }

  [[noreturn]] void refuse(const char* why) const {
    fail(ErrorKind::invalid_argument, "abstract mesh", "{}: {}. Do it on a mesh of devices.",
         c10::toString(op_.operator_name()), why);
  }

  bool is_abstract() {
    bool found = false;
    for (size_t i = first_; i < stack_.size(); ++i) {
      found |= stack_[i].isDevice() && stack_[i].toDevice().is_meta();
      for_each_tensor(stack_[i], [&](at::Tensor& t) {
        found |= t.is_meta();
        return false;
      });
    }
    return found;
  }

  // Returns true if the results are views of the operands.
  bool is_view() const {
    const auto& results = op_.schema().returns();
    return std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
      return result.alias_info() && !result.alias_info()->isWrite();
    });
  }

  // Replaces tensors with data by abstract ones of the same shape. Single numbers remain: LibTorch accepts them.
  void bring_over() {
    for (size_t i = first_; i < stack_.size(); ++i)
      for_each_tensor(stack_[i], [](at::Tensor& t) {
        if (t.is_meta() || t.dim() == 0) return false;
        t = with_key(at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type()));
        return true;
      });
  }

  bool has_kernel() const {
    for (const auto k :
         {c10::DispatchKey::Meta, c10::DispatchKey::CompositeExplicitAutograd,
          c10::DispatchKey::CompositeExplicitAutogradNonFunctional, c10::DispatchKey::CompositeImplicitAutograd})
      if (op_.hasKernelForDispatchKey(k)) return true;
    return false;
  }

  void redispatch() {
    {
      const c10::impl::IncludeDispatchKeyGuard inner_calls(key);
      op_.redispatchBoxed(keys_ & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key), &stack_);
    }
    for (size_t i = stack_.size() - op_.schema().returns().size(); i < stack_.size(); ++i)
      for_each_tensor(stack_[i], mark);
  }

  void finish(Values results) {
    stack_.resize(first_);
    for (c10::IValue& value : results) {
      for_each_tensor(value, mark);
      stack_.push_back(std::move(value));
    }
  }

  // Ends the call and returns true if all results are written in place: such results already have their shape. An `out`
  // argument may lack it.
  bool writes_all_results() {
    Values results;
    for (const c10::Argument& result : op_.schema().returns()) {
      const auto* written = result.alias_info();
      if (!written || !written->isWrite()) return false;
      for (size_t i = 0; i < arguments().size(); ++i)
        if (const auto& given = op_.schema().arguments()[i]; given.alias_info() && *given.alias_info() == *written) {
          if (given.kwarg_only()) return false;
          results.push_back(arguments()[i]);
        }
    }
    finish(std::move(results));
    return true;
  }

  Values out_arguments() const {
    Values outs;
    for (size_t i = 0; i < arguments().size(); ++i)
      if (const auto& given = op_.schema().arguments()[i]; given.kwarg_only() && given.alias_info())
        outs.push_back(arguments()[i]);
    return outs;
  }

  // Computes the result shapes on the CPU with zeros, if the operands are small.
  void emulate() {
    constexpr int64_t max_elements = 1 << 24;
    int64_t elements = 0;
    Values inputs(stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end());
    for (c10::IValue& value : inputs) {
      if (value.isDevice()) value = c10::Device(c10::kCPU);
      for_each_tensor(value, [&](at::Tensor& t) {
        if ((elements += t.numel()) > max_elements)
          refuse("has no result shape without data, and its operands have too many elements to compute it");
        t = at::zeros(t.sizes(), t.options().device(at::kCPU));
        return true;
      });
    }
    const Values outs = out_arguments();
    op_.callBoxed(inputs);
    for (size_t i = 0; i < outs.size(); ++i) outs[i].toTensor().resize_(inputs[i].toTensor().sizes());
    if (!outs.empty()) return finish(outs);
    for (c10::IValue& value : inputs)
      for_each_tensor(value, [](at::Tensor& t) {
        t = at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
        return true;
      });
    finish(std::move(inputs));
  }

  const c10::OperatorHandle& op_;
  c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  size_t first_;
};

void on_abstract_tensors(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto compute = [&] { Call(op, keys, *stack).run(); };
  if (interceptor)
    interceptor->call(op.schema(), *stack, compute);
  else
    compute();
}

// Computes attention on the meta device. LibTorch would use matrix products with (seq, seq) weights, which the CPU's
// kernel never allocates.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key_heads, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> scale,
                     bool grouped) {
  const bool fused = query.dim() == 4 && value.size(-1) == query.size(-1) && dropout == 0 &&
                     (!mask || !mask->defined() || !mask->requires_grad());
  if (!fused)
    return at::native::scaled_dot_product_attention(query, key_heads, value, mask, dropout, causal, scale, grouped);
  return std::get<0>(
      at::_scaled_dot_product_flash_attention_for_cpu(query, key_heads, value, dropout, causal, mask, scale));
}

}  // namespace

void register_call_kernel_once(const char* feature) {
  static const bool registered = [feature] {
    add_fallback(feature, key, torch::CppFunction::makeFromBoxedFunction<&on_abstract_tensors>());
    return true;
  }();
  static_cast<void>(registered);
}

at::Tensor abstract_tensor(at::IntArrayRef sizes, DType dtype) {
  register_call_kernel_once("abstract mesh");
  static const bool registered = [] {
    new CountingAllocator;  // LibTorch uses it until the process ends
    permanent_library("aten", c10::DispatchKey::AutogradMeta).impl("scaled_dot_product_attention", &attention);
    return true;
  }();
  static_cast<void>(registered);
  return with_key(at::detail::empty_meta(sizes, static_cast<at::ScalarType>(dtype)));
}

at::Tensor abstract_block(const Type* type) {
  const ScopedValue there(metered_stage(), stage_number(type->mesh));
  return abstract_tensor(type->local, type->dtype);
}

Interceptor*& current_interceptor() { return interceptor; }

std::shared_ptr<Meter>& current_meter() { return innermost; }

}  // namespace tessera::detail
