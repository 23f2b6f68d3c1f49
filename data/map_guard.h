// MapGuard: lets a process survive, and notice, a read of a memory-mapped file that the kernel cannot serve.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::data::detail {

// While it lives, a read of [begin, begin + size) at a page that the kernel cannot serve (the file was cut short, its
// disk fails) gives zeros, and is_broken() is true from then on; without it, such a read ends the process (SIGBUS).
// Call is_broken() after each read: it is true whichever thread touched the page.
//
// While any guard lives, this class handles the process's SIGBUS; when the last guard goes, the previous handler is
// restored. Faults at addresses without a guard, and signals from other processes, are passed to the previous handler.
// A handler that is installed while guards live is called first: it must pass on faults that it does not know, as crash
// reporters do, or a file cut short ends the process again.
// Guards may be made and destroyed in any thread. At most 65,536 maps are guarded at a time, more than a process may
// hold by default; further ones are not.
//
// Why not pread(2), which needs no handler: it is a system call for every record, which for a record of 256 bytes took
// twenty times as long as a copy out of the map (docs/data.md, Speed).
class MapGuard {
 public:
  MapGuard(const void* begin, size_t size);
  MapGuard(const MapGuard&) = delete;
  MapGuard& operator=(const MapGuard&) = delete;
  ~MapGuard();

  bool is_broken() const;

 private:
  int slot_ = -1;
};

}  // namespace tessera::data::detail
