// CallerScope, CallerLine: the line of the user's program under which communication is recorded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "sharding/base/thread_state.h"

namespace tessera {

// Code that computes on behalf of its caller (a layer, an optimizer, value_and_grad) opens a CallerScope with the
// caller's line. In the scope, communication from a line in library code is recorded under `where` instead:
//   Array Linear::operator()(Operand x) const {
//     const CallerScope caller(x.where());
//     ...
// Library code is each file of the library's sources, and each file with an open CallerScope. The ledger thus names the
// innermost line outside library code. Scopes nest, are per thread, and cost two stores. Open them in the same way in
// your own layers.
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

namespace detail {
// Returns the innermost open CallerScope of this thread; null outside any scope.
const CallerScope*& innermost_caller();
}  // namespace detail

// The line of a communication: `where`, or, if that is in library code, the line of the innermost open scope that is
// not.
class CallerLine {
 public:
  CallerLine(const std::source_location& where = {});
  operator const std::source_location&() const { return where_; }

 private:
  std::source_location where_;
};

namespace detail {
// Returns the module path of this thread; null outside any scope.
std::shared_ptr<const std::string>& current_module_path();
}  // namespace detail

// In this scope, ledgers record `path` for communication without a parameter. An Error message that names no path at or
// below `path` begins with it: "[matmul] layers.2.mlp: ...". Scopes are per thread, and the innermost one counts. An
// empty path changes nothing. nn::ModuleScope finds a module's path automatically.
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
// Returns a text for static variables: it is never destroyed.
Text lasting_text(const char* words);

// The origin of a communication, for the ledger. The autograd graph keeps it for the backward pass.
struct Provenance {
  const char* operation = "";
  CallerLine where;
  Text reason;
  Text path;
};

// Return the `reason` of a communication that the user's line requests, and of one that makes a value readable.
Text explicit_reason();
Text returned_value_reason();

// Returns a short name for each file, with as few trailing parts of its path as make it unique: "model.cpp",
// "a/model.cpp".
std::map<std::string, std::string> short_names(const std::vector<std::string>& files);

// Returns "model.cpp:31", or "an unknown line" if `file` is empty.
std::string line_name(const std::string& file, uint32_t line);
// Returns "model.cpp:31" without the folders of the file, as in messages.
std::string line_name(const std::source_location& where);

}  // namespace tessera::detail

namespace tessera {

namespace detail {
// Returns the step of this thread; std::nullopt outside any scope.
inline std::optional<int64_t>& current_step() {
  thread_local std::optional<int64_t> step;
  return step;
}
}  // namespace detail

// In this scope, errors of DetectNonFinite and TESSERA_CHECK_FINITE=1 contain the step ("step 12"):
//   for (int64_t step = 1; step <= steps; ++step) {
//     const StepScope current(step);
//     ...
// Scopes are per thread, and the innermost one counts.
class StepScope {
 public:
  explicit StepScope(int64_t step) : step_(detail::current_step(), step) {}

 private:
  detail::ScopedValue<std::optional<int64_t>> step_;
};

}  // namespace tessera
