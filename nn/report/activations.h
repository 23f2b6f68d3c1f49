// ActivationTable: the arrays that each module reads, makes and keeps for the backward pass in one step, and its costs.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/layers/module_scope.h"
#include "nn/tree/tree_summary.h"

namespace tessera::nn {

// An array that a module reads or makes.
struct ModuleArray {
  std::string type;  // float32[32@data,128,512@model]; partial sums as {U:model}
  int64_t bytes_per_device = 0;
  friend bool operator==(const ModuleArray&, const ModuleArray&) = default;
};

// Collectives of one kind in one pass.
struct ModuleTraffic {
  std::string kind;  // kind of the collective, as in CommRecord
  bool backward = false;
  int64_t num_collectives = 0, bytes = 0;
  friend bool operator==(const ModuleTraffic&, const ModuleTraffic&) = default;
};

// One module with everything in it, on one device.
struct ActivationRow {
  std::string path;    // layers.2.mlp; "" for the complete step
  std::string module;  // its type, Mlp; "" if a scope has this path but no module of the tree
  // `inputs`: arrays made outside of the module that it reads. `outputs`: arrays made inside that are read outside or
  // returned. Both are in the order of their first reading, and exclude constants, parameters, and arrays computed from
  // parameters alone.
  std::vector<ModuleArray> inputs = {}, outputs = {};
  // Bytes allocated in the module that are live when the forward pass ends: everything that the graph saves.
  int64_t saved_bytes = 0;
  // Floating point operations, counted as in Forecast. Operations that the backward pass repeats (remat) count as
  // backward.
  double forward_flops = 0, backward_flops = 0;
  std::vector<ModuleTraffic> traffic = {};
  friend bool operator==(const ActivationRow&, const ActivationRow&) = default;
};

// An activation that an operation replicates along mesh axes, although it was sharded over them or was a partial sum.
// All devices along these axes then compute the same. Activations that the program then places by a constraint are not
// listed, nor those that the next operation reads sharded again.
struct WholeActivation {
  std::string module, operation;  // which replicate it; module "": none
  std::string maker;              // module that made it; "": none
  std::string type;               // before the operation: float32[8@data,128@model,64]
  std::string mesh_axes;          // "model", or "data,model"
  std::string reason;             // why it is replicated, as in the ledger
  std::string constraint;         // spec that keeps it sharded: P{"data", "model"}; "": no spec does
  std::string as_it_is;           // spec that declares it replicated on purpose: P{"data"}
  int64_t bytes_per_device = 0;   // after it is replicated
  std::source_location where;     // the operation's line in the program

  // Returns "with_sharding_constraint(x, P{...}) before layer_norm at model.cpp:31", or "... on the result of mlp.down
  // at ..." if one module makes and replicates it; "" without a constraint.
  std::string cure() const;
};

struct ActivationTableOptions {
  std::optional<int> depth = {};  // maximum number of names of a module's path
  bool fold = false;  // shows equal modules in one line, layers.{0..79}.mlp, with summed bytes and operations
};

// One row per module in the order of the tree, the first for the complete step. Made by nn::activation_summary.
class ActivationTable {
 public:
  ActivationTable(std::vector<ActivationRow> rows, std::vector<WholeActivation> whole);

  const std::vector<ActivationRow>& rows() const& { return rows_; }
  std::vector<ActivationRow> rows() && { return std::move(rows_); }
  // Returns the row of this module. Error (invalid_argument), with the nearest paths: the module does not exist.
  const ActivationRow& row(std::string_view path) const;
  const std::vector<WholeActivation>& whole() const& { return whole_; }
  std::vector<WholeActivation> whole() && { return std::move(whole_); }

  // Returns aligned columns, followed by activations that are silently replicated, with the reason and the remedy.
  std::string to_text(const ActivationTableOptions& format = {}) const;
  // Returns the same as a Markdown table and a list.
  std::string to_markdown(const ActivationTableOptions& format = {}) const;
  // Returns {"modules": [{"path", "module", "inputs": [{"type", "bytes_per_device"}, ...], "outputs", "saved_bytes",
  // "forward_flops", "backward_flops", "collectives": [{"kind", "backward", "count", "bytes"}, ...]}, ...], "whole":
  // [{"module", "operation", "maker", "type", "axes", "reason", "constraint", "as_it_is", "cure", "bytes_per_device",
  // "file", "line"}, ...]}
  std::string to_json() const;

 private:
  std::vector<ActivationRow> rows_;
  std::vector<WholeActivation> whole_;
};

}  // namespace tessera::nn
