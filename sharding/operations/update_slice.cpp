// A box written on each device, or laid over the whole where it lies across devices.
#include "sharding/operations/update_slice.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "sharding/operations/joining.h"
#include "sharding/operations/rearrange_dims.h"
#include "sharding/operations/slicing.h"

namespace tessera {

using namespace detail;

namespace {

// Attributes: the dims that the update does not fill, as bits.
ShardingRule update_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims x = numbered_factors(operands[0]->shape.size()), update = x;
  for (size_t d = 0; d < x.size(); ++d) {
    if (!(attributes[0] >> d & 1)) continue;
    x[d] = whole(fmt::format("d{}", d));
    update[d] = whole(fmt::format("part{}", d));
  }
  return {{x, update}, {x}};
}

ShardingRule overlay_rule(const Attributes&, const OperandTypes& operands) {
  const RuleDims dims = numbered_factors(operands[0]->shape.size());
  return {{dims, dims}, {dims}};
}

const Operation update_slice_op{"dynamic_update_slice", update_rule, Linearity::additive};
const Operation overlay_op{"overlay", overlay_rule, Linearity::additive};

// x outside the box, y inside it.
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

// The update among zeros, in x's shape.
Array surrounded(const Operand& x, const Array& update, const Shape& start) {
  std::vector<std::pair<int64_t, int64_t>> around;
  for (int d = 0; d < update.ndim(); ++d) around.push_back({start[d], x.array().shape(d) - start[d] - update.shape(d)});
  return pad({update, x.where()}, around);
}

}  // namespace

Array dynamic_update_slice(Operand x, const Array& update, Shape start) {
  const Array& a = x.array();
  materialized(a, "dynamic_update_slice");
  if (materialized(update, "dynamic_update_slice").type->dtype != a.dtype())
    fail(ErrorKind::dtype_mismatch, "dynamic_update_slice",
         fmt::format("{} into {}, expected one element type.", update.type_string(), a.type_string()));
  start = clamped_start("dynamic_update_slice", a, std::move(start), update.shape());
  Change change{a.shape()};
  for (int d = 0; d < a.ndim(); ++d)
    if (update.shape(d) != a.shape(d)) change.touch(d);
  if (moves_between_devices(*a.impl()->type, change))
    return overlay(x, surrounded(x, update, start), start, update.shape());
  return run({.operation = update_slice_op, .attributes = {change.dims}, .where = x.where()}, {&a, &update},
             [&](Locals t, const BlockContext&) {
               at::Tensor result = t[0].clone(), box = result;
               for (int d = 0; d < a.ndim(); ++d)
                 if (change.touches(d)) box = box.slice(d, start[d], start[d] + update.shape(d));
               box.copy_(t[1]);
               return result;
             });
}

}  // namespace tessera
