// WeightedSum: a mean that can still be added to others.
#pragma once

#include <source_location>

#include "sharding/operations/operand.h"

namespace tessera {

// A sum, and the weight by which it is to be divided: two scalars. The sums of the parts of a batch add up to that of
// the whole; their means do not, where the parts weigh differently. A loss function may return one, and
// nn::accumulate_gradients then gives the gradient of the whole batch.
struct WeightedSum {
  Array sum, weight;

  // sum / weight. A weight of 0 divides as 1, so that the mean of nothing is 0, and so is its gradient.
  Array mean(std::source_location where = std::source_location::current()) const;
};

// Sums added, and weights added.
WeightedSum operator+(const WeightedSum& a, const WeightedSum& b);

// sum(weights * values) and sum(weights), in float32 at least, and in float64 if either is float64. Weights, which may
// be booleans, have the shape of the values; absent: all are 1, and the weight is the number of values. A loss
// function that uses elementwise losses (optim/schedules/losses.h) returns:
//   return weighted_sum(optim::huber_loss(model(batch.x), batch.y), batch.is_real);
// Error (shape_mismatch): weights of another shape.
WeightedSum weighted_sum(Operand values, const Array& weights = {});

}  // namespace tessera
