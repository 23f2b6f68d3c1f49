// One update on its way through a transform: its parts, and in place all that it will write.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "optim/transform/late_number.h"
#include "optim/transform/transform.h"
#include "sharding/base/caller.h"
#include "sharding/base/dependent_false.h"

namespace tessera::detail {
class ScopedIntraOpThreads;
}

namespace tessera::optim::detail {

class Selection;
// Whether a transform can be part of an update of which an accelerator decides whether it is applied.
template <class Transform>
inline constexpr bool can_be_selected = false;

// For each of several parts: which parameters it updates.
using Taken = std::vector<std::vector<bool>>;
// Whether the mask takes each parameter.
std::vector<bool> taken(const Mask& mask, const nn::Leaves& params);

// What masks and labels said of each parameter: they are asked at the first update only. By their addresses, so that a
// copy starts empty.
struct Answers {
  Answers();
  Answers(const Answers&);
  Answers& operator=(const Answers&);
  ~Answers();

  std::map<const void*, std::shared_ptr<const Taken>> all;
};

// Numbers that parts of a transform told, by the labels of these parts: the first part of a label counts.
using LabelledNumbers = std::vector<std::pair<std::string, LateNumber>>;

// The number of this label; for an empty label, the number that all parts have, or std::nullopt if there is none.
// Errors (invalid_argument): an empty label although the numbers differ, a label without a number.
std::optional<double> number_of(const char* verb, const LabelledNumbers& numbers, const std::string& label);

struct Told {
  LabelledNumbers learning_rates, norms;
  void take(const Told& newer);
};

// A number of an update; where it is another one each time, how to ask for it again: a captured step does so before
// each replay.
struct NumberNow {
  double now;
  std::function<double(int64_t back)> at;  // as it was so many updates before; none: it is always the same
};

// Error (invalid_argument): a step is captured that was not given these two to change.
void check_captured(const void* model, const void* optimizer);
// What the host does behind each update: now, and where a graph is recorded, behind each replay instead.
void at_each_update(std::function<void()> f);

// A write that waits until the whole update has been computed.
struct Write {
  virtual ~Write() = default;
  virtual void operator()() = 0;
};
template <class State>
struct Replace : Write {
  State& state;
  State next;

  explicit Replace(State& state) : state(state), next(state) {}
  void operator()() override { state = std::move(next); }
};

// What an update in place will write. Nothing is written before carry_out(), so that an error leaves model and state
// unchanged. In a captured step, what writes to arrays is recorded, and what the host counts is done at each replay.
// The functions are not inline, since every program that trains would compile them.
struct PendingUpdate {
  PendingUpdate(Arrays params, Answers& answers);
  PendingUpdate(const PendingUpdate&) = delete;
  ~PendingUpdate();

  // A copy of the state, which will take its place.
  template <class State>
  State& changed(State& state) {
    auto replace = std::make_unique<Replace<State>>(state);
    State& next = replace->next;
    write(std::move(replace));
    return next;
  }
  void write(std::unique_ptr<Write> write);
  void write(std::function<void()> write);
  // params + updates, where there are updates.
  void add(const nn::Leaves& parameters, const nn::Leaves& updates);
  void carry_out();

  Arrays params;  // of the model
  Answers& answers;
  std::shared_ptr<Told> told;
  std::vector<std::function<void()>> preparations;  // what may fail, after all else has been computed
  std::vector<std::unique_ptr<Write>> writes;
  std::vector<std::function<void()>> at_each;  // behind the writes; at each replay of a captured step

 private:
  std::unique_ptr<tessera::detail::ScopedIntraOpThreads> alone_;  // if parameters lie in several slots
};

// What a transform gets that has, in place of `update`,
//   template <class Model, class State>
//   void run(Model& updates, State& state, const Model& params, const UpdateStep& step) const
// It replaces `updates`, which are the gradients at first, and hands what it changes of its state to `write`. So do all
// that hold other transforms, whose parts they run by step(part, updates, state, params).
class UpdateStep {
 public:
  explicit UpdateStep(const ExtraArgs& extra, PendingUpdate* pending = nullptr);  // without it, by the pure algebra
  ~UpdateStep();

  template <class T, class Model, class State>
  void operator()(const T& part, Model& updates, State& state, const Model& params) const;

  // The step of a part whose updates are not those of the whole, but are changed by other parts.
  UpdateStep before() const;
  // The step of a part that is made anew for every update, and so asks its masks and labels every time.
  UpdateStep made_anew() const;
  // The step of a part that has a label: labels are joined by dots.
  UpdateStep labelled(const std::string& name) const;

  // The step of a part whose updates count where the selection says so. What counts on the host calls `read_counts`
  // before it uses its count.
  UpdateStep selected(std::shared_ptr<Selection> selection) const;
  Selection* selection() const { return selection_.get(); }
  void read_counts() const;
  LateNumber selected(const LateNumber& next, const LateNumber& before) const;
  bool is_of_optimizer() const { return pending_ != nullptr; }
  // Of a part that decides on the host. Error (invalid_argument): in a captured step.
  void decides() const;

  // What will be written, if the updates of this part are those of the whole: then it may add what becomes of the
  // parameters, and leave their updates absent.
  PendingUpdate* in_place() const { return last_ ? pending_ : nullptr; }
  // At once, or when the whole update has been computed. Error (invalid_argument): in a captured step, which could not
  // repeat it.
  void write(std::function<void()> f) const;
  // The same for what only counts or tells: it is done at each replay of a captured step.
  void at_each(std::function<void()> f) const;
  void count(int64_t& counted) const;  // adds 1 to it, likewise
  // What the mask or the labels at this address say: in place they are asked once.
  std::shared_ptr<const Taken> asked(const void* whom, const std::function<Taken()>& ask) const;
  // Updates that change nothing: zeros.
  void set_to_zero(const Arrays& updates) const;

  void tell_learning_rate(const std::function<double()>& rate) const;
  void tell_learning_rate(const LateNumber& rate) const;  // in place of the one told before
  void tell_norm(const LateNumber& norm) const;

  const ExtraArgs& extra;

 private:
  void select(const Arrays& next, const Arrays& before) const;

  PendingUpdate* pending_;
  bool last_ = true, remembers_ = true;
  std::shared_ptr<Selection> selection_;
  std::string label_;
};

// transform.update, with `extra` if it takes that.
template <class T, class Model, class State>
std::pair<Model, State> updated(const T& transform, Model updates, State state, const Model& params,
                                const ExtraArgs& extra) {
  if constexpr (requires { transform.update(std::move(updates), std::move(state), params, extra); })
    return transform.update(std::move(updates), std::move(state), params, extra);
  else
    return transform.update(std::move(updates), std::move(state), params);
}

template <class T, class Model, class State>
void UpdateStep::operator()(const T& part, Model& updates, State& state, const Model& params) const {
  if constexpr (requires { part.run(updates, state, params, *this); }) {
    part.run(updates, state, params, *this);
  } else {
    constexpr bool counts = requires { state.count; };
    if (counts && pending_) decides(), read_counts();
    State& next = pending_ ? pending_->changed(state) : state;
    std::tie(updates, next) = updated(part, std::move(updates), std::move(next), params, extra);
    if (selection_) select(nn::bare_arrays(next).arrays, nn::bare_arrays(state).arrays);
  }
}

// `update` of a transform that has `run`; and `init`, where the state is OneState for every model.
template <class Self, class OneState = void>
struct Runs {
  template <class Model>
  OneState init(const Model&) const {
    return OneState();
  }
  template <class Model, class State = OneState>
  std::pair<Model, State> update(Model grads, State state, const Model& params, const ExtraArgs& extra = {},
                                 std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    static_cast<const Self&>(*this).run(grads, state, params, UpdateStep(extra));
    return {std::move(grads), std::move(state)};
  }
  // A mistake: what an Optimizer does.
  template <class Model>
  auto update(Model&, const Model&) const {
    static_assert(tessera::detail::dependent_false<Model>,
                  "tessera: a transform's update is pure, (grads, state, params) -> {updates, state}; "
                  "optim::Optimizer(model, transform) has update(model, grads).");
  }
};

}  // namespace tessera::optim::detail
