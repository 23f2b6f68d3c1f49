// Coverage of a run: the combinations of operation, transformation and operand state that its programs used.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "sharding/array/array_impl.h"
#include "tests/programs/program.h"

namespace tessera::programs {

class Coverage {
 public:
  // Counts an operation that is about to run on the mesh. `around`: the kinds of the nodes that contain it.
  void add(const Program& program, const Node& node, const std::vector<Array>& operands,
           const std::vector<Kind>& around) {
    if (node.kind != Kind::call) return;
    static const char* const outers[] = {"value_and_grad", "accumulate_gradients", "pipeline", "optimizer"};
    std::set<std::string> transformations{outers[static_cast<int>(program.outer)]};
    for (const Kind kind : around) transformations.insert(name_of(kind));
    if (is_second(around)) transformations.insert("second derivative");
    const Case& one = cases()[node.which];
    for (const std::string& operation : one.operations)
      for (const std::string& transformation : transformations)
        for (const Array& x : operands) triples_.insert({operation, transformation, state_of(x)});
  }

  std::string summary() const {
    return fmt::format(
        "{} of {} operations, {} pairs of an operation and a transformation, {} operations in second "
        "derivatives, {} triples with the state of an operand\n",
        operations().size(), all_operations().size(), pairs().size(), in("second derivative"), triples_.size());
  }

  // Returns one line for each minimum that the run did not reach; "" if all were reached.
  std::string missing() const {
    const size_t n = all_operations().size();
    std::string text;
    const auto require = [&](const char* what, size_t met, size_t least) {
      if (met < least) text += fmt::format("coverage: {} {}, at least {} expected\n", met, what, least);
    };
    require("operations", operations().size(), n);
    require("pairs of an operation and a transformation", pairs().size(), n * 7);
    require("operations in second derivatives", in("second derivative"), n * 8 / 10);
    require("operations in remat", in("remat"), n * 9 / 10);
    require("operations in shard_map", in("shard_map"), n * 9 / 10);
    for (const char* state : {"unplaced", "replicated", "sharded", "padded", "partial sum", "reduced", "varying"})
      require(fmt::format("operations on an operand that is {}", state).c_str(), on(state), n / 4);
    return text;
  }

 private:
  static const char* name_of(Kind kind) {
    return kind == Kind::remat       ? "remat"
           : kind == Kind::gradient  ? "gradient"
           : kind == Kind::jvp       ? "jvp"
           : kind == Kind::shard_map ? "shard_map"
                                     : "";
  }
  // Returns true for operations in an inner gradient: as every program is differentiated, they are differentiated
  // twice.
  static bool is_second(const std::vector<Kind>& around) {
    return std::any_of(around.begin(), around.end(), [](Kind k) { return k == Kind::gradient || k == Kind::jvp; });
  }
  static const char* state_of(const Array& x) {
    const tessera::detail::Type* type = x.impl()->type;
    if (!type->mesh) return "unplaced";
    if (type->varying) return "varying";
    if (type->unreduced) return "partial sum";
    if (type->reduced) return "reduced";
    return !type->sharded ? "replicated" : type->padded ? "padded" : "sharded";
  }

  static const std::set<std::string>& all_operations() {
    static const auto& all = *[] {
      auto* names = new std::set<std::string>;
      for (const Case& one : cases()) names->insert(one.operations.begin(), one.operations.end());
      return names;
    }();
    return all;
  }
  std::set<std::string> operations() const {
    std::set<std::string> met;
    for (const auto& [operation, transformation, state] : triples_) met.insert(operation);
    return met;
  }
  std::set<std::pair<std::string, std::string>> pairs() const {
    std::set<std::pair<std::string, std::string>> met;
    for (const auto& [operation, transformation, state] : triples_) met.insert({operation, transformation});
    return met;
  }
  size_t in(const std::string& wanted) const {
    std::set<std::string> met;
    for (const auto& [operation, transformation, state] : triples_)
      if (transformation == wanted) met.insert(operation);
    return met.size();
  }
  size_t on(const std::string& wanted) const {
    std::set<std::string> met;
    for (const auto& [operation, transformation, state] : triples_)
      if (state == wanted) met.insert(operation);
    return met.size();
  }

  std::set<std::tuple<std::string, std::string, std::string>> triples_;
};

}  // namespace tessera::programs
