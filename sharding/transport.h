// What an engine of processes does: moves bytes between them without waiting. Who waits, and for how long, is not its.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::detail {

// Bytes for, or from, a process (its index in the program).
struct Parcel {
  int process;
  void* data;
  int64_t bytes;
};

// Calls to one come from one thread at a time, to several from one each. Between two processes parcels arrive in the
// order in which they are sent.
class Transport {
 public:
  virtual ~Transport() = default;        // leaves; all processes have agreed that they do
  virtual int index() const = 0;         // of this process
  virtual int count() const = 0;         // of all processes
  virtual std::string name() const = 0;  // for messages: what moves the bytes, with its version
  // Begins to send and to receive, and returns. The memory belongs to the transport until all are done.
  virtual void start(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives) = 0;
  // Begins a barrier of all processes, and nothing after it.
  virtual void start_barrier() = 0;
  // Another one between the same processes, that mixes with this one in nothing; all processes ask for it at the same
  // place, once. Null where the engine allows no second thread.
  virtual std::unique_ptr<Transport> second() { return nullptr; }
  // Whether all that was started is done; moves it on. Error (other) in the engine's words if it cannot be.
  virtual bool is_done() = 0;
};

// Joins what MPI's launcher has started; waits until all are there. Null if the library was built without MPI.
std::unique_ptr<Transport> join_by_mpi();

// Joins processes that were started singly: by connections of their own, which they make where they meet. Waits until
// all are there. Errors: those of Rendezvous; other, where one cannot be reached.
class Rendezvous;
std::unique_ptr<Transport> join_by_tcp(int index, Rendezvous& rendezvous);

// The same, but large parcels between processes of one machine are read from the sender's memory where the system
// allows it, in one copy. All processes must do it.
std::unique_ptr<Transport> with_direct_reads(std::unique_ptr<Transport> engine);

// For the Error of a parcel that is not as large as it should be.
std::string different_sizes(int sender, std::optional<int64_t> sent, int64_t expected);

}  // namespace tessera::detail
