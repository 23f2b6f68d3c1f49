// The processes that act together, and what they can do with contiguous tensors of theirs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "sharding/caller.h"
#include "sharding/type.h"

namespace tessera::detail {

enum class Fold : uint8_t { sum, max, min, product };

// Losses, norms and other small sums are rounded once: adding them in double costs no time that a collective would
// notice.
inline constexpr int64_t most_small_elements = 4096;

// What is said of a wait that fails: [operation] file:line: mesh axis "data": process 2 ...
struct Waiting {
  const char* operation;  // all_reduce
  CallerLine where;       // the user's line
  const MeshImpl* mesh = nullptr;
  Mask axes = 0;  // of the mesh, over which the processes act
};

// What goes to, or comes from, the process at `peer` in the group's list.
struct Message {
  int peer;
  at::Tensor tensor;
};

// A verb that was begun. Nobody touches its tensors until finish() has returned; finish() is called once, and throws
// what the verb would have. Whoever lets it go unfinished leaves the group to itself.
class Begun {
 public:
  virtual ~Begun() = default;
  virtual void finish() = 0;
};

// One per list of processes, made once. All members call the same verbs in the same order with tensors of the same
// element types and shapes; a process may be in several groups, and calls the verbs of all in one order that suits all.
// Tensors are contiguous CPU tensors of any of the library's element types and must not alias, except that exchange may
// send one tensor to several peers. A verb returns when its results are there. Sums of bfloat16 and float16 are taken
// in float and rounded once; of bool they are "or". What a process computes of a fold is the same bits on all members.
// Error (other) within the timeout where a member is lost, after which no verb of any group succeeds.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int size() const = 0;
  virtual int index() const = 0;  // of this process in the list

  virtual void all_reduce(at::Tensor& x, Fold how, const Waiting& waiting) = 0;  // in place
  // The same, with the same bits, beside what this process computes until it is finished. Those that are begun are
  // begun in one order on all members, which need not fit the order of the other verbs.
  virtual std::unique_ptr<Begun> begin_all_reduce(at::Tensor x, Fold how, const Waiting& waiting) = 0;
  // all: [size, ...mine]
  virtual void all_gather(const at::Tensor& mine, at::Tensor& all, const Waiting& waiting) = 0;
  // parts: [size, ...mine]; mine becomes the sum of all members' parts[index()]
  virtual void reduce_scatter(const at::Tensor& parts, at::Tensor& mine, const Waiting& waiting) = 0;
  // Both [size, ...]; parts[i] goes to member i, received[i] came from it.
  virtual void all_to_all(const at::Tensor& parts, at::Tensor& received, const Waiting& waiting) = 0;
  // Between two members, messages are received in the order in which they are sent, each of the size that was sent; one
  // to oneself is a copy. A member with nothing to send or receive need not call.
  virtual void exchange(const std::vector<Message>& sends, std::vector<Message>& receives, const Waiting& waiting) = 0;
};

// Of these processes (indices in the program, this one's among them), in this order. Kept for the program's life.
ProcessGroup& process_group(const std::vector<int>& processes);

}  // namespace tessera::detail
