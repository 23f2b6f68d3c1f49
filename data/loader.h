// Loader: the batches of a dataset or a stream, with its windows, its state and its options.
#pragma once

#include "data/loader/loader.h"
#include "data/sources/windows.h"
