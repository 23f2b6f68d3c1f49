// Formulas: the transforms that optimizers consist of, each for one array at a time, and the norm of a tree.
#pragma once

#include "optim/formulas/adaptive.h"
#include "optim/formulas/clipping.h"
#include "optim/formulas/factored.h"
#include "optim/formulas/global_norm.h"
#include "optim/formulas/muon.h"
#include "optim/formulas/scaling.h"
