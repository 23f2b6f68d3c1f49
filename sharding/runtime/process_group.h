// ProcessGroup: processes that act together, and the collectives that they run on contiguous tensors.
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

// Sums of at most so many elements (losses, norms) are added in double, so that they are rounded once; beside a
// collective the time for that does not count.
inline constexpr int64_t max_small_elements = 4096;

// What an Error says of a wait that fails: [operation] file:line: mesh axis "data": process 2 ...
struct WaitContext {
  const char* operation;              // all_reduce
  CallerLine where;                   // the user's line
  const std::string* axes = nullptr;  // the names of the mesh axes over which the processes act
  const std::string* what = nullptr;  // instead of a line and axes: a checkpoint's folder
  // How long to wait for the other processes; zero: the timeout that initialize was given.
  std::chrono::milliseconds longest{};
};

// A tensor for, or from, the process at index `peer` of the group's list.
struct Message {
  int peer;
  at::Tensor tensor;
};

// A collective that was begun. Nobody may touch its tensors until wait() has returned. wait() is called once, and
// throws the collective's Error. A collective whose Work is destroyed without wait() is carried out all the same.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
};

// There is one group per list of processes, made once. All members call the same collectives in the same order, with
// tensors of the same element types and shapes; a process in several groups calls the collectives of all of them in one
// order that suits all members. Tensors are contiguous, of any of the library's element types, lie in the memory that
// the group is for, and must not alias, except that exchange may send one tensor to several peers. A collective runs
// beside what this process computes until its Work is waited for. Sums of bfloat16 and float16 are taken in float and
// rounded once; a sum of bool is "or"; max and min keep a NaN. A reduction's result has the same bits on all members.
// Error (other) within the timeout if a member is lost; after that no collective of any group succeeds.
class ProcessGroup {
 public:
  using WorkPtr = std::unique_ptr<Work>;
  virtual ~ProcessGroup() = default;
  virtual int size() const = 0;
  virtual int index() const = 0;  // of this process in the list

  [[nodiscard]] virtual WorkPtr all_reduce(at::Tensor x, ReduceOp how, const WaitContext& waiting) = 0;  // in place
  // `all` has the shape [size, ...mine]; all[i] becomes member i's tensor.
  [[nodiscard]] virtual WorkPtr all_gather(at::Tensor mine, at::Tensor all, const WaitContext& waiting) = 0;
  // `parts` has the shape [size, ...mine]; `mine` becomes the sum of all members' parts[index()].
  [[nodiscard]] virtual WorkPtr reduce_scatter(at::Tensor parts, at::Tensor mine, const WaitContext& waiting) = 0;
  // Both have the shape [size, ...]; parts[i] goes to member i, received[i] comes from it.
  [[nodiscard]] virtual WorkPtr all_to_all(at::Tensor parts, at::Tensor received, const WaitContext& waiting) = 0;
  // Point to point. Between two members, messages arrive in the order in which they are sent, each of the size that was
  // sent; a message to oneself is a copy. Members with nothing to send or to receive call it too.
  [[nodiscard]] virtual WorkPtr exchange(std::vector<Message> sends, std::vector<Message> receives,
                                         const WaitContext& waiting) = 0;

  // A second group of the same processes, for collectives in an order of their own: sums of gradients that begin in the
  // backward pass.
  virtual ProcessGroup& beside() { return *this; }
  // A group of the same processes, for messages from the first to the second alone: those that are under way keep no
  // other group waiting.
  virtual ProcessGroup& p2p_channel() { return beside(); }
};

// The group of these processes (indices in the program, this process's among them), in this order, for tensors on this
// device: Gloo's for a CPU; else the group that is registered for this kind of device, or, without one, Gloo's, with
// tensors sent through the host's memory. All members make the first call at the same place. The group lives as long as
// the program.
ProcessGroup& process_group(const std::vector<int>& processes, c10::Device device = c10::kCPU);

// The indices of all processes of the program: 0, 1, 2, ...
std::vector<int> everyone();

// Registers who makes the groups for a kind of device, in every program that is linked with it. `make` is called by the
// processes of the list, at the same place, each with the device that it uses. Returns false if the kind has one
// already.
using MakeGroup = ProcessGroup& (*)(const std::vector<int>& processes, c10::Device device);
bool register_process_group(c10::DeviceType kind, MakeGroup make);

}  // namespace tessera::detail
