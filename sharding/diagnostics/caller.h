// The line of the user's program that a communication belongs to, when a library stands between the two.
#pragma once

#include <source_location>

namespace tessera {

// Opened by what computes on its caller's behalf (a layer, an optimizer, value_and_grad), with the caller's line. While
// it lives, a communication whose own line is the library's is put down to `where`:
//   Array Linear::operator()(Operand x) const {
//     const CallerScope caller(x.where());
//     ...
// Lines in the library's sources, and in a file that has opened a scope that is open now, are the library's; all others
// are the user's and stay. So the ledger names the innermost line that is not the library's. Scopes nest, belong to
// their thread, and cost two stores. A library of your own layers does the same.
class CallerScope {
 public:
  explicit CallerScope(const std::source_location& where,
                       const std::source_location& here = std::source_location::current());
  ~CallerScope();
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;

 private:
  friend class CallerLine;
  std::source_location where_;
  const char* file_;
  const CallerScope* outer_;
};

// A line, made the user's where it is the library's and a scope knows better.
class CallerLine {
 public:
  CallerLine(const std::source_location& where = {});
  operator const std::source_location&() const { return where_; }

 private:
  std::source_location where_;
};

}  // namespace tessera
