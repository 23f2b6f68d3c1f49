// Computes the losses.
#include "optim/schedules/losses.h"

#include <cmath>

#include "optim/schedules/check_options.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/neural/normalization.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera::optim {

namespace {

void check_floating(const char* verb, const char* what, const Array& x) {
  if (!is_floating(x.dtype()))
    fail(ErrorKind::dtype_mismatch, verb, "{}: {} given, expected a floating element type.", what, x.type_string());
}

void check_integer(const char* verb, const char* what, const Array& x) {
  if (is_floating(x.dtype()) || x.dtype() == boolean)
    fail(ErrorKind::dtype_mismatch, verb,
         "{}: {} given, expected integers. Probabilities are the labels of softmax_cross_entropy.", what,
         x.type_string());
}

void check_same_shape(const char* verb, const Array& a, const Array& b) {
  if (a.shape() != b.shape())
    fail(ErrorKind::shape_mismatch, verb, "{} and {} given, expected the same shape twice.", a.type_string(),
         b.type_string());
}

// Returns predictions - targets of two arrays of one shape.
Array errors_of(const char* verb, const Array& predictions, const Array& targets) {
  check_floating(verb, "predictions", predictions);
  check_same_shape(verb, predictions, targets);
  return predictions - targets;
}

}  // namespace

Array softmax_cross_entropy(Operand logits, Operand labels, int dim) {
  const CallerScope caller(logits.where());
  check_floating("softmax_cross_entropy", "logits", logits.array());
  return -sum(labels.array() * log_softmax(logits.array(), dim), {dim});
}

Array safe_softmax_cross_entropy(Operand logits, Operand labels) {
  const CallerScope caller(logits.where());
  check_floating("safe_softmax_cross_entropy", "logits", logits.array());
  const Array& y = labels.array();
  return -sum(where(equal(y, 0), 0.0, y * log_softmax(logits.array())), {-1});
}

Array softmax_cross_entropy_with_integer_labels(Operand logits, Operand labels) {
  const CallerScope caller(logits.where());
  constexpr const char* verb = "softmax_cross_entropy_with_integer_labels";
  check_floating(verb, "logits", logits.array());
  check_integer(verb, "labels", labels.array());
  const Array chosen = take_along_axis(logits.array(), expand_dims(labels.array(), {-1}), -1);
  return logsumexp(logits.array(), {-1}) - squeeze(chosen, {-1});
}

Array sigmoid_binary_cross_entropy(Operand logits, Operand labels) {
  const CallerScope caller(logits.where());
  check_floating("sigmoid_binary_cross_entropy", "logits", logits.array());
  const Array& x = logits.array();
  const Array y = astype(labels.array(), x.dtype());
  return -y * log_sigmoid(x) - (1.0 - y) * log_sigmoid(-x);
}

Array sigmoid_focal_loss(Operand logits, Operand labels, double gamma) {
  const CallerScope caller(logits.where());
  check_floating("sigmoid_focal_loss", "logits", logits.array());
  const Array& x = logits.array();
  const Array y = astype(labels.array(), x.dtype());
  const Array wrong = logaddexp(log(1.0 - y) + log_sigmoid(x), log(y) + log_sigmoid(-x));
  return sigmoid_binary_cross_entropy(x, y) * exp(gamma * wrong);
}

Array sigmoid_focal_loss(Operand logits, Operand labels, double gamma, double alpha) {
  const CallerScope caller(logits.where());
  const Array y = astype(labels.array(), logits.array().dtype());
  return (alpha * y + (1 - alpha) * (1.0 - y)) * sigmoid_focal_loss(logits, y, gamma);
}

Array poly_loss_cross_entropy(Operand logits, Operand labels, double epsilon) {
  const CallerScope caller(logits.where());
  const Array missing = sum(labels.array() * (1.0 - softmax(logits.array())), {-1});
  return softmax_cross_entropy(logits, labels) + epsilon * missing;
}

Array hinge_loss(Operand predictor_outputs, Operand targets) {
  const CallerScope caller(predictor_outputs.where());
  return maximum(1.0 - predictor_outputs.array() * targets.array(), 0.0);
}

Array perceptron_loss(Operand predictor_outputs, Operand targets) {
  const CallerScope caller(predictor_outputs.where());
  check_same_shape("perceptron_loss", predictor_outputs.array(), targets.array());
  return maximum(-predictor_outputs.array() * targets.array(), 0.0);
}

Array multiclass_hinge_loss(Operand scores, Operand labels) {
  const CallerScope caller(scores.where());
  check_floating("multiclass_hinge_loss", "scores", scores.array());
  check_integer("multiclass_hinge_loss", "labels", labels.array());
  const Array &x = scores.array(), y = one_hot(labels.array(), x.shape(-1), x.dtype());
  return max(x + 1.0 - y, {-1}) - sum(x * y, {-1});
}

Array smooth_labels(Operand labels, double alpha, int dim) {
  const CallerScope caller(labels.where());
  check_floating("smooth_labels", "labels", labels.array());
  return (1 - alpha) * labels.array() + alpha / static_cast<double>(labels.array().shape(dim));
}

Array squared_error(Operand predictions, Operand targets) {
  const CallerScope caller(predictions.where());
  return square(errors_of("squared_error", predictions.array(), targets.array()));
}

Array squared_error(Operand errors) {
  check_floating("squared_error", "predictions", errors.array());
  return square(errors);
}

Array l2_loss(Operand predictions, Operand targets) {
  const CallerScope caller(predictions.where());
  return 0.5 * square(errors_of("l2_loss", predictions.array(), targets.array()));
}

Array l2_loss(Operand errors) { return 0.5 * squared_error(errors); }

Array huber_loss(Operand predictions, Operand targets, double delta) {
  const CallerScope caller(predictions.where());
  detail::check_positive("huber_loss", "delta", delta);
  const Array size = abs(errors_of("huber_loss", predictions.array(), targets.array()));
  const Array quadratic = minimum(size, delta);
  return 0.5 * square(quadratic) + delta * (size - quadratic);
}

Array log_cosh(Operand predictions, Operand targets) {
  const CallerScope caller(predictions.where());
  const Array errors = errors_of("log_cosh", predictions.array(), targets.array());
  return logaddexp(errors, -errors) - std::log(2.0);
}

Array cosine_similarity(Operand predictions, Operand targets, double epsilon, int dim) {
  const CallerScope caller(predictions.where());
  check_floating("cosine_similarity", "predictions", predictions.array());
  check_floating("cosine_similarity", "targets", targets.array());
  detail::check_options("cosine_similarity", {}, {{"epsilon", epsilon}});
  const auto unit = [&](const Array& x) { return x / sqrt(maximum(sum(square(x), {dim}, true), epsilon)); };
  return sum(unit(predictions.array()) * unit(targets.array()), {dim});
}

Array cosine_distance(Operand predictions, Operand targets, double epsilon, int dim) {
  const CallerScope caller(predictions.where());
  return 1.0 - cosine_similarity(predictions, targets, epsilon, dim);
}

Array kl_divergence(Operand log_predictions, Operand targets, int dim) {
  const CallerScope caller(log_predictions.where());
  check_floating("kl_divergence", "log_predictions", log_predictions.array());
  check_floating("kl_divergence", "targets", targets.array());
  const Array& t = targets.array();
  return sum(t * (where(equal(t, 0.0), 0.0, log(t)) - log_predictions.array()), {dim});
}

Array kl_divergence_with_log_targets(Operand log_predictions, Operand log_targets, int dim) {
  const CallerScope caller(log_predictions.where());
  check_floating("kl_divergence_with_log_targets", "log_predictions", log_predictions.array());
  check_floating("kl_divergence_with_log_targets", "log_targets", log_targets.array());
  return sum(exp(log_targets.array()) * (log_targets.array() - log_predictions.array()), {dim});
}

Array generalized_kl_divergence(Operand log_predictions, Operand targets, int dim) {
  const CallerScope caller(log_predictions.where());
  return kl_divergence(log_predictions, targets, dim) + sum(exp(log_predictions.array()) - targets.array(), {dim});
}

}  // namespace tessera::optim
