// Selects the operations whose results are kept, and returns these results in the second run.
#include "sharding/autodiff/saved_results.h"

#include <ATen/core/function_schema.h>

#include <unordered_set>
#include <utility>

namespace tessera::detail {

namespace {

struct WithoutInterceptor {
  ScopedValue<Interceptor*> none{current_interceptor(), nullptr};
};

bool is_kept(std::string_view operation) {
  static const auto& products = *new std::unordered_set<std::string_view>{
      "aten::mm",
      "aten::bmm",
      "aten::mv",
      "aten::dot",
      "aten::addmm",
      "aten::addmv",
      "aten::baddbmm",
      "aten::convolution",
      "aten::convolution_overrideable",
      "aten::mkldnn_convolution",
      "aten::cudnn_convolution",
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      "aten::_scaled_dot_product_flash_attention",
      "aten::_scaled_dot_product_efficient_attention",
      "aten::_scaled_dot_product_cudnn_attention",
  };
  return products.contains(operation);
}

// Returns another tensor over the same memory, with the same version counter and without gradients.
at::Tensor handle_to(const at::Tensor& t) {
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/false));
}

c10::IValue handle_to(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? c10::IValue(handle_to(value.toTensor())) : value;
}

uint32_t version_of(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined()
             ? value.toTensor().unsafeGetTensorImpl()->version_counter().current_version()
             : 0;
}

}  // namespace

void SavedResults::begin_replay() {
  replays_ = true;
  next_ = 0;
}

void SavedResults::call(const c10::FunctionSchema& operation, torch::jit::Stack& stack,
                        const std::function<void()>& compute) {
  if (operation.is_mutable()) note_writes(operation, stack);
  const auto outward = [&] { outer_ ? outer_->call(operation, stack, compute) : compute(); };
  if (!is_kept(operation.name())) return outward();
  const size_t arguments = operation.arguments().size();
  if (replays_) {
    if (take(operation.name(), arguments, stack)) return;
    const WithoutInterceptor inner_calls;
    return compute();
  }
  Shapes shapes = shapes_of(stack, arguments);
  {
    const WithoutInterceptor inner_calls;
    outward();
  }
  keep(operation.name(), std::move(shapes), operation.returns().size(), stack);
}

// Compares memory, because a view of a product may have a separate version counter (as in at::matmul's results).
void SavedResults::note_writes(const c10::FunctionSchema& operation, const torch::jit::Stack& stack) {
  const auto& arguments = operation.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[stack.size() - arguments.size() + i];
    if (!arguments[i].alias_info() || !arguments[i].alias_info()->isWrite()) continue;
    if (value.isTensor()) note_write(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& written : value.toTensorVector()) note_write(written);
  }
}

void SavedResults::note_write(const at::Tensor& written) {
  for (Kept& kept : kept_)
    for (const c10::IValue& result : kept.values)
      if (written.defined() && result.isTensor() && result.toTensor().defined())
        kept.overwritten |= result.toTensor().is_alias_of(written);
}

SavedResults::Shapes SavedResults::shapes_of(const torch::jit::Stack& stack, size_t arguments) {
  Shapes shapes;
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i) {
    if (!stack[i].isTensor() || !stack[i].toTensor().defined()) continue;
    const at::Tensor& t = stack[i].toTensor();
    shapes.push_back(static_cast<int64_t>(t.scalar_type()));
    shapes.insert(shapes.end(), t.sizes().begin(), t.sizes().end());
    shapes.insert(shapes.end(), t.strides().begin(), t.strides().end());
  }
  return shapes;
}

void SavedResults::keep(std::string_view operation, Shapes shapes, size_t results, const torch::jit::Stack& stack) {
  Kept kept{.operation = std::string(operation), .shapes = std::move(shapes), .values = {}, .versions = {}};
  for (size_t i = stack.size() - results; i < stack.size(); ++i) {
    kept.values.push_back(handle_to(stack[i]));
    kept.versions.push_back(version_of(stack[i]));
  }
  kept_.push_back(std::move(kept));
}

bool SavedResults::take(std::string_view operation, size_t arguments, torch::jit::Stack& stack) {
  if (next_ == kept_.size()) return false;
  if (kept_[next_].operation != operation || kept_[next_].shapes != shapes_of(stack, arguments)) {
    next_ = kept_.size();
    return false;
  }
  const Kept& kept = kept_[next_++];
  if (kept.overwritten) return false;
  for (size_t i = 0; i < kept.values.size(); ++i)
    if (version_of(kept.values[i]) != kept.versions[i]) return false;
  stack.resize(stack.size() - arguments);
  for (const c10::IValue& value : kept.values) stack.push_back(handle_to(value));
  return true;
}

SavingScope::SavingScope(SavedResults* results) {
  if (!results) return;
  register_call_kernel_once("remat");
  results->outer_ = current_interceptor();
  interceptor_.emplace(current_interceptor(), results);
  all_operations_.emplace(c10::DispatchKeySet(c10::DispatchKey::Fake));
}

}  // namespace tessera::detail
