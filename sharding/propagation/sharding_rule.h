// Sharding rules: what an operation does to dims, written as factors in einsum's manner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sharding/placement/type.h"

namespace tessera::detail {

// How an operation treats operands that are pending sums.
enum class Linearity : uint8_t {
  nonlinear,        // they are summed first
  linear_in_first,  // the first operand may be pending, the others are summed first
  multilinear,      // linear in each operand: at most one operand may be pending over a mesh axis
  additive,         // linear in all together: all are pending over a mesh axis, or none
};

// An operation: its name, rule and linearity. Its function on local tensors is given at the call (run.h).
//
// The rule names a factor for each dim, in einsum's manner: "... i k, k j -> ... i j".
//   i        may be sharded; summed over (pending) where the output lacks it
//   [i]      must be whole
//   (i)      may be sharded, and the operation itself reduces over it
//   {a b}    a dim made of two factors, a major
//   i=4      a size that the operands' shapes do not give
//   1        a dim of size one
//   ...      any number of dims, broadcast
//   *        as the whole rule: elementwise, broadcast, right-aligned
// Dims of size one that broadcast carry no factor.
//
// An operation is identified by its address and registered while it lives: define each as a constant at file scope.
struct Operation {
  Operation(const char* name, std::string rule, Linearity linearity = Linearity::nonlinear);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  const char* name;
  std::string rule;  // empty: the call gives one, made from its attributes
  Linearity linearity;
};

// All operations of the program, in no order; a test checks that each has test cases.
const std::vector<const Operation*>& registered_operations();

enum class FactorKind : uint8_t { free, whole, reduced_inside };

struct Factor {
  std::string name;
  int64_t size = 0;  // global
  FactorKind kind = FactorKind::free;
};

// The factors of one dim, as indices into ShardingRule::factors, major to minor; empty if a dim of size one broadcasts.
using DimFactors = std::vector<int>;

struct ShardingRule {
  std::vector<Factor> factors;
  std::vector<std::vector<DimFactors>> in, out;  // by operand and by dim
};

// Reads `rule` for operands of these types. Errors: a number of dims or a size that does not fit (shape_mismatch).
ShardingRule read_rule(const char* operation, std::string_view rule, const std::vector<const Type*>& operands);

}  // namespace tessera::detail
