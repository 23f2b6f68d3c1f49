// The tapes of this thread.
#include "sharding/array/tape_state.h"

#include <utility>

namespace tessera::detail {
namespace {

thread_local TapeState* current = nullptr;
thread_local TapeState* differentiated = nullptr;

}  // namespace

TapeState* current_tape() { return current; }
bool is_nested() { return current && current->nested; }
TapeState* differentiated_tape() { return differentiated; }

TapeScope::TapeScope(TapeState* tape, As as)
    : place_(as == As::current ? current : differentiated), outer_(std::exchange(place_, tape)) {}
TapeScope::~TapeScope() { place_ = outer_; }

}  // namespace tessera::detail
