// Models: decoders as plain structs, made from a config or from a Hugging Face folder, and saved as GGUF files.
#pragma once

#include "nn/models/causal_lm.h"
#include "nn/models/config.h"
#include "nn/models/decoder_layer.h"
#include "nn/models/generate.h"
#include "nn/models/gguf.h"
#include "nn/models/pretrained.h"
