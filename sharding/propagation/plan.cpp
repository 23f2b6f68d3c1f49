// Finds the mesh of a plan's operands, and rejects factors that a rule does not have.
#include "sharding/propagation/plan.h"

#include "sharding/base/fail.h"

namespace tessera::detail {

const MeshImpl* common_mesh(const char* verb, std::span<const Type* const> types) {
  const Type* first = nullptr;
  for (const Type* type : types) {
    if (!type->mesh) continue;
    if (!first) first = type;
    if (first->mesh != type->mesh)
      fail(ErrorKind::device_mismatch, verb,
           "{} is on the mesh ({}), {} on ({}){}. Move one to the other's mesh with device_put.", first->to_string(),
           Mesh(first->mesh).to_string(), type->to_string(), Mesh(type->mesh).to_string(),
           first->mesh->axes == type->mesh->axes ? ", with other devices or replicas" : "");
  }
  return first ? first->mesh : nullptr;
}

void BlockContext::refuse(std::string_view factor) {
  fail(ErrorKind::invalid_argument, "BlockContext", "the rule has no factor \"{}\".", factor);
}

bool adds_up_here(const Plan& plan) {
  return plan.shares_the_cpu() && !plan.is_padded && !plan.mesh->private_replicas &&
         plan.out[0]->unreduced & plan.slots;
}

std::vector<std::vector<int>> slots_by_sum(const Plan& plan) {
  const AxisSet apart = plan.slots & ~plan.out[0]->unreduced;
  std::vector<std::vector<int>> slots(plan.mesh->slots(apart));
  for (int s = 0; s < plan.runs; ++s) slots[project(plan.mesh, plan.slots, s, apart)].push_back(s);
  return slots;
}

void Attributes::refuse_more() {
  fail(ErrorKind::invalid_argument, "operation", "more attributes than an operation can have.");
}

void check_attributes(const char* verb, const Array& x, const char* what, size_t given, size_t others) {
  const size_t most = Attributes::most - others;
  if (given > most)
    fail(ErrorKind::invalid_argument, verb, "{}: {} {}, expected at most {}.", x.type_string(), given, what, most);
}

}  // namespace tessera::detail
