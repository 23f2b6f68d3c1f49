// The processes that act together, and what they do with contiguous tensors of theirs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sharding/diagnostics/caller.h"

namespace tessera::detail {

enum class ReduceOp : uint8_t { sum, max, min, product };

// Losses, norms and other small sums are rounded once: adding them in double costs no time that a collective would
// notice.
inline constexpr int64_t most_small_elements = 4096;

// What is said of a wait that fails: [operation] file:line: mesh axis "data": process 2 ...
struct Waiting {
  const char* operation;              // all_reduce
  CallerLine where;                   // the user's line
  const std::string* axes = nullptr;  // the names of the mesh axes over which the processes act
  const std::string* what = nullptr;  // in place of a line and axes: a checkpoint's folder
  // How long the others are waited for; zero: the timeout that initialize was given.
  std::chrono::milliseconds longest{};
};

// What goes to, or comes from, the process at `peer` in the group's list.
struct Message {
  int peer;
  at::Tensor tensor;
};

// A verb that was begun. Nobody touches its tensors until wait() has returned; wait() is called once, and throws what
// the verb would have. A work that is let go without it is carried out all the same.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
};

// One per list of processes, made once. All members call the same verbs in the same order with tensors of the same
// element types and shapes; a process may be in several groups, and calls the verbs of all in one order that suits all.
// Tensors are contiguous, in the memory that the group is for, of any of the library's element types, and must not
// alias, except that exchange may send one tensor to several peers. A verb begins, and goes on beside what this process
// computes until its work is waited for. Sums of bfloat16 and float16 are taken in float and rounded once; of bool they
// are "or"; a maximum or minimum keeps a NaN. What a process computes of a fold is the same bits on all members.
// Error (other) within the timeout where a member is lost, after which no verb of any group succeeds.
class ProcessGroup {
 public:
  using WorkPtr = std::unique_ptr<Work>;
  virtual ~ProcessGroup() = default;
  virtual int size() const = 0;
  virtual int index() const = 0;  // of this process in the list

  [[nodiscard]] virtual WorkPtr all_reduce(at::Tensor x, ReduceOp how, const Waiting& waiting) = 0;  // in place
  // all: [size, ...mine]
  [[nodiscard]] virtual WorkPtr all_gather(at::Tensor mine, at::Tensor all, const Waiting& waiting) = 0;
  // parts: [size, ...mine]; mine becomes the sum of all members' parts[index()]
  [[nodiscard]] virtual WorkPtr reduce_scatter(at::Tensor parts, at::Tensor mine, const Waiting& waiting) = 0;
  // Both [size, ...]; parts[i] goes to member i, received[i] came from it.
  [[nodiscard]] virtual WorkPtr all_to_all(at::Tensor parts, at::Tensor received, const Waiting& waiting) = 0;
  // Between two members, messages are received in the order in which they are sent, each of the size that was sent; one
  // to oneself is a copy. A member calls it with nothing to send or to receive too.
  [[nodiscard]] virtual WorkPtr exchange(std::vector<Message> sends, std::vector<Message> receives,
                                         const Waiting& waiting) = 0;

  // The same processes again, for verbs whose order need not fit that of the others: sums of gradients that begin in
  // the backward pass.
  virtual ProcessGroup& beside() { return *this; }
};

// Of these processes (indices in the program, this one's among them), in this order, for tensors on this device: on a
// CPU Gloo's; else that of the engine which said it is for this kind of device, and without such an engine tensors go
// through the host's memory. All members make the first call at the same place. Kept for the program's life.
ProcessGroup& process_group(const std::vector<int>& processes, c10::Device device = c10::kCPU);

// Of the program, from 0.
std::vector<int> everyone();

// An engine for a kind of device, which all programs have that are linked with it. `make` is called by the processes of
// the list, at the same place, each with the device that it uses. False where there is one already.
using MakeGroup = ProcessGroup& (*)(const std::vector<int>& processes, c10::Device device);
bool register_process_group(c10::DeviceType kind, MakeGroup make);

}  // namespace tessera::detail
