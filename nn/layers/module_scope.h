// ModuleScope: ledgers and errors name the module that computes, by the path that filter_shard stamped on it.
#pragma once

#include <string>
#include <string_view>

#include "nn/tree/tree.h"
#include "sharding/diagnostics/module_path.h"

namespace tessera::nn {

namespace detail {

// The first array with a stamped path, and its path below the module.
class StampFinder {
 public:
  static constexpr bool sees_values = false;
  bool keeps_path() const { return !found_; }
  size_t push(std::string_view name) { return found_ ? 0 : place_.push(name); }
  void pop(size_t before) {
    if (!found_) place_.pop(before);
  }
  void leaf(Array& x) {
    if (!found_ && !x.is_absent() && !x.path().empty()) found_ = &x;
  }
  template <class Leaf>
  void leaf(Leaf& x) {
    leaf(x.value);
  }
  // "layers.2.mlp", of an array up.kernel that is stamped layers.2.mlp.up.kernel; empty if there is none.
  std::string module_path() const;

 private:
  const Array* found_ = nullptr;
  Place place_{""};
};

template <class Module>
std::string module_path_of(const Module& module) {
  StampFinder finder;
  walk_all(module, finder);
  return finder.module_path();
}

}  // namespace detail

// Opened by a module for the time of its call:
//   Array operator()(const Array& x) const {
//     const nn::ModuleScope scope(*this);
// Inside it a communication in which no parameter takes part carries the module's path in the ledger (one in which a
// parameter takes part carries that parameter's), in both passes, and an Error of any operation begins with it:
//   [matmul] layers.2.mlp: ...
// The path is what filter_shard stamped on the module's arrays; a module without arrays, or one that was never placed,
// is told it: ModuleScope scope("layers.2.act").
class ModuleScope {
 public:
  template <class Module>
  explicit ModuleScope(const Module& module) : scope_(detail::module_path_of(module)) {}
  explicit ModuleScope(std::string path) : scope_(std::move(path)) {}
  explicit ModuleScope(const char* path) : scope_(path) {}

 private:
  ModulePathScope scope_;
};

}  // namespace tessera::nn
