// SPDX-License-Identifier: Apache-2.0
#include "operators.h"

#include <chrono>
#include <cmath>

#include "bfloat16.h"

namespace aclgrad::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr std::array<const char*, kOperators> kNames = {"aclnnLayerNorm",
                                                        "aclnnEmbedding",
                                                        "aclnnScaledMaskedSoftmax",
                                                        "aclnnNsaCompress",
                                                        "aclnnLayerNormBackward",
                                                        "aclnnEmbeddingDenseBackward",
                                                        "aclnnScaledMaskedSoftmaxBackward",
                                                        "aclnnGroupedBiasAddGrad",
                                                        "aclnnNsaCompressGrad"};

const char* name_of(Operator which) { return kNames[static_cast<size_t>(which)]; }

}  // namespace

Call::Call(Operator which, Use use, const PhaseOne& one, PhaseTwo two)
    : which_(which), use_(use), two_(two) {
  const double begin = now();
  require(one(&workspace_, &executor_), std::string(name_of(which)) + "GetWorkspaceSize");
  if (use == Use::repeatedly) {
    require(aclSetAclOpExecutorRepeatable(executor_), "aclSetAclOpExecutorRepeatable");
  } else {
    planning_ = now() - begin;
  }
}

Call::~Call() {
  if (executor_ != nullptr) static_cast<void>(aclDestroyAclOpExecutor(executor_));
}

Port::Port(Workers& workers, const Dims& dims, aclDataType dtype, float* values)
    : workers_(&workers), values_(values), size_(element_count(dims)) {
  if (dtype == ACL_BF16) rounded_ = Array<uint16_t>(size_);
  const void* memory = dtype == ACL_BF16 ? static_cast<void*>(rounded_.data()) : values;
  tensor_.emplace(dims, dtype, memory);
}

void Port::load() {
  workers_->run_chunks(rounded_.size(), [this](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) rounded_[i] = to_bfloat16(values_[i]);
  });
}

void Port::store() const {
  workers_->run_chunks(rounded_.size(), [this](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) values_[i] = from_bfloat16(rounded_[i]);
  });
}

std::array<Statistics, kOperators> Operators::names() {
  std::array<Statistics, kOperators> out;
  for (size_t i = 0; i < kOperators; ++i) out[i].name = kNames[i];
  return out;
}

void Operators::run(Call& call) {
  // One workspace serves all calls: each waits for its work, and the largest decides the size.
  if (call.workspace_ > workspace_.size()) workspace_ = Array<char>(call.workspace_);
  const double begin = now();
  void* workspace = call.workspace_ == 0 ? nullptr : workspace_.data();
  aclOpExecutor* executor = call.executor_;
  if (call.use_ == Use::once) call.executor_ = nullptr;  // the run consumes it
  require(call.two_(workspace, call.workspace_, executor, device_.stream()), name_of(call.which_));
  require(aclrtSynchronizeStream(device_.stream()), name_of(call.which_));
  Statistics& statistics = statistics_[static_cast<size_t>(call.which_)];
  statistics.seconds += now() - begin + call.planning_;
  ++statistics.calls;
}

void Operators::run(Call& call, std::initializer_list<Port*> inputs,
                    std::initializer_list<Port*> outputs) {
  for (Port* port : inputs) port->load();
  run(call);
  for (const Port* port : outputs) {
    port->store();
    add_to_norm(call.which_, port->values(), port->size());
  }
}

void Operators::add_to_norm(Operator which, const float* values, size_t size) {
  const auto index = static_cast<size_t>(which);
  if (index < kFirstGradient) return;
  // Partial sums by the size alone, then in order: any number of threads gives the same norm.
  constexpr size_t kPart = 32768;
  std::vector<double> parts((size + kPart - 1) / kPart);
  workers_.run(parts.size(), [&](size_t part) {
    constexpr size_t kLanes = 8;
    double lanes[kLanes] = {};
    const size_t end = std::min(size, (part + 1) * kPart);
    for (size_t i = part * kPart; i < end; ++i) {
      lanes[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    for (const double lane : lanes) parts[part] += lane;
  });
  for (const double part : parts) squares_[index] += part;
}

void Operators::end_step(uint64_t number) {
  for (size_t i = kFirstGradient; i < kOperators; ++i) {
    Statistics& statistics = statistics_[i];
    statistics.norm = std::sqrt(squares_[i]);
    squares_[i] = 0;
    if (steps_ == 0) continue;
    statistics.smallest = std::min(statistics.smallest.value_or(statistics.norm), statistics.norm);
    const bool gradient = statistics.norm > 0 && std::isfinite(statistics.norm);
    if (!gradient && statistics.failed == 0) statistics.failed = number;
  }
  ++steps_;
}

double Operators::seconds() const {
  double sum = 0;
  for (const Statistics& each : statistics_) sum += each.seconds;
  return sum;
}

void Operators::forget() {
  statistics_ = names();
  squares_ = {};
  steps_ = 0;
}

}  // namespace aclgrad::train
