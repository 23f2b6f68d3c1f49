// The processes of one program: how they find each other, who this one is, and what ends them together.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// How this process and its peers act together. What is left out comes from the launcher's environment.
struct ProcessesOptions {
  std::optional<int> index = {};  // of this process, from 0
  std::optional<int> count = {};  // of all processes
  // A process that is not heard from for this long, or does not come to a collective that others wait in, is lost: all
  // others end with an error that names it. Unset: TESSERA_TIMEOUT (seconds), else 60 s.
  std::optional<std::chrono::milliseconds> timeout = {};
  // How long initialize waits until all have arrived; a scheduler may start them minutes apart. Unset:
  // TESSERA_START_TIMEOUT (seconds), else the timeout.
  std::optional<std::chrono::milliseconds> start_timeout = {};
  std::string launcher = {};  // who said so, for messages: "PMI_RANK and PMI_SIZE"; empty: explicit arguments
};

// Joins this process with its peers; a program calls it first, once. A program that does not is joined by its first
// mesh, so one that runs alone needs no call.
//
// The processes are started by MPI's launcher (`mpiexec -n 4 program`, `srun -n 4 program`), or by whatever sets
// torchrun's variables (`torchrun --no-python --nproc-per-node 4 program`); those find each other at
// MASTER_ADDR:MASTER_PORT, and need no MPI. Who this one is follows from the explicit arguments, else from the first of
// these sets that the environment has any variable of:
//   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   OpenMPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//   PMI       PMI_RANK, PMI_SIZE               (MPICH, Intel MPI, and Slurm's --mpi=pmi2)
//   Slurm     SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_ID
// docs/processes.md says why in this order. None: one process, no engine. Errors (bad_argument): a set that is partial
// or contradicts itself, or what other processes were told, names what is missing; more than one process where MPI was
// started for one, or for none, says what to do. A peer that does not arrive within start_timeout ends the program.
//
// At exit a process waits for the others, which may still compute; it never waits for one that is lost.
void initialize(ProcessesOptions options = {});

// Which of how many this is. 0 and 1 where nothing was initialized and no launcher is seen; where one is, these
// initialize. Write files, progress and tables from process 0.
int process_index();
int process_count();

// What `get(name)` finds of the environment, or null: std::getenv in a program, a table in a test.
using Environment = std::function<const char*(const char* name)>;

// What the launcher says, as explicit arguments; both numbers are set, 0 and 1 where there is none.
ProcessesOptions from_environment(const Environment& get);

}  // namespace tessera
