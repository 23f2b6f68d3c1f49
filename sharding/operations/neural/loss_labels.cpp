// Checks of losses, and reading of labels that may be ignored.
#include "sharding/operations/neural/loss_labels.h"

#include <ATen/ATen.h>

#include <cmath>

#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"

namespace tessera::detail {

void check_loss(const char* verb, const Array& of, const Shape& positions, const Array& labels, int64_t vocab,
                const CrossEntropyOptions& options) {
  check_integers(verb, labels, "labels");
  if (!is_floating(of.dtype()))
    fail(ErrorKind::dtype_mismatch, verb, "logits {}, expected a floating type. Convert with astype.",
         of.type_string());
  if (vocab == 0)
    fail(ErrorKind::shape_mismatch, verb, "a vocabulary of 0 for {} and labels {}, expected one class or more.",
         of.type_string(), labels.type_string());
  if (labels.shape() != positions)
    fail(ErrorKind::shape_mismatch, verb, "given {} and labels {}, expected labels of the shape {}.", of.type_string(),
         labels.type_string(), to_string(positions));
  if (!options.weights.is_absent() && options.weights.shape() != positions)
    fail(ErrorKind::shape_mismatch, verb, "weights {} for labels {}, expected the same shape.",
         options.weights.type_string(), labels.type_string());
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    fail(ErrorKind::invalid_argument, verb, "label_smoothing {}, expected 0 to 1.", options.label_smoothing);
  if (!(options.z_loss >= 0 && std::isfinite(options.z_loss)))
    fail(ErrorKind::invalid_argument, verb, "z_loss {}, expected a finite number of 0 or more.", options.z_loss);
}

Array position_weights(const Array& labels, const CrossEntropyOptions& options, DType dtype) {
  const Array given = options.weights.is_absent() ? Array() : astype(options.weights, dtype);
  if (!options.ignore_label) return given;
  const Array counts = not_equal(astype(labels, int64), *options.ignore_label);
  return given.is_absent() ? astype(counts, dtype) : where(counts, given, 0);
}

at::Tensor Labels::without_ignored(const at::Tensor& of_positions) const {
  return ignored.defined() ? of_positions.masked_fill(ignored, 0) : of_positions;
}

LabelColumns columns_in(const Labels& labels, int64_t offset, int64_t width, at::ScalarType type) {
  const at::Tensor column = labels.columns - offset;
  const at::Tensor here = (column >= 0).logical_and_(column < width);
  return {column.clamp(0, width - 1).unsqueeze(-1), here.to(type)};
}

Labels read_labels(const char* verb, const at::Tensor& labels, int64_t vocab, std::optional<int64_t> ignore_label) {
  if (!ignore_label) return {indices(verb, labels, vocab), {}};
  const at::Tensor all = labels.to(at::kLong), ignored = all.eq(*ignore_label);
  return {indices(verb, all.masked_fill(ignored, 0), vocab), ignored};
}

}  // namespace tessera::detail
