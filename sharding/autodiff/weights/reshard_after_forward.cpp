// Empties and fills storages in place, so that the tensors of the graph stay the same.
#include "sharding/autodiff/weights/reshard_after_forward.h"

#include "sharding/array/autograd.h"

namespace tessera::detail {
namespace {

// Every handle on these tensors or their memory counts: the graph's saved tensors are among them.
size_t holders_of(const Tensors& tensors) {
  size_t holders = 0;
  for (const at::Tensor& t : tensors) holders += t.use_count() + t.storage().use_count();
  return holders;
}

bool same_memory(const c10::Storage& a, const c10::Storage& b) {
  return a.unsafeGetStorageImpl() == b.unsafeGetStorageImpl();
}

}  // namespace

void ReshardAfterForward::begin(const Tensors& gathered, bool comes_back) {
  comes_back_ = comes_back;
  for (const at::Tensor& t : gathered) memory_.push_back(t.storage());
  holders_ = holders_of(gathered);
}

void ReshardAfterForward::settle(const Tensors& gathered, const Tensors& results) {
  if (!there_) return;
  for (const at::Tensor& result : results)
    for (const c10::Storage& memory : memory_)
      if (same_memory(result.storage(), memory)) return memory_.clear();
  if (holders_of(gathered) > holders_)
    before_backward(results, [borrowed = shared_from_this()] { borrowed->regather(); });
  release();
}

void ReshardAfterForward::release() {
  for (const c10::Storage& memory : memory_)
    memory.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, memory.device()));
  there_ = false;
}

void ReshardAfterForward::regather() {
  if (there_) return;
  const Tensors again = again_();
  for (size_t i = 0; i < again.size(); ++i) {
    c10::DataPtr bytes = again[i].storage().unsafeGetStorageImpl()->set_data_ptr({});
    if (bytes) memory_[i].unsafeGetStorageImpl()->set_data_ptr(std::move(bytes));
  }
  there_ = true;
  if (!comes_back_) memory_.clear();
}

}  // namespace tessera::detail
