// Plans: how an operation runs on operands of given types, worked out once without looking at data.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "sharding/array_impl.h"
#include "sharding/rule.h"

namespace tessera::detail {

// The call's values that change shapes or placements: they are part of a plan's key. Others stay out of it.
class Attributes {
 public:
  static constexpr int most = 16;
  // Every operation carries one: only what is used is set or copied. (With a defaulted constructor {} would set all.)
  Attributes() {}
  Attributes(std::initializer_list<int64_t> values) {
    for (int64_t v : values) push_back(v);
  }
  Attributes(const Attributes& other) { *this = other; }
  Attributes& operator=(const Attributes& other) {
    size_ = other.size_;
    for (int i = 0; i < size_; ++i) values_[i] = other.values_[i];
    return *this;
  }
  void push_back(int64_t value) {
    if (size_ == most) refuse_more();
    values_[size_++] = value;
  }
  int size() const { return size_; }
  int64_t operator[](int i) const { return values_[i]; }
  friend bool operator==(const Attributes& a, const Attributes& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

 private:
  [[noreturn]] static void refuse_more();

  int64_t values_[most];  // unset past size_
  int size_ = 0;
};

struct Plan {
  struct Operand {
    const Type* plain;     // what the operation reads
    const Type* recorded;  // the same where a gradient is wanted: reduced over the axes along which the work differs
    std::vector<int> plain_index, recorded_index;  // the local tensor of each slot
  };
  // One factor: its global size, the size of a block, and the number of this block at each slot.
  struct FactorPlace {
    std::string name;
    int64_t size = 0, local = 0;
    DimAxes axes;
    std::vector<int64_t> offset;
  };

  const MeshImpl* mesh = nullptr;
  std::vector<Operand> operands;
  Mask varying = 0;  // inside shard_map: the axes along which some operand varies, and the results with it
  Mask slots = 0;    // the work runs once per coordinate of these axes
  int runs = 1;
  std::vector<const Type*> out;
  Mask reduced_inside = 0;  // axes that the operation itself has to reduce over
  std::vector<FactorPlace> factors;
  Text reason;  // why operands move, in words
};

// Where a local call stands: the global size of every factor of the rule and where this block begins.
class Where {
 public:
  Where(const Plan& plan, int slot) : plan_(plan), slot_(slot) {}
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

// The order in which placements that disagree are settled (DESIGN: "No conflict, nothing moves"):
//   1. no mesh axis that divided the work is given up,
//   2. a dim of the output keeps its axis before a dim that is summed away,
//   3. activations move as few bytes as possible, pending sums of the result included (a weight yields),
//   4. then weights, then the order of the operands.
struct Problem {
  const Operation& operation;
  std::string_view rule;
  std::vector<const Type*> operands;
  uint32_t weights = 0;  // bit i: operand i is computed from parameters only
  DType out_dtype;
  DType rest_dtype;  // of the outputs after the first
};
std::shared_ptr<const Plan> make_plan(const Problem& problem);

}  // namespace tessera::detail
