// The processes of one program: joining them, their indices, and their common end.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>

#include "sharding/runtime/restart_status.h"

namespace tessera {

// How this process and its peers cooperate. Unset options come from the launcher's environment.
struct ProcessesOptions {
  std::optional<int> process_index = {};  // from 0
  std::optional<int> num_processes = {};  // in the program
  std::string address = {};               // where process 0 opens the store for all: "node1:29500"
  // The name of this process's machine; processes with the same name are on one machine. It determines the order of a
  // mesh and the index of a GPU. Empty: TESSERA_MACHINE, else the system's identity, in which each container is a
  // machine.
  std::string machine = {};
  // A process is lost if it sends no heartbeat for this long, or does not join a collective in which others wait. All
  // others then end with an error that names it. Unset: TESSERA_TIMEOUT (seconds), else 60 s.
  std::optional<std::chrono::milliseconds> timeout = {};
  // How long initialize waits until all processes have arrived; a scheduler may start them minutes apart. Unset:
  // TESSERA_START_TIMEOUT (seconds), else the timeout.
  std::optional<std::chrono::milliseconds> start_timeout = {};
};

// Joins this process with its peers. Call it once, before anything else. If you do not, the first mesh calls it, so a
// program of one process needs no call.
//
// You can start the processes in these ways:
// - torchrun: `torchrun --no-python --nproc-per-node 4 program`
// - the launcher of any MPI: `mpiexec -n 4 program`
// - Slurm: `srun -n 4 program`
// - a shell loop that sets torchrun's variables
// The index of this process comes from the explicit options, else from the first of these sets with any variable in the
// environment:
//   torchrun  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   OpenMPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//   PMI       PMI_RANK, PMI_SIZE               (MPICH, Intel MPI, MVAPICH, and Slurm's --mpi=pmi2)
//   Slurm     SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_ID
// The processes meet at `address`, else at MASTER_ADDR:MASTER_PORT. Without either, they meet on the first machine of
// Slurm's list, else on this machine, at a port derived from the launcher's job. TESSERA_RUN_TOKEN, else the launcher's
// job, separates them from other runs (see "Security" in docs/processes.md). If nothing is set, the program has one
// process and no group.
//
// At exit, a process waits for the others, which may still compute, but never for a lost one.
//
// Errors
//   invalid_argument: a set that is incomplete or contradictory (the message names what is missing); an invalid option;
//     a second call
//   inconsistent: other processes have a different count, a different token, or different values of TESSERA_CHECK,
//     TESSERA_CPU_DEVICES or TESSERA_PRIVATE_REPLICAS
//   lost_process: "[initialize] ..." with the processes that have not arrived within start_timeout; or the store cannot
//     be opened or used at this address
void initialize(ProcessesOptions options = {});

// Ends this process's part of the program, as its exit does: waits until the other processes have ended too, then stops
// the heartbeat thread and the worker threads. Only programs that unload the library, or that need its threads to stop
// earlier, must call it. In a program of one process, the next call that needs workers starts new ones. In a program of
// several, later communication throws. Throws lost_process if another process is lost.
void finalize();

// Return the index of this process, and the number of processes. Under a launcher, they call initialize if necessary;
// without launcher and initialize they return 0 and 1. Write files, progress and tables from process 0.
int process_index();
int process_count();

// Returns whether any process of the program passes true. All processes call this at the same place, always on the same
// thread. Costs 16 bytes from each process to each. Throws lost_process if one of them is lost.
bool any_process(bool yes);

// Runs the body of a program's main, and returns its status. If an exception leaves the body, prints it and reports it
// to the other processes that wait for this one. Then returns `restart_status` for a lost process (lost_process) and a
// failed device (c10::AcceleratorError), and 1 for any other exception. Ignores the signal SIGXFSZ, so that a file
// larger than `ulimit -f` permits is an Error:
//   int main() { return run_program([] { train(); return 0; }); }
int run_program(const std::function<int()>& body);
// For a body that returns nothing: the status is 0.
template <class Body>
requires std::is_void_v<std::invoke_result_t<Body>>
int run_program(const Body& body) {
  return run_program([&] { return body(), 0; });
}

}  // namespace tessera
