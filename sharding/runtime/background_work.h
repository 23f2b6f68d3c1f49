// BackgroundWork: a collective that threads of the transport carry out.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/process_group.h"

namespace tessera::detail {

class BackgroundWork : public Work {
 public:
  using Results = std::vector<std::pair<at::Tensor, at::Tensor>>;  // on their device, and on the host
  using End = std::function<void(const std::exception_ptr&)>;

  struct Setting {
    std::shared_ptr<ControlPlane> control;  // or none: the work is done when it is waited for
    std::vector<int> members;
    WaitContext waiting;
    Results results;
    std::shared_ptr<std::atomic<int>> under_way;  // counts the works that have begun and not ended
  };

  // A work, and what is called once when it is done, with its error or none, by the thread that has done it: that calls
  // `finish`, which belongs to the work.
  static std::pair<std::unique_ptr<Work>, End> begin(Setting setting, std::function<void()> finish);
  void wait() override;

 private:
  BackgroundWork(Setting setting, std::future<void> done) : setting_(std::move(setting)), done_(std::move(done)) {}

  const Setting setting_;
  std::future<void> done_;
};

}  // namespace tessera::detail
