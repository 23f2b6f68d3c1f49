// Updates in place: which parts of a transform one kernel computes, and a plan of all that an update writes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "optim/fused.h"
#include "optim/masking.h"
#include "optim/optimizers.h"
#include "optim/wrappers.h"

namespace tessera::optim::detail {

// ---- what one kernel computes ---------------------------------------------------------------------------------------

// Whether the tuple type Parts ends with the parts of this chain.
template <class Parts, class... Tail>
constexpr bool ends_with(const Chain<Tail...>*) {
  constexpr size_t n = std::tuple_size_v<Parts>;
  if constexpr (n < sizeof...(Tail))
    return false;
  else
    return []<size_t... I>(std::index_sequence<I...>) {
      return (std::is_same_v<std::tuple_element_t<n - sizeof...(Tail) + I, Parts>, Tail> && ...);
    }
  (std::index_sequence_for<Tail...>());
}

// How many parts at the end of a chain one kernel can do: 3 (AdamW), 2 (Adam, SGD) or none.
template <class Parts>
constexpr size_t fused_parts() {
  if constexpr (ends_with<Parts>(static_cast<Adamw*>(nullptr)))
    return 3;
  else if constexpr (ends_with<Parts>(static_cast<Adam*>(nullptr)) || ends_with<Parts>(static_cast<Sgd*>(nullptr)))
    return 2;
  else
    return 0;
}

// Whether a kernel can compute any part of a transform; of a chain, the parts at its end.
template <class Transform>
inline constexpr bool has_fused = false;
template <class... Parts>
inline constexpr bool has_fused<Chain<Parts...>> =
    fused_parts<std::tuple<Parts...>>() > 0 ||
    has_fused<std::tuple_element_t<sizeof...(Parts) - 1, std::tuple<Parts...>>>;
template <>
inline constexpr bool has_fused<Chain<>> = false;
template <class... Parts>
inline constexpr bool has_fused<NamedChain<Parts...>> = has_fused<Chain<Parts...>>;
template <class... Parts>
inline constexpr bool has_fused<Partition<Parts...>> = (has_fused<Parts> || ...);
template <class Inner>
inline constexpr bool has_fused<ApplyIfFinite<Inner>> = has_fused<Inner>;
template <class Factory>
inline constexpr bool has_fused<InjectHyperparams<Factory>> =
    has_fused<std::invoke_result_t<const Factory&, const Hyperparams&>>;

// ---- plans ----------------------------------------------------------------------------------------------------------

using Kept = std::shared_ptr<const std::vector<bool>>;

// What an update will write. Nothing is written before carry_out(), so that an error leaves model and state unchanged.
// The functions that add to it are not inline, since every program that trains would compile them.
class Plan {
 public:
  Plan();
  Plan(const Plan&) = delete;
  ~Plan();
  void call(FusedCall call);
  void write(std::function<void()> write);
  void count(int64_t& counted);              // adds 1 to it
  void keep_alive(std::shared_ptr<void> x);  // an owner of the gradients of the calls
  void carry_out() const;

 private:
  std::vector<FusedCall> calls_;
  std::vector<std::function<void()>> writes_;
  std::vector<std::shared_ptr<void>> kept_alive_;
};

// What masks and labels said of each parameter: they are called at the first update only, until forget().
class Answers {
 public:
  using Params = std::function<nn::Leaves()>;

  Answers();
  Answers(const Answers&);  // starts empty, since answers are stored by the addresses of masks and labels
  Answers& operator=(const Answers&);
  ~Answers();
  void forget();

  // Which parameters the mask takes.
  const Kept& taken(const Mask& mask, const Params& params);
  // For each of the named parts: which parameters it updates.
  const Kept* parts(const Labels& labels, std::span<const std::string> names, const Params& params);

 private:
  std::map<const void*, std::vector<Kept>> all_;
};

// `params` with the leaves that are not in `part` made absent.
nn::Leaves leaves_of(nn::Leaves params, const Kept& part);

template <class Model>
struct InPlace {
  Model& model;
  const Model& grads;
  const Arrays& params;  // of the model
  Kept part;             // which of them the transform updates; null: all
  const ExtraArgs& extra;
  Answers& answers;
  const std::function<void()>& check_state;  // called before a state is read that no kernel has checked

  // f(the model, with the arrays absent that the transform does not update)
  template <class F>
  void with_params(F f) const {
    if (!part) return f(std::as_const(model));
    f(only(std::as_const(model), *part));
  }
  Answers::Params leaves() const {
    return [this] { return leaves_of(nn::leaves(std::as_const(model)), part); };
  }
};

// Sets the model's arrays that are in `part` to those of `from`.
void put_back(const Arrays& params, const Arrays& from, const Kept& part);

// Plans the update by transform.update and apply_updates, without a kernel.
template <class Transform, class State, class Model>
void plan_pure(const Transform& transform, State& state, const InPlace<Model>& step, Plan& plan) {
  step.check_state();
  step.with_params([&](const Model& params) {
    auto made = std::make_shared<std::pair<Model, State>>(step.grads, state);
    update_in_place(transform, made->first, made->second, params, step.extra);
    made->first = optim::apply_updates(params, std::as_const(made->first));
    plan.write([made, part = step.part, to = step.params, &state] {
      put_back(to, nn::bare_arrays(made->first).arrays, part);
      state = std::move(made->second);
    });
  });
}

template <class Transform, class State, class Model>
void make_plan(const Transform& transform, State& state, const InPlace<Model>& step, Plan& plan) {
  plan_pure(transform, state, step, plan);
}

// What a kernel has to know of the parts at the end of a chain: their settings, counts and moments.
struct FusedTail {
  const Arrays& params;
  const Arrays& grads;
  const ScaleByLearningRate& rate;
  int64_t& rate_count;
};
struct FusedDecay {
  const AddDecayedWeights& part;
  int64_t& count;
  Kept kept;  // the parameters that its mask takes
};

// Plans a call of the kernel. False, with nothing planned, if the kernel cannot compute this update.
bool plan_sgd(const FusedTail& tail, const Optional<PerArray<Trace>>& momentum, bool has_trace, Arrays trace,
              Plan& plan);
bool plan_adam(const FusedTail& tail, const ScaleByAdam& adam, int64_t& count, Arrays mu, Arrays nu,
               const FusedDecay* decay, Plan& plan);

// For the tail of a chain from part `head` on.
template <size_t head, class... Parts, class... States, class Model>
bool plan_fused(const std::tuple<Parts...>& parts, std::tuple<States...>& states, const InPlace<Model>& step,
                const Arrays& grads, Plan& plan) {
  constexpr size_t last = sizeof...(Parts) - 1;
  const FusedTail tail{step.params, grads, std::get<last>(parts), std::get<last>(states).count};
  const auto& first = std::get<head>(parts);
  auto& state = std::get<head>(states);
  if constexpr (ends_with<std::tuple<Parts...>>(static_cast<Sgd*>(nullptr))) {
    return plan_sgd(tail, first, state.has_value(), state ? nn::bare_arrays(state->trace).arrays : Arrays(), plan);
  } else {
    Arrays mu = nn::bare_arrays(state.mu).arrays, nu = nn::bare_arrays(state.nu).arrays;
    if constexpr (last == head + 2) {
      const AddDecayedWeights& decay = std::get<head + 1>(parts);
      const FusedDecay fused{decay, std::get<head + 1>(states).count, step.answers.taken(decay.mask, step.leaves())};
      return plan_adam(tail, first, state.count, std::move(mu), std::move(nu), &fused, plan);
    } else {
      return plan_adam(tail, first, state.count, std::move(mu), std::move(nu), nullptr, plan);
    }
  }
}

// The first `n` of a tuple.
template <size_t n, class Tuple>
auto first_of(const Tuple& tuple) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::tuple<std::tuple_element_t<I, Tuple>...>(std::get<I>(tuple)...);
  }
  (std::make_index_sequence<n>());
}

// Plans the parts from `head` on: by the kernel, or if there is none for them, as the last part plans itself.
template <size_t head, class... Parts, class... States, class Model>
bool plan_tail(const Chain<Parts...>& chain, std::tuple<States...>& states, const InPlace<Model>& step, Plan& plan) {
  if constexpr (fused_parts<std::tuple<Parts...>>() > 0) {
    return plan_fused<head>(chain.parts, states, step, nn::bare_arrays(step.grads).arrays, plan);
  } else {
    make_plan(std::get<head>(chain.parts), std::get<head>(states), step, plan);
    return true;
  }
}

template <size_t head, class... Parts, class... States, class Model>
bool plan_chain(const Chain<Parts...>& chain, std::tuple<States...>& states, const InPlace<Model>& step, Plan& plan) {
  if constexpr (head == 0) {
    return plan_tail<0>(chain, states, step, plan);
  } else {
    auto before = first_of<head>(states);
    if (!nn::bare_arrays(before).arrays.empty()) step.check_state();
    const auto done = std::make_shared<std::pair<Model, decltype(before)>>(step.grads, std::move(before));
    step.with_params([&](const Model& params) {
      chain_of(first_of<head>(chain.parts)).update_in_place(done->first, done->second, params, step.extra);
    });
    const InPlace<Model> rest{step.model, done->first,  step.params,     step.part,
                              step.extra, step.answers, step.check_state};
    if (!plan_tail<head>(chain, states, rest, plan)) return false;
    plan.keep_alive(done);
    plan.write([done, &states] {
      [&]<size_t... I>(std::index_sequence<I...>) {
        ((std::get<I>(states) = std::move(std::get<I>(done->second))), ...);
      }
      (std::make_index_sequence<head>());
    });
    return true;
  }
}

template <class... Parts, class... States, class Model>
void make_plan(const Chain<Parts...>& chain, std::tuple<States...>& states, const InPlace<Model>& step, Plan& plan) {
  constexpr size_t fused = fused_parts<std::tuple<Parts...>>();
  if constexpr (!has_fused<Chain<Parts...>>) {
    plan_pure(chain, states, step, plan);
  } else if constexpr (fused == 0) {  // the last part plans itself, whatever its kernel computes
    plan_chain<sizeof...(Parts) - 1>(chain, states, step, plan);
  } else if (!plan_chain<sizeof...(Parts) - fused>(chain, states, step, plan)) {
    plan_pure(chain, states, step, plan);
  }
}

template <class... Parts, class State, class Model>
void make_plan(const NamedChain<Parts...>& named, State& state, const InPlace<Model>& step, Plan& plan) {
  make_plan(named.chain, state.states, step, plan);
}

template <size_t I, class... Parts, class State, class Model>
void plan_part(const Partition<Parts...>& partition, State& state, const InPlace<Model>& step, const Kept& kept,
               Plan& plan) {
  using Part = std::tuple_element_t<I, std::tuple<Parts...>>;
  if constexpr (!std::is_same_v<Part, PerArray<SetToZero>>) {
    auto grads = std::make_shared<Model>(only(step.grads, *kept));
    const InPlace<Model> part{step.model, *grads, step.params, kept, step.extra, step.answers, step.check_state};
    make_plan(std::get<I>(partition.parts), std::get<I>(state.states), part, plan);
    plan.keep_alive(std::move(grads));
  }
}

template <class... Parts, class State, class Model>
void make_plan(const Partition<Parts...>& partition, State& state, const InPlace<Model>& step, Plan& plan) {
  if constexpr (!has_fused<Partition<Parts...>>) {
    plan_pure(partition, state, step, plan);
  } else {
    const Kept* kept = step.answers.parts(partition.param_labels, partition.names, step.leaves());
    [&]<size_t... I>(std::index_sequence<I...>) { (plan_part<I>(partition, state, step, kept[I], plan), ...); }
    (std::index_sequence_for<Parts...>());
  }
}

template <class Inner, class State, class Model>
void make_plan(const ApplyIfFinite<Inner>& transform, State& state, const InPlace<Model>& step, Plan& plan) {
  if constexpr (!has_fused<Inner>) {
    plan_pure(transform, state, step, plan);
  } else {
    const FiniteCounts counts = transform.counts(step.grads, state);
    if (transform.applies(counts)) make_plan(transform.inner, state.inner_state, step, plan);
    plan.write([counts, &state] { counts.store(state); });
  }
}

template <class Factory, class State, class Model>
void make_plan(const InjectHyperparams<Factory>& transform, State& state, const InPlace<Model>& step, Plan& plan) {
  using Inner = std::invoke_result_t<const Factory&, const Hyperparams&>;
  if constexpr (!has_fused<Inner>) {
    plan_pure(transform, state, step, plan);
  } else {
    Hyperparams now = transform.hyperparams(state);
    const Inner inner = transform.inner_factory(std::as_const(now));
    Answers answers;  // the inner transform is another one at every update
    const InPlace<Model> inside{step.model, step.grads, step.params, step.part, step.extra, answers, step.check_state};
    make_plan(inner, state.inner_state, inside, plan);
    plan.write([now, &state] { state.hyperparams = now, ++state.count; });
  }
}

// ---- checks ---------------------------------------------------------------------------------------------------------

// The model that an optimizer was made for: the paths and shapes of its arrays.
class MadeFor {
 public:
  template <class Model>
  explicit MadeFor(const Model& model) : MadeFor(nn::leaves(model), nn::bare_arrays(model)) {}
  MadeFor(const nn::Leaves& params, const nn::BareArrays& bare);
  // A quick test, of a few nanoseconds per array, whether the model is as at the last check and the gradients fit it.
  // If it says no, the checks below find what does not fit, or that all fits.
  bool plainly_fits(const nn::BareArrays& params, const nn::BareArrays& grads) const;
  // Whether other arrays of the model are absent than at the last check.
  bool has_other_parts(const Arrays& params) const;
  // Errors (bad_argument, shape_mismatch): the model has other arrays now, or arrays of other shapes.
  void check(const nn::Leaves& params, const nn::BareArrays& bare);

 private:
  struct Entry {
    std::string path;
    std::optional<Shape> shape;  // none if the array is not trained
  };
  std::shared_ptr<const std::vector<Entry>> entries_;
  std::vector<const void*> types_;  // as they were at the last check
  size_t structure_ = 0;
};

void check_gradients(const nn::Leaves& params, const nn::Leaves& grads);
// Whether no array of the state lies on another mesh than the model.
bool on_mesh_of(const Arrays& params, const Arrays& state);
// Error (device_mismatch): an array of the state lies on another mesh than the model.
void check_state_mesh(const nn::Leaves& params, const nn::Leaves& state);
// Whether a gradient is a pending sum, or lies on a mesh where its parameter lies on none.
bool lies_elsewhere(const Arrays& grads, const Arrays& params);

}  // namespace tessera::optim::detail
