// Diagnostics: `Error` and its kinds, and scopes for the line, module and step that errors and ledgers name.
#pragma once

#include "sharding/base/caller.h"
#include "sharding/base/error.h"
