// Layers: common modules, their initializers, and LoRA.
#pragma once

#include "nn/layers/activation.h"
#include "nn/layers/attention.h"
#include "nn/layers/batch_norm.h"
#include "nn/layers/conv.h"
#include "nn/layers/embedding.h"
#include "nn/layers/init.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/layers/module_scope.h"
#include "nn/layers/moe.h"
#include "nn/layers/norm.h"
#include "nn/layers/pool.h"
#include "nn/layers/recurrent.h"
#include "nn/layers/sequential.h"
#include "nn/layers/transformer.h"
#include "nn/layers/weight_norm.h"
