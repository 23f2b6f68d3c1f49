// Placement of whole models: filter_shard, the tables that show it, what explains it and what differs.
#pragma once

#include "nn/placement/diff.h"
#include "nn/placement/explain.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/fsdp.h"
#include "nn/placement/table.h"
