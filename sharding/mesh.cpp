// Interned meshes and the arithmetic of their coordinates.
#include "sharding/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>

#include "sharding/error.h"
#include "sharding/type.h"

namespace tessera {
namespace detail {

int MeshImpl::count(Mask set) const {
  int n = 1;
  for (size_t a = 0; a < axes.size(); ++a)
    if (set >> a & 1) n *= static_cast<int>(axes[a].size);
  return n;
}

int MeshImpl::slots(Mask set) const {
  int n = 1;
  for (size_t a = 0; a < axes.size(); ++a)
    if (set >> a & 1) n *= extent[a];
  return n;
}

Mask MeshImpl::crossing() const {
  Mask set = 0;
  for (size_t a = 0; a < axes.size(); ++a)
    if (extent[a] < axes[a].size) set |= Mask{1} << a;
  return set;
}

int MeshImpl::process_of(int place) const {
  return processes == 1 ? process : devices[place] / (static_cast<int>(devices.size()) / processes);
}

int MeshImpl::find(std::string_view name) const {
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a].name == name) return static_cast<int>(a);
  return -1;
}

std::string MeshImpl::names(Mask set) const {
  std::vector<std::string_view> found;
  for (size_t a = 0; a < axes.size(); ++a)
    if (set >> a & 1) found.push_back(axes[a].name);
  return fmt::format("{}", fmt::join(found, ","));
}

Coordinates::Coordinates(const MeshImpl* mesh) {
  if (mesh) std::copy(mesh->first.begin(), mesh->first.end(), along);
}

void unravel(const MeshImpl* mesh, Mask set, int index, int* coordinates) {
  for (int a = static_cast<int>(mesh->axes.size()) - 1; a >= 0; --a) {
    if (!(set >> a & 1)) continue;
    coordinates[a] = mesh->first[a] + index % mesh->extent[a];
    index /= mesh->extent[a];
  }
}

int ravel(const MeshImpl* mesh, Mask set, const int* coordinates) {
  int index = 0;
  for (size_t a = 0; a < mesh->axes.size(); ++a)
    if (set >> a & 1) index = index * mesh->extent[a] + coordinates[a] - mesh->first[a];
  return index;
}

int project(const MeshImpl* mesh, Mask from, int index, Mask to) {
  if (!mesh) return 0;
  Coordinates coordinates(mesh);
  unravel(mesh, from, index, coordinates);
  return ravel(mesh, to, coordinates);
}

void unravel_place(const MeshImpl* mesh, Mask set, int index, int* coordinates) {
  for (int a = static_cast<int>(mesh->axes.size()) - 1; a >= 0; --a) {
    if (!(set >> a & 1)) continue;
    const int n = static_cast<int>(mesh->axes[a].size);
    coordinates[a] = index % n;
    index /= n;
  }
}

int ravel_place(const MeshImpl* mesh, Mask set, const int* coordinates) {
  int index = 0;
  for (size_t a = 0; a < mesh->axes.size(); ++a)
    if (set >> a & 1) index = index * static_cast<int>(mesh->axes[a].size) + coordinates[a];
  return index;
}

}  // namespace detail

namespace {

const detail::MeshImpl& checked(const detail::MeshImpl* mesh) {
  if (!mesh) fail(ErrorKind::bad_argument, "Mesh", "this is no mesh. Make one with make_mesh.");
  return *mesh;
}

}  // namespace

const std::vector<MeshAxis>& Mesh::axes() const { return checked(impl_).axes; }
const std::vector<int>& Mesh::devices() const { return checked(impl_).devices; }
int64_t Mesh::size() const { return static_cast<int64_t>(devices().size()); }
bool Mesh::has_axis(std::string_view axis) const { return checked(impl_).find(axis) >= 0; }
bool Mesh::private_replicas() const { return checked(impl_).private_replicas; }
bool Mesh::is_abstract() const { return checked(impl_).abstract; }
int Mesh::process_count() const { return checked(impl_).processes; }
int Mesh::process_index() const { return checked(impl_).process; }

std::vector<int> Mesh::local_devices() const {
  std::vector<int> local;
  for (int place = 0; place < size(); ++place)
    if (impl_->process_of(place) == impl_->process) local.push_back(impl_->devices[place]);
  return local;
}

int64_t Mesh::size(std::string_view axis) const {
  const int a = checked(impl_).find(axis);
  if (a < 0)
    fail(ErrorKind::unknown_axis, "Mesh",
         fmt::format("mesh axis \"{}\" is not in the mesh ({}). Use one of its axes.", axis, to_string()));
  return impl_->axes[a].size;
}

std::string Mesh::to_string() const {
  if (!impl_) return "no mesh";
  std::vector<std::string> parts;
  for (const MeshAxis& axis : impl_->axes) parts.push_back(fmt::format("{}={}", axis.name, axis.size));
  return fmt::format("{}", fmt::join(parts, ", "));
}

namespace {

constexpr int64_t most_devices = 1 << 22;

int64_t checked_size(const std::vector<MeshAxis>& axes) {
  if (axes.size() > detail::max_axes)
    fail(ErrorKind::bad_argument, "make_mesh",
         fmt::format("{} axes given, at most {} are possible.", axes.size(), detail::max_axes));
  int64_t n = 1;
  std::set<std::string_view> seen;
  for (const MeshAxis& axis : axes) {
    if (axis.name.empty()) fail(ErrorKind::bad_argument, "make_mesh", "a mesh axis has no name. Name every axis.");
    if (axis.name.find(',') != std::string::npos)
      fail(ErrorKind::bad_argument, "make_mesh",
           fmt::format("mesh axis \"{}\" has a comma, which stands between axes. Choose another name.", axis.name));
    if (!seen.insert(axis.name).second)
      fail(ErrorKind::duplicate_axis, "make_mesh",
           fmt::format("mesh axis \"{}\" is given twice. Every axis needs a name of its own.", axis.name));
    if (axis.size < 1 || axis.size > most_devices)
      fail(ErrorKind::bad_argument, "make_mesh",
           fmt::format("mesh axis \"{}\" = {}, expected a size from 1 to {}.", axis.name, axis.size, most_devices));
    n *= axis.size;
    if (n > most_devices)
      fail(ErrorKind::bad_argument, "make_mesh", fmt::format("more than {} devices.", most_devices));
  }
  return n;
}

// The number of virtual devices; without a number in the environment, as many as anyone asks for.
int64_t available_devices() {
  const char* text = std::getenv("TESSERA_CPU_DEVICES");
  if (!text || !*text) return most_devices;
  int64_t available = 0;
  const char* end = text + std::string_view(text).size();
  if (auto [rest, error] = std::from_chars(text, end, available); error != std::errc{} || rest != end || available < 1)
    fail(ErrorKind::bad_argument, "make_mesh",
         fmt::format("TESSERA_CPU_DEVICES=\"{}\", expected a number of devices from 1.", text));
  return available;
}

void check_available(int64_t wanted) {
  const int64_t available = available_devices();
  if (wanted > available)
    fail(
        ErrorKind::device_mismatch, "make_mesh",
        fmt::format("the mesh needs {} devices, there are {} (TESSERA_CPU_DEVICES). Choose a smaller mesh, or raise or "
                    "unset TESSERA_CPU_DEVICES.",
                    wanted, available));
}

std::vector<int> numbered(int64_t n) {
  std::vector<int> devices(n);
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

std::vector<int> checked_devices(std::vector<int> devices, int64_t n) {
  if (devices.empty()) devices = numbered(n);
  if (static_cast<int64_t>(devices.size()) != n)
    fail(ErrorKind::device_mismatch, "make_mesh",
         fmt::format("{} devices given for a mesh of {}. Give one for each place.", devices.size(), n));
  if (std::set<int>(devices.begin(), devices.end()).size() != devices.size())
    fail(ErrorKind::device_mismatch, "make_mesh", "a device is given twice. Every place needs one of its own.");
  const int64_t available = available_devices();
  for (int id : devices)
    if (id < 0 || id >= available)
      fail(ErrorKind::device_mismatch, "make_mesh",
           fmt::format("device {} given, expected ids from 0 to {}.", id, available - 1));
  return devices;
}

bool environment_flag(const char* name) {
  const char* text = std::getenv(name);
  return text && *text && std::string_view(text) != "0";
}

detail::MeshImpl mesh_of_devices(std::vector<MeshAxis> axes, MeshOptions options) {
  const int64_t n = checked_size(axes);
  check_available(n);
  return {.axes = std::move(axes),
          .devices = checked_devices(std::move(options.devices), n),
          .private_replicas = options.private_replicas || environment_flag("TESSERA_PRIVATE_REPLICAS")};
}

detail::MeshImpl abstract_mesh(std::vector<MeshAxis> axes, const MeshOptions& options) {
  if (!options.devices.empty() || options.private_replicas)
    fail(ErrorKind::bad_argument, "make_mesh",
         "an abstract mesh has no devices to number and no replicas. Leave `devices` and `private_replicas` out.");
  const int64_t n = checked_size(axes);
  return {.axes = std::move(axes), .devices = numbered(n), .abstract = true};
}

}  // namespace

Mesh make_mesh(std::vector<MeshAxis> axes, MeshOptions options) {
  detail::MeshImpl mesh =
      options.abstract ? abstract_mesh(std::move(axes), options) : mesh_of_devices(std::move(axes), std::move(options));
  std::string key = mesh.abstract ? "abstract|" : mesh.private_replicas ? "private|" : "shared|";
  for (const MeshAxis& axis : mesh.axes) key += fmt::format("{}:{}={}|", axis.name.size(), axis.name, axis.size);
  if (!mesh.abstract) key += fmt::format("{}", fmt::join(mesh.devices, ","));

  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<detail::MeshImpl>> meshes;
  mesh.first.assign(mesh.axes.size(), 0);
  for (const MeshAxis& axis : mesh.axes) mesh.extent.push_back(static_cast<int>(axis.size));
  std::lock_guard lock(mutex);
  auto& entry = meshes[key];
  if (!entry) entry = std::make_unique<detail::MeshImpl>(std::move(mesh));
  return Mesh(entry.get());
}

std::vector<MeshAxis> parse_mesh_axes(std::string_view text) {
  std::vector<MeshAxis> axes;
  const std::string whole(text);
  for (bool more = !text.empty(); more;) {
    const std::string_view item = text.substr(0, text.find(','));
    more = item.size() < text.size();
    text.remove_prefix(item.size() + more);
    const size_t equals = item.find('=');
    int64_t size = 0;
    const std::string_view digits = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    if (equals == 0 || digits.empty() || error != std::errc{} || rest != digits.data() + digits.size())
      fail(ErrorKind::bad_argument, "parse_mesh_axes",
           fmt::format("\"{}\" in \"{}\", expected name=size, as in data=4,model=2.", item, whole));
    axes.push_back({std::string(item.substr(0, equals)), size});
  }
  return axes;
}

}  // namespace tessera
