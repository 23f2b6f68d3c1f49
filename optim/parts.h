// The parts of a transform that holds other transforms, each with its state: to find the learning rate and the norm.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::optim::detail {

// A transform that holds others has
//   template <class State, class Visit> void visit_parts(const State& state, Visit&& visit) const
// which calls visit(label, part, part's state) for each part; the label is empty if the parts have no labels.
struct AnyVisit {
  template <class Part, class State>
  void operator()(std::string_view, const Part&, const State&) const {}
};
template <class T, class State>
concept HasParts = requires(const T& transform, const State& state) {
  transform.visit_parts(state, AnyVisit());
};

// The label of the part `name` within a part of this label: both joined by a dot.
std::string label_below(const std::string& label, std::string_view name);

// f(label, part, state) for every Part within the transform; labels of partitions within others are joined by dots.
template <class Part, class T, class State, class F>
void for_each_part(const T& transform, const State& state, const std::string& label, F& f) {
  if constexpr (std::is_same_v<T, Part>) {
    f(label, transform, state);
  } else if constexpr (HasParts<T, State>) {
    transform.visit_parts(state, [&](std::string_view name, const auto& part, const auto& part_state) {
      for_each_part<Part>(part, part_state, label_below(label, name), f);
    });
  }
}

// Numbers of the parts, by label: the first part of a label counts.
using LabelledNumbers = std::vector<std::pair<std::string, double>>;
struct FirstNumbers {
  LabelledNumbers numbers = {};
  bool lacks(const std::string& label) const;
  void add(const std::string& label, double number);
};

template <class Part, class T, class State, class Number>
LabelledNumbers numbers_of(const T& transform, const State& state, Number number) {
  FirstNumbers first;
  auto add = [&](const std::string& label, const Part& part, const auto& part_state) {
    if (first.lacks(label)) first.add(label, number(part, part_state));
  };
  for_each_part<Part>(transform, state, "", add);
  return std::move(first.numbers);
}

// The number of this label; for an empty label, the number that all parts have, or std::nullopt if there is none.
// Errors (bad_argument): an empty label although the numbers differ, a label without a number.
std::optional<double> number_of(const char* verb, const LabelledNumbers& numbers, const std::string& label);

}  // namespace tessera::optim::detail
