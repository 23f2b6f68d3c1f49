// Checks a state against a tree, reports all mistakes at once, and writes the state to the tree.
#include "nn/tree/state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn::detail {

namespace {

std::string type_of(const Shape& shape, DType dtype) {
  return fmt::format("{}[{}]", name_of(dtype), fmt::join(shape, ","));
}

std::string mistake_of(const Slot& slot, const State& state) {
  const auto given = state.find(slot.path);
  if (given == state.end() || given->second.is_absent()) return slot.path + ": missing";
  const Array& x = given->second;
  if (x.shape() == slot.shape && x.dtype() == slot.dtype) return "";
  return fmt::format("{}: {} given, expected {}", slot.path, type_of(x.shape(), x.dtype()),
                     type_of(slot.shape, slot.dtype));
}

[[noreturn]] void fail_same_path(const std::string& path) {
  fail(ErrorKind::invalid_argument, "state",
       "{}: two arrays of the tree have this path, expected one. Rename a key of a map, or a field that a hook names.",
       path);
}

}  // namespace

std::vector<Slot> slots_of(const Leaves& tree, const Filter& filter) {
  std::vector<Slot> slots;
  std::set<std::string> paths;
  for (const Leaf& leaf : tree) {
    if (!is_array(leaf) || !filter(leaf)) continue;
    if (!paths.insert(leaf.path).second) fail_same_path(leaf.path);
    slots.push_back({leaf.path, leaf.value->shape(), leaf.value->dtype()});
  }
  return slots;
}

State state_of(const Leaves& tree, const Filter& filter) {
  State state;
  for (const Leaf& leaf : tree)
    if (is_array(leaf) && filter(leaf) && !state.emplace(leaf.path, *leaf.value).second) fail_same_path(leaf.path);
  return state;
}

void check_state(const std::vector<Slot>& slots, const State& state, const char* verb) {
  std::vector<std::string> mistakes, paths;
  for (const Slot& slot : slots) {
    paths.push_back(slot.path);
    if (std::string mistake = mistake_of(slot, state); !mistake.empty()) mistakes.push_back(std::move(mistake));
  }
  const std::set<std::string> known(paths.begin(), paths.end());
  for (const auto& [path, x] : state)
    if (!known.contains(path)) {
      const std::vector<std::string> near = tessera::detail::closest_matches(path, paths, 1);
      mistakes.push_back(fmt::format("{}: not in the tree, {}", path,
                                     near.empty() ? "which has no such arrays" : "near it " + near[0]));
    }
  if (!mistakes.empty())
    fail_lines(ErrorKind::invalid_argument, verb,
               fmt::format("{} of the arrays do not fit the tree, which is as it was:", mistakes.size()), mistakes);
}

void write_state(const Leaves& tree, const State& state) {
  for (const Leaf& leaf : tree) {
    const auto given = state.find(leaf.path);
    if (given == state.end()) continue;
    const bool is_placed = is_array(leaf) && !given->second.is_committed();
    *leaf.value = is_placed ? place_parameter_as(given->second, *leaf.value) : given->second;
  }
}

}  // namespace tessera::nn::detail
