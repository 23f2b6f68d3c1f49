// WholeActivations: finds activations that an operation makes whole along mesh axes, and what would keep them cut.
#pragma once

#include <optional>
#include <vector>

#include "nn/report/activations.h"
#include "nn/report/dataflow.h"
#include "sharding/accounting/operation_event.h"

namespace tessera::nn::detail {

class WholeActivations {
 public:
  // Adds those of one call, of which `flow` has been told: operands that are cut over axes and read whole, if the
  // result is whole, too, or smaller; and pending sums that are read whole, if the result is whole and another
  // placement could be summed to. Weights do not count, nor do scalar results, nor values that `flow` does not know.
  void add(const tessera::detail::OperationCall& call, const tessera::detail::OperationArrays& arrays,
           const ModuleDataflow& flow);
  // The program itself places x.
  void place(const ArrayImpl& x, const ModuleDataflow& flow);

  std::vector<WholeActivation> all() const;

 private:
  // One that is whole for now. Results of its shape are followed as long as each has one reader. Where that reader is a
  // placement, or reads it cut again, nothing stayed whole that the program did not ask for.
  struct Found {
    size_t value;                // its number, and that of what was computed from it last
    std::optional<size_t> last;  // nullopt: not followed any further
    tessera::detail::AxisSet axes;
    WholeActivation whole;
    std::optional<size_t> read = {};  // the one before `last`
    bool resolved = false;
  };
  void follow(Found& found, const tessera::detail::OperationArrays& arrays, const ModuleDataflow& flow) const;

  std::vector<Found> found_;
};

}  // namespace tessera::nn::detail
