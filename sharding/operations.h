// The operations of arrays: numpy's and jax.nn's names, computed on all devices, communication inserted.
#pragma once

#include "sharding/attention.h"
#include "sharding/convolution.h"
#include "sharding/creation.h"
#include "sharding/cumulative.h"
#include "sharding/elementwise.h"
#include "sharding/indexing.h"
#include "sharding/joins.h"
#include "sharding/linear_algebra.h"
#include "sharding/neural.h"
#include "sharding/ordering.h"
#include "sharding/reductions.h"
#include "sharding/shapes.h"
#include "sharding/slices.h"
#include "sharding/softmax.h"
#include "sharding/update_slice.h"
