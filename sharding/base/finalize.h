// on_finalize, run_finalizers: lets each component end its threads in tessera::finalize.
#pragma once

namespace tessera::detail {

// Registers `end` for the next run_finalizers. A component registers when it starts threads.
void on_finalize(void (*end)());

// Calls the registered functions, the last one first, and forgets them.
void run_finalizers();

}  // namespace tessera::detail
