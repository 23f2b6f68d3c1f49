// Datasets: records by index, and the streams that filter, flat_map, rebatch and pack return.
#pragma once

#include "data/datasets/combine.h"
#include "data/datasets/dataset.h"
#include "data/streams/stream.h"
