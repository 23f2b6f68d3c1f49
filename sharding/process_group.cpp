// Groups of processes: their verbs as exchanges of bytes and local arithmetic, always in the members' order.
#include "sharding/process_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "sharding/background.h"
#include "sharding/error.h"
#include "sharding/joined.h"
#include "sharding/wait.h"

namespace tessera::detail {
namespace {

bool is_small(const at::Tensor& t) { return t.numel() <= most_small_elements; }

// As the local engine.
at::ScalarType sum_type(const at::Tensor& t, bool small) {
  if (!t.is_floating_point() || t.itemsize() == 8) return t.scalar_type();
  return small ? at::kDouble : at::kFloat;
}

at::Tensor& fold_into(at::Tensor& total, const at::Tensor& part, Fold how) {
  switch (how) {
    case Fold::sum:
      return total.add_(part);
    case Fold::max:
      return at::maximum_out(total, total, part);
    case Fold::min:
      return at::minimum_out(total, total, part);
    case Fold::product:
      return total.mul_(part);
  }
  return total;
}

// Of the parts in their order, into `result`, which is not among them unless it comes first. parts[0] may be destroyed.
void fold(std::vector<at::Tensor>& parts, Fold how, bool small, at::Tensor result) {
  at::Tensor total = parts[0];
  if (how == Fold::sum) total = total.to(sum_type(result, small));
  for (size_t i = 1; i < parts.size(); ++i) fold_into(total, parts[i], how);
  if (!total.is_same(result)) result.copy_(total);
}

Parcel parcel(int process, const at::Tensor& t) {
  return {process, t.mutable_data_ptr(), t.numel() * static_cast<int64_t>(t.itemsize())};
}

void check_contiguous(const at::Tensor& t) {
  if (!t.is_contiguous() || !t.device().is_cpu())
    fail(ErrorKind::bad_argument, "ProcessGroup",
         "a tensor is not contiguous in the memory of the CPU. Copy it first.");
}

// At its end, where it could not be begun.
class AtTheEnd : public Begun {
 public:
  AtTheEnd(ProcessGroup& group, at::Tensor x, Fold how, const Waiting& waiting)
      : group_(group), x_(std::move(x)), how_(how), waiting_(waiting) {}
  void finish() override { group_.all_reduce(x_, how_, waiting_); }

 private:
  ProcessGroup& group_;
  at::Tensor x_;
  Fold how_;
  Waiting waiting_;
};

class InBackground : public Begun {
 public:
  InBackground(ProcessGroup& group, at::Tensor x, Fold how, const Waiting& waiting)
      : begun_(begin_in_background([&group, x, how, waiting]() mutable {
          const at::AutoGradMode off(false);
          group.all_reduce(x, how, waiting);
        })) {}
  void finish() override { await(begun_); }

 private:
  std::future<void> begun_;
};

enum class Where : uint8_t { here, in_background };

Joined by_transport(Joined joined, Where where) {
  if (where == Where::in_background) joined.transport = joined.beside;
  return joined;
}

class Members : public ProcessGroup {
 public:
  Members(const Joined& joined, std::vector<int> processes, Where where = Where::here)
      : joined_(by_transport(joined, where)),
        waits_(joined_, processes, where == Where::here ? "" : "background", where == Where::in_background),
        transport_(*joined_.transport),
        processes_(std::move(processes)) {
    index_ = static_cast<int>(std::find(processes_.begin(), processes_.end(), joined.index) - processes_.begin());
    if (index_ == size())
      fail(ErrorKind::bad_argument, "process_group",
           fmt::format("process {} is not among those of its group.", joined.index));
  }

  int size() const override { return static_cast<int>(processes_.size()); }
  int index() const override { return index_; }

  // Small tensors: everyone gets all and folds them. Others: everyone folds one part, and gets the other parts.
  void all_reduce(at::Tensor& x, Fold how, const Waiting& waiting) override {
    check_contiguous(x);
    at::Tensor flat = x.view({x.numel()});
    if (x.numel() * static_cast<int64_t>(x.itemsize()) * size() <= small_bytes || x.numel() < size())
      return fold_all(flat, how, waiting);
    const auto part = [&](int i) {
      const int64_t from = flat.numel() * i / size();
      return flat.narrow(0, from, flat.numel() * (i + 1) / size() - from);
    };
    fold_part(part, part(index_), how, is_small(x), waiting);
    swap([&](int) { return part(index_); }, part, waiting);
  }

  std::unique_ptr<Begun> begin_all_reduce(at::Tensor x, Fold how, const Waiting& waiting) override {
    check_contiguous(x);
    if (!joined_.beside) return std::make_unique<AtTheEnd>(*this, std::move(x), how, waiting);
    if (!twin_) twin_ = std::make_unique<Members>(joined_, processes_, Where::in_background);
    return std::make_unique<InBackground>(*twin_, std::move(x), how, waiting);
  }

  void all_gather(const at::Tensor& mine, at::Tensor& all, const Waiting& waiting) override {
    check_contiguous(mine);
    check_contiguous(all);
    const auto of = [&](int i) { return all.select(0, i); };
    swap([&](int) { return mine; }, of, waiting, [&] { of(index_).copy_(mine); });
  }

  void reduce_scatter(const at::Tensor& parts, at::Tensor& mine, const Waiting& waiting) override {
    check_contiguous(parts);
    check_contiguous(mine);
    fold_part([&](int i) { return parts.select(0, i); }, mine, Fold::sum, is_small(parts), waiting);
  }

  void all_to_all(const at::Tensor& parts, at::Tensor& received, const Waiting& waiting) override {
    check_contiguous(parts);
    check_contiguous(received);
    const auto to = [&](int i) { return parts.select(0, i); };
    const auto from = [&](int i) { return received.select(0, i); };
    swap(to, from, waiting, [&] { from(index_).copy_(to(index_)); });
  }

  void exchange(const std::vector<Message>& sends, std::vector<Message>& receives, const Waiting& waiting) override {
    std::vector<Parcel> out, in;
    std::vector<const at::Tensor*> kept;
    for (const Message& message : sends) {
      check_contiguous(message.tensor);
      if (message.peer == index_)
        kept.push_back(&message.tensor);
      else
        out.push_back(parcel(processes_.at(message.peer), message.tensor));
    }
    for (const Message& message : receives) {
      check_contiguous(message.tensor);
      if (message.peer != index_) in.push_back(parcel(processes_.at(message.peer), message.tensor));
    }
    run(out, in, waiting, [&] {
      auto next = kept.begin();
      for (Message& message : receives)
        if (message.peer == index_) message.tensor.copy_(**next++);
    });
  }

 private:
  static constexpr int64_t small_bytes = 1 << 16;

  // `meanwhile` is done while the bytes are on their way.
  template <typename Meanwhile>
  void run(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives, const Waiting& waiting,
           Meanwhile meanwhile) {
    waits_.begin(waiting);
    waits_.start(sends, receives, waiting);
    meanwhile();
    waits_.until_done(waiting);
  }

  static constexpr auto nothing = [] {};

  // to(i) goes to every other member i, and from(i) is filled with what it sends: views of what the caller holds.
  template <typename To, typename From, typename Meanwhile = decltype(nothing)>
  void swap(To to, From from, const Waiting& waiting, Meanwhile meanwhile = nothing) {
    std::vector<Parcel> sends, receives;
    for (int i = 0; i < size(); ++i) {
      if (i == index_) continue;
      sends.push_back(parcel(processes_[i], to(i)));
      receives.push_back(parcel(processes_[i], from(i)));
    }
    run(sends, receives, waiting, meanwhile);
  }

  void fold_all(at::Tensor& flat, Fold how, const Waiting& waiting) {
    at::Tensor all = at::empty({size(), flat.numel()}, flat.options());
    all_gather(flat, all, waiting);
    std::vector<at::Tensor> parts = all.unbind(0);
    fold(parts, how, is_small(flat), flat);
  }

  // part(i) of every member goes to member i, which folds what it gets into `mine`.
  template <typename Part>
  void fold_part(Part part, at::Tensor mine, Fold how, bool small, const Waiting& waiting) {
    std::vector<at::Tensor> parts;
    for (int i = 0; i < size(); ++i) parts.push_back(i == index_ ? part(i) : at::empty_like(mine));
    swap(
        part, [&](int i) { return parts[i]; }, waiting);
    // The first is folded into: another member's is a buffer, this one's is the caller's.
    if (index_ == 0 && parts[0].const_data_ptr() != mine.const_data_ptr()) parts[0] = parts[0].clone();
    fold(parts, how, small, mine);
  }

  const Joined joined_;
  Waits waits_;
  Transport& transport_;
  std::vector<int> processes_;
  std::unique_ptr<Members> twin_;  // the same in the background
  int index_ = 0;
};

// One process: everything is a copy.
class Alone : public ProcessGroup {
 public:
  int size() const override { return 1; }
  int index() const override { return 0; }
  void all_reduce(at::Tensor&, Fold, const Waiting&) override {}
  std::unique_ptr<Begun> begin_all_reduce(at::Tensor x, Fold how, const Waiting& waiting) override {
    return std::make_unique<AtTheEnd>(*this, std::move(x), how, waiting);
  }
  void all_gather(const at::Tensor& mine, at::Tensor& all, const Waiting&) override { all.select(0, 0).copy_(mine); }
  void reduce_scatter(const at::Tensor& parts, at::Tensor& mine, const Waiting&) override {
    mine.copy_(parts.select(0, 0));
  }
  void all_to_all(const at::Tensor& parts, at::Tensor& received, const Waiting&) override { received.copy_(parts); }
  void exchange(const std::vector<Message>& sends, std::vector<Message>& receives, const Waiting&) override {
    for (size_t i = 0; i < receives.size(); ++i) receives[i].tensor.copy_(sends[i].tensor);
  }
};

}  // namespace

ProcessGroup& process_group(const std::vector<int>& processes) {
  static std::map<std::vector<int>, std::unique_ptr<ProcessGroup>> groups;
  auto& group = groups[processes];
  if (group) return *group;
  if (processes.size() == 1)
    group = std::make_unique<Alone>();
  else
    group = std::make_unique<Members>(joined(), processes);
  return *group;
}

}  // namespace tessera::detail
