// Joins the processes of a program, and makes them wait for each other at exit.
#include "sharding/runtime/processes.h"

#include <c10/util/Exception.h>
#include <c10/util/hash.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/base/threads.h"
#include "sharding/runtime/addresses.h"
#include "sharding/runtime/consensus.h"
#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/launcher_environment.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Duration = std::chrono::milliseconds;

struct State {
  std::recursive_mutex joining;
  std::atomic<bool> initialized{false};
  pid_t pid = 0;                  // a child of fork is not one of the processes
  std::function<void()> end_run;  // called by process 0
  bool finalized = false;
  detail::World world;
};

// Returns the state of this process. It is never destroyed, because Gloo's threads use it until the process ends.
State& state() {
  static State* all = new State;
  return *all;
}

const char* environment(const char* name) { return std::getenv(name); }

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

bool is_timeout(double seconds) { return seconds >= 0.1 && seconds <= 1e8; }

// Returns `given`, else the environment variable, else `fallback`. `option` is its name for messages.
Duration timeout_of(const char* option, std::optional<Duration> given, const char* variable, Duration fallback) {
  if (given && !is_timeout(seconds(*given)))
    fail(ErrorKind::invalid_argument, "initialize", "{} = {} ms, expected 0.1 to 1e8 seconds. Leave it out for {} s.",
         option, given->count(), seconds(fallback));
  if (given) return *given;
  const char* text = environment(variable);
  if (!text || !*text) return fallback;
  const std::optional said = detail::parse_number<double>(text);
  if (!said || !is_timeout(*said))
    fail(ErrorKind::invalid_argument, "initialize", "{}=\"{}\", expected seconds from 0.1 to 1e8. Unset it for {} s.",
         variable, text, seconds(fallback));
  return Duration(static_cast<int64_t>(*said * 1000));
}

detail::Launch launch_of(const ProcessesOptions& options) {
  if (options.process_index.has_value() != options.num_processes.has_value())
    fail(ErrorKind::invalid_argument, "initialize",
         "`process_index` and `num_processes` belong together. Give both, or neither.");
  detail::Launch launch;
  if (options.process_index) {
    launch = {.index = *options.process_index, .count = *options.num_processes};
    if (launch.count > 1) read_address(environment, launch);
  } else {
    launch = detail::launch_of(environment);
  }
  if (!options.address.empty()) parse_address("address", options.address, launch);
  if (launch.count < 1 || launch.count > detail::max_processes || launch.index < 0 || launch.index >= launch.count)
    fail(ErrorKind::invalid_argument, "initialize",
         "process {} of {}, expected a count from 1 to {} and an index below it.", launch.index, launch.count,
         detail::max_processes);
  if (launch.count > 1 && launch.host.empty())
    fail(ErrorKind::invalid_argument, "initialize",
         "this is process {} of {}, and the address of process 0 is not given. Give `address`, or set MASTER_ADDR and "
         "MASTER_PORT.",
         launch.index, launch.count);
  return launch;
}

// Returns the machine's given name, else the identity of the machine and of the container on it.
std::string own_machine(const std::string& given) {
  const char* said = environment("TESSERA_MACHINE");
  if (!given.empty() || (said && *said)) return "named " + (given.empty() ? said : given);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code unknown;
  return boot + std::filesystem::read_symlink("/proc/self/ns/pid", unknown).string();
}

// Returns the prefix of the store's keys that distinguishes this run from others at the same port; empty without a
// token or job. It is a hash, because everybody who reaches the store can list its keys.
std::string folder_of_run(const std::string& job) {
  const char* given = environment("TESSERA_RUN_TOKEN");
  const std::string token = given && *given ? given : job;
  return token.empty() ? "" : c10::sha1("tessera " + token).str() + "/";
}

// Returns the environment variables that change the meshes and checks of a program, with their values.
std::string settings() {
  std::string lines;
  for (const char* name : {"TESSERA_CHECK", "TESSERA_CPU_DEVICES", "TESSERA_PRIVATE_REPLICAS"}) {
    const char* value = environment(name);
    lines += fmt::format("{}={}\n", name, value ? value : "");
  }
  return lines;
}

// Joins this process with its peers: its identity, the address of the store, and the deadline.
class Meeting {
 public:
  Meeting(detail::Launch launch, std::string machine, Duration timeout, Duration start_timeout)
      : launch_(std::move(launch)), machine_(std::move(machine)), timeout_(timeout), start_timeout_(start_timeout) {}

  detail::World join() {
    detail::Ends ends = found();
    const std::string attempt = "tessera/" + launch_.attempt;
    const detail::Store all = opened(attempt);
    if (is_keeper()) ends = detail::ends_towards(launch_.host, launch_.port);
    detail::World world{.index = launch_.index, .count = launch_.count, .timeout = timeout_, .address = ends.own};
    try {
      const std::string prefix = fmt::format("{}/{}{}", attempt, folder_, number_of_run(all));
      const auto connect = [&](Duration longest) {
        return detail::Store(launch_.host, launch_.port, false, longest, prefix);
      };
      world.store = std::make_shared<detail::Store>(connect(std::max<Duration>(start_timeout_, 10s)));
      check_count(*world.store);
      world.control = std::make_shared<detail::ControlPlane>(connect(4s), connect(4s), launch_.index, launch_.count,
                                                             timeout_, keeper());
      if (is_keeper()) all.set("started", "yes");
      const bool is_local = detail::is_loopback(launch_.host);
      if (!is_local && ends.own != ends.other) world.store->first("seen", ends.other);
      wait_for_all(all, *world.store, *world.control);
      if (!is_local && ends.own == ends.other) world.address = address_for_others(*world.store, ends.own);
      world.machines = machines(*world.store);
      world.on_machine = number_on_machine(world.machines);
      return world;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(ErrorKind::lost_process, "initialize",
           "process {} of {} has lost the connection to the store at {}, which {} hosts: {}.", launch_.index,
           launch_.count, address(), keeper(), detail::first_line(error.what()));
    }
  }

 private:
  bool is_keeper() const { return launch_.index == 0 && !launch_.is_agents_store; }
  std::string keeper() const { return launch_.is_agents_store ? "torchrun's agent" : "process 0"; }
  std::string address() const { return fmt::format("{}:{} (MASTER_ADDR:MASTER_PORT)", launch_.host, launch_.port); }

  [[noreturn]] void fail_absent(const std::string& words) const {
    fail(ErrorKind::lost_process, "initialize",
         "process {} of {}: not all have arrived within {} s. {}. Raise TESSERA_START_TIMEOUT if they need longer.",
         launch_.index, launch_.count, seconds(start_timeout_), words);
  }

  // Waits until somebody listens at the address.
  detail::Ends found() const {
    detail::Ends ends;
    while (!is_keeper() && (ends = detail::ends_towards(launch_.host, launch_.port)).own.empty()) {
      if (Clock::now() > until_ && !detail::addresses_of(launch_.host, launch_.port))
        fail_absent(fmt::format("No host is known by the name {} (MASTER_ADDR)", launch_.host));
      if (Clock::now() > until_)
        fail_absent(fmt::format("No process listens at {}, where {} should{}", address(), keeper(),
                                launch_.is_agents_store ? "" : "; not seen: 0"));
      std::this_thread::sleep_for(20ms);
    }
    return ends;
  }

  // Returns the address by which other machines reach this one. On the store's machine, the store's name may resolve to
  // an address that is only valid there, such as 127.0.1.1. Then this is the address under which another machine has
  // found the store.
  static std::string address_for_others(const detail::Store& run, const std::string& own) {
    if (!run.has("seen")) return own;
    const std::string seen = run.get({"seen"})[0];
    return detail::is_own(seen, AI_NUMERICHOST) ? seen : own;
  }

  // Connects to the store, in a detached thread: a program that accepts connections and never answers would block
  // forever.
  detail::Store opened(const std::string& prefix) const {
    std::packaged_task<detail::Store()> task([launch = launch_, opens = is_keeper(), prefix] {
      return detail::Store(launch.host, launch.port, opens, 60s, prefix);
    });
    auto store = task.get_future();
    std::thread(std::move(task)).detach();
    const bool has_store = store.wait_until(until_ + 100ms) == std::future_status::ready;
    if (!has_store && is_keeper() && !detail::is_own(launch_.host))
      fail_absent(
          fmt::format("The store at {} cannot be reached: \"{}\" is not a name or address of the machine of process 0 "
                      "(IPv6 is written without brackets)",
                      address(), launch_.host));
    if (!has_store)
      fail_absent(fmt::format("Another program accepts connections at {} and does not answer, where {} should",
                              address(), keeper()));
    try {
      return store.get();
    } catch (const std::exception& error) {
      fail(ErrorKind::lost_process, "initialize", "process {} of {} cannot {} the store at {}: {}. {}", launch_.index,
           launch_.count, is_keeper() ? "open" : "use", address(), detail::first_line(error.what()),
           is_keeper() ? "Give a port that is free on the machine of process 0, and that machine's name."
                       : "Give the port that process 0, or torchrun, has opened for it.");
    }
  }

  // Returns the number of this run. The agent's store may serve several runs, one after another; a process joins each
  // of them once.
  int64_t number_of_run(const detail::Store& all) const {
    const int64_t number = all.add(fmt::format("{}taken/{}", folder_, launch_.index), 1);
    if (number > 1 && !all.has(fmt::format("{}ended/{}", folder_, number - 1)))
      fail(ErrorKind::invalid_argument, "initialize",
           "another process has already joined {}:{} as process {}. Give each its own RANK, and each run its "
           "own MASTER_PORT.",
           launch_.host, launch_.port, launch_.index);
    if (launch_.index == 0)
      state().end_run = [all, key = fmt::format("{}ended/{}", folder_, number)] { all.set(key, "yes"); };
    return number;
  }

  void check_count(const detail::Store& run) const {
    const std::string mine = std::to_string(launch_.count), others = run.first("count", mine);
    if (others != mine)
      fail(ErrorKind::inconsistent, "initialize",
           "process {} expects {} processes, others expect {}. Give all the same WORLD_SIZE.", launch_.index, mine,
           others);
  }

  // Throws if process 0 has a different run token. It writes the key "loss" under its own token, and then "started"
  // without a token. If "started" exists without "loss" under this process's token, the tokens differ.
  void check_token(const detail::Store& all, const detail::Store& run) const {
    if (launch_.index > 0 && !launch_.is_agents_store && all.has("started") && !run.has("loss"))
      fail(ErrorKind::inconsistent, "initialize",
           "process {} of {}: process 0 at {} has another run token, which is TESSERA_RUN_TOKEN, else the launcher's "
           "job. Set the same TESSERA_RUN_TOKEN for all processes of a run, and give each run its own MASTER_PORT.",
           launch_.index, launch_.count, address());
  }

  // Waits until all processes have arrived. The first process that gives up reports the reason to the others.
  void wait_for_all(const detail::Store& all, const detail::Store& run, const detail::ControlPlane& control) const {
    run.set(machine_of(launch_.index), machine_);
    for (run.add("arrived", 1); run.add("arrived", 0) < launch_.count; std::this_thread::sleep_for(10ms)) {
      check_token(all, run);
      if (Clock::now() <= until_ && !run.has("absent")) continue;
      const std::string words = run.first("absent", words_of_missing(control));
      if (is_keeper()) std::this_thread::sleep_for(500ms);
      fail_absent(words);
    }
  }

  // Returns the machine of each process, which all have stored before they arrived.
  std::vector<int> machines(const detail::Store& run) const {
    std::vector<std::string> keys;
    for (int process = 0; process < launch_.count; ++process) keys.push_back(machine_of(process));
    std::map<std::string, int> numbers;
    std::vector<int> machines;
    for (const std::string& name : run.get(keys))
      machines.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
    return machines;
  }

  int number_on_machine(const std::vector<int>& machines) const {
    const auto own = machines.begin() + launch_.index;
    return static_cast<int>(std::count(machines.begin(), own, *own));
  }

  static std::string machine_of(int process) { return fmt::format("machine/{}", process); }

  std::string words_of_missing(const detail::ControlPlane& control) const {
    const std::vector<int> missing = control.missing();
    std::vector<int> seen;
    for (int process = 0; process < launch_.count; ++process)
      if (std::find(missing.begin(), missing.end(), process) == missing.end()) seen.push_back(process);
    const bool is_first_missing = !missing.empty() && missing[0] == 0;
    return fmt::format("Seen at {}:{}: {}; not seen: {}{}", launch_.host, launch_.port, fmt::join(seen, ", "),
                       fmt::join(missing, ", "),
                       is_first_missing ? ". Check that it has the same TESSERA_RUN_TOKEN" : "");
  }

  const detail::Launch launch_;
  const std::string folder_ = folder_of_run(launch_.job);
  const std::string machine_;
  const Duration timeout_, start_timeout_;
  const Clock::time_point until_ = Clock::now() + start_timeout_;
};

int status_after(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  const bool is_lost = own && own->kind() == ErrorKind::lost_process;
  return is_lost || dynamic_cast<const c10::AcceleratorError*>(&error) ? restart_status : 1;
}

// Leaves the program; called at exit. A process that fails does not wait for the others, which may be gone.
void leave(int status, void*) {
  const detail::World& world = state().world;
  if (!world.control || state().pid != ::getpid()) return;
  try {
    if (state().end_run) state().end_run();
    world.control->leave(status == 0 ? "" : fmt::format("has ended with exit status {}", status));
    if (status == 0) detail::wait_for_the_end();
  } catch (const std::exception& error) {
    if (status == 0) {
      std::fprintf(stderr, "%s\n", error.what());
      std::fflush(nullptr);
      ::_exit(status_after(error));
    }
  }
  world.control->stop();
}

}  // namespace

namespace {

const detail::World& joined() {
  if (!state().initialized) {
    const std::lock_guard lock(state().joining);
    if (!state().initialized) initialize();
  }
  return state().world;
}

}  // namespace

const detail::World& detail::world() {
  const World& world = joined();
  if (state().finalized)
    fail(ErrorKind::invalid_argument, "finalize", "a mesh of {} processes after finalize(). Call finalize() last.",
         world.count);
  return world;
}

void initialize(ProcessesOptions options) {
  const std::lock_guard lock(state().joining);
  if (state().initialized) fail(ErrorKind::invalid_argument, "initialize", "called twice. Call it once, first of all.");
  detail::Launch launch = launch_of(options);
  const Duration timeout = timeout_of("timeout", options.timeout, "TESSERA_TIMEOUT", 60s);
  const Duration start_timeout = timeout_of("start_timeout", options.start_timeout, "TESSERA_START_TIMEOUT", timeout);
  if (launch.count > 1) {
    detail::World& world = state().world;
    world = Meeting(std::move(launch), own_machine(options.machine), timeout, start_timeout).join();
    state().pid = ::getpid();
    ::on_exit(leave, nullptr);
    std::vector<int> all(static_cast<size_t>(world.count));
    for (int process = 0; process < world.count; ++process) all[process] = process;
    world.agreement = new_gloo_group(world, "agreement", all);
  }
  state().initialized = true;
  detail::check_agreement("initialize", state().world.count, settings());
}

void finalize() {
  if (void (*const stop)() = detail::stop_workers.exchange(nullptr)) stop();
  const detail::World& world = state().world;
  if (!world.control || state().pid != ::getpid()) return;
  state().pid = 0;  // makes leave() do nothing at exit
  if (state().end_run) state().end_run();
  world.control->leave("");
  detail::wait_for_the_end();
  world.control->stop();
  state().finalized = true;
}

int process_index() { return joined().index; }
int process_count() { return joined().count; }

int run_program(const std::function<int()>& body) try {
  std::signal(SIGXFSZ, SIG_IGN);
  return body();
} catch (const std::exception& error) {
  const std::string all = detail::escaped(error.what());
  std::string words = all.substr(0, all.find("\nException raised from"));  // removes LibTorch's stack trace
  if (dynamic_cast<const std::bad_alloc*>(&error))
    words = "[run_program] The process has no more memory. Use smaller batches or files, or raise `ulimit -v`.";
  std::fprintf(stderr, "error: %s\n", words.c_str());
  const detail::World& world = state().world;
  std::string_view exit_reason = detail::first_line(words);
  if (exit_reason.ends_with('.')) exit_reason.remove_suffix(1);  // the others embed it in a sentence
  if (world.control && state().pid == ::getpid()) world.control->leave(fmt::format("has raised: {}", exit_reason));
  return status_after(error);
}

bool any_process(bool yes) {
  if (process_count() == 1) return yes;
  static detail::Votes votes("any_process", "a vote of all processes");
  return !votes.all(!yes);
}

}  // namespace tessera
