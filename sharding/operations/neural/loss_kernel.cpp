// Passes tensors to the registered kernel of cross-entropy.
#include "sharding/operations/neural/loss_kernel.h"

#include <ATen/ATen.h>

#include <array>

#include "sharding/kernels/tensors.h"

namespace tessera::detail {
namespace {

LogitType type_of(const at::Tensor& t) {
  return t.scalar_type() == at::kHalf       ? LogitType::float16
         : t.scalar_type() == at::kBFloat16 ? LogitType::bfloat16
                                            : LogitType::float32;
}

}  // namespace

LossKernel& loss_kernel_of(c10::DeviceType kind) {
  static std::array<LossKernel, c10::COMPILE_TIME_MAX_DEVICE_TYPES> kernels{};
  return kernels[static_cast<size_t>(kind)];
}

bool FusedLosses::is_possible(const at::Tensor& logits) {
  return loss_kernel_of(logits.device().type()) && logits.scalar_type() != at::kDouble;
}

at::Tensor FusedLosses::kernel_labels(const Labels& labels) {
  return (labels.ignored.defined() ? labels.columns.masked_fill(labels.ignored, -1) : labels.columns).contiguous();
}

at::Tensor FusedLosses::losses() {
  const at::Tensor result = logits.new_empty({logits.size(0)}, at::kFloat);
  sums = result.new_empty({logits.size(0), 2});
  run({.losses = result.mutable_data_ptr<float>()});
  return result;
}

void FusedLosses::put_gradients(const at::Tensor& of_losses, const at::Tensor& out) const {
  run({.gradient_type = type_of(out),
       .of_losses = const_elements<float>(of_losses),
       .gradients = out.mutable_data_ptr()});
}

// Uses the present addresses of the tensors: a gathered weight may have got other memory.
void FusedLosses::run(LossRows rows) const {
  rows.type = type_of(logits);
  rows.logits = logits.const_data_ptr(), rows.stride = logits.stride(0);
  rows.labels = const_elements<int64_t>(labels), rows.sums = sums.mutable_data_ptr<float>();
  rows.rows = logits.size(0), rows.vocab = logits.size(1);
  rows.smoothing = static_cast<float>(smoothing), rows.z_loss = static_cast<float>(z_loss);
  if (rows.rows) loss_kernel_of(logits.device().type())(rows, logits.device().index());
}

}  // namespace tessera::detail
