// Observer of operations, collectives and activities for profiles, and the exchange of profiles between processes.
#include "nn/report/profile.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/resource.h>

#include <algorithm>
#include <deque>

#include "nn/report/dataflow.h"
#include "sharding/accounting/communication_event.h"
#include "sharding/accounting/operation_event.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/events/observer.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/runtime/consensus.h"
#include "sharding/runtime/processes.h"

namespace tessera::nn {

using namespace detail;
namespace core = tessera::detail;

namespace {

using core::Clock;
using core::Text;

int64_t nanoseconds(Clock::time_point moment) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
}

int64_t now() { return nanoseconds(Clock::now()); }

// Returns the module of a parameter.
std::string_view parent_of(std::string_view path) { return path.substr(0, std::min(path.rfind('.'), path.size())); }

// Returns the deeper one of the computing module and the parameter's module.
std::string_view innermost(const Text& module, const Text& parameter) {
  const std::string_view outer = module ? std::string_view(*module) : std::string_view();
  if (!parameter || parameter->find('.') == std::string::npos) return outer;
  const std::string_view inner = parent_of(*parameter);
  return inner.starts_with(outer) ? inner : outer;
}

struct ClockDifference {
  int64_t ahead, error;
};

// Returns the differences of all clocks to the clock of process 0, in nanoseconds. No process ends a gather before all
// have begun it, so each round bounds a difference from both sides. The narrowest bounds count.
std::vector<ClockDifference> compare_clocks() {
  constexpr int rounds = 8;
  std::vector<std::vector<int64_t>> begins, ends;
  for (int r = 0; r < rounds; ++r) {
    begins.push_back(core::gather_numbers("profile", now()));
    ends.push_back(core::gather_numbers("profile", now()));
  }
  std::vector<ClockDifference> differences;
  for (size_t p = 0; p < begins[0].size(); ++p) {
    int64_t least = INT64_MIN, most = INT64_MAX;
    for (int r = 0; r < rounds; ++r) {
      least = std::max(least, begins[r][p] - ends[r][0]);
      most = std::min(most, ends[r][p] - begins[r][0]);
    }
    differences.push_back(p == 0 ? ClockDifference{0, 0}
                                 : ClockDifference{least + (most - least) / 2, (most - least + 1) / 2});
  }
  return differences;
}

}  // namespace

class Profile::Recorder : core::Observer {
 public:
  Recorder() : Observer(core::Events::operations | core::Events::communication | core::Events::activities) {
    begin_step();
  }

  void begin_step() { began_ = now(); }

  void end_step() {
    for (const c10::Device device : devices_) {
      const core::ActivityScope waiting(core::Activity::device);
      c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    }
    const int64_t ended = now();
    steps_.push_back({began_, ended});
    began_ = ended;
  }

  ProcessProfile profile() const {
    ProcessProfile result;
    result.process = process_index();
    if (steps_.empty())
      fail(ErrorKind::invalid_argument, "profile", "no step has ended, expected one at least. Call step() after each.");
    for (const Span& span : steps_) result.steps.push_back(step_of(result, span));
    return result;
  }

 private:
  struct Span {
    int64_t begin, end;
  };
  struct RecordedCall {
    const char* operation;
    CallerLine where;
    Text module, parameter;
    Pass pass;
    TimePart part;
    bool is_scope;
    int64_t begin, end;
  };
  struct RecordedTransfer {
    core::Communication communication;
    int64_t begin, awaited, arrived;
  };

  void computed(const core::OperationCall& call, const core::OperationArrays& arrays) override {
    add_call(call, call.recomputed ? Pass::recomputation : Pass::forward, call.began, call.ended);
    for (const Array& x : arrays.results)
      if (const core::Tensors& local = x.impl()->local; !local.empty() && core::is_on_accelerator(local[0]))
        if (std::find(devices_.begin(), devices_.end(), local[0].device()) == devices_.end())
          devices_.push_back(local[0].device());
  }
  void differentiated(const core::OperationCall& call, const core::BackwardCall& part) override {
    add_call(call, Pass::backward, part.began, part.ended);
  }
  void add_call(const core::OperationCall& call, Pass pass, Clock::time_point began, Clock::time_point ended) {
    calls_.push_back({call.operation, call.where, call.module, call.parameter, pass, TimePart::computation, false,
                      nanoseconds(began), nanoseconds(ended)});
  }

  void spent(core::Activity activity, const CallerLine& where, Clock::time_point began,
             Clock::time_point ended) override {
    using enum core::Activity;
    const bool is_scope = activity == backward || activity == update;
    const TimePart part = is_scope ? TimePart::computation : activity == input ? TimePart::input : TimePart::device;
    const Pass pass = activity == update ? Pass::update : activity == backward ? Pass::backward : Pass::forward;
    const char* name = activity == update  ? "update"
                       : is_scope          ? core::gradients_operation
                       : activity == input ? "wait for input"
                                           : "wait for the device";
    calls_.push_back({name, where, nullptr, nullptr, pass, part, is_scope, nanoseconds(began), nanoseconds(ended)});
  }

  void communicated(const core::Communication& communication) override {
    const int64_t moment = now();
    const bool ahead = communication.began != Clock::time_point();
    transfers_.push_back({communication, ahead ? nanoseconds(communication.began) : moment, moment, moment});
  }
  void awaited(int64_t number) override {
    if (const auto index = core::index_of(number, transfers_)) transfers_[*index].awaited = now();
  }
  void arrived(int64_t number) override {
    if (const auto index = core::index_of(number, transfers_)) transfers_[*index].arrived = now();
  }

  Slice slice_of(ProcessProfile& profile, const RecordedCall& recorded) const {
    const std::source_location& where = recorded.where;
    return {.begin = recorded.begin,
            .end = recorded.end,
            .part = recorded.part,
            .pass = recorded.pass,
            .name = profile.number_of(recorded.operation),
            .module = profile.number_of(innermost(recorded.module, recorded.parameter)),
            .file = profile.number_of(where.file_name()),
            .line = static_cast<int>(where.line()),
            .is_scope = recorded.is_scope};
  }

  Transfer transfer_of(ProcessProfile& profile, const RecordedTransfer& recorded) const {
    const CommRecord record = core::record_of(recorded.communication);
    return {.begin = recorded.begin,
            .awaited = recorded.awaited,
            .arrived = recorded.arrived,
            .pass = record.backward ? Pass::backward : Pass::forward,
            .kind = profile.number_of(record.kind),
            .axes = profile.number_of(record.mesh_axes),
            .operation = profile.number_of(record.operation),
            .path = profile.number_of(record.path),
            .reason = profile.number_of(record.reason),
            .file = profile.number_of(record.where.file_name()),
            .line = static_cast<int>(record.where.line()),
            .bytes = record.bytes,
            .devices = record.num_devices};
  }

  StepSlices step_of(ProcessProfile& profile, const Span& span) const {
    const auto touches = [&](int64_t begin, int64_t end) { return begin < span.end && end > span.begin; };
    std::vector<Slice> slices;
    std::vector<Transfer> transfers;
    for (const RecordedCall& recorded : calls_)
      if (touches(recorded.begin, recorded.end)) slices.push_back(slice_of(profile, recorded));
    for (const RecordedTransfer& recorded : transfers_) {
      if (!touches(recorded.awaited, recorded.arrived)) continue;
      const Transfer& t = transfers.emplace_back(transfer_of(profile, recorded));
      slices.push_back({.begin = t.awaited,
                        .end = t.arrived,
                        .part = TimePart::collectives,
                        .pass = t.pass,
                        .name = profile.number_of(profile.label(t)),
                        .module = profile.number_of(common_module(profile.text(t.path))),
                        .file = t.file,
                        .line = t.line});
    }
    const Slice step{
        .begin = span.begin, .end = span.end, .part = TimePart::program, .name = profile.number_of("step")};
    return nested(step, std::move(slices), std::move(transfers));
  }

  int64_t began_ = 0;
  std::vector<Span> steps_;
  std::deque<RecordedCall> calls_;
  std::deque<RecordedTransfer> transfers_;
  std::vector<c10::Device> devices_;  // accelerators that have computed
};

Profile::Profile(const ProfileOptions& options) : recorder_(std::make_unique<Recorder>()), options_(options) {}
Profile::~Profile() = default;

void Profile::step() { recorder_->end_step(); }
void Profile::begin_step() { recorder_->begin_step(); }

ProfileReport Profile::report() const { return {{recorder_->profile()}, options_}; }

int64_t peak_bytes(const Mesh& mesh) {
  const c10::Device device = mesh.impl() ? mesh.impl()->device : c10::Device(c10::kCPU);
  if (device.is_cpu()) {
    rusage usage{};
    constexpr int64_t kilobyte = 1024;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * kilobyte : 0;
  }
  auto* allocator = device.is_meta() ? nullptr : dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (!allocator || !allocator->initialized()) return 0;
  constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator->getDeviceStats(device.index()).allocated_bytes[all].peak;
}

ProfileReport Profile::gather() const {
  ProcessProfile mine = recorder_->profile();
  if (process_count() == 1) return {{std::move(mine)}, options_};
  const ClockDifference clock = compare_clocks()[static_cast<size_t>(process_index())];
  mine.clock_ahead = clock.ahead;
  mine.clock_error = clock.error;
  std::vector<ProcessProfile> all;
  for (const std::string& text : core::gather_texts("profile", packed(mine)))
    all.push_back(unpacked(text, static_cast<int>(all.size())));
  return {std::move(all), options_};
}

}  // namespace tessera::nn
