// Orders copies and kernels by events on three streams.
#include "sharding/kernels/host_stream.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <optional>
#include <utility>

namespace tessera::detail {

int64_t& host_buffer_bytes() {
  static int64_t bytes = int64_t{64} << 20;
  return bytes;
}

struct HostStream::Streams {
  explicit Streams(c10::Device device)
      : kind(device.type()),
        compute(kind.getStream(device)),
        in(kind.getStreamFromGlobalPool(device)),
        out(kind.getStreamFromGlobalPool(device)) {}

  // Makes `later` wait for what is queued on `first`.
  static void order(c10::Event& event, const c10::Stream& first, const c10::Stream& later) {
    event.record(first);
    event.block(later);
  }
  c10::Event event() const { return c10::Event(kind.type()); }

  c10::impl::VirtualGuardImpl kind;
  c10::Stream compute, in, out;
  c10::Event loaded = event(), computed = event();
  std::array<c10::Event, 2> stored{event(), event()};  // by buffer
};

// Earlier kernels may still use the memory of the buffers, and earlier copies the host memory.
HostStream::HostStream(c10::Device device, at::ScalarType dtype, int64_t elements) {
  for (at::Tensor& buffer : buffers_) buffer = at::empty({elements}, at::TensorOptions(dtype).device(device));
  if (device.is_meta()) return;
  streams_ = std::make_unique<Streams>(device);
  Streams::order(streams_->computed, streams_->compute, streams_->in);
}
HostStream::~HostStream() = default;

namespace {

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from, const c10::Stream* stream) {
  std::optional<c10::StreamGuard> on;
  if (stream) on.emplace(*stream);
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], /*non_blocking=*/true);
}

}  // namespace

void HostStream::update(const Lists& lists, const Lists& results, const std::function<void()>& compute) {
  const size_t b = blocks_++ % 2;
  Streams* s = streams_.get();
  const std::array<std::vector<at::Tensor>, 2> host{*lists[0], *lists[1]};
  int64_t used = 0;
  for (std::vector<at::Tensor>* list : lists)
    for (at::Tensor& t : *list) t = buffers_[b].narrow(0, std::exchange(used, used + aligned(t.numel())), t.numel());
  if (s) s->stored[b].block(s->in);
  for (size_t l : {0, 1}) copy_all(*lists[l], host[l], s ? &s->in : nullptr);
  if (s) Streams::order(s->loaded, s->in, s->compute);
  compute();
  if (s) Streams::order(s->computed, s->compute, s->out);
  for (size_t l : {0, 1}) copy_all(*results[l], *lists[l], s ? &s->out : nullptr);
  if (s) s->stored[b].record(s->out);
}

void HostStream::finish() {
  if (streams_)
    for (const c10::Event& stored : streams_->stored) stored.block(streams_->compute);
}

}  // namespace tessera::detail
