// SPDX-License-Identifier: Apache-2.0
// How an operator plugs into the two phases. Its phase one describes the launch: which tensors,
// which strided forms its kernel reads in place, which workspace it wants, and the closed call that
// computes. Everything else is common to all operators and happens here: bounds and overlap of the
// addresses, packing of other views, in-place rules, the executor, the queue, the verbose line.
#ifndef ACLGRAD_TENSOR_LAUNCH_H_
#define ACLGRAD_TENSOR_LAUNCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "aclnn/acl_meta.h"
#include "base/config.h"
#include "base/device_record.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cuda/queue.h"
#include "runtime/services.h"
#include "runtime/work.h"
#include "tensor/call_key.h"
#include "tensor/operand.h"

namespace aclgrad {

// Which views a kernel takes as they are; any other view of that operand is packed to (unpacked
// from) a contiguous copy in the workspace around the call.
struct Layout {
  // The last `contiguous_dims` dimensions must be one dense run; those before may have any strides.
  // 0: any strides at all. 8: the whole tensor must be contiguous. Dimensions of size 1 do not
  // count.
  int contiguous_dims = 0;
};
inline constexpr Layout kAnyStrides{0};
inline constexpr Layout kDense{kMaxRank};
constexpr Layout rows_of(int contiguous_dims) { return Layout{contiguous_dims}; }

inline constexpr size_t kMaxOperands = 16;
inline constexpr size_t kMaxRegions = 16;

class Launch;
class LaunchWork;
struct LaunchState;

// What the closed call is given when it runs, on some thread, in the default floating-point
// environment. Indices are those that Launch::input, output and book returned.
class Run {
 public:
  // Address of element (0, 0, ...) of the view that Launch::view(operand) describes; null for an
  // absent operand or one without elements.
  void* address(int operand) const { return addresses_[static_cast<size_t>(operand)]; }
  template <class T>
  T* get(int operand) const {
    return static_cast<T*>(address(operand));
  }
  // A booked region, 64-byte aligned, uninitialised.
  void* region(int booking) const { return regions_[static_cast<size_t>(booking)]; }
  DataErrors& errors() const { return *errors_; }

  // Of a call on a GPU: where its kernels are launched, and what one of them tells of a data error
  // (null where the call does not explain it).
  const CudaQueue& queue() const { return queue_; }
  DeviceRecord* record() const { return record_; }
  // The device memory that the call's scratch_on_cuda() asked for, until the last kernel is done.
  void* scratch() const { return scratch_; }

 private:
  friend class LaunchWork;
  std::array<void*, kMaxOperands> addresses_;
  std::array<void*, kMaxRegions> regions_;
  DataErrors* errors_ = nullptr;
  CudaQueue queue_;
  DeviceRecord* record_ = nullptr;
  void* scratch_ = nullptr;
};

enum class Role : uint8_t { kInput, kOutput, kUnusedInput, kUnusedOutput };

// Bytes that the closed call may take: sixteen views, and room for sizes.
inline constexpr size_t kCallBytes = 2560;

// How the closed call is run, and how it ends (null: nothing to do).
struct CallFunctions {
  void (*run)(const void* call, const Run& run) = nullptr;
  void (*destroy)(void* call) = nullptr;
  // On a GPU: hands the kernels to Run::queue() (null: there are none), and reports what one of
  // them wrote to Run::record() (null: none does).
  CudaAnswer (*run_on_cuda)(const void* call, const Run& run) = nullptr;
  // Bytes of device memory that they take beside the workspace (null: none).
  CudaAnswer (*scratch_on_cuda)(const void* call, const CudaQueue& queue, size_t& bytes) = nullptr;
  void (*explain)(const void* call, const DeviceRecord& found, DataErrors& errors) = nullptr;
};

extern "C" {
// What Launch's functions of the same names do; its state stays inside libnnopbase.
[[gnu::visibility("default")]] int aclgrad_launch_operand(LaunchState& state,
                                                          const Operand& operand, Layout layout,
                                                          Role role, View* view);
[[gnu::visibility("default")]] void aclgrad_launch_allow_in_place(LaunchState& state, int output,
                                                                  int input);
[[gnu::visibility("default")]] View aclgrad_launch_view(const LaunchState& state, int operand);
[[gnu::visibility("default")]] bool aclgrad_launch_packed(const LaunchState& state, int operand);
[[gnu::visibility("default")]] int aclgrad_launch_book(LaunchState& state, int64_t bytes);
[[gnu::visibility("default")]] void aclgrad_launch_describe(LaunchState& state,
                                                            std::string&& problem, double bytes,
                                                            const char* target);
// kCallBytes aligned as for any type. Whoever makes a call there says how it ends.
[[gnu::visibility("default")]] void* aclgrad_launch_room(LaunchState& state);
[[gnu::visibility("default")]] void aclgrad_launch_call(LaunchState& state,
                                                        CallFunctions functions);
[[gnu::visibility("default")]] void aclgrad_launch_refuse_last(LaunchState& state,
                                                               const char* reason);
[[gnu::visibility("default")]] void aclgrad_launch_keep_nothing(LaunchState& state);
[[gnu::visibility("default")]] Status aclgrad_check_outputs(const char* op,
                                                            const uint64_t* workspace_size,
                                                            aclOpExecutor* const* executor);
[[gnu::visibility("default")]] Status aclgrad_plan_phase(
    const char* op, const CallKey* key, uint64_t* workspace_size, aclOpExecutor** executor,
    Status (*body)(void* context, Launch& launch), void* context) noexcept;
[[gnu::visibility("default")]] Status aclgrad_run_phase(const char* op, void* workspace,
                                                        uint64_t workspace_size,
                                                        aclOpExecutor* executor,
                                                        aclrtStream stream) noexcept;
}

// Filled by an operator in phase one, immutable afterwards; shared by all runs of a repeatable
// executor. Made by plan_phase; a reference to it is good for that call only.
class Launch {
 public:
  explicit Launch(LaunchState& state) : state_(state) {}
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  // Tensor parameters in the order of the signature; an absent optional one is registered too (it
  // keeps its number for aclSet...TensorAddr). Each returns the index of the operand. What is
  // registered has passed check::rank and check::sizes. `view` becomes what view(index) returns;
  // that of an absent operand is left alone.
  int input(const Operand& operand, Layout layout, View* view = nullptr) {
    return aclgrad_launch_operand(state_, operand, layout, Role::kInput, view);
  }
  int output(const Operand& operand, Layout layout, View* view = nullptr) {
    return aclgrad_launch_operand(state_, operand, layout, Role::kOutput, view);
  }
  // A parameter that is only checked and never touched (bias of LayerNorm, a masked-off output). It
  // has to be alive in both phases; its shape and address do not matter.
  int unused(const Operand& operand, bool is_output = false) {
    return aclgrad_launch_operand(state_, operand, kAnyStrides,
                                  is_output ? Role::kUnusedOutput : Role::kUnusedInput, nullptr);
  }

  // `output` may be the very same view as `input` (address, strides, shape and dtype).
  void allow_in_place(int output, int input) {
    aclgrad_launch_allow_in_place(state_, output, input);
  }

  // The view the kernel will get: the operand's own, or a contiguous one when it is packed.
  View view(int operand) const { return aclgrad_launch_view(state_, operand); }
  bool packed(int operand) const { return aclgrad_launch_packed(state_, operand); }

  // Books workspace; the region is fetched with Run::region.
  int book(int64_t bytes) { return aclgrad_launch_book(state_, bytes); }

  // The problem in the bench grammar, "layer_norm_backward/f16/4096x1024", and the bytes that the
  // computation moves at least: for the verbose line. Needed only while aclgrad_verbose() is true.
  // The bytes are a double, because the dims of empty tensors may multiply beyond int64.
  // `target`: what the kernel runs on, with static storage; null is the active instruction set.
  void describe(std::string problem, double bytes, const char* target = nullptr) {
    aclgrad_launch_describe(state_, std::move(problem), bytes, target);
  }

  // Makes a Call, once, and keeps it as long as the plan: filled in place, it is never copied.
  template <class Call>
  Call& make() {
    static_assert(sizeof(Call) <= kCallBytes);
    static_assert(alignof(Call) <= alignof(std::max_align_t));
    Call* call = new (aclgrad_launch_room(state_)) Call;
    CallFunctions functions;
    if constexpr (!std::is_trivially_destructible_v<Call>) {
      functions.destroy = [](void* made) { std::destroy_at(static_cast<Call*>(made)); };
    }
    aclgrad_launch_call(state_, functions);
    return *call;
  }
  // The computation: call(run), what make<Call>() returned. May not throw and may not refuse; data
  // errors go to Run::errors(). On a GPU it is call.on_cuda(run), and what a kernel leaves in
  // Run::record() goes to call.explain(record, errors); a Call without on_cuda refuses there, and
  // one with scratch_on_cuda(queue, bytes) finds so much memory in Run::scratch().
  // Not said: nothing to do (empty tensors), the checks of phase two still apply.
  template <class Call>
  void run(const Call&) {
    CallFunctions functions;
    functions.run = [](const void* made, const Run& run) {
      (*static_cast<const Call*>(made))(run);
    };
    if constexpr (config::kHasCuda &&
                  requires(const Call& call, const Run& run) { call.on_cuda(run); }) {
      functions.run_on_cuda = [](const void* made, const Run& run) -> CudaAnswer {
        return static_cast<const Call*>(made)->on_cuda(run);
      };
    }
    if constexpr (config::kHasCuda &&
                  requires(const Call& call, const CudaQueue& queue, size_t& bytes) {
                    call.scratch_on_cuda(queue, bytes);
                  }) {
      functions.scratch_on_cuda = [](const void* made, const CudaQueue& queue,
                                     size_t& bytes) -> CudaAnswer {
        return static_cast<const Call*>(made)->scratch_on_cuda(queue, bytes);
      };
    }
    if constexpr (requires(const Call& call, const DeviceRecord& found, DataErrors& errors) {
                    call.explain(found, errors);
                  }) {
      functions.explain = [](const void* made, const DeviceRecord& found, DataErrors& errors) {
        static_cast<const Call*>(made)->explain(found, errors);
      };
    }
    aclgrad_launch_call(state_, functions);
  }

  // The call will run on a GPU.
  static bool on_cuda() { return aclgrad_has_device_queues(); }

  // Phase one refuses with 161002 and this text (static storage) when bounds and overlap are right:
  // for the rule that a contract wants to be checked last.
  void refuse_last(const char* reason) { aclgrad_launch_refuse_last(state_, reason); }

  // The plan owns so much memory that it goes with its executor, instead of staying at hand for the
  // next call with the same arguments.
  void keep_nothing() { aclgrad_launch_keep_nothing(state_); }

  const LaunchState& state() const { return state_; }

 private:
  LaunchState& state_;
};

// Phase one: null checks of the two out-pointers come first with everything else of that kind, so
// `body` gets them as they are: it must call check_outputs() among its null checks. `body` (called
// as Status(Launch&)) fills the launch or refuses; then bounds and overlap are checked as far as
// addresses are known, the executor is made, and only then *workspace_size and *executor are
// written.
inline constexpr auto& check_outputs = aclgrad_check_outputs;

//
// `key`: all arguments but the two out-pointers (null: not said). Where an earlier call had the
// same and its tensors are as they were, `body` is not called: its plan is taken again.
template <class Body>
Status plan_phase(const char* op, const CallKey* key, uint64_t* workspace_size,
                  aclOpExecutor** executor, Body&& body) noexcept {
  using Callable = std::remove_reference_t<Body>;
  return aclgrad_plan_phase(
      op, key, workspace_size, executor,
      [](void* context, Launch& launch) -> Status {
        return (*static_cast<Callable*>(context))(launch);
      },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}
template <class Body>
Status plan_phase(const char* op, const CallKey& key, uint64_t* workspace_size,
                  aclOpExecutor** executor, Body&& body) noexcept {
  return plan_phase(op, &key, workspace_size, executor, std::forward<Body>(body));
}
template <class Body>
Status plan_phase(const char* op, uint64_t* workspace_size, aclOpExecutor** executor,
                  Body&& body) noexcept {
  return plan_phase(op, nullptr, workspace_size, executor, std::forward<Body>(body));
}

// Phase two of every operator: the checks of interface order, then the work is queued.
inline constexpr auto& run_phase = aclgrad_run_phase;

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_LAUNCH_H_
