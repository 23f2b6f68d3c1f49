// Losses of optax.losses, per element or per example; the user averages them.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera::optim {

// Names, formulas and defaults are Optax's. No loss averages: write mean(softmax_cross_entropy(logits, labels)). The
// losses consist of operations on arrays, so they have gradients and accept any sharding. A reduction over a sharded
// dimension is one or two all-reduces of the result's size.
// Errors of every loss
//   dtype_mismatch: logits, log probabilities or predictions that are not floating; floating labels where integers are
//     expected
//   shape_mismatch: shapes that do not fit

// ---- classification: logits (..., classes)

// Computes -sum(labels * log_softmax(logits)) over `dim`; the result has shape (...). Labels are probabilities, for
// example one_hot's.
Array softmax_cross_entropy(Operand logits, Operand labels, int dim = -1);
// Computes the same over the last dimension with 0 log 0 = 0: a class with label 0 may have the logit -infinity.
Array safe_softmax_cross_entropy(Operand logits, Operand labels);
// Computes softmax_cross_entropy for labels that are class indices in [0, classes): logsumexp(logits) - logits[label].
// Logits that are sharded over classes are not gathered.
Array softmax_cross_entropy_with_integer_labels(Operand logits, Operand labels);
// Computes -labels * log_sigmoid(logits) - (1 - labels) * log_sigmoid(-logits), elementwise, for independent binary
// labels.
Array sigmoid_binary_cross_entropy(Operand logits, Operand labels);
// Computes sigmoid_binary_cross_entropy with less weight on well-classified examples: times (1 - p)^gamma for the
// label's probability p. With alpha, also times alpha where the label is 1 and 1 - alpha where it is 0.
// Lin et al., "Focal loss for dense object detection" (2017).
Array sigmoid_focal_loss(Operand logits, Operand labels, double gamma = 2);
Array sigmoid_focal_loss(Operand logits, Operand labels, double gamma, double alpha);
// Computes softmax_cross_entropy + epsilon * sum(labels * (1 - softmax(logits))). Leng et al., "PolyLoss" (2022).
Array poly_loss_cross_entropy(Operand logits, Operand labels, double epsilon = 2);
// Compute max(0, 1 - outputs * targets) and max(0, -outputs * targets), elementwise; targets are -1 or 1.
Array hinge_loss(Operand predictor_outputs, Operand targets);
Array perceptron_loss(Operand predictor_outputs, Operand targets);
// Computes max over classes of (scores + 1 except at the label) - scores[label], for labels that are class indices.
Array multiclass_hinge_loss(Operand scores, Operand labels);
// Computes (1 - alpha) * labels + alpha / classes, for labels (..., classes).
Array smooth_labels(Operand labels, double alpha, int dim = -1);

// ---- regression

// Compute (predictions - targets)^2, and half of it.
Array squared_error(Operand predictions, Operand targets);
Array squared_error(Operand errors);
Array l2_loss(Operand predictions, Operand targets);
Array l2_loss(Operand errors);
// Computes error^2 / 2 where |error| <= delta, else delta (|error| - delta / 2).
// Huber, "Robust estimation of a location parameter" (1964).
Array huber_loss(Operand predictions, Operand targets, double delta = 1);
// Computes log(cosh(predictions - targets)).
Array log_cosh(Operand predictions, Operand targets);
// Compute the cosine of the angle between vectors along `dim`, and 1 minus the cosine. Squared lengths below epsilon
// count as epsilon. Error (invalid_argument): epsilon below 0.
Array cosine_similarity(Operand predictions, Operand targets, double epsilon = 0, int dim = -1);
Array cosine_distance(Operand predictions, Operand targets, double epsilon = 0, int dim = -1);

// ---- distributions

// Compute sum(targets * (log(targets) - log_predictions)) along `dim`, where 0 log 0 is 0.
// kl_divergence_with_log_targets takes log(targets). generalized_kl_divergence, for targets and predictions whose sum
// is not 1, adds sum(exp(log_predictions) - targets).
Array kl_divergence(Operand log_predictions, Operand targets, int dim = -1);
Array kl_divergence_with_log_targets(Operand log_predictions, Operand log_targets, int dim = -1);
Array generalized_kl_divergence(Operand log_predictions, Operand targets, int dim = -1);

}  // namespace tessera::optim
