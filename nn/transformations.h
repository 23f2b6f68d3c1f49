// Transformations: gradients and directional derivatives of functions of models, micro-batches, remat, casts, CUDA graphs, abstract shapes.
#pragma once

#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/eval_shape.h"
#include "nn/transformations/graphed_step.h"
#include "nn/transformations/jvp.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/remat.h"
#include "nn/transformations/value_and_grad.h"
