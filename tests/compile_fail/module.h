// What a file here needs to write a module, and to walk it.
#pragma once

#include "nn/tree.h"

using namespace tessera;
using nn::Param;
