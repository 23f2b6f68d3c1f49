// Plan: how an operation runs on operands of given types, and which block each local call computes.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/propagation/attributes.h"
#include "sharding/propagation/sharding_rule.h"

namespace tessera::detail {

struct Plan {
  struct Operand {
    const Type* plain;     // the type to which the operand is converted
    const Type* recorded;  // the same with a gradient: reduced over the mesh axes along which the work differs
    std::vector<int> plain_index, recorded_index;  // for each slot, the index of the local tensor that it reads
    uint64_t filled = 0;  // the padded dimensions whose padding is read as `fill`; other padding is read as zeros
  };
  // One factor: its global size, the size of a block, and for each slot the index of the block's first element. For a
  // padded dimension the block includes padding, and the index may be past the end.
  struct FactorPlace {
    std::string name;
    int64_t size = 0, local = 0;
    DimAxes axes;
    std::vector<int64_t> offset;
  };

  const MeshImpl* mesh = nullptr;
  std::vector<Operand> operands;
  AxisSet varying = 0;  // inside shard_map: the mesh axes along which an operand, and so the results, vary
  AxisSet slots = 0;    // the work runs once per coordinate of these mesh axes
  int runs = 1;
  std::vector<const Type*> out;
  AxisSet reduced_inside = 0;  // mesh axes over which the operation itself reduces
  std::vector<FactorPlace> factors;
  bool is_padded = false;  // true: an operand or a result is padded
  double fill = 0;
  Text reason;  // why operands are resharded, as text

  bool shares_the_cpu() const { return runs > 1 && mesh->device.is_cpu(); }
};

// The block of a local call: for each factor of the rule, its global size and the block's first index.
class BlockContext {
 public:
  BlockContext(const Plan& plan, int slot) : plan_(plan), slot_(slot) {}
  int64_t size(std::string_view factor) const { return place(factor).size; }
  int64_t offset(std::string_view factor) const { return place(factor).offset[static_cast<size_t>(slot_)]; }
  bool is_whole(std::string_view factor) const { return place(factor).axes.empty(); }
  bool has(std::string_view factor) const {
    return std::any_of(plan_.factors.begin(), plan_.factors.end(), [&](const auto& f) { return f.name == factor; });
  }
  const Plan& plan() const { return plan_; }
  int slot() const { return slot_; }

 private:
  const Plan::FactorPlace& place(std::string_view factor) const {
    for (const Plan::FactorPlace& f : plan_.factors)
      if (f.name == factor) return f;
    refuse(factor);
  }
  [[noreturn]] static void refuse(std::string_view factor);

  const Plan& plan_;
  int slot_;
};

// Returns the mesh of the operands; null if none is placed. Error (device_mismatch): two meshes.
const MeshImpl* common_mesh(const char* verb, std::span<const Type* const> types);

// Everything that a plan depends on.
struct Problem {
  const Operation& operation;
  const Attributes& attributes;
  OperandTypes operands;
  uint32_t weights = 0;  // bit i: operand i is computed from parameters only
  DType out_dtype;
  DType rest_dtype;  // element type of the outputs after the first
};

// Returns true if the results of several slots are terms of one partial sum in one memory space. Then one tensor may
// have the complete sum, and the other terms are zero_placeholder (kernels/tensors.h). slots_by_sum returns these slots
// for each sum.
bool adds_up_here(const Plan& plan);
std::vector<std::vector<int>> slots_by_sum(const Plan& plan);

// Returns true if a plan's work is divided among devices. `runs` counts this process's devices only, so it may be 1.
inline bool is_divided(const Plan& plan) { return plan.mesh && plan.mesh->count(plan.slots) > 1; }

// Makes a plan. Operands whose shardings agree are not resharded. Otherwise the first rule that decides wins
// (docs/conflicts.md):
//   1. no mesh axis that divided the work is given up,
//   2. an axis stays with a dimension of the output rather than with a dimension that is summed over,
//   3. activations communicate as few bytes as possible, including partial sums of the result (weights move instead),
//   4. weights communicate as few bytes as possible, then the first operand keeps its sharding.
std::shared_ptr<const Plan> make_plan(const Problem& problem);

// The planner's decisions about one operation.
struct PlannerChoice {
  const MeshImpl* mesh;
  const Problem& problem;
  const BoundRule& rule;
  const std::vector<const Type*>& brought_to;  // the type to which each operand is converted
  AxisSet vary;                                // the mesh axes along which the work differs
  AxisSet reduced_inside;                      // the axes over which the operation itself reduces
};

// Returns one clause for each operand that is resharded, then any other cause of communication; null if nothing is
// communicated:
//   lhs float32[8@data,4] and rhs float32[4@data,2] disagree: data shards dim 0 of lhs and dim 0 of rhs, so rhs
//   is resharded to float32[4,2]; the work is split over data
Text reason_of(const PlannerChoice& choice);

}  // namespace tessera::detail
