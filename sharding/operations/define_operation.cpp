// Keeps operations that programs define, by name and rule.
#include "sharding/operations/define_operation.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/autograd.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::detail {

namespace {

// Rejects features that only the library's own rules may use: several results, and dimensions that the function itself
// reduces.
void check_definition(const std::string& name, const std::string& text, const ShardingRule& rule) {
  const auto wrong = [&](const std::string& why) {
    fail(ErrorKind::invalid_argument, "define_operation", "{}: the rule \"{}\": {}.", name, text, why);
  };
  if (rule.out.size() > 1) wrong("it has two results, expected one");
  for (const std::vector<RuleDims>* terms : {&rule.in, &rule.out})
    for (const RuleDims& dims : *terms)
      for (const RuleDim& dim : dims)
        for (const RuleFactor& factor : dim.factors)
          if (factor.kind == FactorKind::reduced_inside)
            wrong(fmt::format("\"({})\" is not a dim, expected i, [i], i=4, {{i j}}, 1 or ...", factor.name));
}

}  // namespace

const Operation& interned_operation(const std::string& name, const std::string& rule, Linearity linearity) {
  static std::mutex mutex;
  // never destroyed: see make_mesh
  static auto& operations = *new std::map<std::tuple<std::string, std::string, Linearity>, std::unique_ptr<Operation>>;
  check_definition(name, rule, parse_rule(name, rule));
  std::lock_guard lock(mutex);
  const auto [found, fresh] = operations.try_emplace({name, rule, linearity});
  const auto& [its_name, its_rule, unused] = found->first;
  if (fresh) found->second = std::make_unique<Operation>(its_name.c_str(), its_rule.c_str(), linearity);
  return *found->second;
}

namespace {

void check_result(const at::Tensor& result, const BlockContext& block, const char* operation) {
  const Type& type = *block.plan().out[0];
  if (!result.defined() || result.sizes() != c10::IntArrayRef(type.local))
    fail(ErrorKind::shape_mismatch, operation,
         "the function gave {}, the rule gives {} for a block of {}. Fix one of them.",
         result.defined() ? to_string(result.sizes().vec()) : "nothing", to_string(type.local), type.to_string());
  if (result.scalar_type() != scalar_type(type.dtype))
    fail(ErrorKind::dtype_mismatch, operation,
         "the function gave {}, expected {}. Give the result's element type with .out_dtype.",
         c10::toString(result.scalar_type()), type.to_string());
}

// LibTorch counts the changes in place of each tensor.
uint64_t versions_of(const Tensors& tensors) {
  uint64_t sum = 0;
  for (const at::Tensor& t : tensors) sum += static_cast<uint64_t>(t._version());
  return sum;
}

void check_unchanged(const char* operation, const char* function, const Tensors& arguments, uint64_t versions) {
  if (versions_of(arguments) != versions)
    fail(ErrorKind::invalid_argument, operation,
         "{} changed an argument in place, which other operations may read. Change a copy.", function);
}

// The backward pass of one call.
struct LocalBackwardCall {
  const Operation& operation;
  std::shared_ptr<const LocalBackward> backward;
  Tensors residuals;
  std::shared_ptr<const Plan> plan;  // a copy, because the cache may drop the plan; null if the block is not needed
  int slot;

  Tensors operator()(const Tensors& gradients, const Tensors& operands) const {
    if (gradients[0].is_meta()) return abstract(gradients, operands);
    Tensors arguments(gradients);
    arguments.append(operands.begin(), operands.end());
    arguments.append(residuals.begin(), residuals.end());
    std::optional<BlockContext> block;
    if (plan) block.emplace(*plan, slot);
    const uint64_t versions = versions_of(arguments);
    Tensors result = called(arguments, block ? &*block : nullptr);
    check_unchanged(operation.name, ".backward", arguments, versions);
    if (result.size() != operands.size())
      fail(ErrorKind::invalid_argument, operation.name, ".backward returned {} tensors, expected {}: one per operand.",
           result.size(), operands.size());
    for (size_t i = 0; i < result.size(); ++i) check(i, result[i], operands[i]);
    // Without any gradient, the loss would seem not to depend on the operands.
    if (std::none_of(result.begin(), result.end(), [](const at::Tensor& t) { return t.defined(); }))
      for (size_t i = 0; i < result.size(); ++i)
        if (operands[i].is_floating_point()) result[i] = at::zeros_like(operands[i]);
    return result;
  }

  Tensors called(const Tensors& arguments, const BlockContext* block) const try {
    return (*backward)(arguments, block);
  } catch (const c10::Error& error) {
    check_allocation(error, operation.name, {}, "in .backward", arguments[0].device());
    fail(ErrorKind::invalid_argument, operation.name, ".backward: {}", first_line(error.what_without_backtrace()));
  }

  void check(size_t i, at::Tensor& gradient, const at::Tensor& operand) const {
    if (!operand.is_floating_point()) gradient = at::Tensor();
    if (gradient.defined() && (gradient.layout() != at::kStrided || gradient.is_complex() || gradient.is_meta()))
      fail(ErrorKind::dtype_mismatch, operation.name,
           ".backward returned a sparse, complex or meta tensor for operand {}, expected a dense real one.", i);
    if (gradient.defined() && !at::is_expandable_to(operand.sizes(), gradient.sizes()))
      fail(ErrorKind::shape_mismatch, operation.name,
           ".backward returned {} for operand {}, expected its local shape {}.", to_string(gradient.sizes().vec()), i,
           to_string(operand.sizes().vec()));
  }

  // Returns abstract gradients, which depend on the same tensors as the gradients of a kernel would.
  static Tensors abstract(const Tensors& gradients, const Tensors& operands) {
    Tensors inputs(gradients), results;
    inputs.append(operands.begin(), operands.end());
    for (const at::Tensor& t : operands) {
      Tensors result;
      if (t.is_floating_point()) {
        result.push_back(abstract_tensor(t.sizes(), static_cast<DType>(t.scalar_type())));
        record_custom("backward", inputs, inputs, result, abstract, /*differentiable=*/true);
      }
      results.push_back(result.empty() ? at::Tensor() : result[0]);
    }
    return results;
  }
};

}  // namespace

at::Tensor call_function(const Operation& operation, const std::shared_ptr<const LocalBackward>& backward,
                         const Tensors& operands, const BlockContext& block, c10::function_ref<Tensors()> forward) {
  const bool is_abstract = backward && operands[0].is_meta();
  Tensors made;
  {
    at::AutoGradMode mode(!backward && at::GradMode::is_enabled());
    const uint64_t versions = versions_of(operands);
    made = is_abstract ? Tensors(1, abstract_block(block.plan().out[0])) : forward();
    check_unchanged(operation.name, "the function", operands, versions);
  }
  if (made.empty() || (!backward && made.size() > 1))
    fail(ErrorKind::invalid_argument, operation.name,
         "the function returned {} tensors, expected the result, and after it only tensors that .backward reads.",
         made.size());
  check_result(made[0], block, operation.name);
  if (!backward) return made[0];
  const size_t given = operands.size() + made.size();
  if (!is_abstract && static_cast<size_t>(backward->parameters()) != given)
    fail(ErrorKind::invalid_argument, operation.name,
         ".backward takes {} tensors, expected {}: the cotangent, the operands ({}) and what the function saved ({}).",
         backward->parameters(), given, operands.size(), made.size() - 1);
  Tensors result(1, made[0]);
  const bool has_residuals = made.size() > 1;
  made.erase(made.begin());
  if (result[0].is_floating_point())
    record_custom(
        operation.name, operands, operands, result,
        LocalBackwardCall{operation, backward, std::move(made),
                          backward->takes_block() ? std::make_shared<const Plan>(block.plan()) : nullptr, block.slot()},
        !has_residuals);
  return result[0];
}

}  // namespace tessera::detail
