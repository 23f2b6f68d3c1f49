// Records the parameter from which casts, views and scalings are made.
#include <ATen/core/grad_mode.h>

#include <utility>

#include "sharding/array/autograd.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/propagation/run.h"

namespace tessera::detail {

bool has_parameter_source(const Array& operand) {
  const ArrayImpl& a = *operand.impl();
  const bool alone = a.type->mesh && a.type->mesh->devices.size() == 1;  // nothing is ever reduced on one device
  return a.details && !alone && at::GradMode::is_enabled() && (is_tape_parameter(a) || a.details->again);
}

namespace {

// Adds gradients in the parameter's type: in half precision, adding up the devices' contributions would round.
Again with_exact_gradients(Again again, DType exact) {
  return [again = std::move(again), exact](const ArrayPtr& other) {
    ArrayPtr made = again(other);
    add_gradients_in(made->local, exact);
    return made;
  };
}

}  // namespace

void remember_source(const ArrayPtr& result, const ArrayPtr& operand, Again again, bool cast) {
  if (const DType exact = origin_of(*operand).type->dtype; exact != result->type->dtype) {
    add_gradients_in(result->local, exact);
    again = with_exact_gradients(std::move(again), exact);
  }
  Details& details = result->detail();
  details.come_from(operand);
  details.again = std::move(again);
  details.cast = cast;
  details.path = operand->details->path;
}

}  // namespace tessera::detail
