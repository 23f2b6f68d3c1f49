// What rows and groups are made of, for the files that choose routes and carry them out.
#pragma once

#include <vector>

#include "sharding/redistribute.h"

namespace tessera::detail {

// What the devices do at a row of the table, and on the way back.
struct Moves {
  Move forward, backward;
};
Moves moves_of(Row row);

// Fills in the step's groups and members: the devices that act together at a step, numbered over its axes in the mesh's
// order, or in the one given.
void form_groups(Step& step, const DimAxes& order = {});

}  // namespace tessera::detail
