// Cause: whose line communicates, by which operation, for which parameter and why.
#pragma once

#include <memory>
#include <string>

#include "sharding/base/caller.h"

namespace tessera::detail {

using Text = std::shared_ptr<const std::string>;
Text as_text(std::string words);
// For static variables: never destroyed.
Text lasting_text(const char* words);

// Where a communication comes from, for the ledger. The autograd graph keeps it for the backward pass.
struct Provenance {
  const char* operation = "";
  CallerLine where;
  Text reason;
  Text path;
};

// The `reason` of a move that the user's own line asks for, and of one that makes a value readable.
Text asked_for();
Text handed_out();

}  // namespace tessera::detail
