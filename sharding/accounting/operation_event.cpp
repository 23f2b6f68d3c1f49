// The thread's watchers of operations, and how they are told.
#include "sharding/accounting/operation_event.h"

#include "sharding/accounting/finite_values.h"
#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/module_path.h"

namespace tessera::detail {
namespace {

void tell_of_backward(const std::shared_ptr<const OperationCall>& call, std::span<const Array> results) {
  Tensors outputs;
  for (const Array& x : results) outputs.append(x.impl()->local.begin(), x.impl()->local.end());
  const auto began = std::make_shared<Clock::time_point>();
  observe_backward(outputs, call->first_function,
                   {.before = [began] { *began = Clock::now(); },
                    .after =
                        [call, began](const Tensors& incoming, const Tensors& outgoing) {
                          const BackwardCall part{incoming, outgoing, *began, Clock::now()};
                          if (checks_finite()) check_gradients(*call, part);
                          for (OperationWatcher* w : operation_watchers()) w->differentiated(*call, part);
                        }});
}

}  // namespace

OperationWatcher::OperationWatcher() { operation_watchers().push_back(this); }

OperationWatcher::~OperationWatcher() { std::erase(operation_watchers(), this); }

std::shared_ptr<OperationCall> begin_call(const char* operation, const std::source_location& where, Text reason,
                                          const OperationArrays& arrays) {
  auto call = std::make_shared<OperationCall>();
  call->operation = operation;
  call->where = CallerLine(where);
  call->module = current_module_path();
  call->reason = std::move(reason);
  call->recomputed = differentiated_tape() != nullptr;
  for (const ArrayImpl* x : arrays.given) {
    call->given.push_back(x->type);
    if (!call->parameter && x->details) call->parameter = x->details->path;
  }
  for (const ArrayImpl* x : arrays.read) call->read.push_back(x->type);
  call->first_function = next_function();
  call->began = Clock::now();
  return call;
}

void announce(const std::shared_ptr<OperationCall>& call, const OperationArrays& arrays) {
  call->ended = Clock::now();
  for (const Array& x : arrays.results) call->results.push_back(x.impl()->type);
  if (checks_finite()) check_results(*call, arrays);
  tell_of_backward(call, arrays.results);
  for (OperationWatcher* w : operation_watchers()) w->computed(*call, arrays);
}

void announce_move(const ArrayImpl& from, const Array& to) {
  for (OperationWatcher* w : operation_watchers()) w->moved(from, to);
}

}  // namespace tessera::detail
