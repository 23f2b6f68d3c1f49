// The cache of plans, and the operands on their way into an operation.
#include "sharding/run.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <typeinfo>
#include <unordered_map>

#include "sharding/autograd.h"
#include "sharding/borrow.h"
#include "sharding/check.h"
#include "sharding/module_path.h"
#include "sharding/operations_common.h"
#include "sharding/redistribute.h"

namespace tessera::detail {

void Attributes::push_back(int64_t value) {
  if (size_ == most) fail(ErrorKind::bad_argument, "operation", "more attributes than an operation can have.");
  values_[size_++] = value;
}

const Plan::FactorPlace& Where::place(std::string_view factor) const {
  for (const Plan::FactorPlace& f : plan_.factors)
    if (f.name == factor) return f;
  fail(ErrorKind::bad_argument, "Where", fmt::format("the rule has no factor \"{}\".", factor));
}

namespace {

struct PlanKey {
  const Operation* operation;
  uint32_t weights = 0;
  int8_t operands = 0;
  DType out_dtype, rest_dtype;
  const Type* types[max_operands] = {};
  Attributes attributes;

  bool operator==(const PlanKey& o) const {
    return operation == o.operation && weights == o.weights && operands == o.operands && out_dtype == o.out_dtype &&
           rest_dtype == o.rest_dtype && std::equal(types, types + operands, o.types) && attributes == o.attributes;
  }
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& k) const {
    uint64_t h = reinterpret_cast<uintptr_t>(k.operation) + k.weights;
    const auto mix = [&](uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15ull, h ^= h >> 32; };
    for (int i = 0; i < k.operands; ++i) mix(reinterpret_cast<uintptr_t>(k.types[i]));
    for (int i = 0; i < k.attributes.size(); ++i) mix(static_cast<uint64_t>(k.attributes[i]));
    return h;
  }
};

using PlanCache = std::unordered_map<PlanKey, std::shared_ptr<const Plan>, PlanKeyHash>;

struct Plans {
  PlanCache current, retired;
};

Plans& plans() {
  thread_local Plans cache;
  return cache;
}

const Plan* plan_for(const CallSite& site, const PlanKey& key) {
  PlanCache& cache = plans().current;
  if (auto found = cache.find(key); found != cache.end()) return found->second.get();
  common_mesh(site.operation.name, {key.types, static_cast<size_t>(key.operands)});
  Problem problem{.operation = site.operation,
                  .rule = site.operation.rule,
                  .operands = {key.types, key.types + key.operands},
                  .weights = key.weights,
                  .out_dtype = key.out_dtype,
                  .rest_dtype = key.rest_dtype};
  const std::string rule = site.rule ? site.rule(site.attributes, problem.operands) : "";
  if (site.rule) problem.rule = rule;
  std::shared_ptr<const Plan> plan = make_plan(problem);
  if (cache.size() >= most_plans) plans().retired = std::exchange(cache, {});
  return cache.emplace(key, std::move(plan)).first->second.get();
}

// A weight that is two operands of one call is gathered once.
ArrayPtr held_already(const Prepared& call, int operand, const Array* const* operands, const Type* to) {
  for (int i = 0; i < operand; ++i)
    if (operands[i]->impl() == operands[operand]->impl() && call.held[i] && call.held[i]->type == to)
      return call.held[i];
  return nullptr;
}

void settle_loans(const Prepared& call, const Tensors& results) {
  for (int i = 0; i < call.operands; ++i)
    if (const ArrayPtr& held = call.held[i]; held && held->details && held->details->loan)
      held->details->loan->settle(held->local, results);
}

}  // namespace

size_t plan_count() { return plans().current.size(); }
void clear_plans() { plans() = {}; }

namespace {

// The error of a plan that cannot be made, with the path of the first parameter among the operands, after the verb.
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

void check_types(const Prepared& call, const Operation& operation) {
  std::vector<const Type*> types;
  for (int i = 0; i < call.operands; ++i) types.push_back(call.array[i]->type);
  check_operands(operation, types);
}

}  // namespace

void prepare(Prepared& call, const CallSite& site, const Array* const* operands, int n) {
  PlanKey key{.operation = &site.operation,
              .operands = static_cast<int8_t>(n),
              .out_dtype = site.out_dtype,
              .rest_dtype = site.rest_dtype,
              .attributes = site.attributes};
  ArrayImpl* arrays[max_operands];
  for (int i = 0; i < n; ++i) {
    arrays[i] = &materialized(*operands[i], site.operation.name);
    key.types[i] = arrays[i]->type;
    if (arrays[i]->weight)
      key.weights |= 1u << i;
    else
      call.weight = false;
    if (!call.layout) call.layout = arrays[i]->layout;
  }
  if (key.out_dtype == like_first) key.out_dtype = key.types[0]->dtype;
  if (key.rest_dtype == like_first) key.rest_dtype = key.types[0]->dtype;
  try {
    call.plan = plan_for(site, key);
  } catch (const Error& error) {
    rethrow_with_path(error, arrays, n);
  }
  call.operands = n;
  for (int i = 0; i < n; ++i) {
    const Plan::Operand& wanted = call.plan->operands[i];
    ArrayImpl& a = *arrays[i];
    const bool recorded = wanted.plain != wanted.recorded || a.details ? wants_gradient(a) : false;
    const Type* to = recorded ? wanted.recorded : wanted.plain;
    call.index[i] = (recorded ? wanted.recorded_index : wanted.plain_index).data();
    if (const ArrayPtr* known = known_form(a, operands[i]->impl(), to, recorded)) {
      call.array[i] = known->get();
      continue;
    }
    call.held[i] = held_already(call, i, operands, to);
    if (!call.held[i])
      call.held[i] =
          convert(a, operands[i]->impl(), to,
                  {.operation = site.operation.name, .where = site.where, .reason = call.plan->reason, .path = {}});
    call.array[i] = call.held[i].get();
    call.borrows |= call.held[i]->details && call.held[i]->details->loan;
  }
  if (checks) check_types(call, site.operation);
}

namespace {

// What a kernel says, without LibTorch's backtrace; null of an exception that comes from elsewhere. (oneDNN's own class
// is known by name, so that no header of its is needed.)
const char* words_of_kernel(const std::exception& error) {
  if (const auto* refusal = dynamic_cast<const c10::Error*>(&error)) return refusal->what_without_backtrace();
  return std::string_view(typeid(error).name()) == "N4dnnl5errorE" ? error.what() : nullptr;
}

}  // namespace

void refuse(const Prepared& call, const char* operation, const std::exception& error) {
  const char* kernel = words_of_kernel(error);
  if (!kernel) throw;
  std::vector<std::string> operands;
  for (int i = 0; i < call.operands; ++i) operands.push_back(call.array[i]->type->to_string());
  const std::string words = kernel, first = words.substr(0, words.find('\n'));
  const bool by_zero = first == "ZeroDivisionError";
  fail(ErrorKind::bad_argument, operation,
       fmt::format("given {}: {}", fmt::join(operands, ", "),
                   by_zero ? "an integer by 0, which has no value. Give other divisors, or a floating type." : first));
}

namespace {

ArrayPtr finished(const Prepared& call, Tensors&& out, Mask slots, int output) {
  if (call.borrows) settle_loans(call, out);
  auto result = std::make_shared<ArrayImpl>();
  result->type = call.plan->out[output];
  result->slots = slots;
  result->weight = call.weight;
  result->layout = call.layout;
  result->local = std::move(out);
  return result;
}

}  // namespace

ArrayPtr finish(const Prepared& call, Tensors out, Mask slots, int output) {
  return finished(call, std::move(out), slots, output);
}

ArrayPtr finish(const Prepared& call, Tensors out) { return finished(call, std::move(out), call.plan->slots, 0); }

std::vector<Array> finish_all(const Prepared& call, Outputs out) {
  std::vector<Array> results;
  results.reserve(out.size());
  for (size_t i = 0; i < out.size(); ++i)
    results.emplace_back(finish(call, std::move(out[i]), call.plan->slots, static_cast<int>(i)));
  return results;
}

Mask outside_mask(const Plan& plan) {
  return plan.mesh->private_replicas ? plan.slots : plan.slots & ~plan.reduced_inside;
}

std::vector<int> slots_outside(const Plan& plan) {
  const Mask outside = outside_mask(plan);
  std::vector<int> slots;
  for (int i = 0; i < plan.mesh->slots(outside); ++i) slots.push_back(project(plan.mesh, outside, i, plan.slots));
  return slots;
}

std::vector<int> owners_outside(const Plan& plan) {
  std::vector<int> owners;
  for (int s = 0; s < plan.runs; ++s) owners.push_back(project(plan.mesh, plan.slots, s, outside_mask(plan)));
  return owners;
}

bool has_parameter_source(const Array& operand) {
  const ArrayImpl& a = *operand.impl();
  const bool alone = a.type->mesh && a.type->mesh->devices.size() == 1;  // nothing is ever reduced there
  return a.details && !alone && at::GradMode::is_enabled() && (is_tape_parameter(a) || a.details->again);
}

namespace {

// In half precision the devices' contributions would be rounded as they are added up.
Again with_exact_gradients(Again again, DType exact) {
  return [again = std::move(again), exact](const ArrayPtr& other) {
    ArrayPtr made = again(other);
    add_gradients_in(made->local, exact);
    return made;
  };
}

}  // namespace

void remember_source(const ArrayPtr& result, const ArrayPtr& operand, Again again, bool cast) {
  if (const DType exact = origin_of(*operand).type->dtype; exact != result->type->dtype) {
    add_gradients_in(result->local, exact);
    again = with_exact_gradients(std::move(again), exact);
  }
  Details& details = result->detail();
  details.source = operand;
  details.again = std::move(again);
  details.cast = cast;
  details.path = operand->details->path;
}

}  // namespace tessera::detail
