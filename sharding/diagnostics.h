// Diagnostics: the errors, and the line of the user's program that they and the ledger name.
#pragma once

#include "sharding/diagnostics/caller.h"
#include "sharding/diagnostics/error.h"
