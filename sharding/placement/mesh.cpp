// Makes and interns meshes, and assigns boxes of the grid to processes.
#include "sharding/placement/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <mutex>
#include <numeric>
#include <set>

#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/hardware.h"
#include "sharding/runtime/processes.h"

namespace tessera {

namespace {

const detail::MeshImpl& checked(const detail::MeshImpl* mesh) {
  if (!mesh) fail(ErrorKind::invalid_argument, "Mesh", "this is not a mesh. Make one with make_mesh.");
  return *mesh;
}

}  // namespace

const std::vector<MeshAxis>& Mesh::axes() const { return checked(impl_).axes; }
const std::vector<int>& Mesh::devices() const { return checked(impl_).devices; }
int64_t Mesh::size() const { return static_cast<int64_t>(devices().size()); }
bool Mesh::has_axis(std::string_view mesh_axis) const { return checked(impl_).find(mesh_axis) >= 0; }
bool Mesh::private_replicas() const { return checked(impl_).private_replicas; }
bool Mesh::is_abstract() const { return checked(impl_).abstract; }
std::string Mesh::device() const { return checked(impl_).device.str(); }
int Mesh::process_count() const { return checked(impl_).processes; }

int Mesh::process_index() const {
  if (checked(impl_).elsewhere) return -1;
  const std::vector<int> members = impl_->members();
  return static_cast<int>(std::find(members.begin(), members.end(), impl_->process) - members.begin());
}

std::vector<int> Mesh::local_devices() const {
  std::vector<int> local;
  for (int place = 0; place < size(); ++place)
    if (impl_->process_of(place) == impl_->process) local.push_back(impl_->devices[place]);
  return local;
}

std::vector<int> Mesh::machines() const {
  std::vector<int> machines;
  for (int place = 0; place < size(); ++place) machines.push_back(impl_->machine_of(place));
  return machines;
}

int64_t Mesh::size(std::string_view mesh_axis) const {
  const int a = checked(impl_).find(mesh_axis);
  if (a < 0)
    fail(ErrorKind::unknown_axis, "Mesh", "mesh axis \"{}\" is not in the mesh ({}). Use one of its axes.", mesh_axis,
         to_string());
  return impl_->axes[a].size;
}

std::string Mesh::to_string() const {
  if (!impl_) return "no mesh";
  std::vector<std::string> parts;
  const detail::AxisSet across_machines = impl_->across_machines();
  for (size_t a = 0; a < impl_->axes.size(); ++a)
    parts.push_back(fmt::format("{}={}{}", impl_->axes[a].name, impl_->axes[a].size,
                                across_machines >> a & 1 ? " across machines" : ""));
  if (impl_->parent) parts[impl_->cut_axis] = fmt::format("{}[{}]", impl_->axes[impl_->cut_axis].name, impl_->cut_at);
  return fmt::format("{}", fmt::join(parts, ", "));
}

namespace {

constexpr int64_t max_devices = 1 << 22;

int64_t checked_size(const std::vector<MeshAxis>& axes) {
  if (axes.size() > detail::max_axes)
    fail(ErrorKind::invalid_argument, "make_mesh",
         "{} axes given, at most {} are possible. Merge some of them into one.", axes.size(), detail::max_axes);
  int64_t n = 1;
  std::set<std::string_view> seen;
  for (const MeshAxis& axis : axes) {
    if (axis.name.empty()) fail(ErrorKind::invalid_argument, "make_mesh", "a mesh axis has no name. Name every axis.");
    if (axis.name.find(',') != std::string::npos)
      fail(ErrorKind::invalid_argument, "make_mesh",
           "mesh axis \"{}\" has a comma, which separates axes. Choose another name.", axis.name);
    if (!seen.insert(axis.name).second)
      fail(ErrorKind::duplicate_axis, "make_mesh", "mesh axis \"{}\" is given twice. Every axis needs its own name.",
           axis.name);
    if (axis.size < 1 || axis.size > max_devices)
      fail(ErrorKind::invalid_argument, "make_mesh", "mesh axis \"{}\" = {}, expected a size from 1 to {}.", axis.name,
           axis.size, max_devices);
    n *= axis.size;
    if (n > max_devices)
      fail(ErrorKind::invalid_argument, "make_mesh",
           "{} devices or more given, expected {} at most. Make an axis shorter.", n, max_devices);
  }
  return n;
}

// Returns the number of virtual devices of a process. Without TESSERA_CPU_DEVICES the only limit is max_devices.
int64_t available_devices() {
  return detail::environment_number("TESSERA_CPU_DEVICES", "devices").value_or(max_devices);
}

// The processes of this run and the number of device ids of each: process p has those from p * each on.
struct Owners {
  int process, processes;
  int64_t each;
  int64_t all() const { return processes * each; }
};

Owners owners_of(int64_t wanted, bool are_named) {
  Owners owners{process_index(), process_count(), available_devices()};
  if (owners.processes == 1 || owners.each < max_devices) return owners;
  if (are_named && wanted % owners.processes) {
    owners.each = local_device_count();
    return owners;
  }
  if (wanted % owners.processes)
    fail(ErrorKind::device_mismatch, "make_mesh",
         "{} devices cannot be divided equally among {} processes. Choose a mesh of a multiple of them: each process "
         "has as many of its devices.",
         wanted, owners.processes);
  owners.each = wanted / owners.processes;
  return owners;
}

void check_available(int64_t wanted, const Owners& owners) {
  if (wanted > owners.all())
    fail(ErrorKind::device_mismatch, "make_mesh",
         "the mesh needs {} devices, there are {} (TESSERA_CPU_DEVICES{}). Choose a smaller mesh, or raise or unset "
         "TESSERA_CPU_DEVICES.",
         wanted, owners.all(), owners.processes == 1 ? "" : fmt::format(", {} processes", owners.processes));
}

std::vector<int> numbered(int64_t n) {
  std::vector<int> devices(n);
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

std::vector<int> checked_devices(std::vector<int> devices, int64_t n, const Owners& owners) {
  if (static_cast<int64_t>(devices.size()) != n)
    fail(ErrorKind::device_mismatch, "make_mesh", "{} devices given for a mesh of {}. Give one for each position.",
         devices.size(), n);
  if (std::set<int>(devices.begin(), devices.end()).size() != devices.size())
    fail(ErrorKind::device_mismatch, "make_mesh", "a device is given twice. Every position needs its own device.");
  for (int id : devices)
    if (id < 0 || id >= owners.all())
      fail(ErrorKind::device_mismatch, "make_mesh", "device {} given, expected ids from 0 to {}.{}", id,
           owners.all() - 1,
           owners.processes == 1
               ? ""
               : " Set TESSERA_CPU_DEVICES to the number of devices of each process: unset, a mesh has "
                 "as many as it needs.");
  return devices;
}

// The smallest box of the grid that contains all devices of a process.
struct Box {
  std::vector<int> first, last;
  int64_t devices = 0;

  void add(const int* coordinates, size_t axes) {
    if (devices++ == 0) first.assign(coordinates, coordinates + axes), last = first;
    for (size_t a = 0; a < axes; ++a) {
      first[a] = std::min(first[a], coordinates[a]);
      last[a] = std::max(last[a], coordinates[a]);
    }
  }
  int extent(size_t a) const { return last[a] - first[a] + 1; }
  int64_t places() const {
    int64_t n = 1;
    for (size_t a = 0; a < first.size(); ++a) n *= extent(a);
    return n;
  }
  bool is_like(const Box& other) const {
    for (size_t a = 0; a < first.size(); ++a)
      if (extent(a) != other.extent(a) || first[a] % extent(a)) return false;
    return true;
  }
};

std::vector<Box> boxes_of(const detail::MeshImpl& mesh, int processes) {
  std::vector<Box> boxes(processes);
  for (size_t place = 0; place < mesh.devices.size(); ++place) {
    const detail::Coordinates coordinates = detail::coordinates_of(&mesh, static_cast<int>(place));
    boxes[mesh.devices[place] / mesh.each].add(coordinates, mesh.axes.size());
  }
  return boxes;
}

void check_boxes(const std::vector<Box>& boxes, const std::vector<int>& members, int64_t devices) {
  const auto n = static_cast<int64_t>(members.size());
  for (const int p : members) {
    if (boxes[p].devices * n != devices)
      fail(ErrorKind::device_mismatch, "make_mesh",
           "process {} has {} of the mesh's {} devices, expected the same number of each of the {} processes that have "
           "any. Name other devices.",
           p, boxes[p].devices, devices, n);
    if (boxes[p].places() != boxes[p].devices || !boxes[p].is_like(boxes[members[0]]))
      fail(ErrorKind::device_mismatch, "make_mesh",
           "the devices of process {} are not a block of the grid, the same range along each axis for every process. "
           "Order the devices so that adjacent devices belong to one process.",
           p);
  }
}

// Sets this process's box of the grid: all of it if no other process has devices of the mesh; none if only others have.
void give_to_processes(detail::MeshImpl& mesh, const Owners& owners) {
  mesh.process = owners.process;
  if (owners.processes == 1) return;
  mesh.each = static_cast<int>(owners.each);
  const std::vector<Box> boxes = boxes_of(mesh, owners.processes);
  const Box& mine = boxes[owners.process];
  if (mine.devices == static_cast<int64_t>(mesh.devices.size())) return;
  const std::vector<int> members = mesh.members();
  check_boxes(boxes, members, static_cast<int64_t>(mesh.devices.size()));
  mesh.processes = static_cast<int>(members.size());
  if (mine.devices == 0) return mesh.put_elsewhere();
  mesh.first = mine.first;
  for (size_t a = 0; a < mesh.axes.size(); ++a) mesh.extent[a] = mine.extent(a);
}

detail::MeshImpl whole_grid(std::vector<MeshAxis> axes) {
  for (MeshAxis& axis : axes) axis.locality = AxisLocality::near;
  detail::MeshImpl mesh{.axes = std::move(axes)};
  mesh.first.assign(mesh.axes.size(), 0);
  for (const MeshAxis& axis : mesh.axes) mesh.extent.push_back(static_cast<int>(axis.size));
  return mesh;
}

// Returns the explicit order of devices, or the order of the machines if none is given.
std::vector<int> ordered_devices(const std::vector<MeshAxis>& axes, std::vector<int> given, const Owners& owners) {
  if (given.empty()) return detail::device_order(axes, detail::world().machines, owners.each);
  for (const MeshAxis& axis : axes)
    if (axis.locality == across)
      fail(ErrorKind::invalid_argument, "make_mesh",
           "`devices` are given, and mesh axis \"{}\" is `across`: both set the order. Leave one of them out.",
           axis.name);
  return given;
}

detail::MeshImpl mesh_of_devices(std::vector<MeshAxis> axes, MeshOptions options) {
  if (options.num_processes)
    fail(
        ErrorKind::invalid_argument, "make_mesh",
        "num_processes: {} given for a mesh of devices, which belong to the processes that have them. Leave it out, or "
        "make the mesh abstract.",
        options.num_processes);
  detail::environment_flag("TESSERA_CHECK");  // again: an Error of the read before main cannot be caught
  const int64_t n = checked_size(axes);
  const Owners owners = owners_of(n, !options.devices.empty());
  check_available(n, owners);
  std::vector<int> devices = ordered_devices(axes, std::move(options.devices), owners);
  detail::MeshImpl mesh = whole_grid(std::move(axes));
  mesh.devices = checked_devices(std::move(devices), n, owners);
  mesh.private_replicas = options.private_replicas || detail::environment_flag("TESSERA_PRIVATE_REPLICAS");
  mesh.device = detail::accelerator(options.device);
  give_to_processes(mesh, owners);
  return mesh;
}

detail::MeshImpl abstract_mesh(std::vector<MeshAxis> axes, const MeshOptions& options) {
  if (!options.devices.empty() || options.private_replicas || !options.device.empty())
    fail(ErrorKind::invalid_argument, "make_mesh",
         "an abstract mesh has no devices to number and no replicas. Leave `devices`, `device` and `private_replicas` "
         "out.");
  const int64_t n = checked_size(axes);
  detail::MeshImpl mesh = whole_grid(std::move(axes));
  mesh.devices = numbered(n);
  mesh.box = detail::box_of_each(mesh.axes, options.num_processes);
  if (mesh.box.empty())
    fail(ErrorKind::device_mismatch, "make_mesh",
         "num_processes: {} given, expected a number that divides the {} devices so that each process has a block of "
         "the "
         "grid.",
         options.num_processes, n);
  mesh.abstract = true;
  mesh.device = c10::kMeta;
  return mesh;
}

}  // namespace

Mesh make_mesh(std::vector<MeshAxis> axes, MeshOptions options) {
  if (!options.abstract) detail::share_cores();
  detail::MeshImpl mesh =
      options.abstract ? abstract_mesh(std::move(axes), options) : mesh_of_devices(std::move(axes), std::move(options));
  mesh.engine = detail::choose_engine(mesh);

  static std::mutex mutex;
  // Interned values are never destroyed: other threads and destructors of statics may still compute at program exit.
  static auto& meshes = *new std::deque<detail::MeshImpl>;
  const std::lock_guard lock(mutex);
  const auto known = std::find(meshes.begin(), meshes.end(), mesh);
  return Mesh(known != meshes.end() ? &*known : &meshes.emplace_back(std::move(mesh)));
}

int64_t local_device_count() {
  const int64_t each = available_devices();
  return each == max_devices ? 1 : each;
}

int64_t device_count() { return process_count() * local_device_count(); }

std::vector<int> devices() { return numbered(device_count()); }

std::vector<int> local_devices() {
  std::vector<int> devices = numbered(local_device_count());
  for (int& device : devices) device += static_cast<int>(process_index() * local_device_count());
  return devices;
}

namespace {

// Detects "data:across=8", the mark in the wrong place.
void check_typed_name(std::string_view name, std::string_view digits, std::string_view text) {
  const auto is_usual = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  if (std::all_of(name.begin(), name.end(), is_usual)) return;
  const bool has_mark = name.ends_with(":across");
  fail(
      ErrorKind::invalid_argument, "parse_mesh_axes",
      "the axis \"{}\" in \"{}\", expected a name of letters, digits and underscores{}.", name, text,
      has_mark ? fmt::format("; the mark follows the size: {}={}:across", name.substr(0, name.find(':')), digits) : "");
}

}  // namespace

std::vector<MeshAxis> parse_mesh_axes(std::string_view text) {
  std::vector<MeshAxis> axes;
  if (text.empty()) return axes;
  for (const std::string_view item : detail::split_text(text, ",")) {
    constexpr std::string_view mark = ":across";
    const bool is_across = item.ends_with(mark);
    const size_t equals = item.find('=');
    std::string_view digits = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    if (is_across && equals != std::string_view::npos) digits.remove_suffix(mark.size());
    const std::optional size = detail::parse_number<int64_t>(digits);
    if (equals == 0 || !size)
      fail(ErrorKind::invalid_argument, "parse_mesh_axes",
           "\"{}\" in \"{}\", expected name=size or name=size:across, as in data=4,model=2.", item, text);
    check_typed_name(item.substr(0, equals), digits, text);
    axes.push_back({std::string(item.substr(0, equals)), *size, is_across ? across : AxisLocality::near});
  }
  return axes;
}

}  // namespace tessera
