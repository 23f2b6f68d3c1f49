// Types of states from those of parameters, and trees moved there and back.
#include "optim/state_placement.h"

#include <algorithm>
#include <unordered_map>

#include "optim/internal.h"
#include "sharding/diagnostics/fail.h"
#include "sharding/redistribution/coalesced.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

// The parameter's type, cut further over `axes` on the first dim that they divide.
const Type* state_type(const Type* parameter, const OptimizerOptions& options) {
  const MeshImpl* mesh = parameter->mesh;
  if (!mesh) return parameter;
  std::vector<int> axes;
  int devices = 1;
  for (const std::string& name : options.shard_state) {
    const int axis = mesh->find(name);
    if (axis < 0 || mesh->axes[axis].size == 1 || parameter->own() >> axis & 1) continue;
    axes.push_back(axis);
    devices *= static_cast<int>(mesh->axes[axis].size);
  }
  for (size_t d = 0; d < parameter->shape.size() && devices > 1; ++d) {
    if (parameter->local[d] % devices) continue;
    TypeKey key = *parameter;
    for (int axis : axes) key.dims[d].push_back(axis);
    return intern(std::move(key));
  }
  return parameter;
}

// All of it on every device of its mesh.
const Type* whole(const Type* type) {
  return placed_type(type->dtype, type->shape, NamedSharding(Mesh(type->mesh), PartitionSpec{}));
}

// Where the parameter was never placed: the value, as an array that was not, either.
ArrayPtr unplaced(const ArrayPtr& a) {
  if (!a->type->mesh) return a;
  ArrayPtr made = make_array(uncommitted_type(a->type->dtype, a->type->shape), {in_memory_of(nullptr, a->local[0])});
  copy_facts(*a, *made);
  return made;
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

template <class TypeOf>
void place(const Arrays& tree, const Arrays& params, const char* reason, TypeOf type_of) {
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
  std::vector<ArrayPtr> placed = convert_coalesced(
      arrays, to,
      {.operation = "Optimizer.update", .where = {}, .reason = tessera::detail::as_text(reason), .path = {}});
  for (size_t i = 0; i < values.size(); ++i) {
    if (!homes[i]->mesh) placed[i] = unplaced(placed[i]);
    if (placed[i] != arrays[i]) *values[i] = Array(std::move(placed[i]));
  }
}

}  // namespace

void place_with_state(const Arrays& tree, const Arrays& params, const OptimizerOptions& options) {
  place(tree, params, "the optimizer's state is sharded over the batch's axes",
        [&](const Type* type) { return state_type(type, options); });
}

void place_with_parameters(const Arrays& tree, const Arrays& params) {
  place(tree, params, "a parameter stays where it was placed", [](const Type* type) { return type; });
}

void gather_updated(const Arrays& shards, const Arrays& before, const Arrays& params) {
  Arrays updated, homes;
  for (size_t i = 0; i < shards.size(); ++i)
    if (!shards[i]->is_same(*before[i])) updated.push_back(shards[i]), homes.push_back(params[i]);
  place_with_parameters(updated, homes);
  for (size_t i = 0; i < homes.size(); ++i) *homes[i] = like_parameter(*updated[i], *homes[i], "Optimizer.update");
}

void check_axes(const Arrays& params, const OptimizerOptions& options) {
  for (const std::string& name : options.shard_state)
    if (std::count(options.shard_state.begin(), options.shard_state.end(), name) > 1)
      fail(ErrorKind::bad_argument, "Optimizer", "shard_state: \"{}\" given twice, expected each axis once.", name);
  for (const Array* p : params) {
    if (p->is_absent()) continue;
    const MeshImpl* mesh = p->impl()->type->mesh;
    for (const std::string& name : options.shard_state)
      if (mesh && mesh->find(name) < 0)
        fail(ErrorKind::unknown_axis, "Optimizer", "shard_state: \"{}\" given, expected an axis of the mesh ({}).",
             name, Mesh(mesh).to_string());
    if (mesh) return;
  }
}

}  // namespace tessera::optim::detail
