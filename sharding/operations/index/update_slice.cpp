// Updates a box of an array: written locally on each device, or overlaid if it crosses devices.
#include <ATen/ATen.h>

#include <algorithm>

#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/shape/joining.h"
#include "sharding/operations/shape/rearrange.h"
#include "sharding/redistribution/device_put.h"

namespace tessera {

using namespace detail;

namespace {

// Returns the rule of dynamic_update_slice. Bit d of the attributes is set if the update does not fill dimension d;
// such a dimension must be replicated.
ShardingRule update_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims x = numbered_factors(operands[0]->shape.size()), update = x;
  touch_dims(attributes, x, update);
  std::vector<RuleDims> in{x, update};
  if (operands.size() == 3) in.push_back({whole("starts")});
  return {std::move(in), {x}};
}

ShardingRule overlay_rule(const Attributes&, const OperandTypes& operands) {
  const RuleDims dims = numbered_factors(operands[0]->shape.size());
  return {{dims, dims}, {dims}};
}

const Operation update_slice_op{"dynamic_update_slice", update_rule, Linearity::additive};
const Operation update_from_op{"dynamic_update_slice", update_rule};  // a third operand holds the start
const Operation overlay_op{"overlay", overlay_rule, Linearity::additive};

// Returns x outside the box, and y inside it.
Array overlay(const Operand& x, const Array& y, const Shape& start, const Shape& sizes) {
  return run({.operation = overlay_op, .where = x.where()}, {&x.array(), &y}, [&](Locals t, const BlockContext& block) {
    at::Tensor inside = at::zeros(t[0].sizes(), t[0].options().dtype(at::kBool)), box = inside;
    for (size_t d = 0; d < start.size(); ++d) {
      const int64_t offset = block.plan().factors[d].offset[block.slot()];
      const int64_t low = std::clamp<int64_t>(start[d] - offset, 0, box.size(d));
      const int64_t high = std::clamp<int64_t>(start[d] + sizes[d] - offset, low, box.size(d));
      box = box.narrow(d, low, high - low);
    }
    box.fill_(true);
    return at::where(inside, t[1], t[0]);
  });
}

// Pads the update with zeros to x's shape.
Array surrounded(const Operand& x, const Array& update, const Shape& start) {
  std::vector<std::pair<int64_t, int64_t>> around;
  for (int d = 0; d < update.ndim(); ++d) around.push_back({start[d], x.array().shape(d) - start[d] - update.shape(d)});
  return pad({update, x.where()}, around);
}

// Errors (invalid_argument, shape_mismatch, dtype_mismatch): the update does not fit x.
Change checked_change(const Array& a, const Array& update) {
  materialized(a, "dynamic_update_slice");
  if (materialized(update, "dynamic_update_slice").type->dtype != a.dtype())
    fail(ErrorKind::dtype_mismatch, "dynamic_update_slice", "{} into {}, expected one element type.",
         update.type_string(), a.type_string());
  clamped_start("dynamic_update_slice", a, Shape(a.ndim(), 0), update.shape());
  Change change{a.shape()};
  for (int d = 0; d < a.ndim(); ++d)
    if (update.shape(d) != a.shape(d)) change.touch(d);
  return change;
}

// Replaces the box of x from `start` on, of the update's size along the touched dimensions.
at::Tensor with_box(const at::Tensor& x, const at::Tensor& update, const Shape& start, const Change& change) {
  at::Tensor result = x.clone(), box = result;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (change.touches(d)) box = box.narrow(d, start[d], update.size(d));
  box.copy_(update);
  return result;
}

}  // namespace

Array dynamic_update_slice_from(Operand x, const Array& update, const Array& start) {
  const Array& a = x.array();
  const Change change = checked_change(a, update);
  materialized(start, "dynamic_update_slice");
  if (!starts_on_devices("dynamic_update_slice", a, start, change))
    return dynamic_update_slice(x, update, gather(astype({start, x.where()}, int64), x.where()).to_host<int64_t>());
  return run({.operation = update_from_op, .attributes = {change.dims}, .where = x.where()}, {&a, &update, &start},
             [&](Locals t, const BlockContext&) {
               return with_box(t[0], t[1], local_start(t[2], t[0].sizes(), t[1].sizes()), change);
             });
}

Array dynamic_update_slice(Operand x, const Array& update, Shape start) {
  const Array& a = x.array();
  const Change change = checked_change(a, update);
  start = clamped_start("dynamic_update_slice", a, std::move(start), update.shape());
  if (moves_between_devices(*a.impl()->type, change))
    return overlay(x, surrounded(x, update, start), start, update.shape());
  return run({.operation = update_slice_op, .attributes = {change.dims}, .where = x.where()}, {&a, &update},
             [&](Locals t, const BlockContext&) { return with_box(t[0], t[1], start, change); });
}

}  // namespace tessera
