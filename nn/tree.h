// Trees: the types of a model's fields, and functions that walk, filter, compare and partly replace them.
#pragma once

#include "nn/tree/filter.h"
#include "nn/tree/param.h"
#include "nn/tree/state.h"
#include "nn/tree/tree.h"
#include "nn/tree/tree_at.h"
#include "nn/tree/tree_equal.h"
#include "nn/tree/tree_of_arrays.h"
#include "nn/tree/tree_summary.h"
