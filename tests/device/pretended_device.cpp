// The LibTorch device "pretended": CPU kernels over memory that only these kernels can read.
//
// If it is preloaded into a program (LD_PRELOAD) and TESSERA_DEVICE=pretended, the program's meshes are on it. The
// device is as strict as a GPU: an operation on its tensors and on CPU tensors throws, except for a single number in a
// pointwise operation. Host code that dereferences one of its pointers crashes at once. Fresh memory is full of NaNs.
#include "tests/device/pretended_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/GroupedMMUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/device/pretended_memory.h"

namespace {

using tessera::testing::current_device;

constexpr c10::DeviceType kind = tessera::testing::pretended_kind;
constexpr c10::DispatchKey key = c10::DispatchKey::TESSERA_PRETENDED_KIND;

c10::Device device() { return tessera::testing::current_device(); }
tessera::testing::PretendedMemory& memory() { return tessera::testing::pretended_memory(); }

at::Tensor told_of(at::Tensor made);
void tell_of_copy(const at::Tensor& to, const at::Tensor& from);

void say_and_die(int signal, siginfo_t* info, void*) {
  constexpr char words[] = "\nthe host followed a pointer into the memory of the pretended device\n";
  if (memory().has(info->si_addr) && write(STDERR_FILENO, words, sizeof(words) - 1) < 0) _exit(1);
  std::signal(signal, SIG_DFL);
}

// ---- tensors

// Returns a CPU tensor that shares the memory of t.
at::Tensor on_cpu(const at::Tensor& t) {
  const c10::Storage& storage = t.storage();
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    c10::DataPtr(memory().real(storage.data()), c10::Device(c10::kCPU)), nullptr, /*resizable=*/false);
  at::Tensor alias =
      at::detail::make_tensor<c10::TensorImpl>(std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return alias;
}

bool is_here(const at::Tensor& t) { return t.defined() && t.device().type() == kind; }
at::Tensor readable(const at::Tensor& t) { return is_here(t) ? on_cpu(t) : t; }

at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return told_of(at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &memory(), c10::DispatchKeySet(key),
                                           dtype.value_or(at::kFloat), format));
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return told_of(at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
                                                   &memory(), c10::DispatchKeySet(key), dtype.value_or(at::kFloat)));
}

at::Tensor copied_here(const at::Tensor& t) {
  at::Tensor copy = at::empty_strided(t.sizes(), t.strides(), t.options().device(device()));
  on_cpu(copy).copy_(t);
  return copy;
}

// ---- streams

// Copies that do not block run late on streams other than the default: a queue runs only as far as the default stream
// or the host waits for it. Code that does not wait reads data that has not arrived.
struct Queue {
  std::vector<std::function<void()>> tasks = {};
  size_t done = 0;
  size_t seen = 0;  // kernels of the default stream for which the stream waits

  void run_until(size_t task) {
    while (done < task) std::exchange(tasks[done++], {})();
  }
};
std::map<c10::StreamId, Queue> queues;
thread_local c10::StreamId current_stream = 0;
std::atomic<size_t> kernels_run{0};

at::Tensor not_owning(const at::Tensor& t);

void queue_copy(const at::Tensor& to, const at::Tensor& from) {
  Queue& queue = queues[current_stream];
  TORCH_CHECK(!is_here(from) || queue.seen == kernels_run, "a copy from the device does not wait for its kernels");
  queue.tasks.emplace_back([to = not_owning(to), from = not_owning(from)] {
    const at::AutoDispatchBelowAutograd guard;
    readable(to).copy_(readable(from));
  });
}

struct Mark {  // an event: a number of tasks of a queue, or of kernels of the default stream
  c10::StreamId stream;
  size_t number;
};

void wait_for(const Mark& mark, c10::StreamId stream) {
  if (mark.stream == 0)
    queues[stream].seen = std::max(queues[stream].seen, mark.number);
  else if (stream == 0)
    queues[mark.stream].run_until(mark.number);
  else
    queues[stream].tasks.emplace_back([mark] { queues[mark.stream].run_until(mark.number); });
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const at::AutoDispatchBelowAutograd guard;
  if (non_blocking && current_stream != 0) return queue_copy(to, from), to;
  readable(to).copy_(readable(from));
  tell_of_copy(to, from);
  return to;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  at::Tensor result = to;
  return copy(result, from, false);
}

const at::Tensor& resize(const at::Tensor& t, c10::SymIntArrayRef symbolic, std::optional<at::MemoryFormat>) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(symbolic);
  const size_t bytes = (c10::multiply_integers(sizes) + t.storage_offset()) * t.itemsize();
  c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) {
    c10::DataPtr larger = memory().allocate(bytes);
    if (storage->nbytes()) memory().copy_data(larger.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(larger));
    storage->set_nbytes(bytes);
  }
  t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return t;
}

at::Tensor& set_storage(at::Tensor& t, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef sizes,
                        c10::SymIntArrayRef strides) {
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
                                                 offset.guard_int(__FILE__, __LINE__));
  return t;
}

at::Tensor view(const at::Tensor& t, c10::SymIntArrayRef sizes) {
  return at::native::view(t, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor as_strided(const at::Tensor& t, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      t, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset ? std::optional<int64_t>(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

at::Tensor reshape_alias(const at::Tensor& t, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(t, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

// ---- observers

std::mutex watched;
tessera::testing::DeviceWatcher* watcher = nullptr;

// True while a kernel runs: operations inside it are part of that kernel and are not reported.
thread_local bool within_a_kernel = false;

template <class Again>
void tell(const std::string& name, Again again) {
  const std::lock_guard lock(watched);
  if (watcher && !within_a_kernel) watcher->kernel(name, again);
}

at::Tensor told_of(at::Tensor made) {
  const std::lock_guard lock(watched);
  if (watcher && !within_a_kernel) watcher->allocation(made);
  return made;
}

// Returns a tensor that shares the memory of t without owning it.
at::Tensor not_owning(const at::Tensor& t) {
  if (!is_here(t)) return t;
  const c10::Storage& storage = t.storage();
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    c10::DataPtr(const_cast<void*>(storage.data()), t.device()), nullptr, /*resizable=*/false);
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(std::move(same), c10::DispatchKeySet(key), t.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return alias;
}

torch::jit::Stack not_owning(const torch::jit::Stack& values) {
  torch::jit::Stack result;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      result.emplace_back(not_owning(value.toTensor()));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(not_owning(t));
      result.emplace_back(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
        list.push_back(t ? std::optional(not_owning(*t)) : t);
      result.emplace_back(list);
    } else {
      result.push_back(value);
    }
  }
  return result;
}

void tell_of_copy(const at::Tensor& to, const at::Tensor& from) {
  const bool here = is_here(to) && is_here(from);
  tell(here ? "aten::copy_" : "aten::copy_ between the memories", [to = not_owning(to), from = not_owning(from)] {
    const at::AutoDispatchBelowAutograd guard;
    TORCH_CHECK(is_here(to) && is_here(from), "a copy between the memories is repeated");
    readable(to).copy_(readable(from));
  });
}

// ---- operations

// One call of a LibTorch operation, whose arguments are the last values of the stack.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), stack_(stack), first_(stack.size() - op.schema().arguments().size()) {}

  void run() {
    const at::AutoDispatchBelowAutograd guard;
    const torch::jit::Stack given(stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end());
    torch::jit::Stack values;
    for (size_t i = 0; i < given.size(); ++i) values.push_back(brought_over(given[i], i));
    const torch::jit::Stack arguments = values;
    op_.callBoxed(values);
    ++kernels_run;
    stack_.resize(first_);
    for (size_t i = 0; i < values.size(); ++i) stack_.push_back(result(values[i], i, given, arguments));
    const torch::jit::Stack results(stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end());
    tell(op_.schema().name(),
         [op = op_, given = not_owning(given), results = not_owning(results)] { repeat(op, given, results); });
  }

 private:
  // Runs the call again on the same tensors, and writes into the same results.
  static void repeat(const c10::OperatorHandle& op, const torch::jit::Stack& given, const torch::jit::Stack& results) {
    const at::AutoDispatchBelowAutograd guard;
    torch::jit::Stack stack = given;
    within_a_kernel = true;
    Call(op, stack).run();
    within_a_kernel = false;
    const auto put = [](const at::Tensor& to, const at::Tensor& from) {
      if (is_here(to) && to.const_data_ptr() != from.const_data_ptr() && to.numel()) readable(to).copy_(readable(from));
    };
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].isTensor()) put(results[i].toTensor(), stack[i].toTensor());
      if (!results[i].isTensorList()) continue;
      const auto to = results[i].toTensorVector(), from = stack[i].toTensorVector();
      for (size_t k = 0; k < to.size(); ++k) put(to[k], from[k]);
    }
  }

  const c10::AliasInfo* written(const c10::Argument& argument) const {
    const c10::AliasInfo* alias = argument.alias_info();
    return alias && alias->isWrite() ? alias : nullptr;
  }

  at::Tensor brought_over(const at::Tensor& t, size_t argument) const {
    if (!t.defined()) return t;
    if (!is_here(t)) {
      const bool number =
          t.dim() == 0 && (op_.hasTag(at::Tag::pointwise) || t.unsafeGetTensorImpl()->is_wrapped_number());
      TORCH_CHECK(number, "Expected all tensors to be on the same device, but ", op_.operator_name(),
                  " got one on the CPU together with tensors on the pretended device");
      return t;
    }
    // The operation resizes an empty `out`, so it gets an empty CPU tensor instead of a copy.
    if (t.numel() == 0 && written(op_.schema().arguments()[argument]))
      return at::empty(t.sizes(), t.options().device(at::kCPU));
    return on_cpu(t);
  }

  c10::IValue brought_over(const c10::IValue& value, size_t argument) const {
    if (value.isDevice()) return c10::Device(c10::kCPU);
    if (value.isTensor()) return brought_over(value.toTensor(), argument);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(brought_over(t, argument));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
        list.push_back(t ? std::optional(brought_over(*t, argument)) : t);
      return list;
    }
    return value;
  }

  // For an argument that was written to, the result is that argument. Other results are copied to the device.
  c10::IValue result(const c10::IValue& value, size_t i, const torch::jit::Stack& given,
                     const torch::jit::Stack& arguments) const {
    const c10::AliasInfo* alias = written(op_.schema().returns()[i]);
    for (size_t a = 0; alias && a < given.size(); ++a) {
      const c10::AliasInfo* other = written(op_.schema().arguments()[a]);
      if (!other || !(*other == *alias)) continue;
      if (given[a].isTensor() && is_here(given[a].toTensor())) fill_empty(given[a].toTensor(), arguments[a].toTensor());
      return given[a];
    }
    if (value.isTensor() && value.toTensor().defined()) return copied_here(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(copied_here(t));
    return list;
  }

  static void fill_empty(const at::Tensor& out, const at::Tensor& made) {
    if (out.numel() != 0) {
      TORCH_CHECK(out.sizes() == made.sizes(), "an `out` of another size than its result");
      return;
    }
    out.resize_(made.sizes());
    if (made.numel()) on_cpu(out).copy_(made);
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  size_t first_;
};

void on_pretended_device(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, *stack).run(); }

// Computes attention from simpler operations: the device has no fused kernel.
int64_t attention_in_parts(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                           double, bool, std::optional<double>, bool) {
  return 0;
}

TORCH_LIBRARY_IMPL(_, TESSERA_PRETENDED_KIND, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_pretended_device>());
}

TORCH_LIBRARY_IMPL(aten, TESSERA_PRETENDED_KIND, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy);
  library.impl("_copy_from", &copy_from);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("view", &view);
  library.impl("as_strided", &as_strided);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("unfold", &at::native::unfold);
  for (const char* name :
       {"convolution", "convolution_backward"})  // otherwise LibTorch would choose one of the device's own kernels
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_pretended_device>());
  for (const char* name :  // one kernel each, as on GPUs
       {"_foreach_mul.Tensor", "_foreach_mul.Scalar", "_foreach_mul_.Tensor", "_foreach_mul_.Scalar",
        "_foreach_norm.Scalar", "_foreach_copy_", "_foreach_add_.List", "_foreach_add_.Scalar", "_foreach_zero_",
        "_foreach_div_.Tensor"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_pretended_device>());
  library.impl("_fused_sdp_choice", &attention_in_parts);
}

// ---- grouped products

// Multiplies tensors of the CPU by group: rows of a (2-D) and matrices of b (3-D), or columns of a and rows of b (both
// 2-D). Checks the groups as CUDA's kernel does on the device.
void multiply_groups(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends, at::Tensor out) {
  const bool sums = b.dim() == 2;  // over the rows of a group
  out.fill_(std::numeric_limits<float>::quiet_NaN());
  int64_t start = 0;
  for (int64_t g = 0; g < ends.size(0); ++g) {
    const int64_t end = static_cast<const int32_t*>(ends.const_data_ptr())[g], count = end - start;
    TORCH_CHECK(count >= 0, "expected gemm dimension to be greater or equal 0");
    TORCH_CHECK(end <= a.size(sums ? 1 : 0) && (!sums || end <= b.size(0)),
                "expected offset to be less than tensor size");
    const bool is_last = g == ends.size(0) - 1;
    const bool needs_multiple = sums ? a.stride(-1) == 1 || b.stride(-1) != 1 : a.stride(-1) != 1;
    TORCH_CHECK(is_last || !needs_multiple || count % 8 == 0, "expected a multiple of 16 bytes");
    if (count > 0 && sums)
      out.select(0, g).copy_(at::mm(a.narrow(1, start, count), b.narrow(0, start, count)));
    else if (count > 0)
      out.narrow(0, start, count).copy_(at::mm(a.narrow(0, start, count), b.select(0, g)));
    start = end;
  }
}

at::Tensor grouped_products(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& ends,
                            const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> dtype) {
  at::native::_grouped_mm_validate_inputs(a, b, ends, bias, dtype);
  for (const at::Tensor* t : {&a, &b, &*ends})
    TORCH_CHECK(is_here(*t) && t->numel(), "expected tensors with elements on the pretended device");
  TORCH_CHECK(a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16, "the fast path is for bfloat16");
  TORCH_CHECK(a.dim() == 2 && ends->is_contiguous() && ends->size(0) < 1024, "Can't process more than 1024 groups");
  at::Tensor out = at::native::create_grouped_gemm_output_tensor(a, b, ends, a.scalar_type());
  const auto multiply = [a = not_owning(a), b = not_owning(b), ends = not_owning(*ends), out = not_owning(out)] {
    const at::AutoDispatchBelowAutograd guard;
    multiply_groups(on_cpu(a), on_cpu(b), on_cpu(ends), on_cpu(out));
  };
  multiply();
  tell("aten::_grouped_mm", multiply);
  return out;
}

// ---- the device

struct Guard : c10::impl::NoOpDeviceGuardImpl<kind> {
  c10::Device exchangeDevice(c10::Device next) const override { return std::exchange(current_device(), next); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device next) const override { current_device() = next; }
  void uncheckedSetDevice(c10::Device next) const noexcept override { current_device() = next; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(tessera::testing::device_count());
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    for (auto& [stream, queue] : queues) queue.run_until(queue.tasks.size());
  }
  c10::Stream getStream(c10::Device d) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, d, current_stream);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override {
    static std::atomic<c10::StreamId> streams{0};
    return c10::Stream(c10::Stream::UNSAFE, d, ++streams % 4 + 1);
  }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, s.device(), std::exchange(current_stream, s.id()));
  }
  void record(void** event, const c10::Stream& s, c10::DeviceIndex, c10::EventFlag) const override {
    destroyEvent(*event, 0);
    *event = new Mark{s.id(), s.id() == 0 ? kernels_run.load() : queues[s.id()].tasks.size()};
  }
  void block(void* event, const c10::Stream& s) const override { wait_for(*static_cast<Mark*>(event), s.id()); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Mark*>(event); }
};

// CPU memory whose addresses are remembered.
struct PinnedMemory : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(n);
    all.insert(memory.get());
    return memory;
  }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
  std::set<const void*> all;
};
PinnedMemory& pinned_memory() {
  static auto* memory = new PinnedMemory;
  return *memory;
}

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  bool isPinnedPtr(const void* memory) const override { return pinned_memory().all.contains(memory); }
};

const bool registered = [] {
  if constexpr (kind == c10::kPrivateUse1) {
    c10::register_privateuse1_backend(tessera::testing::pretended_device());
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  }
  c10::SetAllocator(kind, &memory());
  c10::impl::registerDeviceGuard(kind, new Guard);
  struct sigaction action {};
  action.sa_sigaction = &say_and_die;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGSEGV, &action, nullptr) == 0;
}();

}  // namespace

const char* tessera::testing::pretended_device() { return kind == c10::kCUDA ? "cuda" : "pretended"; }

std::shared_ptr<void> tessera::testing::register_grouped_products() {
  auto library = std::make_shared<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  library->impl("_grouped_mm", &grouped_products);
  return library;
}

size_t tessera::testing::memory_used() { return memory().used(); }

void* tessera::testing::kernel_address(const void* shown) { return memory().real(shown); }

void tessera::testing::watch_device(DeviceWatcher* next) {
  const std::lock_guard lock(watched);
  watcher = next;
}

tessera::testing::RecordedMemory::RecordedMemory() {
  static int pools = 0;
  pool_ = ++pools;
}
tessera::testing::RecordedMemory::~RecordedMemory() { memory().dissolve(pool_); }
void tessera::testing::RecordedMemory::begin() {
  before_ = memory().contents();
  memory().take_for(pool_);
}
void tessera::testing::RecordedMemory::end() {
  memory().take_for(0);
  memory().restore(before_);
}
