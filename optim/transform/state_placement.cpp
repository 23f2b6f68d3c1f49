// Types of states from those of parameters, and trees moved there and back.
#include "optim/transform/state_placement.h"

#include <algorithm>
#include <unordered_map>

#include "optim/transform/internal.h"
#include "sharding/placement/cut_further.h"
#include "sharding/redistribution/coalesced.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

// All of it on every device of its mesh.
const Type* whole(const Type* type) {
  return placed_type(type->dtype, type->shape, NamedSharding(Mesh(type->mesh), PartitionSpec{}));
}

// What type_of gives, computed once for what has one type.
template <class TypeOf>
class Remembered {
 public:
  explicit Remembered(TypeOf type_of) : type_of_(std::move(type_of)) {}
  const Type* operator()(const Type* type) {
    const auto [found, is_new] = known_.try_emplace(type, nullptr);
    if (is_new) found->second = type_of_(type);
    return found->second;
  }

 private:
  TypeOf type_of_;
  std::unordered_map<const Type*, const Type*> known_;
};

// `move` is convert_coalesced or convert_ahead.
template <class TypeOf, class Move>
void place(const Arrays& tree, const Arrays& params, const char* reason, TypeOf type_of, Move move) {
  Remembered<TypeOf> home_of(std::move(type_of));
  std::vector<Array*> values;
  std::vector<ArrayPtr> arrays;
  std::vector<const Type*> homes, to;
  for (size_t i = 0; i < tree.size(); ++i) {
    if (tree[i]->is_absent() || params[i]->is_absent()) continue;
    const Type* type = home_of(params[i]->impl()->type);
    if (!type->mesh && !tree[i]->is_committed()) continue;  // and a recipe stays one
    const ArrayImpl& a = materialized(*tree[i], "Optimizer.update");
    values.push_back(tree[i]);
    arrays.push_back(tree[i]->impl());
    homes.push_back(type);
    to.push_back(!type->mesh ? whole(a.type) : type->dtype == a.type->dtype ? type : with_dtype(type, a.type->dtype));
  }
  const Provenance cause{"Optimizer.update", {}, tessera::detail::as_text(reason), {}};
  std::vector<ArrayPtr> placed = move(arrays, to, cause);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!homes[i]->mesh) placed[i] = taken_off_mesh(placed[i]);
    if (placed[i] != arrays[i]) *values[i] = Array(std::move(placed[i]));
  }
}

}  // namespace

namespace {

constexpr const char* stays = "a parameter stays where it was placed";
constexpr auto own_place = [](const Type* type) { return type; };
constexpr auto at_once = [](const auto& arrays, const auto& to, const Provenance& cause) {
  return convert_coalesced(arrays, to, cause);
};

}  // namespace

void place_with_state(const Arrays& tree, const Arrays& params, const OptimizerOptions& options) {
  place(
      tree, params, "the optimizer's state is sharded over the batch's axes",
      [&](const Type* type) { return cut_further(type, options.shard_state_over); }, at_once);
}

void place_with_parameters(const Arrays& tree, const Arrays& params) { place(tree, params, stays, own_place, at_once); }

void gather_updated(const Arrays& shards, const Arrays& before, const Arrays& params) {
  Arrays updated, homes;
  for (size_t i = 0; i < shards.size(); ++i)
    if (!shards[i]->is_same(*before[i])) updated.push_back(shards[i]), homes.push_back(params[i]);
  try {
    place(updated, homes, stays, own_place, convert_ahead);
  } catch (...) {  // the state is already updated, so keep the updated parameters, sharded like the state
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
    copy_facts(*homes[i]->impl(), *updated[i]->impl());  // it is on its way
    updated[i]->impl()->weight = homes[i]->impl()->weight;
    *homes[i] = *updated[i];
  }
}

void check_axes(const Arrays& params, const OptimizerOptions& options) {
  const auto placed = std::find_if(params.begin(), params.end(),
                                   [](const Array* p) { return !p->is_absent() && p->impl()->type->mesh; });
  tessera::detail::check_axes("Optimizer", "shard_state_over", options.shard_state_over,
                              placed == params.end() ? nullptr : (*placed)->impl()->type->mesh);
}

}  // namespace tessera::optim::detail
