// Streams: records in order, filtered, packed, shuffled in windows, limited, mixed, and sharded.
#pragma once

#include "data/streams/stream.h"
