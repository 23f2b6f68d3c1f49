// Sums numbers in several processes until one of them fails: victim KIND PROCESS [STEPS].
#include <ATen/ops/ones.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "sharding/base/error.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/runtime/hardware.h"
#include "sharding/runtime/process_group.h"
#include "sharding/runtime/processes.h"
#include "tests/processes/harm.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// A tensor of ones on the default device of meshes.
at::Tensor some_ones() {
  static const c10::Device device = detail::accelerator("");
  return at::ones({30000}, device);
}

void add_ones(detail::ProcessGroup& group, const Mesh& mesh) {
  at::Tensor x = some_ones();
  group
      .all_reduce(
          x, detail::ReduceOp::sum,
          {.operation = "all_reduce", .where = std::source_location::current(), .axes = mesh.impl()->kept_names(1)})
      ->wait();
  if (x[0].item<float>() != static_cast<float>(process_count())) std::abort();
}

// Adds ones by a collective in the background; the victim dies while it runs.
void add_ones_in_background(detail::ProcessGroup& group, const Mesh& mesh, bool is_victim) {
  const auto begun = group.secondary().all_reduce(
      some_ones(), detail::ReduceOp::sum,
      {.operation = "gradients", .where = std::source_location::current(), .axes = mesh.impl()->kept_names(1)});
  if (is_victim) ::raise(SIGKILL);
  begun->wait();
}

// Initializes the processes from four threads at once.
void join_from_threads() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([] { process_index(); });
  for (std::thread& thread : threads) thread.join();
}

// Forks a child that takes part in a collective ("fork"), or that survives its killed parent ("kill_with_child").
void fork_children(const std::string& kind, const std::function<void()>& take_part) {
  if (::fork() == 0) {
    if (kind == "kill_with_child") ::sleep(20);
    if (kind == "fork") take_part();
    ::_exit(0);
  }
  if (kind == "kill_with_child") ::raise(SIGKILL);
}

// Prints the addresses on which this process listens, in the kernel's format: "0100007F:5C9F".
void print_listening() {
  std::vector<std::string> sockets;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code is_gone;
    sockets.push_back(std::filesystem::read_symlink(fd.path(), is_gone).string());
  }
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      const std::vector<std::string> of_socket{std::istream_iterator<std::string>(fields), {}};
      const bool is_listening = of_socket.size() > 9 && of_socket[3] == "0A";
      if (is_listening && std::ranges::count(sockets, "socket:[" + of_socket[9] + "]") > 0)
        std::fprintf(stderr, "%s\n", of_socket[1].c_str());
    }
  }
}

void run(const std::string& kind, int victim, int steps) {
  if (kind == "threads")
    join_from_threads();
  else if (kind == "at_once")
    initialize({.start_timeout = std::chrono::milliseconds(0)});
  else if (kind == "explicit")  // one of two processes
    initialize({.process_index = victim, .num_processes = 2});
  else
    initialize();
  const Mesh mesh = make_mesh({{"data", process_count()}}, {.abstract = true});
  detail::ProcessGroup& group = detail::process_group(detail::everyone(), some_ones().device());
  for (int step = 0; step < steps; ++step) {
    if (step == steps / 2 && process_index() == victim) suffer(kind);
    if (step == steps / 2 && process_index() == victim && (kind == "fork" || kind == "kill_with_child"))
      fork_children(kind, [&] {
        try {
          add_ones(group, mesh);
        } catch (const Error& error) {
          std::fprintf(stderr, "%s\n", error.what());
        }
      });
    add_ones(group, mesh);
    if (kind == "say" && step == 0) std::fputs("running\n", stderr);
    if (kind == "listen" && step == 0) print_listening();
    if (kind == "kill_beside" && step == steps / 2) add_ones_in_background(group, mesh, process_index() == victim);
  }
  if (kind == "stop_at_end" && process_index() == victim) ::raise(SIGSTOP);
  if (kind == "kill_at_end" && process_index() == victim) ::raise(SIGKILL);
}

bool is_this(int victim) {
  for (const char* name : {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank) == victim;
  return false;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "none";
  const int victim = argc > 2 ? std::atoi(argv[2]) : 0;
  if (kind == "never" && tessera::is_this(victim)) tessera::testing::wait_for_ever();
  return tessera::run_program([&] {
    try {
      tessera::run(kind, victim, argc > 3 ? std::atoi(argv[3]) : 20);
    } catch (const tessera::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    return 0;
  });
}
