// Wrappers: transforms that contain other transforms, such as chain, partition, accumulate and apply_if_finite.
#pragma once

#include "optim/wrappers/chain.h"
#include "optim/wrappers/masking.h"
#include "optim/wrappers/wrappers.h"
