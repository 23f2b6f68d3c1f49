// Tokenizers and chat templates, read from Hugging Face files, and the tokens of conversations.
#pragma once

#include "data/text/chat_template.h"
#include "data/text/chat_tokens.h"
#include "data/text/tokenizer.h"
