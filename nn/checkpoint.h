// Checkpoints: saving, resuming on any mesh, and weights of other libraries.
#pragma once

#include "nn/checkpoint/checkpoint.h"
#include "nn/checkpoint/foreign_weights.h"
#include "nn/checkpoint/hugging_face.h"
