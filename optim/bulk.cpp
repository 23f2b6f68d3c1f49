// What an update asks before it changes anything.
#include "optim/bulk.h"

#include <fmt/format.h>

#include "optim/internal.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

std::vector<char> decays_of(const Mask& mask, const nn::Leaves& params) {
  std::vector<char> result;
  for (const nn::Leaf& p : params) result.push_back(!p.value->is_absent() && mask(p));
  return result;
}

namespace {

const MeshImpl* mesh_of(const Array& x) { return x.is_absent() ? nullptr : x.impl()->type->mesh; }

}  // namespace

bool plainly_fits(const nn::BareArrays& params, const nn::BareArrays& grads, const nn::BareArrays& state) {
  if (params.structure != grads.structure || params.arrays.size() != grads.arrays.size()) return false;
  const MeshImpl* mesh = nullptr;
  for (size_t i = 0; i < params.arrays.size(); ++i) {
    const Array &p = *params.arrays[i], &g = *grads.arrays[i];
    if (g.is_absent()) continue;
    if (p.is_absent() || p.impl()->type != g.impl()->type || !is_floating(p.dtype())) return false;
    mesh = p.impl()->type->mesh;
  }
  for (const Array* x : state.arrays)
    if (const MeshImpl* other = mesh_of(*x); other && other != mesh) return false;
  return true;
}

void check_gradients(const nn::Leaves& params, const nn::Leaves& grads) {
  check_same_tree("Optimizer.update", "the gradient", grads, params);
  for (size_t i = 0; i < params.size(); ++i) {
    const Array &p = *params[i].value, &g = *grads[i].value;
    if (g.is_absent()) continue;
    const auto wrong = [&](ErrorKind kind, const char* advice) {
      fail(kind, "Optimizer.update",
           fmt::format("{}: the gradient is {}, the parameter {}. {}", params[i].path, g.type_string(), p.type_string(),
                       advice));
    };
    if (g.dtype() != p.dtype() || !is_floating(p.dtype()))
      wrong(ErrorKind::dtype_mismatch,
            "Both must have the same floating element type; an integer's gradient is absent.");
    if (g.is_committed() && p.is_committed() && g.impl()->type->mesh != p.impl()->type->mesh)
      wrong(ErrorKind::device_mismatch, "Both must lie on the same mesh.");
  }
}

void check_state_mesh(const nn::Leaves& params, const nn::Leaves& state) {
  for (const nn::Leaf& p : params) {
    const MeshImpl* mesh = mesh_of(*p.value);
    if (!mesh) continue;
    for (const nn::Leaf& x : state)
      if (mesh_of(*x.value) && mesh_of(*x.value) != mesh)
        fail(ErrorKind::device_mismatch, "Optimizer.update",
             fmt::format("{}: the state lies on {}, the model on {}. Move the optimizer with "
                         "nn::filter_shard(optimizer, layout), or make a new one.",
                         x.path, Mesh(mesh_of(*x.value)).to_string(), Mesh(mesh).to_string()));
    return;
  }
}

bool has_pending(const Arrays& arrays) {
  for (const Array* x : arrays)
    if (!x->is_absent() && x->impl()->type->unreduced) return true;
  return false;
}

}  // namespace tessera::optim::detail
