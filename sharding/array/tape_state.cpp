// The tapes of this thread.
#include "sharding/array/tape_state.h"

namespace tessera::detail {

TapeState*& current_tape() {
  thread_local TapeState* current = nullptr;
  return current;
}

TapeState*& differentiated_tape() {
  thread_local TapeState* differentiated = nullptr;
  return differentiated;
}

bool is_nested() { return current_tape() && current_tape()->nested; }

}  // namespace tessera::detail
