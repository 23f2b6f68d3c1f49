// Batches: records stacked into arrays, batches for language models, and global arrays over the mesh.
#pragma once

#include "data/batches/packed_tokens.h"
#include "data/batches/shard_batches.h"
#include "data/batches/stack.h"
#include "data/batches/to_global.h"
#include "data/batches/token_batch.h"
