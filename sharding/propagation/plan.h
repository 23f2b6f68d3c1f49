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
    const Type* recorded;  // the same if a gradient is wanted: reduced over the mesh axes along which the work differs
    std::vector<int> plain_index, recorded_index;  // by slot: the index of the local tensor that it reads
    uint64_t filled = 0;  // the padded dims whose padding is read as `fill`; that of others is read as zeros
  };
  // One factor: its global size, the size of a block, and by slot the index of the block's first element; of a padded
  // dim the block includes the padding, and the index may lie behind the end.
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
  AxisSet reduced_inside = 0;  // mesh axes that the operation itself has to reduce over
  std::vector<FactorPlace> factors;
  bool is_padded = false;  // some operand or result is
  double fill = 0;
  Text reason;  // why operands move, in words

  bool shares_the_cpu() const { return runs > 1 && mesh->device.is_cpu(); }
};

// What a local call may ask about its block: by factor of the rule, its global size and the block's first index.
class BlockContext {
 public:
  BlockContext(const Plan& plan, int slot) : plan_(plan), slot_(slot) {}
  int64_t size(std::string_view factor) const { return place(factor).size; }
  int64_t offset(std::string_view factor) const { return place(factor).offset[slot_]; }
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

// The mesh on which the operands are placed; null if none is placed. Error (device_mismatch): two meshes.
const MeshImpl* common_mesh(const char* verb, std::span<const Type* const> types);

// All that a plan depends on.
struct Problem {
  const Operation& operation;
  const Attributes& attributes;
  OperandTypes operands;
  uint32_t weights = 0;  // bit i: operand i is computed from parameters only
  DType out_dtype;
  DType rest_dtype;  // of the outputs after the first
};

// Returns whether the results of several slots are terms of one pending sum in one memory space. Then one tensor may
// take the whole sum, and the other terms are zero_placeholder (kernels/sum.h). slots_by_sum lists those slots for each
// sum.
bool adds_up_here(const Plan& plan);
std::vector<std::vector<int>> slots_by_sum(const Plan& plan);

// Whether the work of a plan is divided among devices, of this process or of several (then `runs` may be 1).
inline bool is_divided(const Plan& plan) { return plan.mesh && plan.mesh->count(plan.slots) > 1; }

// Operands whose placements agree do not move. Else the first rule that decides settles it (docs/sharding.md):
//   1. no mesh axis that divided the work is given up,
//   2. a dim of the output keeps its axis before a dim that is summed away,
//   3. activations move as few bytes as possible, pending sums of the result included (a weight yields),
//   4. weights move as few bytes as possible, then the first operand stays.
std::shared_ptr<const Plan> make_plan(const Problem& problem);

// The planner's decisions about one operation.
struct PlannerChoice {
  const MeshImpl* mesh;
  const Problem& problem;
  const BoundRule& rule;
  const std::vector<const Type*>& brought_to;  // the type to which each operand is converted
  AxisSet vary;                                // the mesh axes along which the work differs
  AxisSet reduced_inside;                      // those that the operation itself reduces over
};

// One clause for each operand that moves, then any other cause of communication; null if nothing is communicated:
//   lhs float32[8@data,4] and rhs float32[4@data,2] disagree: data cuts dim 0 of lhs and dim 0 of rhs, so rhs is
//   brought to float32[4,2]; the work differs along data
Text reason_of(const PlannerChoice& choice);

}  // namespace tessera::detail
