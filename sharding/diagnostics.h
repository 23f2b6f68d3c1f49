// Diagnostics: the errors, and the line and the step of the user's program that they and the ledger name.
#pragma once

#include "sharding/diagnostics/caller.h"
#include "sharding/diagnostics/error.h"
#include "sharding/diagnostics/step_scope.h"
