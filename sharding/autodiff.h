// Autodiff: tapes, how gradients are reduced and kept, rematerialization.
#pragma once

#include "sharding/array/gradient_options.h"
#include "sharding/autodiff/remat.h"
#include "sharding/autodiff/tape.h"
