// Hands the turn from thread to thread, and copies the state of the calling thread.
#include "nn/transformations/pass_thread.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <tuple>
#include <utility>

#include "sharding/accounting/operation_event.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"
#include "sharding/events/observer.h"
#include "sharding/placement/type.h"
#include "sharding/redistribution/convert.h"

namespace tessera::nn::detail {

using namespace tessera::detail;

namespace {

struct Ended : std::exception {};

// Returns the variables of this thread that its computations read and that scopes around a pass set.
auto variables_of_thread() {
  return std::tie(thread_observers(), observed_events, innermost_check(), innermost_guard(), current_meter(),
                  current_interceptor(), current_tape(), conversion_policy(), manual_axes(), current_module_path(),
                  innermost_caller(), current_step());
}
template <class... T>
std::tuple<T...> copies_of(const std::tuple<T&...>& variables) {
  return variables;
}
using Values = decltype(copies_of(variables_of_thread()));

}  // namespace

struct PassThread::CallingThread {
  at::ThreadLocalState libtorch = {};
  Values variables = variables_of_thread();
};

PassThread::PassThread() : thread_([this] { loop(); }) {}

PassThread::~PassThread() {
  ends_ = true;
  turn_.release();
  thread_.join();
}

void PassThread::start(std::function<void()> pass) {
  pass_ = std::move(pass);
  are_operations_observed();  // the calling thread has the environment's check, and not this one
  caller_ = std::make_unique<const CallingThread>();
  resume();
}

void PassThread::resume() {
  turn_.release();
  turn_of_caller_.acquire();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void PassThread::suspend() {
  turn_of_caller_.release();
  turn_.acquire();
  if (ends_) throw Ended();
}

void PassThread::run_pass() try {
  const at::ThreadLocalStateGuard libtorch(caller_->libtorch);
  metered_stage() = -1;
  pass_();
} catch (...) {
  error_ = std::current_exception();
}

void PassThread::loop() {
  at::init_num_threads();
  const Values own = variables_of_thread();
  for (turn_.acquire(); !ends_; turn_.acquire()) {
    variables_of_thread() = caller_->variables;
    run_pass();
    variables_of_thread() = own;
    if (ends_) return;  // the caller waits in join()
    pass_ = nullptr;
    caller_ = nullptr;
    turn_of_caller_.release();
  }
}

}  // namespace tessera::nn::detail
