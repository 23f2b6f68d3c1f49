// Prints pytorch.json for gen_layers.py: the results of PyTorch's layers in the C++ frontend (torch::nn).
//
//   g++ -std=c++20 gen_layers_pytorch.cpp -I$TORCH/include -I$TORCH/include/torch/csrc/api/include -L$TORCH/lib
//       -ltorch -ltorch_cpu -lc10 -Wl,-rpath,$TORCH/lib && ./a.out > pytorch.json
//
// $TORCH is the folder of the torch package. Weights have the names and layouts of Python's state_dict. x, y and
// cotangent have the layout that our layers take, features last.
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <string>

namespace nn = torch::nn;
using torch::Tensor;

bool first = true;

void print(const std::string& name, const Tensor& given) {
  const Tensor t = given.detach().contiguous();
  std::cout << (first ? "{" : ",\n") << "\"" << name << "\": {\"dtype\": \""
            << (t.is_floating_point() ? "float32" : "int32") << "\", \"shape\": [";
  first = false;
  for (int64_t d = 0; d < t.dim(); ++d) std::cout << (d ? "," : "") << t.size(d);
  std::cout << "], \"values\": [";
  const Tensor flat = t.flatten().to(torch::kDouble);
  std::cout.precision(9);
  for (int64_t i = 0; i < flat.numel(); ++i) std::cout << (i ? "," : "") << flat[i].item<double>();
  std::cout << "]}";
}

// Replaces the zeros and ones of the initial values; variances stay positive.
template <class Module>
void shake(Module& module) {
  const torch::NoGradGuard guard;
  for (auto& p : module->parameters()) p.add_(0.1 * torch::randn_like(p));
  for (auto& b : module->named_buffers())
    if (b.value().is_floating_point()) b.value().copy_(torch::rand_like(b.value()) + 0.5);
}

template <class Module>
void store(const std::string& name, Module module, Tensor x, const std::function<Tensor(Module&, Tensor)>& call) {
  shake(module);
  x.requires_grad_(x.is_floating_point());
  for (const auto& b : module->named_buffers())
    if (b.value().is_floating_point()) print(name + ".weights." + b.key(), b.value().clone());
  const Tensor y = call(module, x), cotangent = torch::randn_like(y);
  (y * cotangent).sum().backward();
  print(name + ".x", x), print(name + ".y", y), print(name + ".cotangent", cotangent);
  if (x.is_floating_point()) print(name + ".x_grad", x.grad());
  for (const auto& p : module->named_parameters())
    print(name + ".weights." + p.key(), p.value()), print(name + ".grads." + p.key(), p.value().grad());
}

template <class Module>
Tensor plain(Module& m, Tensor x) {
  return m->forward(x);
}
template <class Module>
Tensor channels_first(Module& m, Tensor x) {
  return m->forward(x.movedim(-1, 1)).movedim(1, -1);
}

// Runs a norm of PyTorch that takes images as (batch, features, ...).
template <class Module>
void store_channels(const std::string& name, Module module, Tensor x) {
  store<Module>(name, module, x, channels_first<Module>);
}

template <class Cell>
Tensor steps_of(Cell& cell, Tensor xs) {
  std::vector<Tensor> outputs;
  if constexpr (std::is_same_v<Cell, nn::LSTMCell>) {
    std::tuple<Tensor, Tensor> state{torch::zeros({xs.size(0), 4}), torch::zeros({xs.size(0), 4})};
    for (const Tensor& x : xs.unbind(1)) state = cell->forward(x, state), outputs.push_back(std::get<0>(state));
  } else {
    Tensor h = torch::zeros({xs.size(0), 4});
    for (const Tensor& x : xs.unbind(1)) h = cell->forward(x, h), outputs.push_back(h);
  }
  return torch::stack(outputs, 1);
}

Tensor self_attention(nn::MultiheadAttention& m, Tensor x) {
  // A float mask, added to the logits: the C++ frontend would add a boolean mask, too.
  const Tensor rows = x.transpose(0, 1), later = torch::full({x.size(1), x.size(1)}, -INFINITY).triu(1);
  return std::get<0>(m->forward(rows, rows, rows, {}, false, later)).transpose(0, 1);
}

int main() {
  torch::manual_seed(0);
  torch::set_num_threads(1);
  store<nn::Linear>("linear", nn::Linear(5, 7), torch::randn({2, 3, 5}), plain<nn::Linear>);
  store<nn::LayerNorm>("layer_norm", nn::LayerNorm(nn::LayerNormOptions({6})), torch::randn({2, 3, 6}),
                       plain<nn::LayerNorm>);
  store<nn::PReLU>("prelu", nn::PReLU(nn::PReLUOptions().num_parameters(6)), torch::randn({2, 6}), plain<nn::PReLU>);
  store<nn::Embedding>("embedding", nn::Embedding(7, 4), torch::randint(7, {2, 3}), plain<nn::Embedding>);
  store_channels("group_norm", nn::GroupNorm(2, 6), torch::randn({2, 3, 4, 6}));
  nn::BatchNorm2d evaluated(5), trained(5);
  evaluated->eval();
  store_channels("batch_norm_inference", evaluated, torch::randn({2, 3, 4, 5}));
  store_channels("batch_norm_train", trained, torch::randn({2, 3, 4, 5}));
  store_channels("conv1d", nn::Conv1d(nn::Conv1dOptions(4, 6, 3).stride(2).padding(1)), torch::randn({2, 7, 4}));
  store_channels("conv2d", nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 2}).groups(2).dilation({2, 1})),
                 torch::randn({2, 7, 5, 4}));
  store_channels("conv3d", nn::Conv3d(nn::Conv3dOptions(2, 3, 2)), torch::randn({2, 4, 5, 4, 2}));
  store_channels("conv_transpose1d",
                 nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 3).stride(2).padding(1).output_padding(1)),
                 torch::randn({2, 4, 4}));
  store_channels("conv_transpose2d",
                 nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, {3, 2}).stride({2, 3}).groups(2)),
                 torch::randn({2, 3, 4, 4}));
  store_channels("conv_transpose3d", nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2).stride(2)),
                 torch::randn({2, 2, 3, 2, 2}));
  store<nn::LSTMCell>("lstm", nn::LSTMCell(3, 4), torch::randn({2, 5, 3}), steps_of<nn::LSTMCell>);
  store<nn::GRUCell>("gru", nn::GRUCell(3, 4), torch::randn({2, 5, 3}), steps_of<nn::GRUCell>);
  store<nn::MultiheadAttention>("attention", nn::MultiheadAttention(6, 2), torch::randn({2, 5, 6}), self_attention);
  store_channels("adaptive_avg_pool", nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 2})),
                 torch::randn({2, 7, 6, 3}));
  store_channels("adaptive_max_pool", nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({3, 4})),
                 torch::randn({2, 7, 6, 3}));
  store_channels("avg_pool", nn::AvgPool2d(nn::AvgPool2dOptions({2, 3}).stride({2, 1}).padding({0, 1})),
                 torch::randn({2, 5, 6, 3}));
  store_channels("max_pool", nn::MaxPool3d(nn::MaxPool3dOptions({2, 2, 3}).stride({2, 1, 1}).padding({0, 0, 1})),
                 torch::randn({2, 4, 3, 5, 2}));
  std::cout << "}\n";
}
