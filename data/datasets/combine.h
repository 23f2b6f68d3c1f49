// Combines datasets into one: concat, zip, and mix by weights.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data/datasets/dataset.h"

namespace tessera::data {

namespace detail {

struct Place {
  size_t part = 0;
  int64_t index = 0;
};

// Maps an index of a mix to the dataset that gives the record (`part`) and to the record's index there.
class Proportions {
 public:
  explicit Proportions(const std::vector<double>& weights);
  Place place(int64_t index) const;
  // Returns the number of records of the mix before a part runs out.
  int64_t size(const std::vector<int64_t>& sizes) const;
  // Returns the number of turns after which part i has returned rounds[i] records, for all i; endless if one of these
  // numbers is.
  int64_t round(const std::vector<int64_t>& rounds) const;
  std::string describe() const;

 private:
  // Returns the first turn at which a part of this size has no record left.
  int64_t end_of(size_t part, int64_t size) const;
  int64_t period() const { return static_cast<int64_t>(turns_.size()); }
  std::vector<int64_t> shares_;  // records of each part in a period
  std::vector<Place> turns_;     // part and index of each record of a period
};

void check_weights(const std::vector<double>& weights, size_t datasets);
int64_t concatenated_size(const std::vector<int64_t>& sizes);
int64_t zipped_size(const std::vector<int64_t>& sizes);
std::string joined(const char* link, const std::vector<std::string>& parts);

// Base of nodes with several parents.
template <class... N>
struct Several {
  std::tuple<N...> parts;

  bool reorders() const {
    return std::apply([](const N&... n) { return (n.reorders() || ...); }, parts);
  }
  bool draws() const {
    return std::apply([](const N&... n) { return (n.draws() || ...); }, parts);
  }
  std::vector<int64_t> sizes() const {
    return std::apply([](const N&... n) { return std::vector<int64_t>{n.size()...}; }, parts);
  }
  std::vector<int64_t> rounds() const {
    return std::apply([](const N&... n) { return std::vector<int64_t>{n.round()...}; }, parts);
  }
  std::vector<std::string> descriptions() const {
    return std::apply([](const N&... n) { return std::vector<std::string>{n.describe()...}; }, parts);
  }
  template <class T, size_t i = 0>
  T from(int64_t epoch, const Place& place) const {
    if constexpr (i + 1 < sizeof...(N))
      if (place.part != i) return from<T, i + 1>(epoch, place);
    return std::get<i>(parts).get(epoch, place.index);
  }
};

template <class T, class... N>
struct ConcatNode : Several<N...> {
  using value_type = T;
  std::array<int64_t, sizeof...(N) + 1> begins;  // first index of each part, then the total
  int64_t size() const { return begins.back(); }
  int64_t round() const { return begins.back(); }
  std::string describe() const { return joined("concat", this->descriptions()); }
  T get(int64_t epoch, int64_t index) const {
    size_t part = 0;
    while (index >= begins[part + 1]) ++part;
    return this->template from<T>(epoch, {part, index - begins[part]});
  }
};

template <class... N>
struct ZipNode : Several<N...> {
  using value_type = std::tuple<record<N>...>;
  int64_t size() const { return std::get<0>(this->parts).size(); }
  int64_t round() const { return std::get<0>(this->parts).round(); }
  std::string describe() const { return joined("zip", this->descriptions()); }
  value_type get(int64_t epoch, int64_t index) const {
    return std::apply([&](const N&... n) { return value_type(n.get(epoch, index)...); }, this->parts);
  }
};

template <class T, class... N>
struct MixNode : Several<N...> {
  using value_type = T;
  std::shared_ptr<const Proportions> proportions;
  int64_t records, one_round;
  int64_t size() const { return records; }
  int64_t round() const { return one_round; }
  std::string describe() const {
    std::vector<std::string> parts = this->descriptions();
    parts.insert(parts.begin(), proportions->describe());
    return joined("mix", parts);
  }
  T get(int64_t epoch, int64_t index) const { return this->template from<T>(epoch, proportions->place(index)); }
};

}  // namespace detail

// Concatenates datasets of one record type: an epoch has all records of the first dataset, then of the second, and
// so on.
// Error (invalid_argument): an endless dataset.
template <class T, class... N>
auto concat(const Dataset<T, N>&... datasets) {
  using Node = detail::ConcatNode<T, N...>;
  Node node{{{datasets.node()...}}, {}};
  const std::vector<int64_t> sizes = node.sizes();
  detail::concatenated_size(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) node.begins[i + 1] = node.begins[i] + sizes[i];
  return Dataset<T, Node>(std::move(node));
}

// Combines records of the same index into std::tuple<A, B, ...>. Error (invalid_argument) unless all sizes are equal.
template <class... T, class... N>
auto zip(const Dataset<T, N>&... datasets) {
  using Node = detail::ZipNode<N...>;
  Node node{{{datasets.node()...}}};
  detail::zipped_size(node.sizes());
  return Dataset<typename Node::value_type, Node>(std::move(node));
}

// Mixes datasets in proportion to their weights, spread evenly: mix({0.7, 0.3}, a, b) takes records in the order a b a
// a a b a a b a. The pattern is fixed, not random: every record is still a function of its index, and every process
// makes the same choice. An epoch ends where a dataset has no record left for its next turn; mix endless datasets
// (repeat()) to use all records of each. Weights are normalized to fractions of their sum. The fractions are exact if
// they have a common denominator up to 10,000; otherwise they are rounded to 1/10,000.
// Error (invalid_argument): not as many weights as datasets, or a weight that is not greater than 0 after rounding.
template <class T, class... N>
auto mix(const std::vector<double>& weights, const Dataset<T, N>&... datasets) {
  detail::check_weights(weights, sizeof...(N));
  using Node = detail::MixNode<T, N...>;
  Node node{{{datasets.node()...}}, std::make_shared<const detail::Proportions>(weights), 0, 0};
  node.records = node.proportions->size(node.sizes());
  node.one_round = node.records == endless ? node.proportions->round(node.rounds()) : node.records;
  detail::check_not_empty("mix", node.records);
  return Dataset<T, Node>(std::move(node));
}

}  // namespace tessera::data
