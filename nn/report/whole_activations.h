// WholeActivations: finds activations that an operation replicates along mesh axes, and constraints that prevent it.
#pragma once

#include <optional>
#include <vector>

#include "nn/report/activations.h"
#include "nn/report/dataflow.h"
#include "sharding/accounting/operation_event.h"

namespace tessera::nn::detail {

class WholeActivations {
 public:
  // Adds the activations of one call that `flow` has already recorded:
  //   operands that are sharded over axes and read replicated, if the result is replicated or smaller
  //   partial sums that are read replicated, if the result is replicated and another sharding of the sum is possible
  // Weights, scalar results and values that `flow` has not recorded are not counted.
  void add(const tessera::detail::OperationCall& call, const tessera::detail::OperationArrays& arrays,
           const ModuleDataflow& flow);
  // Records that the program itself places x.
  void place(const ArrayImpl& x, const ModuleDataflow& flow);

  std::vector<WholeActivation> all() const;

 private:
  // A candidate. Results of its shape are followed as long as each has a single reader. The candidate is resolved if
  // that reader is a placement, or reads the array sharded again: then no replication remains that the program did not
  // request.
  struct Found {
    size_t value;                // number of the activation
    std::optional<size_t> last;  // last value computed from it; nullopt: not followed any further
    tessera::detail::AxisSet axes;
    WholeActivation whole;
    std::optional<size_t> read = {};  // the value before `last`
    bool resolved = false;
  };
  void follow(Found& found, const tessera::detail::OperationArrays& arrays, const ModuleDataflow& flow) const;

  std::vector<Found> found_;
};

}  // namespace tessera::nn::detail
