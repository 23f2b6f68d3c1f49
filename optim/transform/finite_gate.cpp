// Reads a DeviceScalar, and computes a FiniteGate's decision, counts and selections with array operations.
#include "optim/transform/finite_gate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "optim/transform/internal.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/runtime/graph.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

bool has_values(const Array& x) { return !x.is_committed() || !x.impl()->type->mesh->abstract; }

Array as_count(const Array& x) { return astype(x, int32); }

}  // namespace

DeviceScalar::DeviceScalar(Array value) : on_device_(std::move(value)), recorded_(host_work() != nullptr) {
  if (!has_values(on_device_)) value_ = std::numeric_limits<double>::quiet_NaN();
}

DeviceScalar DeviceScalar::now() const {
  if (!recorded_ || host_work() || on_device_.is_absent()) return *this;
  const ArrayImpl& a = *on_device_.impl();
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.clone());
  return DeviceScalar(Array(make_array(a.type, a.slots, std::move(local))));
}

Array DeviceScalar::array(const Array& x) const {
  return on_device_.is_absent() ? zeros_on_mesh_of(x, {}, DType::float32) + value_ : on_device_;
}

double& DeviceScalar::value() const {
  if (!on_device_.is_absent() && has_values(on_device_)) value_ = std::exchange(on_device_, Array()).item<double>();
  return value_;
}

double DeviceScalar::read(const char* verb) const {
  if (on_device_.is_absent() || has_values(on_device_)) return value();
  const MeshImpl* mesh = on_device_.impl()->type->mesh;
  const std::string place = Mesh(mesh).to_string();
  if (!mesh->elsewhere)
    fail(ErrorKind::invalid_argument, verb, "the model is on the abstract mesh ({}), which holds no values.", place);
  fail(ErrorKind::invalid_argument, verb,
       "the model is on the mesh ({}), whose devices are those of {}. Reading does not communicate: read it there.",
       place, mesh->words_of_members());
}

Array not_finite(const Arrays& arrays) {
  at::AutoGradMode off(false);
  std::vector<Array> wrong;
  for (const Array* x : arrays)
    if (!x->is_absent()) wrong.push_back(sum(astype(logical_not(isfinite(*x)), float32)));
  return total(wrong);
}

FiniteGate::FiniteGate(const Arrays& updates, DeviceCounts before, int64_t in_a_row, int64_t total,
                       int64_t max_in_a_row, std::function<void()> read)
    : before_(std::move(before)), read_(std::move(read)) {
  const at::AutoGradMode off(false);
  finite_ = equal(not_finite(updates), 0.0);
  const auto as_int32 = [](int64_t n) { return static_cast<int32_t>(std::min<int64_t>(n, INT32_MAX - 1)); };
  const Array none = as_count(logical_not(finite_)) * 0;
  if (before_.rejected.is_absent())
    before_ = {.in_a_row = none + as_int32(in_a_row), .total = none + as_int32(total), .finite = {}, .rejected = none};
  in_a_row_ = where(finite_, none, before_.in_a_row + 1);
  total_ = before_.total + as_count(logical_not(finite_));
  applies_ = logical_or(finite_, in_a_row_ > as_int32(max_in_a_row));
}

void FiniteGate::select(const Arrays& next, const Arrays& before) const {
  const at::AutoGradMode off(false);
  for (size_t i = 0; i < next.size(); ++i)
    if (!next[i]->is_absent() && !before[i]->is_absent() && !next[i]->is_same(*before[i]))
      *next[i] = kept(where(applies_, *next[i], *before[i]), *before[i], "apply_if_finite");
}

DeviceScalar FiniteGate::select(const DeviceScalar& next, const DeviceScalar& before) const {
  return DeviceScalar(where(applies_, next.array(applies_), before.array(applies_)));
}

void FiniteGate::select(const Arrays& updates) const {
  const at::AutoGradMode off(false);
  for (Array* u : updates)
    if (!u->is_absent()) *u = where(applies_, *u, 0.0);
}

void FiniteGate::read() {
  if (before_.updates == 0) return;
  read_();
  before_.rejected = before_.rejected * 0;
  before_.updates = 0;
}

DeviceCounts FiniteGate::next() const {
  const at::AutoGradMode off(false);
  return {.in_a_row = in_a_row_,
          .total = total_,
          .finite = finite_,
          .rejected = before_.rejected + as_count(logical_not(applies_)),
          .updates = before_.updates + 1};
}

}  // namespace tessera::optim::detail
