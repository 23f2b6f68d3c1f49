// Puts the trained arrays of a model on the tape, and returns their gradients in the order of the model.
#include "nn/transformations/value_and_grad.h"

#include <fmt/format.h>

#include "sharding/accounting/communication_event.h"
#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"

namespace tessera::nn::detail {

void check_weight(const Array& weight) {
  if (weight.is_absent())
    fail(ErrorKind::missing_array, "value_and_grad",
         "the loss is a sum with an absent weight, expected a scalar to divide it by. Return weighted_sum(...), or "
         "both.");
  if (tessera::detail::wants_gradient(*weight.impl()))
    fail(ErrorKind::invalid_argument, "value_and_grad",
         "the weight of the loss depends on what is trained, expected a constant: micro-batches add it up apart from "
         "the sum. Use stop_gradient on it, or return mean().");
}

Array scalar_loss(const WeightedSum& loss) {
  if (loss.sum.is_absent()) return {};  // the backward pass reports it
  check_weight(loss.weight);
  return loss.mean();
}

bool has_ledger() { return tessera::detail::is_observed(tessera::detail::Events::communication); }

void notify_unplaced(const std::vector<Argument>& arguments) {
  bool has_mesh = false;
  for (const Argument& argument : arguments)
    for (const Array& x : argument.arrays)
      has_mesh |= !x.is_absent() && x.is_committed() && x.sharding().mesh().size() > 1;
  if (!has_mesh) return;
  const CallerLine where(std::source_location::current());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& [type, arrays] = arguments[i];
    const std::string root = type.empty() ? fmt::format("argument {}", i + 1) : std::string(type);
    for (const Leaf& leaf : arrays)
      if (const Array& x = leaf; !x.is_absent() && !x.is_committed() && x.size() > 1)
        tessera::detail::emit(tessera::detail::Events::communication, &tessera::detail::Observer::found_unplaced,
                              UnplacedArray{leaf.path.empty() ? root : join(root, leaf.path), x.type_string(), where});
  }
}

namespace {

std::string_view argument_of(const Leaf& leaf) { return std::string_view(leaf.path).substr(0, leaf.path.find('.')); }

Leaves checked(Leaves model, bool is_arguments) {
  for (auto begin = model.begin(), end = model.end(); begin != model.end(); begin = end) {
    if (is_arguments)
      end =
          std::find_if(begin, model.end(), [&](const Leaf& leaf) { return argument_of(leaf) != argument_of(*begin); });
    check_distinct({begin, end}, "value_and_grad");
  }
  return model;
}

std::vector<size_t> trained_of(const Leaves& model, const Filter& trained) {
  if (std::none_of(model.begin(), model.end(), is_trainable))
    fail(ErrorKind::no_gradient, "value_and_grad",
         "the model has no array that can be trained, expected a floating one that is no Buffer and that no filter "
         "took out.");
  std::vector<size_t> places;
  for (size_t i = 0; i < model.size(); ++i)
    if (is_trainable(model[i]) && trained(model[i])) places.push_back(i);
  if (places.empty())
    fail(ErrorKind::invalid_argument, "value_and_grad",
         "the filter selects none of the {} arrays of the model that could be trained, the first of which is {}. Print "
         "nn::leaves(model) for their paths.",
         std::count_if(model.begin(), model.end(), is_trainable),
         std::find_if(model.begin(), model.end(), is_trainable)->path);
  return places;
}

std::vector<Array> values_at(const Leaves& model, const std::vector<size_t>& places) {
  std::vector<Array> values;
  values.reserve(places.size());
  for (size_t i : places) values.push_back(*model[i].value);
  return values;
}

}  // namespace

Training::Training(Leaves model, const Filter& trained, const GradientOptions& options, bool is_arguments)
    : model_(checked(std::move(model), is_arguments)),
      trained_(trained_of(model_, trained)),
      tape_(values_at(model_, trained_), options) {}

std::vector<Array> Training::shadows() const {
  std::vector<Array> values;
  values.reserve(model_.size());
  for (const Leaf& leaf : model_) values.push_back(*leaf.value);
  for (size_t i = 0; i < trained_.size(); ++i) values[trained_[i]] = tape_.shadows()[i];
  return values;
}

std::vector<Array> Training::gradients(const Array& loss) {
  std::vector<Array> result(model_.size());
  std::vector<Array> gradients = tape_.gradients(loss);
  for (size_t i = 0; i < trained_.size(); ++i) result[trained_[i]] = std::move(gradients[i]);
  return result;
}

}  // namespace tessera::nn::detail
