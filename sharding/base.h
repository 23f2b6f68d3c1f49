// Diagnostics: the errors, and the line and the step of the user's program that they and the ledger name.
#pragma once

#include "sharding/base/caller.h"
#include "sharding/base/error.h"
