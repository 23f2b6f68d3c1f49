// ProcessGroup: a group of processes, and its collectives on contiguous tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sharding/base/caller.h"

namespace tessera::detail {

enum class ReduceOp : uint8_t { sum, max, min, product };

// Sums of at most this many elements (losses, norms) are computed in double and rounded once. Compared with a
// collective, the time for that is negligible.
inline constexpr int64_t max_small_elements = 4096;

// The context of a wait, for its Error: [operation] file:line: mesh axis "data": process 2 ...
struct WaitContext {
  const char* operation;              // all_reduce
  CallerLine where;                   // the user's line
  const std::string* axes = nullptr;  // the mesh axes of the collective
  const std::string* what = nullptr;  // replaces line and axes: a checkpoint's folder
  // The timeout of this wait; zero: the timeout of initialize.
  std::chrono::milliseconds longest{};
};

// A tensor to or from the process at index `peer` of the group's list.
struct Message {
  int peer;
  at::Tensor tensor;
};

// A collective in progress. Do not touch its tensors until wait() has returned. Call wait() once; it throws the
// collective's Error. A collective completes even if its Work is destroyed without wait().
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
};

// A group of processes. There is one group per list of processes, which is created once.
// - All members call the same collectives in the same order, with tensors of the same element types and shapes. A
//   process in several groups calls the collectives of all of them in an order that is consistent on all members.
// - Tensors are contiguous, have any element type of the library, and are in the memory that the group is for. They
//   must not alias, except that exchange may send one tensor to several peers.
// - A collective runs concurrently with this process's computation until you wait for its Work.
// - Sums of bfloat16 and float16 are computed in float and rounded once. A sum of bool is "or". max and min propagate
//   NaN. All members get the same bits from a reduction.
// - If a member is lost, throws lost_process within the timeout. After that, no collective of any group succeeds.
class ProcessGroup {
 public:
  using WorkPtr = std::unique_ptr<Work>;
  virtual ~ProcessGroup() = default;
  virtual int size() const = 0;
  virtual int index() const = 0;  // this process's position in the list

  [[nodiscard]] virtual WorkPtr all_reduce(at::Tensor x, ReduceOp how, const WaitContext& waiting) = 0;  // in place
  // Gathers a tensor of each member. `all` has the shape [size, ...mine]; all[i] becomes member i's tensor.
  [[nodiscard]] virtual WorkPtr all_gather(at::Tensor mine, at::Tensor all, const WaitContext& waiting) = 0;
  // Scatters sums. `parts` has the shape [size, ...mine]; `mine` becomes the sum of all members' parts[index()].
  [[nodiscard]] virtual WorkPtr reduce_scatter(at::Tensor parts, at::Tensor mine, const WaitContext& waiting) = 0;
  // Exchanges a tensor with each member. Both have the shape [size, ...]; parts[i] goes to member i, received[i] comes
  // from it.
  [[nodiscard]] virtual WorkPtr all_to_all(at::Tensor parts, at::Tensor received, const WaitContext& waiting) = 0;
  // Sends and receives messages point to point. Between two members, messages arrive in the order in which they were
  // sent, with the same sizes; a message to oneself is a copy. Members with nothing to send or receive must call it,
  // too.
  [[nodiscard]] virtual WorkPtr exchange(std::vector<Message> sends, std::vector<Message> receives,
                                         const WaitContext& waiting) = 0;

  // Returns a second group of the same processes, for collectives whose order is independent of this group's:
  // reductions of gradients that start in the backward pass.
  virtual ProcessGroup& secondary() { return *this; }
  // Returns a group of the same processes for messages from the first to the second only. Messages in progress do not
  // delay other groups.
  virtual ProcessGroup& p2p_channel() { return secondary(); }
};

// Returns the group of these processes (indices in the program, which include this one) in this order, for tensors on
// this device. For CPUs this is Gloo's group; for other devices the registered one, or without one Gloo's, which sends
// tensors through the host's memory. All members make the first call at the same place. The group lives until the
// program ends.
ProcessGroup& process_group(const std::vector<int>& processes, c10::Device device = c10::kCPU);

// Returns the indices of all processes of the program: 0, 1, 2, ...
std::vector<int> everyone();

// Registers the function that makes groups for a kind of device, in each program that links it. The processes of the
// list call `make` at the same place, each with its device. Returns false if the kind already has one.
using MakeGroup = ProcessGroup& (*)(const std::vector<int>& processes, c10::Device device);
bool register_process_group(c10::DeviceType kind, MakeGroup make);

}  // namespace tessera::detail
