// Background: the one thread of a process that communicates beside its computation.
#pragma once

#include <functional>
#include <future>

namespace tessera::detail {

// `act` is carried out by that thread, after all that were given before it; what it throws comes out of await().
std::future<void> begin_in_background(std::function<void()> act);
void await(std::future<void>& begun);

// Whether somebody waits in await(). Until then the thread should not take time from what is computed.
bool is_awaited();

}  // namespace tessera::detail
