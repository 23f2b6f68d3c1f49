// Text: tokenizers from the files of Hugging Face.
#pragma once

#include "data/text/tokenizer.h"
