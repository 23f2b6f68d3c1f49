// CallerScope, CallerLine: the line of the user's program that a communication is recorded under.
#pragma once

#include <source_location>

#include "sharding/base/scoped_value.h"

namespace tessera {

// Opened, with the caller's line, by code that computes on its caller's behalf (a layer, an optimizer, value_and_grad).
// While the scope lives, a communication whose own line is in library code is recorded under `where` instead:
//   Array Linear::operator()(Operand x) const {
//     const CallerScope caller(x.where());
//     ...
// Library code is every file of the library's sources, and every file that has a CallerScope open now. So the ledger
// names the innermost line that is not library code. Scopes nest, belong to their thread, and cost two stores. A
// library of your own layers opens them in the same way.
class CallerScope {
 public:
  explicit CallerScope(const std::source_location& where,
                       const std::source_location& here = std::source_location::current());

 private:
  friend class CallerLine;
  std::source_location where_;
  const char* file_;
  detail::ScopedValue<const CallerScope*> innermost_;
};

// A line for a communication: `where`, or, if that is in library code, the innermost open scope's line that is not.
class CallerLine {
 public:
  CallerLine(const std::source_location& where = {});
  operator const std::source_location&() const { return where_; }

 private:
  std::source_location where_;
};

}  // namespace tessera
