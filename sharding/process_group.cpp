// Groups chosen by where the tensors lie, that of one process, and the one that copies through the host's memory.
#include "sharding/process_group.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "sharding/process_group_gloo.h"
#include "sharding/processes.h"
#include "sharding/world.h"

namespace tessera::detail {
namespace {

// Waits for another work, if there is one, and then does something with its result.
class Then : public Work {
 public:
  Then(std::unique_ptr<Work> first, std::function<void()> last) : first_(std::move(first)), last_(std::move(last)) {}
  void wait() override {
    if (first_) first_->wait();
    last_();
  }

 private:
  std::unique_ptr<Work> first_;
  std::function<void()> last_;
};

// One process: everything is a copy.
class Alone : public ProcessGroup {
 public:
  int size() const override { return 1; }
  int index() const override { return 0; }
  Begun all_reduce(at::Tensor, Fold, const Waiting&) override { return copied({}, {}); }
  Begun all_gather(at::Tensor mine, at::Tensor all, const Waiting&) override { return copied(all[0], mine); }
  Begun reduce_scatter(at::Tensor parts, at::Tensor mine, const Waiting&) override { return copied(mine, parts[0]); }
  Begun all_to_all(at::Tensor parts, at::Tensor received, const Waiting&) override { return copied(received, parts); }
  Begun exchange(std::vector<Message> sends, std::vector<Message> receives, const Waiting&) override {
    for (size_t i = 0; i < receives.size(); ++i) receives[i].tensor.copy_(sends[i].tensor);
    return copied({}, {});
  }

 private:
  static Begun copied(const at::Tensor& to, const at::Tensor& from) {
    if (to.defined()) to.copy_(from);
    return std::make_unique<Then>(nullptr, [] {});
  }
};

// Any accelerator, by two copies more.
class ThroughHost : public ProcessGroup {
 public:
  explicit ThroughHost(ProcessGroup& host)
      : host_(host), beside_(&host.beside() == &host ? nullptr : std::make_unique<ThroughHost>(host.beside())) {}
  int size() const override { return host_.size(); }
  int index() const override { return host_.index(); }
  ProcessGroup& beside() override { return beside_ ? *beside_ : *this; }

  Begun all_reduce(at::Tensor x, Fold how, const Waiting& waiting) override {
    const at::Tensor here = x.cpu();
    return into(x, here, host_.all_reduce(here, how, waiting));
  }
  Begun all_gather(at::Tensor mine, at::Tensor all, const Waiting& waiting) override {
    const at::Tensor here = host_like(all);
    return into(all, here, host_.all_gather(mine.cpu(), here, waiting));
  }
  Begun reduce_scatter(at::Tensor parts, at::Tensor mine, const Waiting& waiting) override {
    const at::Tensor here = host_like(mine);
    return into(mine, here, host_.reduce_scatter(parts.cpu(), here, waiting));
  }
  Begun all_to_all(at::Tensor parts, at::Tensor received, const Waiting& waiting) override {
    const at::Tensor here = host_like(received);
    return into(received, here, host_.all_to_all(parts.cpu(), here, waiting));
  }
  Begun exchange(std::vector<Message> sends, std::vector<Message> receives, const Waiting& waiting) override {
    std::vector<Message> in;
    for (Message& message : sends) message.tensor = message.tensor.cpu();
    for (const Message& message : receives) in.push_back({message.peer, host_like(message.tensor)});
    Begun begun = host_.exchange(std::move(sends), in, waiting);
    return std::make_unique<Then>(std::move(begun), [in, receives] {
      for (size_t i = 0; i < in.size(); ++i) receives[i].tensor.copy_(in[i].tensor);
    });
  }

 private:
  static at::Tensor host_like(const at::Tensor& t) {
    return at::empty(t.sizes(), t.options().device(at::kCPU).requires_grad(false));
  }
  static Begun into(const at::Tensor& result, const at::Tensor& here, Begun begun) {
    return std::make_unique<Then>(std::move(begun), [result, here] { result.copy_(here); });
  }

  ProcessGroup& host_;
  const std::unique_ptr<ThroughHost> beside_;
};

std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& processes) {
  if (processes.size() == 1) return std::make_shared<Alone>();
  const std::string name = fmt::format("{}", fmt::join(processes, ","));
  return new_gloo_group(world(), name, processes, new_gloo_group(world(), name + " beside", processes));
}

// Never destroyed: at the program's end a group that waits for a lost process would be waited for.
ProcessGroup& host_group(const std::vector<int>& processes) {
  static auto* groups = new std::map<std::vector<int>, std::shared_ptr<ProcessGroup>>;
  auto& group = (*groups)[processes];
  if (!group) group = new_group(processes);
  return *group;
}

std::map<c10::DeviceType, MakeGroup>& engines() {
  static std::map<c10::DeviceType, MakeGroup> engines;
  return engines;
}

}  // namespace

bool use_engine(c10::DeviceType kind, MakeGroup make) { return engines().emplace(kind, make).second; }

ProcessGroup& process_group(const std::vector<int>& processes, c10::Device device) {
  ProcessGroup& host = host_group(processes);
  if (device.is_cpu() || host.size() == 1) return host;
  static std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, std::vector<int>>, ProcessGroup*> groups;
  ProcessGroup*& group = groups[{device.type(), device.index(), processes}];
  const auto engine = engines().find(device.type());
  if (!group) group = engine == engines().end() ? new ThroughHost(host) : &engine->second(processes, device);
  return *group;
}

std::vector<int> everyone() {
  std::vector<int> all(static_cast<size_t>(world().count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void make_groups(const MeshImpl* mesh) {
  if (mesh->processes == 1 || !engines().contains(mesh->device.type())) return;
  process_group(everyone(), mesh->device);
  const Mask crossing = mesh->crossing();
  for (Mask axes = crossing; axes; axes = (axes - 1) & crossing)
    process_group(processes_along(mesh, axes), mesh->device);
}

}  // namespace tessera::detail
