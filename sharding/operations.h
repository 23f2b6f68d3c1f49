// Umbrella header of array operations, named as in numpy and jax.nn. They run on all devices of a mesh.
#pragma once

#include "sharding/operations/custom_gradient.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/neural/attention.h"
#include "sharding/operations/neural/convolution.h"
#include "sharding/operations/neural/linear_cross_entropy.h"
#include "sharding/operations/neural/losses.h"
#include "sharding/operations/neural/normalization.h"
#include "sharding/operations/neural/rotary_embedding.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/joining.h"
#include "sharding/operations/shape/make_array.h"
#include "sharding/operations/shape/shapes.h"
