// A flag that the handler sets, and a vote on it.
#include "examples/train/stop_signal.h"

#include <csignal>

#include <tessera/sharding/runtime.h>

namespace tessera::train {
namespace {

volatile std::sig_atomic_t came = 0;

void note(int) { came = 1; }

}  // namespace

StopSignal::StopSignal(int signal) : signal_(signal) {
  came = 0;
  before_ = std::signal(signal, note);
}

StopSignal::~StopSignal() { std::signal(signal_, before_); }

bool StopSignal::came_to_any() { return any_process(came); }

}  // namespace tessera::train
