// Sharding rules: what an operation does to dims, said with factors in einsum's manner.
#pragma once

#include <atomic>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/placement/type.h"

namespace tessera::detail {

class Attributes;

using OperandTypes = std::vector<const Type*>;

// How an operation treats operands that are pending sums.
enum class Linearity : uint8_t {
  nonlinear,        // they are summed first
  linear_in_first,  // the first operand may be pending, the others are summed first
  multilinear,      // linear in each operand: at most one operand may be pending over a mesh axis
  additive,         // linear in all together: all are pending over a mesh axis, or none
};

// What an operation makes of padding, the elements behind the end of a dim that its mesh axes do not divide
// (Uneven::pad). They are zeros between operations. An operation that takes them reads what is named here in their
// place, the results' are zeros again after it, and no gradient comes back from them.
enum class Padded : uint8_t {
  removed,       // not taken: the dim is made whole first, or cut by axes that divide it
  kept,          // taken in a dim of the results: a result does not depend on adjacent elements
  kept_as_ones,  // the same where zeros have no value or no derivative
  inside,        // and in one that the operation itself reduces, whose padding it leaves out
  zeros,         // and in any that is reduced, where zeros change nothing
  ones,          // where ones do not
  lowest,        // where what is lower than all others does not
  highest,
};

// ---- a rule, before any operand is known

enum class FactorKind : uint8_t {
  free,            // may be sharded; summed over (pending) where the output lacks it
  whole,           // must be whole
  reduced_inside,  // may be sharded, and the operation itself reduces over it
};

struct RuleFactor {
  std::string name;
  FactorKind kind = FactorKind::free;
  int64_t size = 0;  // 0: it follows from the operands' shapes
};

RuleFactor factor(std::string name, int64_t size = 0);
RuleFactor whole(std::string name, int64_t size = 0);
RuleFactor reduced_inside(std::string name);

// One dim: its factors, major to minor. A dim of size one, which broadcasts, has none.
struct RuleDim {
  std::vector<RuleFactor> factors;
  bool is_any = false;  // any number of dims, broadcast

  RuleDim() = default;
  RuleDim(RuleFactor factor) { factors.push_back(std::move(factor)); }
  RuleDim(std::initializer_list<RuleFactor> factors) : factors(factors) {}
};

using RuleDims = std::vector<RuleDim>;

RuleDim any_dims();
RuleDims numbered_factors(size_t n);  // d0, d1, ... d<n-1>

struct ShardingRule {
  std::vector<RuleDims> in, out;  // by operand, by result
  bool elementwise = false;       // any operands, broadcast and right-aligned; in and out are empty
};

// Reads a rule that is written as a text, "... i k, k j -> ... i j":
//   i, [i], (i)  a free factor, one that must be whole, one over which the operation itself reduces
//   {a b}        a dim made of two factors, a major
//   i=4          a size that the operands' shapes do not give
//   1, ...       a dim of size one; any number of dims, broadcast
//   *            as the whole rule: elementwise
// Error (invalid_argument, under the verb define_operation): a text that is no rule, or a size that follows from
// nothing.
ShardingRule parse_rule(std::string_view operation, std::string_view text);

// ---- operations

// An operation: its name, rule and linearity. Its function on local tensors is given at the call (run.h).
// An operation is identified by its address: define each as a constant at file scope. It is ready before any code runs.
struct Operation {
  using RuleOfCall = ShardingRule (*)(const Attributes&, const OperandTypes&);

  constexpr Operation(const char* name, const char* rule, Linearity linearity = Linearity::nonlinear,
                      Padded padded = Padded::removed)
      : name(name), linearity(linearity), padded(padded), text_(rule) {}
  constexpr Operation(const char* name, RuleOfCall rule, Linearity linearity = Linearity::nonlinear,
                      Padded padded = Padded::removed)
      : name(name), linearity(linearity), padded(padded), rule_of_call_(rule) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  ShardingRule rule(const Attributes& attributes, const OperandTypes& operands) const;

  const char* name;
  Linearity linearity;
  Padded padded;

 private:
  const char* text_ = nullptr;
  RuleOfCall rule_of_call_ = nullptr;                          // where the rule depends on the call
  mutable std::atomic<const ShardingRule*> parsed_ = nullptr;  // the text's, once it was asked for
};

// ---- a rule, bound to operands

struct Factor {
  std::string name;
  int64_t size = 0;  // global
  FactorKind kind = FactorKind::free;
};

// The factors of one dim, as indices into BoundRule::factors, major to minor; empty if a dim of size one broadcasts.
using DimFactors = std::vector<int>;

struct BoundRule {
  std::vector<Factor> factors;
  std::vector<std::vector<DimFactors>> in, out;  // by operand and by dim
};

// Gives each factor its size. Errors: a number of operands, of dims, or a size that does not fit (shape_mismatch).
BoundRule bind_rule(const char* operation, const ShardingRule& rule, const OperandTypes& operands);

}  // namespace tessera::detail
