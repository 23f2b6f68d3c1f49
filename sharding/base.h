// Diagnostics: `Error` and its kinds, scopes for the line, module and step that errors name, and the version.
#pragma once

#include "sharding/base/caller.h"
#include "sharding/base/error.h"
#include "sharding/base/version.h"
