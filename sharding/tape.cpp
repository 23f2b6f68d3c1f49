// Shadows, and the gradients of all leaves brought home.
#include "sharding/tape.h"

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "sharding/array_impl.h"
#include "sharding/autograd.h"
#include "sharding/ledger.h"
#include "sharding/recipe.h"
#include "sharding/redistribute.h"

namespace tessera {

using namespace detail;

struct Tape::Guard {
  at::AutoGradMode recording{true};
};

namespace {

Array shadow_of(const Array& x, const std::shared_ptr<TapeState>& state) {
  if (x.is_absent() || !is_floating(x.dtype())) return x;
  ArrayImpl& a = materialized(x, "value_and_grad");
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  ArrayPtr shadow = make_array(a.type, a.slots, std::move(local));
  shadow->weight = true;
  shadow->layout = a.layout;
  Details& details = shadow->detail();
  details.tape = state;
  if (a.details) {
    details.path = a.details->path;
    if (a.details->placed) details.placed = std::make_unique<NamedSharding>(*a.details->placed);
  }
  return Array(std::move(shadow));
}

bool is_traced(const Array& shadow) { return !shadow.is_absent() && shadow.impl()->details && shadow.impl()->details->tape; }

// One leaf and where its gradients stand in the list of all.
struct LeafRange {
  const ArrayImpl* leaf;
  size_t begin;
};

// The contributions to one distinct block of one parameter.
using Contributions = Tensors;

// Every tensor of `leaf`'s gradient that adds to block `block` of the parameter: all coordinates of the reduced axes
// that are stored apart, the first of every other replicated axis.
void add_contributions(const ArrayImpl& parameter, const LeafRange& range, const Tensors& gradients, int block,
                       Contributions& out) {
  const Type* type = range.leaf->type;
  if (!type->mesh) return out.push_back(gradients[range.begin]);
  const Mask fresh = type->reduced & range.leaf->slots & ~parameter.type->reduced;
  int coordinates[max_axes] = {};
  unravel(type->mesh, parameter.type->own(), block, coordinates);
  for (int k = 0; k < type->mesh->count(fresh); ++k) {
    unravel(type->mesh, fresh, k, coordinates);
    out.push_back(gradients[range.begin + ravel(type->mesh, range.leaf->slots, coordinates)]);
  }
}

// Adds up each list, all lists in step, with bulk kernels; the inputs are not written to.
Tensors sum_each(const std::vector<Contributions>& lists) {
  Tensors sums;
  size_t longest = 0;
  for (const Contributions& list : lists) sums.push_back(list[0]), longest = std::max(longest, list.size());
  for (size_t k = 1; k < longest; ++k) {
    std::vector<at::Tensor> left, right;
    std::vector<size_t> places;
    for (size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].size() <= k) continue;
      left.push_back(sums[i]), right.push_back(lists[i][k]), places.push_back(i);
    }
    const std::vector<at::Tensor> added = at::_foreach_add(left, right);
    for (size_t i = 0; i < places.size(); ++i) sums[places[i]] = added[i];
  }
  return sums;
}

void record_bucket(const MeshImpl* mesh, Mask axes, DType dtype, int64_t bytes, int parameters) {
  if (mesh->count(axes) == 1 || !ledger_is_open()) return;
  record_communication({.kind = "all_reduce",
                        .axes = mesh->names(axes),
                        .devices = mesh->count(axes),
                        .bytes = bytes,
                        .operation = "gradients",
                        .operand = fmt::format("{} gradients, {}", parameters, name_of(dtype)),
                        .result = "at the parameters' placements",
                        .path = "",
                        .reason = fmt::format("the work differs along {}", mesh->names(axes)),
                        .backward = true,
                        .where = {}});
}

struct Bucket {
  int64_t bytes = 0;
  int parameters = 0;
};

using Buckets = std::map<std::tuple<const MeshImpl*, Mask, DType>, Bucket>;

void check_loss(const Array& loss) {
  if (loss.is_absent()) fail(ErrorKind::absent, "value_and_grad", "the loss is an absent array.");
  if (loss.ndim() != 0 || !is_floating(loss.dtype()))
    fail(ErrorKind::shape_mismatch, "value_and_grad",
         fmt::format("the loss is {}, expected a floating scalar. Reduce it, for example with mean.", loss.type_string()));
}

[[noreturn]] void fail_no_gradient() {
  fail(ErrorKind::no_gradient, "value_and_grad",
       "no gradient reaches the model: the loss does not depend on the model that the function received. Compute it from "
       "the argument, not from a captured model.");
}

}  // namespace

Tape::Tape(const std::vector<Array>& parameters)
    : state_(std::make_shared<TapeState>()), guard_(std::make_unique<Guard>()) {
  for (const Array& x : parameters) shadows_.push_back(shadow_of(x, state_));
}

Tape::~Tape() {
  state_->open = false;
  for (const Array& x : shadows_) {
    if (!is_traced(x)) continue;
    Details& details = *x.impl()->details;
    details.tape = nullptr;
    details.leaves.clear();
    details.conversions.clear();
  }
}

std::vector<Array> Tape::gradients(const Array& loss) {
  check_loss(loss);
  materialized(loss, "value_and_grad");
  ArrayPtr root = loss.impl();
  if (root->type->reduced) root = convert(*root, root, with_reduced(root->type, 0), {.operation = "loss"});
  if (is_tape_parameter(*root)) root = convert(*root, root, root->type, {.operation = "loss"});
  if (!wants_gradient(*root)) fail_no_gradient();

  std::vector<std::vector<LeafRange>> ranges(shadows_.size());
  Tensors leaves, seeds;
  for (size_t p = 0; p < shadows_.size(); ++p) {
    if (!is_traced(shadows_[p])) continue;
    for (const ArrayPtr& leaf : shadows_[p].impl()->details->leaves) {
      ranges[p].push_back({leaf.get(), leaves.size()});
      for (const at::Tensor& t : leaf->local) leaves.push_back(t);
    }
  }
  if (leaves.empty()) fail_no_gradient();
  for (const at::Tensor& t : root->local) seeds.push_back(at::ones_like(t));
  Tensors grads = detail::gradients(root->local, seeds, leaves);
  if (std::none_of(grads.begin(), grads.end(), [](const at::Tensor& t) { return t.defined(); })) fail_no_gradient();

  at::AutoGradMode off(false);
  std::vector<Contributions> lists;
  std::vector<size_t> first(shadows_.size());
  Buckets buckets;
  for (size_t p = 0; p < shadows_.size(); ++p) {
    if (!is_traced(shadows_[p])) continue;
    const ArrayImpl& a = *shadows_[p].impl();
    first[p] = lists.size();
    Mask axes = 0;
    const MeshImpl* mesh = a.type->mesh;
    const int blocks = mesh ? mesh->count(a.type->own()) : 1;
    lists.resize(lists.size() + blocks);
    for (const LeafRange& range : ranges[p]) {
      const auto begin = grads.begin() + static_cast<ptrdiff_t>(range.begin);
      const auto end = begin + static_cast<ptrdiff_t>(range.leaf->local.size());
      if (std::none_of(begin, end, [](const at::Tensor& t) { return t.defined(); })) continue;
      for (auto g = begin; g != end; ++g)
        if (!g->defined()) *g = at::zeros_like(range.leaf->local[g - begin]);
      axes |= range.leaf->type->reduced & ~a.type->reduced;
      if (range.leaf->type->mesh) mesh = range.leaf->type->mesh;
      for (int b = 0; b < blocks; ++b) add_contributions(a, range, grads, b, lists[first[p] + b]);
    }
    for (int b = 0; b < blocks; ++b)
      if (lists[first[p] + b].empty()) lists[first[p] + b].push_back(at::zeros_like(a.local[0]));
    if (axes) {
      Bucket& bucket = buckets[{mesh, axes, a.type->dtype}];
      bucket.bytes += a.type->bytes;
      bucket.parameters += 1;
    }
  }
  for (const auto& [key, bucket] : buckets)
    record_bucket(std::get<0>(key), std::get<1>(key), std::get<2>(key), bucket.bytes, bucket.parameters);

  const Tensors sums = sum_each(lists);
  std::vector<Array> result;
  for (size_t p = 0; p < shadows_.size(); ++p) {
    if (!is_traced(shadows_[p])) {
      result.emplace_back();
      continue;
    }
    const ArrayImpl& a = *shadows_[p].impl();
    Tensors local;
    for (size_t i = 0; i < a.local.size(); ++i)
      local.push_back(sums[first[p] + project(a.type->mesh, a.slots, static_cast<int>(i), a.type->own())]);
    ArrayPtr gradient = make_array(a.type, a.slots, std::move(local));
    gradient->layout = a.layout;
    gradient->detail().path = a.details->path;
    if (a.details->placed) gradient->detail().placed = std::make_unique<NamedSharding>(*a.details->placed);
    result.emplace_back(std::move(gradient));
  }
  return result;
}

Array detached(const Array& x) {
  if (x.is_absent()) return x;
  at::AutoGradMode off(false);
  const ArrayImpl& a = materialized(x, "value_and_grad");
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  ArrayPtr plain = make_array(a.type, a.slots, std::move(local));
  plain->layout = a.layout;
  if (!a.type->unreduced && !a.type->reduced) return Array(std::move(plain));
  static const Text reason = std::make_shared<const std::string>("value_and_grad hands out values, not pending sums");
  return Array(convert(*plain, plain, with_unreduced(with_reduced(a.type, 0), 0), {.operation = "loss", .where = {}, .reason = reason}));
}

}  // namespace tessera
