// Sharding rules: an operation's effect on dimensions, described by factors as in einsum.
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

// How an operation treats operands that are partial sums.
enum class Linearity : uint8_t {
  nonlinear,        // all operands are summed first
  linear_in_first,  // the first operand may be a partial sum, the others are summed first
  multilinear,      // linear in each operand: at most one operand may be a partial sum over a mesh axis
  additive,         // linear in all together: all operands are partial sums over a mesh axis, or none is
};

// How an operation treats padding, the elements past the end of a dimension that its mesh axes do not divide
// (Uneven::pad). Between operations padding is zeros. An operation that accepts padding reads the values named here
// instead. Afterwards the padding of its results is set to zeros, and no gradient flows back from padding.
enum class Padded : uint8_t {
  removed,       // not accepted: first the dimension is gathered, or sharded by axes that divide it
  kept,          // accepted in a dimension of the results, if a result does not depend on adjacent elements
  kept_as_ones,  // the same, read as ones, for functions without a value or derivative at zero
  inside,        // also in a dimension that the operation itself reduces, excluding the padding
  zeros,         // also in any dimension that is reduced, if zeros do not change the result
  ones,          // the same, if ones do not change it
  lowest,        // the same, if the lowest value does not change it
  highest,
};

// ---- a rule before it is bound to operands

enum class FactorKind : uint8_t {
  free,            // may be sharded; a partial sum if the output lacks it
  whole,           // must not be sharded
  reduced_inside,  // may be sharded, and the operation itself reduces over it
};

struct RuleFactor {
  std::string name;
  FactorKind kind = FactorKind::free;
  int64_t size = 0;  // 0: determined by the operands' shapes
};

RuleFactor factor(std::string name, int64_t size = 0);
RuleFactor whole(std::string name, int64_t size = 0);
RuleFactor reduced_inside(std::string name);

// One dimension: its factors, major to minor. A dimension of size one, which broadcasts, has none.
struct RuleDim {
  std::vector<RuleFactor> factors;
  bool is_any = false;  // any number of dimensions, broadcast

  RuleDim() = default;
  RuleDim(RuleFactor f) { factors.push_back(std::move(f)); }
  RuleDim(std::initializer_list<RuleFactor> f) : factors(f) {}
};

using RuleDims = std::vector<RuleDim>;

RuleDim any_dims();
RuleDims numbered_factors(size_t n);  // d0, d1, ... d<n-1>

struct ShardingRule {
  std::vector<RuleDims> in, out;  // by operand, by result
  bool elementwise = false;       // any operands, broadcast and right-aligned; in and out are empty
};

// Parses a rule from text, "... i k, k j -> ... i j":
//   i, [i], (i)  a free factor, one that must be replicated, one over which the operation itself reduces
//   {a b}        a dimension made of two factors, a major
//   i=4          a size that the operands' shapes do not determine
//   1, ...       a dimension of size one; any number of dimensions, broadcast
//   *            as the complete rule: elementwise
// Error (invalid_argument, with the verb define_operation): text that is not a rule, or a factor without a size.
ShardingRule parse_rule(std::string_view operation, std::string_view text);

// ---- operations

// An operation: its name, rule and linearity. Its function on local tensors is passed at the call (run.h). An operation
// is identified by its address: define each as a constant at file scope. Operations are constant-initialized, so they
// are ready before any code runs.
struct Operation {
  using RuleOfCall = ShardingRule (*)(const Attributes&, const OperandTypes&);

  constexpr Operation(const char* n, const char* text, Linearity l = Linearity::nonlinear, Padded p = Padded::removed)
      : name(n), linearity(l), padded(p), text_(text) {}
  constexpr Operation(const char* n, RuleOfCall of_call, Linearity l = Linearity::nonlinear, Padded p = Padded::removed)
      : name(n), linearity(l), padded(p), rule_of_call_(of_call) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  ShardingRule rule(const Attributes& attributes, const OperandTypes& operands) const;

  const char* name;
  Linearity linearity;
  Padded padded;

 private:
  const char* text_ = nullptr;
  RuleOfCall rule_of_call_ = nullptr;                          // for rules that depend on the call
  mutable std::atomic<const ShardingRule*> parsed_ = nullptr;  // the parsed text, after its first use
};

// ---- a rule bound to operands

struct Factor {
  std::string name;
  int64_t size = 0;  // global
  FactorKind kind = FactorKind::free;
};

// The factors of one dimension, as indices into BoundRule::factors, major to minor; empty if a dimension of size one
// broadcasts.
using DimFactors = std::vector<int>;

struct BoundRule {
  std::vector<Factor> factors;
  std::vector<std::vector<DimFactors>> in, out;  // by operand and by dimension
};

// Binds a rule and gives each factor its size. Error (shape_mismatch): a number of operands or dimensions, or a size,
// that does not fit.
BoundRule bind_rule(const char* operation, const ShardingRule& rule, const OperandTypes& operands);

}  // namespace tessera::detail
