// The program's processes: joined once, watched while they run, left together at exit.
#include "sharding/processes.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "sharding/deadline.h"
#include "sharding/error.h"
#include "sharding/joined.h"
#include "sharding/rendezvous.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Duration = std::chrono::milliseconds;

constexpr const char* torchrun = "torchrun";  // as launch.cpp names it
constexpr int most_processes = 1 << 20;       // a larger count is a mistake

struct State {
  std::recursive_mutex joining;
  std::atomic<bool> initialized{false};
  std::atomic<const char*> apart{nullptr};
  pid_t pid = 0;  // a child of fork is none of the processes
  detail::Joined joined;
  std::unique_ptr<detail::Presence> presence;
  std::terminate_handler terminate = nullptr;
};

// Lives to the very end: the thread that watches does.
State& state() {
  static State* all = new State;
  return *all;
}

const char* environment(const char* name) { return std::getenv(name); }

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Ten of them, in nanoseconds, are still a number.
bool is_timeout(double seconds) { return seconds >= 0.1 && seconds <= 1e8; }

// `given` as `option`, else what the environment says, else `fallback`.
Duration timeout_of(const char* option, std::optional<Duration> given, const char* variable, Duration fallback) {
  if (given && !is_timeout(seconds(*given)))
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("{} = {} ms, expected 0.1 to 1e8 seconds. Leave it out for {} s.", option, given->count(),
                     seconds(fallback)));
  if (given) return *given;
  const char* text = environment(variable);
  if (!text || !*text) return fallback;
  double said = 0;
  const char* end = text + std::string_view(text).size();
  if (auto [rest, error] = std::from_chars(text, end, said); error != std::errc{} || rest != end || !is_timeout(said))
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("{}=\"{}\", expected seconds from 0.1 to 1e8. Unset it for {} s.", variable, text,
                     seconds(fallback)));
  return Duration(static_cast<int64_t>(said * 1000));
}

ProcessesOptions completed(ProcessesOptions options) {
  if (options.index.has_value() != options.count.has_value())
    fail(ErrorKind::bad_argument, "initialize", "`index` and `count` belong together. Give both, or neither.");
  if (!options.index) {
    const std::optional<Duration> timeout = options.timeout, start_timeout = options.start_timeout;
    options = from_environment(environment);
    options.timeout = timeout;
    options.start_timeout = start_timeout;
  }
  if (*options.count < 1 || *options.count > most_processes || *options.index < 0 || *options.index >= *options.count)
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("process {} of {}, expected a count from 1 to {} and an index below it.", *options.index,
                     *options.count, most_processes));
  if (options.launcher.empty()) options.launcher = "the program";
  options.timeout = timeout_of("timeout", options.timeout, "TESSERA_TIMEOUT", 60s);
  options.start_timeout = timeout_of("start_timeout", options.start_timeout, "TESSERA_START_TIMEOUT", *options.timeout);
  return options;
}

bool is_started_by_mpi() {
  for (const char* name : {"PMI_RANK", "PMI_ID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID"})
    if (environment(name)) return true;
  return false;
}

// The words of both checks below.
[[noreturn]] void fail_unstarted(const ProcessesOptions& options, std::string_view found) {
  fail(ErrorKind::bad_argument, "initialize",
       fmt::format(
           "{} says that this is process {} of {}, but {}. Start it by the launcher of the MPI that the library was "
           "built with (mpiexec -n {} <program>, or srun), or by torchrun's variables.",
           options.launcher, *options.index, *options.count, found, *options.count));
}

// Where processes meet that MPI has not started; none where it has. MPI started for nothing would wait, or say that
// there is one process.
std::unique_ptr<detail::Rendezvous> rendezvous_of(const ProcessesOptions& options) {
  if (options.launcher != torchrun && is_started_by_mpi()) return nullptr;
  if (const auto place = detail::meeting_place(environment))
    return std::make_unique<detail::Rendezvous>(*options.index, *options.count, *place);
  fail_unstarted(options, "no launcher of MPI has started it, and MASTER_ADDR and MASTER_PORT are not set");
}

void check_engine(const detail::Transport* engine, const ProcessesOptions& options) {
  if (!engine)
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("{} says that there are {} processes, and this library was built without MPI. Start them by "
                     "torchrun's variables, or build it where CMake finds MPI or may fetch it (TESSERA_FETCH_DEPS=ON).",
                     options.launcher, *options.count));
  if (engine->count() != *options.count || engine->index() != *options.index)
    fail_unstarted(options,
                   fmt::format("for {} it is process {} of {}", engine->name(), engine->index(), engine->count()));
}

// Tells all where process 0 can be reached, by the engine.
std::string shared_address(detail::Transport& engine, std::string address) {
  std::array<char, 4096> text{};
  address.copy(text.data(), text.size() - 1);
  std::vector<detail::Parcel> sends, receives;
  if (engine.index() == 0)
    for (int i = 1; i < engine.count(); ++i) sends.push_back({i, text.data(), text.size()});
  else
    receives.push_back({0, text.data(), text.size()});
  engine.start(sends, receives);
  while (!engine.is_done()) std::this_thread::sleep_for(1ms);
  return text.data();
}

// As `peers`, which a deadline may look at meanwhile.
void meet_peers(detail::Transport& engine, Duration timeout, Duration start_timeout,
                std::atomic<detail::Peers*>& peers) {
  const int index = engine.index(), count = engine.count();
  if (index == 0) peers = new detail::Peers(count, timeout);
  const std::string address = shared_address(engine, index == 0 ? peers.load()->address() : "");
  if (index != 0) peers = new detail::Peers(index, count, address, timeout, start_timeout);
  while (!peers.load()->are_all_here()) {
    if (const auto loss = peers.load()->loss())
      fail(ErrorKind::other, "initialize", fmt::format("process {} {}.", loss->process, loss->what));
    std::this_thread::sleep_for(1ms);
  }
}

// MPICH's launcher tells of a dead process by a signal, which would end the others before they can say who it was.
void outlive_the_launchers_signal() {
  struct sigaction now {};
  if (::sigaction(SIGUSR1, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGUSR1, SIG_IGN);
}

// It also kills the others when it looks what a process is that has closed a connection to it, and finds it dead. A
// neighbour holds these open too, so that it does not look before one of the others has spoken.
void lend_connections(const detail::Presence& presence, int count) {
  if (const char* launcher = environment("PMI_FD"))
    presence.lend({std::atoi(launcher), STDOUT_FILENO, STDERR_FILENO}, count);
}

// Gives the others the time to say what they know: a launcher may end them as soon as this process is gone.
void linger() { std::this_thread::sleep_for(std::min<Duration>(state().joined.timeout / 5, 500ms)); }

// Waits until all have come to their end. An error is what prevents it.
std::optional<detail::Loss> wait_for_others() {
  detail::Joined& joined = state().joined;
  joined.peers->leave(0, "");
  try {
    joined.transport->start_barrier();
    while (!joined.transport->is_done()) {
      if (auto loss = joined.peers->loss()) return loss;
      std::this_thread::sleep_for(200us);
    }
  } catch (const Error& error) {
    return detail::loss_behind(error, joined);
  }
  joined.peers->stop();
  return std::nullopt;
}

constexpr const char* has_ended =
    "the program has come to its end, and what joined its processes with it. Communicate before main returns, not in "
    "the destructor of a static object.";

void end_engine() {
  detail::Joined& joined = state().joined;
  state().apart = has_ended;
  const detail::Deadline deadline(joined.timeout, [&joined] {
    return fmt::format("[exit] MPI has not ended within {} s, though all processes have. This is process {} of {}.",
                       seconds(joined.timeout), joined.index, joined.count);
  });
  delete joined.beside;
  delete joined.transport;
  delete joined.peers;
}

// With a status other than 0 the engine is not ended: that would wait for the others, who may be no more.
void leave(int status, void*) {
  detail::Joined& joined = state().joined;
  if (state().pid != ::getpid() || !joined.transport) return;
  std::optional<detail::Loss> loss = joined.peers->loss();
  if (status == 0 && !loss) loss = wait_for_others();
  if (status == 0 && loss) {
    std::fprintf(stderr, "[exit] %s\n", detail::words_of(*loss, joined).c_str());
    linger();
    std::fflush(nullptr);
    ::_exit(1);
  }
  if (status == 0) return end_engine();
  state().apart = has_ended;
  joined.peers->leave(status, fmt::format("has ended with exit status {}", status));
  linger();
}

// What has ended this process, after "process 2 ".
std::string words_of_termination() try {
  if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  return "has called std::terminate";
} catch (const std::exception& error) {
  return fmt::format("has raised: {}", error.what());
} catch (...) {
  return "has raised something";
}

// The library's own handler says it in pieces, and MPICH's launcher may end this process after the first of them.
void terminate() {
  detail::Joined& joined = state().joined;
  const bool is_one_of_them = state().pid == ::getpid() && joined.peers && !state().apart;
  const std::string words = words_of_termination();
  const bool says_it = state().terminate == __gnu_cxx::__verbose_terminate_handler;
  if (says_it) std::fputs(fmt::format("terminate called: this process {}\n", words).c_str(), stderr);
  if (is_one_of_them && !joined.peers->loss()) joined.peers->leave(1, words);
  if (is_one_of_them) linger();
  if (!says_it) state().terminate();
  std::abort();
}

void be_apart_after_fork() {
  if (!state().joined.peers) return;
  state().apart = "this is a child of fork(), which is none of the processes. Communicate in the parent, or call exec.";
  state().joined.peers->close_in_child();
}

// What an engine says while all come together, as this verb's words.
template <typename Act>
void together(const ProcessesOptions& options, Act act) try {
  act();
} catch (const Error& error) {
  if (*error.what() == '[') throw;
  fail(error.kind(), "initialize",
       fmt::format("this is process {} of {}: {}.", *options.index, *options.count, error.what()));
}

// What is said when not all have come in time.
std::string words_of_absence(const ProcessesOptions& options, Duration timeout, const detail::Rendezvous* rendezvous) {
  const int index = *options.index, count = *options.count;
  std::string seen = rendezvous ? rendezvous->words() : "";
  if (seen.empty()) seen = state().presence->words(count);
  return fmt::format(
      "[initialize] process {} of {}: not all have arrived within {} s. {}. Raise TESSERA_START_TIMEOUT if they need "
      "longer.",
      index, count, seconds(timeout), seen);
}

void join(const ProcessesOptions& options) {
  const Duration timeout = *options.timeout, start_timeout = *options.start_timeout;
  const int index = *options.index, count = *options.count;
  const std::unique_ptr<detail::Rendezvous> rendezvous = rendezvous_of(options);
  if (!rendezvous) outlive_the_launchers_signal();
  state().presence = std::make_unique<detail::Presence>(
      rendezvous ? rendezvous->name() : std::to_string(detail::launcher_pid()), index, /*has_launcher=*/!rendezvous);
  const detail::Presence& presence = *state().presence;
  if (!rendezvous) lend_connections(presence, count);
  std::atomic<detail::Peers*> peers{nullptr};
  const detail::Deadline deadline(
      start_timeout, [&, start_timeout] { return words_of_absence(options, start_timeout, rendezvous.get()); },
      [&] {
        presence.end_stopped(count);
        if (detail::Peers* met = peers) met->leave(1, "has given up: not all had arrived at initialize in time");
        std::this_thread::sleep_for(100ms);  // for those who came late
      });
  std::unique_ptr<detail::Transport> engine =
      rendezvous ? detail::join_by_tcp(index, *rendezvous) : detail::join_by_mpi();
  check_engine(engine.get(), options);
  std::unique_ptr<detail::Transport> beside;
  together(options, [&] {
    engine = detail::with_direct_reads(std::move(engine));
    beside = engine->second();
    meet_peers(*engine, timeout, start_timeout, peers);
  });
  if (rendezvous && index == 0) rendezvous->clear();
  if (!rendezvous) lend_connections(presence, count);
  state().joined = {.transport = engine.release(),
                    .beside = beside.release(),
                    .peers = peers,
                    .timeout = timeout,
                    .index = index,
                    .count = count};
  state().pid = ::getpid();
  state().terminate = std::set_terminate(terminate);
  ::pthread_atfork(nullptr, nullptr, be_apart_after_fork);
  ::on_exit(leave, nullptr);
}

}  // namespace

const detail::Joined& detail::joined() {
  if (!state().initialized) {
    const std::lock_guard lock(state().joining);
    if (!state().initialized) initialize();
  }
  return state().joined;
}

const char* detail::why_apart() { return state().apart; }

std::string detail::words_of(const Loss& loss, const Joined& joined) {
  const std::string who = loss.process == joined.index ? fmt::format("this process ({}) ", loss.process)
                          : loss.process >= 0          ? fmt::format("process {} ", loss.process)
                                                       : "";
  const std::string_view what = std::string_view(loss.what).substr(0, loss.what.find_last_not_of('.') + 1);
  return fmt::format("{}{}. This is process {} of {}; all of them end.", who, what, joined.index, joined.count);
}

detail::Loss detail::loss_behind(const Error& error, const Joined& joined) {
  for (int i = 0; i < 100 && !joined.peers->loss(); ++i) std::this_thread::sleep_for(joined.timeout / 100);
  return joined.peers->loss().value_or(Loss{-1, error.what()});
}

void initialize(ProcessesOptions options) {
  const std::lock_guard lock(state().joining);
  if (state().initialized) fail(ErrorKind::bad_argument, "initialize", "called twice. Call it once, first of all.");
  options = completed(std::move(options));
  if (*options.count > 1) join(options);
  state().initialized = true;
}

int process_index() { return detail::joined().index; }
int process_count() { return detail::joined().count; }

}  // namespace tessera
