// Tokenizers, read from Hugging Face files.
#pragma once

#include "data/text/tokenizer.h"
