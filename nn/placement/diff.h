// diff_placement: what lies elsewhere in one placement table than in another.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "nn/placement/table.h"

namespace tessera::nn {

// An array whose rows differ; only after: it was added; only before: it is gone.
struct PlacementChange {
  std::string path;
  std::optional<PlacementRow> before, after;
  friend bool operator==(const PlacementChange&, const PlacementChange&) = default;
};

// Arrays are paired by their paths. In the order of the table after, then what is gone.
class PlacementDiff {
 public:
  PlacementDiff(std::vector<PlacementChange> changes, int64_t bytes_before, int64_t bytes_after)
      : changes_(std::move(changes)), bytes_before_(bytes_before), bytes_after_(bytes_after) {}

  const std::vector<PlacementChange>& changes() const { return changes_; }
  bool empty() const { return changes_.empty(); }

  // A line for each change, those of repeated layers in one, and the bytes of a device; "" if nothing differs:
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
