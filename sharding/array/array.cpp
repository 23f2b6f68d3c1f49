// Array handles, host values, and the creation of arrays.
#include "sharding/array/array.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/array/autograd.h"
#include "sharding/array/consistency.h"
#include "sharding/array/host_sync.h"
#include "sharding/array/late_checks.h"
#include "sharding/array/padding.h"
#include "sharding/array/recipe.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/events/observer.h"
#include "sharding/kernels/tensors.h"
#include "sharding/placement/element_value.h"

namespace tessera {
namespace detail {

namespace {

void move_held_arrays(Details& details, std::vector<ArrayPtr>& to) {
  if (details.source) to.push_back(std::move(details.source));
  for (Conversion& made : std::exchange(details.conversions, {})) to.push_back(std::move(made.array));
}

}  // namespace

ArrayImpl::ArrayImpl() = default;
ArrayImpl::~ArrayImpl() {
  // Destroys long chains of scalings or conversions in a loop: recursion would exhaust the stack.
  if (!details) return;
  std::vector<ArrayPtr> held;
  move_held_arrays(*details, held);
  while (!held.empty()) {
    const ArrayPtr last = std::move(held.back());
    held.pop_back();
    if (last.use_count() == 1 && last->details) move_held_arrays(*last->details, held);
  }
}

Details& ArrayImpl::detail() { return details.make(); }

std::mutex& first_uses() {
  static std::mutex mutex;
  return mutex;
}

ArrayPtr make_array(const Type* type, AxisSet slots, Tensors local) {
  auto impl = std::make_shared<ArrayImpl>();
  impl->type = type;
  impl->slots = slots;
  impl->local = std::move(local);
  return impl;
}

ArrayPtr make_array(const Type* type, Tensors local) { return make_array(type, type->slots, std::move(local)); }

void check_present(const Array& x, const char* verb) {
  if (x.is_absent())
    fail(ErrorKind::missing_array, verb,
         "the array is absent: it was never set, was moved away, or a filter took it out of its tree. Set it, or "
         "combine the tree.");
}

void set_pending(ArrayImpl& a, std::function<Tensors()> arrival) {
  a.detail().arrival = std::move(arrival);
  a.state = ArrayState::pending;
}

namespace {

// Stores the tensors, and then the state, because other threads read the state first.
void make_ready(ArrayImpl& a, Tensors local) {
  a.local = std::move(local);
  a.state = ArrayState::ready;
}

void resolve(ArrayImpl& a) {
  Tensors local = a.details->arrival();  // if it throws, `arrival` remains and throws again
  std::function<Tensors()> arrival;      // destroyed after the lock is released
  const std::lock_guard lock(first_uses());
  make_ready(a, std::move(local));
  arrival.swap(a.details->arrival);
}

}  // namespace

ArrayImpl& materialized_now(const Array& x, const char* verb) {
  check_present(x, verb);
  ArrayImpl& a = *x.impl();
  if (a.state == ArrayState::lazy) {
    const std::lock_guard lock(first_uses());
    if (a.state == ArrayState::lazy)
      make_ready(a, {generate(*a.details->recipe, a.type->dtype, a.type->shape, whole_block(a.type->shape))});
  } else if (a.state == ArrayState::pending) {
    static std::recursive_mutex arrivals;  // recursive: one transfer may wait for another
    const std::lock_guard lock(arrivals);
    if (a.state == ArrayState::pending) resolve(a);
  }
  if (checks) check_array(a, verb);
  return a;
}

at::Tensor in_memory_of(const MeshImpl* mesh, const at::Tensor& t) {
  const c10::Device device = mesh ? mesh->device : c10::Device(c10::kCPU);
  if (t.device() == device || t.is_meta() || device.is_meta()) return t;
  if (!device.is_cpu()) return moved_to(t, device);
  const ActivityScope waiting(Activity::device);  // for the computation of these values
  return read_back(t);
}

c10::Device memory_of(const MeshImpl* mesh) { return mesh && !mesh->device.is_meta() ? mesh->device : c10::kCPU; }

void bring_to_memory_of(const MeshImpl* mesh, Tensors& tensors) {
  const c10::Device device = mesh ? mesh->device : c10::Device(c10::kCPU);
  for (at::Tensor& t : tensors)
    if (t.device() != device) t = in_memory_of(mesh, t);
}

at::Tensor cut(const at::Tensor& whole, const IndexRanges& block) {
  at::Tensor t = whole;
  for (size_t d = 0; d < block.size(); ++d) t = t.narrow(d, block[d].first, block[d].second - block[d].first);
  return t;
}

void copy_facts(const ArrayImpl& from, ArrayImpl& to) {
  to.mesh_rules = from.mesh_rules;
  if (!from.details) return;
  Details& details = to.detail();
  details.path = from.details->path;
  if (from.details->placed) details.placed = std::make_unique<NamedSharding>(*from.details->placed);
}

bool is_tape_parameter(const ArrayImpl& a) { return a.details && a.details->tape && a.details->tape->open; }

bool is_differentiated(const ArrayImpl& a) {
  return is_tape_parameter(a) || (a.is_ready() && a.local[0].requires_grad());
}

bool wants_gradient(const ArrayImpl& a) { return is_differentiated(a) && at::GradMode::is_enabled(); }

void Details::come_from(const ArrayPtr& x) {
  source = x;
  origin = x->details && x->details->again ? x->details->origin : x;
}

const ArrayImpl& origin_of(const ArrayImpl& a) {
  return a.details && a.details->again ? *a.details->origin : a;
}

namespace {

// Returns the complete value from this process's blocks; the terms of a partial sum are added.
at::Tensor assemble(const ArrayImpl& a) {
  at::AutoGradMode off(false);
  const Type* type = a.type;
  if (type->varying)
    fail(ErrorKind::varying_axis, "to_host",
         "{} has a different value on each device. Return it from shard_map, or use psum or all_gather.",
         type->to_string());
  if (type->mesh && type->mesh->elsewhere)
    fail(ErrorKind::invalid_argument, "to_host",
         "{} is on the mesh ({}), whose devices are those of {}. Reading does not communicate: {}.", type->to_string(),
         Mesh(type->mesh).to_string(), type->mesh->words_of_members(),
         whole_of(type->mesh)->elsewhere ? "read it there" : "gather it first, on all processes");
  if (type->mesh && type->mesh->abstract)
    fail(ErrorKind::invalid_argument, "to_host",
         "{} is on the abstract mesh ({}), which holds no values. Run the program on a mesh of devices.",
         type->to_string(), Mesh(type->mesh).to_string());
  if (a.local[0].is_meta())
    fail(ErrorKind::invalid_argument, "to_host",
         "{} comes from an abstract mesh, which holds no values. Run the program on a mesh of devices.",
         type->to_string());
  if (!type->mesh || a.slots == 0 || type->own() == 0) return in_memory_of(nullptr, a.local[0].detach());
  if (const AxisSet elsewhere = type->own() & type->mesh->crossing())
    fail(ErrorKind::invalid_argument, "to_host",
         "{} has shards on other processes, along \"{}\". Reading does not communicate: gather it first, on all "
         "processes.",
         type->to_string(), type->mesh->names(elsewhere));
  at::Tensor whole = a.local[0].new_full(type->shape, no_term);
  const MeshImpl* mesh = type->mesh;
  for (int b = 0; b < mesh->slots(type->own()); ++b) {
    Coordinates coordinates(mesh);
    unravel(mesh, type->own(), b, coordinates);
    const IndexRanges block = block_of(type, coordinates);
    at::Tensor place = cut(whole, block);
    const at::Tensor part = without_padding(a.local[ravel(mesh, a.slots, coordinates)], block);
    type->unreduced ? place.add_(part) : place.copy_(part);
  }
  return in_memory_of(nullptr, whole);
}

const ArrayImpl& checked(const Array& x, const char* verb) {
  check_present(x, verb);
  return *x.impl();
}

}  // namespace
}  // namespace detail

using namespace detail;

Array::Array(const Array& x) = default;
Array& Array::operator=(const Array& x) & = default;
Array& Array::operator=(Array&& x) & noexcept = default;
Array::~Array() = default;

bool Array::is_lazy() const { return state_of(*this) == ArrayState::lazy; }
bool Array::is_committed() const { return impl_ && impl_->type->mesh; }
const Shape& Array::shape() const { return checked(*this, "shape").type->shape; }
int Array::ndim() const { return static_cast<int>(shape().size()); }
int64_t Array::size() const { return checked(*this, "size").type->elements; }
DType Array::dtype() const { return checked(*this, "dtype").type->dtype; }

int64_t Array::shape(int dim) const {
  const int n = ndim();
  if (dim < -n || dim >= n)
    fail(ErrorKind::invalid_argument, "shape",
         n ? fmt::format("dim {} of {}, expected {} to {}.", dim, type_string(), -n, n - 1)
           : fmt::format("dim {} of {}, which has no dims.", dim, type_string()));
  return shape()[dim < 0 ? dim + n : dim];
}

NamedSharding Array::sharding() const {
  const ArrayImpl& a = checked(*this, "sharding");
  if (a.details && a.details->placed) return *a.details->placed;
  if (!a.type->mesh)
    fail(ErrorKind::device_mismatch, "sharding", "{} is not placed on a mesh. Place it with device_put.",
         type_string());
  return sharding_of(a.type);
}

std::string Array::type_string() const { return impl_ ? impl_->type->to_string() : "absent"; }

const std::string& Array::path() const {
  static const std::string empty;
  return impl_ && impl_->details && impl_->details->path ? *impl_->details->path : empty;
}

bool detail::lies_in_slots(const Array& x) {
  const MeshImpl* mesh = x.is_committed() ? x.impl()->type->mesh : nullptr;
  return mesh && mesh->shares_the_cpu();
}
bool Array::is_fully_replicated() const { return !is_committed() || sharding().is_fully_replicated(); }
int64_t Array::nbytes() const { return size() * item_size(dtype()); }
int64_t Array::shard_bytes() const { return checked(*this, "shard_bytes").type->bytes; }

bool Array::is_fully_addressable() const {
  const MeshImpl* mesh = checked(*this, "is_fully_addressable").type->mesh;
  return !mesh || (mesh->processes == 1 && !mesh->elsewhere);
}

at::Tensor to_tensor(const Array& x) {
  const AllowHostSync reading;
  return assemble(materialized(x, "to_tensor"));
}

namespace {

// Returns whether a host value of this element type is read as T.
template <class T>
bool reads_as(DType dtype) {
  if (dtype == DType::bfloat16 || dtype == DType::float16) return std::is_same_v<T, float>;
  return dtype == dtype_for<T>();
}

// Returns the type's name; "uint64" for both size_t and unsigned long long.
template <class T>
std::string name_of_number() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  const char* kind = std::is_floating_point_v<T> ? "float" : std::is_signed_v<T> ? "int" : "uint";
  return fmt::format("{}{}", kind, 8 * sizeof(T));
}

// Returns whether a T can represent this value; bool represents every number.
template <class T>
bool holds(int64_t value) {
  const T number = static_cast<T>(value);
  if constexpr (std::is_same_v<T, bool>)
    return true;
  else if constexpr (std::is_floating_point_v<T>)
    return number < static_cast<T>(0x1p63) && static_cast<int64_t>(number) == value;
  else
    return static_cast<int64_t>(number) == value && (number < T{}) == (value < 0);
}

}  // namespace

template <class T>
std::vector<T> Array::to_host() const {
  if (!reads_as<T>(dtype()))
    fail(ErrorKind::dtype_mismatch, "to_host", "{} read as {}. Read it as its own type.", type_string(),
         name_of(dtype_for<T>()));
  const at::Tensor whole = to_tensor(*this).to(scalar_type(dtype_for<T>())).contiguous();
  const T* begin = detail::const_elements<T>(whole);
  return std::vector<T>(begin, begin + whole.numel());
}

template <class T>
T Array::item() const {
  check_present(*this, "item");
  if (size() != 1) fail(ErrorKind::shape_mismatch, "item", "{} has {} elements, expected one.", type_string(), size());
  if (is_floating(dtype()) && !std::is_floating_point_v<T>)
    fail(ErrorKind::dtype_mismatch, "item",
         "{} read as {}, which has no fractions. Read item<float>(), or convert it first: astype(x, int32) drops a "
         "fraction, astype(round(x), int32) rounds it.",
         type_string(), name_of_number<T>());
  const at::Tensor value = to_tensor(*this);
  if (value.is_floating_point()) return static_cast<T>(value.item<double>());
  const int64_t whole = value.item<int64_t>();
  if (!holds<T>(whole))
    fail(ErrorKind::invalid_argument, "item",
         "the number {} given for {}, which cannot hold it. Read item<int64_t>(){}.", whole, name_of_number<T>(),
         std::is_floating_point_v<T> ? ", or round it first with astype" : "");
  return static_cast<T>(whole);
}

Array array_from_bytes(std::span<const std::byte> bytes, DType dtype, Shape shape) {
  const Type* type = intern({.dtype = dtype, .shape = std::move(shape)}, "array");
  const auto items = static_cast<int64_t>(bytes.size()) / item_size(dtype);
  if (type->bytes != static_cast<int64_t>(bytes.size()))
    fail(ErrorKind::shape_mismatch, "array", "{} values for the shape {}, expected {}.", items, to_string(type->shape),
         type->elements);
  at::Tensor tensor = at::empty(type->shape, scalar_type(dtype));
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return Array(make_array(type, 0, {tensor}));
}

#define TESSERA_NUMBER(T) template T Array::item<T>() const;
#define TESSERA_ELEMENT(T) \
  TESSERA_NUMBER(T)        \
  template std::vector<T> Array::to_host<T>() const;
TESSERA_ELEMENT(float) TESSERA_ELEMENT(double) TESSERA_ELEMENT(bool)
TESSERA_ELEMENT(int8_t) TESSERA_ELEMENT(int16_t) TESSERA_ELEMENT(int32_t) TESSERA_ELEMENT(int64_t)
TESSERA_ELEMENT(uint8_t) TESSERA_NUMBER(uint16_t) TESSERA_NUMBER(uint32_t) TESSERA_NUMBER(uint64_t)
TESSERA_NUMBER(char) TESSERA_NUMBER(long long) TESSERA_NUMBER(unsigned long long) TESSERA_NUMBER(long double)
#undef TESSERA_ELEMENT
#undef TESSERA_NUMBER

namespace {

Array constant(const char* verb, Shape shape, double value, DType dtype) {
  check_size(verb, dtype, shape);
  const double scale = fill_value(verb, value, dtype);
  return make_recipe({.drawn = dtype, .scale = scale}, std::move(shape), dtype);
}

}  // namespace

Array full(Shape shape, double value, DType dtype) { return constant("full", std::move(shape), value, dtype); }
Array zeros(Shape shape, DType dtype) { return constant("zeros", std::move(shape), 0, dtype); }
Array ones(Shape shape, DType dtype) { return constant("ones", std::move(shape), 1, dtype); }

}  // namespace tessera
