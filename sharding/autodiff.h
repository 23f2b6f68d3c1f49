// Umbrella header of autodiff: tapes, options of gradients, rematerialization.
#pragma once

#include "sharding/array/gradient_options.h"
#include "sharding/autodiff/remat.h"
#include "sharding/autodiff/tape.h"
