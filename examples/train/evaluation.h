// Evaluation: the loss of a model over batches that it does not learn.
#pragma once

#include <vector>

#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>

namespace tessera::train {

// Losses of batches, put together.
struct Evaluation {
  double sum = 0, weight = 0;

  // A mean counts as one, whatever its batch: for batches of one size.
  void add(const Array& mean) { sum += gather(mean).item<double>(), ++weight; }
  // Each symbol counts as much as it weighs.
  void add(const WeightedSum& loss) {
    sum += gather(loss.sum).item<double>(), weight += gather(loss.weight).item<double>();
  }
  double mean() const { return sum / weight; }
};

// loss_fn(model, batch) is an Array or a WeightedSum. exp of the mean is the perplexity. All processes call this.
template <class Model, class Batch, class Loss>
double mean_loss(const Model& model, const std::vector<Batch>& batches, const Loss& loss_fn) {
  Evaluation evaluation;
  for (const Batch& batch : batches) evaluation.add(loss_fn(model, batch));
  return evaluation.mean();
}

}  // namespace tessera::train
