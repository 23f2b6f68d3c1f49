// Arrays without data in place of others.
#include "nn/transformations/eval_shape.h"

#include "sharding/operations/creation.h"
#include "sharding/placement/resolver.h"
#include "sharding/placement/sub_mesh.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn::detail {

namespace {

Mesh twin_of(const std::vector<Array*>& arrays) {
  for (const Array* x : arrays)
    if (!x->is_absent() && x->is_committed())
      return make_mesh(whole_mesh(x->sharding().mesh()).axes(), {.abstract = true});
  return make_mesh({{"device", 1}}, {.abstract = true});
}

Array abstract_like(const Array& x, const Mesh& mesh) {
  const PartitionSpec spec = x.is_committed() ? x.sharding().spec() : PartitionSpec();
  const Array shape = zeros(x.shape(), x.dtype());  // a recipe: no memory
  if (const std::optional<Layout> layout = layout_of(x)) {
    const Layout twin = tessera::detail::on_other_mesh(*layout, mesh);
    return x.path().empty() ? place_batch(shape, twin, spec) : place_parameter(shape, twin, spec, x.path());
  }
  const NamedSharding sharding(mesh, spec);
  return x.path().empty() ? device_put(shape, sharding) : place_parameter(shape, sharding, x.path());
}

}  // namespace

void make_abstract(const std::vector<Array*>& arrays) {
  const Mesh mesh = twin_of(arrays);
  for (Array* x : arrays)
    if (!x->is_absent()) *x = abstract_like(*x, mesh);
}

}  // namespace tessera::nn::detail
