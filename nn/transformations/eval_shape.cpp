// Replaces arrays by arrays without data.
#include "nn/transformations/eval_shape.h"

#include "sharding/array/array_impl.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/resolver.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn::detail {

namespace {

Mesh twin_of(const std::vector<Array*>& arrays) {
  for (const Array* x : arrays)
    if (!x->is_absent() && x->is_committed())
      return make_mesh(whole_mesh(x->sharding().mesh()).axes(), {.abstract = true});
  return make_mesh({{"device", 1}}, {.abstract = true});
}

// Gradients have their parameters' paths, but can have states that no parameter has (unreduced, reduced).
bool is_placed_as_parameter(const Array& x) {
  return !x.path().empty() && !x.impl()->type->unreduced && !x.impl()->type->reduced;
}

Array abstract_like(const Array& x, const Mesh& mesh) {
  const PartitionSpec spec = x.is_committed() ? x.sharding().spec() : PartitionSpec();
  const Array shape = zeros(x.shape(), x.dtype());  // lazy: allocates no memory
  if (const std::optional<MeshRules> mesh_rules = mesh_rules_of(x)) {
    const MeshRules twin = tessera::detail::on_other_mesh(*mesh_rules, mesh);
    return is_placed_as_parameter(x) ? place_parameter(shape, twin, spec, x.path()) : place_batch(shape, twin, spec);
  }
  const NamedSharding sharding(mesh, spec);
  return is_placed_as_parameter(x) ? place_parameter(shape, sharding, x.path()) : device_put(shape, sharding);
}

}  // namespace

void make_abstract(const std::vector<Array*>& arrays) {
  const Mesh mesh = twin_of(arrays);
  for (Array* x : arrays)
    if (!x->is_absent()) *x = abstract_like(*x, mesh);
}

}  // namespace tessera::nn::detail
