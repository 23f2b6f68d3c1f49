// Placement of whole models: filter_shard, fsdp, and tables, explanations and diffs of placements.
#pragma once

#include "nn/placement/diff.h"
#include "nn/placement/explain.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
