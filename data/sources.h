// Sources: bytes, text and tokens of files as records, and tokenized files.
#pragma once

#include "data/sources/entropy.h"
#include "data/sources/file_list.h"
#include "data/sources/text_source.h"
#include "data/sources/token_files.h"
#include "data/sources/token_source.h"
#include "data/sources/token_writer.h"
#include "data/sources/windows.h"
