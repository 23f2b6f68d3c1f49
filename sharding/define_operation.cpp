// Operations that programs define, kept by name and rule.
#include "sharding/define_operation.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace tessera::detail {

const Operation& interned_operation(const std::string& name, const std::string& rule, Linearity linearity) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, std::string, Linearity>, std::unique_ptr<Operation>> operations;
  if (rule != "*" && rule.find("->") == std::string::npos)
    fail(ErrorKind::bad_argument, "define_operation",
         fmt::format(
             "{}: the rule \"{}\" has no ->. Write what becomes of the dims, as in \"i k, k j -> i j\", or \"*\".",
             name, rule));
  std::lock_guard lock(mutex);
  const auto [found, fresh] = operations.try_emplace({name, rule, linearity});
  if (fresh) found->second = std::make_unique<Operation>(std::get<0>(found->first).c_str(), rule, linearity);
  return *found->second;
}

void check_result(const at::Tensor& result, const Where& where, const char* operation) {
  const Type& type = *where.plan().out[0];
  if (!result.defined() || result.sizes() != c10::IntArrayRef(type.local))
    fail(ErrorKind::shape_mismatch, operation,
         fmt::format("the function gave {}, the rule says {} for a block of {}. Mend one of them.",
                     result.defined() ? to_string(result.sizes().vec()) : "nothing", to_string(type.local),
                     type.to_string()));
  if (result.scalar_type() != static_cast<at::ScalarType>(type.dtype))
    fail(ErrorKind::dtype_mismatch, operation,
         fmt::format("the function gave {}, expected {}. Say the result's element type with .out_dtype.",
                     c10::toString(result.scalar_type()), type.to_string()));
}

}  // namespace tessera::detail
