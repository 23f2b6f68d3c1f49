// Emits events of operations.
#include "sharding/accounting/operation_event.h"

#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"

namespace tessera::detail {
namespace {

void observe_backward_of(const std::shared_ptr<const OperationCall>& call, std::span<const Array> results) {
  Tensors outputs;
  for (const Array& x : results) outputs.append(x.impl()->local.begin(), x.impl()->local.end());
  const auto began = std::make_shared<Clock::time_point>();
  observe_backward(outputs, call->first_function,
                   {.before = [began] { *began = Clock::now(); },
                    .after =
                        [call, began](const Tensors& incoming, const Tensors& outgoing) {
                          emit(Events::operations, &Observer::differentiated, *call,
                               BackwardCall{incoming, outgoing, *began, Clock::now()});
                        }});
}

}  // namespace

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

void notify(const std::shared_ptr<OperationCall>& call, const OperationArrays& arrays) {
  call->ended = Clock::now();
  for (const Array& x : arrays.results) call->results.push_back(x.impl()->type);
  observe_backward_of(call, arrays.results);
  emit(Events::operations, &Observer::computed, *call, arrays);
}

}  // namespace tessera::detail
