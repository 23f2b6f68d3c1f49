// AxisRoles, the role of each logical axis name, and StrategyCandidate, one strategy derived from these roles.
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

// Roles of the logical axis names of a program.
struct AxisRoles {
  std::vector<std::string> names;           // all names, in the order in which the program used them
  std::map<std::string, int64_t> divisors;  // by name: the greatest common divisor of its sizes
  std::string batch;                        // rows of a batch; empty: no name has this role
  std::string stream;                       // name in most of the parameters' elements: the embed of a transformer
  std::vector<std::string> inner;           // other dimensions of its matrices: heads, mlp, vocab
  std::vector<std::string> sequence;        // names next to the batch in activations, and in almost no parameter
  std::vector<std::string> constrained;     // names of `sequence` in with_sharding_constraint
  bool stream_is_everywhere = false;        // in almost all of the parameters' elements
  std::string blocks;  // field of the vector with the most bytes: layers; empty: no vector has two elements
  int64_t depth = 0;   // its number of elements; for several such vectors the greatest common divisor

  // Returns true if n divides every dimension of that name.
  bool divides(int64_t n, const std::string& name) const { return divisors.at(name) % n == 0; }
};

// Derives the roles of the names in `asked`; `rows` describes all arrays of the program.
AxisRoles roles_of(const std::vector<tessera::detail::NamedDims>& asked, const std::vector<PlacementRow>& rows = {});

// The arrays that are sharded along "data":
//   whole         nothing
//   cut_state     moments and gradients (ZeRO-1)
//   cut           weights too, gathered for each use (FSDP, ZeRO-3)
//   cut_and_kept  weights too, gathered once per step
enum class WeightsAlongData : uint8_t { whole, cut_state, cut, cut_and_kept };

// Dimensions that the axis "model" shards: none, layers (Megatron), layers and between them the sequence, or the
// sequence alone.
enum class AlongModel : uint8_t { nothing, layers, layers_and_sequence, sequence };

struct StrategyCandidate {
  int64_t pipe = 1, num_micro_batches = 1;   // stages of the blocks, and micro-batches; both are 1 or both above 1
  int64_t replica = 1, data = 1, model = 1;  // devices along each axis
  WeightsAlongData weights = WeightsAlongData::whole;
  AlongModel along_model = AlongModel::nothing;
  std::vector<std::string> whole_layers = {};  // names that "model" could shard but does not

  std::vector<MeshAxis> mesh() const;         // without axes of size 1, unless there is no other
  Rules rules(const AxisRoles& roles) const;  // for all names; rules that shard come first
  GradientOptions gradients() const;
  PipelineOptions pipeline() const;
  std::string name(const AxisRoles& roles) const;  // fully sharded x tensor parallel
  friend bool operator==(const StrategyCandidate&, const StrategyCandidate&) = default;
};

// Returns the candidate with as many micro-batches as divide the rows, at most four per stage; with one if none fits.
StrategyCandidate with_micro_batches(StrategyCandidate candidate, const AxisRoles& roles);

// Returns true if each axis divides the dimensions that it shards, and shards at least one.
bool is_possible(const StrategyCandidate& candidate, const AxisRoles& roles);

std::vector<int64_t> divisors_of(int64_t n);  // ascending

}  // namespace tessera::nn::detail
