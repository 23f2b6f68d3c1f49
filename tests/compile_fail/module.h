// Headers that the tests in this folder need to define a module and to walk through it.
#pragma once

#include "nn/tree.h"

using namespace tessera;
using nn::Param;
