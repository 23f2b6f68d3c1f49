// Optimizers: Optimizer, which updates a model in place, and Optax's optimizers by their names.
#pragma once

#include "optim/optimizer/contrib.h"
#include "optim/optimizer/optimizer.h"
#include "optim/optimizer/optimizers.h"
