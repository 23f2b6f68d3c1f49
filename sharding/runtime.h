// Distributed: the processes of one program, which find each other and end together.
#pragma once

#include "sharding/runtime/processes.h"
