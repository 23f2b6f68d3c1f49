// Placement of models: filter_shard, fsdp, and tables and explanations of placements.
#pragma once

#include "nn/placement/explain.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
