// Cause: whose line communicates, by which operation, for which parameter and why.
#pragma once

#include <memory>
#include <string>

#include "sharding/diagnostics/caller.h"

namespace tessera::detail {

using Text = std::shared_ptr<const std::string>;

// Where a communication comes from, for the ledger: kept by the graph for the backward pass.
struct Cause {
  const char* operation = "";
  CallerLine where;
  Text reason;
  Text path;
};

// The reasons of what the user's own line moves, and of what is moved so that a value can be read.
Text asked_for();
Text handed_out();

}  // namespace tessera::detail
