// CallerScope, CallerLine: the line of the user's program that a communication is recorded under.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>

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

namespace detail {
// Null outside any scope.
std::shared_ptr<const std::string>& current_module_path();
}  // namespace detail

// While it lives, ledgers record `path` for a communication that belongs to no parameter, and an Error whose message
// names no path at or below `path` begins with it: "[matmul] layers.2.mlp: ...". Scopes belong to their thread; of
// nested ones the innermost counts; an empty path changes nothing. nn::ModuleScope finds a module's path by itself.
class ModulePathScope {
 public:
  explicit ModulePathScope(std::string path);

 private:
  detail::ScopedValue<std::shared_ptr<const std::string>> path_;
};

}  // namespace tessera

namespace tessera::detail {

using Text = std::shared_ptr<const std::string>;
Text as_text(std::string words);
// For static variables: never destroyed.
Text lasting_text(const char* words);

// The origin of a communication, for the ledger. The autograd graph keeps it for the backward pass.
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

namespace tessera {

namespace detail {
// Unset outside any scope.
inline std::optional<int64_t>& current_step() {
  thread_local std::optional<int64_t> step;
  return step;
}
}  // namespace detail

// While it lives, what DetectNonFinite and TESSERA_CHECK_FINITE=1 find is found "in step 12":
//   for (int64_t step = 1; step <= steps; ++step) {
//     const StepScope current(step);
//     ...
// Scopes belong to their thread; of nested ones the innermost counts.
class StepScope {
 public:
  explicit StepScope(int64_t step) : step_(detail::current_step(), step) {}

 private:
  detail::ScopedValue<std::optional<int64_t>> step_;
};

}  // namespace tessera
