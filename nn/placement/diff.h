// diff_placement: how the rows of two placement tables differ.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/placement/table.h"

namespace tessera::nn {

// An array whose rows differ. Without `before` it was added, without `after` it was removed.
struct PlacementChange {
  std::string path;
  std::optional<PlacementRow> before, after;
  friend bool operator==(const PlacementChange&, const PlacementChange&) = default;
};

// Arrays are paired by path. Changes are in the order of the later table, followed by removed arrays.
class PlacementDiff {
 public:
  PlacementDiff(std::vector<PlacementChange> changes, int64_t bytes_before, int64_t bytes_after)
      : changes_(std::move(changes)), bytes_before_(bytes_before), bytes_after_(bytes_after) {}

  const std::vector<PlacementChange>& changes() const& { return changes_; }
  std::vector<PlacementChange> changes() && { return std::move(changes_); }
  bool empty() const { return changes_.empty(); }

  // One line for each change (one for all repeated layers), and the bytes per device; "" if nothing differs:
  //   ~ layers.{0..79}.mlp.up.kernel: spec P(None, 'model') -> P('data', 'model'); bytes/device 4,096 -> 1,024
  //   + head.kernel: float32 (512, 256), P(None, 'model'), bytes/device 262,144
  //   - head.weight: float32 (256, 512), P('model'), bytes/device 262,144
  //   bytes per device: 2,101,264 -> 1,050,632
  std::string to_text() const;
  // {"changes": [{"path", "before": row or null, "after": row or null}], "bytes_per_device": {"before", "after"}}, with
  // rows as in PlacementTable::to_json.
  std::string to_json() const;

 private:
  std::vector<PlacementChange> changes_;
  int64_t bytes_before_, bytes_after_;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const PlacementDiff& diff);

PlacementDiff diff_placement(const PlacementTable& before, const PlacementTable& after);  // row by row, by path

}  // namespace tessera::nn
