// ActivationTable: what each module reads, makes and keeps for the backward pass in one step, and what it costs.
#pragma once

#include <cstdint>
#include <iosfwd>
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
  std::string type;  // float32[32@data,128,512@model], pending sums as {U:model}
  int64_t bytes_per_device = 0;
  friend bool operator==(const ModuleArray&, const ModuleArray&) = default;
};

// The collectives of one kind in one pass.
struct ModuleTraffic {
  std::string kind;  // as in CommRecord
  bool backward = false;
  int64_t num_collectives = 0, bytes = 0;
  friend bool operator==(const ModuleTraffic&, const ModuleTraffic&) = default;
};

// One module with all that is in it, on one device.
struct ActivationRow {
  std::string path;    // layers.2.mlp; "" for the whole step
  std::string module;  // its type, Mlp; "" if a scope has this path but no module of the tree
  // Arrays made outside of the module that it reads, and arrays made inside that are read outside or returned, in the
  // order of their first reading. Parameters and what is computed from them alone are neither; nor are constants.
  std::vector<ModuleArray> inputs = {}, outputs = {};
  // The bytes allocated in the module that are live when the forward pass ends: all that the graph saves.
  int64_t saved_bytes = 0;
  // Floating point operations, counted as a Forecast does. Operations that the backward pass repeats (remat) count as
  // backward.
  double forward_flops = 0, backward_flops = 0;
  std::vector<ModuleTraffic> traffic = {};
  friend bool operator==(const ActivationRow&, const ActivationRow&) = default;
};

// An activation that became whole along mesh axes, although it was cut over them or a pending sum, since an operation
// wanted it so: all devices along them now compute the same. Not listed is what the program then places by a
// constraint, or what the next operation reads cut again.
struct WholeActivation {
  std::string module, operation;  // that want it whole; module "": none
  std::string maker;              // the module that made it; "": none
  std::string type;               // before: float32[8@data,128@model,64]
  std::string mesh_axes;          // "model", or "data,model"
  std::string reason;             // in the words of the ledger
  std::string constraint;         // what keeps it cut: P{"data", "model"}; "": no placement would
  std::string as_it_is;           // what says that it is meant to be whole: P{"data"}
  int64_t bytes_per_device = 0;   // once it is whole
  std::source_location where;     // of the operation, in the program

  // "with_sharding_constraint(x, P{...}) before layer_norm at model.cpp:31", or "... on the result of mlp.down at ..."
  // where the same module makes it and wants it whole; "" without a constraint.
  std::string cure() const;
};

struct ActivationTableOptions {
  std::optional<int> depth = {};  // most names of a module's path
  bool fold = false;              // equal modules in one line, layers.{0..79}.mlp, with summed bytes and operations
};

// One row per module in the order of the tree, the first for the whole step; made by nn::activation_summary.
class ActivationTable {
 public:
  ActivationTable(std::vector<ActivationRow> rows, std::vector<WholeActivation> whole);

  const std::vector<ActivationRow>& rows() const& { return rows_; }
  std::vector<ActivationRow> rows() && { return std::move(rows_); }
  // The row of this module. Error (invalid_argument), which names the nearest paths: there is none.
  const ActivationRow& row(std::string_view path) const;
  const std::vector<WholeActivation>& whole() const& { return whole_; }
  std::vector<WholeActivation> whole() && { return std::move(whole_); }

  // Aligned columns; below them what is silently whole, why, and what cures it.
  std::string to_text(const ActivationTableOptions& format = {}) const;
  // The same as a Markdown table and a list.
  std::string to_markdown(const ActivationTableOptions& format = {}) const;
  // {"modules": [{"path", "module", "inputs": [{"type", "bytes_per_device"}, ...], "outputs", "saved_bytes",
  // "forward_flops", "backward_flops", "collectives": [{"kind", "backward", "count", "bytes"}, ...]}, ...], "whole":
  // [{"module", "operation", "maker", "type", "axes", "reason", "constraint", "as_it_is", "cure", "bytes_per_device",
  // "file", "line"}, ...]}
  std::string to_json() const;

 private:
  std::vector<ActivationRow> rows_;
  std::vector<WholeActivation> whole_;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const ActivationTable& table);

namespace detail {
// Whether `path` is `top` or below it; all paths are below "".
bool is_in_module(std::string_view path, std::string_view top);
ExtraColumns activation_columns(const ActivationTable& table, const std::string& root);
}  // namespace detail

// tree_summary with the types that went into each module and came out of it in the trace:
//   std::cout << nn::tree_summary(model, nn::activation_summary(model, batch), {.depth = 3});
template <class Tree>
std::string tree_summary(const Tree& tree, const ActivationTable& trace, const TreeSummaryOptions& options = {}) {
  return detail::summary_of(detail::parts_of(tree), options,
                            detail::activation_columns(trace, detail::module_path(tree)));
}

}  // namespace tessera::nn
