// The cache of plans, and the conversion of operands for an operation.
#include "sharding/propagation/run.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <typeinfo>
#include <unordered_map>

#include "sharding/accounting/operation_event.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/consistency.h"
#include "sharding/array/host_sync.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"
#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/base/thread_state.h"
#include "sharding/placement/mesh.h"
#include "sharding/propagation/padded_factors.h"
#include "sharding/propagation/plan.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/stages.h"
#include "sharding/runtime/hardware.h"

namespace tessera::detail {

// Everything that a plan depends on, except for the attributes.
struct CallKind {
  const Operation* operation;
  uint32_t weights = 0;
  int8_t operands;
  DType out_dtype, rest_dtype;
  const Type* types[max_operands];  // unset past the operands

  CallKind(const CallSite& site, int n)
      : operation(&site.operation),
        operands(static_cast<int8_t>(n)),
        out_dtype(site.out_dtype),
        rest_dtype(site.rest_dtype) {}

  bool operator==(const CallKind& o) const {
    if (operation != o.operation || weights != o.weights || operands != o.operands || out_dtype != o.out_dtype ||
        rest_dtype != o.rest_dtype)
      return false;
    for (int i = 0; i < operands; ++i)
      if (types[i] != o.types[i]) return false;
    return true;
  }
};

namespace {

struct PlanKey {
  CallKind kind;
  Attributes attributes;
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

inline size_t hash_of(const CallKind& kind, const Attributes& attributes) {
  uint64_t h = reinterpret_cast<uintptr_t>(kind.operation) + kind.weights;
  const auto mix = [&](uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15ull, h ^= h >> 32; };
  for (int i = 0; i < kind.operands; ++i) mix(reinterpret_cast<uintptr_t>(kind.types[i]));
  for (int i = 0; i < attributes.size(); ++i) mix(static_cast<uint64_t>(attributes[i]));
  return h;
}

struct PlanKeyHash {
  size_t operator()(const PlanKey& k) const { return hash_of(k.kind, k.attributes); }
};

using PlanMap = std::unordered_map<PlanKey, std::shared_ptr<const Plan>, PlanKeyHash>;

struct Plans {
  BoundedCache<PlanMap, max_plans> all;
  // The last plan found for each remainder of the hash, which most calls reuse.
  std::array<const PlanMap::value_type*, 512> recent{};
};

Plans& plans() {
  thread_local Plans cache;
  return cache;
}

std::shared_ptr<const Plan> made_plan(const CallKind& kind, const Attributes& attributes) {
  common_mesh(kind.operation->name, {kind.types, static_cast<size_t>(kind.operands)});
  return make_plan({.operation = *kind.operation,
                    .attributes = attributes,
                    .operands = {kind.types, kind.types + kind.operands},
                    .weights = kind.weights,
                    .out_dtype = kind.out_dtype,
                    .rest_dtype = kind.rest_dtype});
}

// Returns the conversion of the same array as an earlier operand, so that a weight used twice in a call is gathered
// once.
ArrayPtr held_already(const Prepared& call, int operand, const Array* const* operands, const Type* to) {
  for (int i = 0; i < operand; ++i)
    if (const ArrayPtr& held = call.state->held[i];
        operands[i]->impl() == operands[operand]->impl() && held && held->type == to)
      return held;
  return nullptr;
}

}  // namespace

struct WatchedCall : OtherPlans {
  CallKind kind;
  Attributes attributes;
  std::vector<const ArrayImpl*> given;
  std::shared_ptr<OperationCall> call;

  WatchedCall(const CallKind& k, const Attributes& a) : kind(k), attributes(a) {}
  OperationArrays arrays(const Prepared& prepared) const {
    return {.given = given, .read = {prepared.array, given.size()}, .plans = this};
  }
  Plan with(size_t operand, const Type* type) const override {
    CallKind other = kind;
    other.types[operand] = type;
    const auto plan = made_plan(other, attributes);
    return {plan->operands[operand].plain, plan->out[0]};
  }
};

CallState::~CallState() = default;

size_t plan_count() { return plans().all.size(); }
void clear_plans() { plans() = {}; }

namespace {

// Throws the error of a plan that cannot be made, and inserts the path of the first parameter among the operands after
// the verb.
[[noreturn]] void rethrow_with_path(const Error& error, ArrayImpl* const* arrays, int n) {
  for (int i = 0; i < n; ++i) {
    if (!arrays[i]->details || !arrays[i]->details->path) continue;
    const std::string &path = *arrays[i]->details->path, text = error.what();
    const size_t begin = text.find("] ") + 2;
    std::string rest = text.substr(begin);
    if (path.empty() || begin < 2 || rest.find(path) != std::string::npos) break;
    const Text& module = current_module_path();
    if (module && rest.starts_with(*module + ": ")) rest.erase(0, module->size() + 2);
    throw Error(error.kind(), text.substr(0, begin) + path + ": " + rest);
  }
  throw error;
}

// Cold path, noinline: keeps the code for a cached plan in prepare() compact.
[[gnu::noinline]] const Plan* find_or_make(const CallSite& site, CallKind& kind, ArrayImpl* const* arrays,
                                           const PlanMap::value_type*& recent) try {
  limit_threads();
  std::fill(kind.types + kind.operands, kind.types + max_operands, nullptr);
  const auto& found = plans().all.get(PlanKey{kind, site.attributes}, [&] { return made_plan(kind, site.attributes); });
  if (plans().all.size() == 1) plans().recent.fill(nullptr);  // other plans may have been set aside
  recent = &found;
  return found.second.get();
} catch (const Error& error) {
  rethrow_with_path(error, arrays, kind.operands);
}

[[gnu::always_inline]] inline const Plan* plan_for(const CallSite& site, CallKind& kind, ArrayImpl* const* arrays) {
  auto& recent = plans().recent;
  const PlanMap::value_type*& last = recent[hash_of(kind, site.attributes) % recent.size()];
  if (last && last->first.kind == kind && last->first.attributes == site.attributes) return last->second.get();
  return find_or_make(site, kind, arrays, last);
}

// Cold path: finds or makes a conversion of the operand.
[[gnu::noinline]] void reshard_operand(Prepared& call, const CallSite& site, const Array* const* operands, int i,
                                       const Type* to, bool recorded) {
  ArrayImpl& a = *operands[i]->impl();
  if (recorded && !a.type->mesh && to->mesh && to->mesh->abstract)
    fail(ErrorKind::device_mismatch, site.operation.name,
         "the parameter {} is not on a mesh, other operands are on the {} ({}), where gradients have no values. Place "
         "the model there with filter_shard.",
         a.type->to_string(), to->mesh->elsewhere ? "mesh of other processes" : "abstract mesh",
         Mesh(to->mesh).to_string());
  if (const ArrayPtr* known = cached_conversion(a, operands[i]->impl(), to, recorded)) {
    call.array[i] = known->get();
    return;
  }
  ArrayPtr& held = call.own().held[i];
  held = held_already(call, i, operands, to);
  if (!held)
    held = convert(a, operands[i]->impl(), to,
                   {.operation = site.operation.name, .where = site.where, .reason = call.plan->reason, .path = {}});
  call.array[i] = held.get();
  call.frees_weights |= held->details && held->details->reshard_after_forward;
}

}  // namespace

void check_operands(const Operation& operation, const OperandTypes& operands) {
  AxisSet pending = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const AxisSet mine = operands[i]->unreduced;
    const bool allowed = operation.linearity == Linearity::additive          ? mine == operands[0]->unreduced
                         : operation.linearity == Linearity::multilinear     ? (mine & pending) == 0
                         : operation.linearity == Linearity::linear_in_first ? mine == 0 || i == 0
                                                                             : mine == 0;
    if (!allowed)
      fail_broken(operation.name,
                  fmt::format("operand {} {} is a partial sum, which this operation would read as a value.", i,
                              operands[i]->to_string()));
    pending |= mine;
  }
}

namespace {

void check_types(const Prepared& call, const Operation& operation) {
  std::vector<const Type*> types;
  for (int i = 0; i < call.operands; ++i) types.push_back(call.array[i]->type);
  check_operands(operation, types);
}

[[gnu::noinline]] void watch(Prepared& call, const CallSite& site, const CallKind& kind, ArrayImpl* const* given) {
  auto watched = std::make_shared<WatchedCall>(kind, site.attributes);
  watched->given.assign(given, given + call.operands);
  watched->call = begin_call(site.operation.name, site.where, call.plan->reason, watched->arrays(call));
  call.own().watched = std::move(watched);
}

// Operands on several stages (stages.h): makes the plan for one stage, to which `reshard_operand` moves the others.
[[gnu::noinline]] void plan_on_one_stage(Prepared& call, CallKind& kind, const ArrayImpl* const* arrays) {
  const MeshImpl* stage = stage_of(arrays, kind.operands);
  if (!stage) return;
  for (int i = 0; i < kind.operands; ++i)
    if (kind.types[i]->mesh) kind.types[i] = type_on(kind.types[i], stage);
  call.mesh_rules = mesh_rules_on(call.mesh_rules, stage);
}

// Records the operation for errors of an accelerator, whose kernels run later and do not report the operation.
void note(const CallSite& site) {
  latest_operation() = {site.operation.name, site.where};
  if (host_syncs_are_errors()) forbid_host_syncs_of_thread();
}

// Records the operands in `kind`. Returns true if they may be on several stages.
inline bool note_operands(CallKind& kind, ArrayImpl** arrays, const CallSite& site, const Array* const* operands) {
  const MeshImpl* mesh = nullptr;
  bool has_stages = current_tape() && current_tape()->first_stage;
  for (int i = 0; i < kind.operands; ++i) {
    arrays[i] = &materialized(*operands[i], site.operation.name);
    kind.types[i] = arrays[i]->type;
    if (const MeshImpl* own = kind.types[i]->mesh) {
      has_stages |= mesh && own != mesh;
      mesh = own;
    }
    kind.weights |= static_cast<uint32_t>(arrays[i]->weight) << i;
  }
  if (kind.out_dtype == like_first) kind.out_dtype = kind.types[0]->dtype;
  if (kind.rest_dtype == like_first) kind.rest_dtype = kind.types[0]->dtype;
  return has_stages;
}

}  // namespace

const Plan* plan_of(const CallSite& site, std::initializer_list<const Array*> operands) {
  CallKind kind(site, static_cast<int>(operands.size()));
  ArrayImpl* arrays[max_operands];
  return note_operands(kind, arrays, site, operands.begin()) ? nullptr : plan_for(site, kind, arrays);
}

void prepare(Prepared& call, const CallSite& site, const Array* const* operands, int n) {
  CallKind kind(site, n);
  ArrayImpl* arrays[max_operands];
  const bool has_stages = note_operands(kind, arrays, site, operands);
  call.weight = kind.weights == (1u << n) - 1;
  for (int i = 0; i < n && !call.mesh_rules; ++i) call.mesh_rules = arrays[i]->mesh_rules;
  if (has_stages) plan_on_one_stage(call, kind, arrays);
  call.plan = plan_for(site, kind, arrays);
  metered_stage() = stage_number(call.plan->mesh);
  if (call.plan->mesh && !call.plan->mesh->device.is_cpu()) note(site);
  call.operands = n;
  call.in_turn = site.in_turn;
  call.where = site.where;
  for (int i = 0; i < n; ++i) {
    const Plan::Operand& wanted = call.plan->operands[i];
    ArrayImpl& a = *arrays[i];
    const bool recorded = wanted.plain != wanted.recorded || a.details ? wants_gradient(a) : false;
    const Type* to = recorded ? wanted.recorded : wanted.plain;
    call.index[i] = (recorded ? wanted.recorded_index : wanted.plain_index).data();
    if (a.type == to && !recorded)
      call.array[i] = &a;
    else
      reshard_operand(call, site, operands, i, to, recorded);
    if (call.plan->is_padded && to->padded) read_padded(call, site, i);
  }
  if (call.plan->is_padded) expand_over_padding(call, site);
  if (checks) check_types(call, site.operation);
  if (are_operations_observed()) watch(call, site, kind, arrays);
}

namespace {

// Returns a kernel's message without LibTorch's backtrace; null for other exceptions. oneDNN's class is recognized by
// name, which needs none of its headers.
const char* words_of_kernel(const std::exception& error) {
  if (const auto* refusal = dynamic_cast<const c10::Error*>(&error)) return refusal->what_without_backtrace();
  return std::string_view(typeid(error).name()) == "N4dnnl5errorE" ? error.what() : nullptr;
}

}  // namespace

void refuse(const Prepared& call, const char* operation, const std::exception& error) {
  std::vector<std::string> operands;
  for (int i = 0; i < call.operands; ++i) operands.push_back(call.array[i]->type->to_string());
  check_allocation(error, operation, call.where, fmt::format("given {}", fmt::join(operands, ", ")),
                   call.plan->mesh ? call.plan->mesh->device : c10::Device(c10::kCPU));
  const char* kernel = words_of_kernel(error);
  if (!kernel) throw;
  const std::string_view first = first_line(kernel);
  const bool by_zero = first == "ZeroDivisionError";
  fail(ErrorKind::invalid_argument, operation, "given {}: {}", fmt::join(operands, ", "),
       by_zero ? "an integer by 0, which has no value. Give other divisors, or a floating type." : first);
}

namespace {

void notify(const Prepared& call, std::span<const Array> results) {
  OperationArrays arrays = call.state->watched->arrays(call);
  arrays.results = results;
  detail::notify(call.state->watched->call, arrays);
}

void free_weights(const Prepared& call, std::span<const Array> results) {
  Tensors all;
  for (const Array& x : results) all.append(x.impl()->local.begin(), x.impl()->local.end());
  for (int i = 0; i < call.operands; ++i)
    if (const ArrayPtr& held = call.state->held[i]; held && held->details && held->details->reshard_after_forward)
      held->details->reshard_after_forward->free_after_use(held->local, all);
}

}  // namespace

void finish_results(const Prepared& call, std::span<const Array> results) {
  if (call.plan->is_padded)
    for (const Array& x : results) clear_padding(call, *x.impl());
  if (call.is_watched()) notify(call, results);
  if (call.frees_weights) free_weights(call, results);
}

ArrayPtr begin_result(const Prepared& call, int output) {
  auto result = std::make_shared<ArrayImpl>();
  result->type = call.plan->out[output];
  result->slots = call.plan->slots;
  result->weight = call.weight;
  result->mesh_rules = call.mesh_rules;
  return result;
}

ArrayPtr finish(const Prepared& call, Tensors out, AxisSet slots) {
  const Array result(begin_result(call));
  result.impl()->slots = slots;
  result.impl()->local = std::move(out);
  finish_results(call, {&result, 1});
  return result.impl();
}

ArrayPtr finish(const Prepared& call, Tensors out) { return finish(call, std::move(out), call.plan->slots); }

}  // namespace tessera::detail
