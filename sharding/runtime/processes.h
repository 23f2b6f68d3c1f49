// The processes of one program: how they find each other, who this one is, and what ends them together.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>

namespace tessera {

// How this process and its peers act together. What is left out comes from the launcher's environment.
struct ProcessesOptions {
  std::optional<int> process_index = {};  // of this process, from 0
  std::optional<int> num_processes = {};  // of all processes
  std::string address = {};               // where process 0 opens the store in which all meet: "node1:29500"
  // The machine of this process: those that name the same one share it (the order of a mesh, the number of a GPU, what
  // is summed within a machine first). Empty: TESSERA_MACHINE, else what the system says, for which every container is
  // a machine of its own.
  std::string machine = {};
  // A process that is not heard from for this long, or does not come to a collective that others wait in, is lost: all
  // others end with an error that names it. Unset: TESSERA_TIMEOUT (seconds), else 60 s.
  std::optional<std::chrono::milliseconds> timeout = {};
  // How long initialize waits until all have arrived; a scheduler may start them minutes apart. Unset:
  // TESSERA_START_TIMEOUT (seconds), else the timeout.
  std::optional<std::chrono::milliseconds> start_timeout = {};
};

// Joins this process with its peers; a program calls it first, once. A program that does not is joined by its first
// mesh, so one that runs alone needs no call.
//
// The processes are started by torchrun (`torchrun --no-python --nproc-per-node 4 program`), by the launcher of any MPI
// (`mpiexec -n 4 program`), by Slurm (`srun -n 4 program`), or by a loop of a shell that sets torchrun's variables.
// Which process this is follows from the explicit arguments, else from the first of these sets of which the environment
// has any variable:
//   torchrun  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   OpenMPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//   PMI       PMI_RANK, PMI_SIZE               (MPICH, Intel MPI, MVAPICH, and Slurm's --mpi=pmi2)
//   Slurm     SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_ID
// The processes meet at `address`, else at MASTER_ADDR:MASTER_PORT, else on the first machine of Slurm's list, else on
// this machine, at a port derived from the launcher's job. They are separated from other runs by TESSERA_RUN_TOKEN,
// else by the launcher's job (docs/processes.md has more, under "Security"). If nothing is set, the program has one
// process and no group. Errors: invalid_argument, if a set is partial or contradicts itself (the message names what is
// missing); inconsistent, if other processes were told another count, have another token, or other values of
// TESSERA_CHECK, TESSERA_CPU_DEVICES or TESSERA_PRIVATE_REPLICAS; other, "[initialize] ..." with the processes that
// have not arrived within start_timeout.
//
// At exit a process waits for the others, which may still compute; it never waits for one that is lost.
void initialize(ProcessesOptions options = {});

// Ends this process's part of the program, as its exit does: waits until the other processes have ended too, then ends
// the thread that sends heartbeats, and the worker threads. A program that unloads the library, or that wants no
// threads of the library while it does something else, calls it; others need not. In a program of one process the next
// call that needs workers starts new ones; in a program of several, later communication is an Error.
// Error (other): another process is lost.
void finalize();

// The index of this process, and how many there are. Under a launcher these call initialize if nothing has; without
// launcher and initialize they are 0 and 1. Write files, progress and tables from process 0.
int process_index();
int process_count();

// Whether any process of the program says yes. All processes call this at the same place, on the same thread each time;
// it costs 16 bytes from each to each. Error (other): one of them is lost.
bool any_process(bool yes);

// Runs the body of a program's main, and returns its status. An exception that leaves the body is printed, is reported
// to the other processes that wait for this one, and makes the status 1:
//   int main() { return run_program([] { train(); return 0; }); }
int run_program(const std::function<int()>& body);
// The same of a body that returns nothing: the status is 0.
template <class Body>
requires std::is_void_v<std::invoke_result_t<Body>>
int run_program(const Body& body) {
  return run_program([&] { return body(), 0; });
}

}  // namespace tessera
