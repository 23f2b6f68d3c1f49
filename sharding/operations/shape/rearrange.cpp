// Computes the shardings of rearranged arrays, and the exchange that moves their elements.
#include "sharding/operations/shape/rearrange.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "sharding/array/autograd.h"
#include "sharding/base/thread_state.h"
#include "sharding/propagation/plan.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/resharding.h"
#include "sharding/redistribution/varying.h"

namespace tessera::detail {
namespace {

// ---- shardings

bool divides(const MeshImpl* mesh, const DimAxes& axes, int64_t size) {
  return size % mesh->count(axes.axis_set()) == 0;
}

// Returns the axes that still divide `size`, from the major one on.
DimAxes fitting(const MeshImpl* mesh, DimAxes axes, int64_t size) {
  while (!divides(mesh, axes, size)) axes.pop_back();
  return axes;
}

bool is_joined(const std::vector<Run>& runs) { return !runs.empty() && runs[0].operand != Run::any; }

// Returns the sharding that all operands get. A dimension along which they are joined has the lowest priority, because
// elements move along it.
TypeKey common_placement(const std::vector<const Type*>& types, const MeshImpl* mesh, const IndexMap& map,
                         bool keeps_pending) {
  TypeKey key{.mesh = mesh, .dims = std::vector<DimAxes>(types[0]->shape.size())};
  for (const bool joined : {false, true})
    for (const Type* type : types)
      for (size_t d = 0; type->mesh && d < key.dims.size(); ++d)
        if (is_joined(map[d]) == joined && key.dims[d].empty() && !(type->dims[d].axis_set() & axis_set_of(key.dims)))
          key.dims[d] = type->dims[d];
  for (size_t d = 0; d < key.dims.size(); ++d)
    for (const Type* type : types) key.dims[d] = fitting(mesh, key.dims[d], type->shape[d]);
  key.unreduced = keeps_pending ? mesh->all() & ~axis_set_of(key.dims) : 0;
  for (const Type* type : types) {
    key.unreduced &= type->unreduced;
    key.reduced |= type->reduced;
    key.varying |= type->varying;
  }
  key.reduced &= ~(axis_set_of(key.dims) | key.unreduced);
  return key;
}

const Type* with_shape(TypeKey key, const Type* like) {
  key.dtype = like->dtype;
  key.shape = like->shape;
  return intern(key);
}

const Type* result_type(TypeKey key, DType dtype, const Shape& shape) {
  key.dtype = dtype;
  key.shape = shape;
  for (size_t d = 0; d < shape.size(); ++d) key.dims[d] = fitting(key.mesh, key.dims[d], shape[d]);
  return intern(key);
}

// ---- the exchange

Text reason_of(const Operation& operation, const Type* from, const Type* to) {
  return as_text(fmt::format("{} of {}: blocks of the result {} hold elements of other devices' blocks", operation.name,
                             from->to_string(), to->to_string()));
}

// Returns the same exchange as a linear function: elements that no operand covers are zero.
Resharding without_fill(Resharding resharding) {
  Step step = *resharding.steps[0];
  BlockExchange exchange = *step.exchange;
  exchange.fill = 0;
  step.exchange = std::make_shared<const BlockExchange>(std::move(exchange));
  resharding.steps = {std::make_shared<const Step>(std::move(step))};
  return resharding;
}

// Exchanges the local tensors of operands, which have one type, to `to`, as one node of the graph.
Array exchanged(const std::vector<ArrayPtr>& operands, const Type* to, StepPtr step, const Provenance& cause) {
  Tensors in;
  for (const ArrayPtr& operand : operands) in.append(operand->local.begin(), operand->local.end());
  const auto resharding = std::make_shared<Resharding>(Resharding{
      .from = operands[0]->type, .to = to, .steps = {std::move(step)}, .gradients = to->dtype, .cause = cause});
  Tensors out = resharding->forward(in);
  record_function(
      cause.operation, in, out, [resharding](Tensors gradients) { return resharding->backward(std::move(gradients)); },
      [resharding](const Tensors& gradients) {
        return without_fill(*resharding).forward(gradients, /*in_backward_pass=*/true);
      });
  ArrayPtr result = make_array(to, std::move(out));
  result->weight = std::all_of(operands.begin(), operands.end(), [](const ArrayPtr& a) { return a->weight; });
  for (const ArrayPtr& operand : operands)
    if (!result->mesh_rules) result->mesh_rules = operand->mesh_rules;
  return Array(std::move(result));
}

std::vector<int64_t> key_of(const Rearrangement& call, const std::vector<const Type*>& from, const Type* to) {
  std::vector<int64_t> key{reinterpret_cast<int64_t>(to), std::bit_cast<int64_t>(call.fill)};
  for (const Type* type : from) key.push_back(reinterpret_cast<int64_t>(type));
  for (const auto& runs : call.map) {
    key.push_back(static_cast<int64_t>(runs.size()));
    for (const Run& run : runs) key.insert(key.end(), {run.start, run.count, run.operand, run.first, run.step});
  }
  return key;
}

}  // namespace

Array rearrange(const Rearrangement& call, const std::vector<Array>& given_operands) {
  thread_local BoundedCache<std::map<std::vector<int64_t>, StepPtr>, 1 << 12> steps;
  const char* verb = call.operation.name;
  const std::vector<Array> operands = on_one_stage(given_operands, {.operation = verb, .where = call.where});
  std::vector<const Type*> given;
  for (const Array& x : operands) given.push_back(materialized(x, verb).type);
  const TypeKey key = common_placement(given, common_mesh(verb, given), call.map, call.fill == 0);
  std::vector<const Type*> from;
  for (const Type* type : given) from.push_back(with_shape(key, type));
  const Type* to = result_type(key, given[0]->dtype, call.shape);
  const Provenance cause{.operation = verb, .where = call.where, .reason = reason_of(call.operation, from[0], to)};
  std::vector<ArrayPtr> placed;
  for (size_t i = 0; i < operands.size(); ++i) {
    TypeKey alike = *from[i];
    alike.varying = given[i]->varying;
    placed.push_back(
        varied(convert(*operands[i].impl(), operands[i].impl(), intern(alike), cause), key.varying, cause));
  }
  const auto make_step = [&] {
    auto exchange = std::make_shared<const BlockExchange>(make_block_exchange(from, to, call.map, call.fill));
    return std::make_shared<const Step>(exchange_step(from[0], to, std::move(exchange)));
  };
  Array result = exchanged(placed, to, steps.get(key_of(call, from, to), make_step).second, cause);
  for (const ArrayPtr& operand : placed)
    if (operand->details && operand->details->reshard_after_forward)
      operand->details->reshard_after_forward->free_after_use(operand->local, result.impl()->local);
  return result;
}

// ---- reshapes

namespace {

// Dimensions [i0, i1) and [j0, j1) of two shapes with equal products, between which the elements move.
struct Section {
  size_t i0, i1, j0, j1;
};

std::vector<Section> sections(const Shape& from, const Shape& to) {
  std::vector<Section> found;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    Section s{i, i, j, j};
    int64_t a = 1, b = 1;
    do {
      if ((a <= b && i < from.size()) || j == to.size())
        a *= from[i++];
      else
        b *= to[j++];
    } while (a != b);
    s.i1 = i, s.j1 = j;
    found.push_back(s);
  }
  return found;
}

class ReshapePlacement {
 public:
  ReshapePlacement(const Type* from, const Shape& shape) : from_(from), key_(*from) {
    key_.shape = shape;
    key_.dims.assign(shape.size(), {});
  }

  const Type* make() {
    for (const Section& s : sections(from_->shape, key_.shape)) in_order(s);
    for (const auto& [axis, section] : unassigned_) assign_axis(axis, section);
    return intern(key_);
  }

 private:
  int64_t block(size_t d) const { return key_.shape[d] / from_->mesh->count(key_.dims[d].axis_set()); }
  int64_t size(int axis) const { return from_->mesh->axes[axis].size; }

  // Keeps row-major order while each dimension is sharded from its major end and no unsharded dimension comes before
  // it.
  void in_order(const Section& s) {
    size_t j = s.j0;
    bool orderly = true;
    for (size_t i = s.i0; i < s.i1; ++i) {
      for (int axis : from_->dims[i]) {
        while (j < s.j1 && block(j) == 1) ++j;
        orderly = orderly && j < s.j1 && block(j) % size(axis) == 0;
        if (orderly)
          key_.dims[j].push_back(axis);
        else
          unassigned_.push_back({axis, s});
      }
      const bool cut_up = from_->shape[i] == 1 || !from_->dims[i].empty();
      orderly = orderly && cut_up;
    }
  }

  // Assigns the axis to the largest dimension of its section that it divides, else to any dimension that it divides.
  void assign_axis(int axis, const Section& s) {
    std::vector<size_t> order(key_.shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const bool in_a = s.j0 <= a && a < s.j1, in_b = s.j0 <= b && b < s.j1;
      return in_a != in_b ? in_a : block(a) > block(b);
    });
    for (size_t d : order)
      if (block(d) % size(axis) == 0) return key_.dims[d].push_back(axis);
  }

  const Type* from_;
  TypeKey key_;
  std::vector<std::pair<int, Section>> unassigned_;
};

}  // namespace

const Type* reshaped_type(const Type* from, const Shape& shape) { return ReshapePlacement(from, shape).make(); }

Array reshape_across_devices(const Operation& operation, const Operand& x, const Type* to) {
  const ArrayPtr& given = x.array().impl();
  const Type* from = given->type;
  const Provenance cause{.operation = operation.name, .where = x.where(), .reason = reason_of(operation, from, to)};
  const ArrayPtr start = convert(*given, given, from, cause);
  thread_local BoundedCache<std::map<std::pair<const Type*, const Type*>, StepPtr>, 1 << 12> steps;
  const auto make_step = [&] {
    return std::make_shared<const Step>(exchange_step(from, to, reshape_exchange(from, to)));
  };
  return exchanged({start}, to, steps.get(std::pair(from, to), make_step).second, cause);
}

}  // namespace tessera::detail
