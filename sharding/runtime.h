// Distributed: joins the processes of one program, and ends them together.
#pragma once

#include "sharding/runtime/processes.h"
