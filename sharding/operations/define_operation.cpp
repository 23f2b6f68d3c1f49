// Keeps operations that programs define, by name and rule.
#include "sharding/operations/define_operation.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "sharding/base/fail.h"

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

}  // namespace tessera::detail
