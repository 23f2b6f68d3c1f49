// The second run: fresh leaves for activations, the tape's own leaves for parameters.
#include "sharding/remat.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "sharding/autograd.h"
#include "sharding/tape_state.h"

namespace tessera {

using namespace detail;

namespace {

using Arrays = std::vector<Array>;
using Function = std::function<Arrays(const Arrays&)>;

// The tape's parameter that `a` is, or is made of by casts, views and scalings; null if there is none.
ArrayPtr root_parameter(const ArrayPtr& a) {
  if (!a || is_tape_parameter(*a)) return a;
  return a->details && a->details->again ? root_parameter(a->details->source) : nullptr;
}

// `a` made again from its parameter, in the graph of now.
ArrayPtr made_again(const ArrayPtr& a) {
  if (is_tape_parameter(*a)) return a;
  const ArrayPtr source = made_again(a->details->source);
  ArrayPtr made = a->details->again(source);
  Details& details = made->detail();
  details.source = source;
  details.again = a->details->again;
  details.cast = a->details->cast;
  details.path = a->details->path;
  return made;
}

ArrayPtr with_tensors(const ArrayPtr& a, Tensors tensors) {
  ArrayPtr made = make_array(a->type, a->slots, std::move(tensors));
  made->weight = a->weight;
  made->layout = a->layout;
  if (a->details) made->detail().path = a->details->path;
  return made;
}

// What one call of remat knows of its arguments.
class Recomputation {
 public:
  Recomputation(Function f, const Arrays& arguments) : f_(std::move(f)) {
    for (const Array& x : arguments) {
      const ArrayPtr a = x.is_absent() ? nullptr : (materialized(x, "remat"), x.impl());
      const bool wanted = a && wants_gradient(*a);
      const ArrayPtr root = wanted ? root_parameter(a) : nullptr;
      if (root && std::find(parameters_.begin(), parameters_.end(), root) == parameters_.end())
        parameters_.push_back(root);
      if (wanted && !root) inputs_.append(a->local.begin(), a->local.end());
      arguments_.push_back({a, root != nullptr, wanted && !root});
    }
    if (!parameters_.empty()) {
      TapeState& tape = *parameters_[0]->details->tape;
      if (!tape.anchor.defined()) tape.anchor = at::zeros({}).requires_grad_(true);
      inputs_.push_back(tape.anchor);
    }
  }

  // What the graph sees going in.
  const Tensors& inputs() const { return inputs_; }

  // The first run; its arrays are fresh ones, over which a function can be recorded.
  Arrays run() const {
    at::AutoGradMode off(false);
    Arrays results = f_(values());
    for (Array& x : results)
      if (!x.is_absent()) {
        materialized(x, "remat");
        x = Array(with_tensors(x.impl(), x.impl()->local));
      }
    return results;
  }

  // From the gradients of the results' tensors to those of inputs().
  Tensors backward(Tensors gradients) const {
    at::AutoGradMode on(true);
    Tensors leaves;
    const size_t activations = inputs_.size() - (parameters_.empty() ? 0 : 1);
    const std::vector<std::vector<Conversion>> kept = take_conversions();
    Tensors roots = floating_tensors(f_(again(leaves)));
    for (const ArrayPtr& p : parameters_)
      for (const ArrayPtr& leaf : p->details->leaves) leaves.append(leaf->local.begin(), leaf->local.end());
    keep_recorded(roots, gradients);
    Tensors result =
        leaves.empty() || roots.empty() ? Tensors(leaves.size()) : detail::gradients(roots, gradients, leaves);
    hand_over(result.begin() + static_cast<ptrdiff_t>(activations));
    give_conversions(kept);
    result.resize(inputs_.size());
    if (!parameters_.empty()) result.back() = at::Tensor();
    return result;
  }

 private:
  struct Argument {
    ArrayPtr array;
    bool of_parameter;  // goes into the second run as what it is
    bool activation;    // goes in as a fresh leaf
  };

  Arrays values() const {
    Arrays arrays;
    for (const Argument& a : arguments_) arrays.push_back(a.array ? Array(a.array) : Array());
    return arrays;
  }

  Arrays again(Tensors& leaves) const {
    Arrays arrays;
    for (const Argument& a : arguments_) {
      if (!a.activation) {
        arrays.push_back(!a.array ? Array() : Array(a.of_parameter ? made_again(a.array) : a.array));
        continue;
      }
      Tensors fresh;
      for (const at::Tensor& t : a.array->local) fresh.push_back(make_leaf(t));
      leaves.append(fresh.begin(), fresh.end());
      arrays.push_back(Array(with_tensors(a.array, std::move(fresh))));
    }
    return arrays;
  }

  // The forward pass kept forms of the parameters whose graph is not ours to walk.
  std::vector<std::vector<Conversion>> take_conversions() const {
    std::vector<std::vector<Conversion>> kept;
    for (const ArrayPtr& p : parameters_) kept.push_back(std::exchange(p->details->conversions, {}));
    return kept;
  }
  void give_conversions(const std::vector<std::vector<Conversion>>& kept) const {
    for (size_t i = 0; i < kept.size(); ++i) parameters_[i]->details->conversions = kept[i];
  }

  // Only what depends on an argument that wants a gradient has one.
  static void keep_recorded(Tensors& roots, Tensors& gradients) {
    Tensors kept_roots, kept_gradients;
    for (size_t i = 0; i < roots.size(); ++i)
      if (roots[i].requires_grad()) kept_roots.push_back(roots[i]), kept_gradients.push_back(gradients[i]);
    roots = std::move(kept_roots), gradients = std::move(kept_gradients);
  }

  void hand_over(Tensors::const_iterator next) const {
    for (const ArrayPtr& p : parameters_)
      for (const ArrayPtr& leaf : p->details->leaves) {
        const auto end = next + static_cast<ptrdiff_t>(leaf->local.size());
        p->details->tape->late.push_back({p, leaf, Tensors(next, end)});
        next = end;
      }
  }

  friend Arrays tessera::remat(const Function&, const Arrays&);

  // The tensors that a gradient can come to, in order.
  static Tensors floating_tensors(const Arrays& arrays) {
    Tensors tensors;
    for (const Array& x : arrays)
      if (!x.is_absent() && is_floating(x.dtype())) tensors.append(x.impl()->local.begin(), x.impl()->local.end());
    return tensors;
  }

  Function f_;
  std::vector<Argument> arguments_;
  std::vector<ArrayPtr> parameters_;
  Tensors inputs_;
};

}  // namespace

std::vector<Array> remat(const Function& f, const std::vector<Array>& arrays) {
  if (!at::GradMode::is_enabled()) return f(arrays);
  const auto again = std::make_shared<const Recomputation>(f, arrays);
  if (again->inputs().empty()) return f(arrays);
  Arrays results = again->run();
  Tensors outputs = Recomputation::floating_tensors(results);
  if (outputs.empty()) return results;
  record_function("remat", again->inputs(), outputs,
                  [again](Tensors gradients) { return again->backward(std::move(gradients)); });
  auto next = outputs.begin();
  for (Array& x : results)
    if (!x.is_absent() && is_floating(x.dtype()))
      for (at::Tensor& t : x.impl()->local) t = *next++;
  return results;
}

}  // namespace tessera
