// Where this library moves more bytes than XLA's program, or leaves a result elsewhere than JAX, by mechanism, as
// docs/sharding.md explains.
#include "tests/runner/propagation.h"
#include "tests/runner/reference_values.h"

namespace tessera::runner {
namespace {

std::string operation(const Json& c) { return std::string(c.at("op").as_string()); }

PartitionSpec automatic(const Json& c, size_t output) {
  return full_spec_of(c.at("auto").at("out").at(output).at("spec"));
}

bool is_product(const std::string& op) { return op == "matmul" || op == "einsum" || op == "dot_general"; }

}  // namespace

const char* documented_difference(const Json&, int64_t) { return nullptr; }

const char* documented_placement(const Json& c, const PartitionSpec& got, size_t output) {
  if (is_product(operation(c)) && c.at("auto").at("ok").as_bool() && got == automatic(c, output))
    return "a batch dim of a product keeps the axes of either operand; JAX's types keep those of one of them only";
  return nullptr;
}

}  // namespace tessera::runner
