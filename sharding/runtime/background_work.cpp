// Begun, ended by another thread, and waited for.
#include "sharding/runtime/background_work.h"

#include <chrono>

namespace tessera::detail {

std::pair<std::unique_ptr<Work>, BackgroundWork::End> BackgroundWork::begin(Setting setting,
                                                                            std::function<void()> finish) {
  const auto done = std::make_shared<std::promise<void>>();
  const auto under_way = setting.under_way;
  ++*under_way;
  return {std::unique_ptr<Work>(new BackgroundWork(std::move(setting), done->get_future())),
          [done, finish = std::move(finish), under_way](const std::exception_ptr& error) {
            try {
              if (error) std::rethrow_exception(error);
              finish();
              done->set_value();
            } catch (...) {
              done->set_exception(std::current_exception());
            }
            --*under_way;
          }};
}

void BackgroundWork::wait() {
  const auto is_done = [this](std::chrono::milliseconds longest) {
    const bool is_ready = done_.wait_for(longest) == std::future_status::ready;
    if (is_ready) done_.get();
    return is_ready;
  };
  if (setting_.control)
    setting_.control->wait(setting_.waiting, setting_.members, is_done);
  else
    is_done(std::chrono::milliseconds::zero());
  for (const auto& [result, here] : setting_.results)
    if (!result.is_same(here)) result.copy_(here);
}

}  // namespace tessera::detail
