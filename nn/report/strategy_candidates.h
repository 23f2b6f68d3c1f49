// AxisRoles: what each logical axis name is for; StrategyCandidate: one way to place a program, made by these roles.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/placement/table.h"
#include "nn/transformations/pipeline.h"
#include "sharding/array/gradient_options.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_rules.h"
#include "sharding/placement/resolver.h"

namespace tessera::nn::detail {

// The role of each logical axis name of a program.
struct AxisRoles {
  std::vector<std::string> names;           // all, in the order in which the program asked for them
  std::map<std::string, int64_t> divisors;  // by name: the greatest common divisor of its sizes
  std::string batch;                        // the rows of a batch; empty: no name is that
  std::string stream;                       // in most of the parameters' elements: the embed of a transformer
  std::vector<std::string> inner;           // the other dims of its matrices: heads, mlp, vocab
  std::vector<std::string> sequence;        // together with the batch in activations, and in almost no parameter
  std::vector<std::string> constrained;     // of these, those of with_sharding_constraint
  bool stream_is_everywhere = false;        // in all of the parameters' elements but a few
  std::string blocks;                       // the field of the vector that has most bytes: layers; empty: none has two
  int64_t depth = 0;                        // its elements; of several such vectors their greatest common divisor

  // Whether n divides every dim of that name.
  bool divides(int64_t n, const std::string& name) const { return divisors.at(name) % n == 0; }
};

// `rows`: of all that the program holds.
AxisRoles roles_of(const std::vector<tessera::detail::NamedDims>& asked, const std::vector<PlacementRow>& rows = {});

// How weights, gradients and moments lie along "data": whole; moments and gradients cut (ZeRO-1); all cut, and gathered
// for each use (FSDP, ZeRO-3), or once a step.
enum class WeightsAlongData : uint8_t { whole, cut_state, cut, cut_and_kept };

// The dims that the axis "model" shards: none, layers (Megatron), layers and between them the sequence, the sequence
// alone.
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
