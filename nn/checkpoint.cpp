// The thread that writes, and whose errors nobody misses.
#include "nn/checkpoint.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <future>
#include <utility>

#include "nn/checkpoint_save.h"
#include "nn/with_commas.h"
#include "sharding/file.h"

namespace tessera::nn {
namespace {

namespace fs = std::filesystem;

void check_processes(const Processes& processes) {
  if (processes.index < 0 || processes.index >= processes.count || (processes.count > 1 && !processes.all_ok))
    fail(ErrorKind::bad_argument, "save",
         fmt::format("process {} of {}{}: expected an index from 0 on below the count, and all_ok where there are "
                     "several.",
                     processes.index, processes.count, processes.all_ok ? "" : " without all_ok"));
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail(ErrorKind::bad_file, "save",
         fmt::format("{}: this folder cannot be made ({}). Give a folder that can be written to.", folder.string(),
                     error.message()));
}

}  // namespace

struct Checkpointer::Impl {
  Impl(fs::path where, CheckpointOptions how) : folder(std::move(where)), options(std::move(how)) {
    check_processes(options.processes);
    together(options.processes, folder, [&] {
      make_folders(folder);
      if (options.processes.index > 0) return;
      lock = File::lock(folder / ".lock", "save");
      remove_leftovers(folder);
    });
  }

  fs::path folder;
  CheckpointOptions options;
  File lock;
  std::future<void> pending;
};

Checkpointer::Checkpointer(fs::path folder, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(std::move(folder), std::move(options))) {}

Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;

Checkpointer::~Checkpointer() noexcept(false) {
  if (!impl_) return;
  try {
    wait();
  } catch (const std::exception& error) {
    if (std::uncaught_exceptions() == 0) throw;
    std::fprintf(stderr, "error: %s\n", error.what());
  }
}

const fs::path& Checkpointer::folder() const { return impl_->folder; }

void Checkpointer::wait() {
  if (impl_->pending.valid()) impl_->pending.get();
}

void Checkpointer::save(int64_t step, const NamedState& state, const SaveExtra& extra) {
  wait();
  std::unique_ptr<Save> save;
  together(impl_->options.processes, impl_->folder / std::to_string(step), [&] {
    if (step < 0)
      fail(ErrorKind::bad_argument, "save", fmt::format("step {} given, expected a number from 0 on.", step));
    check_step_is_free(impl_->folder, step);
    save = std::make_unique<Save>(impl_->folder, step, state, extra, impl_->options);
  });
  save->write_down_to(impl_->options.most_pending_bytes);
  // Where no thread can be had, wait() does the work: the other processes count on it.
  impl_->pending = std::async(std::launch::async | std::launch::deferred, [save = std::move(save)] { save->finish(); });
}

void save(const fs::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra) {
  Checkpointer checkpoints(folder, {.most_pending_bytes = 0});
  checkpoints.save(step, state, extra);
  checkpoints.wait();
}

std::string describe_checkpoint(const fs::path& path) {
  const fs::path checkpoint = find_checkpoint(path, "inspect");
  const Manifest manifest = read_manifest(checkpoint);
  const SavedState state = read_state(checkpoint);
  std::string text = fmt::format("{}\nstep {}\n\n", checkpoint.string(), manifest.step);
  size_t widest = 0;
  int64_t bytes = 0;
  for (const SavedTensor& tensor : manifest.tensors) widest = std::max(widest, tensor.name.size());
  for (const SavedTensor& tensor : manifest.tensors) {
    std::string axes;
    for (const std::string& axis : tensor.axes.value_or(std::vector<std::string>()))
      axes += (axes.empty() ? "" : ", ") + (axis.empty() ? "none" : axis);
    text += fmt::format("{:<{}}  {:<18} {:<10} {:>16}  {}  {}\n", tensor.name, widest, to_string(tensor.shape),
                        name_of(tensor.dtype), detail::with_commas(tensor.bytes()), tensor.file, axes);
    bytes += tensor.bytes();
  }
  text += fmt::format("\n{} arrays, {} bytes\n", manifest.tensors.size(), detail::with_commas(bytes));
  for (const auto& [name, value] : state.numbers) text += fmt::format("{} = {}\n", name, value);
  for (const auto& [name, value] : state.extra) text += fmt::format("{} = {}\n", name, value);
  for (const auto& [name, value] : state.metrics) text += fmt::format("{} = {:.7g}\n", name, value);
  return text;
}

}  // namespace tessera::nn
