// Gloo, out of LibTorch: the store that the processes of a program share, and their groups.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sharding/distributed/process_group.h"

namespace tessera::detail {

// Keys and values that all processes share: c10d's TCPStore, kept by process 0 or by torchrun's agent. A call that is
// not answered within `longest` throws, as does one to a store that is gone: std::exception, in LibTorch's words. One
// connection, on which threads wait for each other.
class Store {
 public:
  // Opens the port, or connects to where somebody listens. Keys begin with the prefix.
  Store(const std::string& host, int port, bool is_keeper, std::chrono::milliseconds longest,
        const std::string& prefix);

  void set(const std::string& key, const std::string& value) const;
  std::vector<std::string> get(const std::vector<std::string>& keys) const;  // waits for those that are not there
  bool has(const std::string& key) const;
  int64_t add(const std::string& key, int64_t n) const;  // the sum
  // Sets it where it is not there or empty; what it is then.
  std::string first(const std::string& key, const std::string& value) const;

 private:
  friend class GlooGroup;
  struct Client;
  template <class Ask>
  auto answer(Ask ask) const;
  std::shared_ptr<const Client> client_;
};

struct World;
// The processes of a group of this name, which are told apart by it; all of them make it at the same place. Tensors on
// an accelerator go through the host's memory. A group of one copies, and needs no Gloo.
std::shared_ptr<ProcessGroup> new_gloo_group(const World& world, const std::string& name,
                                             const std::vector<int>& processes,
                                             std::shared_ptr<ProcessGroup> beside = nullptr);

// An all_gather of such a group that mixes with nothing of it but those of the same channel: of threads that each have
// one, whose order among each other differs from process to process.
[[nodiscard]] ProcessGroup::WorkPtr gather_by_channel(ProcessGroup& gloo_group, int channel, const at::Tensor& mine,
                                                      const at::Tensor& all, const Waiting& waiting);

}  // namespace tessera::detail
