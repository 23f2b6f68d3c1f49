// Passes local tensors to the function for each device, and reads its results as varying values.
#include "sharding/shard_map/local_map.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sharding/accounting/operation_event.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/varying.h"

namespace tessera::detail {
namespace {

std::vector<ArrayPtr> arguments_of(const std::vector<Array>& blocks) {
  AxisSet varying = 0;
  std::vector<ArrayPtr> arguments;
  for (const Array& block : blocks) {
    arguments.push_back(inside(block, "local_map"));
    varying |= arguments.back()->type->varying;
  }
  const Provenance cause{.operation = "local_map", .where = {}, .reason = explicit_reason(), .path = {}};
  for (ArrayPtr& a : arguments) {
    if (a->type->sharded | a->type->unreduced)
      fail(ErrorKind::varying_axis, "local_map",
           "{} is not replicated over axes that are not manual. Name them in axis_names.", a->type->to_string());
    a = varied(a, varying, cause);
    a = convert(*a, a, a->type, cause);  // replaces a tape's parameter by its leaf
  }
  return arguments;
}

std::string types_of(const std::vector<ArrayPtr>& arguments) {
  std::vector<std::string> types;
  for (const ArrayPtr& a : arguments) types.push_back(a->type->to_string());
  return fmt::format("{}", fmt::join(types, ", "));
}

void check_alike(const std::vector<at::Tensor>& first, const std::vector<at::Tensor>& now,
                 const std::vector<ArrayPtr>& arguments) {
  for (const at::Tensor& t : now)
    if (!t.defined() || t.layout() != at::kStrided || name_of(static_cast<DType>(t.scalar_type())).empty())
      fail(ErrorKind::dtype_mismatch, "local_map", "given {}, the function returns {}, which an Array cannot hold.",
           types_of(arguments),
           !t.defined()                 ? "an undefined tensor"
           : t.layout() != at::kStrided ? "a sparse tensor"
                                        : fmt::format("a tensor of {}", c10::toString(t.scalar_type())));
  bool alike = first.size() == now.size();
  for (size_t i = 0; alike && i < now.size(); ++i)
    alike = first[i].sizes() == now[i].sizes() && first[i].scalar_type() == now[i].scalar_type();
  if (!alike)
    fail(ErrorKind::shape_mismatch, "local_map",
         "given {}, the function returns tensors whose number, shape or element type differs between devices. They "
         "must be the same.",
         types_of(arguments));
}

std::vector<at::Tensor> call(const LocalFunction& f, const std::vector<ArrayPtr>& arguments, int slot) try {
  std::vector<at::Tensor> tensors;
  for (const ArrayPtr& a : arguments) tensors.push_back(a->local[slot]);
  return f(tensors);
} catch (const c10::Error& error) {
  check_allocation(error, "local_map", {}, fmt::format("in the function, given {}", types_of(arguments)),
                   arguments.empty() ? c10::Device(c10::kCPU) : arguments[0]->local[slot].device());
  fail(ErrorKind::invalid_argument, "local_map", "given {}: {}", types_of(arguments),
       first_line(error.what_without_backtrace()));
}

}  // namespace

std::vector<Array> call_locally(const LocalFunction& f, const std::vector<Array>& blocks) {
  const std::vector<ArrayPtr> arguments = arguments_of(blocks);
  std::vector<const ArrayImpl*> given, read;
  for (const Array& block : blocks) given.push_back(block.impl().get());
  for (const ArrayPtr& a : arguments) read.push_back(a.get());
  const auto watched = are_operations_observed() ? begin_call("local_map", {}, nullptr, {given, read}) : nullptr;
  const MeshImpl* mesh = manual_axes().mesh;
  const AxisSet varying = arguments.empty() ? 0 : arguments[0]->type->varying;
  std::vector<std::vector<at::Tensor>> results;
  for (int s = 0; s < mesh->slots(mesh->private_replicas ? mesh->all() : varying); ++s) {
    results.push_back(call(f, arguments, s));
    check_alike(results[0], results.back(), arguments);
  }
  std::vector<Array> arrays;
  for (size_t i = 0; i < results[0].size(); ++i) {
    const at::Tensor& first = results[0][i];
    const Type* type = intern({.dtype = static_cast<DType>(first.scalar_type()),
                               .shape = first.sizes().vec(),
                               .mesh = mesh,
                               .varying = varying});
    Tensors local;
    for (const auto& result : results) local.push_back(result[i]);
    arrays.emplace_back(make_array(type, std::move(local)));
  }
  if (watched) notify(watched, {given, read, arrays});
  return arrays;
}

}  // namespace tessera::detail
