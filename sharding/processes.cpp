// The program's processes: joined once, left at exit.
#include "sharding/processes.h"

#include <fmt/format.h>

#include <cstdlib>

#include "sharding/error.h"
#include "sharding/transport.h"

namespace tessera {
namespace {

struct State {
  bool initialized = false;
  int index = 0, count = 1;
  std::unique_ptr<detail::Transport> transport;
};

State& state() {
  static State all;
  return all;
}

const State& joined() {
  if (!state().initialized) initialize();
  return state();
}

}  // namespace

void initialize(ProcessesOptions options) {
  if (state().initialized) fail(ErrorKind::bad_argument, "initialize", "called twice. Call it once, first of all.");
  if (!options.index || !options.count)
    options = from_environment([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
  if (*options.count > 1 && !(state().transport = detail::join_by_mpi()))
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("{} says that there are {} processes, and this library was built without MPI. Build it where CMake "
                     "finds MPI or may fetch it (TESSERA_FETCH_DEPS=ON), or start one process.",
                     options.launcher.empty() ? "the program" : options.launcher, *options.count));
  state().initialized = true;
  state().index = *options.index;
  state().count = *options.count;
}

int process_index() { return joined().index; }
int process_count() { return joined().count; }
void finalize_processes() { state() = {}; }

}  // namespace tessera
