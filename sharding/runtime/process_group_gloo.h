// Store, new_gloo_group: the store and the CPU process groups that LibTorch's c10d provides.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// Keys and values that all processes share: c10d's TCPStore, which process 0 or torchrun's agent keeps. A call throws
// LibTorch's std::exception if it gets no answer within `longest`, or if the store is gone. A Store is one connection,
// and its threads wait for each other. Values are truncated to max_message_bytes.
class Store {
 public:
  // The keeper opens the port: for a loopback host at that address only, else at all addresses of the machine. Others
  // connect to it. All keys begin with `prefix`.
  Store(const std::string& host, int port, bool is_keeper, std::chrono::milliseconds longest,
        const std::string& prefix);

  void set(const std::string& key, const std::string& value) const;
  std::vector<std::string> get(const std::vector<std::string>& keys) const;  // waits until all keys are set
  bool has(const std::string& key) const;
  int64_t add(const std::string& key, int64_t n) const;  // returns the sum
  // Sets the key if it is absent or empty; returns its value.
  std::string first(const std::string& key, const std::string& value) const;

 private:
  friend class GlooGroup;
  struct Client;
  template <class Ask>
  auto answer(Ask ask) const;
  std::shared_ptr<Client> client_;
};

struct World;
// Returns a group of these processes; the name distinguishes it from their other groups. All members call this at the
// same place. Tensors on an accelerator are copied through the host's memory. A group of one process only copies,
// without Gloo.
std::shared_ptr<ProcessGroup> new_gloo_group(const World& world, const std::string& name,
                                             const std::vector<int>& processes,
                                             std::shared_ptr<ProcessGroup> secondary = nullptr);

// Gathers tensors as all_gather does. Calls are matched by channel, independent of the group's order of calls. It is
// for threads whose calls have a different order in each process; each thread has a channel.
[[nodiscard]] ProcessGroup::WorkPtr gather_by_channel(ProcessGroup& gloo_group, int channel, const at::Tensor& mine,
                                                      const at::Tensor& all, const WaitContext& waiting);

}  // namespace tessera::detail
