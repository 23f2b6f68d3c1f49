// Graphs of a few nodes, whose backward pass runs past LibTorch's engine.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "sharding/array/autograd.h"
#include "sharding/kernels/plain.h"

namespace tessera::detail {

bool is_as_expected(const at::Tensor& gradient, const torch::autograd::Edge& edge) {
  if (!gradient.defined() || !edge.is_valid()) return true;
  const torch::autograd::InputMetadata& expected = edge.function->input_metadata(edge.input_nr);
  if (expected.is_nested_tensor() || expected.is_tensor_subclass()) return false;
  const auto sizes = c10::asIntArrayRefSlowOpt(expected.shape_as_dim_vector());
  return sizes && gradient.sizes() == *sizes && gradient.layout() == at::kStrided &&
         expected.layout() == at::kStrided && gradient.device() == expected.device() &&
         gradient.scalar_type() == expected.grad_dtype().value_or(gradient.scalar_type());
}

namespace {

using torch::autograd::variable_list;

// A node of LibTorch's computes no more than the engine's pass, in which this thread may be, asks for. While this
// lives, it computes all.
class OutsideTheEngine {
 public:
  OutsideTheEngine() : asked_(const_cast<Asked*>(torch::autograd::get_current_graph_task_exec_info())) { swap(); }
  ~OutsideTheEngine() { swap(); }
  OutsideTheEngine(const OutsideTheEngine&) = delete;
  OutsideTheEngine& operator=(const OutsideTheEngine&) = delete;

 private:
  using Asked =
      std::remove_const_t<std::remove_pointer_t<decltype(torch::autograd::get_current_graph_task_exec_info())>>;

  void swap() {
    if (asked_) asked_->swap(none_);
  }

  Asked* asked_;
  Asked none_;
};

// A graph of a few nodes between stand-ins and outputs.
class SmallGraph {
 public:
  SmallGraph(const Tensors& stand_ins, const Tensors& outputs)
      : beginning_(torch::autograd::impl::gradient_edge(stand_ins[0])), inputs_(stand_ins.size()) {
    for (const at::Tensor& output : outputs) outputs_.push_back(torch::autograd::impl::gradient_edge(output));
  }

  Tensors backward(const Tensors& gradients) const {
    const OutsideTheEngine alone;
    Pass pass{*this, Tensors(inputs_)};
    for (const torch::autograd::Edge& edge : outputs_) pass.expect(edge);
    for (size_t i = 0; i < outputs_.size(); ++i) pass.deliver(outputs_[i], gradients[i]);
    for (size_t next = 0; next < pass.ready.size(); ++next) pass.run(*pass.ready[next]);
    return std::move(pass.results);
  }

 private:
  using Node = torch::autograd::Node;

  // A node whose gradients are on their way: from so many edges more.
  struct PendingNode {
    Node* node;
    int missing = 0;
    variable_list gradients;
  };

  struct Pass {
    const SmallGraph& graph;
    Tensors results;
    std::vector<std::unique_ptr<PendingNode>> nodes = {};
    std::vector<PendingNode*> ready = {};

    bool ends(const torch::autograd::Edge& edge) const { return edge.function == graph.beginning_.function; }
    PendingNode* known(const Node* node) const {
      for (const auto& waiting : nodes)
        if (waiting->node == node) return waiting.get();
      return nullptr;
    }

    void expect(const torch::autograd::Edge& edge) {
      if (!edge.is_valid() || ends(edge)) return;
      PendingNode* waiting = known(edge.function.get());
      if (!waiting) {
        Node* node = edge.function.get();
        waiting = nodes.emplace_back(new PendingNode{node, 0, variable_list(node->num_inputs())}).get();
        for (const torch::autograd::Edge& next : node->next_edges()) expect(next);
      }
      ++waiting->missing;
    }

    void deliver(const torch::autograd::Edge& edge, const at::Tensor& gradient) {
      if (!edge.is_valid()) return;
      if (ends(edge)) return add(results[edge.input_nr], gradient);
      PendingNode* waiting = known(edge.function.get());
      add(waiting->gradients[edge.input_nr], gradient);
      if (--waiting->missing == 0) ready.push_back(waiting);
    }

    static void add(at::Tensor& sum, const at::Tensor& gradient) {
      if (gradient.defined()) sum = sum.defined() ? sum + gradient : gradient;
    }

    void run(PendingNode& waiting) {
      Node& node = *waiting.node;
      variable_list gradients(node.num_outputs());
      const auto is_defined = [](const at::Tensor& t) { return t.defined(); };
      if (std::any_of(waiting.gradients.begin(), waiting.gradients.end(), is_defined)) {
        gradients = node(std::move(waiting.gradients));
        if (!std::equal(gradients.begin(), gradients.end(), node.next_edges().begin(), node.next_edges().end(),
                        is_as_expected))
          torch::autograd::validate_outputs(node.next_edges(), gradients,
                                            [&](const std::string& words) { return node.name() + ": " + words; });
      }
      for (size_t i = 0; i < gradients.size(); ++i) deliver(node.next_edge(i), gradients[i]);
    }
  };

  torch::autograd::Edge beginning_;
  size_t inputs_;
  torch::autograd::edge_list outputs_;
};

Tensors backward_by_engine(const Tensors& stand_ins, const Tensors& outputs, const Tensors& gradients) {
  variable_list roots, seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined()) continue;
    roots.push_back(outputs[i]);
    seeds.push_back(gradients[i]);
  }
  if (roots.empty()) return Tensors(stand_ins.size());
  const variable_list result =
      torch::autograd::grad(roots, variable_list(stand_ins.begin(), stand_ins.end()), seeds, /*retain_graph=*/true,
                            /*create_graph=*/false, /*allow_unused=*/true);
  return Tensors(result.begin(), result.end());
}

}  // namespace

Backward backward_of(const Tensors& stand_ins, const Tensors& outputs) {
  if (uses_plain(Kernel::small_graphs))
    return [stand_ins, outputs](const Tensors& gradients) { return backward_by_engine(stand_ins, outputs, gradients); };
  return [graph = std::make_shared<const SmallGraph>(stand_ins, outputs)](const Tensors& gradients) {
    return graph->backward(gradients);
  };
}

}  // namespace tessera::detail
