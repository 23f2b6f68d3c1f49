// Groups chosen by where the tensors lie, and the one that copies through the host's memory.
#include "sharding/device_groups.h"

#include <ATen/ops/empty.h>

#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

namespace tessera::detail {
namespace {

std::map<c10::DeviceType, MakeGroup>& engines() {
  static std::map<c10::DeviceType, MakeGroup> engines;
  return engines;
}

// Any accelerator, by two copies more.
class ThroughHost : public ProcessGroup {
 public:
  explicit ThroughHost(ProcessGroup& host) : host_(host) {}
  int size() const override { return host_.size(); }
  int index() const override { return host_.index(); }

  void all_reduce(at::Tensor& x, Fold how, const Waiting& waiting) override {
    at::Tensor here = x.cpu();
    host_.all_reduce(here, how, waiting);
    x.copy_(here);
  }
  std::unique_ptr<Begun> begin_all_reduce(at::Tensor x, Fold how, const Waiting& waiting) override {
    struct Copied : Begun {
      at::Tensor x, here;
      std::unique_ptr<Begun> begun;
      void finish() override {
        begun->finish();
        x.copy_(here);
      }
    };
    auto copied = std::make_unique<Copied>();
    copied->x = x;
    copied->here = x.cpu();
    copied->begun = host_.begin_all_reduce(copied->here, how, waiting);
    return copied;
  }
  void all_gather(const at::Tensor& mine, at::Tensor& all, const Waiting& waiting) override {
    into(all, [&](at::Tensor& here) { host_.all_gather(mine.cpu(), here, waiting); });
  }
  void reduce_scatter(const at::Tensor& parts, at::Tensor& mine, const Waiting& waiting) override {
    into(mine, [&](at::Tensor& here) { host_.reduce_scatter(parts.cpu(), here, waiting); });
  }
  void all_to_all(const at::Tensor& parts, at::Tensor& received, const Waiting& waiting) override {
    into(received, [&](at::Tensor& here) { host_.all_to_all(parts.cpu(), here, waiting); });
  }
  void exchange(const std::vector<Message>& sends, std::vector<Message>& receives, const Waiting& waiting) override {
    std::vector<Message> out, in;
    for (const Message& message : sends) out.push_back({message.peer, message.tensor.cpu()});
    for (const Message& message : receives) in.push_back({message.peer, host_like(message.tensor)});
    host_.exchange(out, in, waiting);
    for (size_t i = 0; i < in.size(); ++i) receives[i].tensor.copy_(in[i].tensor);
  }

 private:
  static at::Tensor host_like(const at::Tensor& t) {
    return at::empty(t.sizes(), t.options().device(at::kCPU).requires_grad(false));
  }
  template <class Verb>
  static void into(at::Tensor& result, Verb verb) {
    at::Tensor here = host_like(result);
    verb(here);
    result.copy_(here);
  }

  ProcessGroup& host_;
};

}  // namespace

bool use_engine(c10::DeviceType kind, MakeGroup make) { return engines().emplace(kind, make).second; }

ProcessGroup& process_group(const std::vector<int>& processes, c10::Device device) {
  ProcessGroup& host = process_group(processes);
  if (device.is_cpu() || host.size() == 1) return host;
  static std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, std::vector<int>>, ProcessGroup*> groups;
  ProcessGroup*& group = groups[{device.type(), device.index(), processes}];
  const auto engine = engines().find(device.type());
  if (!group) group = engine == engines().end() ? new ThroughHost(host) : &engine->second(processes, device);
  return *group;
}

void make_groups(const MeshImpl* mesh) {
  if (mesh->processes == 1 || !engines().contains(mesh->device.type())) return;
  std::vector<int> everyone(static_cast<size_t>(mesh->processes));
  std::iota(everyone.begin(), everyone.end(), 0);
  process_group(everyone, mesh->device);
  const Mask crossing = mesh->crossing();
  for (Mask axes = crossing; axes; axes = (axes - 1) & crossing)
    process_group(processes_along(mesh, axes), mesh->device);
}

}  // namespace tessera::detail
