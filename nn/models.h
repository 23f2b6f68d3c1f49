// Models: decoders as plain structs, from a config, or with the weights of a folder of Hugging Face's.
#pragma once

#include "nn/models/causal_lm.h"
#include "nn/models/config.h"
#include "nn/models/decoder.h"
#include "nn/models/gemma2.h"
#include "nn/models/generate.h"
#include "nn/models/gpt2.h"
#include "nn/models/hugging_face_config.h"
#include "nn/models/llama.h"
#include "nn/models/mixtral.h"
#include "nn/models/pretrained.h"
