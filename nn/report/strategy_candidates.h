// StrategyCandidate: one way to lay a program over devices, made of the families that suggest_strategies searches.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/report/axis_roles.h"
#include "nn/transformations/pipeline.h"
#include "sharding/array/gradient_options.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn::detail {

// How weights, gradients and moments lie along "data": whole; moments and gradients cut (ZeRO-1); all cut, and gathered
// for each use (FSDP, ZeRO-3), or once a step.
enum class WeightsAlongData : uint8_t { whole, cut_state, cut, cut_and_kept };

// What the axis "model" cuts: nothing, layers (Megatron), layers and between them the sequence, the sequence alone.
enum class AlongModel : uint8_t { nothing, layers, layers_and_sequence, sequence };

struct StrategyCandidate {
  int64_t pipe = 1, num_micro_batches = 1;   // stages of the blocks, and what goes through them; both one, or neither
  int64_t replica = 1, data = 1, model = 1;  // devices along each axis
  WeightsAlongData weights = WeightsAlongData::whole;
  AlongModel along_model = AlongModel::nothing;
  std::vector<std::string> whole_layers = {};  // names that "model" could cut and does not

  std::vector<MeshAxis> mesh() const;         // without axes of size one, unless there is no other
  Rules rules(const AxisRoles& roles) const;  // for all names; those that cut come first
  GradientOptions gradients() const;
  PipelineOptions pipeline() const;
  std::string name(const AxisRoles& roles) const;  // fully sharded x tensor parallel
  friend bool operator==(const StrategyCandidate&, const StrategyCandidate&) = default;
};

// With so many micro-batches that the rows are divided, four for each stage at most; one: there are no such.
StrategyCandidate with_micro_batches(StrategyCandidate candidate, const AxisRoles& roles);

// Whether it divides what it cuts, and cuts along every axis.
bool is_possible(const StrategyCandidate& candidate, const AxisRoles& roles);

std::vector<int64_t> divisors_of(int64_t n);  // ascending

}  // namespace tessera::nn::detail
