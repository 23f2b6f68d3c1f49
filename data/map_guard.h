// MapGuard: makes a page of a mapped file that cannot be read a question to ask instead of the end of the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::data::detail {

// While it lives, a read of [begin, begin + size) at a page that the kernel cannot serve (the file was cut short, its
// disk fails) gives zeros, and is_broken() is true from then on; without it, such a read ends the process (SIGBUS).
// Whoever reads asks afterwards: a read that gave zeros, in whichever thread the page was missed, is then known.
//
// This takes a handler of the process: while any guard lives, SIGBUS is handled here, and where the last one goes the
// handler before is there again. Faults at addresses that nobody guards, and signals that another process sends, get
// what they would have got without. A handler that somebody installs while guards live stands before this one: it has
// to pass on what it does not know, as crash reporters do, or a file cut short ends the process again.
// Guards may be made and destroyed in any thread. At most 65,536 maps are guarded at a time, more than a process may
// hold by default; further ones are not.
//
// Why not pread(2), which needs no handler: a call of the kernel for every record. For one of 256 bytes that took
// twenty times as long as the copy out of the map (docs/data.md, Speed).
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
