// Derives optimizer state shardings from the parameters', reshards between the two, and moves states to the host.
#include "optim/transform/state_placement.h"

#include <algorithm>
#include <unordered_map>

#include "optim/transform/internal.h"
#include "sharding/array/host_memory.h"
#include "sharding/base/fail.h"
#include "sharding/placement/type.h"
#include "sharding/redistribution/coalesced.h"
#include "sharding/runtime/graph.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

// Returns the type replicated on its mesh.
const Type* whole(const Type* type) {
  return placed_type(type->dtype, type->shape, NamedSharding(Mesh(type->mesh), PartitionSpec{}));
}

// Reshards the arrays of `tree`, each to type_of(the type of its parameter), which is called once for each type.
template <class TypeOf>
void place(const Arrays& tree, const Arrays& params, const char* reason, TypeOf type_of,
           const ConvertOptions& options = {}) {
  std::unordered_map<const Type*, const Type*> known;
  std::vector<Array*> values;
  std::vector<ArrayPtr> arrays;
  std::vector<const Type*> homes, to;
  for (size_t i = 0; i < tree.size(); ++i) {
    if (tree[i]->is_absent() || params[i]->is_absent()) continue;
    const auto [found, is_new] = known.try_emplace(params[i]->impl()->type, nullptr);
    if (is_new) found->second = type_of(found->first);
    const Type* type = found->second;
    if (!type->mesh && !tree[i]->is_committed()) continue;  // keep a lazy initializer lazy
    const ArrayImpl& a = materialized(*tree[i], "Optimizer.update");
    values.push_back(tree[i]);
    arrays.push_back(tree[i]->impl());
    homes.push_back(type);
    to.push_back(!type->mesh ? whole(a.type) : type->dtype == a.type->dtype ? type : with_dtype(type, a.type->dtype));
  }
  const Provenance cause{"Optimizer.update", {}, tessera::detail::as_text(reason), {}};
  std::vector<ArrayPtr> placed = convert_coalesced(arrays, to, cause, options);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!homes[i]->mesh) placed[i] = taken_off_mesh(placed[i]);
    if (placed[i] != arrays[i]) *values[i] = Array(std::move(placed[i]));
  }
}

constexpr const char* stays = "a parameter keeps its sharding";
constexpr auto own_place = [](const Type* type) { return type; };

}  // namespace

void place_with_state(const Arrays& tree, const Arrays& params, const OptimizerOptions& options) {
  place(tree, params, "the optimizer's state is sharded over the batch's axes",
        [&](const Type* type) { return cut_further(type, options.shard_state_over); });
}

void place_with_parameters(const Arrays& tree, const Arrays& params) { place(tree, params, stays, own_place); }

void gather_updated(const Arrays& shards, const Arrays& before, const Arrays& params) {
  Arrays updated, homes;
  for (size_t i = 0; i < shards.size(); ++i)
    if (!shards[i]->is_same(*before[i])) updated.push_back(shards[i]), homes.push_back(params[i]);
  try {
    place(updated, homes, stays, own_place, {.ahead = true});
  } catch (...) {  // the state is already updated: keep the updated parameters, sharded like the state
    for (size_t i = 0; i < homes.size(); ++i) {
      if (const auto& details = homes[i]->impl()->details) updated[i]->impl()->detail().path = details->path;
      updated[i]->impl()->weight = homes[i]->impl()->weight;
      *homes[i] = *updated[i];
    }
    throw;
  }
  for (size_t i = 0; i < homes.size(); ++i) {
    if (updated[i]->impl()->is_ready()) {
      *homes[i] = like_parameter(*updated[i], *homes[i], "Optimizer.update");
      continue;
    }
    copy_facts(*homes[i]->impl(), *updated[i]->impl());  // its gather is still running
    updated[i]->impl()->weight = homes[i]->impl()->weight;
    *homes[i] = *updated[i];
  }
}

void move_to_host(const Arrays& state) {
  for (Array* x : state) {
    *x = in_host_memory(*x);
    if (host_tensors(*x)) refuse_in_recording("Optimizer.update", "a state in host memory is updated");
  }
}

MemoryKind& new_state_memory_kind() {
  thread_local MemoryKind kind = MemoryKind::device;
  return kind;
}

void check_on_device(const OptimizerOptions& options) {
  if (options.state_memory_kind == MemoryKind::device) return;
  fail(ErrorKind::invalid_argument, "Optimizer",
       "state_memory_kind = pinned_host given for a transform that updates several arrays together or contains others, "
       "expected a formula for each array or a chain of them (adamw, sgd, lion, ...). Use such a chain, or "
       "MemoryKind::device.");
}

void check_axes(const Arrays& params, const OptimizerOptions& options) {
  const auto placed = std::find_if(params.begin(), params.end(),
                                   [](const Array* p) { return !p->is_absent() && p->impl()->type->mesh; });
  tessera::detail::check_axes("Optimizer", "shard_state_over", options.shard_state_over,
                              placed == params.end() ? nullptr : (*placed)->impl()->type->mesh);
}

}  // namespace tessera::optim::detail
